"""Files that promise more than they hold, or hold what only pickle reads, are refused before they take memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib import format as npy_format
from safetensors.torch import save

import vcl
from made import small_vae
from vcl.errors import VclError
from vcl.lab import results
from vcl.lab.datasets import notmnist, npm
from vcl.lab.datasets.checksum import unpack
from vcl.lab.datasets.fetch import OriginError
from vcl.lab.datasets.idx import parse
from vcl.lab.datasets.png import read_classes
from vcl.lab.model import files
from vcl.lab.model import recipe as recipes
from vcl.lab.reading import read_part
from vcl.lab.saved import read_inputs
from vcl.learner.checkpoint import from_bytes
from vcl.learner.generations import Generations

resource = pytest.importorskip("resource")


@pytest.fixture(autouse=True)
def _little_memory() -> Any:
    """Half a GiB more address space than the process has now: a promise that is believed ends in MemoryError."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + 2**29, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(read: Callable[[], object]) -> str:
    with pytest.raises((VclError, OriginError)) as caught:
        read()
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 1000
    return said


def npy(shape: tuple[int, ...], content: bytes = b"", descr: str = "<f4") -> bytes:
    out = io.BytesIO()
    npy_format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue() + content


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as parts:
        for name, content in members.items():
            parts.writestr(f"{name}.npy", content)
    return path


def sparse(path: Path, start: bytes = b"", size: int = 2**42) -> Path:
    """A file of 4 TiB with nothing in it but its start."""
    path.write_bytes(start)
    with path.open("r+b") as file:
        file.truncate(size)
    return path


def test_an_idx_header_that_promises_more() -> None:
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1)
    assert "is truncated: its IDX header says" in refused(lambda: parse(header + b"\0" * 9, 3, "images"))


def test_a_gzip_bomb_is_unpacked_up_to_the_limit() -> None:
    assert len(unpack(gzip.compress(bytes(2**26)), 2**20)) == 2**20


@pytest.mark.parametrize("shape", [(2**40,), (2**62, 2**62), (3, 2**33)])
def test_an_npy_header_that_promises_more(shape: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npy(shape, bytes(64)))
    assert "promises" in refused(lambda: read_inputs(tmp_path / "x.npy", (8, 8)))
    path = npz(tmp_path / "x.npz", x=npy(shape, bytes(64)))
    assert "promises" in refused(lambda: read_inputs(path, (8, 8)))
    assert "promises" in refused(lambda: files.read(path))


def test_npz_members_that_are_too_large_or_lie(tmp_path: Path) -> None:
    bomb = npz(tmp_path / "bomb.npz", images=npy((2**27,), bytes(2**27), "|u1"), labels=npy((0,)))
    assert "at most" in refused(lambda: notmnist.read_npz(bomb, "0" * 64))
    whole = npz(tmp_path / "whole.npz", x=npy((4,), bytes(16))).read_bytes()
    place = whole.index(b"PK\x01\x02")
    lying = whole[: place + 24] + struct.pack("<I", 2**31) + whole[place + 28 :]  # the size in the directory
    (tmp_path / "lying.npz").write_bytes(lying)
    assert "damaged" in refused(lambda: files.read(tmp_path / "lying.npz"))


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "bomb",
    [
        png(2**31 - 1, 2**31 - 1, chunk(b"IDAT", zlib.compress(bytes(2**20)))),
        png(28, 28, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**26)))),
        png(28, 28, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2**26)))),
        png(28, 28) + bytes(2**21),
    ],
    ids=["size", "text", "profile", "length"],
)
def test_a_png_bomb(bomb: bytes, tmp_path: Path) -> None:
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "x.png").write_bytes(bomb)
    assert "has no readable PNG" in refused(lambda: read_classes([tmp_path / "A"], 28, lambda line: None))


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for about, content in members:
            about.size = len(content) if about.isreg() else 0
            archive.addfile(about, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.type, about.linkname = kind, to
    return about


def test_archives_that_climb_out_or_lead_in_circles(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for about in (
        member("package/data/a", tarfile.SYMTYPE, str(secret)),
        member("package/data/a", tarfile.SYMTYPE, "a"),
        member("package/data/a", tarfile.LNKTYPE, "package/data/a"),
        member("package/data/../../../a"),
    ):
        path = packed(tmp_path / "x.tgz", (about, b"x"))
        assert "lacks a file" in refused(lambda path=path: list(npm._members(path, "package/data", ["a"], 99)))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["secret", "x.tgz"]
    bomb = tmp_path / "bomb.tgz"
    with gzip.open(bomb, "wb", 1) as file:
        for _ in range(2**9):
            file.write(bytes(2**20))
    assert "the package has more than 256 MiB" in refused(lambda: list(npm._members(bomb, "package", ["a"], 99)))


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 100_000_001, 0])
def test_safetensors_headers_with_absurd_lengths(length: int) -> None:
    refused(lambda: from_bytes(struct.pack("<Q", length) + b'{"a":{}}'))


