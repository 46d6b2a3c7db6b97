from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from lab_made import one_seed, two_seeds

from vcl.errors import VclError
from vcl.lab.folder import RunFolder, write_atomic
from vcl.lab.results import read_csv


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "new" / "run")
    made.create()
    return made


def test_rows_and_description_are_written_as_they_come(folder: RunFolder) -> None:
    assert read_csv(folder.path / "rows.csv") == []
    folder.add(one_seed("vcl"))
    assert read_csv(folder.path / "rows.csv") == one_seed("vcl")
    folder.add(one_seed("mle"))
    assert read_csv(folder.path / "rows.csv") == [*one_seed("vcl"), *one_seed("mle")] == folder.rows
    folder.describe({"a": 1})
    folder.describe({"a": [1, None]})
    assert json.loads((folder.path / "run.json").read_text()) == {"a": [1, None]}
    assert names(folder.path) == ["rows.csv", "run.json"]


def test_files_can_be_read_by_others(folder: RunFolder) -> None:
    assert (folder.path / "rows.csv").stat().st_mode & 0o777 == 0o644


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    RunFolder(tmp_path).create()
    assert names(tmp_path) == ["rows.csv"]


def test_a_folder_that_holds_anything_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(VclError, match=r"already holds results; give --out .* Nothing was changed"):
        RunFolder(tmp_path).create()
    assert names(tmp_path) == ["thesis.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(VclError, match="already holds results"):
        RunFolder(path).create()
    assert path.read_text() == "precious"


@pytest.mark.parametrize("below", ["run", "deep/run"])
def test_a_path_under_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(VclError, match=r"cannot write to .*Not a directory.*; give --out a folder that you may write"):
        RunFolder(tmp_path / "file" / below).create()


def test_a_folder_that_may_not_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(VclError, match=r"cannot write to .*Permission denied"):
        RunFolder(tmp_path / "run").create()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        for path in (tmp_path, tmp_path / "run"):
            with pytest.raises(VclError, match=r"cannot write to .*Permission denied"):
                RunFolder(path).create()
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "rows.csv"
    write_atomic(path, "old")
    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[failing], disk_full)
    with pytest.raises(VclError, match=r"cannot write to .*No space left on device"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["rows.csv"]


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "rows.csv"
    write_atomic(path, "old")
    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["rows.csv"]


def test_a_full_disk_keeps_the_rows_of_earlier_tasks(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.add(one_seed())
    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(VclError, match="No space left on device"):
        folder.add(two_seeds("mle"))
    assert read_csv(folder.path / "rows.csv") == one_seed()


def test_a_folder_without_rows_is_taken_back(folder: RunFolder) -> None:
    folder.describe({"a": 1})
    folder.drop_if_bare()
    assert not folder.path.exists()


def test_a_folder_that_was_there_before_stays_but_is_empty_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.create()
    folder.drop_if_bare()
    assert names(tmp_path) == []


def test_a_folder_with_rows_is_kept(folder: RunFolder) -> None:
    folder.add(one_seed())
    folder.drop_if_bare()
    assert read_csv(folder.path / "rows.csv") == one_seed()


def test_what_others_put_in_the_folder_is_kept(folder: RunFolder) -> None:
    (folder.path / "notes.txt").write_text("precious")
    folder.drop_if_bare()
    assert names(folder.path) == ["notes.txt"]


def test_a_part_has_rows_of_its_own(folder: RunFolder) -> None:
    part = folder.part("validation")
    part.add(one_seed("ewc"))
    folder.drop_if_bare()
    assert read_csv(folder.path / "validation" / "rows.csv") == one_seed("ewc")
    assert read_csv(folder.path / "rows.csv") == []
    assert names(folder.path) == ["rows.csv", "validation"]


def test_parts_without_rows_are_taken_back(folder: RunFolder) -> None:
    folder.part("validation")
    folder.drop_if_bare()
    assert not folder.path.exists()


def test_a_bare_part_goes_but_the_rows_beside_it_stay(folder: RunFolder) -> None:
    folder.part("validation")
    folder.add(one_seed())
    folder.drop_if_bare()
    assert names(folder.path) == ["rows.csv"]
    assert read_csv(folder.path / "rows.csv") == one_seed()
