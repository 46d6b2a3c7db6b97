"""A posterior over part of a network: the rest is a fixed function, costs nothing and never moves."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from made import blob_tasks, blobs, most_held
from vcl.data import Data, dataset
from vcl.engines.choose import choose
from vcl.engines.general import General
from vcl.engines.usage import find_usage
from vcl.engines.vmapped_linear import with_linear_gradients
from vcl.errors import VclError
from vcl.fitting.curvature import Curvature
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.models import LinearGaussian, Network, mlp, select_posterior, split_prefix
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import (
    Exact,
    KroneckerLaplace,
    LaplacePropagation,
    MaximumLikelihood,
    MomentMatching,
    Target,
    VariationalKL,
)
from vcl.recursion import Method, State, initial, learn

FEW = Ascent(2, 16, 0.01)


def trained(widths: tuple[int, ...] = (6, 5, 4), seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Flatten()]
    for one, two in pairwise(widths):
        layers += [nn.Linear(one, two), nn.Tanh()]
    return nn.Sequential(*layers)


def regression(n: int, seed: int = 0) -> Data:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g, dtype=torch.float64)
    y = torch.randn(n, generator=g, dtype=torch.float64) + x.sum(1)
    return dataset(x, y, head="all")


class TestAFrozenLayerUnderALinearHead:
    """A linear-Gaussian model on the layer's features, with 1 as a feature for the bias."""

    NOISE = 0.4

    def models(self) -> tuple[Network, LinearGaussian, Data, Data]:
        trunk = trained((6, 5)).double()
        network = Network(trunk, 5, Normal(self.NOISE), 2.0, frozen=("1.weight", "1.bias"))
        data = regression(30)
        with torch.no_grad():
            h = torch.cat([trunk(data.x[0]), torch.ones(30, 1, dtype=torch.float64)], 1)
        return network, LinearGaussian(6, self.NOISE, 2.0), data, dataset(h, data.y[0], head="all")

    def test_likelihood_and_evidence_are_its_own(self) -> None:
        network, linear, data, features = self.models()
        layout = network.prior({"all": 1}).layout
        assert layout.names == ("heads.all.weight", "heads.all.bias")
        g = torch.Generator().manual_seed(1)
        w, v = torch.randn(6, generator=g, dtype=torch.float64), torch.rand(6, generator=g, dtype=torch.float64)
        ours, theirs = (Data(each.x[0], each.y[0], each.source[0], each.sources) for each in (data, features))
        torch.testing.assert_close(network.log_lik(layout.split(w), ours), linear.log_lik({"w": w}, theirs))
        evidence = network.log_evidence(layout.split(w), layout.split(v), ours)
        torch.testing.assert_close(evidence, linear.log_evidence({"w": w}, {"w": v}, theirs))

    @pytest.mark.parametrize("project", [
        KroneckerLaplace(Ascent(1500, None, 0.05, schedule="cosine"), curvature=KroneckerCurvature("mode", "exact")),
        LaplacePropagation(Ascent(1500, None, 0.05, schedule="cosine"), curvature=Curvature("hessian")),
    ], ids=["kronecker", "diagonal"])  # fmt: skip
    def test_the_posterior_is_the_exact_one(self, project: Any) -> None:
        network, linear, data, features = self.models()
        prior, theirs = network.prior({"all": 1}).to(torch.float64), linear.prior({}).to(torch.float64)
        exact = Exact()(Target(Exact().initial(theirs), linear, features, theirs), Rng(0))
        q = project(Target(project.initial(prior), network, data, prior), Rng(0))
        torch.testing.assert_close(q.mean, exact.mean, rtol=1e-4, atol=1e-5)
        if isinstance(project, LaplacePropagation):
            torch.testing.assert_close((-q.log_var).exp(), exact.precision.diagonal(dim1=1, dim2=2))
            return
        # With one output A (x) G + delta I is the whole precision.
        theta = torch.randn(1, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        torch.testing.assert_close(q.factor().pull(theta), exact.factor().pull(theta), rtol=1e-4, atol=1e-5)

    def test_moments_are_matched_as_on_the_features(self) -> None:
        network, linear, data, features = self.models()
        prior, theirs = network.prior({"all": 1}).to(torch.float64), linear.prior({}).to(torch.float64)
        found = MomentMatching(1)(Target(prior, network, data, prior), Rng(0))
        known = MomentMatching(1)(Target(theirs, linear, features, theirs), Rng(0))
        torch.testing.assert_close(found.mean, known.mean)
        torch.testing.assert_close(found.log_var, known.log_var)


@pytest.mark.parametrize("project", [
    VariationalKL(FEW, 2, "weights"), LaplacePropagation(FEW), MaximumLikelihood(FEW),
    KroneckerLaplace(FEW, curvature=KroneckerCurvature("mode", "exact")),
], ids=["vi", "lp", "mle", "kronecker"])  # fmt: skip
def test_a_posterior_over_the_head_is_that_over_precomputed_features(project: Any) -> None:
    """The whole network by the general engine, and features by the layered one."""
    trunk, data = trained(), blobs(40, 0, "t", "h0", runs=2)
    sel = select_posterior(trunk, "head")
    whole = Network(trunk, 4, Categorical(), frozen=sel.frozen)
    split = split_prefix(trunk, sel.frozen)
    assert split.prefix is not None
    over = Network(split.rest, 4, Categorical(), frozen=split.frozen)
    heads, found = {"h0": 2}, []
    for model, given in ((whole, data), (over, split.prefix.over(data, torch.zeros(())))):
        prior = model.prior(heads)
        assert isinstance(choose(model, prior.layout, ("h0",), prior.mean), General) == (model is whole)
        found.append(project(Target(project.initial(prior.expand(2)), model, given, prior), Rng((0, 1))))
    for name, value in found[0].tensors().items():
        torch.testing.assert_close(value, found[1].tensors()[name], rtol=1e-4, atol=1e-5)


def test_frozen_values_are_those_given_and_never_move() -> None:
    trunk = trained()
    before = deepcopy(trunk.state_dict())
    model = Network(trunk, 4, Categorical(), frozen=("1.weight", "1.bias"))
    assert not any(name.startswith("trunk.1.") for name in model.prior({}).layout.names)
    method = Method(VariationalKL(FEW, 2, "local"))
    states = list(learn(initial(model, method, 2), blob_tasks(2, runs=2), model, method, Rng((0, 1))))
    x = blobs(5, 0, "t", "h0", runs=2).x
    wanted = predict(states[-1], model, x, "h0", Rng((0, 1)), draws=3)
    for name, value in model.fixed_values(torch.zeros(())).items():
        assert torch.equal(value, before[name])
        assert not value.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in trunk.state_dict().items())
    assert all(value.grad is None and value.requires_grad for value in trunk.parameters())
    with torch.no_grad():
        trunk[1].weight.zero_()  # type: ignore[union-attr, operator]
    assert torch.equal(predict(states[-1], model, x, "h0", Rng((0, 1)), draws=3), wanted)


