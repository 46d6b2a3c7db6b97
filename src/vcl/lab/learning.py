"""Learns the runs of one stack, task after task, and keeps what each task gave; continues where it was stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from vcl.fitting.health import LIMITED, MANY
from vcl.fitting.loop import Progress, Report
from vcl.lab.background_writer import BackgroundWriter
from vcl.lab.console import say_on
from vcl.lab.evaluation import Run
from vcl.lab.folder import remove_unfinished, write_atomic_bytes
from vcl.lab.identity import at_default, described, same
from vcl.lab.largest import engine_of
from vcl.lab.part import Part
from vcl.lab.progress import Together, both, watching
from vcl.lab.provenance import now
from vcl.lab.pulse import pulse
from vcl.lab.reading import check_pictures, check_rows, read_part, read_runs, read_state, reading
from vcl.lab.results import (
    CONFIDENCES,
    MEASURES,
    OBJECTIVES,
    Confidence,
    FitMeasure,
    Objective,
    Row,
    Written,
    read_confidences,
    read_csv,
    read_measures,
    read_objectives,
    write_csv,
)
from vcl.lab.runner import run_method
from vcl.lab.store import (
    CALIBRATION,
    FITS,
    MOVING,
    OBJECTIVE,
    PART,
    PICTURES,
    PREDICTIVE,
    ROWS,
    SMALL,
    STATE,
    Stack,
    Store,
    key,
    of_those_left,
    read_pictures,
    stored_label,
    write_pictures,
)
from vcl.lab.sums import FILES, check_file, check_seal, either, owner, sums_of, sums_there
from vcl.learner.bounded import read_bounded
from vcl.learner.checkpoint import packed
from vcl.learner.generations import Generations
from vcl.learner.saving import JournalledReport, Saver
from vcl.ops.rng import Rng
from vcl.recursion import State


class Learning(NamedTuple):
    """How the runs of a part are learned, and where they are kept."""

    part: Part
    value: Mapping[str, Any]
    """The part's description."""
    prepared: Any
    store: Store
    console: Console
    notes: Sequence[str]
    called: str | None
    beside: Report

    def learn(self, folder: Path, runs: Sequence[Run], stack: Stack | None, wait: float = 0.0) -> None:
        """Learn what is left of a stack; one that fails before its first rows leaves nothing behind.

        Waits up to ``wait`` seconds for another process that learns it; ``stack`` is then what that one has left.
        """
        with self.store.taken(folder, wait):
            if self._finished(folder):  # by another process, since it was looked for
                return
            if wait or self.store.mirror is not None:
                stack = self._left(folder, runs)
            try:
                self._learn(folder, runs, stack)
            except BaseException:
                begun = (folder / ROWS).exists() or (folder / STATE).exists()
                if not begun and not Generations(folder, "").numbers():
                    with suppress(OSError):
                        (folder / PART).unlink(missing_ok=True)
                        folder.rmdir()
                raise

    def _finished(self, folder: Path) -> bool:
        known = read_part(folder / PART) if (folder / PART).exists() else {}
        return bool(known.get("finished")) and same(known["description"], self.value)

    def _left(self, folder: Path, runs: Sequence[Run]) -> Stack | None:
        """What is in the folder, if it is these runs."""
        stack = self.store.at(folder)
        if stack is None or not same(stack.known["description"], self.value):
            return None
        read_runs(folder / PART, stack.known)
        return stack if stack.runs == tuple(map(key, runs)) else None

    def _learn(self, folder: Path, runs: Sequence[Run], stack: Stack | None) -> None:
        """Rows, objectives, pictures and the state are kept after each task, the state last; within one the journal."""
        (plan, entry, data), store = self.part, self.store
        state, rows, pictures, objectives = None, list[Row](), list[Tensor](), list[Objective]()
        measures, confidences = list[FitMeasure](), list[Confidence]()
        known = _about(self.part, self.value, runs, self.notes, store.asked) if stack is None else dict(stack.known)
        if stack is not None:
            remove_unfinished(folder)
            known |= {"tasks": [], "seconds": 0.0, "set_aside": []}
            known |= {FILES: sums_there(folder, SMALL) if stack.sums is None else stack.sums}
        if stack is not None and (folder / STATE).exists():
            state, rows, pictures = resumed(stack, self.part)
            with reading(folder / OBJECTIVE):
                objectives = [each for each in read_objectives(folder / OBJECTIVE) if each.task <= state.t]
            with reading(folder / FITS):
                measures = [each for each in read_measures(folder / FITS) if each.task <= state.t]
            with reading(folder / CALIBRATION):
                confidences = [each for each in read_confidences(folder / CALIBRATION) if each.after <= state.t]
            # Rows are written before the state, and may be of a task more.
            known |= {"tasks": stack.known["tasks"][: state.t], "seconds": stack.known["seconds"]}
            known["set_aside"] = [each._asdict() for each in state.set_aside]
            say_on(self.console, f"{self.called or entry.name}: continues after task {state.t}")

        metrics = dict.fromkeys(row.metric for row in rows)

        def say(line: str) -> None:
            known["notes"] += [] if line in known["notes"] else [line]
            say_on(self.console, line)

        written = {ROWS: Written(Row._fields, rows), OBJECTIVE: Written(OBJECTIVES, objectives)}
        written[FITS] = Written(MEASURES, measures)
        epochs: list[Progress] = []
        stored = [run._replace(label=stored_label(entry.name, key(run))) for run in runs]
        store.write(folder, known)
        saver = Saver(folder, store.save_every, lambda line: say_on(self.console, line), lambda: store.kept(folder))
        begun = 0 if state is None else state.t
        with (
            watching(self.console, lines=self.called is not None) as bars,
            pulse(folder, begun) as beat,
            BackgroundWriter(owner(known)) as write_later,
            saver.saving(),
        ):
            watch = Together(bars, beat)
            watch.begin(self.called or entry.name, plan.stream(data.arrays, Rng((0,))).size)
            # Epochs are kept first: what stops the work comes after, and finds them complete.
            report = JournalledReport(both(epochs.append, both(watch.epoch, self.beside)), saver)
            if saver.begin(f"{folder.name}, task {begun + 1}").entries:
                say_on(self.console, f"{self.called or entry.name}: goes on within task {begun + 1}")
            elif stack is not None and stack.known["tasks"] and state is None:
                gone = f"{folder / STATE} is missing: the tasks that were finished are learned again"
                say_on(self.console, f"{self.called or entry.name}: {gone}")
            for done in run_method(plan, entry, stored, data.arrays, self.prepared, report, state, say):
                written[ROWS].add(done.rows)
                metrics.update(dict.fromkeys(row.metric for row in done.rows))
                written[OBJECTIVE].add(_objectives(epochs, done.number, stored, done.state))
                new = _measures(epochs, done.number, stored, done.state)
                written[FITS].add(new)
                measures += new
                # Of older tasks: the confidences when each was learned, and those of now.
                confidences = [each for each in confidences if each.on == each.after] + list(done.confidences)
                epochs.clear()
                if done.pictures is not None:
                    pictures.append(done.pictures)
                contents = {
                    **({PICTURES: write_pictures(pictures)} if pictures else {}),
                    OBJECTIVE: written[OBJECTIVE].text().encode(),
                    **({FITS: written[FITS].text().encode()} if measures else {}),
                    **({CALIBRATION: write_csv(CONFIDENCES, confidences).encode()} if confidences else {}),
                    ROWS: written[ROWS].text().encode(),
                }
                before, sums = known[FILES], sums_of(contents)
                store.write(folder, {**known, FILES: either(before, sums)})
                for name, content in contents.items():
                    write_atomic_bytes(folder / name, content)
                known[FILES] = {**before, **sums}
                known["tasks"] = [*known["tasks"], [done.task, done.tested]]
                known["metrics"] = list(metrics)
                known["seconds"] = round(known["seconds"] + done.seconds, 3)
                known["set_aside"] = [each._asdict() for each in done.state.set_aside]
                store.write(folder, known)
                # The last state is not needed to go on; a stop before the end learns the last task again.
                if done.kept is None:
                    write_later(folder / STATE, packed(done.state))
                else:
                    write_later(folder / PREDICTIVE, packed(done.kept))
                if done.kept is None:
                    saver.begin(f"{folder.name}, task {done.number + 1}")
                    if write_later.idle:
                        saver.files.drop()
                    store.kept(folder)
                watch.task(done if self.called is None else done._replace(method=self.called))
        if moving := still_moving_in(measures):
            known[MOVING] = moving
            say_on(self.console, f"{self.called or entry.name}: {moving}")
        store.write(folder, {**known, "finished": True})
        saver.files.drop()
        (folder / STATE).unlink(missing_ok=True)


