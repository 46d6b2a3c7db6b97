"""Faults and hostile input: tried, counted, reported.

    make faults                              every family; the table goes to results/faults/
    python tools/faults --only kills         one family (again for more); the table keeps what it had of the others
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
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

from outcome import Outcome, Result
from table import Tried, keep, read, table, write

ROOT = Path(__file__).resolve().parents[2]


class Family(NamedTuple):
    """A file of trials."""

    name: str
    in_short: bool = True


FAMILIES: tuple[Family, ...] = (
    Family("kills"),
    Family("signals"),
    Family("clock"),
    Family("sharing"),
    Family("disk"),
    Family("damage"),
    Family("pickles"),
    Family("readers"),
    Family("numbers"),
    Family("soak", in_short=False),
)

ELSEWHERE = {"numbers": "nonfinite"}
"""The files of families whose own name is that of a module of Python."""


def attempt(family: str, short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """The outcomes of a family; its own failure is one of them."""
    count = 0
    try:
        for each in import_module(ELSEWHERE.get(family, family)).trials(short, seed, folder):
            count += 1
            yield each
    except Exception:
        traceback.print_exc()
        yield Outcome(f"{family} itself", Result.LOST, traceback.format_exc().splitlines()[-1])
        return
    if not count:
        yield Outcome(f"{family} itself", Result.LOST, "nothing was tried")


def made_with() -> str:
    """Versions and machine."""
    from vcl.lab.provenance import made_by

    versions = ", ".join(f"{name} {value}" for name, value in made_by().items() if value is not None)
    return f"{versions}; {platform.system()}, {os.cpu_count()} cores with other work"


def main() -> int:
    """0 if nothing was lost."""
    parser = argparse.ArgumentParser(description="faults and hostile input against vcl")
    names = [family.name for family in FAMILIES]
    parser.add_argument("--only", action="append", choices=names, help="one family; again for more")
    parser.add_argument("--short", action="store_true", help="a few trials of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder for the table; results/faults by default")
    asked = parser.parse_args()
    if asked.short and asked.out is None:
        parser.error("--short needs --out FOLDER: results/faults has whole tables")
    out = asked.out or ROOT / "results" / "faults"
    out.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python tools/faults", *sys.argv[1:]]) if sys.argv[1:] else "make faults"

    lost = False
    for family in FAMILIES:
        if family.name not in asked.only if asked.only else asked.short and not family.in_short:
            continue
        start, outcomes = time.monotonic(), []
        with tempfile.TemporaryDirectory(prefix=f"vcl-{family.name}-") as folder:
            for each in attempt(family.name, asked.short, asked.seed, Path(folder)):
                outcomes.append(each)
                print(f"{each.result:9} {family.name}: {each.fault}  {each.note}", flush=True)
        seconds = round(time.monotonic() - start, 1)
        tried = Tried(family.name, tuple(outcomes), seconds, command, made_with(), asked.seed)
        lost |= tried.lost
        keep(out, tried)
        write(out, read(out, names))
    print(f"\n{table(read(out, names))}\nthis table is in {out / 'table.md'}")
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
