"""Small datasets in the real formats; no test here reaches the network or the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_idx import Tiny

from vcl.lab.datasets import data_folders

REAL = os.environ.get("VCL_DATA", "")


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("VCL_DATA", raising=False)
    monkeypatch.setenv("VCL_OFFLINE", "1")
    # Local servers are to be reached directly, whatever the machine's proxy is.
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(data_folders, "SYSTEM", tmp_path / "system")


@pytest.fixture
def real_data() -> Path:
    if not REAL:
        pytest.skip("VCL_DATA is not set: it names the folder with the real files")
    return Path(REAL)


@pytest.fixture
def tiny() -> Tiny:
    return Tiny()
