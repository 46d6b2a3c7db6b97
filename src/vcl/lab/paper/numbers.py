"""The paper's numbers and claims, and the ranges of its words of comparison, read from numbers.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from math import inf
from typing import Any, Literal, NamedTuple

Group = Literal["vcl", "baselines", "repeated", "other data", "third party"]
"""The group in which a number is counted; numbers.toml defines the groups."""

Unit = Literal["points", "nats", "uncertainty"]


class Number(NamedTuple):
    """A value that the paper reports (accuracies in %, generators in nats), with a tolerance."""

    item: str
    method: str
    value: float
    tolerance: float
    place: str
    group: Group = "vcl"
    less: bool = False
    """Whether lower is better."""


class Word(NamedTuple):
    """The meaning of a word of comparison: a difference a - b between ``low`` and ``high``, and the reason."""

    word: str
    unit: Unit
    why: str
    low: float = -inf
    high: float = inf


class Claim(NamedTuple):
    """A claim of the paper: for every pair (a, b) of methods, the difference a - b lies within a word's range."""

    item: str
    text: str
    quote: str
    """The paper's sentence."""
    place: str
    word: Word
    pairs: tuple[tuple[str, str], ...]


def numbers(item: str) -> dict[str, Number]:
    """The paper's numbers of an item, by method."""
    return {entry["method"]: Number(**entry) for entry in _content()["number"] if entry["item"] == item}


def values(item: str) -> dict[str, float]:
    """The paper's numbers of an item in %, by method."""
    return {method: number.value for method, number in numbers(item).items()}


@cache
def words() -> dict[tuple[str, Unit], Word]:
    """All words of comparison, by word and unit."""
    return {(entry["word"], entry["unit"]): Word(**entry) for entry in _content()["word"]}


def claims(item: str) -> list[Claim]:
    """The paper's claims about an item."""
    return [_claim(**entry) for entry in _content()["claim"] if entry["item"] == item]


def _claim(
    item: str, text: str, quote: str, place: str, word: str, pairs: list[list[str]], unit: Unit = "points"
) -> Claim:
    return Claim(item, text, quote, place, words()[word, unit], tuple((a, b) for a, b in pairs))


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads((files("vcl.lab.paper") / "numbers.toml").read_text())
