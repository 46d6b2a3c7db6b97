"""Kronecker-factored Laplace propagation against exact posteriors, loops over examples and dense Gaussians."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from vcl.beliefs.blocks import joined
from vcl.beliefs.information import Information, Pair, add, between
from vcl.beliefs.kronecker import Kronecker
from vcl.data import Data, dataset
from vcl.errors import NonFiniteError, VclError
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.models import Network
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops.layer_weights import Block
from vcl.ops.rng import Rng
from vcl.projections import KroneckerLaplace, Target
from vcl.projections.kronecker import gaussian_at, past, prior_precision

EXACT = Ascent(epochs=3000, batch=None, lr=0.05, schedule="cosine")
NOISE, PRIOR = 0.5, 2.0


def regression(tasks: int, runs: int = 1) -> tuple[Network, list[Data]]:
    """Multi-output linear regression: y = W [x, 1] + noise, over tasks with inputs of different covariances."""
    g = torch.Generator().manual_seed(1)
    model = Network(nn.Flatten(), 3, Normal(NOISE), PRIOR)
    data = []
    for t in range(tasks):
        spread = torch.eye(3) + 0.3 * torch.randn(3, 3, generator=g)
        x = torch.randn(9 + 3 * t, 3, generator=g, dtype=torch.float64) @ spread.double()
        y = x @ torch.randn(3, 2, generator=g).double() + NOISE * torch.randn(len(x), 2, generator=g).double()
        data.append(dataset(x, y, head="h", runs=runs))
    return model, data


def start(project: KroneckerLaplace, model: Network, heads: dict[str, int], runs: int = 1) -> Kronecker:
    return project.initial(model.prior(heads).to(torch.float64)).expand(runs)


def learned(project: KroneckerLaplace, model: Network, data: list[Data], heads: dict[str, int]) -> Kronecker:
    q = start(project, model, heads, data[0].runs)
    prior = model.prior(heads).to(torch.float64)
    for t, each in enumerate(data):
        q = project(Target(q, model, each, prior), Rng(range(each.runs)).at("task", t))
    return q


def dense_precision(q: Kronecker) -> Tensor:
    """The precision of q over theta [D, D], from its variances and rotations alone."""
    D = q.layout.size
    columns = q._replace(mean=torch.zeros_like(q.mean)).draw(torch.eye(D, dtype=q.mean.dtype).unsqueeze(0))[0]
    return torch.linalg.inv(columns.T @ columns)


@pytest.mark.parametrize("rule", ["mean", "nearest"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_linear_regression_has_its_exact_posterior_after_any_number_of_tasks(tasks: int, rule: Any) -> None:
    model, data = regression(tasks)
    q = learned(
        KroneckerLaplace(EXACT, curvature=KroneckerCurvature("mode", "exact", rule=rule)), model, data, {"h": 2}
    )
    x = torch.cat([torch.cat([d.x[0], d.x.new_ones(d.size, 1)], 1) for d in data])
    y = torch.cat([d.y[0] for d in data])
    A = x.T @ x / NOISE**2 + torch.eye(4) / PRIOR
    W = torch.linalg.solve(A, x.T @ y / NOISE**2).T  # [2, 4]
    found = joined(q.layout.split(q.mean), Block("heads.h.weight", "heads.h.bias"), 1)[0]
    assert torch.allclose(found, W, atol=1e-8)
    precision = dense_precision(q)
    order = torch.tensor([0, 1, 2, 6, 3, 4, 5, 7])  # theta is (weight, bias), rows of W are (weight row, bias)
    assert torch.allclose(precision[order][:, order], torch.block_diag(A, A), atol=1e-8)


@pytest.mark.parametrize("at", ["expected", "draws"])
def test_a_quadratic_has_the_same_curvature_everywhere(at: Any) -> None:
    model, data = regression(2)
    one, other = (
        learned(KroneckerLaplace(EXACT, curvature=KroneckerCurvature(kind, "exact", rounds=2)), model, data, {"h": 2})
        for kind in (at, "mode")
    )
    assert torch.allclose(one.log_var.sort().values, other.log_var.sort().values, atol=1e-9)
    assert torch.allclose(dense_precision(one), dense_precision(other), atol=1e-8)


def test_lambda_weights_data_and_not_the_prior() -> None:
    model, data = regression(2)
    heads = {"h": 2}
    project = KroneckerLaplace(EXACT, curvature=KroneckerCurvature("mode", "exact"), lam=0.3)
    first = learned(project, model, data[:1], heads)
    q = learned(project, model, data, heads)
    x, second = (torch.cat([d.x[0], d.x.new_ones(d.size, 1)], 1) for d in data)
    block = Block("heads.h.weight", "heads.h.bias")
    M = joined(first.layout.split(first.mean), block, 1)[0]
    past_A = 0.3 * x.T @ x / NOISE**2 + torch.eye(4) / PRIOR
    total = past_A + second.T @ second / NOISE**2
    W = torch.linalg.solve(total, past_A @ M.T + second.T @ data[1].y[0] / NOISE**2).T
    assert torch.allclose(joined(q.layout.split(q.mean), block, 1)[0], W, atol=1e-8)


def mlp_problem(runs: int = 1, n: int = 12) -> tuple[Network, Data, Tensor]:
    g = torch.Generator().manual_seed(3)
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.ReLU())
    model = Network(trunk, 3, Categorical())
    x = torch.randn(n, 4, generator=g, dtype=torch.float64)
    data = dataset(x, torch.randint(0, 3, (n,), generator=g), head="h", runs=runs)
    layout = model.prior({"h": 3}).layout
    return model, data, torch.randn(runs, layout.size, generator=g, dtype=torch.float64)


class Hidden(nn.Module):
    """The same network in code that no chain describes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.one(x.flatten(1)))
        return F.relu(self.two(h * 1.0)) + 0.0 * h.sum(1, keepdim=True)


