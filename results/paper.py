"""Publish a run of `vcl paper`: the tables, figures and rows into results/paper/, and docs/reproduction.md from them.

    python results/paper.py runs/paper-paper    # copy a finished run, then write the document
    python results/paper.py                     # write the document again from what is here

The rows are cut to what the figures show (accuracy, six digits; where a figure shows the end alone, the end alone).
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from vcl.lab.paper.item import StreamItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.table import Line, Seen, plus_minus, read_lines, read_seen
from vcl.lab.results import read_csv, to_csv

HERE = Path(__file__).parent
FOLDER = HERE / "paper"
DOCUMENT = HERE.parent / "docs" / "reproduction.md"
WHOLE_COURSE = ("fig2", "fig3", "fig4", "fig5", "generative-mnist", "generative-notmnist")
"""Items whose figures show every task's course."""


def publish(source: Path) -> None:
    """Copy what people read, and of the parts what made them."""
    FOLDER.mkdir(exist_ok=True)
    for name in ("table.csv", "claims.csv", "table.md"):
        shutil.copyfile(source / name, FOLDER / name)
    for item in ITEMS:
        if not (source / item.name).is_dir():
            continue
        (FOLDER / item.name).mkdir(exist_ok=True)
        for figure in sorted((source / item.name).glob("*.[ps][nv]g")):
            if "-samples-" not in figure.name or figure.suffix == ".png":  # pictures are no lines
                shutil.copyfile(figure, FOLDER / item.name / figure.name)
        rows = source / item.name / "rows.csv"
        text = shortened(rows, item.name in WHOLE_COURSE) if isinstance(item, StreamItem) else rounded(rows)
        (FOLDER / item.name / "rows.csv").write_text(text)
    parts = [json.loads(path.read_text()) for path in sorted(source.glob("parts/*/part.json"))]
    # An item that has not run to its end is not published, and neither are those of its parts that have.
    behind = {item.name for item in ITEMS if not (source / item.name).is_dir()}
    kept = [part for part in parts if part["finished"] and part["description"].get("experiment") not in behind]
    (FOLDER / "parts.json").write_text(json.dumps(kept, indent=1) + "\n")


def shortened(path: Path, course: bool) -> str:
    """What the figures and the table show of a stream of tasks."""
    shown = {measured.metric for item in ITEMS if isinstance(item, StreamItem) for measured in item.measures}
    rows = [row for row in read_csv(path) if row.metric in shown]
    last = {method: max(row.after for row in rows if row.method == method) for method in {row.method for row in rows}}
    kept = [row for row in rows if course or row.after == last[row.method]]
    return to_csv([row._replace(value=round(row.value, 6)) for row in kept])


