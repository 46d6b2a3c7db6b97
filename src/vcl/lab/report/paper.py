"""A folder of `vcl paper` on a page: the paper's numbers beside ours, its claims, and the rows of each item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcl.lab.evaluation import Score
from vcl.lab.paper.item import StreamItem
from vcl.lab.paper.published import ROWS, command_of, items_in, preset_of, task_names
from vcl.lab.paper.reproduce import CLAIMS, LINES
from vcl.lab.paper.table import Line as Quantity
from vcl.lab.paper.table import read_lines, read_seen
from vcl.lab.report.groups import by_label, metrics, values_of
from vcl.lab.results import methods, read_csv, split_label
from vcl.pages import Comparison, Line, Section
from vcl.pages.sections import cell, table

BADGES = {"within": "good", "better": "good", "worse": "bad", "true": "good", "false": "bad"}


def sections(folder: Path, name: str) -> list[Section]:
    """The table of all quantities, and the table of the claims."""
    preset, where = preset_of(folder), f" ({name})" if name else ""
    lead = "" if preset == "paper" else f"Preset {preset}: not the paper's settings, so verdicts say little. "
    lead += f"Last added to by {command_of(folder)}." if command_of(folder) else ""
    lines, seen = read_lines(folder / LINES), read_seen(folder / CLAIMS)
    found, leads = [], _leads(folder, where)
    if lines:
        columns = ("item", "what", "paper", "ours", "seeds", "verdict", "seconds", "in the paper")
        rows = [
            [
                one.item, one.what, _number(one.paper),
                _spread(one.ours, one.error, leads.get((one.item, one.what))), one.seeds,
                cell(one.verdict or None, one.verdict or "–", BADGES.get(one.verdict, "even") if one.verdict else None),
                one.seconds, one.place or "–",
            ]
            for one in lines
        ]  # fmt: skip
        block = table("The paper's numbers and ours", columns, rows, ("paper", "ours", "seeds", "seconds"), 60)
        found.append(Section(f"The paper's numbers beside ours{where}", [block], lead))
    if seen:
        heads = ("item", "claim", "word", "compared", "difference", "seeds", "verdict", "in the paper", "quote")
        rows = [
            [
                one.item, one.claim, one.word, one.compared, _spread(one.difference, one.error), one.seeds,
                cell(one.verdict, one.verdict, BADGES.get(one.verdict, "even")), one.place, one.quote,
            ]
            for one in seen
        ]  # fmt: skip
        block = table("The paper's claims", heads, rows, ("difference", "seeds"), 60, ("quote",))
        about = "Each claim is judged by the paired difference over seeds and its 95 % interval."
        found.append(Section(f"The paper's claims, judged{where}", [block], about))
    return found


def comparisons(folder: Path, name: str) -> list[Comparison]:
    """The items that are streams of tasks, from the rows that each shows."""
    quantities = {(one.item, one.what): one for one in read_lines(folder / LINES)}
    return [
        _comparison(item, folder, f" ({name})" if name else "", quantities)
        for item in items_in(folder)
        if isinstance(item, StreamItem)
    ]


def _comparison(item: StreamItem, folder: Path, where: str, quantities: dict[tuple[str, str], Quantity]) -> Comparison:
    rows, first = read_csv(folder / item.name / ROWS), item.measures[0]
    unit = "%" if first.scale == 100 else "nats" if first.metric.startswith("log") else ""
    score = Score(first.metric, "average accuracy" if first.metric == "accuracy" else first.metric, first.scale, unit)
    lines = []
    for label, mine in by_label(rows).items():
        seeds, tasks = tuple(sorted({row.seed for row in mine})), max(row.after for row in mine)
        known = quantities.get((item.name, label + first.suffix))
        lines.append(
            Line(
                label=label,
                part=split_label(label)[0],
                lam=split_label(label)[1],
                seeds=seeds,
                tasks=tasks,
                values=values_of(mine, seeds, tasks),
                paper=None if known is None else _number(known.paper)["value"],
                seconds=None if known is None else known.seconds,
            )
        )
    return Comparison(
        name=item.name,
        title=_title(item, where),
        tasks=tuple(task_names(folder / item.name, rows)),
        score=score.metric,
        score_name=score.name,
        metrics=metrics(rows, score),
        lines=tuple(lines),
        about=f"In the paper: {item.place}.",
        explained="Mean ± standard error over seeds, averaged over tasks, after the last task.",
    )


def _number(text: str) -> dict[str, Any]:
    try:
        return cell(float(text), text)
    except ValueError:
        return cell(None, "–")


def _spread(mean: str, error: str, of: tuple[str, str, str] | None = None) -> dict[str, Any]:
    return cell(_number(mean)["value"], f"{mean} ± {error}" if error else mean or "–", of=of)


def _leads(folder: Path, where: str) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Of each quantity, by item and name: the comparison, the line and the metric that it is computed from."""
    return {
        (item.name, label + measured.suffix): (_title(item, where), label, measured.metric)
        for item in items_in(folder)
        if isinstance(item, StreamItem)
        for label in methods(read_csv(folder / item.name / ROWS))
        for measured in item.measures
    }


def _title(item: StreamItem, where: str) -> str:
    return f"{item.name}: {item.about}{where}"
