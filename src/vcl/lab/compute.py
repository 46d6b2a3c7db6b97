"""Computes parts: the runs that the store lacks, task after task, continued where an earlier command stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from torch import Tensor

from vcl.fitting.loop import Report, silent
from vcl.lab.console import say_on
from vcl.lab.estimate import check_methods
from vcl.lab.evaluation import PreparationContext, Run, nothing
from vcl.lab.identity import description, digest_of_made
from vcl.lab.learning import Learning
from vcl.lab.memory import check_listed, check_memory
from vcl.lab.part import Part
from vcl.lab.reading import reading
from vcl.lab.results import Row
from vcl.lab.side_by_side import side_by_side
from vcl.lab.store import Stack, Store, key, stored_label
from vcl.learner.bounded import read_bounded


class Elsewhere(Protocol):
    """Computes parts in other processes; on return each part is finished in the store."""

    def __call__(self, parts: Sequence[Part], store: Store, console: Console, names: Sequence[str]) -> None:
        """Compute the parts, which are called so."""
        ...


class Result(NamedTuple):
    """The runs that were asked for, from however many stacks."""

    rows: list[Row]
    seconds: float
    notes: tuple[str, ...]
    pictures: dict[str, list[Tensor]]
    """Of the first run of each label, after each task: uint8 [tasks so far, count, H, W]."""
    new: bool
    """Whether any of it was computed just now."""


def prepare(part: Part, store: Store, say: Callable[[str], None]) -> tuple[Any, dict[str, Any]]:
    """What the evaluation needs beside the state, and the part's description (live values)."""
    plan, entry, data = part
    evaluation = plan.experiment.evaluation

    def once(name: str, about: Mapping[str, Any], make: Callable[[], bytes], read: Callable[[bytes], Any]) -> Any:
        path = store.once(name, about, make, f"{name}.safetensors")
        with reading(path):
            return read(read_bounded(path))

    prepared = None
    if data.arrays is not None and data.digest is not None and evaluation.prepare is not nothing:
        check_memory(plan, data.arrays)  # what is prepared may be large itself
        context = PreparationContext(plan.setup.prediction, data.arrays, data.digest, plan.device, say, once)
        prepared = evaluation.prepare(context)
    digest = data.digest or digest_of_made(plan.experiment, plan.setup.stream)
    return prepared, description(plan, entry, digest, evaluation.depends_on(prepared))


def missing(part: Part, stacks: Sequence[Stack]) -> list[Run]:
    """The runs that no finished stack has."""
    there = {run for stack in stacks if stack.finished for run in stack.runs}
    return [run for run in part.plan.runs(part.entry) if key(run) not in there]


def to_learn(needed: Sequence[Run], stacks: Sequence[Stack]) -> tuple[list[tuple[Stack, list[Run]]], list[Run]]:
    """The stacks to continue, each with its runs, and the runs that none of them has.

    A stack that holds a run which is not needed is left alone.
    """
    keys, begun = {key(run): run for run in needed}, []
    for stack in stacks:
        if not stack.finished and set(stack.runs) <= set(keys):
            begun.append((stack, [keys.pop(run) for run in stack.runs]))
    return begun, list(keys.values())


def compute(
    part: Part,
    store: Store,
    console: Console,
    called: str | None = None,
    beside: Report = silent,
    check: bool = False,
) -> Result:
    """The runs of a part: read from the store, continued from the last finished task, or computed.

    ``called`` is its name where several are at work; ``beside`` is told of every epoch too. With ``check`` a plan that
    cannot be run is refused before any training.
    """
    check_listed(part.plan, part.data.arrays)
    said: list[str] = []
    prepared, value = prepare(part, store, said.append)
    stacks = store.stacks(part.stem, value)
    needed = missing(part, stacks)
    if needed:
        if check:
            check_methods(part.plan, part.data.arrays)
        for line in said:
            say_on(console, line)
        work = Learning(part, value, prepared, store, console, said, called, beside)
        begun, rest = to_learn(needed, stacks)
        for stack, runs in begun:
            work.learn(stack.folder, runs, stack)
        if rest:
            work.learn(store.new(part.stem, value, [key(run) for run in rest]), rest, None)
        stacks = store.stacks(part.stem, value)
    finished = [stack for stack in stacks if stack.finished]
    for stack in finished:
        store.tidy(stack)
    return collect(part, finished, bool(needed))


def collect(part: Part, stacks: Sequence[Stack], new: bool) -> Result:
    """The runs that a part asks for, under the plan's labels, from finished stacks."""
    wanted = {key(run): run for run in part.plan.runs(part.entry)}
    rows: list[Row] = []
    pictures: dict[str, list[Tensor]] = {}
    seconds, notes = 0.0, dict[str, None]()
    for stack in stacks:
        mine = {run: wanted.pop(run) for run in stack.runs if run in wanted}
        if not mine:
            continue
        labels = {(stored_label(part.entry.name, run), run.seed): to.label for run, to in mine.items()}
        rows += [row._replace(method=labels[row[:2]]) for row in stack.rows() if row[:2] in labels]
        drawn = stack.pictures()
        for place, run in enumerate(stack.alive):
            if drawn and run in mine:
                pictures.setdefault(mine[run].label, [images[place] for images in drawn])
        seconds += float(stack.known["seconds"])
        notes |= dict.fromkeys(stack.known["notes"])
    order = {run.label: place for place, run in enumerate(part.plan.runs(part.entry))}
    metrics = {metric: place for place, metric in enumerate(dict.fromkeys(row.metric for row in rows))}
    rows.sort(key=lambda row: (order[row.method], row.after, row.on, metrics[row.metric], row.seed))
    return Result(rows, round(seconds, 3), tuple(notes), pictures, new)


def compute_all(
    parts: Sequence[Part],
    store: Store,
    console: Console,
    jobs: int = 1,
    names: Sequence[str] = (),
    elsewhere: Elsewhere | None = None,
) -> list[Result]:
    """Compute parts, up to ``jobs`` at once, or all of them ``elsewhere``; ``names`` are for the console."""
    shown = names or [part.entry.name for part in parts]
    if elsewhere is not None:
        elsewhere(parts, store, console, shown)
        store.bring()
    elif jobs > 1:
        pieces = [partial(_piece, part, store, console, name) for part, name in zip(parts, shown, strict=True)]
        side_by_side(pieces, jobs, store.device)
    return [compute(part, store, console) for part in parts]


def _piece(part: Part, store: Store, console: Console, called: str, beside: Report) -> None:
    compute(part, store, console, called, beside)