def examples(model: Network, theta: Tensor, data: Data, y: Tensor) -> dict[str, Tensor]:
    """Each example's gradient of log p(y | theta, x) by torch.func: [N, ...]."""
    layout = model.prior({"h": 3}).layout

    def one(params: Any, x: Tensor, y: Tensor) -> Tensor:
        return model.log_lik(params, Data(x[None], y[None], torch.zeros(1, dtype=torch.int64), data.sources))[0]

    found: dict[str, Tensor] = torch.vmap(torch.func.grad(one), (None, 0, 0))(layout.split(theta), data.x[0], y)
    return found


def test_factors_equal_a_loop_over_examples_in_both_engines() -> None:
    model, data, theta = mlp_problem()
    other = Network(Hidden(), 3, Categorical())
    how = KroneckerCurvature(labels="empirical")
    layout = model.prior({"h": 3}).layout
    blocks = how.layers(model, layout, theta, data)
    found = how(model, layout, theta.unsqueeze(1), data, blocks, Rng(0))
    general = other.prior({"h": 3}).layout
    again = how(other, general, theta.unsqueeze(1), data, how.layers(other, general, theta, data), Rng(0))
    assert len(found.pairs) == len(again.pairs) == 3
    params, x = layout.split(theta[0]), data.x[0]
    h1 = torch.tanh(F.linear(x, params["trunk.1.weight"], params["trunk.1.bias"]))
    h2 = F.linear(h1, params["trunk.3.weight"], params["trunk.3.bias"]).relu()
    gradients = examples(model, theta[0], data, data.y[0])
    for (block, pair), mine, h in zip(found.pairs.items(), again.pairs.values(), (x, h1, h2), strict=True):
        rows = torch.cat([h, torch.ones(len(h), 1)], 1)
        g = gradients[block.bias or ""]
        assert torch.allclose(pair.A[0], sum(torch.outer(row, row) for row in rows) / len(rows))
        assert torch.allclose(pair.G[0], sum(torch.outer(row, row) for row in g))  # type: ignore[arg-type]
        for one, two in zip(pair, mine, strict=True):
            assert torch.allclose(one, two)
        assert pair.rows.tolist() == [12.0]


def test_drawn_labels_have_the_exact_expectation() -> None:
    model, data, theta = mlp_problem(n=2)
    many = Data(data.x.repeat(1, 20_000, 1), data.y.repeat(1, 20_000), data.source.repeat(1, 20_000), data.sources)
    layout = model.prior({"h": 3}).layout
    exact, drawn = KroneckerCurvature(labels="exact"), KroneckerCurvature(labels="true")
    blocks = exact.layers(model, layout, theta, data)
    one = exact(model, layout, theta.unsqueeze(1), data, blocks, Rng(0))
    two = drawn(model, layout, theta.unsqueeze(1), many, blocks, Rng(0))
    for block, pair in one.pairs.items():
        G = two.pairs[block].G / 20_000
        assert torch.allclose(pair.G, G, atol=0.03 * float(pair.G.abs().max()))
        assert torch.allclose(pair.A, two.pairs[block].A)
        assert pair.rows.tolist() == [2.0]