def test_another_backbone_is_refused_with_the_state() -> None:
    def network(seed: int) -> Network:
        return Network(trained(seed=seed), 4, Categorical(), frozen=("1.weight", "1.bias"))

    tasks, method = blob_tasks(2, runs=2), Method(VariationalKL(FEW, 1, "local"))
    (state,) = learn(initial(network(0), method, 2), tasks[:1], network(0), method, Rng((0, 1)))
    again: State[Any] = from_bytes(to_bytes(state))
    assert again.fingerprint == state.fingerprint
    assert [each.t for each in learn(again, tasks[1:], network(0), method, Rng((0, 1)))] == [2]
    with pytest.raises(VclError, match="its frozen values or its prior's mean are others"):
        next(learn(again, tasks[1:], network(1), method, Rng((0, 1))))
    with pytest.raises(VclError, match="its frozen values"):
        predict(again, network(1), tasks[0].train.x, "h0", Rng((0, 1)))


def test_a_wider_dtype_has_the_same_checksum_and_the_beliefs_dtype_is_used() -> None:
    one = Network(trained(), 4, Categorical(), frozen=("1.weight", "1.bias"))
    two = Network(trained().double(), 4, Categorical(), frozen=("1.weight", "1.bias"))
    assert one.digest() == two.digest() != ""
    data = blobs(20, 0, "t", "h0")
    double = data._replace(x=data.x.double())
    one.check(double, {"h0": 2})
    prior = one.prior({"h0": 2}).to(torch.float64)
    q = VariationalKL(FEW, 1, "local")(Target(prior, one, double, prior), Rng(0))
    assert q.mean.dtype == torch.float64
    assert predict(q, two, double.x, "h0", Rng(0), draws=2).dtype == torch.float64


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.conv(x.view(-1, 1, 2, 3))).relu().mean((2, 3)))


