"""An update that is stopped goes on with the same data, in another process too, and ends at the same bits."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import vcl
from vcl.errors import VclError
from vcl.fitting.journal import Entry, Journal
from vcl.fitting.progress import Progress
from vcl.learner.checkpoint import to_bytes
from vcl.learner.generations import Generations
from vcl.learner.interrupts import delayed
from vcl.learner.saving import Saver
from vcl.learner.ways import METHOD_NAMES

G = torch.Generator().manual_seed(0)
X = torch.randn(40, 4, generator=G)
Y = (X[:, 0] > 0).long()


def classifier(method: str) -> Any:
    net = None if method == "generative" else vcl.mlp(4, (5,))
    return vcl.ContinualClassifier(net, method=method, epochs=3, batch=8, verbose=0)  # type: ignore[arg-type]


def regressor() -> Any:
    return vcl.ContinualRegressor(vcl.mlp(4, (5,)), epochs=3, batch=8, verbose=0)


CASES: dict[str, tuple[Callable[[], Any], Tensor]] = {
    **{name: (lambda name=name: classifier(name), Y) for name in METHOD_NAMES},  # type: ignore[misc]
    "regression with learned noise": (regressor, X[:, 1] + 0.1 * X[:, 2]),
}


def same(one: Any, other: Any) -> bool:
    ours, theirs = (learner._known for learner in (one, other))
    return to_bytes(ours.state) == to_bytes(theirs.state) and repr(ours.noise) == repr(theirs.noise)


@pytest.mark.parametrize(("made", "y"), CASES.values(), ids=CASES)
def test_an_update_that_is_stopped_again_and_again_ends_at_the_same_bits(
    made: Callable[[], Any], y: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    whole = made().update(X[:20], y[:20]).update(X[20:], y[20:])
    calls, write = iter(range(1, 10**9)), Saver.write

    def written(saver: Saver, entries: Mapping[str, Entry]) -> None:
        write(saver, entries)
        raise KeyboardInterrupt

    monkeypatch.setattr(Saver, "due", lambda saver: next(calls) % 5 == 0)
    monkeypatch.setattr(Saver, "write", written)
    torch.manual_seed(0)
    learner = made().update(X[:20], y[:20])
    before, stops = learner._known, 0
    while True:
        try:
            learner.update(X[20:], y[20:], checkpoint=tmp_path / "half")
        except KeyboardInterrupt:
            stops += 1
            assert learner._known is before
            assert stops < 500
            continue
        break
    assert stops >= 2
    assert same(learner, whole)
    assert not list((tmp_path / "half").iterdir())


def test_another_update_does_not_take_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(saver: Saver, entries: Mapping[str, Entry]) -> None:
        saver.files.write(entries)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Saver, "write", stopped)
        torch.manual_seed(0)
        with pytest.raises(KeyboardInterrupt):
            classifier("laplace").update(X[:20], Y[:20], checkpoint=tmp_path, save_every=0)
    found: list[int] = []
    begin = Saver.begin

    def begun(saver: Saver, identity: str) -> Journal:
        journal = begin(saver, identity)
        found.append(len(journal.entries))
        return journal

    monkeypatch.setattr(Saver, "begin", begun)
    for x, y, seed in ((X[20:], Y[20:], 0), (X[:20], 1 - Y[:20], 0), (X[:20], Y[:20], 1), (X[:20], Y[:20], 0)):
        torch.manual_seed(seed)
        learner = classifier("laplace")
        content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        learner.update(x, y, checkpoint=tmp_path)
        for name, data in content.items():
            (tmp_path / name).write_bytes(data)
    assert found == [0, 0, 0, 1]


def test_what_cannot_be_a_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VclError, match="which is a file; give a folder"):
        classifier("laplace").update(X, Y, checkpoint=tmp_path / "file")
    with pytest.raises(VclError, match="the seconds between two saves are -1"):
        classifier("laplace").update(X, Y, checkpoint=tmp_path / "half", save_every=-1)


def test_a_signal_waits_for_the_end_of_a_step_and_the_second_does_not() -> None:
    waits = True
    with delayed(lambda: waits) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.asked is not None
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            stop.now()
        waits = False
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_time_for_saving_is_a_hundredth_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("vcl.learner.saving.monotonic", lambda: now)
    saver = Saver(tmp_path, 10.0, print)
    saver.begin("a")

    def slow(entries: Mapping[str, Entry]) -> None:
        nonlocal now
        now += 5.0

    monkeypatch.setattr(saver.files, "write", slow)
    assert not saver.due()
    now = 10.0
    assert saver.due()
    saver.write({})
    now += 499.0
    assert not saver.due()
    now += 1.0
    assert saver.due()


def test_reports_from_before_and_after_a_stop_on_a_gpu_are_saved_together(tmp_path: Path) -> None:
    """Those that were read are on the CPU; ``cpu`` is all that a tensor of a GPU is asked for here."""
    on_gpu: Any = SimpleNamespace(cpu=lambda: torch.tensor([2.0]))
    told = (Progress("fit", 1, 3, torch.tensor([1.0])), Progress("fit", 2, 3, on_gpu))
    files = Generations(tmp_path, "work")
    files.write({"fit": Entry({}, told, done=False)})
    assert [each.objective.item() for each in files.read().entries["fit"].told] == [1.0, 2.0]
