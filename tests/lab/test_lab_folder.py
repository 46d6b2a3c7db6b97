from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from lab_made import files_under

from vcl.errors import VclError
from vcl.lab.folder import results_folder, write_atomic


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def begin(out: Path, name: str = "a-part-0123456789ab", **files: str) -> Path:
    """A part under ``out`` with the files given; the dots in their names are underscores."""
    folder = out / "parts" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in {"part_json": '{\n "finished": false\n}\n', **files}.items():
        write_atomic(folder / file.replace("_", "."), content)
    return folder


def refused(path: Path) -> str:
    with pytest.raises(VclError) as told, results_folder(path):
        pytest.fail("it was taken")
    assert "\n" not in str(told.value)
    return str(told.value)


def test_files_can_be_read_by_others(tmp_path: Path) -> None:
    write_atomic(tmp_path / "rows.csv", "")
    assert (tmp_path / "rows.csv").stat().st_mode & 0o777 == 0o644


def test_a_new_an_empty_and_an_old_folder_of_parts_may_be_used(tmp_path: Path) -> None:
    for path in (tmp_path / "new" / "run", tmp_path / "empty", tmp_path / "old"):
        if path.name != "run":
            path.mkdir()
        if path.name == "old":
            begin(path, rows_csv="precious")
            (path / "notes.txt").write_text("precious")
        before = files_under(path)
        with results_folder(path) as given:
            assert given == path
            assert path.is_dir()
            begin(path, "a-part-ba9876543210", rows_csv="")
        assert before.items() <= files_under(path).items()
        assert (path / "parts" / "a-part-ba9876543210" / "rows.csv").exists()


@pytest.mark.parametrize("name", ["thesis.txt", "rows.csv", "run.json", ".hidden", "parts"])
def test_a_folder_that_holds_anything_else_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    said = refused(tmp_path)
    assert said.startswith(f"{tmp_path} already holds files, and they are not results of this version; give --out ")
    assert said.endswith("Nothing was changed.")
    assert files_under(tmp_path) == {name: b"precious"}


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    assert refused(path) == f"{path} is a file; give --out a folder. Nothing was changed."
    assert path.read_text() == "precious"


@pytest.mark.parametrize("below", ["run", "deep/run"])
def test_a_path_under_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("precious")
    path = tmp_path / "file" / below
    assert refused(path) == f"cannot make {path} (Not a directory); give --out a folder that you may write."
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_that_may_not_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert refused(tmp_path / "run").startswith(f"cannot make {tmp_path / 'run'} (Permission denied); give --out ")


def test_a_folder_that_may_not_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs this: root may write everywhere, so the system's answer is stood in for."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert refused(tmp_path) == (
        f"cannot write to {tmp_path} (Permission denied); give --out a folder that you may write."
    )
    assert names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        for path in (tmp_path, tmp_path / "run"):
            assert "Permission denied" in refused(path)
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


def test_a_full_disk_keeps_the_rows_of_earlier_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill() -> None:
        with results_folder(tmp_path / "out"):
            begin(tmp_path / "out", rows_csv="old")
            monkeypatch.setattr(os, "fsync", disk_full)
            begin(tmp_path / "out", rows_csv="new")

    with pytest.raises(VclError, match="No space left on device"):
        fill()
    (path,) = (tmp_path / "out" / "parts").glob("*/rows.csv")
    assert path.read_text() == "old"


def test_a_folder_without_rows_is_taken_back(tmp_path: Path) -> None:
    with results_folder(tmp_path / "run"):
        begin(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_was_there_before_stays_but_is_empty_again(tmp_path: Path) -> None:
    with results_folder(tmp_path):
        begin(tmp_path)
    assert names(tmp_path) == []


def test_a_folder_with_rows_is_kept(tmp_path: Path) -> None:
    with results_folder(tmp_path):
        folder = begin(tmp_path, rows_csv="method")
    assert names(folder) == ["part.json", "rows.csv"]


def test_what_others_put_in_the_folder_is_kept(tmp_path: Path) -> None:
    with results_folder(tmp_path / "out"):
        folder = begin(tmp_path / "out")
        (folder / "notes.txt").write_text("precious")
        (tmp_path / "out" / "notes.txt").write_text("precious")
    assert names(folder) == ["notes.txt", "part.json"]
    assert (tmp_path / "out" / "notes.txt").read_text() == "precious"


def test_a_bare_part_goes_but_those_beside_it_stay(tmp_path: Path) -> None:
    """Whatever their order: a classifier, which has no rows, and a part with rows."""
    with results_folder(tmp_path):
        bare = [begin(tmp_path, f"{letter}-part-0123456789ab") for letter in "amz"]
        kept = begin(tmp_path, "b-part-0123456789ab", rows_csv="method")
        made = begin(tmp_path, "classifier-0123456789ab", part_json='{"finished": true}', content="weights")
    assert [folder for folder in bare if folder.exists()] == []
    assert kept.exists()
    assert names(made) == ["content", "part.json"]