def normed() -> Normed:
    torch.manual_seed(0)
    net = Normed()
    net(torch.randn(20, 6) + 2)
    return net.eval()


class TestBatchNormalisation:
    def test_a_frozen_layer_in_evaluation_mode_is_a_fixed_function(self) -> None:
        net, tasks = normed(), blob_tasks(2, runs=2)
        model = Network(net, 4, Categorical(), frozen=("norm.weight", "norm.bias"))
        before = deepcopy(dict(net.named_buffers()))
        method = Method(VariationalKL(FEW, 2, "local"))
        *_, state = learn(initial(model, method, 2), tasks, model, method, Rng((0, 1)))
        fixed = model.fixed_values(torch.zeros(()))
        assert set(before) < set(fixed)
        assert all(torch.equal(fixed[name], value) for name, value in before.items())
        assert bool(before["norm.running_mean"].any())
        one = predict(state, model, tasks[0].train.x[:, :1], "h0", Rng((0, 1)), draws=2)
        many = predict(state, model, tasks[0].train.x, "h0", Rng((0, 1)), draws=2)
        torch.testing.assert_close(one, many[:, :1])

    @pytest.mark.parametrize(("frozen", "training"), [((), False), (("norm.weight",), False),
                                                      (("norm.weight", "norm.bias"), True)])  # fmt: skip
    def test_otherwise_it_is_refused_with_the_way_out(self, frozen: tuple[str, ...], training: bool) -> None:
        with pytest.raises(VclError, match=r"freeze the whole layer and call .eval\(\) on it"):
            Network(normed().train(training), 4, Categorical(), frozen=frozen)


def test_a_layer_of_which_one_part_is_frozen_keeps_its_rules() -> None:
    """A frozen bias leaves the weight local, a frozen weight the bias drawn; Kronecker factors take whole layers."""
    data = blobs(12, 0, "t", "h0")
    for frozen, local, drawn in (("1.bias", {"trunk.1.weight"}, set()), ("1.weight", set(), {"trunk.1.bias"})):
        model = Network(trained((6, 4)), 4, Categorical(), frozen=(frozen,))
        one = Data(data.x[0], data.y[0], data.source[0], data.sources)
        params = model.prior({"h0": 2}).layout.split(torch.zeros(model.prior({"h0": 2}).layout.size))
        usage = find_usage(lambda p, model=model, one=one: model.log_lik(p, one), params, 12, "local")  # type: ignore[misc]
        assert set(usage.local) - {"heads.h0.weight", "heads.h0.bias"} == local
        assert set(usage.drawn) == drawn
        prior = model.prior({"h0": 2})
        q = KroneckerLaplace(FEW)(Target(KroneckerLaplace().initial(prior), model, data, prior), Rng(0))
        assert [block.weight for block in q.blocks] == ["heads.h0.weight"]
        assert not torch.equal(q.layout.pick(q.log_var, q.layout.touched([])), torch.zeros(1, prior.layout.size - 10))


