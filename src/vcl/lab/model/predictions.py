"""Predictions of a file's rows as columns, and columns as CSV, npz or Parquet.

classifier    label; p_<class> for each class; uncertainty = aleatoric + epistemic, entropies in nats; task, where
              tasks have heads of their own
regressor     mean, sd; lower and upper, between which y lies with probability ``level``; the variances aleatoric (the
              noise) and epistemic (what more data would remove). Of several targets, mean_0, mean_1, ...
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vcl.errors import VclError
from vcl.lab.model import files
from vcl.lab.model.columns import Arrays, Columns, Contents
from vcl.lab.model.recipe import Learner, Recipe
from vcl.lab.model.targets import has_strings, read_target, taken
from vcl.learner import ContinualClassifier, ContinualRegressor

CHUNK = 20_000
"""Rows that are predicted at once: draws of all of them are held in memory."""

ENDINGS = (".csv", ".npz", ".parquet")


class Asked(NamedTuple):
    """How to predict."""

    task: str | None
    level: float
    draws: int | None


def predicted(learner: Learner, x: Columns | np.ndarray, asked: Asked) -> Columns:
    """A column for each thing that is predicted, with one value for each row."""
    total = len(next(iter(x.values()))) if isinstance(x, dict) else len(x)
    parts = [_chunk(learner, taken(x, slice(at, at + CHUNK)), asked) for at in range(0, total, CHUNK)]
    if not parts:
        raise VclError("the file has no rows; give at least one.")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _chunk(learner: Learner, x: Any, asked: Asked) -> Columns:
    if isinstance(learner, ContinualClassifier):
        return _classified(learner, x, asked)
    return _regressed(learner, x, asked)


def _classified(learner: ContinualClassifier, x: Any, asked: Asked) -> Columns:
    draws: dict[str, Any] = {} if asked.draws is None else {"draws": asked.draws}
    classes = learner.classes(asked.task)
    p = learner.predict_proba(x, asked.task, **draws)
    found: Columns = {"label": np.array(classes)[p.argmax(1)]}
    found |= {f"p_{label}": p[:, place] for place, label in enumerate(classes)}
    several = asked.task is None and len({*_heads(learner)}) > 1
    if not several:
        parts = learner.uncertainty(x, asked.task, **draws)
        return found | {"uncertainty": parts.total, "aleatoric": parts.aleatoric, "epistemic": parts.epistemic}
    heads = learner.infer_task(x, **draws)
    each = {head: learner.uncertainty(x, head, **draws) for head in np.unique(heads).tolist()}
    for name, part in (("uncertainty", "total"), ("aleatoric", "aleatoric"), ("epistemic", "epistemic")):
        values = {head: getattr(of_head, part) for head, of_head in each.items()}
        found[name] = np.array([values[head][row] for row, head in enumerate(heads.tolist())])
    return {**found, "task": heads}


def _heads(learner: ContinualClassifier) -> list[str]:
    return [update.head for update in learner.history if update.task in learner.tasks]


def _regressed(learner: ContinualRegressor, x: Any, asked: Asked) -> Columns:
    draws: dict[str, Any] = {} if asked.draws is None else {"draws": asked.draws}
    mean, sd = learner.predict(x, asked.task, return_std=True, **draws)
    lower, upper = learner.intervals(x, asked.level, asked.task, **draws)
    parts = learner.uncertainty(x, asked.task, **draws)
    named = {
        "mean": mean, "sd": sd, "lower": lower, "upper": upper, "aleatoric": parts.aleatoric,
        "epistemic": parts.epistemic,
    }  # fmt: skip
    if mean.ndim == 1:
        return named
    return {f"{name}_{place}": values[:, place] for name, values in named.items() for place in range(mean.shape[1])}


def scored(
    learner: Learner, found: Columns, contents: Contents, recipe: Recipe, where: str, task: str | None = None
) -> str:
    """How good predictions are for the rows that have a target, as a line; empty if there are none."""
    there = contents.y is not None if isinstance(contents, Arrays) else recipe.target in contents
    if not there:
        return ""
    given = read_target(contents, recipe, has_strings(learner), where)
    rows = np.flatnonzero(~given.missing)
    if not len(rows):
        return ""
    chosen, y = {name: values[rows] for name, values in found.items()}, given.y[rows]
    if not isinstance(learner, ContinualClassifier):
        good = _numbers_score(chosen, y)
    elif y.ndim == 1:
        good = _classes_score(chosen, y, learner.classes(task))
    else:
        raise VclError(f"y of {where} has shape {y.shape}; give one label for each row.")
    return f"{len(rows):,} rows with a target: {good}"


def _classes_score(found: Columns, y: np.ndarray, classes: Sequence[str | int]) -> str:
    """A label is the class of the same value, as 1.0 and True are 1, or else of the same text."""
    places: dict[object, int] = {str(label): place for place, label in enumerate(classes)}
    places |= {label: place for place, label in enumerate(classes)}
    true = np.array([places.get(each, places.get(str(each), -1)) for each in y.tolist()])
    p = np.stack([found[f"p_{label}"] for label in classes], axis=1)
    of_true = np.where(true < 0, 0.0, p[np.arange(len(y)), true])
    right = (p.argmax(axis=1) == true).mean()
    return f"accuracy {right:.1%}, log-loss {-np.log(np.clip(of_true, 1e-12, None)).mean():.3f}"


def _numbers_score(found: Columns, y: np.ndarray) -> str:
    names = ["mean"] if "mean" in found else [f"mean_{place}" for place in range(y.shape[1])]
    targets = y.reshape(len(y), -1)
    error = np.sqrt(np.mean((np.stack([found[name] for name in names], 1) - targets) ** 2))
    if "mean" not in found:
        return f"root mean squared error {error:.4g}"
    inside = ((found["lower"] <= y) & (y <= found["upper"])).mean()
    return f"root mean squared error {error:.4g}, {inside:.0%} in their interval"


def check_ending(out: Path) -> None:
    """Raise VclError unless predictions can be written with this ending."""
    ending = out.suffix.lower()
    if ending not in ENDINGS:
        raise VclError(f"--out is {out}; give a name that ends in {', '.join(ENDINGS)}.")
    if ending == ".parquet":
        files.pyarrow("pyarrow", "writing Parquet")


def as_bytes(columns: Columns, ending: str) -> bytes:
    """Columns as a file."""
    memory = io.BytesIO()
    if ending == ".npz":
        np.savez(memory, allow_pickle=False, **columns)
    elif ending == ".parquet":
        table = files.pyarrow("pyarrow", "writing Parquet").table(columns)
        files.pyarrow("pyarrow.parquet", "writing Parquet").write_table(table, memory)
    else:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
        return text.getvalue().encode()
    return memory.getvalue()
