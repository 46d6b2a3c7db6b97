"""The table of all items: the paper's numbers against ours with verdicts, and the paper's claims with verdicts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import inf, isnan
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from vcl.errors import VclError
from vcl.lab.paper.numbers import Claim, Number, Word
from vcl.lab.paper.student import threshold
from vcl.lab.reading import reading
from vcl.lab.results import MOST_BYTES, Summary, split_label, summarise
from vcl.learner.bounded import read_bounded

MEND = "delete it and run all items again"
"""Advice for a damaged file."""


class Line(NamedTuple):
    """One quantity: the paper's number, ours, and the verdict; accuracies in %."""

    item: str
    what: str
    paper: str
    ours: str
    error: str
    seeds: int
    verdict: str
    seconds: float
    place: str


Verdict = Literal["false", "undecided (one seed)", "undecided", "true"]
ORDER: tuple[Verdict, ...] = ("false", "undecided (one seed)", "undecided", "true")


class Seen(NamedTuple):
    """A judged claim of the paper: the paired difference over seeds, in points or nats, and the verdict."""

    item: str
    claim: str
    word: str
    """The paper's word of comparison with its range."""
    compared: str
    """The pair with the strongest evidence against the claim."""
    difference: str
    error: str
    seeds: int
    verdict: str
    place: str
    quote: str


def line(item: str, what: str, ours: Summary, paper: Number | None, seconds: float) -> Line:
    """The line of one quantity; ``ours`` in the paper's unit."""
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
    """One of within, better and worse, by the paper's number and its tolerance alone."""
    gap = paper.value - ours if paper.less else ours - paper.value
    if abs(gap) <= paper.tolerance:
        return "within"
    return "better" if gap > 0 else "worse"


def base(label: str) -> str:
    """The label without its lambda, since the paper's numbers are for tuned methods.

    >>> base("ewc lambda=100"), base("vcl-random coreset=200"), base("si lambda=1 uncertainty")
    ('ewc', 'vcl-random coreset=200', 'si uncertainty')
    """
    return split_label(label)[0]


class Difference(NamedTuple):
    """The paired difference a - b over common seeds, and the verdict on a range."""

    mean: float
    error: float
    """Its standard error; NaN for one seed."""
    seeds: int
    verdict: Verdict


def difference(a: Mapping[int, float], b: Mapping[int, float], word: Word) -> Difference | None:
    """a - b seed by seed, judged by its 95 % interval: mean +- t standard errors, t with n - 1 degrees of freedom.

    ``true`` if the interval lies within the word's range, ``false`` if it lies entirely outside, else ``undecided``.
    For a range with one bound this is the two-sided t test at 5 %; with two bounds it is the equivalence test (two
    one-sided tests at 2.5 % each). One seed has no interval and is undecided. None if no seed is common or the mean is
    NaN.
    """
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        return None
    mean, error, n = summarise(torch.tensor([a[seed] - b[seed] for seed in seeds], dtype=torch.float64))
    if isnan(mean):
        return None  # too few tasks for this quantity
    if n == 1:
        return Difference(mean, error, n, "undecided (one seed)")
    reach = threshold(n - 1) * error
    if word.low < mean - reach and mean + reach < word.high:
        return Difference(mean, error, n, "true")
    outside = mean + reach <= word.low or mean - reach >= word.high
    return Difference(mean, error, n, "false" if outside else "undecided")


def judge(claim: Claim, values: Mapping[str, Mapping[int, float]]) -> Seen | None:
    """Judge a claim by its weakest pair: true if all pairs are true, false if one is false, else undecided.

    None if a pair has no difference, for example because a method was not run.
    """
    found: list[tuple[str, Difference]] = []
    for a, b in claim.pairs:
        if a not in values or b not in values:
            return None
        one = difference(values[a], values[b], claim.word)
        if one is None:
            return None
        found.append((f"{a} - {b}", one))
    low, high = claim.word.low, claim.word.high
    pair, least = min(
        found, key=lambda each: (ORDER.index(each[1].verdict), min(each[1].mean - low, high - each[1].mean))
    )
    return Seen(
        claim.item,
        claim.text,
        bounds(claim.word),
        pair if len(found) == 1 else f"{pair} (of {len(found)} pairs)",
        f"{least.mean:.2f}",
        f"{least.error:.2f}" if least.seeds > 1 else "",
        least.seeds,
        least.verdict,
        claim.place,
        claim.quote,
    )


def bounds(word: Word) -> str:
    """A word with its range.

    >>> bounds(Word("slightly", "points", "", 0.0, 3.0)), bounds(Word("large margins", "points", "", 3.0))
    ('slightly: 0 to 3 points', 'large margins: above 3 points')
    """
    unit = "nats" if word.unit == "uncertainty" else word.unit
    if word.high == inf:
        return f"{word.word}: above {word.low:g} {unit}"
    return f"{word.word}: {word.low:g} to {word.high:g} {unit}"


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
    with reading(path, MEND):
        return [
            Line(**{**row, "seeds": int(row["seeds"]), "seconds": float(row["seconds"])})  # type: ignore[arg-type]
            for row in _read(path, Line._fields)
        ]


def read_seen(path: Path) -> list[Seen]:
    """The claims that :func:`write` wrote, or none if there is no such file."""
    with reading(path, MEND):
        return [Seen(**{**row, "seeds": int(row["seeds"])}) for row in _read(path, Seen._fields)]  # type: ignore[arg-type]


def _read(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    if not path.exists():
        return []
    reader = csv.DictReader(io.StringIO(read_bounded(path, MOST_BYTES).decode(), newline=""))
    if reader.fieldnames is not None and tuple(reader.fieldnames) != columns:
        raise VclError(
            f"{path} has the columns {', '.join(reader.fieldnames)}; this version writes {', '.join(columns)}. "
            "Remove the file and give the same command again: what is finished is not computed anew."
        )
    return list(reader)


def markdown(lines: Sequence[Line], seen: Sequence[Seen]) -> str:
    """Both tables as Markdown."""
    text = (
        "| item | what | paper | ours | seeds | verdict | seconds |\n| --- | --- | ---: | ---: | ---: | --- | ---: |\n"
    )
    for each in lines:
        cells = (each.item, each.what, each.paper or "-", plus_minus(each.ours, each.error), str(each.seeds),
                 each.verdict or "-", f"{each.seconds:.0f}")  # fmt: skip
        text += f"| {' | '.join(cells)} |\n"
    if seen:
        text += f"\n{claim_table(seen)}"
    return text


def claim_table(seen: Sequence[Seen]) -> str:
    """The claims as a Markdown table."""
    text = "| item | claim | word | compared | difference | seeds | verdict | in the paper |\n"
    text += "| --- | --- | --- | --- | ---: | ---: | --- | --- |\n"
    for one in seen:
        text += f"| {one.item} | {one.claim} | {one.word} | {one.compared} | {plus_minus(one.difference, one.error)} | "
        text += f"{one.seeds} | {one.verdict} | {one.place} |\n"
    return text


def plus_minus(mean: str, error: str) -> str:
    """A mean with its standard error, if there is one."""
    return f"{mean} ± {error}" if error else mean
