"""Learners in a folder: they go on as the saved ones, and a folder that is not right is refused with one sentence."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from own_data import classifier, numbers, regressor, same, small_net, targets_of, tensors, whole_net
from vcl.errors import VclError
from vcl.learner import ContinualClassifier, ContinualRegressor, folder
from vcl.learner.folder import MANIFEST
from vcl.models import mlp_vae


def table(seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    ages = [None if seed and row == 3 else float(age) for row, age in enumerate(rng.normal(40, 10, 30))]
    return {"age": ages, "city": [str(each) for each in rng.choice(["Rome", "Oslo"], 30)]}


def images(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (30, 4, 4), dtype=np.uint8)


def two(n: int, first: int = 0) -> np.ndarray:
    return np.arange(n) % 2 + first


def words(n: int, first: int = 0) -> np.ndarray:
    return np.array(["cat", "dog", "eel", "fox"])[np.arange(n) % 2 + first]


def deeper(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 5))


Updates = list[tuple[Any, Any, str | None]]
ARRAYS: Updates = [(numbers(30, 0), two(30), None), (numbers(30, 1), two(30, 2), None)]
TASKS: Updates = [(numbers(30, 0), words(30), "a"), (numbers(30, 1), words(30, 2), "b.c/d é")]
TARGETS: Updates = [(x, targets_of(x), None) for x in (numbers(30, 0), numbers(30, 1))]
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[], Any], Updates]] = {
    "tables": (
        partial(classifier, memory=4),
        lambda: small_net(width=3),
        [(table(0), words(30), None), (table(1), words(30, 2), None)],
    ),
    "memory, grown": (partial(classifier, memory=6), small_net, ARRAYS),
    "tasks with memory": (partial(classifier, memory=6, method="laplace"), small_net, TASKS),
    "bools": (
        partial(classifier),
        small_net,
        [(x, y == 0, t) for x, y, t in (ARRAYS[0], (numbers(30, 1), two(30), None))],
    ),
    "fixed classes": (partial(classifier, classes=["fox", "eel", "cat", "dog"], heads="shared"), small_net, TASKS),
    "learned noise": (partial(regressor, memory=4), small_net, TARGETS),
    "two targets": (
        partial(regressor, method="mean-field"),
        small_net,
        [(x, np.stack([y, -y], 1), None) for x, y, _ in TARGETS],
    ),
    "own head": (partial(classifier, head="own"), whole_net, ARRAYS),
    "own head, prior at the net": (partial(classifier, head="own", prior_mean="net"), whole_net, ARRAYS),
    "prior at the net": (partial(classifier, prior_mean="net", method="mean-field"), small_net, TASKS),
    "prior at the net, kronecker": (partial(regressor, prior_mean="net"), small_net, TARGETS),
    "adapters": (partial(classifier, adapters=2), deeper, TASKS),
    "adapters, own head": (partial(classifier, adapters=2, head="own"), lambda: whole_net(0, 4), ARRAYS),
    "the head alone": (partial(classifier, posterior="head", memory=4), deeper, TASKS),
    "a pattern": (partial(classifier, posterior=["2", "*.bias"]), deeper, ARRAYS),
    "the last layers": (partial(regressor, posterior=["2", "4"], memory=4), deeper, TARGETS),
    "forgettable": (partial(classifier, method="mean-field", forgettable=True), small_net, TASKS),
    "images for generators": (
        partial(classifier, method="generative"),
        lambda: None,
        [(images(0), two(30), None), (images(1), two(30, 2), None)],
    ),
    "own generators": (
        partial(classifier, method="generative"),
        lambda: mlp_vae(16, 2, 6, 6),
        [(images(0), words(30), "a"), (images(1), words(30, 2), "b")],
    ),
    "images": (
        partial(classifier, memory=3),
        lambda: small_net(width=16),
        [(images(0), two(30), None), (images(1), two(30, 1), None)],
    ),
}


@pytest.mark.filterwarnings("ignore:column 'age' has 1 missing")
@pytest.mark.parametrize("name", CASES)
def test_update_save_load_update_is_update_update_to_the_bit(name: str, tmp_path: Path) -> None:
    make, net, (first, second) = CASES[name]
    saved = make(net()).update(*first)
    saved.save(tmp_path)
    loaded = type(saved).load(tmp_path, net(), device="cpu", verbose=0)
    assert same(tensors(loaded), tensors(saved))
    assert loaded.settings == saved.settings
    assert [str(each) for each in loaded.history] == [str(each) for each in saved.history]
    for learner in (saved, loaded):
        learner.update(*second)
    assert same(tensors(loaded), tensors(saved))
    x = second[0]
    assert np.array_equal(loaded.predict(x, second[2]), saved.predict(x, second[2]))
    assert loaded.summary() == saved.summary()


def test_saving_again_replaces_the_files_and_keeps_no_others(tmp_path: Path) -> None:
    learner = classifier().update(*ARRAYS[0])
    learner.save(tmp_path / "new" / "model")
    first = {path.name for path in (tmp_path / "new" / "model").iterdir()}
    learner.update(*ARRAYS[1]).save(tmp_path / "new" / "model")
    second = {path.name for path in (tmp_path / "new" / "model").iterdir()}
    assert len(first) == len(second) == 3
    assert first & second >= {MANIFEST}
    learner.save(tmp_path / "new" / "model")
    assert {path.name for path in (tmp_path / "new" / "model").iterdir()} == second


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


class Failing:
    """A system call that fails at its ``at``-th call."""

    def __init__(self, real: Callable[..., Any], at: int, error: BaseException) -> None:
        self.real, self.left, self.error = real, at, error

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.real(*given, **named)


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["replace", "fsync", "fdopen"])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupted"])
class TestADiskThatFailsAtAnyWrite:
    def test_a_learner_that_is_there_stays(
        self, call: str, at: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner = classifier().update(*ARRAYS[0])
        learner.save(tmp_path)
        before = contents(tmp_path)
        known = learner.update(*ARRAYS[1])._knows()
        assert known.scaling is not None
        other = known.scaling._replace(centre=known.scaling.centre + 1)
        learner._known = known._replace(scaling=other)  # every file is another one
        with monkeypatch.context() as patch:
            patch.setattr(folder.os, call, Failing(getattr(os, call), at, error))
            if error is FULL:
                with pytest.raises(VclError, match=r"No space left on device.*; free space or give another folder"):
                    learner.save(tmp_path)
            else:
                with pytest.raises(KeyboardInterrupt):
                    learner.save(tmp_path)
        assert contents(tmp_path) == before
        learner._known = known
        learner.save(tmp_path)
        assert same(tensors(ContinualClassifier.load(tmp_path, small_net(), device="cpu")), tensors(learner))

    def test_a_new_folder_is_not_left_behind(
        self, call: str, at: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner = classifier().update(*ARRAYS[0])
        with monkeypatch.context() as patch:
            patch.setattr(folder.os, call, Failing(getattr(os, call), at, error))
            with pytest.raises((VclError, KeyboardInterrupt)):
                learner.save(tmp_path / "a" / "model")
        assert list(tmp_path.iterdir()) == []


def test_old_files_that_cannot_be_removed_are_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = classifier().update(*ARRAYS[0])
    learner.save(tmp_path)
    learner.update(*ARRAYS[1])
    monkeypatch.setattr(Path, "unlink", Failing(Path.unlink, 1, PermissionError("no")))
    learner.save(tmp_path)
    assert same(tensors(ContinualClassifier.load(tmp_path, small_net(), device="cpu")), tensors(learner))


class TestSavesThatMeet:
    def test_an_interrupt_right_after_the_manifest_leaves_the_new_learner(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner = classifier().update(*ARRAYS[0])
        learner.save(tmp_path)
        learner.update(*ARRAYS[1])
        real = os.replace

        def interrupted(old: Any, new: Any) -> None:
            real(old, new)
            if Path(new).name == MANIFEST:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(folder.os, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                learner.save(tmp_path)
        assert same(tensors(ContinualClassifier.load(tmp_path, small_net(), device="cpu")), tensors(learner))

    def test_a_save_keeps_what_a_later_one_named(self, tmp_path: Path) -> None:
        """Where a disk has no locks, the tidying of one save may come after the whole of another."""
        learner = classifier().update(*ARRAYS[0])
        learner.save(tmp_path)
        before = contents(tmp_path)
        (tmp_path / "state-0000.safetensors").write_bytes(b"of an earlier save")
        folder._tidy(tmp_path)
        assert contents(tmp_path) == before

    def test_temporary_files_of_others_stay_until_they_are_old(self, tmp_path: Path) -> None:
        learner = classifier().update(*ARRAYS[0])
        learner.save(tmp_path)
        theirs = tmp_path / f".{MANIFEST}.abc.tmp"
        theirs.write_bytes(b"half")
        learner.save(tmp_path)
        assert theirs.exists()
        os.utime(theirs, (0, 0))
        learner.save(tmp_path)
        assert not theirs.exists()

    def test_many_at_once_leave_a_whole_learner(self, tmp_path: Path) -> None:
        learners = [classifier().update(numbers(30, seed), two(30)) for seed in range(2)]
        failed: list[BaseException] = []

        def saves(learner: ContinualClassifier) -> None:
            try:
                for _ in range(15):
                    learner.save(tmp_path)
                    ContinualClassifier.load(tmp_path, small_net(), device="cpu")
            except BaseException as error:
                failed.append(error)

        threads = [Thread(target=saves, args=(learner,)) for learner in learners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert len(contents(tmp_path)) == 3
        found = tensors(ContinualClassifier.load(tmp_path, small_net(), device="cpu"))
        assert any(same(found, tensors(learner)) for learner in learners)


class TestAFolderThatIsNotRight:
    @pytest.fixture
    def saved(self, tmp_path: Path) -> Path:
        classifier().update(*ARRAYS[0]).save(tmp_path / "model")
        return tmp_path / "model"

    def load(self, path: Path, net: nn.Module | None = None) -> ContinualClassifier:
        return ContinualClassifier.load(path, small_net() if net is None else net, device="cpu", verbose=0)

    def test_no_learner(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "nothing"):
            with pytest.raises(VclError, match=r"is no learner: it has no learner\.json; give the folder that"):
                self.load(path)

    def test_a_place_that_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        learner = classifier().update(*ARRAYS[0])
        with pytest.raises(VclError, match=r"is a file; give a folder"):
            learner.save(tmp_path / "file")
        with pytest.raises(VclError, match=r"holds other files and no learner; give a folder that is new, empty"):
            learner.save(tmp_path)
        assert contents(tmp_path) == {"file": b"mine"}
        with pytest.raises(VclError, match=r"nothing has been learned yet"):
            classifier().save(tmp_path / "new")

    def test_damage_of_every_file(self, saved: Path) -> None:
        whole = contents(saved)
        for name, content in whole.items():
            for changed in (content[:-7], b"", content[:40] + bytes([content[40] ^ 1]) + content[41:]):
                (saved / name).write_bytes(changed)
                with pytest.raises(VclError, match=r"is damaged \(.*\); restore it from a copy"):
                    self.load(saved)
            (saved / name).write_bytes(content)
        for name in whole:
            if name != MANIFEST:
                (saved / name).unlink()
                with pytest.raises(VclError, match=rf"is damaged \(it lacks {name}\); restore it"):
                    self.load(saved)
                (saved / name).write_bytes(whole[name])
        assert self.load(saved).tasks == ("update 1",)

    def test_a_manifest_that_was_edited(self, saved: Path) -> None:
        about = json.loads((saved / MANIFEST).read_text())
        for change in ({"kind": "regressor"}, {"tasks": {}}, {"settings": {}}, {"outputs": {"all": [0, 1, 2]}}):
            (saved / MANIFEST).write_text(json.dumps({**about, **change}))
            with pytest.raises(VclError, match=r"damaged \(learner.json is not what was saved\)"):
                self.load(saved)

    def test_what_is_missing_or_odd_in_a_manifest_is_damage_too(self, saved: Path) -> None:
        about = json.loads((saved / MANIFEST).read_text())
        for name in about.keys() - {"check", "vcl"}:
            for changed in ({key: value for key, value in about.items() if key != name}, {**about, name: 7.5}):
                (saved / MANIFEST).write_text(json.dumps({**changed, "check": folder.checksum_of(changed)}))
                with pytest.raises(VclError, match=r"is damaged|holds a"):
                    self.load(saved)

    def test_a_class_that_is_named_twice(self, saved: Path) -> None:
        about = json.loads((saved / MANIFEST).read_text())
        about["outputs"]["all"] = [1, 1]
        (saved / MANIFEST).write_text(json.dumps({**about, "check": folder.checksum_of(about)}))
        with pytest.raises(VclError, match=r"is damaged \(a class is named twice\)"):
            self.load(saved)

    def test_a_file_outside_of_the_folder(self, saved: Path) -> None:
        about = json.loads((saved / MANIFEST).read_text())
        about["files"]["state"]["file"] = "../state.safetensors"
        (saved / MANIFEST).write_text(json.dumps({**about, "check": folder.checksum_of(about)}))
        with pytest.raises(VclError, match=r"outside of the folder"):
            self.load(saved)

    def test_a_newer_format(self, saved: Path) -> None:
        about = json.loads((saved / MANIFEST).read_text())
        (saved / MANIFEST).write_text(json.dumps({**about, "format": 99}))
        with pytest.raises(VclError, match=r"has format 99, and this version of vcl reads up to 1; install a newer"):
            self.load(saved)


class TestANetThatDoesNotMatch:
    """The first difference is named."""

    @pytest.mark.parametrize(
        ("net", "said"),
        [
            (
                lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 7), nn.ReLU()),
                r"'trunk.1.weight' has shape \(7, 4\) instead of \(6, 4\)",
            ),
            (
                lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 6, bias=False), nn.ReLU()),
                "no parameter 'trunk.1.bias'",
            ),
            (
                lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6)),
                "new parameter 'trunk.3.weight'",
            ),
            (lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh()), "its output for a fixed input is"),
            (lambda: nn.Linear(5, 6), "does not take inputs of shape"),
            (lambda: None, "net is missing"),
        ],
    )
    def test_parameters(self, net: Callable[[], Any], said: str, tmp_path: Path) -> None:
        classifier().update(*ARRAYS[0]).save(tmp_path)
        with pytest.raises(VclError, match=said):
            ContinualClassifier.load(tmp_path, net(), device="cpu")

    @pytest.mark.parametrize(
        ("settings", "changed"),
        [
            ({"posterior": "head"}, "2.weight"),
            ({"posterior": ["4"]}, "2.weight"),
            ({"posterior": ["*.bias"]}, "2.weight"),
            ({"adapters": 2}, "2.base.weight"),
            ({"posterior": ["0"]}, "2.weight"),
        ],
    )
    def test_frozen_values(self, settings: dict[str, Any], changed: str, tmp_path: Path) -> None:
        classifier(deeper(), **settings).update(*ARRAYS[0]).save(tmp_path)
        net = deeper()
        with torch.no_grad():
            net[2].weight[0, 0] += 1e-3  # type: ignore[index]
        with pytest.raises(VclError, match=f"'{changed}', which has no posterior, has other values; give the network"):
            ContinualClassifier.load(tmp_path, net, device="cpu")
        assert ContinualClassifier.load(tmp_path, deeper(), device="cpu").tasks == ("update 1",)

    def test_of_a_regressor_with_learned_noise(self, tmp_path: Path) -> None:
        regressor().update(*TARGETS[0]).update(*TARGETS[1]).save(tmp_path)
        with pytest.raises(VclError, match=r"its output for a fixed input is"):
            ContinualRegressor.load(tmp_path, nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh()), device="cpu")
        assert len(ContinualRegressor.load(tmp_path, small_net(3), device="cpu").history) == 2
