"""The table of all families: each keeps a file of its own, so that one can be tried again without the others.

kills.json    what was tried of one family, with the command, versions, machine, seed and time
table.md      the table of all that are there, with notes
counts.csv    the same numbers
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from outcome import Outcome, Result

NOTES = 12
"""The most notes of one fault and result that are listed."""


class Tried(NamedTuple):
    """A family's trials, and how they were made."""

    family: str
    outcomes: tuple[Outcome, ...]
    """Equal ones may be counted together."""
    seconds: float
    command: str
    made: str
    """Versions and machine."""
    seed: int

    @property
    def lost(self) -> bool:
        """Whether anything was."""
        return any(each.result is Result.LOST for each in self.outcomes)


def counted_together(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Equal outcomes as one, with the sum of their times."""
    times = Counter[Outcome]()
    for each in outcomes:
        times[each._replace(times=1)] += each.times
    return tuple(each._replace(times=count) for each, count in times.items())


def keep(out: Path, tried: Tried) -> None:
    """Write the file of a family."""
    about = tried._asdict() | {"outcomes": [list(each) for each in counted_together(tried.outcomes)]}
    (out / f"{tried.family}.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(out: Path, families: Sequence[str]) -> list[Tried]:
    """What is known of these families, of today or earlier."""
    found = []
    for path in (out / f"{family}.json" for family in families):
        if path.exists():
            about = json.loads(path.read_text(encoding="utf-8"))
            outcomes = [Outcome(fault, Result(result), *rest) for fault, result, *rest in about.pop("outcomes")]
            found.append(Tried(**about, outcomes=tuple(outcomes)))
    return found


def write(out: Path, all_tried: Sequence[Tried]) -> None:
    """table.md and counts.csv."""
    text = f"# Faults and hostile input\n\n{table(all_tried)}\n{notes(all_tried)}\n{made(all_tried)}"
    (out / "table.md").write_text(text, encoding="utf-8")
    with (out / "counts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["family", "fault", *Result])
        for family, fault, count in counted(all_tried):
            writer.writerow([family, fault, *(count[result] for result in Result)])


def counted(all_tried: Sequence[Tried]) -> Iterator[tuple[str, str, Counter[Result]]]:
    """Family, fault and how often each result was seen."""
    for each in all_tried:
        for fault in dict.fromkeys(outcome.fault for outcome in each.outcomes):
            count = Counter[Result]()
            for outcome in each.outcomes:
                if outcome.fault == fault:
                    count[outcome.result] += outcome.times
            yield each.family, fault, count


def table(all_tried: Sequence[Tried]) -> str:
    """One line for each fault, and one for all."""
    lines = [f"| family | fault | tried | {' | '.join(Result)} |", "| --- | --- " + "| ---: " * 5 + "|"]
    total = Counter[Result]()
    for family, fault, count in counted(all_tried):
        lines.append(f"| {family} | {fault} | {count.total()} | {_numbers(count)} |")
        total += count
    return "\n".join([*lines, f"| all | | {total.total()} | {_numbers(total)} |"]) + "\n"


def notes(all_tried: Sequence[Tried]) -> str:
    """What was seen: the first few notes of each fault and result."""
    lines: list[str] = []
    for each in all_tried:
        seen = Counter[tuple[str, Result]]()
        for fault, result, note, _ in dict.fromkeys(each.outcomes):
            seen[fault, result] += bool(note)
            if note and seen[fault, result] <= NOTES:
                lines.append(f"- {each.family}, {fault}, {result}: {note}")
    return "\n".join(lines) + "\n"


def made(all_tried: Sequence[Tried]) -> str:
    """How each family was made."""
    head = "| family | command | seed | seconds | with |\n| --- | --- | ---: | ---: | --- |\n"
    return head + "".join(
        f"| {each.family} | `{each.command}` | {each.seed} | {each.seconds:.0f} | {each.made} |\n" for each in all_tried
    )


def _numbers(count: Counter[Result]) -> str:
    return " | ".join(str(count[result]) for result in Result)
