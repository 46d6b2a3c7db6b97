"""The paper's numbers and claims, from the one file that holds them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Number(NamedTuple):
    """A value that the paper reports (accuracies in %, generators in nats), and how near counts as the same."""

    item: str
    method: str
    value: float
    tolerance: float
    place: str
    less: bool = False
    """Whether less of it is better."""


class Claim(NamedTuple):
    """That one method ends above another by more than a margin, in points of accuracy or in nats."""

    item: str
    text: str
    better: str
    worse: str
    place: str
    margin: float = 0.0


def numbers(item: str) -> dict[str, Number]:
    """The paper's numbers of an item, by method."""
    return {entry["method"]: Number(**entry) for entry in _content()["number"] if entry["item"] == item}


def values(item: str) -> dict[str, float]:
    """The paper's numbers of an item in %, by method."""
    return {method: number.value for method, number in numbers(item).items()}


def claims(item: str) -> list[Claim]:
    """The paper's claims that an item can show."""
    return [Claim(**entry) for entry in _content()["claim"] if entry["item"] == item]


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads((files("vcl.lab.paper") / "numbers.toml").read_text())
