"""The table of all items: the paper's number, ours, and whether they agree; and the paper's claims, true or false."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from vcl.lab.paper.numbers import Claim, Number
from vcl.lab.results import Summary, split_label, summarise


class Line(NamedTuple):
    """One number: what it is of, the paper's and ours in %, and what follows."""

    item: str
    what: str
    paper: str
    ours: str
    error: str
    seeds: int
    verdict: str
    seconds: float
    place: str


class Seen(NamedTuple):
    """A claim of the paper: the paired difference over seeds, in points or nats, and whether it holds."""

    item: str
    claim: str
    difference: str
    error: str
    seeds: int
    verdict: str
    place: str


def line(item: str, what: str, ours: Summary, paper: Number | None, seconds: float) -> Line:
    """Ours beside the paper's; ``ours`` in %."""
    return Line(
        item,
        what,
        "" if paper is None else f"{paper.value:g}",
        f"{ours.mean:.2f}",
        f"{ours.error:.2f}" if ours.seeds > 1 else "",
        ours.seeds,
        "" if paper is None else verdict(ours.mean, paper),
        round(seconds, 1),
        "" if paper is None else paper.place,
    )


def verdict(ours: float, paper: Number) -> str:
    """within, better or worse: by the paper's number and its tolerance alone."""
    gap = paper.value - ours if paper.less else ours - paper.value
    if abs(gap) <= paper.tolerance:
        return "within"
    return "better" if gap > 0 else "worse"


def base(label: str) -> str:
    """The method that a label at some lambda belongs to; the paper's numbers are of tuned methods.

    >>> base("ewc lambda=100"), base("vcl-random coreset=200"), base("si lambda=1 uncertainty")
    ('ewc', 'vcl-random coreset=200', 'si uncertainty')
    """
    return split_label(label)[0]


def judge(claim: Claim, values: Mapping[str, Mapping[int, float]]) -> Seen | None:
    """A claim by the paired difference over the seeds that both have; None if one of the two was not run.

    True or false if the difference is beyond two standard errors of the margin, else undecided.
    """
    better, worse = (values.get(name) for name in (claim.better, claim.worse))
    if better is None or worse is None:
        return None
    seeds = sorted(better.keys() & worse.keys())
    if not seeds:
        return None
    mean, error, n = summarise(torch.tensor([better[seed] - worse[seed] for seed in seeds], dtype=torch.float64))
    gap = mean - claim.margin
    if gap != gap:
        return None  # what it is about did not happen: too few tasks
    if n == 1:
        found = "undecided (one seed)"
    elif abs(gap) <= 2 * error:
        found = "undecided"
    else:
        found = "true" if gap > 0 else "false"
    return Seen(claim.item, claim.text, f"{mean:.2f}", f"{error:.2f}" if n > 1 else "", n, found, claim.place)


def write(lines: Sequence[NamedTuple]) -> str:
    """Lines as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if lines:
        writer.writerow(lines[0]._fields)
        writer.writerows(lines)
    return out.getvalue()


def read_lines(path: Path) -> list[Line]:
    """The lines that :func:`write` wrote, or none if there is no such file."""
    return [
        Line(**{**row, "seeds": int(row["seeds"]), "seconds": float(row["seconds"])})  # type: ignore[arg-type]
        for row in _read(path)
    ]


def read_seen(path: Path) -> list[Seen]:
    """The claims that :func:`write` wrote, or none if there is no such file."""
    return [Seen(**{**row, "seeds": int(row["seeds"])}) for row in _read(path)]  # type: ignore[arg-type]


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(lines: Sequence[Line], seen: Sequence[Seen]) -> str:
    """Both tables for documents."""
    text = (
        "| item | what | paper | ours | seeds | verdict | seconds |\n| --- | --- | ---: | ---: | ---: | --- | ---: |\n"
    )
    for each in lines:
        cells = (each.item, each.what, each.paper or "-", plus_minus(each.ours, each.error), str(each.seeds),
                 each.verdict or "-", f"{each.seconds:.0f}")  # fmt: skip
        text += f"| {' | '.join(cells)} |\n"
    if seen:
        text += "\n| item | the paper's claim | difference | seeds | verdict | where |\n"
        text += "| --- | --- | ---: | ---: | --- | --- |\n"
        for one in seen:
            text += f"| {one.item} | {one.claim} | {plus_minus(one.difference, one.error)} | {one.seeds} | "
            text += f"{one.verdict} | {one.place} |\n"
    return text


def plus_minus(mean: str, error: str) -> str:
    """A mean with its standard error, if there is one."""
    return f"{mean} ± {error}" if error else mean
