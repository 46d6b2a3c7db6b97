"""`learner.report`: a page of what a learner knows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import vcl
from vcl.errors import VclError

BAD = "</script><b>"


@pytest.fixture(scope="module")
def classifier() -> vcl.ContinualClassifier:
    learner = vcl.ContinualClassifier(vcl.mlp(4, (5,)), method="mean-field", epochs=2, verbose=0, heads="shared")
    for number, (name, x, y) in enumerate(data()):
        learner.update(x, y, task=f"{number} {name}")
    return learner


def data() -> list[tuple[str, np.ndarray, np.ndarray]]:
    g = np.random.default_rng(0)
    return [(BAD, g.normal(size=(30, 4)), np.array(["a", BAD, "c"] * 10)) for _ in range(2)]


def data_of(path: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def block(page: Any, title: str, kind: str) -> Any:
    section = next(each for each in page["sections"] if each["title"] == title)
    return next(each for each in section["blocks"] if each["type"] == kind)


def test_tasks_and_updates(classifier: vcl.ContinualClassifier, tmp_path: Path) -> None:
    classifier.report(tmp_path / "page.html")
    assert BAD not in (tmp_path / "page.html").read_text()
    page = data_of(tmp_path / "page.html")
    assert [row[0] for row in block(page, "Tasks", "table")["rows"]] == [f"0 {BAD}", f"1 {BAD}"]
    rows = block(page, "What each update changed", "table")["rows"]
    assert [row[2] for row in rows] == [30, 30]
    assert [row[7]["value"] for row in rows] == [sum(update.kl.values()) for update in classifier.history]
    changed = block(page, "What each update changed", "heat")
    assert changed["values"] == [[update.kl[name] for update in classifier.history] for name in changed["rows"]]


def test_the_most_uncertain_examples_come_first(classifier: vcl.ContinualClassifier, tmp_path: Path) -> None:
    _, x, y = data()[0]
    classifier.report(tmp_path / "page.html", x, y)
    page = data_of(tmp_path / "page.html")
    rows = block(page, "The most uncertain examples", "table")["rows"]
    total, guess = classifier.uncertainty(x).total, classifier.predict(x)
    assert [row[0] for row in rows] == np.argsort(-total, kind="stable")[:24].tolist()
    assert [row[4]["value"] for row in rows] == sorted(total.tolist(), reverse=True)[:24]
    assert [tuple(row[1:3]) for row in rows] == [(str(guess[row[0]]), str(y[row[0]])) for row in rows]
    told = dict(block(page, "The most uncertain examples", "facts")["items"])
    assert told["accuracy"] == f"{100 * (guess == y).mean():.1f} %"
    diagram = block(page, "The most uncertain examples", "lines")
    p = classifier.predict_proba(x).max(1)
    bins = [(p > low / 10) & (p <= (low + 1) / 10) for low in range(10)]
    wanted = [[p[each].mean(), (guess == y)[each].mean()] for each in bins if each.any()]
    np.testing.assert_allclose([point[:2] for point in diagram["series"][0]["points"]], wanted, rtol=1e-6)


def test_the_standard_deviations_are_those_of_the_belief(classifier: vcl.ContinualClassifier, tmp_path: Path) -> None:
    classifier.report(tmp_path / "page.html")
    items = block(data_of(tmp_path / "page.html"), "The posterior now", "bars")["items"]
    q = classifier._knows().state.propagated
    sds = {name: float(each.mean()) for name, each in q.layout.split((0.5 * q.log_var).exp()).items()}
    assert [name for name, _, _ in items] == list(sds)
    for name, value, _ in items:  # the root of a mean of 32 squares has a relative error of about 1 / 8
        count = q.layout.split(q.mean)[name].numel()
        assert abs(value / sds[name] - 1) < 5 * 0.125 / count**0.5 + 0.02


def test_a_regressor_and_a_point(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 20)[:, None]
    learner = vcl.ContinualRegressor(vcl.mlp(1, (4,)), epochs=2, verbose=0)
    learner.update(x, x[:, 0])
    learner.report(tmp_path / "page.html", x, x[:, 0])
    page = data_of(tmp_path / "page.html")
    told = dict(block(page, "The most uncertain examples", "facts")["items"])
    error = np.sqrt(np.square(learner.predict(x) - x[:, 0]).mean())
    assert told["root mean squared error"] == f"{error:.4g}"
    with pytest.raises(VclError, match="y has shape"):
        learner.report(tmp_path / "page.html", x, np.zeros((20, 2)))


def test_images_are_shown(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((12, 1, 4, 4)).astype(np.float32)
    learner = vcl.ContinualClassifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), epochs=1, verbose=0)
    learner.update(x, np.arange(12) % 2)
    for given in (x, torch.from_numpy(x).requires_grad_()):
        learner.report(tmp_path / "page.html", given)
        shown = block(data_of(tmp_path / "page.html"), "The most uncertain examples", "images")["items"]
        assert len(shown) == 12
        assert all(one["source"].startswith("data:image/png;base64,") and one["alt"] for one in shown)


def test_what_cannot_be_written_is_refused(classifier: vcl.ContinualClassifier, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    for path, words in (
        ("mine.html", "no page of vcl"),
        ("page.txt", "ends in .html"),
        ("no/page.html", "not a folder"),
    ):
        with pytest.raises(VclError, match=words):
            classifier.report(tmp_path / path)
    with pytest.raises(VclError, match="without x"):
        classifier.report(tmp_path / "page.html", y=[1])
    with pytest.raises(VclError, match="nothing has been learned"):
        vcl.ContinualClassifier(vcl.mlp(4, (5,)), verbose=0).report(tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.html"]
