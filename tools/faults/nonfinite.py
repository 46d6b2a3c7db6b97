"""Numbers that leave the finite ones, and memory that runs out: planted at chosen places of a run.

Where nothing can go on, one sentence says where (task, epoch, tensor) and what to do, and the same command ends later
at the bytes of an undisturbed run. Where one seed or lambda of a stack diverges, the others end at the bytes that they
have beside it, and the record says who is missing. This is the family ``numbers``, which is a module of Python's own.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from outcome import Outcome, Result
from runs import OUT, Ended, Undisturbed, line_of, run, undisturbed

SAVE = "--save-every 0"
CALLS = "calls"
"""A file beside the results: how often the place was passed."""

METHODS = ("vcl-random", "vcl-natural", "ewc", "si", "lp", "vcl-kron", "ewc-kron", "mle")
VARIANCES = ("vcl-random", "vcl-natural", "vcl-kron")
"""Those whose last fit of each task has variances."""
STACKS = ("vcl-random", "vcl-natural", "ewc", "si", "ewc-kron")
"""Methods whose stacks lose a seed."""
GRIDS = ("ewc", "si", "ewc-kron")
TIMES = 2
"""Trials of each method, place and way."""

PLACES = {
    "a step": ("vcl.fitting.step", "Eager", "__call__", "vcl-random"),
    "the curvature": ("vcl.fitting.kronecker_curvature", "KroneckerCurvature", "__call__", "ewc-kron"),
    "the choice of a coreset": ("vcl.coresets", "RandomK", "__call__", "vcl-random"),
    "a prediction": ("vcl.predicting.prediction", None, "_rows", "vcl-random"),
    "the writing of a state": ("vcl.lab.learning", None, "packed", "vcl-random"),
}
"""Where memory runs out: module, class, function, and a method that passes there."""

ERRORS: dict[str, Callable[[], Exception]] = {
    "Python's": MemoryError,
    "torch's": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 21474836480 bytes. Error code 12 (Cannot allocate memory)"
    ),
}
MEMORY = re.compile(r"^vcl: .*memory ran out in .*[;.]")
BEFORE = re.compile(rf"{MEMORY.pattern}|^vcl: there is not enough memory \(.*\); give fewer .*\.$")
DIVERGED = re.compile(
    r"^vcl: task \d+ \(.+\): .*(became non-finite in epoch \d+ of \d+|is not finite).*\(seed [\d, ]+\).*"
    r"(lower it|out of range).*( of '|every tensor|largest magnitude).*"
    r"|^vcl: task \d+ \(.+\): the predictions on task .+ are not finite; .*lower it"  # after the last epoch
)


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """All plants; in short one of each kind."""
    rng = Random(seed)
    for place in list(PLACES)[:1] if short else PLACES:
        for kind in list(ERRORS)[:1] if short else ERRORS:
            for trial in range(1 if short else TIMES):
                yield memory(place, kind, folder / f"{place} {kind} {trial}", rng)
    for way in ("a weight",) if short else WAYS:
        methods = VARIANCES if way == "a variance" else METHODS
        for method in methods[:1] if short else methods:
            for trial in range(1 if short else TIMES):
                yield diverging(way, method, folder / f"{way} {method} {trial}", rng)
    for method in STACKS[:1] if short else STACKS:
        for trial in range(1 if short else TIMES):
            line = line_of(method, "split-digits", SAVE).replace("--seeds 2", "--seeds 3")
            yield one_of("seed", method, line, folder / f"stack {method} {trial}", rng)
    for method in () if short else GRIDS:
        for trial in range(TIMES):
            line = line_of(method, "split-digits", SAVE).replace("run", "sweep", 1).replace("--seeds 2", "--seeds 1")
            line += " --grid lambda=1,10,100 --select test"
            yield one_of("lambda", method, line, folder / f"grid {method} {trial}", rng)


def memory(place: str, kind: str, folder: Path, rng: Random) -> Outcome:
    """An allocation that fails at a random pass of a place, and all later ones."""
    module, owner, name, method = PLACES[place]
    fault = f"memory runs out ({kind} error) in {place}"
    line = line_of(method, "split-digits", SAVE)
    wanted = undisturbed(line, folder / "whole")
    count = passes(line, partial(failing, module, owner, name, 0, kind), folder / "counted", place)
    number = rng.randint(1, count)
    end = run(line, folder / "trial", partial(failing, module, owner, name, number, kind), drawn=False)
    begun = (folder / "trial" / OUT).exists()  # before, there is no task to name
    sentence = MEMORY if begun else BEFORE
    return ended_well(fault, f"{method}, pass {number} of {count}", end, sentence, line, wanted, folder / "trial")


def diverging(way: str, method: str, folder: Path, rng: Random) -> Outcome:
    """The only run of a stack leaves the finite numbers at a random step."""
    fault = f"{way} leaves the finite numbers"
    line = line_of(method, "split-digits", SAVE).replace("--seeds 2", "--seeds 1")
    wanted = undisturbed(line, folder / "whole")
    count = passes(line, partial(spoiling, way, 0, 0), folder / "counted", "a step")
    number = rng.randint(1, count)
    end = run(line, folder / "trial", partial(spoiling, way, number, 0), drawn=False)
    note = f"{method}, step {number} of {count}"
    return ended_well(fault, note, end, DIVERGED, line, wanted, folder / "trial")


def ended_well(
    fault: str, note: str, end: Ended, sentence: re.Pattern[str], line: str, wanted: Undisturbed, folder: Path
) -> Outcome:
    """Whether a process said in one line what was wrong, and the same command then ends as if nothing had been."""
    wrong = end.wrong or ("" if end.code == 1 else f"it ended with {end.code}: {end.last}")
    wrong = wrong or ("" if sentence.match(end.last) else f"it said no more than: {end.last}")
    if wrong:
        return Outcome(fault, Result.LOST, f"{note}: {wrong}")
    outcome = wanted.judged(fault, run(line, folder, drawn=False), folder, note)
    return outcome if outcome.result is Result.LOST else outcome._replace(note="")


def one_of(what: str, method: str, line: str, folder: Path, rng: Random) -> Outcome:
    """One run of a stack diverges at a random step; the others end at the bytes that they have beside it."""
    fault = f"one {what} of a stack diverges"
    wanted = undisturbed(line, folder / "whole")
    count, gone = passes(line, partial(spoiling, "a weight", 0, 0), folder / "counted", "a step"), rng.randrange(3)
    number = rng.randint(1, count)
    end = run(line, folder / "trial", partial(spoiling, "a weight", number, gone), drawn=False)
    note = f"{method}, run {gone}, step {number} of {count}"
    wrong = end.wrong or (f"it ended with {end.code}: {end.last}" if end.code else "")
    wrong = wrong or badly_set_aside(folder / "trial" / OUT, wanted, end, gone)
    return Outcome(fault, Result.LOST if wrong else Result.SURVIVED, f"{note}: {wrong}" if wrong else "")


PASSES: dict[tuple[str, str], int] = {}
"""Of the commands whose passes of a place were counted already."""


def passes(line: str, count: Callable[[], object], folder: Path, place: str) -> int:
    """How often a run passes a place."""
    if (line, place) not in PASSES:
        run(line, folder, count, drawn=False)
        PASSES[line, place] = int((folder / CALLS).read_text())
    return PASSES[line, place]


def badly_set_aside(out: Path, whole: Undisturbed, end: Ended, gone: int) -> str:
    """What is wrong with the results without one run; nothing if the others' rows are the same and it is told of."""
    (path,) = (out / "parts").glob("*/part.json")
    known = json.loads(path.read_text())
    aside = known["set_aside"]
    if [each["run"] for each in aside] != [gone]:
        return f"set aside are {aside}"
    said = [line for line in end.said.splitlines() if "1 of 3 runs set aside: seed " in line]
    if not said or not any("1 of 3 runs set aside" in note for note in known["notes"]):
        return "nobody says that a run is missing"
    if not aside[0]["reason"].endswith(".") or "task" not in said[0]:
        return f"the record does not say why: {aside[0]}"
    labels = [key_of(lam, seed, known["method"]) for lam, seed in known["runs"]]
    left = [label for place, label in enumerate(labels) if place != gone]
    name = path.with_name("rows.csv").relative_to(out).as_posix()
    found, wanted = rows_of((out / name).read_text()), rows_of(whole.kept[name].decode())
    for key in left:
        if found.get(key) != wanted.get(key) or not found.get(key):
            return f"the rows of {key} are others"
    last = max(int(row[2]) for row in wanted[left[0]])
    more = [row for row in found.get(labels[gone], ()) if int(row[2]) == last]
    return "it has rows of the run that diverged after the last task" if more else ""


