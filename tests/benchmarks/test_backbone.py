"""`benchmarks/backbone.py`: a quick try trains adapters and heads alone and keeps the frozen values."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from scripts import load

from vcl.lab.datasets import MissingData
from vcl.lab.datasets import load as load_data

backbone = load("backbone")


def test_a_try_trains_adapters_and_heads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mnist", "notmnist"):
        try:
            load_data(name, fetch=False)
        except MissingData:
            pytest.skip(f"needs {name}")
    out = tmp_path / "new" / "found.json"
    monkeypatch.setattr(sys, "argv", ["backbone.py", "--quick", "--method", "laplace", "--out", str(out)])
    backbone.main()
    found = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == found
    head = 16 * 2 + 2
    adapters = 8 * (784 + 16) + 2 * 8 * (16 + 64)
    assert found["parameters"] == 784 * 16 + 16 + (2 * 16 * 64 + 64 + 16) + 4 * 16
    assert found["with a posterior"] == adapters + 3 * head
    # Two moments of the adapters and of one head; the old heads are not fitted.
    assert [each["Adam's values"] for each in found["updates"]] == [2 * (adapters + head)] * 3
    assert found["frozen values unchanged"]
    assert len(found["accuracy after all tasks"]) == 3
