"""Compare another run of `vcl paper` with the published one: does faster code still give the same numbers?

    python results/again.py runs/paper-again    # keep its tables in results/paper-again/, and compare
    python results/again.py                     # compare again what is there

Both have the same seeds, and so the same tasks and coresets; kernels, and with them rounding and noise, are others.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from math import hypot
from pathlib import Path
from typing import NamedTuple

from vcl.lab.paper.table import read_lines, read_seen

HERE = Path(__file__).parent
BEFORE, AFTER = HERE / "paper", HERE / "paper-again"


class Compared(NamedTuple):
    """One number twice, and how many standard errors of the difference lie between."""

    item: str
    what: str
    before: float
    before_error: float
    after: float
    after_error: float
    apart: float


def keep(source: Path) -> None:
    """The tables of a run, and of its parts what made them."""
    AFTER.mkdir(exist_ok=True)
    for name in ("table.csv", "claims.csv"):
        shutil.copyfile(source / name, AFTER / name)
    parts = [json.loads(path.read_text()) for path in sorted(source.glob("parts/*/part.json"))]
    (AFTER / "parts.json").write_text(json.dumps(parts, indent=1) + "\n")


def compared() -> list[Compared]:
    """Every number that both runs have with an error."""
    before = {(line.item, line.what): line for line in read_lines(BEFORE / "table.csv")}
    found = []
    for line in read_lines(AFTER / "table.csv"):
        old = before.get((line.item, line.what))
        error = hypot(float(old.error), float(line.error)) if old else 0.0
        if old and error:
            apart = (float(line.ours) - float(old.ours)) / error
            numbers = (float(each) for each in (old.ours, old.error, line.ours, line.error))
            found.append(Compared(line.item, line.what, *numbers, round(apart, 2)))
    return found


def to_csv(lines: list[Compared]) -> str:
    """As a file has them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([Compared._fields, *lines])
    return text.getvalue()


def summary(lines: list[Compared]) -> str:
    """How far apart the runs are, and which claims are judged otherwise."""
    beyond = sum(abs(line.apart) > 2 for line in lines)
    mean = sum(line.apart for line in lines) / len(lines)
    furthest = max(lines, key=lambda line: abs(line.apart))
    text = f"{len(lines)} numbers, {beyond} of them more than 2 standard errors apart; on average {mean:+.2f}; "
    text += f"the furthest is {furthest.item}, {furthest.what}: {furthest.apart:+.2f}."
    before = {(one.item, one.claim): one.verdict for one in read_seen(BEFORE / "claims.csv")}
    claims = [one for one in read_seen(AFTER / "claims.csv") if (one.item, one.claim) in before]
    other = [one for one in claims if before[one.item, one.claim] != one.verdict]
    changed = "".join(f" {one.item}, {one.claim}: {before[one.item, one.claim]}, then {one.verdict}." for one in other)
    return f"{text}\n{len(claims)} claims, {len(other)} of them judged otherwise.{changed}"


def main() -> None:
    """Keep a run's tables if told from where, and compare."""
    if len(sys.argv) > 1:
        keep(Path(sys.argv[1]))
    (AFTER / "compared.csv").write_text(to_csv(compared()))
    sys.stdout.write(f"{summary(compared())}\n")


if __name__ == "__main__":
    main()