def _about(
    part: Part, value: Mapping[str, Any], runs: Sequence[Run], notes: Sequence[str], asked: str
) -> dict[str, Any]:
    """What a new stack is; ``asked`` is when the command was given."""
    plan, entry, data = part
    stream = plan.stream(data.arrays, Rng((0,)))
    return {
        "asked": asked,
        "place": plan.methods.index(entry),
        "started": now(),
        "experiment": plan.experiment.name,
        "method": entry.name,
        "preset": plan.preset,
        "changes": list(plan.changes),
        "grid": entry.name in plan.grid,
        "dataset": plan.dataset,
        "origin": data.origin,
        "validation": plan.validation,
        "runs": [list(key(run)) for run in runs],
        "shape": list(stream.shape),
        "engine": engine_of(plan, entry, data.arrays),
        "seconds": 0.0,
        "tasks": [],
        "notes": list(notes),
        "set_aside": [],
        FILES: {},
        "description": described(value),
        "defaults": list(at_default(value)),
    }


class Told(NamedTuple):
    """What one epoch of a fit reported, of one run."""

    run: int
    """Its position in the stack."""
    place: int
    """Its position among those that took part."""
    fit: str
    epoch: Progress


def _told(epochs: Sequence[Progress], task: int, runs: int, state: State[Any]) -> Iterator[Told]:
    """The epochs of a task's fits, run by run.

    A run that is set aside ends the task for all; those that are left learn it again. Each run's numbers are of the
    last time that it took part. Where a task has several fits of one name, as to the coreset, later ones are numbered.
    """
    if not epochs:  # a projection need not report any
        return
    gone = [each.run for each in state.set_aside if each.task == task]
    before = [run for run in range(runs) if run in state.alive or run in gone]
    # Those that took part, by their number, which shrinks from one time to the next.
    took_part = {
        len(before) - count: [run for run in before if run not in gone[:count]] for count in range(len(gone) + 1)
    }
    times = list(dict.fromkeys(len(each.objective) for each in epochs))
    for size, following in zip(times, [*times[1:], 0], strict=True):
        later = took_part.get(following, [])
        last, number = dict[str, int](), dict[str, int]()
        for each in epochs:
            if len(each.objective) != size:
                continue
            if each.epoch <= last.get(each.what, each.epoch):
                number[each.what] = number.get(each.what, 0) + 1
            last[each.what] = each.epoch
            fit = each.what if number[each.what] == 1 else f"{each.what} {number[each.what]}"
            for place, run in enumerate(took_part[size]):
                if run not in later:
                    yield Told(run, place, fit, each)