def test_the_product_is_the_full_fisher_where_gradients_and_inputs_are_independent() -> None:
    """Inputs of constant size and all signs: for the first layer the mean over examples of (g g^T) (x) (h h^T)
    factorises when g does not depend on x, as in a linear network with known noise."""
    model, data = regression(1)
    layout = model.prior({"h": 2}).layout
    theta = torch.zeros(1, layout.size, dtype=torch.float64)
    how = KroneckerCurvature(labels="exact")
    (block,) = how.layers(model, layout, theta, data[0])
    pair = how(model, layout, theta.unsqueeze(1), data[0], (block,), Rng(0)).pairs[block]

    def outputs(theta: Tensor) -> Tensor:
        params = layout.split(theta)
        return F.linear(data[0].x[0], params["heads.h.weight"], params["heads.h.bias"])

    jacobian = torch.func.jacrev(outputs)(theta[0])
    full = torch.einsum("ncd,nce->de", jacobian, jacobian) / NOISE**2
    order = torch.tensor([0, 1, 2, 6, 3, 4, 5, 7])
    assert torch.allclose(torch.kron(pair.G[0], pair.A[0]), full[order][:, order], atol=1e-10)


class Conv(nn.Module):
    def __init__(self, padding: Any = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, stride=1, padding=padding)
        self.line = nn.Conv1d(3, 2, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.conv(x)).flatten(2)
        return self.line(h).flatten(1)


@pytest.mark.parametrize("padding", [1, "same", "valid"])
@pytest.mark.parametrize("sharing", ["expand", "reduce"])
def test_convolutions_equal_unfolded_linear_layers(sharing: Any, padding: Any) -> None:
    g = torch.Generator().manual_seed(5)
    positions = 2 if padding == "valid" else 4
    trunk = Conv(padding)
    width = trunk(torch.zeros(1, 2, 4, 4)).shape[1]
    model = Network(trunk, width, Categorical())
    layout = model.prior({"h": 3}).layout
    theta = 0.5 * torch.randn(1, layout.size, generator=g, dtype=torch.float64)
    x = torch.randn(6, 2, 4, 4, generator=g, dtype=torch.float64)
    data = dataset(x, torch.randint(0, 3, (6,), generator=g), head="h")
    how = KroneckerCurvature(labels="empirical", sharing=sharing)
    blocks = how.layers(model, layout, theta, data)
    assert [block.weight for block in blocks] == ["trunk.conv.weight", "trunk.line.weight", "heads.h.weight"]
    found = how(model, layout, theta.unsqueeze(1), data, blocks, Rng(0)).pairs[blocks[0]]
    params = layout.split(theta[0])
    pad = 0 if padding == "valid" else 1
    h = F.unfold(x, 3, padding=pad).mT  # [N, T, 18]
    h = torch.cat([h, torch.ones(*h.shape[:2], 1)], 2)
    W = torch.cat([params["trunk.conv.weight"].flatten(1), params["trunk.conv.bias"][:, None]], 1)
    a = (h @ W.T).requires_grad_()
    z = torch.tanh(a).mT.reshape(6, 3, -1)
    assert z.shape[2] == positions**2
    features = F.conv1d(z, params["trunk.line.weight"], params["trunk.line.bias"], 2, 1).flatten(1)
    out = F.linear(features, params["heads.h.weight"], params["heads.h.bias"])
    (gradient,) = torch.autograd.grad(Categorical().log_prob(out, data.y[0]).sum(), a)
    if sharing == "reduce":
        h, gradient = h.mean(1, keepdim=True), gradient.sum(1, keepdim=True)
    h, gradient = h.flatten(0, 1), gradient.flatten(0, 1)
    assert torch.allclose(found.A[0], h.T @ h / len(h))
    assert torch.allclose(found.G[0], gradient.T @ gradient)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 4)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        found: Tensor = self.norm(h + self.attend(h, h, h, need_weights=False)[0]).mean(1)
        return found


def test_linear_layers_over_a_sequence_have_factors_and_norms_a_diagonal() -> None:
    g = torch.Generator().manual_seed(0)
    model = Network(Attention(), 4, Categorical())
    x = torch.randn(10, 3, 2, generator=g)
    data = dataset(x, torch.randint(0, 2, (10,), generator=g), head="h", runs=2)
    notes: list[str] = []
    project = KroneckerLaplace(Ascent(20, 5, 1e-2))
    prior = model.prior({"h": 2})
    q = project(
        Target(project.initial(prior).expand(2), model, data, prior), Rng([0, 1]), lambda p: notes.append(p.note)
    )
    weights = {block.weight for block in q.blocks}
    assert weights == {
        "trunk.embed.weight", "trunk.attend.in_proj_weight", "trunk.attend.out_proj.weight", "heads.h.weight"
    }  # fmt: skip
    assert notes[-1] == "diagonal instead of Kronecker factors: trunk.norm.weight, trunk.norm.bias"
    gamma = q.layout.split(q.log_var)["trunk.norm.weight"]
    assert bool((gamma < 0).all())  # more precise than the prior N(0, 1)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.one(torch.tanh(self.one(x)))
        return found


