"""Tables and figures of a folder of results, from its rows alone: drawn after every run, and again at any time.

Parts of one experiment on one stream of tasks are compared in one table and one figure, a *group*. What is unfinished
is left out and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from vcl.errors import VclError
from vcl.lab import tables, unfinished
from vcl.lab.console import say_on
from vcl.lab.evaluation import Score
from vcl.lab.experiments.experiment import PRESETS, Experiment
from vcl.lab.figures import lambda_grid, sample_grid
from vcl.lab.folder import UnwritableError, make_folder, remove_abandoned, write_atomic
from vcl.lab.parts import (
    changed_stream,
    compared,
    differing_stream,
    gathered,
    has_paper_stream,
    is_paper_stream,
    labels,
    streams_apart,
)
from vcl.lab.reading import read_object, reading, require
from vcl.lab.registry import experiment, experiments
from vcl.lab.results import Row, Summary, by_lambda, final_score, label, read_csv, split_label, to_csv
from vcl.lab.runner import set_aside_in
from vcl.lab.store import MOVING, Stack, Store, stored_label
from vcl.lab.store import PARTS as PARTS_FOLDER

TABLE, ROWS = "table.md", "rows.csv"
OLD = "run.json"
"""What an earlier layout has beside the rows of a run."""


class Member(NamedTuple):
    """A finished stack of a group, and what its runs are called there."""

    stack: Stack
    part: str
    names: Mapping[tuple[str, int], str]
    """The label of a run by its label in the store and its seed."""


class Going(NamedTuple):
    """A stack of a group that is not finished."""

    stack: Stack
    part: str


@dataclass
class Group:
    """What is compared: parts of one experiment on one stream of tasks."""

    name: str
    experiment: Experiment
    title: str
    rows: list[Row] = field(default_factory=list)
    tasks: Sequence[str] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    moving: dict[str, None] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    """One sentence for each stack that is not finished."""
    made: list[str] = field(default_factory=list)
    """One line for each stack: the command, versions, machine and time that made it."""
    pictures: dict[str, list[Tensor]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each part, by its label, all its stacks together."""
    grids: dict[str, set[float]] = field(default_factory=dict)
    """The lambdas of a part that were computed as a grid, by its label; without those that were run alone."""
    validation: bool = False
    members: list[Member] = field(default_factory=list)
    """The finished stacks."""
    going: list[Going] = field(default_factory=list)
    """Where a live page is made: the stacks that are not finished."""
    old: bool = False
    """Whether it is of an earlier layout, whose files stand in the folder itself."""


class Choice(NamedTuple):
    """The best lambda of a method, how good it was where it was chosen, and whether it ends its grid."""

    lam: float
    score: Summary
    edge: bool
    tied: tuple[float, ...] = ()
    """All that are as good, where there are several."""


def choose(rows: Sequence[Row], metric: str) -> dict[str, Choice]:
    """The lambda of each method, of those with several, with the best metric after the last task, over all tasks.

    A lambda all of whose runs were set aside has no rows, and cannot be the best. Nor can one without the metric.
    """
    chosen = {}
    for method, lams in by_lambda(rows).items():
        ends = {lam: end for lam, name in lams.items() if (end := final_score(rows, name, metric)).seeds}
        if not ends:
            continue
        best = max(ends, key=lambda lam: ends[lam].mean)
        equal = tuple(sorted(lam for lam in ends if ends[lam].mean == ends[best].mean))
        edge = len(lams) > 1 and {min(lams), max(lams)} >= set(equal)
        chosen[method] = Choice(best, ends[best], edge, equal if len(equal) > 1 else ())
    return chosen