def rounded(path: Path) -> str:
    """A table of numbers, six digits each."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    return "".join(",".join(_short(cell) for cell in row) + "\n" for row in rows)


def _short(cell: str) -> str:
    try:
        return cell if cell.lstrip("-").isdigit() else f"{float(cell):.6g}"
    except ValueError:
        return cell


def document() -> str:
    """docs/reproduction.md."""
    lines, seen = read_lines(FOLDER / "table.csv"), read_seen(FOLDER / "claims.csv")
    notes = {note["item"]: note["text"] for note in tomllib.loads((FOLDER / "notes.toml").read_text())["note"]}
    known = [line for line in lines if line.paper]
    text = "# The paper's numbers and ours\n\n"
    text += "Made by `python results/paper.py` from [results/paper/](../results/paper/table.md). "
    text += f"{notes['all'].strip()}\n\n"
    missing = [item.name for item in ITEMS if not any(line.item == item.name for line in lines)]
    if missing:
        text += f"**Not yet run to the end at these settings, and so not in this document: {', '.join(missing)}.**\n\n"
    text += f"{made_by()}\n\n## Numbers\n\n{verdicts(known)}\n\n{number_table(known)}\n"
    text += f"## Claims\n\n{notes['claims'].strip()}\n\n{claim_table(seen)}\n## Item by item\n\n"
    for item in ITEMS:
        mine = [line for line in lines if line.item == item.name]
        if mine:
            text += f"### {item.name}: {item.about}\n\n{notes[item.name].strip()}\n\n"
            if isinstance(item, StreamItem) and len(item.measures) > 1:
                text += f"{measure_table(item, mine)}\n"
            for figure in sorted((FOLDER / item.name).glob("*.png"), key=lambda path: len(path.name)):
                text += f"![{figure.stem}](../results/paper/{item.name}/{figure.name})\n\n"
    return text.rstrip() + "\n"


def made_by() -> str:
    """The command, the versions, the machines and the time."""
    parts: list[dict[str, Any]] = json.loads((FOLDER / "parts.json").read_text())
    commands = sorted({part["command"] for part in parts})
    machines: dict[str, float] = {}
    for part in parts:
        where = f"{part['device']}, torch {part['builds'][-1]['torch']}"
        machines[where] = machines.get(where, 0.0) + part["seconds"]
    version = {build["vcl"] for part in parts for build in part["builds"]}
    text = f"{len(parts)} parts of vcl {', '.join(sorted(version))} by " + " and ".join(
        f"`{each}`" for each in commands
    )
    text = f"{text}: " + "; ".join(f"{seconds:.0f} s on {where}" for where, seconds in machines.items()) + "."
    if any("--jobs" in each for each in commands):
        text += " Parts of a command with `--jobs` ran side by side; each counts from its beginning to its end."
    noted = sorted({(part["description"]["experiment"], note) for part in parts for note in part.get("notes", ())})
    return text + "".join(f" On {experiment}: {note}" for experiment, note in noted)


def verdicts(lines: list[Line]) -> str:
    """How many of the paper's numbers were met."""
    counted = Counter(line.verdict for line in lines)
    return (
        f"Of {len(lines)} numbers (the paper's, and a third party's of its generators) {counted['within']} are met "
        "within their tolerance, "
        f"{counted['better']} are passed and {counted['worse']} are not reached."
    )


def number_table(lines: list[Line]) -> str:
    """The paper's numbers beside ours: accuracy over all tasks after the last one, in %, with its standard error."""
    text = "| item | method | paper | ours | seeds | verdict | in the paper |\n"
    text += "| --- | --- | ---: | ---: | ---: | --- | --- |\n"
    for line in lines:
        ours = plus_minus(line.ours, line.error)
        text += (
            f"| {line.item} | {line.what} | {line.paper} | {ours} | {line.seeds} | {line.verdict} | {line.place} |\n"
        )
    return text


def measure_table(item: StreamItem, lines: list[Line]) -> str:
    """Where several things are measured of each method, one line a method."""
    listed = [measured for measured in item.measures if measured.listed]
    suffixes = [measured.suffix for measured in listed]
    heads = [measured.suffix.strip() or measured.metric for measured in listed]
    text = f"| method | {' | '.join(heads)} |\n| --- |{' ---: |' * len(heads)}\n"
    ours = {line.what: plus_minus(line.ours, line.error) for line in lines}
    for name in ours:
        if all(name + suffix in ours for suffix in suffixes):
            text += f"| {name} | {' | '.join(ours[name + suffix] for suffix in suffixes)} |\n"
    return text


def claim_table(seen: list[Seen]) -> str:
    """The paper's claims by paired differences over seeds."""
    text = "| item | claim | difference | seeds | verdict |\n| --- | --- | ---: | ---: | --- |\n"
    for one in seen:
        difference = plus_minus(one.difference, one.error)
        text += f"| {one.item} | {one.claim} | {difference} | {one.seeds} | {one.verdict} |\n"
    return text


def main() -> None:
    """Publish if told from where, and write the document."""
    if len(sys.argv) > 1:
        publish(Path(sys.argv[1]))
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
