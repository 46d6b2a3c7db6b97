"""Publish a run of `vcl paper`: its rows and figures into results/paper/, then all tables and docs/reproduction.md.

    python results/paper.py runs/paper-paper    # copy a finished run, then make tables and document
    python results/paper.py                     # make tables and document again from the rows that are here

The rows are cut to what the figures show (accuracy, six digits; where a figure shows the end alone, the end alone).
Tables, claims and document follow from these rows; only the seconds are carried over from the table before.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

from vcl.errors import VclError
from vcl.lab.paper.compare import compare, summary
from vcl.lab.paper.item import StreamItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.numbers import Group, numbers, words
from vcl.lab.paper.published import copy_rows, items_in, rebuild, seconds_of
from vcl.lab.paper.table import Line, Seen, base, bounds, plus_minus, read_lines, read_seen

HERE = Path(__file__).parent
FOLDER, AGAIN = HERE / "paper", HERE / "paper-again"
DOCUMENT = HERE.parent / "docs" / "reproduction.md"


def publish(source: Path) -> None:
    """Copy what people read, and of the parts what made them."""
    seconds = seconds_of(FOLDER) | seconds_of(source)
    for item in copy_rows(source, FOLDER):
        for figure in sorted((source / item.name).glob("*.[ps][nv]g")):
            if "-samples-" not in figure.name or figure.suffix == ".png":  # pictures are no lines
                shutil.copyfile(figure, FOLDER / item.name / figure.name)
    rebuild(FOLDER, seconds)
    parts = [json.loads(path.read_text()) for path in sorted(source.glob("parts/*/part.json"))]
    # An item that has not run to its end is not published, and neither are those of its parts that have.
    behind = {item.name for item in ITEMS if not (source / item.name).is_dir()}
    kept = [part for part in parts if part["finished"] and experiment_of(part) not in behind]
    (FOLDER / "parts.json").write_text(json.dumps(kept, indent=1) + "\n")


def experiment_of(part: dict[str, Any]) -> str:
    """The experiment that a part is of; the name of what is no stream of tasks."""
    found = part["description"].get("experiment", part["description"].get("name", ""))
    return str(found["name"] if isinstance(found, dict) else found)  # format 2 has the name alone


def document() -> str:
    """docs/reproduction.md."""
    lines, seen = read_lines(FOLDER / "table.csv"), read_seen(FOLDER / "claims.csv")
    notes = {note["item"]: note["text"] for note in tomllib.loads((FOLDER / "notes.toml").read_text())["note"]}
    text = f"# Reproduction: the paper's numbers and ours\n\n{in_short(lines, seen)}\n"
    text += "Made by `python results/paper.py` from the rows in [results/paper/](../results/paper/table.md). "
    text += f"{notes['all'].strip()}\n\n"
    for item in ITEMS:
        if not any(line.item == item.name for line in lines):
            text += f"`vcl paper {item.name}` has no published run at these settings, and so no numbers here.\n\n"
    text += f"## Numbers\n\n{notes['numbers'].strip()}\n\n{number_sections(lines)}"
    text += f"## Claims\n\n{notes['claims'].strip()}\n\n{verdicts(seen)}\n\n{word_table()}\n{claim_sections(seen)}"
    text += "## Item by item\n\n"
    for item in ITEMS:
        mine = [line for line in lines if line.item == item.name]
        if mine:
            text += f"### {item.name}: {item.about}\n\n{notes[item.name].strip()}\n\n"
            if isinstance(item, StreamItem) and len(item.measures) > 1:
                text += f"{measure_table(item, mine)}\n"
            for figure in sorted((FOLDER / item.name).glob("*.png"), key=lambda path: len(path.name)):
                text += f"![{figure.stem}](../results/paper/{item.name}/{figure.name})\n\n"
    text += f"## How it was made\n\n{made_by()}\n\n{again()}"
    return text.rstrip() + "\n"


def in_short(lines: list[Line], seen: list[Seen]) -> str:
    """What the document says, in a few lines."""
    text = "".join(f"- **{GROUPS[group][0]}.** {told(lines, group)}\n" for group in ("vcl", "baselines"))
    return f"{text}- **Claims.** {verdicts(seen)}\n"


def told(lines: list[Line], group: Group) -> str:
    """How many numbers of a group are within their tolerance, and how many beyond it."""
    found = Counter(line.verdict for line in lines if group_of(line) == group)
    n = {verdict: found[verdict] for verdict in ("within", "better", "worse")}
    return GROUPS[group][1].format(n=found.total(), **n)


def again() -> str:
    """What a second run says, where its rows are kept."""
    if not any(items_in(AGAIN)):
        return ""
    text = "The same seeds were run again by later code ([results/paper-again/](../results/paper-again/compared.csv)). "
    return f"{text}{summary(*compare(FOLDER, AGAIN))}\n\n"


def made_by() -> str:
    """The command, the versions, the machines and the time."""
    parts: list[dict[str, Any]] = json.loads((FOLDER / "parts.json").read_text())
    commands = sorted({part["command"] for part in parts})
    machines: dict[str, float] = {}
    for part in parts:
        where = f"{part['device']}, torch {part['builds'][-1]['torch']}"
        machines[where] = machines.get(where, 0.0) + part["seconds"]
    version = {build["vcl"] for part in parts for build in part["builds"]}
    text = f"The run has {len(parts)} parts of vcl {', '.join(sorted(version))}. They took "
    text += " and ".join(f"{seconds:.0f} s on {where}" for where, seconds in machines.items())
    text += ", by these commands:\n\n```\n" + "\n".join(commands) + "\n```\n\n"
    if any("--jobs" in each for each in commands):
        text += "Parts of a command with `--jobs` ran side by side. Each counts from its beginning to its end."
    noted = sorted({(experiment_of(part), note) for part in parts for note in part.get("notes", ())})
    return text + "".join(f" On {experiment}: {note}" for experiment, note in noted)


GROUPS: dict[Group, tuple[str, str]] = {
    "vcl": (
        "VCL's own numbers",
        "Of {n} numbers {within} are within their tolerance, {better} better and {worse} worse.",
    ),
    "baselines": (
        "Baselines",
        "Of {n} numbers {within} are within their tolerance, {better} end above the paper's number and {worse} below. "
        "A baseline above the paper's number is a difference to explain, not a success: see fig2 and fig4 below.",
    ),
    "other data": (
        "Not counted: Split notMNIST",
        "The paper used 400,000 images. We have the small set of 18,700, so the verdicts compare two experiments.",
    ),
    "third party": (
        "Not counted: generators",
        "The paper gives no numbers for its generators. The reference is another person's single run of the authors' "
        "method, with another classifier and another split of notMNIST.",
    ),
    "repeated": ("Not counted: a number that stands above", "Figures 2 and 3 share VCL with 200 random points."),
}
"""The groups of numbers in the order of the document: a heading, and what is said."""


def group_of(line: Line) -> Group | None:
    """How a line of the table is counted; None where the paper has no number."""
    number = numbers(line.item).get(base(line.what)) if line.paper else None
    return number.group if number else None


def number_sections(lines: list[Line]) -> str:
    """The paper's numbers beside ours, group by group, with the count of each."""
    text = ""
    for group, (heading, _) in GROUPS.items():
        mine = [line for line in lines if group_of(line) == group]
        text += f"### {heading}\n\n{told(lines, group)}\n\n{number_table(mine, group)}\n"
    return text


