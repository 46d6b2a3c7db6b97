"""Parts: one method of one experiment with all its runs stacked, computed once, kept, and resumed after a stop.

A part is recognised by everything that its numbers depend on (and by nothing else): the data, the stream, the network,
the method as it was built, how it predicts, the kind of device and the runs, all stored with it in full. So a part that
several figures share is computed once, and a changed setting or default computes anew only what it touches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from rich.console import Console
from safetensors.torch import load, save
from torch import Tensor

from vcl.fitting.loop import Report, silent
from vcl.lab.background_writer import BackgroundWriter
from vcl.lab.estimate import check_methods
from vcl.lab.folder import make_folder, write_atomic, write_atomic_bytes
from vcl.lab.identity import depends_on, described, identity, same
from vcl.lab.largest import engine_of
from vcl.lab.memory import check_listed
from vcl.lab.plan import Plan
from vcl.lab.progress import both, watching
from vcl.lab.provenance import device_name, made_by
from vcl.lab.reading import check_pictures, check_rows, read_part, read_set_aside, read_state, reading
from vcl.lab.results import Row, read_csv, to_csv
from vcl.lab.runner import of_those_left, run_method
from vcl.lab.streams import Arrays
from vcl.learner.checkpoint import packed
from vcl.recursion import SetAside, State

FORMAT = 2
"""Raised when the same description would give other numbers."""

PART, ROWS, TABLE, STATE = "part.json", "rows.csv", "table.csv", "state.safetensors"
PICTURES = "pictures.safetensors"
HASH = "[0-9a-f]" * 12


class Loaded(NamedTuple):
    """A dataset as arrays, where it came from, and a digest of every byte of it."""

    arrays: Arrays
    origin: str
    digest: str


class FinishedPart(NamedTuple):
    """A finished part: its file of numbers, the seconds that it took, and whether it was computed just now."""

    path: Path
    seconds: float
    new: bool
    notes: tuple[str, ...] = ()
    """What was said of its numbers while it was computed."""
    set_aside: tuple[SetAside, ...] = ()
    """The runs that its numbers are without."""

    def pictures(self, runs: int) -> list[Tensor]:
        """What generators of those of ``runs`` that are left drew after each task, if there are any."""
        return of_those_left(read_pictures(self.path.with_name(PICTURES)), runs, self.set_aside)


def description(plan: Plan, data: Loaded) -> dict[str, Any]:
    """Everything that the numbers of a plan with one method depend on: live values (see :mod:`vcl.lab.identity`)."""
    (entry,) = plan.methods
    runs = [[run.label, run.seed] for run in plan.runs(entry)]
    return {"format": FORMAT, "data": data.digest, **depends_on(plan, entry), "runs": runs}


def write_pictures(pictures: Sequence[Tensor]) -> bytes:
    """Pictures after each task as bytes."""
    return save({str(after): images.contiguous() for after, images in enumerate(pictures, start=1)})


def read_pictures(path: Path) -> list[Tensor]:
    """The pictures that :func:`write_pictures` wrote, in order; none if there is no such file."""
    if not path.exists():
        return []
    with reading(path):
        found = load(path.read_bytes())
        return [found[str(after)] for after in range(1, len(found) + 1)]


def notes_under(root: Path) -> list[tuple[str, list[str]]]:
    """What was said of the numbers of each part under a folder, by the part's name."""
    return [(path.parent.name, read_part(path)["notes"]) for path in sorted(root.glob(f"*-{HASH}/{PART}"))]


def read_rows(path: Path, plan: Plan, tasks: int | None = None, set_aside: Sequence[SetAside] = ()) -> list[Row]:
    """The rows of a part after so many tasks (left out: all), which must be those that the plan asks for.

    Those of runs that were set aside later are in the file, and are left out here.
    """
    (entry,) = plan.methods
    tasks, runs = plan.settings_of(entry).tasks if tasks is None else tasks, plan.runs(entry)
    with reading(path):
        gone = {runs[each.run][:2] for each in set_aside}
        rows = [row for row in read_csv(path) if row.after <= tasks and row[:2] not in gone]
    check_rows(rows, [run for run in runs if run[:2] not in gone], tasks, path)
    return rows


def _resumed(folder: Path, plan: Plan, data: Arrays) -> tuple[State[Any], list[Row], list[Tensor]]:
    """Where a part stopped: its state, and the rows and pictures up to there, all of which must fit the plan.

    Rows are written before the state, so there may be some of a task that the state does not have.
    """
    (entry,) = plan.methods
    kind, settings, runs = plan.experiment.kind, plan.settings_of(entry), len(plan.runs(entry))
    with torch.device("meta"):  # shapes alone
        model = kind.model(settings, tuple(data.train_x.shape[1:]))
    state = read_state(folder / STATE, model, runs, settings.tasks, data.train_x, plan.device)
    pictures = read_pictures(folder / PICTURES)[: state.t]
    left = of_those_left(pictures, runs, state.set_aside)
    check_pictures(left, len(state.alive), 0 if kind.samples is None else state.t, folder / PICTURES)
    read_rows(folder / ROWS, plan, state.t, state.set_aside)
    return state, [row for row in read_csv(folder / ROWS) if row.after <= state.t], pictures