def key_of(lam: float | None, seed: int, method: str) -> tuple[str, str]:
    """Label and seed of a run, as its rows have them."""
    from vcl.lab.results import label

    return method if lam is None else label(method, lam), str(seed)


def rows_of(text: str) -> dict[tuple[str, str], list[list[str]]]:
    """The rows of each run, as texts."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    for row in list(csv.reader(io.StringIO(text)))[1:]:
        found.setdefault((row[0], row[1]), []).append(row)
    return found


def counting() -> Callable[[], int]:
    """Counts calls, and writes each count to :data:`CALLS`."""
    told, count = os.open(CALLS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 0

    def passed() -> int:
        nonlocal count
        count += 1
        os.pwrite(told, b"%d" % count, 0)
        return count

    return passed


def failing(module: str, owner: str | None, name: str, number: int, kind: str) -> None:
    """From now on, the n-th pass of a place and all later ones find no memory; with 0 they are counted alone."""
    from importlib import import_module

    holder = import_module(module) if owner is None else getattr(import_module(module), owner)
    real, passed = getattr(holder, name), counting()

    def place(*given: Any, **more: Any) -> Any:
        if passed() >= number > 0:
            raise ERRORS[kind]()
        return real(*given, **more)

    setattr(holder, name, place)


def a_weight(parameters: Any, gone: int) -> bool:
    """The last weight is infinite."""
    parameters[0][gone, -1] = float("inf")
    return True


def a_variance(parameters: Any, gone: int) -> bool:
    """Every variance is so large that it has no number; False in a fit without variances."""
    if len(parameters) < 2:
        return False
    parameters[1][gone] = 1e30
    return True


def the_loss(parameters: Any, gone: int) -> bool:
    """Weights are finite, and what is computed from them is not."""
    parameters[0][gone] = 1e38
    return True


WAYS: dict[str, Callable[[Any, int], bool]] = {"a weight": a_weight, "a variance": a_variance, "the loss": the_loss}


def spoiling(way: str, number: int, gone: int) -> None:
    """From the n-th step on, the first step that can spoils one run's parameters; with 0 steps are counted."""
    from vcl.fitting.step import Eager

    real, passed = Eager.__call__, counting()
    done = False

    def step(self: Any, *given: Any) -> Any:
        nonlocal done
        found = real(self, *given)
        if passed() >= number > 0 and not done:
            import torch

            with torch.no_grad():
                done = WAYS[way](self.parameters, gone)
        return found

    Eager.__call__ = step  # type: ignore[method-assign]
