from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import vcl
from vcl.lab import provenance


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two files in a folder of its own."""
    folder = tmp_path / "src" / "vcl"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("x = 1\n")
    (folder / "numbers.toml").write_text("y = 2\n")
    monkeypatch.setattr(provenance, "PACKAGE", folder)
    for known in (provenance.commit, provenance.source_digest):
        known.cache_clear()
    yield folder
    for known in (provenance.commit, provenance.source_digest):
        known.cache_clear()


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_made_a_number() -> None:
    made = provenance.made_by()
    assert (made["vcl"], made["torch"]) == (vcl.__version__, torch.__version__)
    assert re.fullmatch(r"[0-9a-f]{16}", made["source"])
    assert set(made) == {"vcl", "torch", "python", "source", "commit"}


def test_the_digest_follows_the_source_and_nothing_else(package: Path, tmp_path: Path) -> None:
    first = provenance.source_digest()
    for content, name in (("x = 1\n", "other.py"), ("x = 2\n", "one.py"), ("y = 3\n", "numbers.toml")):
        kept = (package / name).read_text() if (package / name).exists() else None
        (package / name).write_text(content)
        provenance.source_digest.cache_clear()
        assert provenance.source_digest() != first
        (package / name).unlink() if kept is None else (package / name).write_text(kept)
    (package / "note.txt").write_text("no code")
    provenance.source_digest.cache_clear()
    assert provenance.source_digest() == first


def test_no_commit_outside_a_checkout(package: Path) -> None:
    assert provenance.commit() is None


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_and_whether_files_differ_from_it(package: Path) -> None:
    top = package.parents[1]
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "one")
    head = git(top, "rev-parse", "HEAD")
    assert provenance.commit() == head
    (top / "beside.txt").write_text("not of the package")
    provenance.commit.cache_clear()
    assert provenance.commit() == head
    (package / "one.py").write_text("x = 3\n")
    provenance.commit.cache_clear()
    assert provenance.commit() == f"{head}-changed"
