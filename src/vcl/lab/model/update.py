"""One update of a model from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from vcl.errors import VclError
from vcl.lab.model import files, kept
from vcl.lab.model import recipe as recipes
from vcl.lab.model.columns import Arrays, Columns, Contents
from vcl.lab.model.recipe import Learner, Recipe
from vcl.lab.model.targets import Labelled, has_strings, inputs_of, labelled
from vcl.learner.tables import Table

Say = Callable[[str], None]


def update(
    folder: Path,
    file: Path,
    *,
    target: str | None,
    drop: tuple[str, ...],
    task: str | None,
    forget: float,
    revisit: bool,
    delimiter: str | None,
    device: str,
    quiet: bool,
    say: Say,
) -> Learner:
    """Learn the rows of a file and save the model; the folder is unchanged unless all of it succeeds."""
    recipes.read(folder)  # A folder that is no model is refused, and not made by the lock.
    contents = files.read(file, delimiter)
    with kept.locked(folder):
        kept.clear(folder)
        recipe = with_target(recipes.read(folder), contents, target, drop, kept.has_learned(folder))
        if kept.has_learned(folder):
            learner, table = kept.load(folder, recipe, device, 0 if quiet else 1), kept.table_of(folder, recipe)
            rows = labelled(contents, recipe, has_strings(learner), str(file))
        else:
            fixed = recipe.options.get("classes")
            rows = labelled(contents, recipe, isinstance(fixed[0], str) if fixed else None, str(file))
            _doubt_classes(recipe, rows, say)
            learner, table = recipe.learner(_width(rows), device, 0 if quiet else 1), None
        if isinstance(rows.x, dict):
            # All rows of the file, so that a message counts rows as the file does.
            (table or Table.of(rows.x)).numbers(inputs_of(contents, recipe))
        if rows.left_out:
            say(f"{rows.left_out} of {rows.left_out + len(rows.y)} rows have no target and are left out")
        learner.update(rows.x, rows.y, task, forget=forget, revisit=revisit)
        kept.save(folder, learner, recipe)
    return learner


def with_target(recipe: Recipe, contents: Contents, target: str | None, drop: tuple[str, ...], learned: bool) -> Recipe:
    """The recipe with the target and the dropped columns of the first update, which later ones share."""
    if isinstance(contents, Arrays):
        if target is not None or drop:
            raise VclError("--target and --drop are for tables, and npz files have the arrays x and y; leave them out.")
        return recipe if learned else replace(recipe, target=None, drop=())
    if not learned:
        absent = [name for name in drop if name not in contents]
        if absent:
            raise VclError(f"--drop names {absent[0]!r}, and the table has no such column; it has {_names(contents)}.")
        if target in drop:
            raise VclError(f"--drop names the target {target!r}; leave out one of them.")
        return replace(recipe, target=target, drop=drop)
    if target is not None and target != recipe.target:
        raise VclError(f"--target is {target!r}, and this model learns {recipe.target!r}; make another model for it.")
    if drop and set(drop) != set(recipe.drop):
        raise VclError(
            f"--drop is {', '.join(drop)}, and the first update left out {', '.join(recipe.drop) or 'nothing'}; the "
            "columns stay the same, so leave --drop out."
        )
    return recipe


MANY = 20
"""From this many classes on, a first update whose rows are few for them is doubted."""


def _doubt_classes(recipe: Recipe, rows: Labelled, say: Say) -> None:
    """Say so if the labels look like numbers to predict."""
    if recipe.kind == "classifier" and rows.y.dtype.kind in "iuf":
        count = len(np.unique(rows.y))
        if count > MANY and 3 * count > len(rows.y):
            say(
                f"warning: the target has {count} classes in {len(rows.y)} rows; if it is a number to predict, make "
                "the model with --kind regressor"
            )


def _width(rows: Labelled) -> int:
    """The number of inputs of a first update."""
    return len(Table.of(rows.x).outputs) if isinstance(rows.x, dict) else prod(rows.x.shape[1:])


def _names(columns: Columns) -> str:
    return ", ".join(map(repr, list(columns)[:12])) + (", ..." if len(columns) > 12 else "")
