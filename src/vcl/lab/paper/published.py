"""A published folder of results: shortened rows for each item, and tables that follow from these rows alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from vcl.errors import VclError
from vcl.lab.folder import make_folder
from vcl.lab.paper.item import Item, StreamItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.judged import Judged, Values, judge_stream, judge_table, stream_values
from vcl.lab.paper.reproduce import LINES, write_tables
from vcl.lab.paper.table import read_lines
from vcl.lab.results import methods, read_csv, to_csv

ROWS = "rows.csv"
WHOLE_COURSE = ("fig2", "fig3", "fig4", "fig5", "generative-mnist", "generative-notmnist")
"""Items whose figures show every task's course."""

Seconds = Mapping[tuple[str, str], float]
"""How long a line of the table took, by item and what it is of; rows do not hold it."""


def items_in(folder: Path) -> Iterator[Item]:
    """The items that a folder has rows of."""
    return (item for item in ITEMS if (folder / item.name / ROWS).is_file())


def copy_rows(source: Path, target: Path) -> list[Item]:
    """Copy the rows of every item that ``source`` has, shortened; returns these items."""
    found = list(items_in(source))
    if not found:
        raise VclError(f"{source} holds no rows of any item; give the folder of a finished `vcl paper`.")
    for item in found:
        rows = source / item.name / ROWS
        text = shortened(rows, item.name in WHOLE_COURSE) if isinstance(item, StreamItem) else rounded(rows)
        (make_folder(target / item.name) / ROWS).write_text(text)
    return found


def shortened(path: Path, course: bool) -> str:
    """What the figures and the table show of a stream of tasks."""
    shown = {measured.metric for item in ITEMS if isinstance(item, StreamItem) for measured in item.measures}
    rows = [row for row in read_csv(path) if row.metric in shown]
    last = {method: max(row.after for row in rows if row.method == method) for method in methods(rows)}
    kept = [row for row in rows if course or row.after == last[row.method]]
    return to_csv([row._replace(value=round(row.value, 6)) for row in kept])


def rounded(path: Path) -> str:
    """A table of numbers, six digits each."""
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
    """The seconds in a folder's table."""
    return {(line.item, line.what): line.seconds for line in read_lines(folder / LINES)}


def judge_item(item: Item, folder: Path, seconds: Seconds) -> Judged:
    """An item from its rows in a folder."""
    mine = {what: value for (name, what), value in seconds.items() if name == item.name}
    path = folder / item.name / ROWS
    if isinstance(item, StreamItem):
        return judge_stream(item, read_csv(path), mine)
    with path.open(newline="") as file:
        return judge_table(item, list(csv.DictReader(file)), max(mine.values()))


def rebuild(folder: Path, seconds: Seconds) -> None:
    """Write the tables and the claims of a folder again from its rows."""
    judged = [judge_item(item, folder, seconds) for item in items_in(folder)]
    write_tables(
        folder, "paper", [line for each in judged for line in each.lines], [one for each in judged for one in each.seen]
    )


def listed_values(item: Item, folder: Path) -> Values:
    """What the table lists of an item, by seed, from its rows in a folder."""
    path = folder / item.name / ROWS
    if isinstance(item, StreamItem):
        return stream_values(item, read_csv(path), listed_only=True)
    with path.open(newline="") as file:
        return item.by_seed(list(csv.DictReader(file)))
