"""Parts of small plans, computed, stopped and gone on with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import files_under, images
from rich.console import Console

from vcl.fitting.journal import Entry
from vcl.fitting.loop import Progress, silent
from vcl.lab import compute
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import Plan, make_plan
from vcl.lab.registry import methods
from vcl.lab.settings import settings_in
from vcl.lab.store import Store
from vcl.learner.saving import Saver

ARRAYS = images(train=60, test=20)
DATA = Loaded(ARRAYS, "made up", ARRAYS.digest())
SMALL = ("train_limit=30", "test_limit=10", "hidden=4", "tasks=2")
GENERATIVE = (
    "hidden=4", "latent=2", "features=4", "ll_draws=2", "images=4", "classifier_hidden=8", "classifier_epochs=1",
    "tasks=2",
)  # fmt: skip
OWN = {"batch": "batch=8", "coreset": "coreset=5", "particles": "particles=40", "epochs": "epochs=3"}


def plan(method: str, name: str = "permuted-digits", *changes: str) -> Plan:
    """A plan with several steps an epoch and several epochs, where the method has them."""
    generative = name.startswith("generative")
    entry = methods("generators" if generative else "networks")[method]
    known = settings_in(entry.settings)
    own_of = OWN | ({"batch": "batch=2"} if generative else {})
    own = tuple(change for setting, change in own_of.items() if setting in known)
    return make_plan(name, method, "smoke", 2, "cpu", (*(GENERATIVE if generative else SMALL), *own, *changes), None)


def run(plan: Plan, root: Path, beside: Any = silent, every: float = 1e6) -> str:
    """Compute the plan's part in this folder; returns what was said."""
    said = StringIO()
    store = Store(root, torch.device("cpu"), "vcl run test", every)
    compute.compute(Part(plan, plan.methods[0], DATA), store, Console(file=said, width=200), beside=beside)
    return said.getvalue()


def ends(root: Path) -> dict[str, bytes]:
    """All that a finished part leaves, but the times in its part.json."""
    found = {name: data for name, data in files_under(root).items() if not name.endswith("part.json")}
    assert not [name for name in found if "journal" in name]
    return found


def stopped_every(steps: int, patch: pytest.MonkeyPatch) -> None:
    """From now on, every so many steps the journal is saved and the work is stopped."""
    calls = iter(range(1, 10**9))
    write = Saver.write

    def written(saver: Saver, entries: Mapping[str, Entry]) -> None:
        write(saver, entries)
        if sys.exc_info()[0] is None:
            raise KeyboardInterrupt

    patch.setattr(Saver, "due", lambda saver: next(calls) % steps == 0)
    patch.setattr(Saver, "write", written)


def until_finished(work: Callable[[], object]) -> int:
    """The number of times that the work was stopped."""
    for count in range(500):
        try:
            work()
        except KeyboardInterrupt:
            continue
        return count
    raise AssertionError("it never ends")


def stopped_at(place: int, exception: BaseException) -> Callable[[Progress], None]:
    """A report that raises at one epoch, counted over the tasks."""
    seen = iter(range(1, 10**9))

    def report(progress: Progress) -> None:
        if next(seen) == place:
            raise exception

    return report


def raising(call: int, function: Any, error: BaseException) -> Any:
    """The function, which raises instead at one of its calls."""
    seen = iter(range(1, 10**9))

    def called(*args: Any, **named: Any) -> Any:
        if next(seen) == call:
            raise error
        return function(*args, **named)

    return called
