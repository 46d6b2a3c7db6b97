"""One `vcl run` from end to end: data, methods, rows as they come, and at the end a table and a figure."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import save
from torch import Tensor

from vcl import __version__
from vcl.errors import VclError
from vcl.fitting.loop import Report, silent
from vcl.lab import tables
from vcl.lab.datasets import MissingData, load
from vcl.lab.estimate import check_methods
from vcl.lab.figures import lambda_grid, sample_grid
from vcl.lab.folder import RunFolder, new_under, write_atomic
from vcl.lab.generative.artifacts import GENERATORS_SUFFIX
from vcl.lab.kind import MethodEntry
from vcl.lab.largest import engines
from vcl.lab.plan import Plan
from vcl.lab.progress import Watch, both, watching
from vcl.lab.provenance import device_name, made_by
from vcl.lab.runner import of_those_left, run_method, set_aside_in
from vcl.lab.side_by_side import side_by_side
from vcl.lab.streams import Arrays, arrays
from vcl.ops.rng import Rng
from vcl.recursion import SetAside


@contextmanager
def open_folder(plan: Plan, out: Path | None) -> Iterator[RunFolder]:
    """The folder asked for, or a new one under runs/ named by experiment, preset and time; gone if no rows come."""
    if out is None:
        stem = f"{plan.experiment.name}-{plan.preset}-{datetime.now():%Y%m%d-%H%M%S}"
        folder = new_under(Path("runs"), stem)
    else:
        folder = RunFolder(out)
    folder.create()
    try:
        yield folder
    finally:
        folder.drop_if_bare()


def load_arrays(plan: Plan, other: Plan | None, data: Path | None, console: Console) -> tuple[Plan, Arrays, str]:
    """The plan's data, or the other plan with its data if that cannot be had; says which it is and where it is from."""
    say = partial(say_on, console)
    try:
        found = load(plan.experiment.dataset, data, say=say)
    except MissingData as error:
        if other is None:
            raise
        say(f"{plan.experiment.dataset} cannot be had, so {other.experiment.name} is run instead: {error}")
        plan, found = other, load(other.experiment.dataset, data, say=say)
    say(f"{plan.experiment.name} on {found.name}: {found.origin}")
    return plan, arrays(found), found.origin


def execute(plan: Plan, data: Arrays, origin: str, folder: RunFolder, console: Console, jobs: int = 1) -> None:
    """Runs every method of the plan; rows, tables, figures and settings go to ``folder``."""
    check_methods(plan, data, jobs)
    about = describe(plan, origin, data)
    folder.describe(about)
    began = perf_counter()
    seconds = run_methods(plan, data, folder, console, jobs)
    total = perf_counter() - began
    folder.describe({**about, **finished(seconds, total)})
    show(plan, about, total, folder, console)


def run_methods(plan: Plan, data: Arrays, folder: RunFolder, console: Console, jobs: int = 1) -> dict[str, float]:
    """Run every method of the plan, up to ``jobs`` at once, rows going to ``folder`` task by task; the seconds of each.

    Methods that share the device are timed from their beginning to their end.
    """
    seconds, drawing = dict.fromkeys((entry.name for entry in plan.methods), 0.0), Lock()

    def say(line: str) -> None:
        folder.note(line)
        say_on(console, line)

    def run(place: int, entry: MethodEntry, watch: Watch, beside: Report) -> None:
        began = perf_counter()
        watch.begin(entry.name, plan.settings.tasks)
        pictures: list[Tensor] = []
        runs, end = plan.runs(entry), tuple[SetAside, ...]()
        for done in run_method(plan, entry, data, both(watch.epoch, beside), say=say):
            end = done.state.set_aside
            folder.add(done.rows, place, {runs[each.run][:2] for each in end})
            pictures += [] if done.pictures is None else [done.pictures]
            if done.saved is not None:
                folder.keep(f"{entry.name}{GENERATORS_SUFFIX}", done.saved)
            watch.task(done)
        if pictures:
            with drawing:  # matplotlib has settings that all threads share
                keep_pictures(of_those_left(pictures, len(runs), end), entry.name, plan, data, folder)
        seconds[entry.name] = round(perf_counter() - began, 2)

    def run_beside(place: int, entry: MethodEntry, beside: Report) -> None:
        with watching(console, lines=True) as watch:
            run(place, entry, watch, beside)

    if jobs > 1:
        side_by_side([partial(run_beside, *each) for each in enumerate(plan.methods)], jobs, plan.device)
    else:
        with watching(console) as watch:
            for place, entry in enumerate(plan.methods):
                run(place, entry, watch, silent)
    return seconds