def test_a_weight_that_is_used_twice_is_diagonal() -> None:
    model = Network(Tied(), 4, Categorical())
    layout = model.prior({"h": 2}).layout
    data = dataset(torch.randn(3, 4), torch.tensor([0, 1, 0]), head="h")
    blocks = KroneckerCurvature().layers(model, layout, torch.zeros(1, layout.size), data)
    assert blocks == (Block("heads.h.weight", "heads.h.bias"),)
    found = KroneckerCurvature()(model, layout, torch.randn(1, 1, layout.size), data, blocks, Rng(0))
    diagonal = layout.split(found.diagonal)
    assert bool((diagonal["trunk.one.bias"] > 0).any())
    assert not bool(diagonal["heads.h.weight"].any())


def test_the_penalty_equals_the_log_density_of_the_previous_belief() -> None:
    """With lambda = 1 the factors with the prior's precision are the belief's variances in rotated coordinates."""
    model, data, theta = mlp_problem(runs=2)
    prior = model.prior({"h": 3}).to(torch.float64)
    project = KroneckerLaplace(Ascent(5, 6, 1e-2))
    q = project(Target(project.initial(prior).expand(2), model, data, prior), Rng([0, 1]))
    one, two = past(q, prior_precision(model, q, prior), 1.0, True), q.factor()
    g_one, g_two = torch.zeros_like(theta), torch.zeros_like(theta)
    leaf = theta.clone().requires_grad_()
    value = one.pull(leaf)
    (slope,) = torch.autograd.grad(value.sum(), leaf)
    assert torch.allclose(one.pull(theta, g_one), two.pull(theta, g_two))
    assert torch.allclose(value, two.pull(theta))
    assert torch.allclose(g_one, g_two)
    assert torch.allclose(slope, -g_one)
    three = theta.unsqueeze(1).repeat(1, 3, 1)
    g_three = torch.zeros_like(three)
    assert torch.allclose(one.pull(three, g_three), value.unsqueeze(1).expand(-1, 3))
    assert torch.allclose(g_three, g_one.unsqueeze(1).expand(-1, 3, -1))
    delta = theta[0] - q.mean[0]
    assert torch.allclose(value[0], 0.5 * delta @ dense_precision(q.select(torch.tensor([0]))) @ delta)


def test_draws_have_the_dense_covariance() -> None:
    model, data, _ = mlp_problem()
    prior = model.prior({"h": 3}).to(torch.float64)
    project = KroneckerLaplace(Ascent(5, 6, 1e-2))
    q = project(Target(project.initial(prior), model, data, prior), Rng(0))
    theta = q.draw(torch.randn(1, 40_000, q.layout.size, generator=torch.Generator().manual_seed(0)).double())[0]
    covariance = torch.linalg.inv(dense_precision(q))
    scale = covariance.diagonal().sqrt()
    error = (torch.cov(theta.T) - covariance) / torch.outer(scale, scale)
    assert float(error.abs().max()) < 0.03
    assert torch.allclose(theta.mean(0), q.mean[0], atol=0.03)


def test_the_nearest_product_is_nearer_than_the_mean_rule_and_than_its_neighbours() -> None:
    g = torch.Generator().manual_seed(0)

    def psd(n: int) -> Tensor:
        root = torch.randn(1, n, n, generator=g, dtype=torch.float64)
        return root @ root.mT

    old, new = (Pair(psd(4), psd(3), torch.tensor([5.0]).double()) for _ in range(2))
    whole = torch.kron(old.A[0], old.G[0]) + torch.kron(new.A[0], new.G[0])

    def distance(A: Tensor, G: Tensor) -> float:
        return float((torch.kron(A, G) - whole).norm())

    near, plain = add(old, new, "nearest"), add(old, new, "mean")
    best = distance(near.A[0], near.G[0])
    assert best < distance(plain.A[0], plain.G[0])
    for _ in range(20):
        assert best <= distance(near.A[0] + 0.01 * psd(4)[0], near.G[0])
        assert best <= distance(near.A[0], near.G[0] - 0.001 * psd(3)[0])
    # It is the leading singular pair of the rearranged matrix.
    rearranged = sum(torch.outer(p.A[0].flatten(), p.G[0].flatten()) for p in (old, new))
    left = torch.linalg.svdvals(rearranged)  # type: ignore[arg-type]
    assert best == pytest.approx(float(left[1:].norm()), rel=1e-6)


def split(heads: list[str], runs: int) -> list[Data]:
    g = torch.Generator().manual_seed(7)
    return [
        dataset(torch.randn(30, 4, generator=g), torch.randint(0, 2, (30,), generator=g), f"t{h}", h, runs)
        for h in heads
    ]


