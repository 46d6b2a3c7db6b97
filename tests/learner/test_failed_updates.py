"""An update that diverges, or has no memory left, says so and leaves the learner as it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import vcl
from made import shapes, small_vae
from vcl.errors import NonFiniteError, OutOfMemoryError, VclError
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.fitting.step import Eager
from vcl.learner import GenerativeLearner, generative_vcl
from vcl.learner.checkpoint import to_bytes

G = torch.Generator().manual_seed(0)
X = torch.randn(40, 4, generator=G)
Y = (X[:, 0] > 0).long()
CPU = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes."


def learner(method: Any = "structured") -> Any:
    torch.manual_seed(0)
    return vcl.ContinualClassifier(vcl.mlp(4, (5,)), method=method, epochs=3, batch=8, verbose=0)


def test_without_memory_the_learner_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, mine = (learner().update(X[:20], Y[:20]) for _ in range(2))
    before = mine._known
    with monkeypatch.context() as patch:
        patch.setattr(Eager, "__call__", lambda *_: (_ for _ in ()).throw(RuntimeError(CPU)))
        with pytest.raises(OutOfMemoryError) as caught:
            mine.update(X[20:], Y[20:])
    said = str(caught.value)
    assert said.startswith(
        "task 2 (update 2): memory ran out in the Kronecker-factored Laplace, epoch 1 of 3, which asked "
    )
    assert "asked for 8.0 GiB more; take a smaller batch" in said
    assert said.endswith("; the learner is as it was before this update.")
    assert mine._known is before
    for each in (whole, mine):
        each.update(X[20:], Y[20:])
    assert to_bytes(mine._known.state) == to_bytes(whole._known.state)


def test_with_a_checkpoint_the_finished_fit_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, mine, folder = learner("laplace").update(X, Y), learner("laplace"), tmp_path / "saved"
    with monkeypatch.context() as patch:
        patch.setattr(KroneckerCurvature, "__call__", lambda *_: (_ for _ in ()).throw(MemoryError()))
        words = f"before this update, and the same update goes on from what was saved in {folder}."
        with pytest.raises(OutOfMemoryError, match=f"in the Kronecker-factored curvature; .*{re.escape(words)}$"):
            mine.update(X, Y, checkpoint=folder)
    assert mine.tasks == ()
    steps, step = [], Eager.__call__
    monkeypatch.setattr(Eager, "__call__", lambda *given: (steps.append(1), step(*given))[1])
    mine.update(X, Y, checkpoint=folder)
    assert not steps
    assert to_bytes(mine._known.state) == to_bytes(whole._known.state)
    assert not list(folder.glob("*.safetensors"))


def test_a_prediction_without_memory_says_what_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = learner().update(X, Y)
    monkeypatch.setattr("vcl.predicting.prediction._rows", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(OutOfMemoryError, match="memory ran out in a prediction; predict for fewer examples at once"):
        mine.predict(X)


def test_an_update_that_diverges_leaves_the_learner_as_it_was() -> None:
    mine = learner().update(X[:20], Y[:20])
    before = mine._known
    with pytest.warns(UserWarning, match="lie more than"), pytest.raises(VclError) as caught:
        mine.update(1e30 * X[20:], Y[20:])
    said = str(caught.value)
    assert isinstance(caught.value, NonFiniteError)
    assert said.startswith("task 2 (update 2): the curvature of 'trunk.1.weight' is not finite; use ")
    assert said.endswith("; the learner is as it was before this update.")
    assert mine._known is before


def test_generators_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = GenerativeLearner(small_vae(), generative_vcl(Ascent(2, 8, 1e-3), 1), (0, 1))
    mine.update(shapes(8, 0, "a").x[0], "a")
    before = mine.state
    monkeypatch.setattr(Eager, "__call__", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(OutOfMemoryError, match=r"epoch 1 of 2; .*the learner is as it was before this update"):
        mine.update(shapes(8, 1, "b").x[0], "b")
    assert mine.state is before
    assert mine.tasks == ("a",)
