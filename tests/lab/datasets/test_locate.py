from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from tiny_idx import Tiny

from vcl.errors import VclError
from vcl.lab import datasets
from vcl.lab.datasets import MissingData, data_folders, silent
from vcl.lab.datasets.idx_set import FILES
from vcl.lab.datasets.locate import load_dataset


@pytest.mark.parametrize("gz", [True, False])
def test_files_are_read_gzipped_or_plain(tiny: Tiny, tmp_path: Path, gz: bool) -> None:
    data = tiny.write(tmp_path / "data", gz)
    dataset = load_dataset(tiny.entry(), data, False, silent)
    np.testing.assert_array_equal(dataset.train_x, tiny.train_x)
    np.testing.assert_array_equal(dataset.train_y, tiny.train_y)
    np.testing.assert_array_equal(dataset.test_x, tiny.test_x)
    np.testing.assert_array_equal(dataset.test_y, tiny.test_y)
    assert dataset.classes == ("a", "b", "c")
    assert dataset.origin == str(data / "tiny")


def test_order_of_data_folders(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def origin(folder: Path | None = None) -> str:
        return load_dataset(tiny.entry(), folder, False, silent).origin

    tiny.write(data_folders.SYSTEM)
    assert origin() == str(data_folders.SYSTEM / "tiny")
    tiny.write(data_folders.cache())
    assert origin() == str(tmp_path / "xdg" / "vcl" / "tiny")
    monkeypatch.setenv("VCL_DATA", str(tiny.write(tmp_path / "env")))
    assert origin() == str(tmp_path / "env" / "tiny")
    assert origin(tiny.write(tmp_path / "given")) == str(tmp_path / "given" / "tiny")
    (tmp_path / "empty").mkdir()
    assert origin(tmp_path / "empty") == str(tmp_path / "env" / "tiny")


def test_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert data_folders.cache() == tmp_path / ".cache" / "vcl"


def test_folder_that_does_not_exist_is_an_error(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(VclError, match="typo is not a folder: give one that exists"):
        load_dataset(tiny.entry(), tmp_path / "typo", True, silent)


def test_incomplete_folder_is_passed_over_and_said(tiny: Tiny, tmp_path: Path) -> None:
    part, whole = tiny.write(tmp_path / "part", only=FILES[:3]), tiny.write(data_folders.cache())
    lines: list[str] = []
    assert load_dataset(tiny.entry(), part, False, lines.append).origin == str(whole / "tiny")
    assert lines == [f"{part / 'tiny'} is passed over, for it lacks t10k-labels-idx1-ubyte"]


def test_missing_data_says_where_and_how(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with pytest.raises(MissingData) as caught:
        load_dataset(tiny.entry(), data, True, silent)
    for text in (str(data), str(data_folders.cache()), "VCL_OFFLINE forbids the network", "--data or VCL_DATA"):
        assert text in str(caught.value)
    monkeypatch.delenv("VCL_OFFLINE")
    with pytest.raises(MissingData, match=r"a dry run \(fetch=False\) fetches nothing; run `vcl data get "):
        load_dataset(tiny.entry(), data, False, silent)


def _cut_gzip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _swap_content(path: Path) -> None:
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[-1] ^= 1
    path.write_bytes(gzip.compress(bytes(content)))


def _flip_stored_byte(path: Path) -> None:
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 0xFF
    path.write_bytes(bytes(stored))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_cut_gzip, _swap_content, _flip_stored_byte, _empty])
@pytest.mark.parametrize("file", FILES)
def test_altered_file_is_an_error_and_stays(tiny: Tiny, tmp_path: Path, harm, file: str, monkeypatch) -> None:
    monkeypatch.delenv("VCL_OFFLINE")
    data = tiny.write(tmp_path / "data")
    tiny.write(data_folders.cache())  # A good copy further on is no reason to be silent on a bad one.
    path = data / "tiny" / f"{file}.gz"
    harm(path)
    bad = path.read_bytes()
    with pytest.raises(VclError) as caught:
        load_dataset(tiny.entry(), data, True, silent)
    message = str(caught.value)
    assert message.startswith(f"{path} is truncated or altered")
    assert f"expected {hashlib.sha256(tiny.content[file]).hexdigest()}, found " in message
    assert "delete it and run `vcl data get tiny`" in message
    assert path.read_bytes() == bad


def test_file_that_cannot_be_read(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny.write(tmp_path / "data")

    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("vcl.lab.datasets.checksum.read_bounded", refuse)
    with pytest.raises(VclError, match=r"cannot read .*ubyte\.gz: Permission denied"):
        load_dataset(tiny.entry(), data, False, silent)


def test_names_and_descriptions() -> None:
    assert datasets.names() == ("digits", "mnist", "fashion-mnist", "notmnist", "notmnist-large")
    assert "28x28" in datasets.describe("mnist")
    for call in (datasets.describe, datasets.load):
        with pytest.raises(VclError, match=r"unknown dataset 'mnits': did you mean 'mnist'\? Accepted: digits"):
            call("mnits")
