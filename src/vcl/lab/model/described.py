"""What a model is and has learned: as JSON, and as text."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

from vcl.lab.model import kept
from vcl.lab.model.recipe import Recipe
from vcl.learner.folder import read
from vcl.learner.stored import damage


def described(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Everything about a model that JSON takes; what is not finite is null."""
    found: dict[str, Any] = {
        "kind": recipe.kind, "hidden": list(recipe.hidden), "options": dict(recipe.options), "target": recipe.target,
        "drop": list(recipe.drop), "learned": kept.has_learned(folder),
    }  # fmt: skip
    if not found["learned"]:
        return found
    about = read(folder, recipe.kind).about
    with damage(folder):
        found |= {name: about[name] for name in ("vcl", "settings", "inputs", "tasks", "history")}
        found["heads"] = {
            head: {"classes" if recipe.kind == "classifier" else "targets": outputs}
            for head, outputs in about["outputs"].items()
        }
        found["columns"] = about["table"]
        found["python"] = recipe.python(folder, prod(about["inputs"]["shape"]))
        return _finite(found)  # type: ignore[no-any-return]


def as_json(folder: Path, recipe: Recipe) -> str:
    """:func:`described` as text."""
    return json.dumps(described(folder, recipe), indent=1, ensure_ascii=False, allow_nan=False)


def as_text(folder: Path, recipe: Recipe) -> str:
    """The same for people."""
    network = (
        "a generator for each class" if not recipe.hidden else f"hidden layers {', '.join(map(str, recipe.hidden))}"
    )
    options = ", ".join(f"{name}={value}" for name, value in recipe.options.items())
    lines = [f"{folder}: {recipe.kind}, {network}{f' ({options})' if options else ''}"]
    if not kept.has_learned(folder):
        return "\n".join([*lines, f"nothing learned yet; `vcl model update {folder} FILE` gives it data"])
    learner = kept.load(folder, recipe, verbose=0)
    lines += [learner.summary()]
    about = described(folder, recipe)
    if recipe.target is not None:
        lines.append(f"target {recipe.target!r}{f'; left out: {_some(list(recipe.drop))}' if recipe.drop else ''}")
    if about["columns"] is not None:
        with damage(folder):
            lines += [f"{len(about['columns'])} columns:", *(f"  {_column(each)}" for each in about["columns"])]
    lines += ["history:", *(f"  {update.line()}" for update in learner.history)]
    return "\n".join([*lines, f"in Python: {about['python']}"])


def _column(column: dict[str, Any]) -> str:
    missing = ", with missing values" if column["missing"] else ""
    if column["categories"] is None:
        return f"{column['name']}: numbers, mean {column['mean']:.4g}{missing}"
    return f"{column['name']}: {len(column['categories'])} categories ({_some(column['categories'])}){missing}"


def _some(values: list[Any], most: int = 8) -> str:
    shown = ", ".join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and value - value != 0 else value
