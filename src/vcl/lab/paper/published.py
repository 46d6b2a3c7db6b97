"""A published folder of results: reduced rows for each item, and tables computed from these rows alone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from vcl.errors import VclError
from vcl.lab.console import say_on
from vcl.lab.experiments.experiment import PRESETS, Preset
from vcl.lab.folder import MOST_JSON, make_folder
from vcl.lab.paper.item import Item, StreamItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.judged import Judged, Values, judge_stream, judge_table, stream_values
from vcl.lab.paper.reproduce import ADDED, DOCUMENT, HEAD, LINES, TASKS, shown_of, write_tables
from vcl.lab.paper.table import read_lines
from vcl.lab.reading import reading, require
from vcl.lab.results import MOST_BYTES, Row, methods, read_csv, to_csv
from vcl.learner.bounded import read_bounded

ROWS = "rows.csv"
AGAIN = "restore it from a copy, or give the command that made it again"
"""Advice for a damaged file."""
WHOLE_COURSE = ("fig2", "fig3", "fig4", "fig5", "generative-mnist", "generative-notmnist")
"""Items whose figures need the rows after every task, not only after the last."""

Seconds = Mapping[tuple[str, str], float]
"""Computing time of each line of the table, by item and quantity; rows do not record it."""


def items_in(folder: Path) -> Iterator[Item]:
    """The items with rows in a folder."""
    return (item for item in ITEMS if (folder / item.name / ROWS).is_file())


def copy_rows(source: Path, target: Path) -> list[Item]:
    """Copy the rows of every item in ``source``, reduced; returns the items."""
    found = list(items_in(source))
    if not found:
        raise VclError(f"{source} holds no rows of any item; give the folder of a finished `vcl paper`.")
    for item in found:
        rows = source / item.name / ROWS
        text = shortened(rows, item.name in WHOLE_COURSE) if isinstance(item, StreamItem) else rounded(rows)
        (make_folder(target / item.name) / ROWS).write_text(text)
        if (rows.with_name(TASKS)).exists():
            (target / item.name / TASKS).write_text(rows.with_name(TASKS).read_text())
    return found


def shortened(path: Path, course: bool) -> str:
    """The CSV of a stream's rows that the figures and the table use; with ``course``, after every task."""
    shown = {measured.metric for item in ITEMS if isinstance(item, StreamItem) for measured in item.measures}
    rows = [row for row in read_csv(path) if row.metric in shown]
    last = {method: max(row.after for row in rows if row.method == method) for method in methods(rows)}
    kept = [row for row in rows if course or row.after == last[row.method]]
    return to_csv([row._replace(value=round(row.value, 6)) for row in kept])


def rounded(path: Path) -> str:
    """The CSV of a table, with numbers rounded to six digits."""
    out = io.StringIO()
    with path.open(newline="") as file:
        csv.writer(out, lineterminator="\n").writerows([_short(cell) for cell in row] for row in csv.reader(file))
    return out.getvalue()


def _short(cell: str) -> str:
    try:
        return cell if cell.lstrip("-").isdigit() else f"{float(cell):.6g}"
    except ValueError:
        return cell


def seconds_of(folder: Path) -> dict[tuple[str, str], float]:
    """The computing times in a folder's table, by item and quantity."""
    return {(line.item, line.what): line.seconds for line in read_lines(folder / LINES)}


def judge_item(item: Item, folder: Path, seconds: Seconds) -> Judged:
    """Judge an item from its rows in a folder."""
    mine = {what: value for (name, what), value in seconds.items() if name == item.name}
    path = folder / item.name / ROWS
    with reading(path, AGAIN):
        if isinstance(item, StreamItem):
            return judge_stream(item, read_csv(path), mine)
        require(bool(mine), f"{LINES} has no line of it")
        return judge_table(item, table_rows(path), max(mine.values()))


def table_rows(path: Path) -> list[dict[str, str]]:
    """The rows of an item with its own computation; for use within :func:`reading`."""
    rows = list(csv.DictReader(io.StringIO(read_bounded(path, MOST_BYTES).decode(), newline="")))
    require(all(None not in row and None not in row.values() for row in rows), "its lines are of several lengths")
    return rows


def rebuild(folder: Path, seconds: Seconds) -> None:
    """Rewrite a folder's tables and claims from its rows."""
    judged = [judge_item(item, folder, seconds) for item in items_in(folder)]
    write_tables(
        folder, "paper", [line for each in judged for line in each.lines], [one for each in judged for one in each.seen]
    )


def redraw(folder: Path, console: Console) -> None:
    """Redraw a folder's figures and rewrite its tables, from its rows."""
    preset, seconds, command = preset_of(folder), seconds_of(folder), command_of(folder)
    judged = []
    for item in items_in(folder):
        found, path = judge_item(item, folder, seconds), folder / item.name / ROWS
        judged.append(found)
        if isinstance(item, StreamItem):
            rows = read_csv(path)
            figures = item.draw(rows, shown_of(item, found, path.parent, preset, task_names(path.parent, rows)))
        else:
            with reading(path, AGAIN):
                rows_of_table = table_rows(path)
            figures = item.draw(rows_of_table, path.parent / item.name)
        say_on(console, f"{item.name}: figure {figures[0]}")
    lines, seen = [line for each in judged for line in each.lines], [one for each in judged for one in each.seen]
    write_tables(folder, preset, lines, seen, command)
    say_on(console, f"The table is in {folder / DOCUMENT}.")


def task_names(folder: Path, rows: Sequence[Row]) -> list[str]:
    """The names of an item's tasks from the file beside its rows; without the file, their numbers."""
    path, count = folder / TASKS, max((row.on for row in rows), default=0)
    if not path.exists():
        return [str(number + 1) for number in range(count)]
    with reading(path, "delete it"):
        names = json.loads(read_bounded(path, MOST_JSON))
        fine = isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)
        require(fine, f"it does not name {count} tasks")
        return list(names)


def preset_of(folder: Path) -> Preset:
    """The preset of a folder's table."""
    head = _document(folder).partition("\n")[0]
    return next((preset for preset in PRESETS if head == HEAD.format(preset)), "paper")


def command_of(folder: Path) -> str:
    """The command that added to a folder's table last; empty where the table does not name it."""
    before, after = ADDED.split("{}")
    found = [line for line in _document(folder).splitlines() if line.startswith(before) and line.endswith(after)]
    return found[0].removeprefix(before).removesuffix(after) if found else ""


def _document(folder: Path) -> str:
    """The text of a folder's table; empty where there is none."""
    path = folder / DOCUMENT
    if not path.exists():
        return ""
    with reading(path, AGAIN):
        return read_bounded(path, MOST_BYTES).decode()


def listed_values(item: Item, folder: Path) -> Values:
    """The quantities of an item in the table, by name and seed, from its rows in a folder."""
    path = folder / item.name / ROWS
    if isinstance(item, StreamItem):
        return stream_values(item, read_csv(path), listed_only=True)
    with reading(path, AGAIN):
        return item.by_seed(table_rows(path))