def groups(store: Store, console: Console, live: bool = False) -> list[Group]:
    """What a store holds, group by group, in the order in which they were begun.

    Parts of an experiment that is not known here are left out and named. ``live`` takes the finished tasks of what is
    unfinished too.
    """
    found: list[Group] = []
    sets = gathered(store.stacks(), compared)
    for mine in sets:
        name = mine[0].known["experiment"]
        if name not in experiments():
            say_on(
                console,
                f"{mine[0].folder} is of the experiment {name}, which is not known here, and is left out; give the "
                "file that defines it with --plugin.",
            )
            continue
        made = _group(
            mine,
            store.root.parent,
            streams_apart(mine, [each for each in sets if _called(each) == _called(mine)]),
            live,
        )
        taken = [group.name for group in found]
        number = next(n for n in range(1, len(found) + 2) if (f"{made.name}-{n}" if n > 1 else made.name) not in taken)
        made.name += f"-{number}" if number > 1 else ""
        if made.title in [group.title for group in found]:
            made.title += f" ({made.name})"
        found.append(made)
    return found


def _called(stacks: Sequence[Stack]) -> tuple[object, ...]:
    """What groups of one experiment, dataset and share of held-out data have in common."""
    return tuple(stacks[0].known.get(key) for key in ("experiment", "dataset", "validation"))


def _group(stacks: Sequence[Stack], out: Path, apart: Sequence[str], live: bool) -> Group:
    """The group of stacks in a folder that are compared; ``apart`` tells its stream from other groups'."""
    first = stacks[0].known
    chosen, share = stacks[0].experiment(), first.get("validation")
    name = stacks[0].name
    presets = dict.fromkeys(stack.known["preset"] for stack in stacks)
    finished = [stack for stack in stacks if stack.finished or (live and stack.known["tasks"])]
    tasks = [task for task, _ in max(finished or stacks, key=lambda stack: len(stack.known["tasks"])).known["tasks"]]
    none = "no task finished yet" if live else "no part finished yet"
    so_far = [f"after {len(tasks)} tasks" if finished else none]
    # The stream is the same for all; what it has as any of their presets is not told.
    changed = set.intersection(*(set(changed_stream(stack)) for stack in stacks))
    told_apart = [each for each in dict.fromkeys([*apart, *sorted(changed)]) if each != f"tasks={len(tasks)}"]
    after = ", ".join([*told_apart, *so_far])
    group = Group(name, chosen, f"{name}, preset {' and '.join(presets)}, {after}", tasks=tasks)
    if share is not None:
        group.name, group.validation = f"{name}-validation", True
        group.title = f"{name}, on {share:g} of the training data held out, {after}"
    elif name == chosen.name and has_paper_stream(stacks[-1]):
        group.paper = dict(chosen.paper)
    named = labels(stacks)
    for stack in stacks:  # a preset in the label leaves the paper's number beside it
        method, shown = stack.known["method"], named[stack.folder]
        if method in group.paper and shown == f"{method} ({stack.known['preset']})":
            group.paper = {**group.paper, shown: group.paper[method]}
    lams = [(named[stack.folder], run.lam) for stack in finished for run in stack.runs]
    several = {part for part, _ in lams if len({lam for other, lam in lams if other == part}) > 1}
    several |= {named[stack.folder] for stack in finished if stack.known["grid"]}
    for stack in stacks:
        shown = named[stack.folder]
        if live and not stack.finished:
            group.going.append(Going(stack, shown))
        elif not stack.finished:
            group.unfinished.append(unfinished.told(stack, shown, stacks, out))
        if stack not in finished:
            continue
        _add(group, stack, shown, shown in several)
    order = {shown: place for place, shown in enumerate(dict.fromkeys(named.values()))}
    metrics = {metric: place for place, metric in enumerate(dict.fromkeys(row.metric for row in group.rows))}

    def place(row: Row) -> tuple[int, float, int, int, int, int]:
        """The order does not show in which stacks the runs were."""
        shown, lam = split_label(row.method)
        return order.get(shown, 0), lam or 0.0, row.after, row.on, metrics[row.metric], row.seed

    group.rows.sort(key=place)
    return group


