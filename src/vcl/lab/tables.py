"""Tables of results: for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vcl.lab.results import LAMBDA, Row, Summary, final, methods

COLUMNS = ("method", "accuracy %", "paper", "forgetting %", "log predictive", "calibration")

WIDE = 10_000
"""Letters that no table comes to."""


def cells(rows: Sequence[Row], paper: Mapping[str, float]) -> list[tuple[str, ...]]:
    """One line per method: mean and standard error over seeds after the last task, beside the paper's number."""
    lines: list[tuple[str, ...]] = []
    for method in methods(rows):
        measures = final(rows, method)
        lines.append(
            (
                method,
                _percent(measures["average accuracy"]),
                f"{paper[method]:.1f}" if method in paper else "-",
                _percent(measures["forgetting"]),
                _plain(measures["log predictive"]),
                _plain(measures["calibration error"]),
            )
        )
    return lines


def explain(rows: Sequence[Row], paper: Mapping[str, float]) -> str:
    """What the numbers of a table are."""
    seeds = sorted({final(rows, method)["average accuracy"].seeds for method in methods(rows)})
    count = " or ".join(str(number) for number in seeds)
    text = f"Mean ± standard error over {count} seeds, averaged over tasks, after the last task."
    if any(method in paper for method in methods(rows)):
        text += " The paper's numbers are for its own settings (preset paper)."
    return text


def terminal(title: str, lines: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> Table:
    """For people at a terminal."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for line in lines:
        table.add_row(line[0].replace(LAMBDA, " λ="), *line[1 : len(columns)])  # 80 columns are few
    return table


def show(console: Console, title: str, lines: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> None:
    """Print as many columns as the console has room for, none of them cut, and name those that it has none for.

    Where there is no room for one number beside the methods' names, each stands in a line of its own.
    """

    def fits(count: int) -> bool:
        wide = console.options.update(width=WIDE)
        return console.measure(terminal("", lines, columns[:count]), options=wide).maximum <= console.width

    count = next((count for count in range(len(columns), 1, -1) if fits(count)), 1)
    if count > 1:
        console.print(terminal(title, lines, columns[:count]))
    else:
        text = [title, *(f"{line[0]}: {columns[1]} {line[1]}" for line in lines)]
        console.print("\n".join(text), soft_wrap=True, highlight=False)
    left = ", ".join(columns[max(count, 2) :])
    if left:
        console.print(f"No room here for: {left}. The whole table is in table.md.", soft_wrap=True, highlight=False)


def markdown(lines: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> str:
    """For documents."""
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    return "".join(f"| {' | '.join(line)} |\n" for line in (columns, rule, *lines))


def _percent(value: Summary) -> str:
    return _text(100 * value.mean, 100 * value.error, 2)


def _plain(value: Summary) -> str:
    return _text(value.mean, value.error, 3)


def _text(mean: float, error: float, digits: int) -> str:
    return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if error == error else "")
