"""No number is read that was not written: files of a part that were damaged, swapped or lost are noticed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import files_under, images, without_checksums
from rich.console import Console
from safetensors.torch import load

from vcl.errors import VclError
from vcl.lab import compute, learning
from vcl.lab.model import recipe as recipes
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import make_plan
from vcl.lab.reading import DAMAGED, read_part
from vcl.lab.runner import FinishedTask, run_method
from vcl.lab.saved import read_stack
from vcl.lab.store import OBJECTIVE, PART, PREDICTIVE, ROWS, SMALL, STATE, Stack, Store
from vcl.lab.sums import check_file, check_seal, check_signed, either, sealed, signed, sums_of

ARRAYS = images(train=60, test=20)
DATA = Loaded(ARRAYS, "made up", ARRAYS.digest())
TENSORS = {"a": torch.arange(3.0), "b": torch.zeros(2, 2, dtype=torch.int64), "none": torch.zeros(0)}


def test_a_signed_object_is_not_another(tmp_path: Path) -> None:
    about = signed({"seconds": 1.5, "notes": ["é"], "runs": ((None, 1),)})
    again = json.loads(json.dumps(about))
    check_signed(again)
    check_signed({"seconds": 2.5})  # an earlier version's
    assert signed(again) == again
    for change in ({"seconds": 1.25}, {"runs": [[None, 2]]}, {"more": 1}, {"check": ""}):
        with pytest.raises(ValueError, match="not what was written"):
            check_signed(again | change)


def test_every_bit_of_sealed_tensors_is_seen_or_does_no_harm() -> None:
    whole = sealed(TENSORS, "mine")
    check_seal(whole, "mine")
    with pytest.raises(ValueError, match="belongs to another part"):
        check_seal(whole, "another")
    unseen = 0
    for bit in range(8 * len(whole)):
        other = bytearray(whole)
        other[bit // 8] ^= 1 << bit % 8
        try:
            check_seal(bytes(other), "mine")
            tensors = load(bytes(other))
        except DAMAGED:
            continue
        unseen += 1
        assert tensors.keys() == TENSORS.keys(), bit
        assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items()), bit
    assert unseen < len(whole), "of eight bits of each byte; those are in the words around the checksum"


def test_while_files_are_replaced_the_old_and_the_new_are_right(tmp_path: Path) -> None:
    path, old, new = tmp_path / ROWS, sums_of({ROWS: b"old"}), sums_of({ROWS: b"new"})
    for content in (b"old", b"new"):
        path.write_bytes(content)
        check_file(path, either(old, new))
    path.write_bytes(b"odd")
    check_file(path, None)  # an earlier version's
    with pytest.raises(ValueError, match="not what was written"):
        check_file(path, either(old, new))
    with pytest.raises(ValueError, match="does not belong"):
        check_file(path, {})
    path.unlink()
    check_file(path, {})
    with pytest.raises(FileNotFoundError):
        check_file(path, old)


def part(*changes: str) -> Part:
    plan = make_plan("permuted-digits", "vcl", "smoke", 2, "cpu", ("tasks=3", "hidden=4", "epochs=1", *changes), None)
    return Part(plan, plan.methods[0], DATA)


def computed(root: Path, *changes: str) -> str:
    """Compute a part; what was said."""
    said = StringIO()
    compute.compute(part(*changes), Store(root, torch.device("cpu"), "vcl run"), Console(file=said, width=300))
    return said.getvalue()


def only(root: Path) -> Stack:
    (stack,) = Store(root, torch.device("cpu"), "").stacks()
    return stack


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished part, one with other settings, and one that was stopped after its second task."""
    base = tmp_path_factory.mktemp("story")
    computed(base / "whole")
    computed(base / "other", "lr=0.02")

    def stopped(*args: Any) -> Iterator[FinishedTask]:
        for done in run_method(*args):
            yield done
            if done.number == 2:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(learning, "run_method", stopped)
        with pytest.raises(KeyboardInterrupt):
            computed(base / "half")
    return base


def copied(source: Path, to: Path) -> Path:
    """The only part of a copy."""
    shutil.copytree(source, to)
    return only(to).folder


def flipped(path: Path) -> None:
    """Another digit of the last number."""
    content = path.read_bytes()
    place = max(number for number, byte in enumerate(content) if byte in b"0123456789")
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


READ: dict[str, Callable[[Path], object]] = {
    ROWS: lambda root: only(root).rows(),
    OBJECTIVE: lambda root: only(root).file(OBJECTIVE),
    PREDICTIVE: lambda root: read_stack(only(root)),
    PART: lambda root: only(root),
}