def say_on(console: Console, line: str) -> None:
    """A line of text as it is."""
    console.print(line, highlight=False, soft_wrap=True)


def keep_pictures(pictures: list[Tensor], method: str, plan: Plan, data: Arrays, folder: RunFolder) -> None:
    """What the first run's generators drew after each task: all of it as tensors, one of each as a figure."""
    kept = {f"after {after}": images.contiguous() for after, images in enumerate(pictures, start=1)}
    folder.keep(f"{method}.samples.safetensors", save(kept))
    names = [task.name for task in plan.experiment.stream(data, plan.settings, Rng(plan.seeds[:1]))]
    title = f"{plan.experiment.name}, preset {plan.preset}: {method}"
    sample_grid.draw([images[0, :, 0] for images in pictures], names, title, folder.path / f"samples-{method}")


def show(
    plan: Plan, about: dict[str, Any], seconds: float, folder: RunFolder, console: Console, before: str = ""
) -> None:
    """The table and the figures of the rows in ``folder``, there and on the console; ``before`` opens the document."""
    if not folder.rows:
        raise VclError(f"no task of {plan.experiment.name} has test data, so there is nothing to show; give some.")
    paper, kind = plan.paper(), plan.experiment.kind
    lines, columns = kind.table.cells(folder.rows, paper), kind.table.columns(folder.rows)
    title = f"{plan.experiment.name}, preset {plan.preset}, after {plan.settings.tasks} tasks"
    note = kind.table.explain(folder.rows, paper)
    made = f"`{about['command']}`, vcl {__version__}, torch {torch.__version__}, {about['device']}, {seconds:.0f} s"
    text = f"# {title}\n\n{before}{tables.markdown(lines, columns)}\n{note}\n\nMade by {made}.\n"
    text += "".join(f"\n{each}\n" for each in folder.notes)
    write_atomic(folder.path / "table.md", text)
    figures = kind.draw(folder.rows, title, paper, folder.path)
    if any(len(lams) > 1 for lams in plan.grid.values()):
        path = folder.path / "lambda"
        figures = lambda_grid.draw(folder.rows, title, plan.experiment.paper, path, score=kind.score) + figures
    tables.show(console, title, lines, columns)
    for line in (note, *set_aside_in(folder.notes)):
        say_on(console, line)
    console.print(
        f"{seconds:.0f} s on {about['device']}. Rows, settings and table in {folder.path}; figure {figures[0]}.",
        highlight=False,
        soft_wrap=True,
    )


def finished(seconds: dict[str, float], total: float) -> dict[str, Any]:
    """What is known of a run at its end."""
    return {"finished": now(), "seconds": seconds, "total_seconds": round(total, 2)}


def describe(plan: Plan, origin: str, data: Arrays) -> dict[str, Any]:
    """Everything that made the numbers."""
    return {
        "command": command(sys.argv[1:]),
        "experiment": plan.experiment.name,
        "preset": plan.preset,
        "methods": [entry.name for entry in plan.methods],
        "seeds": list(plan.seeds),
        "settings": asdict(plan.settings),
        "settings_of": {entry.name: plan.overrides(entry) for entry in plan.methods},
        "grid": plan.grid,
        "data": {"name": plan.experiment.dataset, "origin": origin},
        "shape": list(data.train_x.shape[1:]),
        "device": device_name(plan.device),
        "engine": engines(plan, data),
        "versions": made_by(),
        "started": now(),
    }


def command(arguments: Sequence[str]) -> str:
    """The command line without the folders of this machine, which no number depends on."""
    kept: list[str] = []
    skip = False
    for word in arguments:
        if not skip and word.split("=")[0] not in ("--out", "--data"):
            kept.append(word)
        skip = not skip and word in ("--out", "--data")
    return shlex.join(["vcl", *kept])


def now() -> str:
    """The time, for people and machines."""
    return datetime.now(UTC).isoformat(timespec="seconds")