def _add(group: Group, stack: Stack, shown: str, several: bool) -> None:
    """A finished stack's rows under the part's label, with its lambda where there are several or it was a grid."""
    known = stack.known

    def name(lam: float | None) -> str:
        return label(shown, lam) if several and lam is not None else shown

    names = {(stored_label(known["method"], run), run.seed): name(run.lam) for run in stack.alive}
    group.members.append(Member(stack, shown, names))
    there = {row[:2] for row in group.rows}  # a run that two processes have computed is shown once
    rows = [row._replace(method=names[row[:2]]) for row in stack.rows()]
    group.rows += [row for row in rows if row[:2] not in there]
    group.notes += [note for note in known["notes"] if note not in group.notes]
    if len(lams := {run.lam for run in stack.runs}) > 1:
        group.grids.setdefault(shown, set()).update(lam for lam in lams if lam is not None)
    group.seconds[shown] = group.seconds.get(shown, 0.0) + known["seconds"]
    if MOVING in known:
        said = str(known[MOVING]).removeprefix(f"{known['method']}: ")  # older parts begin with the method
        group.moving |= {f"{shown}: {said}": None}
    build = known["builds"][-1]
    group.made.append(
        f"- {shown}: `{known['command']}`, vcl {build['vcl']}, torch {build['torch']}, {known['device']}, engine "
        f"{known['engine']}, {known['seconds']:.0f} s"
    )
    if drawn := stack.pictures():
        for place, run in enumerate(stack.alive):
            group.pictures.setdefault(names[stored_label(known["method"], run), run.seed], [i[place] for i in drawn])


def show_folder(folder: Path, console: Console) -> None:
    """Draw the tables and figures of a folder again from its rows."""
    from vcl.lab.paper.published import items_in, redraw

    if not folder.is_dir():
        raise VclError(f"{folder} is no folder; give one that `vcl run`, `vcl sweep` or `vcl paper` made.")
    if any(items_in(folder)):
        redraw(folder, console)
        return
    found = groups_in(folder, console)
    try:
        show_groups(found, folder, console, within=not any(group.old for group in found))
    except UnwritableError as error:
        fault = str(error).partition(";")[0]
        mend = "copy the folder to where you may write, and show it there"
        raise VclError(f"{fault}; the tables above were not saved: {mend}.") from error


def groups_in(folder: Path, console: Console, live: bool = False) -> list[Group]:
    """The groups of a folder of results, of an earlier layout too; VclError if there are none."""
    found = groups(Store(folder, torch.device("cpu"), ""), console, live)
    if not found and (folder / ROWS).is_file():
        return [_old(folder)]
    if not found and any((folder / PARTS_FOLDER).glob("*")):
        raise VclError(f"{folder} holds no results of an experiment that is known here; give --plugin.")
    if not found:
        raise VclError(f"{folder} holds no results; give a folder that `vcl run`, `vcl sweep` or `vcl paper` made.")
    return found


def _old(folder: Path) -> Group:
    """A run's folder in an earlier layout: one file of rows, one of settings."""
    with reading(folder / OLD, "give a folder that `vcl run` made"):
        about = read_object(folder / OLD)
        chosen, settings = experiment(about["experiment"]), about["settings"]
        require(isinstance(settings, dict), f"settings is {settings!r}")
        require(about["preset"] in PRESETS, f"preset is {about['preset']!r}")
        after = f"after {settings['tasks']} tasks"
        changed = [
            each for each in differing_stream(chosen, about["preset"], settings) if not each.startswith("tasks=")
        ]
        title = ", ".join([chosen.name, f"preset {about['preset']}", *changed, after])
        versions = about["versions"]
        made = f"`{about['command']}`, vcl {versions['vcl']}, torch {versions['torch']}, {about['device']}"
        require(isinstance(about["methods"], list), f"methods is {about['methods']!r}")
    rows = read_csv(folder / ROWS)
    grids = {method: set(lams) for method, lams in by_lambda(rows).items() if len(lams) > 1}
    paper = chosen.paper if is_paper_stream(chosen, settings) else {}
    return Group(chosen.name, chosen, title, rows, paper=paper, made=[f"- {made}"], grids=grids, old=True)