def test_nested_json(tmp_path: Path) -> None:
    for path, read in (
        (tmp_path / "part.json", lambda: read_part(tmp_path / "part.json")),
        (tmp_path / recipes.NAME, lambda: recipes.read(tmp_path)),
        (tmp_path / "learner.json", lambda: vcl.ContinualClassifier.load(tmp_path)),
    ):
        for text in ("[" * 10**6, '{"a":' * 10**6, "9" * 10**6):
            path.write_text(text)
            refused(read)


def test_csv_with_a_million_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{place}" for place in range(10**6)) + "\n")
    assert "has 1,000,000 columns, and at most 65,536" in refused(lambda: files.read(path))
    assert "its columns are" in refused(lambda: results.read_csv(path))
    path.write_text("a" * 2**25)
    assert "a line of more than" in refused(lambda: files.read(path))


def test_parquet_with_few_bytes_and_many_rows(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": np.zeros(2**20)}), tmp_path / "t.parquet", use_dictionary=["a"])
    assert (tmp_path / "t.parquet").stat().st_size < 2**13
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MOST_BYTES", 2**22)
        assert "of data, and at most" in refused(lambda: files.read(tmp_path / "t.parquet"))


def test_files_with_holes_and_pipes_are_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "A").mkdir()
    header = json.dumps({"a": {"dtype": "U8", "shape": [2**42 - 64], "data_offsets": [0, 2**42 - 64]}}).encode()
    tensors = struct.pack("<Q", 56) + header.ljust(56)
    sparse(tmp_path / "A" / "x.png")
    refused(lambda: read_classes([tmp_path / "A"], 28, lambda line: None))
    about = {"format": 1, "kind": "classifier", "files": {}}
    for name, read in {
        "part.json": lambda: read_part(tmp_path / "part.json"),
        "rows.csv": lambda: results.read_csv(tmp_path / "rows.csv"),
        recipes.NAME: lambda: recipes.read(tmp_path),
        "generator": lambda: vcl.GenerativeLearner.load(tmp_path / "generator", small_vae()),
        "learner.json": lambda: vcl.ContinualClassifier.load(tmp_path),
    }.items():
        sparse(tmp_path / name, tensors)
        assert "are read" in refused(read), (name, about)
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "part.json")
    assert "no plain file" in refused(lambda: read_part(tmp_path / "part.json"))


class Planted:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_pickle_that_is_planted_where_each_loader_looks_does_not_run(tmp_path: Path) -> None:
    """As the file itself, as torch's own format, and as an array of objects."""
    mark = tmp_path / "mark"
    planted = Planted(mark)
    bare, of_torch = pickle.dumps(planted), io.BytesIO()
    torch.save(planted, of_torch)
    array = np.array([planted], dtype=object)
    of_numpy, of_npz = io.BytesIO(), io.BytesIO()
    np.save(of_numpy, array, allow_pickle=True)
    np.savez(of_npz, x=array, images=array, labels=array)
    (tmp_path / "A").mkdir()
    (tmp_path / "journal-1.json").write_text("{}")
    for content in (bare, of_torch.getvalue(), of_numpy.getvalue(), of_npz.getvalue()):
        for name, read in {
            "x.npz": lambda: files.read(tmp_path / "x.npz"),
            "x.csv": lambda: files.read(tmp_path / "x.csv"),
            "x.parquet": lambda: files.read(tmp_path / "x.parquet"),
            "in.npy": lambda: read_inputs(tmp_path / "in.npy", (1,)),
            "n.npz": lambda: notmnist.read_npz(tmp_path / "n.npz", "0" * 64),
            "A/a.png": lambda: read_classes([tmp_path / "A"], 28, lambda line: None),
            "x.tgz": lambda: list(npm._members(tmp_path / "x.tgz", "package", ["a"], 99)),
            "state": lambda: from_bytes((tmp_path / "state").read_bytes()),
            "idx": lambda: parse((tmp_path / "idx").read_bytes(), 1, "labels"),
            "rows.csv": lambda: results.read_csv(tmp_path / "rows.csv"),
            "part.json": lambda: read_part(tmp_path / "part.json"),
            recipes.NAME: lambda: recipes.read(tmp_path),
            "learner.json": lambda: vcl.ContinualClassifier.load(tmp_path),
            "generator": lambda: vcl.GenerativeLearner.load(tmp_path / "generator", small_vae()),
        }.items():
            (tmp_path / name).write_bytes(content)
            refused(read)
            assert not mark.exists(), name
        (tmp_path / "journal-1.json").write_bytes(content)
        assert len(Generations(tmp_path, "").read().damaged) == 1
    assert not mark.exists()
    pickle.loads(bare)
    assert mark.exists(), "the pickle that was planted is a live one"


def test_tensors_of_a_state_may_not_ask_for_more_than_there_is() -> None:
    about = {"format": 2, "t": 0, "heads": {}, "predictive": {}, "sources": None,
             "beliefs": [{"family": "mean-field", "layout": [["w"], [[2**31, 2**31]]]}]}  # fmt: skip
    text = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
    one = torch.zeros(1, 4)
    refused(lambda: from_bytes(save({"about": text, "belief.0.mean": one, "belief.0.log_var": one.clone()})))
