"""An item's numbers against the paper's, and verdicts on its claims, as functions of the rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from vcl.lab.paper import table
from vcl.lab.paper.item import StreamItem, TableItem, measure
from vcl.lab.paper.numbers import claims, numbers
from vcl.lab.results import Row, Summary, methods, summarise

Values = dict[str, dict[int, float]]
"""Measured values, by name and seed."""


class Judged(NamedTuple):
    """An item's numbers by seed, its lines of the table, and its judged claims."""

    values: Values
    lines: list[table.Line]
    seen: list[table.Seen]


def stream_values(item: StreamItem, rows: Sequence[Row], listed_only: bool = False) -> Values:
    """All quantities of an item (accuracies in %); with ``listed_only``, those in its table."""
    return {
        name + measured.suffix: measure(rows, name, measured)
        for name in methods(rows)
        for measured in item.measures
        if measured.listed or not listed_only
    }


def judge_stream(item: StreamItem, rows: Sequence[Row], seconds: Mapping[str, float]) -> Judged:
    """Judge the rows that the item's ``arrange`` selected; ``seconds`` is by method."""
    values = stream_values(item, rows)
    paper = numbers(item.name)
    lines = [
        table.line(item.name, what, _summary(values[what]), paper.get(table.base(what)), seconds[name])
        for name in methods(rows)
        for measured in item.measures
        if measured.listed
        for what in (name + measured.suffix,)
    ]
    # Claims name a method without its lambda, if only one lambda is shown.
    names = [table.base(name) for name in values]
    one_each = len(set(names)) == len(names)
    known = values | dict(zip(names, values.values(), strict=True)) if one_each else values
    return Judged(values, lines, judge_claims(item.name, known))


def judge_table(item: TableItem, rows: Sequence[Mapping[str, str]], seconds: float) -> Judged:
    """Judge the rows of an item with its own computation."""
    values = item.by_seed(rows)
    paper = numbers(item.name)
    lines = [table.line(item.name, name, ours, paper.get(name), seconds) for name, ours in item.measures(rows).items()]
    return Judged(values, lines, judge_claims(item.name, values))


def judge_claims(item: str, values: Values) -> list[table.Seen]:
    """Judge the paper's claims about an item; those whose methods were not run are left out."""
    return [found for claim in claims(item) if (found := table.judge(claim, values)) is not None]


def _summary(ends: Mapping[int, float]) -> Summary:
    return summarise(torch.tensor(list(ends.values()), dtype=torch.float64))
