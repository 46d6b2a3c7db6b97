"""The default curvature, lambda and diagonals against plain loops: numbers, not only agreement with itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcl.beliefs.blocks import joined
from vcl.beliefs.information import Information, Pair
from vcl.beliefs.kronecker import Kronecker
from vcl.beliefs.kronecker_fit import InBasis
from vcl.data import Data, concat, dataset
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent, Progress, ascend
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.models import Network
from vcl.models.likelihoods import Categorical
from vcl.ops.layer_weights import Block
from vcl.ops.noise import draw_noise
from vcl.ops.rng import Rng
from vcl.projections import KroneckerLaplace, KroneckerVariational, Target
from vcl.projections.kronecker import gaussian_at, past
from vcl.projections.kronecker_variational import tempered
from vcl.projections.vi import Elbo

N, CLASSES = 7, 3
LAYERS = {"trunk.one": 5, "trunk.two": 4, "heads.h": CLASSES}


class Shifted(nn.Module):
    """A network of tanh with a parameter that has no factors."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.shift = nn.Linear(3, 5), nn.Linear(5, 4), nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.two(torch.tanh(self.one(x))) + self.shift)


def problem(delta: float = 2.0) -> tuple[Network, Data, Kronecker, Tensor]:
    """A model, data, a belief with factors and a diagonal from earlier data, and a theta."""
    g = torch.Generator().manual_seed(0)
    model = Network(Shifted(), 4, Categorical(), prior_var=1 / delta)
    data = dataset(torch.randn(N, 3, generator=g).double(), torch.randint(0, CLASSES, (N,), generator=g), head="h")
    prior = Kronecker.from_prior(model.prior({"h": CLASSES}).to(torch.float64))
    layout = prior.layout
    pairs = {}
    for name, out in LAYERS.items():
        width = layout.split(prior.mean)[f"{name}.weight"][0, 0].numel() + 1
        H, D = (torch.randn(1, 9, n, generator=g, dtype=torch.float64) for n in (width, out))
        pairs[Block(f"{name}.weight", f"{name}.bias")] = Pair(H.mT @ H / 9, D.mT @ D, torch.full((1,), 9.0).double())
    shift = layout.where(lambda name: name == "trunk.shift")
    known = layout.pad(torch.rand(1, 4, generator=g, dtype=torch.float64) + 0.5, shift)
    mean = 0.4 * torch.randn(1, layout.size, generator=g, dtype=torch.float64)
    full, how = torch.full_like(mean, delta), KroneckerCurvature()
    q = gaussian_at(model, mean, prior, Information(pairs, known), full, how, {})
    return model, data, q, mean + 0.3 * torch.randn(1, layout.size, generator=g, dtype=torch.float64)