@pytest.mark.parametrize("chain", [True, False])
def test_stacked_runs_equal_runs_alone(chain: bool) -> None:
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU()) if chain else Hidden()
    model = Network(trunk, 3, Categorical())
    found = []
    for seeds in ((0, 1, 2), (1,)):
        project = KroneckerLaplace(Ascent(3, 10, 1e-2), lam=(0.5, 1.0, 2.0) if len(seeds) == 3 else (1.0,))
        heads: dict[str, int] = {}
        q = None
        for t, data in enumerate(split(["a", "b"], len(seeds))):
            heads[data.sources[0].head] = 2
            prior = model.prior(heads)
            q = project.initial(prior).expand(len(seeds)) if q is None else q.grow(prior)
            q = project(Target(q, model, data, prior), Rng(seeds).at(t))
        found.append(q)
    both, alone = found
    assert both is not None
    assert alone is not None
    for name, value in alone.tensors().items():
        mine = both.tensors()[name][1:2]
        if chain:
            assert torch.equal(mine, value), name
        else:  # vmap over runs rounds by their number
            assert torch.allclose(mine.abs(), value.abs(), rtol=1e-3, atol=1e-4), name


def test_heads_grow_and_untouched_ones_keep_their_bits() -> None:
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU()), 5, Categorical())
    project = KroneckerLaplace(Ascent(3, 10, 1e-2))
    a, b = split(["a", "b"], 1)
    prior = model.prior({"a": 2})
    q = project(Target(project.initial(prior), model, a, prior), Rng(0))
    more = model.prior({"a": 2, "b": 2})
    grown = q.grow(more)
    after = project(Target(grown, model, b, more), Rng(0))
    part = more.layout.where(lambda name: name.startswith("heads.a"))
    assert torch.equal(after.restrict(part).mean, q.restrict(part).mean)
    assert torch.equal(after.restrict(part).log_var, q.restrict(part).log_var)
    assert after.blocks[Block("heads.a.weight", "heads.a.bias")] is q.blocks[Block("heads.a.weight", "heads.a.bias")]
    assert len(after.blocks) == 3
    diagonal = KroneckerLaplace(Ascent(3, 10, 1e-2), curvature=KroneckerCurvature(heads="diagonal"))
    found = diagonal(Target(diagonal.initial(prior), model, a, prior), Rng(0))
    assert list(found.blocks) == [Block("trunk.1.weight", "trunk.1.bias")]
    with pytest.raises(VclError, match="keep the settings"):
        diagonal(Target(q, model, a, prior), Rng(0))
    assert bool((found.restrict(part).log_var < 0).any())


def test_the_state_has_one_size_however_many_tasks_came() -> None:
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU()), 5, Categorical())
    project = KroneckerLaplace(Ascent(1, None, 1e-2), curvature=KroneckerCurvature("mode"))
    prior = model.prior({"a": 2})
    q, sizes = project.initial(prior), []
    for t in range(6):
        (data,) = split(["a"], 1)
        q = project(Target(q, model, data, prior), Rng(0).at(t))
        sizes.append(sum(value.numel() for value in q.tensors().values()))
    assert sizes[1] == sizes[5]
    assert q.blocks[Block("heads.a.weight", "heads.a.bias")].rows.tolist() == [180.0]
    again = Kronecker.from_tensors(q.layout, q.tensors())
    assert again.blocks.keys() == q.blocks.keys()
    for name, value in q.tensors().items():
        assert again.tensors()[name] is value


def test_several_heads_in_one_batch_count_their_own_rows() -> None:
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU()), 5, Categorical())
    a, b = split(["a", "b"], 1)
    both = Data(
        torch.cat([a.x, b.x[:, :10]], 1), torch.cat([a.y, b.y[:, :10]], 1),
        torch.cat([a.source, b.source[:, :10] + 1], 1), (*a.sources, *b.sources),
    )  # fmt: skip
    layout = model.prior({"a": 2, "b": 2}).layout
    theta = torch.randn(1, layout.size, generator=torch.Generator().manual_seed(0))
    how = KroneckerCurvature(labels="exact")
    blocks = how.layers(model, layout, theta, both)
    found = how(model, layout, theta.unsqueeze(1), both, blocks, Rng(0))
    part = layout.touched(["b"])
    few = Data(b.x[:, :10], b.y[:, :10], b.source[:, :10], b.sources)
    alone = how(model, part, layout.pick(theta, part).unsqueeze(1), few, (blocks[0], blocks[2]), Rng(0))
    for mine, other in zip(found.pairs[blocks[2]], alone.pairs[blocks[2]], strict=True):
        assert torch.allclose(mine, other, atol=1e-5)
    assert found.pairs[blocks[0]].rows.tolist() == [40.0]


def test_ewc_has_no_prior_in_its_penalty() -> None:
    model, data, theta = mlp_problem()
    prior = model.prior({"h": 3}).to(torch.float64)
    project = KroneckerLaplace(Ascent(5, 6, 1e-2), prior=False)
    first = project.initial(prior)
    delta = prior_precision(model, first, prior)
    assert float(past(first, delta, 1.0, False).pull(theta)) == 0
    q = project(Target(first, model, data, prior), Rng(0))
    gap = past(q, delta, 2.0, True).pull(theta) - past(q, delta, 2.0, False).pull(theta)
    assert torch.allclose(gap, 0.5 * (theta - q.mean).square().sum(1))


