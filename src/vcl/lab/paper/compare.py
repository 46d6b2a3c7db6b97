"""Compares two runs of the same items, number by number, by a paired test over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from vcl.lab.paper.published import items_in, listed_values
from vcl.lab.paper.student import LEVEL, p_value, t_value
from vcl.lab.paper.table import Seen
from vcl.lab.results import summarise


class Compared(NamedTuple):
    """One number in two runs: the paired difference over seeds, its standard error, t value and p value."""

    item: str
    what: str
    before: str
    after: str
    difference: str
    error: str
    seeds: int
    t: str
    p: str


class Missing(NamedTuple):
    """A number that only one run has, for example because another lambda was the best."""

    item: str
    what: str


def compare(before: Path, after: Path) -> tuple[list[Compared], list[Missing]]:
    """The comparison of every number of the items in both folders, and the numbers that only one folder has.

    A number that several items share (VCL on Permuted MNIST is in figures 2 and 3) is listed once, in the first item.
    """
    found: list[Compared] = []
    missing: list[Missing] = []
    met: set[tuple[object, ...]] = set()
    there = {item.name for item in items_in(after)}
    for item in items_in(before):
        if item.name not in there:
            continue
        old, new = listed_values(item, before), listed_values(item, after)
        missing += [Missing(item.name, what) for what in [*old, *new] if (what in old) != (what in new)]
        for what in old:
            if what in new:
                line = compare_one(item.name, what, old[what], new[what])
                key = (tuple(old[what].items()), tuple(new[what].items()))
                if line is not None and key not in met:
                    met.add(key)
                    found.append(line)
    return found, missing


def compare_one(item: str, what: str, old: Mapping[int, float], new: Mapping[int, float]) -> Compared | None:
    """The paired t test of one number; None if there are fewer than two common seeds."""
    seeds = sorted(old.keys() & new.keys())
    if len(seeds) < 2:
        return None
    before, after = (torch.tensor([run[seed] for seed in seeds], dtype=torch.float64) for run in (old, new))
    mean, error, n = summarise(after - before)
    t = t_value(mean, error)
    return Compared(
        item,
        what,
        f"{float(before.mean()):.2f}",
        f"{float(after.mean()):.2f}",
        f"{mean:z.3f}",
        f"{error:.3f}",
        n,
        f"{t:z.2f}",
        f"{p_value(t, n - 1):.4f}",
    )


def summary(lines: Sequence[Compared], missing: Sequence[Missing]) -> str:
    """How many numbers differ at :data:`LEVEL`, and how many would by chance."""
    same = [line for line in lines if float(line.difference) == 0 and float(line.error) == 0]
    rest = [line for line in lines if line not in same]
    text = f"{len(lines)} numbers were compared seed by seed by a paired t test. "
    if same:
        text += f"{len(same)} are the same in every seed. "
    if rest:
        differ = [line for line in rest if float(line.p) < LEVEL]
        text += f"Of {'the other ' if same else ''}{len(rest)}, {len(differ)} differ at the {LEVEL:.0%} level; "
        text += f"{LEVEL * len(rest):.1f} are expected by chance if nothing but noise differs."
        least = min(rest, key=lambda line: float(line.p))
        text += f" The smallest p value is {least.p} ({least.item}, {least.what}: {least.difference} ± {least.error})."
    if missing:
        named = "; ".join(f"{one.item}, {one.what}" for one in missing)
        text += f" Only one of the runs has: {named}."
    return text.strip()


def changed_claims(before: Sequence[Seen], after: Sequence[Seen]) -> str:
    """How many claims both runs judge, and which verdicts differ."""
    old = {(one.item, one.claim): one.verdict for one in before}
    both = [one for one in after if (one.item, one.claim) in old]
    other = [one for one in both if old[one.item, one.claim] != one.verdict]
    named = "".join(f" {one.item}, {one.claim}: {old[one.item, one.claim]}, then {one.verdict}." for one in other)
    return f"{len(both)} claims, {len(other)} of them judged otherwise.{named}"