@pytest.mark.parametrize("name", READ)
def test_a_digit_or_a_file_of_another_run_is_refused(story: Path, tmp_path: Path, name: str) -> None:
    folder = copied(story / "whole", tmp_path / "out")
    READ[name](tmp_path / "out")
    before, foreign = (folder / name).read_bytes(), (only(story / "other").folder / name).read_bytes()
    assert foreign != before
    if name != PREDICTIVE:
        flipped(folder / name)
    else:
        (folder / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    said = f"{re.escape(str(folder / name))} cannot be read"
    with pytest.raises(VclError, match=f"{said} .it is not what was written.; delete its folder"):
        READ[name](tmp_path / "out")
    if name != PART:
        (folder / name).write_bytes(foreign)
        with pytest.raises(VclError, match=said):
            READ[name](tmp_path / "out")
    (folder / name).write_bytes(before)
    READ[name](tmp_path / "out")


def test_what_an_earlier_version_wrote_is_read_and_continued(story: Path, tmp_path: Path) -> None:
    without_checksums(copied(story / "whole", tmp_path / "whole"))
    assert only(tmp_path / "whole").rows() == only(story / "whole").rows()
    without_checksums(copied(story / "half", tmp_path / "half"))
    assert "continues after task 2" in computed(tmp_path / "half")
    assert set(only(tmp_path / "half").sums or ()) == {name for name in SMALL if name != "pictures.safetensors"}
    assert only(tmp_path / "half").rows() == only(story / "whole").rows()


@pytest.mark.parametrize("name", [ROWS, OBJECTIVE, STATE])
def test_an_unfinished_part_with_a_damaged_file_is_refused_and_stays(story: Path, tmp_path: Path, name: str) -> None:
    """With the file of before it goes on: a refusal removes nothing."""
    folder = copied(story / "half", tmp_path / "out")
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    there = files_under(folder)
    with pytest.raises(VclError, match=f"{name} cannot be read"):
        computed(tmp_path / "out")
    assert files_under(folder) == there
    (folder / name).write_bytes(before)
    assert "continues after task 2" in computed(tmp_path / "out")
    assert only(tmp_path / "out").rows() == only(story / "whole").rows()


def test_rows_that_are_gone_do_not_take_the_record_with_them(story: Path, tmp_path: Path) -> None:
    folder = copied(story / "half", tmp_path / "out")
    rows = (folder / ROWS).read_bytes()
    (folder / ROWS).unlink()
    with pytest.raises(VclError, match=r"rows\.csv cannot be read"):
        computed(tmp_path / "out")
    assert (folder / PART).exists()
    (folder / ROWS).write_bytes(rows)
    assert "continues after task 2" in computed(tmp_path / "out")


def test_tasks_that_are_learned_again_are_told(story: Path, tmp_path: Path) -> None:
    folder = copied(story / "half", tmp_path / "out")
    (folder / STATE).unlink()
    said = computed(tmp_path / "out")
    assert f"{folder / STATE} is missing: the tasks that were finished are learned again" in said
    assert only(tmp_path / "out").rows() == only(story / "whole").rows()


def test_a_stop_between_the_files_of_a_task_is_continued(
    story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files are of the third task and some of the second."""
    real = learning.write_atomic_bytes
    for name in (ROWS, OBJECTIVE):
        copied(story / "half", tmp_path / name)

        def stop(path: Path, content: bytes, name: str = name) -> None:
            if path.name == name:
                raise KeyboardInterrupt
            real(path, content)

        with monkeypatch.context() as patch:
            patch.setattr(learning, "write_atomic_bytes", stop)
            with pytest.raises(KeyboardInterrupt):
                computed(tmp_path / name)
        assert "continues after task 2" in computed(tmp_path / name)
        assert only(tmp_path / name).rows() == only(story / "whole").rows()
        assert all(len(each) == 1 for each in (only(tmp_path / name).sums or {}).values())


def test_a_file_that_is_made_once_is_what_was_made(tmp_path: Path) -> None:
    store = Store(tmp_path, torch.device("cpu"), "vcl run")
    path = store.once("thing", {}, lambda: b"1,2\n", "table.csv")
    assert store.once("thing", {}, lambda: b"no", "table.csv").read_bytes() == b"1,2\n"
    path.write_bytes(b"1,3\n")
    with pytest.raises(VclError, match=r"table\.csv cannot be read .it is not what was written"):
        store.once("thing", {}, lambda: b"no", "table.csv")


def test_the_description_of_a_model_is_what_was_written(tmp_path: Path) -> None:
    recipe = recipes.Recipe("classifier", (5,), {"epochs": 20})
    recipes.write(tmp_path, recipe)
    path = tmp_path / recipes.NAME
    assert recipes.read(tmp_path) == recipe
    text = path.read_text()
    path.write_text(text.replace('"epochs": 20', '"epochs": 24'))
    with pytest.raises(VclError, match=r"model\.json is damaged .it is not what was written"):
        recipes.read(tmp_path)
    first = json.loads(text)
    del first["check"]
    path.write_text(json.dumps(first))
    with pytest.raises(VclError, match=r"model\.json is damaged"):
        recipes.read(tmp_path)
    path.write_text(json.dumps(first | {"format": 1}))
    assert recipes.read(tmp_path) == recipe


def test_a_record_is_checked_last(story: Path, tmp_path: Path) -> None:
    """What cannot be is named as before."""
    path = copied(story / "whole", tmp_path / "out") / PART
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": -1}))
    with pytest.raises(VclError, match="seconds is -1"):
        read_part(path)
