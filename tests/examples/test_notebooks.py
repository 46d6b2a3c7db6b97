"""`examples/notebooks/`: each notebook runs whole at a small budget, as the Python that it is, and ends in pictures."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"


def ran(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cells define; all have run, as by `python NAME.py -- --quick`. A cell that fails raises."""
    pytest.importorskip("marimo", reason="NOT RUN: notebooks need marimo (pip install 'vcl[notebooks]')")
    monkeypatch.syspath_prepend(str(NOTEBOOKS))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--", "--quick"])
    _, found = import_module(name).app.run()
    assert found["quick"]
    return dict(found)


def pictures(found: dict[str, Any]) -> list[Figure]:
    """The figures, each of which has something drawn in every plot."""
    figures = [each for each in found.values() if isinstance(each, Figure)]
    for figure in figures:
        assert figure.axes
        assert all(axis.has_data() or axis.patches for axis in figure.axes)
    return figures


def test_the_paper_in_twenty_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran("paper_in_twenty_minutes", monkeypatch)
    assert found["gap"] < 1e-3  # parts in turn, and all at once
    assert set(found["accuracy"]) == {"fine-tuning", "EWC", "VCL", "VCL + coreset"}
    lower = np.tril_indices(5)
    for name, accuracy in found["accuracy"].items():
        assert accuracy.shape == (3, 5, 5), name
        assert np.isfinite(accuracy[:, *lower]).all(), name
    assert [len(rows) for rows in found["images"].values()] == [4, 4]
    assert len(pictures(found)) == 6
    exact, mean_field = found["ellipses"].axes[0].patches[:2]
    assert exact.center == pytest.approx(mean_field.center, abs=1e-3)  # the projection keeps the mean
    assert mean_field.angle % 90 == pytest.approx(0, abs=1e-3)
    assert mean_field.width < exact.width


def test_your_data_in_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran("your_data_in_ten_minutes", monkeypatch)
    assert found["same"]
    assert found["page_size"] > 10_000
    for losses, rights in found["scores"].values():
        assert losses.shape == rights.shape == (8,)
        assert (losses > 0).all()
    assert found["right"] > 0.6  # always "on time" is right for about half
    assert len(pictures(found)) == 2
