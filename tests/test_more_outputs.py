"""Heads that get outputs in later tasks, under the recursion."""

import pytest
import torch

from made import blobs, linear_tasks, shape_tasks, small_network, small_vae
from vcl.coresets import RandomK
from vcl.data import Source, dataset
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.models import LinearGaussian
from vcl.ops.rng import Rng
from vcl.predicting.metrics import accuracy
from vcl.predicting.prediction import predict
from vcl.projections import Exact, VariationalKL
from vcl.recursion import Method, Predictive, State, Task, initial, learn

QUICK = VariationalKL(Ascent(5, None, 0.01), draws=2, estimator="local")
NATURAL = VariationalKL(Ascent(50, 10, 0.02), draws=2, estimator="local", natural=NaturalGradient())


def last(states: object) -> State:  # type: ignore[type-arg]
    return list(states)[-1]  # type: ignore[call-overload]


def growing(runs: int = 1) -> list[Task]:
    """Head a with 2 and then 4 outputs, and head b between and after."""
    parts = [("a", 2), ("b", 2), ("a", 4), ("b", 2)]
    data = [blobs(32, t, f"t{t}", head, runs, classes=units) for t, (head, units) in enumerate(parts)]
    return [Task(f"t{t}", each, heads=dict([parts[t]])) for t, each in enumerate(data)]


@pytest.mark.parametrize("predictive", ["joint", "per-head"])
def test_a_head_gets_outputs_between_other_heads(predictive: Predictive) -> None:
    """Coresets keep points of the old labels; heads without data keep their bits, wherever they move to."""
    model, method = small_network(), Method(QUICK, RandomK(8), QUICK, predictive)
    states = list(learn(initial(model, method, 1), growing(), model, method, Rng(0)))
    assert [dict(state.heads) for state in states] == [{"a": 2}, {"a": 2, "b": 2}, {"a": 4, "b": 2}, {"a": 4, "b": 2}]
    two, three, four = (state.propagated for state in states[1:])
    assert three.layout.names == two.layout.names
    assert three.layout == model.prior({"a": 4, "b": 2}).layout
    for before, after, kept in ((two, three, "b"), (three, four, "a")):
        pairs = zip(before[1:], after[1:], strict=True)
        for one, other in ((before.layout.split(old), after.layout.split(new)) for old, new in pairs):
            for name in (f"heads.{kept}.weight", f"heads.{kept}.bias"):
                assert torch.equal(one[name], other[name])
    assert states[2].coreset is not None
    assert {*states[2].coreset.where([Source("t0", "a")]).y[0].tolist()} <= {0, 1}
    assert states[0].fingerprint == states[3].fingerprint
    assert states[0].fingerprint is not None
    assert states[0].fingerprint.units == 2
    for head, units in states[3].heads.items():
        found = predict(states[3], model, growing()[2].train.x, head, Rng(0), draws=2)
        assert found.shape == (1, 32, units)
    for t, state in enumerate(states[:3]):
        again = list(learn(from_bytes(to_bytes(state)), growing()[t + 1 :], model, method, Rng(0)))[-1]
        assert torch.equal(again.propagated.mean, states[3].propagated.mean)
        assert torch.equal(again.predictive["a"].mean, states[3].predictive["a"].mean)


def test_a_head_may_get_outputs_before_it_gets_their_data() -> None:
    """Rows without a fit stay at the prior, and no later task takes them for old ones."""
    model, method = small_network(), Method(QUICK)
    first, other, later, _ = growing()
    early = other._replace(heads={"a": 4, "b": 2})
    one, two, three = learn(initial(model, method, 1), [first, early, later], model, method, Rng(0))
    rows = two.propagated.layout.mask({"heads.a.weight": 2, "heads.a.bias": 2})
    assert not two.propagated.mean[:, rows].any()
    assert not two.propagated.log_var[:, rows].any()
    old = one.propagated.layout.split(one.propagated.mean)["heads.a.weight"]
    assert torch.equal(two.propagated.layout.split(two.propagated.mean)["heads.a.weight"][:, :2], old)
    assert (three.propagated.mean[:, rows] != 0).all()
    assert (three.propagated.log_var[:, rows] < -4).all()  # init_var, from which a few steps lead not far


def test_classes_that_come_later_are_told_apart() -> None:
    """Classes 0 to 2, then 3 and 4 with a few points of the old ones: all five, by one head."""
    g = torch.Generator().manual_seed(3)
    centres, y = 4 * torch.randn(5, 6, generator=g), torch.arange(100) % 5
    x = centres[y] + 0.5 * torch.randn(100, 6, generator=g)
    model, method = small_network(), Method(NATURAL, RandomK(30), NATURAL)
    tasks = [
        Task(name, dataset(x[keep], y[keep], name, "all", 3), heads={"all": units})
        for name, keep, units in (("old", y < 3, 3), ("new", y > 2, 5))
    ]
    state = last(learn(initial(model, method, 3), tasks, model, method, Rng(range(3))))
    found = predict(state, model, x.expand(3, -1, -1), "all", Rng(range(3)), draws=20)
    assert (accuracy(found, y.expand(3, -1)) > 0.95).all()


def test_sizes_that_are_no_outputs_do_not_grow() -> None:
    vae, (task,) = small_vae(), shape_tasks(1)
    method = Method(VariationalKL(Ascent(1, 16), draws=1))
    state = last(learn(initial(vae, method, 1), [task], vae, method, Rng(0)))
    with pytest.raises(VclError, match=r"head 't0' the size 20 but it has 16, and the heads of a Vae do not grow"):
        last(learn(state, [task._replace(heads={"t0": 20})], vae, method, Rng(0)))
    (linear,) = linear_tasks([10])
    model = LinearGaussian(4, 0.5)
    known = last(learn(initial(model, Method(Exact()), 1), [linear], model, Method(Exact()), Rng(0)))
    with pytest.raises(VclError, match="the heads of a LinearGaussian do not grow; use a new name"):
        last(learn(known, [linear._replace(heads={"all": 2})], model, Method(Exact()), Rng(0)))


def test_a_saved_state_may_have_more_outputs_than_its_fingerprint_and_not_fewer() -> None:
    model, method, (first, _, later, _) = small_network(), Method(QUICK), growing()
    one, two = learn(initial(model, method, 1), [first, later], model, method, Rng(0))
    assert from_bytes(to_bytes(two)).fingerprint == one.fingerprint
    for units in (0, 5):
        assert two.fingerprint is not None
        other = two._replace(fingerprint=two.fingerprint._replace(units=units))
        with pytest.raises(VclError, match="the fingerprint of its network"):
            from_bytes(to_bytes(other))
