from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_idx import Tiny
from typer.testing import CliRunner, Result

from vcl.errors import VclError
from vcl.lab import datasets, registry
from vcl.lab.commands.data import app
from vcl.lab.datasets.idx_set import FILES


@pytest.fixture(autouse=True)
def known(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "DATASETS", (datasets.dataset_entry("digits"), tiny.entry()))
    monkeypatch.setenv("COLUMNS", "200")


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def fault(result: Result) -> str:
    assert result.exit_code == 1
    assert isinstance(result.exception, VclError)
    return str(result.exception)


def test_data_list(tiny: Tiny, tmp_path: Path) -> None:
    assert "not found" in call("list").output
    data = tiny.write(tmp_path / "data")
    output = call("list", "--data", data).output
    assert "embedded in scikit-learn" in output
    assert str(data / "tiny") in output.replace("\n", "")
    assert "0.0 MiB" in output
    assert "not found" not in output


def test_data_get(tiny: Tiny, tmp_path: Path) -> None:
    data = tiny.write(tmp_path / "data")
    result = call("get", "tiny", "--data", data)
    assert result.exit_code == 0
    assert f"tiny: 12 images to train on, 6 to test on; {data / 'tiny'}" in result.output
    assert "VCL_OFFLINE forbids the network" in fault(call("get", "tiny"))
    assert "unknown dataset 'tinny': did you mean 'tiny'?" in fault(call("get", "tinny"))


def test_data_verify(tiny: Tiny, tmp_path: Path) -> None:
    result = call("verify")
    assert result.exit_code == 0
    assert "tiny: not found" in result.output
    assert "run `vcl data get tiny`" in fault(call("verify", "tiny"))
    assert "unknown dataset" in fault(call("verify", "tinny"))

    data = tiny.write(tmp_path / "data")
    result = call("verify", "--data", data)
    assert result.exit_code == 0
    assert result.output.count("SHA-256 is right") == 4

    bad = data / "tiny" / f"{FILES[1]}.gz"
    bad.write_bytes(b"altered")
    result = call("verify", "tiny", "--data", data)
    assert fault(result).startswith(f"{bad} is truncated or altered")
    assert result.output.count("SHA-256 is right") == 3
    bad.unlink()
    assert f"{data / 'tiny'} lacks {FILES[1]}." in fault(call("verify", "tiny", "--data", data))


def test_data_command_is_light_to_import() -> None:
    code = "import sys, vcl.lab.commands.data; sys.exit(bool({'numpy', 'torch', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
