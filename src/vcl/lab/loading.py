"""The data of a plan: loaded by name, as tensors, with a digest."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console

from vcl.lab.console import say_on
from vcl.lab.datasets import MissingData
from vcl.lab.datasets.entry import Dataset, Say
from vcl.lab.datasets.locate import load_dataset
from vcl.lab.part import Loaded
from vcl.lab.plan import Plan
from vcl.lab.registry import dataset
from vcl.lab.streams import arrays

OWN = Loaded(None, "made by the experiment", None)


def read_dataset(name: str, folder: Path | None, say: Say, fetch: bool = True) -> Dataset:
    """A dataset by name, from anywhere that it is, or fetched."""
    return load_dataset(dataset(name), folder, fetch, say)


def load_named(name: str | None, folder: Path | None, say: Say, fetch: bool = True) -> Loaded:
    """A dataset as arrays; nothing for an experiment that makes its own."""
    if name is None:
        return OWN
    found = read_dataset(name, folder, say, fetch)
    made = arrays(found)
    return Loaded(made, found.origin, made.digest())


def load_data(
    plan: Plan, other: Plan | None, folder: Path | None, console: Console, fetch: bool = True
) -> tuple[Plan, Loaded]:
    """The plan's data, or the other plan with its data if that is unavailable; says which and from where."""
    say = partial(say_on, console)
    try:
        data = load_named(plan.dataset, folder, say, fetch)
    except MissingData as error:
        if other is None:
            raise
        say(f"{plan.dataset} is unavailable, so {other.name} is run instead: {error}")
        plan, data = other, load_named(other.dataset, folder, say, fetch)
    say(f"{plan.experiment.name} on {plan.dataset or 'its own data'}: {data.origin}")
    return plan, data
