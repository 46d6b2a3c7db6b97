"""A manifest that was edited, checksum and all: a learner that works, or one sentence; never another error later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from own_data import classes_of, classifier, numbers, regressor, small_net, targets_of
from vcl.errors import VclError
from vcl.learner import folder

X = numbers(20)
TABLE = {"size": X[:, 0].tolist(), "kind": ["a", "b", "c", "c"] * 5}
WORDS = np.array(["cat", "dog"])[classes_of(X)]
FEW: dict[str, Any] = {"epochs": 1, "method": "laplace"}
CASES: dict[str, tuple[Callable[..., Any], int, list[tuple[Any, Any, str | None]]]] = {
    "tasks": (
        partial(classifier, method="mean-field", forgettable=True, epochs=1), 4,
        [(X, WORDS, "one"), (X + 1, WORDS, "two")],
    ),
    "a table": (partial(classifier, memory=3, classes=["dog", "cat"], **FEW), 4, [(TABLE, WORDS, None)]),
    "targets": (partial(regressor, **FEW), 4, [(X, np.stack([targets_of(X), X[:, 1]], 1), None)]),
    "generators": (partial(classifier, method="generative", epochs=1), 0, [(X, WORDS, None)]),
}  # fmt: skip
ODD = (None, -1, "x", [], {"x": 1}, 1e308, True, [[0]])


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The places of all values within a JSON value."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, *path, key)


def edited(about: dict[str, Any], path: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    """A copy with another value at a place."""
    found: Any = json.loads(json.dumps(about))
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return dict(found)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_learner_that_works_or_one_sentence(name: str, tmp_path: Path) -> None:
    make, width, updates = CASES[name]
    learner = make(small_net(width=width) if width else None)
    for x, y, task in updates:
        learner.update(x, y, task)
    learner.save(tmp_path / "model")
    manifest = tmp_path / "model" / "learner.json"
    about: dict[str, Any] = json.loads(manifest.read_text())
    said: list[str] = []
    failed: list[Any] = []
    del about["check"]
    for number, path in enumerate(places(about)):
        for odd in ODD[number % 4 :: 4]:  # the others were tried too, which takes four times the time
            changed = edited(about, path, odd)
            manifest.write_text(json.dumps({**changed, "check": folder.checksum_of(changed)}))
            try:
                found = type(learner).load(
                    tmp_path / "model", small_net(width=width) if width else None, device="cpu", verbose=0
                )
                found.predict(updates[0][0][:2] if isinstance(updates[0][0], np.ndarray) else updates[0][0])
                found.summary()
                found.save(tmp_path / "again")
            except VclError as error:
                said.append(str(error))
            except Exception as error:
                failed.append((path, odd, error))
    assert failed == []
    assert len(said) > 50
    assert all(each.endswith(".") for each in said)