class Store:
    """The parts under one folder."""

    def __init__(self, root: Path, device: torch.device, command: str, console: Console) -> None:
        self.root, self.device, self.command, self.console = root, device, command, console

    def finished(self, plan: Plan, data: Loaded) -> bool:
        """Whether there is nothing left to compute."""
        check_listed(plan, data.arrays)
        return bool(self._find(_stem(plan), description(plan, data))[1].get("finished"))

    def stream(self, plan: Plan, data: Loaded, called: str | None = None, beside: Report = silent) -> FinishedPart:
        """The rows of a plan with one method: read, gone on with from the last finished task, or computed.

        ``called`` is what it goes by where others are at work too, which ``beside`` is told of the epochs for.
        """
        check_listed(plan, data.arrays)
        (entry,) = plan.methods
        value = description(plan, data)
        folder, known = self._find(_stem(plan), value)
        if known.get("finished"):
            left_out = read_set_aside(folder / PART, known, len(plan.runs(entry)))
            return FinishedPart(folder / ROWS, known["seconds"], False, tuple(known["notes"]), left_out)
        check_methods(plan, data.arrays)
        about, folder = described(value), make_folder(folder)
        state, rows, seconds, pictures = None, list[Row](), 0.0, list[Tensor]()
        gone: tuple[SetAside, ...] = ()
        if (folder / STATE).exists() and known:
            state, rows, pictures = _resumed(folder, plan, data.arrays)
            seconds, gone = known["seconds"], state.set_aside
            self._say(f"{folder.name}: goes on after task {state.t}")
        notes, builds = list(known.get("notes", ())), _builds(known)
        engine = engine_of(plan, entry, data.arrays)

        def say(line: str) -> None:
            notes.extend(() if line in notes else (line,))
            self._say(line)

        self._write(folder, about, seconds, notes, builds, finished=False, engine=engine)
        with watching(self.console, lines=called is not None) as watch, BackgroundWriter() as write_later:
            watch.begin(entry.name, plan.settings_of(entry).tasks)
            for done in run_method(plan, entry, data.arrays, both(watch.epoch, beside), state, say):
                rows += done.rows
                if done.pictures is not None:
                    pictures.append(done.pictures)
                    write_atomic_bytes(folder / PICTURES, write_pictures(pictures))
                seconds += done.seconds
                write_atomic(folder / ROWS, to_csv(rows))
                self._write(folder, about, seconds, notes, builds, finished=False, engine=engine)
                write_later(folder / STATE, packed(done.state))
                gone = done.state.set_aside
                watch.task(done if called is None else done._replace(method=called))
        seconds = round(seconds, 3)  # as a later call will read it
        self._write(folder, about, seconds, notes, builds, True, gone, engine)
        (folder / STATE).unlink(missing_ok=True)
        return FinishedPart(folder / ROWS, seconds, True, tuple(notes), gone)

    def table(self, name: str, settings: Mapping[str, Any], compute: Callable[..., str]) -> FinishedPart:
        """The table of an item that is no stream of tasks: read or computed, whole."""
        about = {"format": FORMAT, "name": name, "settings": described(settings)}
        folder, known = self._find(name, about)
        if known.get("finished"):
            return FinishedPart(folder / TABLE, known["seconds"], False)
        make_folder(folder)
        self._write(folder, about, 0.0, [], _builds({}), finished=False)
        began = perf_counter()
        write_atomic(folder / TABLE, compute(settings, self.device))
        seconds = round(perf_counter() - began, 3)
        self._write(folder, about, seconds, [], _builds({}), finished=True)
        self._say(f"{name} in {seconds:.1f} s")
        return FinishedPart(folder / TABLE, seconds, True)

    def _find(self, stem: str, value: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
        """The folder of the part that ``value`` describes, and what is known of it: nothing, if it is a new one."""
        named = self.root / f"{stem}-{identity(described(value))}"
        # Its own name first; then those of parts from before a setting was added.
        for folder in (named, *sorted(set(self.root.glob(f"{stem}-{HASH}")) - {named})):
            known = self._known(folder)
            if known and same(known.get("description"), value):
                return folder, known
        return named, {}

    def _known(self, folder: Path) -> dict[str, Any]:
        path = folder / PART
        return read_part(path) if path.exists() else {}

    def _write(
        self,
        folder: Path,
        about: Mapping[str, Any],
        seconds: float,
        notes: Sequence[str],
        builds: Sequence[Mapping[str, Any]],
        finished: bool,
        set_aside: Sequence[SetAside] = (),
        engine: str = "-",
    ) -> None:
        gone = {"set_aside": [each._asdict() for each in set_aside]} if set_aside else {}
        text = {
            "finished": finished,
            "seconds": seconds,
            "command": self.command,
            "device": device_name(self.device),
            "engine": engine,
            "builds": list(builds),
            "notes": list(notes),
            **gone,
            "description": about,
        }
        write_atomic(folder / PART, json.dumps(text, indent=2) + "\n")

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


def _builds(known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What worked on a part so far and works on it now: versions and commit, each once."""
    return [*(build for build in known.get("builds", ()) if build != made_by()), made_by()]


def _stem(plan: Plan) -> str:
    return f"{plan.experiment.name}-{plan.methods[0].name}"