def show_groups(
    found: Sequence[Group], folder: Path, console: Console, within: bool = True, only: str | None = None
) -> None:
    """Write the tables and figures of groups to a folder, each group's files in a folder of its own, and print them.

    With ``only`` an experiment's name, the others' are written and not printed. All tables are printed before anything
    is written, so that a folder in which nothing may be written is shown too.
    """
    printed = [group for group in found if only in (None, group.experiment.name) or not group.rows]
    for group in printed:
        if not group.rows:
            say_on(console, "\n".join((f"{group.title}.", *group.unfinished)))
            continue
        tables.show(console, group.title, *_cells(group))
        for line in (*explained(group), *set_aside_in(group.notes), *group.unfinished):
            say_on(console, line)
    for group in found:
        place = make_folder(folder / group.name) if within else folder
        if not group.rows:
            continue
        if within:
            remove_abandoned(place)
            write_atomic(place / ROWS, to_csv(group.rows))
        figures = _draw(group, place)
        if group in printed:
            say_on(console, f"Rows and table in {folder}{f'; figure {figures[0]}' if figures else ''}.")
    remove_abandoned(folder)
    write_atomic(folder / TABLE, "\n".join(map(_text, found)))


def _cells(group: Group) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Lines and columns of the table, without columns that have no value in any line."""
    table = group.experiment.evaluation.table
    lines, columns = table.cells(group.rows, paper_numbers(group)), table.columns(group.rows)
    if table.seconds:
        known = [group.seconds.get(split_label(line[0])[0]) for line in lines]
        lines = [(*line, "-" if each is None else f"{each:.0f}") for line, each in zip(lines, known, strict=True)]
        columns = (*columns, "seconds")
    kept = [place for place in range(len(columns)) if place == 0 or any(line[place] != "-" for line in lines)]
    return [tuple(line[place] for place in kept) for line in lines], tuple(columns[place] for place in kept)


def paper_numbers(group: Group) -> dict[str, float]:
    """The paper's numbers by label: a lambda of a grid has one if it is the paper's own choice."""
    numbers = dict(group.paper)
    for name, value in group.paper.items():
        best = group.experiment.presets["paper"].own.get(name, {}).get("lam")
        numbers |= {} if best is None else {label(name, best): value}
    return numbers


def explained(group: Group) -> list[str]:
    """What the numbers are, and which lambda is best where there are several."""
    evaluation = group.experiment.evaluation
    return [evaluation.table.explain(group.rows, paper_numbers(group)), *told(group)]


def told(group: Group) -> list[str]:
    """One sentence for each method with a grid of lambdas: the best, and on which data it was chosen.

    What a sweep chose is computed alone, and is no grid with a lambda that was run before.
    """
    score = group.experiment.evaluation.score
    found = choose([row for row in group.rows if split_label(row.method)[0] in group.grids], score.metric)
    return [sentence(method, choice, score, group.validation) for method, choice in found.items()]


def sentence(method: str, choice: Choice, score: Score, validation: bool) -> str:
    """Which lambda is best, with a word where the grid was too narrow or the test data took part in the choice."""
    where = "held-out training data" if validation else "test data, so the number is optimistic"
    value = f"{score.text(choice.score.mean, nan, 2)} on {where}"
    if choice.tied:
        return f"{method}: lambda={', '.join(f'{lam:g}' for lam in choice.tied)} tie as the best, {value}."
    edge = "; it is at the edge of the grid, so a wider one may hold a better" if choice.edge else ""
    return f"{method}: lambda={choice.lam:g} is best, {value}{edge}."


def _text(group: Group) -> str:
    """A group's section of the document."""
    text = f"# {group.title}\n\n"
    if group.rows:
        lines, columns = _cells(group)
        text += f"{tables.markdown(lines, columns)}\n" + "\n\n".join(explained(group)) + "\n\n"
        text += "Made by:\n\n" + "\n".join(group.made) + "\n"
    return text + "".join(f"\n{note}\n" for note in (*group.moving, *group.notes, *group.unfinished))


def _draw(group: Group, folder: Path) -> list[Path]:
    evaluation, paper = group.experiment.evaluation, paper_numbers(group)
    figures = evaluation.draw(group.rows, group.title, paper, folder)
    if told(group):
        path = folder / "lambda"
        figures += lambda_grid.draw(group.rows, group.title, group.paper, path, score=evaluation.score)
    for name, pictures in group.pictures.items():
        path = folder / f"samples-{name.replace(' ', '-')}"
        figures += sample_grid.draw([images[:, 0] for images in pictures], group.tasks, f"{group.title}: {name}", path)
    return figures
