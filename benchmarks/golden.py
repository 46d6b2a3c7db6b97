"""Compares two outputs of `vcl run`, method by method, by the mean score after the last task.

    python benchmarks/golden.py OLD NEW [--metric accuracy] [--limit 3]

OLD and NEW are folders that `vcl run --out` wrote, or parents of such folders with the same names. z is the difference
of the two means in standard errors, assuming independent runs; p is its two-sided probability by Student's
distribution. The exit status is 1 if some |z| exceeds the limit or a method is missing.

Few seeds need care: with three per folder, |z| exceeds 3 by chance in one comparison of 25.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple

from vcl.lab.paper.student import p_value, t_value
from vcl.lab.results import Row, Summary, final_score, methods, read_csv

ALIKE = ("experiment", "preset", "settings", "settings_of", "grid", "seeds")
"""The fields of run.json that should agree."""


class Line(NamedTuple):
    """A method of both runs, in the unit of the metric."""

    method: str
    old: Summary
    new: Summary

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        return hypot(self.old.error, self.new.error)

    @property
    def z(self) -> float:
        """The difference in standard errors: 0 for equal means, infinite for different means without error."""
        return t_value(self.new.mean - self.old.mean, self.error)

    @property
    def p(self) -> float | None:
        """P(|T| >= |z|), with one degree of freedom less than seeds per run; None without degrees of freedom."""
        degrees = self.old.seeds + self.new.seeds - 2
        return p_value(self.z, degrees) if degrees and self.error > 0 else None


def folders(old: Path, new: Path) -> list[tuple[Path, Path]]:
    """The pairs to compare: these two, or the runs inside them by name."""
    if (old / "rows.csv").is_file() or (new / "rows.csv").is_file():
        return [(old, new)]
    names = sorted({found.parent.name for side in (old, new) for found in side.glob("*/rows.csv")})
    if not names:
        raise SystemExit(f"neither {old} nor {new} holds rows.csv; give folders that vcl run wrote.")
    return [(old / name, new / name) for name in names]


def about(folder: Path) -> dict[str, Any]:
    """The contents of run.json; exits if the run has not finished."""
    try:
        found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{folder} holds no readable run.json ({error}); give a folder that vcl run wrote.") from error
    if "finished" not in found:
        raise SystemExit(f"the run in {folder} has not finished; wait for it, or run its command again.")
    return found


def compare(old: Sequence[Row], new: Sequence[Row], metric: str) -> list[Line]:
    """One line per method of both runs."""
    common = [method for method in methods(old) if method in methods(new)]
    return [Line(method, final_score(old, method, metric), final_score(new, method, metric)) for method in common]


def report(old: Path, new: Path, metric: str, limit: float) -> list[str]:
    """Prints the table of two runs and returns one sentence per problem."""
    abouts, rows = (about(old), about(new)), (read_csv(old / "rows.csv"), read_csv(new / "rows.csv"))
    for side, folder in zip(rows, (old, new), strict=True):
        if not any(row.metric == metric for row in side):
            known = ", ".join(dict.fromkeys(row.metric for row in side))
            raise SystemExit(f"--metric is {metric}, which {folder} does not have; it has {known}.")
    differ = [key for key in ALIKE if abouts[0].get(key) != abouts[1].get(key)]
    wrong: list[str] = []
    for mine, others, place in ((*rows, new), (*rows[::-1], old)):
        wrong += [f"{method} is not in {place}" for method in methods(mine) if method not in methods(others)]
    found = compare(*rows, metric)
    scale, unit = (100.0, " %") if metric == "accuracy" else (1.0, "")
    width = max((len(line.method) for line in found), default=6)
    print(f"{abouts[0].get('experiment')}, preset {abouts[0].get('preset')}: {metric}{unit} after the last task")
    print(f"{'method':<{width}}{'old':>20}{'new':>20}{'difference':>12}{'z':>8}{'p':>8}")
    for line in found:
        old_text, new_text = (f"{scale * side.mean:.3f} ± {scale * side.error:.3f}" for side in (line.old, line.new))
        gap = scale * (line.new.mean - line.old.mean)
        chance = "-" if line.p is None else f"{line.p:.3f}"
        print(f"{line.method:<{width}}{old_text:>20}{new_text:>20}{gap:>12.3f}{line.z:>8.2f}{chance:>8}")
        if abs(line.z) > limit:
            wrong.append(f"{line.method} differs by {line.z:.2f} standard errors")
    if differ:
        print(f"not the same in both run.json: {', '.join(differ)}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--metric", default="accuracy", help="a metric of rows.csv")
    parser.add_argument("--limit", type=float, default=3.0, help="the largest |z| that passes")
    given = parser.parse_args()
    wrong = []
    for old, new in folders(given.old, given.new):
        wrong += report(old, new, given.metric, given.limit)
    for sentence in wrong:
        print(sentence)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
