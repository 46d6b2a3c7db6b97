"""Groups of the store as comparisons of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vcl.lab.evaluation import Score
from vcl.lab.figures.sample_grid import WHITE, canvas
from vcl.lab.pulse import read_now
from vcl.lab.report.calibration import reliability
from vcl.lab.report.objectives import Budget, measures, objectives
from vcl.lab.results import Row, label, methods, split_label
from vcl.lab.settings import text_of
from vcl.lab.show import Going as Unfinished
from vcl.lab.show import Group, Member, explained, paper_numbers
from vcl.pages import Comparison, Going, Line, Metric, Picture
from vcl.pages.png import data_uri

KNOWN = {
    "accuracy": Metric("accuracy", 100, "%", "more"),
    "log predictive": Metric("log predictive", 1, "nats", "more"),
    "log likelihood": Metric("log likelihood", 1, "nats", "more"),
    "calibration error": Metric("calibration error", 1, "", "less"),
    "Brier score": Metric("Brier score", 1, "", "less"),
}
COLUMNS = 4
"""Metrics beside the score that the table has a column for."""

MOST_PICTURES = 12


class Source(NamedTuple):
    """A group and the folder that it is from."""

    group: Group
    name: str
    folder: Path

    def called(self, name: str, several: bool) -> str:
        """A label, with the folder's name where there are several folders."""
        return f"{name} ({self.name})" if several else name


def comparison(sources: Sequence[Source], several: bool, budget: Budget) -> Comparison:
    """The groups of one experiment on one stream, from one folder or several, as one comparison."""
    first = sources[0].group
    rows = [row for source in sources for row in source.group.rows]
    score = first.experiment.evaluation.score
    thinned = any(source.group.members for source in sources)
    return Comparison(
        name=first.name,
        title=first.title if len(sources) == 1 else f"{first.name}: {', '.join(source.name for source in sources)}",
        about=_sentence(first.experiment.about),
        explained=" ".join(explained(first)) if first.rows and len(sources) == 1 else _general(rows),
        tasks=max((tuple(source.group.tasks) for source in sources), key=lambda names: len(names)) or _numbered(rows),
        score=score.metric,
        score_name=score.name,
        metrics=metrics(rows, score),
        lines=tuple(line for source in sources for line in _lines(source, several, budget)),
        notes=tuple(
            source.called(note, several)
            for source in sources
            for note in (*source.group.moving, *source.group.notes)
        ),
        unfinished=tuple(note for source in sources for note in source.group.unfinished),
        pictures=tuple(
            picture
            for source in sources
            for picture in pictures(source.group.pictures, lambda name, s=source: s.called(name, several))
        )[:MOST_PICTURES],
        going=tuple(_going(each, source, several) for source in sources for each in source.group.going),
        thinned=budget.sentence() if thinned else "",
    )  # fmt: skip


def _going(each: Unfinished, source: Source, several: bool) -> Going:
    """Where a stack stands that is not finished."""
    known, now = each.stack.known, read_now(each.stack.folder)
    done, stream = len(known["tasks"]), known["description"].get("stream")
    tasks = now.get("tasks") or (stream.get("tasks") if isinstance(stream, dict) else 0)
    about = f"last written at {_clock(str(known.get('written', '-')))}"
    if now.get("task") == done + 1:
        about = f"task {done + 1}: {now['fit']}, epoch {now['epoch']} of {now['epochs']} at {_clock(now['written'])}"
    return Going(source.called(each.part, several), done, tasks if type(tasks) is int else 0, about)


def _clock(when: str) -> str:
    """The time of day of a moment, in UTC."""
    return f"{when[11:19]} UTC"


def metrics(rows: Sequence[Row], score: Score) -> tuple[Metric, ...]:
    """The metrics of rows, the score first."""
    there = dict.fromkeys(row.metric for row in rows)
    order = [score.metric] * (score.metric in there) + [name for name in there if name != score.metric]
    known = KNOWN | {score.metric: Metric(score.metric, score.scale, score.unit.strip(), "more")}
    found = [known.get(name, Metric(name)) for name in order]
    return tuple(
        Metric(each.name, each.scale, each.unit, each.better, place <= COLUMNS) for place, each in enumerate(found)
    )