def fisher(params: dict[str, Tensor], x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """h h^T and E[g g^T] of every layer, and E[g^2] of the shift, for one example, by torch's gradients."""
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    h1 = torch.tanh(F.linear(x, leaves["trunk.one.weight"], leaves["trunk.one.bias"]))
    a2 = F.linear(h1, leaves["trunk.two.weight"], leaves["trunk.two.bias"])
    h2 = torch.tanh(a2 + leaves["trunk.shift"])
    log_p = F.linear(h2, leaves["heads.h.weight"], leaves["heads.h.bias"]).log_softmax(0)
    inputs = dict(zip(LAYERS, (x, h1, h2), strict=True))
    found: dict[str, Any] = {}
    for name, h in inputs.items():
        row = torch.cat([h, h.new_ones(1)]).detach()
        found[name] = [torch.outer(row, row), 0]
    found["trunk.shift"] = [None, 0]
    for label in range(CLASSES):
        weight = log_p[label].exp().detach()
        wanted = [leaves[f"{name}.bias"] for name in LAYERS] + [leaves["trunk.shift"]]
        *gs, on_shift = torch.autograd.grad(log_p[label], wanted, retain_graph=True)
        for name, g in zip(LAYERS, gs, strict=True):
            found[name][1] = found[name][1] + weight * torch.outer(g, g)
        found["trunk.shift"][1] = found["trunk.shift"][1] + weight * on_shift.square()
    return found


def averaged(q: Kronecker, thetas: list[Tensor], x: Tensor) -> dict[str, list[Tensor]]:
    """The mean of h h^T and the sum of g g^T, where theta_s sees every S-th example from the s-th."""
    total: dict[str, list[Any]] = {}
    for s, theta in enumerate(thetas):
        params = {name: value[0] for name, value in q.layout.split(theta.unsqueeze(0)).items()}
        for n in range(s, N, len(thetas)):
            for name, (A, G) in fisher(params, x[n]).items():
                before = total.setdefault(name, [0, 0])
                total[name] = [None if A is None else before[0] + A / N, before[1] + G]
    return total


def blend(x: Tensor, y: Tensor, share: float) -> Tensor:
    """Shapes linearly and sizes, sums of absolute values, geometrically."""
    a, b = x.abs().sum(), y.abs().sum()
    return a ** (1 - share) * b**share * ((1 - share) * x / a + share * y / b)


def test_the_default_curvature_is_a_damped_fixed_point_over_the_way_to_draws_of_the_belief() -> None:
    """Every round, draw, example and label by itself, and draws by symmetric roots of dense covariances."""
    delta, draws, rounds = 2.0, 3, 3
    model, data, previous, theta = problem(delta)
    how = KroneckerCurvature(labels="exact", rounds=rounds, draws=draws)
    project, rng, layout = KroneckerLaplace(curvature=how), Rng(5), previous.layout
    given = torch.full_like(theta, delta)
    blocks = how.layers(model, layout, theta, data)
    q = project.posterior(model, previous, theta, given, data, blocks, rng)

    x = data.x[0]
    found = averaged(previous, [theta[0]], x)
    old = {name: previous.blocks[Block(f"{name}.weight", f"{name}.bias")] for name in LAYERS}
    before = layout.split((-previous.log_var).exp())["trunk.shift"][0]

    def precisions() -> dict[str, Tensor]:
        """A of all rows, G of all data, and the prior; rows of W follow each other."""
        made = {"trunk.shift": torch.diag(before + found["trunk.shift"][1])}
        for name in LAYERS:
            A = (9 * old[name].A[0] + N * found[name][0]) / (9 + N)
            G = old[name].G[0] + found[name][1]
            made[name] = torch.kron(G, A) + delta * torch.eye(len(A) * len(G)).double()
        return made

    for number in range(1, rounds + 1):
        at = rng.at("round", number)
        noise = draw_noise(draws * layout.size, at.at("theta").generators(theta.device), theta).view(draws, -1)
        thetas = []
        for s in range(draws):
            eps, moved = layout.split(noise[s : s + 1] * (s + 0.5) / draws), layout.split(theta.clone())
            for name, precision in precisions().items():
                values, vectors = torch.linalg.eigh(precision)
                root = (vectors * values.rsqrt()) @ vectors.mT
                if name == "trunk.shift":
                    moved[name] = moved[name] + root @ eps[name][0]
                    continue
                block = Block(f"{name}.weight", f"{name}.bias")
                drawn = (root @ joined(eps, block, 1)[0].flatten()).view(LAYERS[name], -1)
                moved[block.weight] = moved[block.weight] + drawn[:, :-1]
                moved[f"{name}.bias"] = moved[f"{name}.bias"] + drawn[:, -1]
            thetas.append(layout.join(moved, lead=1)[0])
        now, share = averaged(previous, thetas, x), 1 / (1 + number)
        for name, (A, G) in found.items():
            # A of the first layer depends on no draw.
            A_now = A if name in ("trunk.one", "trunk.shift") else blend(A, now[name][0], share)
            found[name] = [A_now, blend(G, now[name][1], share)]

    assert torch.equal(q.mean, theta)
    precision = {name: value for name, value in precisions().items() if name in LAYERS}
    for name, wanted in precision.items():
        block = Block(f"{name}.weight", f"{name}.bias")
        factors, V = q.blocks[block], joined(layout.split(q.log_var), block, 1)[0].exp()
        turn = torch.kron(factors.Q_G[0], factors.Q_A[0])
        assert torch.allclose(turn @ torch.diag(1 / V.flatten()) @ turn.mT, wanted, rtol=1e-8, atol=1e-8)
        assert factors.rows.tolist() == [9.0 + N]
    shift = layout.split(q.log_var)["trunk.shift"][0]
    assert torch.allclose((-shift).exp(), before + found["trunk.shift"][1], rtol=1e-9)


def test_a_sample_of_the_examples_stands_for_all() -> None:
    """G, the number of rows and the diagonal are N / n times those of the n examples; A is a mean."""
    model, data, q, theta = problem()
    all_of_them = KroneckerCurvature("mode", "exact")
    part = KroneckerCurvature("mode", "exact", samples=4)
    blocks = part.layers(model, q.layout, theta, data)
    chosen = Rng(3).at("samples").per_run(lambda g: torch.randperm(N, generator=g)[:4])[0]
    few = Data(data.x[:, chosen], data.y[:, chosen], data.source[:, chosen], data.sources)
    found = part(model, q.layout, theta.unsqueeze(1), data, blocks, Rng(3))
    alone = all_of_them(model, q.layout, theta.unsqueeze(1), few, blocks, Rng(3))
    for block, pair in found.pairs.items():
        assert torch.allclose(pair.A, alone.pairs[block].A, rtol=1e-12)
        assert torch.allclose(pair.G, alone.pairs[block].G * N / 4, rtol=1e-12)
        assert pair.rows.tolist() == [float(N)]
    assert torch.allclose(found.diagonal, alone.diagonal * N / 4, rtol=1e-12)
    assert bool(found.diagonal.any())


@pytest.mark.parametrize("prior", [True, False])
def test_lambda_weights_factors_and_diagonal_of_the_past_alike(prior: bool) -> None:
    delta, lam = 2.0, 0.3
    _, _, q, theta = problem(delta)
    found = past(q, torch.full_like(theta, delta), lam, prior).pull(theta)
    shift, total = q.layout.split(theta - q.mean), 0.0
    for block, factors in q.blocks.items():
        W = joined(shift, block, 1)[0]
        total += 0.5 * lam * float(torch.trace(W.mT @ factors.G[0] @ W @ factors.A[0]))
    known = (-q.layout.split(q.log_var)["trunk.shift"][0]).exp() - delta
    assert float(known.min()) > 0.4
    total += 0.5 * lam * float((known * shift["trunk.shift"][0].square()).sum())
    total += 0.5 * delta * float((theta - q.mean).square().sum()) if prior else 0.0
    assert float(found) == pytest.approx(total, rel=1e-10)


def test_the_diagonal_of_earlier_tasks_stays() -> None:
    model, data, q, _ = problem()
    project = KroneckerLaplace(Ascent(2, None, 1e-2), curvature=KroneckerCurvature("mode", "exact"))
    after = project(Target(q, model, data, model.prior({"h": CLASSES}).to(torch.float64)), Rng(0))
    params = {name: value[0] for name, value in q.layout.split(after.mean).items()}
    new = sum(fisher(params, x)["trunk.shift"][1] for x in data.x[0])
    before, now = ((-each.layout.split(each.log_var)["trunk.shift"][0]).exp() for each in (q, after))
    assert torch.allclose(now, before + new, rtol=1e-9)


def test_the_variational_fit_is_held_by_the_tempered_belief() -> None:
    """Its last KL, layer by layer, is that to the tempered q_{t-1}, and not to q_{t-1}."""
    model, data, q, _ = problem()
    prior = model.prior({"h": CLASSES}).to(torch.float64)
    laplace = KroneckerLaplace(Ascent(2, None, 1e-2), lam=0.2, curvature=KroneckerCurvature("mode", "exact"))
    project, told = KroneckerVariational(laplace, Ascent(1, None, 1e-2), estimator="weights"), list[Progress]()
    end = project(Target(q, model, data, prior), Rng(0), told.append)
    health = told[-1].health
    assert health is not None
    whole = torch.stack([*health.kl.values()]).sum()

    def covariance(each: Kronecker) -> Tensor:
        columns = each._replace(mean=torch.zeros_like(each.mean)).draw(torch.eye(each.layout.size).double()[None])[0]
        return columns.mT @ columns

    values = []
    for before in (tempered(q, model, prior, 0.2), q):
        precision, S, shift = torch.linalg.inv(covariance(before)), covariance(end), (end.mean - before.mean)[0]
        value = (precision * S).sum() + shift @ precision @ shift - q.layout.size - precision.logdet() - S.logdet()
        values.append(float(0.5 * value))
    assert float(whole) == pytest.approx(values[0], rel=1e-8)
    assert float(whole) != pytest.approx(values[1], rel=0.05)


def test_natural_steps_move_the_log_variances_of_z() -> None:
    """log V itself is optimised, so a step of natural gradients in log V has scale 1."""
    model, data, q, _ = problem()
    prior, natural = model.prior({"h": CLASSES}).to(torch.float64), NaturalGradient(forget=2.0)
    laplace = KroneckerLaplace(Ascent(2, None, 1e-2), curvature=KroneckerCurvature("mode", "exact"))
    how = Ascent(1, None, 1e-2)
    end = KroneckerVariational(laplace, how, estimator="weights", natural=natural)(
        Target(q, model, data, prior), Rng(0)
    )
    start = laplace(Target(q, model, data, prior), Rng(0))
    elbo = Elbo(model, InBasis(q, start.blocks), 1, "weights")  # type: ignore[arg-type]
    gradients: list[Tensor] = []

    class Kept:
        """Takes the gradient of the one step."""

        def __init__(self, parameters: Any, lr: float) -> None:
            del parameters, lr

        def rate(self, lr: float) -> None:
            del lr

        def step(self, given: tuple[Tensor, ...]) -> None:
            gradients.append(given[1].clone())

    ascend(elbo, elbo.parameters(start), data, how, Rng(0).at("variational"), optimiser=Kept)
    u = -2 * natural.rates(0, 1).rho * gradients[0]
    before, after = elbo.parameters(start)[1], elbo.parameters(end)[1]
    assert torch.allclose(after, before - (1 + u + u**2 / 2).log(), rtol=1e-9)
    assert float((after - before).abs().max()) > 0.1


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_examples_are_scored_by_their_own_head_alone(estimator: Any) -> None:
    """With variances of nearly 0 the bound is the log-likelihood at the mean, less the KL."""
    g = torch.Generator().manual_seed(0)
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh())
    model, heads = Network(trunk, 5, Categorical()), {"a": 2, "b": 5}
    data = concat(
        dataset(torch.randn(7, 4, generator=g).double(), torch.arange(7) % 2, "a", "a"),
        dataset(torch.randn(6, 4, generator=g).double(), torch.arange(6) % 5, "b", "b"),
    )
    prior = Kronecker.from_prior(model.prior(heads).to(torch.float64))
    mean = torch.randn(1, prior.layout.size, generator=g, dtype=torch.float64)
    elbo = Elbo(model, InBasis(prior, {}), 2, estimator)  # type: ignore[arg-type]
    at = (mean, torch.full_like(mean, -60.0))
    noise = torch.randn(1, elbo.noise(data), generator=g, dtype=torch.float64)
    params = {name: value[0] for name, value in prior.layout.split(mean).items()}
    one = Data(data.x[0], data.y[0], data.source[0], data.sources)
    kl = 0.5 * (prior.layout.size * 59 + mean.square().sum())
    exact = 2 * model.log_lik(params, one).sum() - kl
    assert float(elbo.gradient(at, data, 26, noise).value) == pytest.approx(float(exact), rel=1e-10)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(2, 1, 1), (3, 2, 1), (1, 0, 2), (1, "same", 2)])