def test_dead_inputs_keep_the_prior() -> None:
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), 2, Categorical(), prior_var=0.5)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 0
    data = dataset(x, (x[:, 0] > 0).long(), head="h")
    prior = model.prior({"h": 2})
    project = KroneckerLaplace(Ascent(5, 10, 1e-2))
    q = project(Target(project.initial(prior), model, data, prior), Rng(0))
    theta = q.draw(torch.randn(1, 20_000, q.layout.size, generator=torch.Generator().manual_seed(1)))
    dead = q.layout.split(theta)["trunk.1.weight"][0, :, :, 1]
    assert torch.allclose(dead.var(0), torch.tensor([0.5, 0.5]), rtol=0.05)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"at": "somewhere"}, "somewhere"),
        ({"labels": "fake"}, "fake"),
        ({"rule": "sum"}, "sum"),
        ({"heads": "full"}, "full"),
        ({"sharing": "all"}, "all"),
        ({"samples": 0}, "at least 1"),
        ({"rounds": 0}, "rounds is 0"),
        ({"draws": 0}, "draws is 0"),
        ({"most": 0}, "most is 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(VclError, match=text):
        KroneckerLaplace(curvature=KroneckerCurvature(**settings)).check()


def test_layers_beyond_a_size_are_diagonal() -> None:
    model, data, theta = mlp_problem()
    layout = model.prior({"h": 3}).layout
    blocks = KroneckerCurvature(most=5).layers(model, layout, theta, data)
    assert [block.weight for block in blocks] == ["trunk.1.weight", "heads.h.weight"]


def test_a_belief_cannot_be_cut_within_a_layer() -> None:
    model, data, _ = mlp_problem()
    prior = model.prior({"h": 3}).to(torch.float64)
    project = KroneckerLaplace(Ascent(2, None, 1e-2))
    q = project(Target(project.initial(prior), model, data, prior), Rng(0))
    with pytest.raises(VclError, match="both or neither"):
        q.restrict(q.layout.where(lambda name: name == "trunk.1.bias"))
    one = torch.ones(1, 2, 2).double()
    for name, bad in (("0+1:A", one), ("0+1:Q_G", None), ("99:A", one), ("x:A", one), ("0+1+2:A", one)):
        tensors = {key: value for key, value in q.tensors().items() if key != name}
        with pytest.raises(VclError):
            Kronecker.from_tensors(q.layout, tensors if bad is None else {**tensors, name: bad})


def test_information_that_is_not_finite_is_told_with_its_runs() -> None:
    """In factors, and in the diagonal of what has no rule."""
    model, data, theta = mlp_problem(runs=3)
    prior = model.prior({"h": 3}).to(torch.float64)
    q = Kronecker.from_prior(prior).expand(3)
    delta, how = prior_precision(model, q, prior), KroneckerCurvature("mode", "empirical")
    blocks = how.layers(model, q.layout, theta, data)
    for kept, name in ((blocks, "trunk.3.weight"), (blocks[:1], "trunk.3.weight")):
        found = how(model, q.layout, theta.unsqueeze(1), data, kept, Rng((0, 1, 2)))
        diagonal = found.diagonal.clone()
        if len(kept) > 1:
            found.pairs[blocks[1]].G[1, 0, 0] = torch.inf
        else:
            diagonal[1, q.layout.positions(q.layout.where(lambda each: each == "trunk.3.weight"))] = torch.inf
        with pytest.raises(NonFiniteError, match=f"curvature of '{name}' is not finite") as error:
            gaussian_at(model, theta, q, found._replace(diagonal=diagonal), delta, how, {})
        assert error.value.runs == (1,)


def test_between_blends_each_run_by_itself() -> None:
    """Shapes linearly and scales geometrically; a run whose factor did not change keeps its bits."""
    g = torch.Generator().manual_seed(0)
    old, new = (
        torch.rand(2, 3, 4, 4, generator=g, dtype=torch.float64) * torch.tensor([1.0, 1000.0])[:, None, None, None]
    )
    new[1] = old[1] * (1 + 1e-9)
    rows, block = torch.ones(3).double(), Block("w", None)
    flat = torch.rand(2, 3, 5, generator=g, dtype=torch.float64)
    flat[1, 2] = 0
    both = [Information({block: Pair(A, A + 1, rows)}, d) for A, d in ((old, flat[0]), (new, flat[1]))]
    found = between(*both, 0.25)
    for mine, one, two in (
        (found.pairs[block].A, old, new), (found.pairs[block].G, old + 1, new + 1), (found.diagonal, *flat)
    ):  # fmt: skip
        for run in range(3):
            a, b = one[run].sum(), two[run].sum()
            if run == 1 and mine.dim() == 3:
                assert torch.equal(mine[run], one[run])
            elif float(b) == 0:
                assert torch.allclose(mine[run], 0.75 * one[run])
            else:
                size = (0.75 * a.log() + 0.25 * b.log()).exp()
                assert torch.allclose(mine[run], size * (0.75 * one[run] / a + 0.25 * two[run] / b))
    alone = between(*(Information({}, each.diagonal[1:2]) for each in both), 0.25)
    assert torch.equal(alone.diagonal, found.diagonal[1:2])


class Pieces(nn.Module):
    """A weight that is used by a layer, and once more in parts."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.a, self.way = nn.Linear(3, 3, bias=False), way

    def forward(self, x: Tensor) -> Tensor:
        parts = {"chunk": self.a.weight.chunk(3), "split": self.a.weight.split(1), "unbind": self.a.weight.unbind(0)}
        again = torch.stack([part.flatten() for part in parts[self.way]])
        found: Tensor = torch.tanh(self.a(x)) @ again.mT
        return found


@pytest.mark.parametrize("way", ["chunk", "split", "unbind"])
def test_a_weight_that_is_used_again_in_parts_is_no_layer(way: str) -> None:
    model = Network(Pieces(way), 3, Categorical())
    layout = model.prior({"h": 2}).layout
    data = dataset(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]), head="h")
    blocks = KroneckerCurvature().layers(model, layout, torch.zeros(1, layout.size), data)
    assert [block.weight for block in blocks] == ["heads.h.weight"]


class Sequence(nn.Module):
    """A layer over a sequence in one of several orders of its rows."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.a, self.way = nn.Linear(3, 4), way

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "examples first":
            return torch.tanh(self.a(x)).mean(1)
        if self.way == "sequence first":
            return torch.tanh(self.a(x.transpose(0, 1))).mean(0)
        if self.way == "flat":
            return torch.tanh(self.a(x.reshape(-1, 3))).view(len(x), -1, 4).mean(1)
        if self.way == "flat, sequence first":
            return torch.tanh(self.a(x.transpose(0, 1).reshape(-1, 3))).view(-1, len(x), 4).mean(0)
        if self.way == "four axes":
            return torch.tanh(self.a(x.transpose(0, 1).unsqueeze(0))).mean((0, 1))
        return torch.tanh(self.a(x.mean(0))).mean(0).expand(len(x), 4) + 0 * x.sum((1, 2)).unsqueeze(1)


@pytest.mark.parametrize("way", ["sequence first", "flat", "flat, sequence first", "four axes"])
@pytest.mark.parametrize("length", [5, 6])
def test_reduced_rows_do_not_depend_on_the_order_of_axes(way: str, length: int) -> None:
    """Also where a sequence is as long as there are examples."""
    g = torch.Generator().manual_seed(0)
    data = dataset(torch.randn(6, length, 3, generator=g).double(), torch.arange(6) % 2, head="h")
    found = []
    for each in ("examples first", way):
        model = Network(Sequence(each), 4, Categorical())
        layout = model.prior({"h": 2}).layout
        theta = torch.randn(1, layout.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        how = KroneckerCurvature("mode", "exact", sharing="reduce")
        blocks = how.layers(model, layout, theta, data)
        found.append(how(model, layout, theta.unsqueeze(1), data, blocks, Rng(0)).pairs[blocks[0]])
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two)
    assert found[0].rows.tolist() == [6.0]


def test_reduced_rows_of_attention_are_those_of_each_example() -> None:
    """Also of its output's projection, whose rows are flat; in both orders of axes."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(5, 3, 2, generator=g), torch.arange(5) % 2
    data = dataset(x, y, head="h")
    model = Network(Attention(), 4, Categorical())
    layout = model.prior({"h": 2}).layout
    theta = torch.randn(1, layout.size, generator=g)
    how = KroneckerCurvature("mode", "empirical", sharing="reduce")
    blocks = how.layers(model, layout, theta, data)
    found = how(model, layout, theta.unsqueeze(1), data, blocks, Rng(0)).pairs
    (out,) = (block for block in blocks if "out_proj" in block.weight)
    # The summed gradient of the output's projection is that of its bias.
    one = torch.func.grad(
        lambda params, x, y: model.log_lik(params, Data(x, y, data.source[0, :1], data.sources)).sum()
    )
    params = {name: value[0] for name, value in layout.split(theta).items()}
    each = torch.stack([one(params, x[n : n + 1], y[n : n + 1])[out.bias] for n in range(5)])
    assert torch.allclose(found[out].G[0], each.mT @ each, atol=1e-5)
    assert found[out].rows.tolist() == [5.0]


def test_rows_that_belong_to_no_example_cannot_be_reduced() -> None:
    model = Network(Sequence("mean over examples"), 4, Categorical())
    layout = model.prior({"h": 2}).layout
    data = dataset(torch.randn(6, 5, 3), torch.arange(6) % 2, head="h")
    theta, how = torch.randn(1, layout.size), KroneckerCurvature("mode", sharing="reduce")
    blocks = how.layers(model, layout, theta, data)
    with pytest.raises(VclError, match="so it is not known which rows are an example's; use sharing='expand'"):
        how(model, layout, theta.unsqueeze(1), data, blocks, Rng(0))


class Inner(nn.Module):
    """A layer under a vmap of the module's own, or one that is computed again for its gradient."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.a, self.b, self.way = nn.Linear(3, 4), nn.Linear(4, 4), way

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "vmap":
            return torch.tanh(self.b(torch.vmap(self.a, in_dims=1, out_dims=1)(x).mean(1)))
        found: Tensor = checkpoint(self.b, self.a(x.mean(1)), use_reentrant=False)
        return found


def test_a_layer_within_a_vmap_is_diagonal_and_one_that_is_computed_again_is_refused() -> None:
    data = dataset(torch.randn(8, 5, 3), torch.arange(8) % 2, head="h")
    model = Network(Inner("vmap"), 4, Categorical())
    prior, project = model.prior({"h": 2}), KroneckerLaplace(Ascent(2, None, 1e-2))
    q = project(Target(project.initial(prior), model, data, prior), Rng(0))
    assert [block.weight for block in q.blocks] == ["trunk.b.weight", "heads.h.weight"]
    assert bool((q.layout.split(q.log_var)["trunk.a.weight"] < 0).all())
    model, told = Network(Inner("checkpoint"), 4, Categorical()), list[Any]()
    with pytest.raises(VclError, match=r"cannot be recorded .* such as torch.utils.checkpoint"):
        project(Target(project.initial(prior), model, data, prior), Rng(0), told.append)
    assert not told, "before any work"


class Reordered(nn.Module):
    """Parameters that are registered in another order than they are used, biases first."""

    def __init__(self) -> None:
        super().__init__()
        self.two = nn.Linear(5, 3)
        self.shift = nn.Parameter(torch.zeros(3))
        self.one = nn.Linear(4, 5)
        for layer in (self.one, self.two):
            weight = layer.weight
            del layer.weight
            layer.register_parameter("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.two(torch.tanh(self.one(x.flatten(1)))) + self.shift)


def test_the_order_of_parameters_changes_nothing() -> None:
    model, data, theta = mlp_problem()
    other = Network(Reordered(), 3, Categorical())
    layout, turned = model.prior({"h": 3}).layout, other.prior({"h": 3}).layout
    names = {"trunk.one": "trunk.1", "trunk.two": "trunk.3", "heads.h": "heads.h"}
    assert turned.names.index("trunk.one.bias") < turned.names.index("trunk.one.weight")
    params = layout.split(theta)
    same = {f"{mine}.{kind}": params[f"{its}.{kind}"] for mine, its in names.items() for kind in ("weight", "bias")}
    start = turned.join({**same, "trunk.shift": theta.new_zeros(1, 3)}, lead=1)
    how = KroneckerCurvature("mode", "exact")
    found = []
    for network, at in ((model, theta), (other, start)):
        q = Kronecker.from_prior(network.prior({"h": 3}).to(torch.float64))
        delta = prior_precision(network, q, network.prior({"h": 3}))
        blocks = how.layers(network, q.layout, at, data)
        information = how(network, q.layout, at.unsqueeze(1), data, blocks, Rng(0))
        found.append(gaussian_at(network, at, q, information, delta, how, {}))
    plain, mine = found
    assert len(mine.blocks) == 3
    pairs = {block.weight: factors for block, factors in mine.blocks.items()}
    for block, factors in plain.blocks.items():
        name = next(a for a, b in names.items() if block.weight.startswith(b))
        assert torch.allclose(pairs[f"{name}.weight"].A, factors.A)
        assert torch.allclose(pairs[f"{name}.weight"].G, factors.G)
    saved = Kronecker.from_tensors(mine.layout, mine.tensors())
    shared = turned.where(lambda name: name != "trunk.shift")
    order = torch.cat([
        layout.positions(layout.where(lambda name, name_=name_: name == name_))  # type: ignore[misc]
        for name_ in (name.replace("one", "1").replace("two", "3") for name in shared.names)
    ])  # fmt: skip
    for q in (mine, saved):
        covariance = torch.linalg.inv(dense_precision(q.restrict(shared)))
        assert torch.allclose(covariance, torch.linalg.inv(dense_precision(plain))[order][:, order], atol=1e-9)