def verdicts(seen: list[Seen]) -> str:
    """How many of the paper's claims hold."""
    counted = Counter(one.verdict.partition(" (")[0] for one in seen)
    return (
        f"Of {len(seen)} claims {counted['true']} are true, {counted['false']} false and {counted['undecided']} "
        "undecided."
    )


def word_table() -> str:
    """What the paper's words mean."""
    text = "| word and range of the difference | why |\n| --- | --- |\n"
    for word in words().values():
        kind = " (classifier uncertainty)" if word.unit == "uncertainty" else ""
        text += f"| {bounds(word)}{kind} | {word.why} |\n"
    return text


def claim_sections(seen: list[Seen]) -> str:
    """The claims under the paper's own sentences."""
    text = ""
    for item, mine in groupby(seen, key=lambda one: one.item):
        text += f"### Claims of {item}\n\n"
        for (place, quote), claims in groupby(mine, key=lambda one: (one.place, one.quote)):
            text += f"> {quote} ({place})\n\n"
            text += "| claim | word | compared | difference | seeds | verdict |\n"
            text += "| --- | --- | --- | ---: | ---: | --- |\n"
            for one in claims:
                cells = (one.claim, one.word, one.compared, plus_minus(one.difference, one.error), str(one.seeds))
                text += f"| {' | '.join(cells)} | {one.verdict} |\n"
            text += "\n"
    return text


def number_table(lines: list[Line], group: Group) -> str:
    """The reference beside ours: accuracy over all tasks after the last one, in %, with its standard error."""
    theirs, place = ("a third party", "from") if group == "third party" else ("paper", "in the paper")
    text = f"| item | method | {theirs} | ours | seeds | verdict | {place} |\n"
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


def main() -> None:
    """Publish if told from where, and make tables and document from the rows."""
    try:
        if len(sys.argv) > 1:
            publish(Path(sys.argv[1]))
        else:
            rebuild(FOLDER, seconds_of(FOLDER))
        DOCUMENT.write_text(document())
    except VclError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
