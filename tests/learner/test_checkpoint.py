from typing import Any

import pytest
import torch
from safetensors.torch import save

from made import blob_tasks, small_network
from vcl.coresets import Nothing, RandomK
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import from_bytes, packed, to_bytes
from vcl.ops.rng import Rng
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumLikelihood,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method, initial, learn


def plain(project: Any) -> Method[Any]:
    return Method(project, Nothing(), project)


QUICK = VariationalKL(Ascent(4, 16, 0.01), draws=2, estimator="local")
METHODS = {
    "per-head": Method(QUICK, RandomK(5), QUICK, "per-head"),
    "joint": Method(QUICK, RandomK(5), QUICK, "joint"),
    "ewc": plain(ElasticWeightConsolidation(Ascent(4, 16), 10.0)),
    "lp": plain(LaplacePropagation(Ascent(4, 16))),
    "si": plain(SynapticIntelligence(Ascent(4, 16))),
    "point": Method(MaximumLikelihood(Ascent(4, 16)), Nothing(), MaximumLikelihood(Ascent(4, 16))),
}


@pytest.mark.parametrize("name", METHODS)
def test_trap_a_saved_state_forgets_nothing_and_goes_on_as_if_never_saved(name: str) -> None:
    """Posterior, prior for the next task, coreset and heads all come back, so the next task ends at the same bits."""
    model, tasks, method, rng = small_network(), blob_tasks(3, runs=2), METHODS[name], Rng((0, 1))
    straight = list(learn(initial(model, method, 2), tasks, model, method, rng))
    loaded = from_bytes(to_bytes(straight[1]))
    assert loaded.t == 2
    assert loaded.heads == straight[1].heads
    assert type(loaded.propagated) is type(straight[1].propagated)
    (resumed,) = learn(loaded, tasks[2:], model, method, rng)
    for got, want in (
        (resumed.propagated, straight[2].propagated),
        (resumed.predictive["h1"], straight[2].predictive["h1"]),
    ):
        assert got.layout == want.layout
        assert all(torch.equal(a, b) for a, b in zip(got[1:], want[1:], strict=True))
    assert torch.equal(resumed.coreset.x, straight[2].coreset.x)
    assert resumed.coreset.sources == straight[2].coreset.sources


def test_a_state_before_any_task_and_shared_beliefs_survive() -> None:
    model, method = small_network(), METHODS["joint"]
    start = initial(model, method, 2)
    assert from_bytes(to_bytes(start)).coreset is None
    (state,) = learn(start, blob_tasks(1, runs=2), model, method, Rng((0, 1)))
    assert len(to_bytes(state)) < 4 * len(to_bytes(start))
    (plain,) = learn(start, blob_tasks(1, runs=2), model, Method(QUICK, Nothing(), QUICK), Rng((0, 1)))
    loaded = from_bytes(to_bytes(plain))
    assert loaded.predictive["h0"] is loaded.propagated


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_is_no_state_is_refused(content: bytes) -> None:
    with pytest.raises(VclError, match="no saved vcl state, or it is damaged"):
        from_bytes(content)


def test_a_truncated_state_is_refused() -> None:
    model, method = small_network(), METHODS["joint"]
    with pytest.raises(VclError, match="damaged"):
        from_bytes(to_bytes(initial(model, method, 1))[:-5])


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("source", lambda source: source.int(), "coreset.source has dtype torch.int32"),
        ("source", lambda source: source + 1, "coreset.source names what is not there"),
        ("source", lambda source: source[:, 1:], "shapes of the coreset"),
        ("x", lambda x: x * torch.nan, "coreset.x holds numbers that are not finite"),
    ],
)
def test_an_altered_coreset_is_refused(field: str, change: Any, words: str) -> None:
    model, method = small_network(), METHODS["joint"]
    (state,) = learn(initial(model, method, 2), blob_tasks(1, runs=2), model, method, Rng((0, 1)))
    tensors = packed(state)
    from_bytes(save(tensors))
    tensors[f"coreset.{field}"] = change(tensors[f"coreset.{field}"]).contiguous()
    with pytest.raises(VclError, match=words):
        from_bytes(save(tensors))
