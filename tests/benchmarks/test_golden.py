"""`benchmarks/golden.py`: made-up outputs of `vcl run` that agree, disagree, or cannot be compared."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from math import inf, sqrt
from pathlib import Path
from typing import Any

import pytest
from scripts import load

from vcl.lab.results import Row, to_csv

golden = load("golden")


def folder(path: Path, scores: Mapping[str, Sequence[float]], metric: str = "accuracy", **about: Any) -> Path:
    """A run of two tasks whose average after the second is each seed's score; after the first it is 0."""
    path.mkdir(parents=True)
    rows = [
        Row(method, seed, after, on, metric, 0.0 if after == 1 else score + (0.01 if on == 1 else -0.01))
        for method, values in scores.items()
        for after, on in ((1, 1), (2, 1), (2, 2))
        for seed, score in enumerate(values)
    ]
    (path / "rows.csv").write_text(to_csv(rows))
    known = {"experiment": "split-mnist", "preset": "quick", "finished": "now", **about}
    (path / "run.json").write_text(json.dumps({key: value for key, value in known.items() if value is not None}))
    return path


def run(monkeypatch: pytest.MonkeyPatch, *given: object) -> int | str | None:
    """The exit status, or what it says."""
    monkeypatch.setattr(sys, "argv", ["golden.py", *map(str, given)])
    try:
        golden.main()
    except SystemExit as end:
        return end.code
    return 0


def test_z_is_the_difference_in_its_standard_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = folder(tmp_path / "old", {"vcl": [0.90, 0.92, 0.94]})  # 0.92, standard error 0.02 / sqrt(3)
    new = folder(tmp_path / "new", {"vcl": [0.92, 0.94, 0.96]})
    line = golden.compare(*(golden.read_csv(side / "rows.csv") for side in (old, new)), "accuracy")[0]
    assert line.z == pytest.approx(0.02 / (0.02 / sqrt(3) * sqrt(2)))
    assert line.p == pytest.approx(0.288, abs=1e-3)  # t = 1.2247 with 4 degrees of freedom
    assert run(monkeypatch, old, new) == 0
    assert "92.000 ± 1.155" in capsys.readouterr().out
    assert run(monkeypatch, old, new, "--limit", "1.2") == 1
    assert "vcl differs by 1.22 standard errors" in capsys.readouterr().out


def test_a_method_that_moved_in_either_direction_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = [0.80, 0.81, 0.82]
    old = folder(tmp_path / "old", {"ewc": same, "vcl": [0.950, 0.951, 0.952]})
    new = folder(tmp_path / "new", {"ewc": same, "vcl": [0.960, 0.961, 0.962]})
    assert run(monkeypatch, old, new) == 1
    assert run(monkeypatch, new, old) == 1
    assert run(monkeypatch, old, old) == 0


def test_without_a_standard_error_only_equal_means_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = folder(tmp_path / "one", {"vcl": [0.9]}), folder(tmp_path / "other", {"vcl": [0.91]})
    line = golden.compare(*(golden.read_csv(side / "rows.csv") for side in (one, other)), "accuracy")[0]
    assert line.z == inf
    assert line.p is None
    assert run(monkeypatch, one, one) == 0
    assert run(monkeypatch, one, other) == 1


def test_a_missing_method_fails_on_either_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = folder(tmp_path / "both", {"vcl": [0.9, 0.8], "si": [0.9, 0.8]})
    less = folder(tmp_path / "less", {"vcl": [0.9, 0.8]})
    for given in ((both, less), (less, both)):
        assert run(monkeypatch, *given) == 1
        assert f"si is not in {less}" in capsys.readouterr().out


def test_other_settings_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = folder(tmp_path / "old", {"vcl": [0.9, 0.8]}, settings={"epochs": 1})
    new = folder(tmp_path / "new", {"vcl": [0.9, 0.8]}, settings={"epochs": 2})
    assert run(monkeypatch, old, new) == 0
    assert "not the same in both run.json: settings" in capsys.readouterr().out


def test_folders_of_runs_are_compared_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, moved in (("a", 0.0), ("b", 0.1)):
        folder(tmp_path / "old" / name, {"vcl": [0.80, 0.81]})
        folder(tmp_path / "new" / name, {"vcl": [0.80 + moved, 0.81 + moved]})
    assert golden.folders(tmp_path / "old", tmp_path / "new") == [
        (tmp_path / "old" / name, tmp_path / "new" / name) for name in ("a", "b")
    ]
    assert run(monkeypatch, tmp_path / "old", tmp_path / "new") == 1
    assert run(monkeypatch, tmp_path / "old" / "a", tmp_path / "new" / "a") == 0


def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = folder(tmp_path / "done", {"vcl": [0.9, 0.8]})
    running = folder(tmp_path / "running", {"vcl": [0.9, 0.8]}, finished=None)
    bits = folder(tmp_path / "bits", {"vcl": [0.9, 0.8]}, metric="bits")
    assert "has not finished" in str(run(monkeypatch, done, running))
    assert "holds no readable run.json" in str(run(monkeypatch, done, tmp_path / "nowhere"))
    assert "neither" in str(run(monkeypatch, tmp_path / "a", tmp_path / "b"))
    assert "--metric is accuracy, which" in str(run(monkeypatch, done, bits))
    assert run(monkeypatch, bits, bits, "--metric", "bits") == 0
