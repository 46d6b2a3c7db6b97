"""Average accuracy after the last task, one line per label: comparisons of estimators, orders, settings and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import isnan
from pathlib import Path

from matplotlib.figure import Figure
from torch import Tensor

from vcl.lab.figures.curves import by_method, over_seeds
from vcl.lab.figures.style import colour, save
from vcl.lab.results import Row, shown

Values = Mapping[str, float]

OTHERS = "others"
"""The title of the labels without a group."""


def draw(
    rows: Sequence[Row],
    title: str,
    paper: Values,
    path: Path,
    groups: Mapping[str, Sequence[str]] | None = None,
    references: Mapping[str, Values] | None = None,
) -> list[Path]:
    """Draw per label the mean with a bar of one standard error, the seeds as faint dots below, and references as ticks.

    ``groups`` maps a title to its labels; labels without a group come last. ``references`` maps a legend text to values
    in % by label; ``paper`` is the first reference. Returns the files.
    """
    return save(picture(rows, title, paper, groups, references), path)


def picture(
    rows: Sequence[Row],
    title: str,
    paper: Values,
    groups: Mapping[str, Sequence[str]] | None = None,
    references: Mapping[str, Values] | None = None,
) -> Figure:
    """The figure that :func:`draw` saves."""
    averages = by_method(rows)
    lines = _lines(list(averages), groups or {})
    places = {at: name for at, (name, is_title) in enumerate(lines) if not is_title}

    figure = Figure(figsize=(6.4, 1.2 + 0.24 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    for at, name in places.items():
        if name in averages:
            ends = averages[name][:, -1]
            mean, error = (float(each) for each in over_seeds(ends))
            below = [at + 0.3] * len(ends)
            axes.plot(ends.tolist(), below, "o", color=colour(0), alpha=0.35, markersize=3, markeredgewidth=0)
            bar = 0.0 if isnan(error) else error
            axes.errorbar(mean, at, xerr=bar, fmt="o", color=colour(0), markersize=5, capsize=2.5, linewidth=1.5)
            text = f"{mean:.2f}" if isnan(error) else f"{mean:.2f} ± {error:.2f}"
            axes.text(1.01, at, text, transform=axes.get_yaxis_transform(), va="center", fontsize=7)
    for number, (what, values) in enumerate({"paper": paper, **(references or {})}.items()):
        marks = [(values[name], at) for at, name in places.items() if name in values]
        if marks:
            xs, ys = zip(*marks, strict=True)
            shade = ("#000000", colour(1), colour(2), colour(3))[number % 4]
            axes.plot(xs, ys, "|", color=shade, markersize=11, markeredgewidth=1.8, label=what)

    texts, sizes = _texts(lines, averages)
    axes.set_yticks(range(len(lines)), texts, fontsize=8)
    for tick, (_, is_title) in zip(axes.get_yticklabels(), lines, strict=True):
        tick.set_fontweight("bold" if is_title else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(lines) - 0.4, -0.6)  # the first at the top
    last = f"{max(sizes, default=0)} tasks" if len(sizes) < 2 else "the last task"
    axes.set_xlabel(f"average accuracy after {last} (%)")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize=7, frameon=False, loc="outside lower center", ncols=4)
    return figure


def _lines(names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[tuple[str, bool]]:
    """From the top: (text, whether it is the title of a group)."""
    grouped = {name for some in groups.values() for name in some}
    rest = [name for name in names if name not in grouped]
    if not groups:
        return [(name, False) for name in rest]
    every = [*groups.items(), *([(OTHERS, rest)] if rest else [])]
    return [line for title, some in every for line in [(title, True), *((name, False) for name in some)]]


def _texts(lines: Sequence[tuple[str, bool]], averages: Mapping[str, Tensor]) -> tuple[list[str], set[int]]:
    """The text of each line, and the numbers of tasks of the groups.

    A label leaves out the title above it, and names the number of tasks learned if others of its group learned more.
    """
    texts, sizes, title, tasks = list[str](), set[int](), "", _most([name for name, _ in lines], averages)
    for at, (name, is_title) in enumerate(lines):
        if is_title:
            title = name
            rest = [below for below, _ in takewhile(lambda line: not line[1], lines[at + 1 :])]
            tasks = _most(rest, averages)
            texts.append(title)
            continue
        known = averages[name].shape[1] if name in averages else 0
        text = shown(name).removeprefix(f"{title}: ")
        texts.append(text if known == tasks else f"{text} ({f'after {known} tasks' if known else 'no rows yet'})")
        sizes.add(tasks)
    return texts, sizes


def _most(names: Sequence[str], averages: Mapping[str, Tensor]) -> int:
    """The most tasks that one of them learned."""
    return max((averages[name].shape[1] for name in names if name in averages), default=0)
