"""Faults and hostile input: tried, counted, reported.

    make faults                              every family; the table goes to results/faults/
    python tools/faults --only kills         one family (again for more)
    python tools/faults --short --out FOLDER a few trials of each: what the quick tests run

The exit status is not 0 if anything is lost: a wrong number, a lost finished task, a traceback, a hang.

A family is one file here with one function, and one line in ``FAMILIES`` that names it:

    def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]: ...

It yields an :class:`outcome.Outcome` for each trial (or one for many alike, with ``times``), as soon as it is known.
``short`` asks for a few trials in a few seconds. Everything random follows from ``seed``. ``folder`` is empty, its
own, and removed afterwards. A family that raises counts as lost, and one without any trial too.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

from outcome import Outcome, Result

ROOT = Path(__file__).resolve().parents[2]
NOTES = 12
"""The most notes of one fault and result that are listed."""


class Family(NamedTuple):
    """A file of trials."""

    name: str
    in_short: bool = True


FAMILIES: tuple[Family, ...] = ()


class Tried(NamedTuple):
    """A family's trials and the time that they took."""

    family: str
    outcomes: tuple[Outcome, ...]
    seconds: float


def attempt(family: str, short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """The outcomes of a family; its own failure is one of them."""
    count = 0
    try:
        for each in import_module(family).trials(short, seed, folder):
            count += 1
            yield each
    except Exception:
        traceback.print_exc()
        yield Outcome(f"{family} itself", Result.LOST, traceback.format_exc().splitlines()[-1])
        return
    if not count:
        yield Outcome(f"{family} itself", Result.LOST, "nothing was tried")


def table(tried: Sequence[Tried]) -> str:
    """One line for each fault, and the notes."""
    lines = [f"| family | fault | tried | {' | '.join(Result)} |", "| --- | --- " + "| ---: " * 5 + "|"]
    notes: list[str] = []
    for family, fault, count in counted(tried):
        numbers = " | ".join(str(count[result]) for result in Result)
        lines.append(f"| {family} | {fault} | {count.total()} | {numbers} |")
    for each in tried:
        seen: Counter[tuple[str, Result]] = Counter()
        for outcome in dict.fromkeys(each.outcomes):
            if outcome.note:
                seen[outcome.fault, outcome.result] += 1
                if seen[outcome.fault, outcome.result] <= NOTES:
                    notes.append(f"- {each.family}, {outcome.fault}, {outcome.result}: {outcome.note}")
    total = sum((count for _, _, count in counted(tried)), Counter[Result]())
    lines.append(f"| all | | {total.total()} | {' | '.join(str(total[result]) for result in Result)} |")
    return "\n".join([*lines, "", *notes]) + "\n"


def counted(tried: Sequence[Tried]) -> Iterator[tuple[str, str, Counter[Result]]]:
    """Family, fault and how often each result was seen."""
    for each in tried:
        for fault in dict.fromkeys(outcome.fault for outcome in each.outcomes):
            count = Counter[Result]()
            for outcome in each.outcomes:
                if outcome.fault == fault:
                    count[outcome.result] += outcome.times
            yield each.family, fault, count


def made_with(asked: argparse.Namespace, tried: Sequence[Tried], seconds: float) -> str:
    """The command, versions, machine, seed and time."""
    from vcl.lab.provenance import made_by

    versions = ", ".join(f"{name} {value}" for name, value in made_by().items())
    of_each = ", ".join(f"{each.family} {each.seconds:.0f}" for each in tried)
    return (
        f"    {asked.shown}\n\n{versions}; {platform.system()}, {os.cpu_count()} cores; seed {asked.seed}; "
        f"{seconds:.0f} s by the clock on a machine with other work ({of_each}).\n"
    )


def write(out: Path, asked: argparse.Namespace, tried: Sequence[Tried], seconds: float) -> None:
    """table.md and counts.csv."""
    out.mkdir(parents=True, exist_ok=True)
    head = "# Faults and hostile input\n\n"
    text = f"{head}{made_with(asked, tried, seconds)}\n{table(tried)}"
    (out / "table.md").write_text(text, encoding="utf-8")
    with (out / "counts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["family", "fault", *Result])
        for family, fault, count in counted(tried):
            writer.writerow([family, fault, *(count[result] for result in Result)])


def main() -> int:
    """0 if nothing was lost."""
    parser = argparse.ArgumentParser(description="faults and hostile input against vcl")
    names = [family.name for family in FAMILIES]
    parser.add_argument("--only", action="append", choices=names, help="one family; again for more")
    parser.add_argument("--short", action="store_true", help="a few trials of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "faults")
    asked = parser.parse_args()
    asked.shown = " ".join(["python tools/faults", *sys.argv[1:]]) if sys.argv[1:] else "make faults"

    began = time.monotonic()
    tried: list[Tried] = []
    for family in FAMILIES:
        if family.name not in asked.only if asked.only else asked.short and not family.in_short:
            continue
        start, outcomes = time.monotonic(), []
        with tempfile.TemporaryDirectory(prefix=f"vcl-{family.name}-") as folder:
            for each in attempt(family.name, asked.short, asked.seed, Path(folder)):
                outcomes.append(each)
                print(f"{each.result:9} {family.name}: {each.fault}  {each.note}", flush=True)
        tried.append(Tried(family.name, tuple(outcomes), time.monotonic() - start))
    write(asked.out, asked, tried, time.monotonic() - began)
    print(f"\n{table(tried)}\nthis table is in {asked.out / 'table.md'}")
    return int(any(each.result is Result.LOST for family in tried for each in family.outcomes))


if __name__ == "__main__":
    sys.exit(main())
