"""Tables of results: for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vcl.lab.results import LAMBDA, Row, averaged_over, final, methods

COLUMNS = ("method", "accuracy %", "paper", "forgetting %", "log predictive", "calibration")

WIDE = 10_000
"""A width in letters that no table reaches."""


def cells(rows: Sequence[Row], paper: Mapping[str, float]) -> list[tuple[str, ...]]:
    """One line per method: mean and standard error over seeds after the last task, and the paper's number."""
    lines: list[tuple[str, ...]] = []
    for method in methods(rows):
        measures = final(rows, method)
        lines.append(
            (
                method,
                measures["average accuracy"].text(2, 100),
                f"{paper[method]:.1f}" if method in paper else "-",
                measures["forgetting"].text(2, 100),
                measures["log predictive"].text(),
                measures["calibration error"].text(),
            )
        )
    return lines


def explain(rows: Sequence[Row], paper: Mapping[str, float]) -> str:
    """The note below a table: what its numbers are."""
    text = f"{averaged_over(rows)} Log predictive is in nats an example; calibration is the expected calibration "
    text += "error, from 0 to 1."
    if any(method in paper for method in methods(rows)):
        text += " The paper's numbers are accuracies in %, for its own settings (preset paper)."
    return text


def terminal(title: str, lines: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> Table:
    """The table for a terminal."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for line in lines:
        table.add_row(line[0].replace(LAMBDA, " λ="), *line[1 : len(columns)])  # shorter, to fit 80 columns
    return table


def show(console: Console, title: str, lines: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> None:
    """Print as many columns as fit the console, none truncated, and name the others.

    If not even one number fits beside the methods' names, print one line of text per method.
    """

    def fits(count: int) -> bool:
        wide = console.options.update(width=WIDE)
        return console.measure(terminal("", lines, columns[:count]), options=wide).maximum <= console.width

    count = next((count for count in range(len(columns), 1, -1) if fits(count)), 1)
    if count > 1:
        console.print(terminal(title, lines, columns[:count]))
    else:
        text = [title, *(": ".join([line[0], *(f"{columns[1]} {each}" for each in line[1:2])]) for line in lines)]
        console.print("\n".join(text), soft_wrap=True, highlight=False)
    left = ", ".join(columns[max(count, 2) :])
    if left:
        console.print(f"No room here for: {left}. The whole table is in table.md.", soft_wrap=True, highlight=False)


def markdown(lines: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> str:
    """The table as Markdown."""
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in (columns, rule, *lines))


def _cell(text: str) -> str:
    """A text that keeps within its cell."""
    return " ".join(text.split()).replace("|", "\\|")
