"""`examples/`: each script runs with `--quick`, ends in a picture, and returns what its picture shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def ran(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the quick run of a script returns; its picture is no empty one."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    found = import_module(name).main(["--quick", "--out", str(folder)])
    (picture,) = folder.iterdir()
    assert picture.name == f"{name.replace('_', '-')}.png"
    assert picture.stat().st_size > 5_000
    return found


def test_regression_covers_old_data_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.5 < ran("regression", tmp_path, monkeypatch) <= 1


def test_a_backbone_is_adapted_in_two_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = ran("backbone", tmp_path, monkeypatch)
    assert [len(found) for found in scores.values()] == [4, 4]
    assert max(scores["the head"]) > 0.4  # five classes: chance is 0.2


def test_clients_together_know_more_than_each_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = ran("clients", tmp_path, monkeypatch)
    alone = [score for name, score in scores.items() if name.endswith("alone")]
    assert len(alone) == 3
    assert scores["together"] > max(alone)


def test_classes_come_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = ran("class_incremental", tmp_path, monkeypatch)
    assert [len(found) for found in scores.values()] == [3, 3]
    assert all(found[0] == 1 for found in scores.values())  # one class is no question


def test_a_new_projection_stands_beside_two_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = ran("new_projection", tmp_path, monkeypatch)
    assert set(scores) == {"fine-tuning", "part of the way", "VCL"}
    assert max(scores["fine-tuning"]) > 0.5


def test_a_convolutional_network_learns_three_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = ran("own_network", tmp_path, monkeypatch)
    assert np.isfinite(scores[np.tril_indices(3)]).all()
    assert np.isnan(scores[0, 1:]).all()
    assert scores[0, 0] > 60


def test_a_plugin_package_adds_its_method_once_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="NOT RUN: the plugin package was not installed: hatchling is missing")
    site, out = tmp_path / "site", tmp_path / "out"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *install, "--target", site, EXAMPLES / "plugin_package"], check=True, timeout=60)
    line = "run permuted-digits --preset smoke --seeds 1 --method vcl,vcl-fading --out"
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "vcl", *line.split(), out],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (out / "permuted-digits" / "rows.csv").read_text().count("\nvcl-fading,")
    assert (out / "permuted-digits" / "average-accuracy.png").stat().st_size > 5_000


def test_every_example_is_listed_with_its_picture() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    scripts = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*.py")} - {"picture.py"}
    scripts |= {f"decisions/{path.name}" for path in (EXAMPLES / "decisions").glob("*.py")} - {"decisions/common.py"}
    for name in scripts:
        assert f"]({name})" in index, name
    notebooks = (EXAMPLES / "notebooks" / "README.md").read_text(encoding="utf-8")
    for path in (EXAMPLES / "pictures").iterdir():
        assert f"](pictures/{path.name})" in index or f"](../pictures/{path.name})" in notebooks, path.name
    assert re.search(r"!\[[^\]]+\]\(pictures/plugin-package\.png\)", index)