def values_of(rows: Sequence[Row], seeds: Sequence[int], tasks: int) -> dict[str, NDArray[Any]]:
    """The rows of one line by metric: [seeds, T (T + 1) / 2], NaN where there is no row."""
    place = {seed: number for number, seed in enumerate(seeds)}
    found: dict[str, NDArray[Any]] = {}
    for row in rows:
        if row.metric not in found:
            found[row.metric] = np.full((len(seeds), tasks * (tasks + 1) // 2), nan)
        found[row.metric][place[row.seed], row.after * (row.after - 1) // 2 + row.on - 1] = row.value
    return found


def by_label(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each line."""
    found: dict[str, list[Row]] = {name: [] for name in methods(rows)}
    for row in rows:
        found[row.method].append(row)
    return found


def _lines(source: Source, several: bool, budget: Budget) -> Iterator[Line]:
    group, numbers = source.group, paper_numbers(source.group)
    for name, rows in by_label(group.rows).items():
        seeds = tuple(sorted({row.seed for row in rows}))
        tasks = max(row.after for row in rows)
        mine = [member for member in group.members if name in member.names.values()]
        part, lam = split_label(name)
        part = mine[0].part if mine else part
        known = mine[0].stack.known if mine else {}
        yield Line(
            label=label(source.called(part, several), lam) if lam is not None else source.called(name, several),
            part=source.called(part, several),
            lam=lam,
            seeds=seeds,
            tasks=tasks,
            values=values_of(rows, seeds, tasks),
            paper=numbers.get(name),
            seconds=group.seconds.get(part),
            going=part in {each.part for each in group.going},
            settings=settings(known),
            made=[_made(member, source.folder) for member in mine],
            objective=objectives(mine, budget, name, seeds),
            fits=measures(mine, name, seeds),
            reliability=reliability(mine, name, seeds),
        )


def settings(known: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every setting of a part by its name, as `--set` takes it."""
    if not known:
        return []
    about = known["description"]
    sections = {
        "stream": about.get("stream"),
        "network": about.get("network"),
        "": _inner(about.get("method"), "settings"),
        "prediction": _inner(about.get("prediction"), "settings"),
    }
    found = [("preset", str(known["preset"])), ("dataset", str(known["dataset"] or "made by the experiment"))]
    found += [
        (f"{section}.{name}" if section else name, _word(value))
        for section, values in sections.items()
        if isinstance(values, dict)
        for name, value in values.items()
    ]
    found += [(name, str(about[name])) for name in ("device", "matmul") if about.get(name) is not None]
    return [*found, ("changed", " ".join(known["changes"]) or "nothing")]


def pictures(found: Mapping[str, Sequence[Tensor]], called: Any) -> Iterator[Picture]:
    """The samples of each line, the first of each generator after each task."""
    for name, images in found.items():
        first = [each[:, 0] for each in images]
        page = WHITE - canvas(first, len(first[-1]))
        yield Picture(called(name), data_uri(page.numpy()), len(images), len(first[-1]))


def _inner(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _word(value: Any) -> str:
    return text_of(tuple(value) if isinstance(value, list) else value)


def _made(member: Member, folder: Path) -> dict[str, Any]:
    known = member.stack.known
    build = known["builds"][-1]
    return {
        "command": known["command"],
        "runs": len(member.stack.runs),
        "device": known["device"],
        "engine": known["engine"],
        "seconds": float(known["seconds"]),
        "finished": str(known.get("written", "-"))[:16].replace("T", " "),
        "vcl": build["vcl"],
        "torch": build["torch"],
        "python": str(build.get("python", "-")),
        "commit": str(build.get("commit") or "-")[:12],
        "source": str(build.get("source", "-")),
        "folder": member.stack.folder.relative_to(folder).as_posix(),
    }


def _numbered(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(f"task {number}" for number in range(1, max((row.on for row in rows), default=0) + 1))


def _general(rows: Sequence[Row]) -> str:
    return "Mean ± standard error over seeds, averaged over tasks, after the last task." if rows else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
