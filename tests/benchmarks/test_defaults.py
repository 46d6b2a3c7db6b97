"""`benchmarks/defaults.py`: a quick try has a line for each method, and streams are what they say."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts import load

defaults = load("defaults")


def test_a_try_has_all_methods_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.csv"
    only = "iris;sine, 1 column"
    monkeypatch.setattr(sys, "argv", ["defaults.py", "--quick", "--only", only, "--out", str(out)])
    defaults.main()
    said = capsys.readouterr().out
    for name, scores in (("classes", ("accuracy", "log-loss", "ECE")), ("numbers", ("RMSE", "coverage", "interval"))):
        with (tmp_path / f"rows-{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["method"] for row in rows] == list(defaults.METHODS)
        assert all(np.isfinite(float(row[score])) for row in rows for score in (*scores, "seconds"))
        assert all(f"| {rows[0]['stream']} | {method} |" in said for method in defaults.METHODS)
        assert (tmp_path / f"rows-{name}.json").exists()


@pytest.mark.parametrize("tune", [False, True])
def test_held_out_examples_are_in_no_update(tune: bool) -> None:
    x, y = np.arange(100.0)[:, None], np.arange(100)
    case = defaults.table(x, y, 3, np.random.default_rng(0), tune)
    learned = set(np.concatenate([part[1] for part in case.updates]).tolist())
    held = set(case.test[1].tolist())
    assert not learned & held
    assert len(learned) + len(held) == (70 if tune else 100)


def test_settings_are_chosen_on_rows_that_are_not_reported() -> None:
    x, y = np.arange(100.0)[:, None], np.arange(100)
    tuned, reported = (
        set(defaults.table(x, y, 3, np.random.default_rng(0), tune).test[1].tolist()) for tune in (True, False)
    )
    assert not tuned & reported


def test_an_order_is_kept_across_updates() -> None:
    x, y = np.arange(100.0)[:, None], np.arange(100)
    case = defaults.table(x, y, 4, np.random.default_rng(0), False, by=-x[:, 0])
    assert (np.diff(np.concatenate([part[1] for part in case.updates])) < 0).all()