def test_recurrent_and_attention_layers_may_be_frozen() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.attend = nn.GRU(3, 4, batch_first=True), nn.TransformerEncoderLayer(4, 2, 8, 0.0)
            self.out = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.attend(self.gru(x.view(-1, 2, 3))[0])[:, -1])

    torch.manual_seed(0)
    trunk, data = Last().eval(), blobs(16, 0, "t", "h0", runs=2)
    for chosen in ("out", "attend.linear1", "gru"):
        sel = select_posterior(trunk, chosen)
        model = Network(trunk, 5, Categorical(), frozen=sel.frozen, start="module")
        prior = model.prior({"h0": 2})
        assert prior.layout.touched([]).size == sel.size
        for project in (VariationalKL(FEW, 2, "local"), KroneckerLaplace(FEW)):
            q: Any = project.initial(prior.expand(2))  # type: ignore[attr-defined]
            assert predict(project(Target(q, model, data, prior), Rng((0, 1))), model, data.x, "h0", Rng((0, 1)),
                           draws=2).isfinite().all()  # type: ignore[operator]  # fmt: skip


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_a_fit_makes_no_tensor_of_the_size_of_the_frozen_part(estimator: Any) -> None:
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(6, 2000), nn.ReLU(), nn.Linear(2000, 2000), nn.ReLU(), nn.Linear(2000, 4))
    model = Network(trunk, 4, Categorical(), frozen=("2.weight", "2.bias"))
    tasks, method = blob_tasks(1, n=16), Method(VariationalKL(Ascent(1, 8, 1e-3), 1, estimator))
    state = initial(model, method, 1)
    held = most_held(lambda: list(learn(state, tasks, model, method, Rng(0))))
    assert held < 4 * 2000 * 2000, f"{held} bytes at most"


class Shapes(TorchDispatchMode):
    """The shapes of all results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.made |= {tuple(value.shape) for value in tree_leaves(result) if isinstance(value, Tensor)}
        return result


def test_in_the_linear_layers_of_a_gpu_a_frozen_weight_gets_no_gradient() -> None:
    """That form, on the CPU; a gradient of the weight is [4, 3] for each of two draws."""
    W, b, x = torch.randn(4, 3), torch.randn(2, 4, requires_grad=True), torch.randn(5, 3)
    found = torch.vmap(with_linear_gradients(lambda bias: torch.nn.functional.linear(x, W, bias).square().sum()))(b)
    with Shapes() as seen:
        (g,) = torch.autograd.grad(found.sum(), b)
    torch.testing.assert_close(g, 2 * (x @ W.T + b[:, None]).sum(1))
    assert seen.made.isdisjoint({(4, 3), (2, 4, 3)})
    V = W.clone().requires_grad_()
    found = torch.vmap(with_linear_gradients(lambda bias: torch.nn.functional.linear(x, V, bias).square().sum()))(b)
    with Shapes() as seen:
        torch.autograd.grad(found.sum(), (b, V))
    assert not seen.made.isdisjoint({(4, 3), (2, 4, 3)}), "as where it has a posterior"


@pytest.mark.parametrize(("settings", "words"), [
    ({"frozen": ("1.wait",)}, "unknown parameter to freeze '1.wait': did you mean '1.weight'"),
    ({"start": "modul"}, "start is 'modul'; give 'module', or a mapping"),
    ({"start": {"trunk.9.weight": torch.zeros(1)}}, "unknown parameter in start 'trunk.9.weight'"),
    ({"prior_mean": {"trunk.1.bias": torch.zeros(3)}}, "has shape (3,); the parameter has (5,)"),
    ({"head_start": {"a": (torch.zeros(2, 3), torch.zeros(2))}}, "give a weight [units, 5] and a bias [units]"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(settings: Any, words: str) -> None:
    with pytest.raises(VclError) as error:
        Network(mlp(6, [5]), 5, Categorical(), **settings)
    assert words in str(error.value)


def test_a_head_smaller_than_its_start_is_refused_and_a_larger_one_has_its_mean_in_the_first_rows() -> None:
    start = {"a": (torch.full((2, 5), 3.0), torch.ones(2))}
    model = Network(mlp(6, [5]), 5, Categorical(), prior_mean="module", head_start=start)
    with pytest.raises(VclError, match=r"has shape \(2, 5\), but the head needs \(1, 5\)"):
        model.prior({"a": 1})
    prior = model.prior({"a": 4})
    means = prior.layout.split(prior.mean)
    assert torch.equal(means["heads.a.weight"][0], torch.cat([start["a"][0], torch.zeros(2, 5)]))
    assert torch.equal(means["heads.a.bias"][0], torch.tensor([1.0, 1.0, 0.0, 0.0]))