def test_convolutions_have_the_rows_of_their_windows(flat: bool, stride: int, padding: Any, dilation: int) -> None:
    """A against windows that are cut out one by one, of conv1d and conv2d."""
    g = torch.Generator().manual_seed(0)
    kind = nn.Conv1d if flat else nn.Conv2d
    layer = kind(2, 3, 3, stride=stride, padding=padding, dilation=dilation)
    shape = (7,) if flat else (7, 6)
    x = torch.randn(4, 2, *shape, generator=g, dtype=torch.float64)
    trunk = nn.Sequential(layer, nn.Flatten())
    model = Network(trunk, trunk(x.float()).shape[1], Categorical())
    layout = model.prior({"h": 2}).layout
    theta = 0.3 * torch.randn(1, layout.size, generator=g, dtype=torch.float64)
    data, how = dataset(x, torch.arange(4) % 2, head="h"), KroneckerCurvature("mode", "empirical")
    blocks = how.layers(model, layout, theta, data)
    pair = how(model, layout, theta.unsqueeze(1), data, blocks, Rng(0)).pairs[blocks[0]]
    around = dilation if padding == "same" else padding
    padded, reach, rows = F.pad(x, (around, around) * len(shape)), 2 * dilation + 1, []
    starts = [range(0, size + 2 * around - reach + 1, stride) for size in shape]
    for image in padded:
        for i in starts[0]:
            for j in starts[1] if not flat else [0]:
                cut = image[:, i : i + reach : dilation]
                rows.append(cut if flat else cut[:, :, j : j + reach : dilation])
    h = torch.cat([torch.stack(rows).flatten(1), torch.ones(len(rows), 1)], 1)
    assert torch.allclose(pair.A[0], h.mT @ h / len(h))
    assert pair.rows.tolist() == [len(rows)]