def _objectives(epochs: Sequence[Progress], task: int, runs: Sequence[Run], state: State[Any]) -> list[Objective]:
    """One number for each run, fit and epoch of a task."""
    values = {id(each): each.objective.tolist() for each in epochs}
    return [
        Objective(runs[run].label, runs[run].seed, task, fit, epoch.epoch, values[id(epoch)][place])
        for run, place, fit, epoch in _told(epochs, task, len(runs), state)
    ]


def _measures(epochs: Sequence[Progress], task: int, runs: Sequence[Run], state: State[Any]) -> list[FitMeasure]:
    """How far each variational fit of a task got, for each run."""
    found = []
    for run, place, fit, epoch in _told(epochs, task, len(runs), state):
        if epoch.health is not None:
            label, seed = runs[run].label, runs[run].seed
            each = {name: float(value[place]) for name, value in epoch.health.rows().items()}
            found += [FitMeasure(label, seed, task, fit, name, value) for name, value in each.items()]
    return found


def still_moving_in(measures: Sequence[FitMeasure]) -> str:
    """One sentence or two if the variances of many fits show where they started; nothing otherwise."""
    limited = [each for each in measures if each.measure == LIMITED]
    many = [each for each in limited if each.value >= MANY]
    if not many:
        return ""
    most = max(each.value for each in many)
    return (
        f"{len(many)} of {len(limited)} variational fits had not converged: up to {100 * most:.0f} % of the variances "
        "were still moving as fast as the learning rate allows, so they reflect init_var. Use more epochs or, where "
        "Adam fits, a higher lr."
    )


def resumed(stack: Stack, part: Part) -> tuple[State[Any], list[Row], list[Tensor]]:
    """Where a stack stopped: its state, and the rows and pictures up to there, all of which must fit the plan.

    Rows are written before the state, so there may be some of a task that the state does not have.
    """
    plan, entry, data = part
    stream = plan.stream(data.arrays, Rng((0,)))
    with torch.device("meta"):  # shapes alone
        model = plan.model(stream.shape)
    folder, runs = stack.folder, len(stack.runs)
    for name in SMALL:
        with reading(folder / name):
            check_file(folder / name, stack.sums)
    with reading(folder / STATE):
        check_seal(read_bounded(folder / STATE), owner(stack.known))
    state = read_state(folder / STATE, model, runs, stream.size, stream.make(0).train, plan.device)
    pictures = read_pictures(folder / PICTURES)[: state.t]
    left = of_those_left(pictures, runs, state.set_aside)
    samples = plan.experiment.evaluation.samples
    check_pictures(left, len(state.alive), 0 if samples is None else state.t, folder / PICTURES)
    with reading(folder / ROWS):
        rows = [row for row in read_csv(folder / ROWS) if row.after <= state.t]
        alive = {(stored_label(entry.name, stack.runs[run]), stack.runs[run].seed) for run in state.alive}
    tasks, metrics = stack.known["tasks"][: state.t], stack.known.get("metrics", ())
    check_rows([row for row in rows if row[:2] in alive], sorted(alive), tasks, folder / ROWS, metrics)
    return state, rows, pictures