def test_a_convolution_of_several_groups_is_diagonal() -> None:
    trunk = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.Flatten())
    model = Network(trunk, 64, Categorical())
    layout = model.prior({"h": 2}).layout
    data = dataset(torch.randn(4, 2, 6, 6), torch.arange(4) % 2, head="h")
    blocks = KroneckerCurvature().layers(model, layout, torch.zeros(1, layout.size), data)
    assert [block.weight for block in blocks] == ["heads.h.weight"]


@pytest.mark.parametrize("rule", ["mean", "nearest"])
def test_a_later_round_keeps_nothing_that_its_own_factors_change(rule: Any) -> None:
    """A_t of a first layer is the same in each round, and with the rule ``nearest`` A depends on G_t too."""
    model, _, q, theta = problem()
    g, delta, how = torch.Generator().manual_seed(1), torch.full_like(q.mean, 2.0), KroneckerCurvature(rule=rule)
    pairs, others = {}, {}
    for block, old in q.blocks.items():
        H, *D = (torch.randn(1, 9, part.shape[-1], generator=g).double() for part in (old.A, old.G, old.G))
        rows, A = old.rows, H.mT @ H
        pairs[block], others[block] = (Pair(A, 5.0**k * d.mT @ d, rows) for k, d in enumerate(D))
    known: Any = {}
    none = torch.zeros_like(q.mean)
    gaussian_at(model, theta, q, Information(pairs, none), delta, how, known)
    later = gaussian_at(model, theta, q, Information(others, none), delta, how, known)
    alone = gaussian_at(model, theta, q, Information(others, none), delta, how, {})
    assert torch.equal(later.log_var, alone.log_var)
    assert all(torch.equal(later.blocks[block].A, alone.blocks[block].A) for block in q.blocks)
