"""The variational fit of a Kronecker-factored Gaussian: KL, gradients, exact posteriors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vcl.beliefs.belief import Roles
from vcl.beliefs.blocks import joined
from vcl.beliefs.kronecker import Factors, Kronecker
from vcl.beliefs.kronecker_fit import InBasis, KroneckerFit
from vcl.beliefs.layout import Layout
from vcl.data import Data, concat, dataset
from vcl.engines.bound import DrawnBound
from vcl.engines.general import General
from vcl.engines.rotated_bound import RotatedBound
from vcl.errors import VclError
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent, Progress
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.fitting.step import by_autograd
from vcl.models import Network
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops.layer_weights import Block
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import KroneckerLaplace, KroneckerVariational, Target
from vcl.projections.kronecker_variational import tempered
from vcl.projections.vi import Elbo

RUNS = 2
NONE = Layout((), ())


def network() -> Network:
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.Tanh())
    return Network(trunk, 3, Categorical())


def random_belief(layout: Layout, g: torch.Generator, blocks: bool = True, head: bool = True) -> Kronecker:
    """Random means, variances and rotations; without ``head`` the head is diagonal."""

    def turn(n: int) -> Tensor:
        return torch.linalg.qr(torch.randn(RUNS, n, n, generator=g, dtype=torch.float64)).Q

    made: dict[Block, Factors] = {}
    shapes = dict(zip(*layout, strict=True))
    for weight in (name for name in layout.names if name.endswith("weight")):
        if blocks and (head or not weight.startswith("heads")):
            out, width = shapes[weight]
            eye = torch.ones(RUNS).double()
            A, G = turn(width + 1), turn(out)
            made[Block(weight, weight.replace("weight", "bias"))] = Factors(A, G, eye, A, G)
    return Kronecker(layout, *torch.randn(2, RUNS, layout.size, generator=g, dtype=torch.float64), made)


def dense(q: Kronecker) -> Tensor:
    """The covariance of every run [R, D, D]."""
    eye = torch.eye(q.layout.size, dtype=torch.float64).expand(RUNS, -1, -1)
    columns = q._replace(mean=torch.zeros_like(q.mean)).draw(eye)
    return columns.mT @ columns


@pytest.mark.parametrize("before", ["prior", "diagonal", "kronecker"])
@pytest.mark.parametrize("climbs", ["log_var", "log_sd"])
@pytest.mark.parametrize("head", [True, False])
def test_the_kl_is_that_of_dense_gaussians_in_any_two_bases(before: str, climbs: str, head: bool) -> None:
    g = torch.Generator().manual_seed(0)
    layout = network().prior({"h": 3}).layout
    q, p = random_belief(layout, g, head=head), random_belief(layout, g, before == "kronecker", head)
    if before == "prior":
        p = p._replace(log_var=torch.full_like(p.log_var, -0.7))
    fit = KroneckerFit(p, q.blocks, Roles(layout, layout, NONE), climbs)
    parameters = fit.parameters(q)
    cov_q, cov_p, shift = dense(q), dense(p), q.mean - p.mean
    precision = torch.linalg.inv(cov_p)
    trace = (precision * cov_q).sum((1, 2))
    quadratic = torch.einsum("ri,rij,rj->r", shift, precision, shift)
    exact = 0.5 * (trace + quadratic - layout.size + cov_p.logdet() - cov_q.logdet())
    assert torch.allclose(fit.kl(parameters), exact, rtol=1e-9)
    leaves = tuple(part.clone().requires_grad_() for part in parameters)
    slopes = torch.autograd.grad(fit.kl(leaves).sum(), leaves)
    g_mean, g_log = torch.zeros_like(q.mean), torch.zeros_like(q.mean)
    value = fit.subtract_kl(parameters[0], fit.log_var(parameters[1]), g_mean, g_log, None, slice(0, RUNS))
    assert torch.allclose(value, exact, rtol=1e-9)
    assert torch.allclose(g_mean, -slopes[0], rtol=1e-9, atol=1e-10)
    assert torch.allclose(g_log * fit.scale, -slopes[1], rtol=1e-9, atol=1e-10)
    back = fit.belief(parameters)
    assert torch.allclose(back.mean, q.mean)
    assert torch.allclose(back.log_var, q.log_var)
    noise = torch.randn(RUNS, 3, layout.size, generator=g, dtype=torch.float64)
    drawn = fit.draw(parameters, noise)
    residual = (drawn - q.mean.unsqueeze(1)).double()
    whitened = torch.einsum("rsi,rij,rsj->rs", residual, torch.linalg.inv(cov_q), residual)
    assert torch.allclose(whitened, noise.square().sum(2))  # a rotation of white noise


def problem(draws: int, estimator: Any, head: bool = True) -> tuple[Elbo, Kronecker, Data, torch.Generator]:
    g = torch.Generator().manual_seed(1)
    model = network()
    layout = model.prior({"h": 3}).layout
    q, p = random_belief(layout, g, head=head), random_belief(layout, g, head=head)
    x = torch.randn(7, 4, generator=g, dtype=torch.float64)
    data = dataset(x, torch.randint(0, 3, (7,), generator=g), head="h", runs=RUNS)
    return Elbo(model, InBasis(p, q.blocks), draws, estimator), q, data, g  # type: ignore[arg-type]


@pytest.mark.parametrize("draws", [1, 3])
def test_drawn_weights_have_torchs_gradient(draws: int) -> None:
    elbo, q, data, g = problem(draws, "weights")
    assert isinstance(elbo.bound(data), DrawnBound)
    noise = torch.randn(RUNS, elbo.noise(data), generator=g, dtype=torch.float64)
    ours = elbo.gradient(elbo.parameters(q), data, 50, noise)
    torchs = by_autograd(elbo, elbo.parameters(q), data, 50, noise)
    assert torch.allclose(ours.value, torchs.value, rtol=1e-10)
    for mine, other in zip(ours.gradients, torchs.gradients, strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("head", [True, False])
def test_local_reparameterisation_is_exact_between_rotations(head: bool) -> None:
    """Value and gradient of many draws of units are those of many drawn weights, within Monte Carlo errors."""
    draws, repeats = 400, 40
    found = {}
    for kind in ("weights", "local"):
        elbo, q, data, g = problem(draws, "local", head)
        at = elbo.parameters(q)
        bound: Any = elbo.bound(data)
        assert isinstance(bound, RotatedBound)
        if kind == "weights":
            bound = DrawnBound(General(elbo.model, elbo.layout), elbo.fit, draws, 0)
        values = []
        for _ in range(repeats):
            noise = torch.randn(RUNS, draws * bound.noise(data), generator=g, dtype=torch.float64)
            value, gradients = bound.gradient(at, data, 7, noise)
            values.append(torch.cat([value.unsqueeze(1), *(part.clone() for part in gradients)], 1))
        found[kind] = torch.stack(values)
    gap = found["weights"].mean(0) - found["local"].mean(0)
    error = ((found["weights"].var(0) + found["local"].var(0)) / repeats).sqrt()
    z = gap / error.clamp(min=1e-9)
    assert float(z.abs().max()) < 5.5  # among 230 numbers
    assert float(z.square().mean()) < 1.5


def test_a_linear_model_reaches_its_exact_posterior_over_two_tasks() -> None:
    g = torch.Generator().manual_seed(1)
    model = Network(nn.Flatten(), 3, Normal(0.5), 2.0)
    prior = model.prior({"h": 2}).to(torch.float64)
    laplace = KroneckerLaplace(
        Ascent(1500, None, 0.05, "cosine"), curvature=KroneckerCurvature("mode", "exact"), init="normal"
    )  # fmt: skip
    project = KroneckerVariational(laplace, Ascent(1500, None, 0.01, "cosine", 0.3), draws=8)
    q, rows, targets = project.initial(prior), [], []
    for t in range(2):
        x = torch.randn(12, 3, generator=g, dtype=torch.float64)
        y = x @ torch.randn(3, 2, generator=g).double() + 0.5 * torch.randn(12, 2, generator=g).double()
        q = project(Target(q, model, dataset(x, y, head="h"), prior), Rng(0).at(t))
        rows.append(torch.cat([x, torch.ones(12, 1)], 1))
        targets.append(y)
    X, Y = torch.cat(rows), torch.cat(targets)
    A = X.T @ X / 0.25 + torch.eye(4) / 2
    W = torch.linalg.solve(A, X.T @ Y / 0.25).T
    deviations = torch.linalg.inv(A).diagonal().sqrt()
    found = joined(q.layout.split(q.mean), Block("heads.h.weight", "heads.h.bias"), 1)[0]
    assert float(((found - W) / deviations).abs().max()) < 0.1
    columns = q._replace(mean=torch.zeros_like(q.mean)).draw(torch.eye(8, dtype=torch.float64).unsqueeze(0))[0]
    order = torch.tensor([0, 1, 2, 6, 3, 4, 5, 7])
    covariance = (columns.T @ columns)[order][:, order]
    exact = torch.block_diag(torch.linalg.inv(A), torch.linalg.inv(A))
    scale = exact.diagonal().sqrt()
    assert float(((covariance - exact) / torch.outer(scale, scale)).abs().max()) < 0.1


def test_lambda_tempers_data_and_keeps_the_prior() -> None:
    model = network()
    prior = model.prior({"h": 3}).to(torch.float64)
    g = torch.Generator().manual_seed(3)
    q = random_belief(prior.layout, g)
    q = q._replace(log_var=-q.log_var.abs())  # no variance above the prior's
    assert tempered(q, model, prior, 1.0) is q
    half = tempered(q, model, prior, (0.5, 0.0))
    assert torch.allclose((-half.log_var[0]).exp(), 0.5 * ((-q.log_var[0]).exp() - 1) + 1)
    assert torch.allclose(half.log_var[1], torch.zeros(1).double())
    wide = q._replace(log_var=q.log_var + 1)  # some variances are above the prior's
    both = tempered(wide, model, prior, (1.0, 0.5))
    assert torch.equal(both.log_var[0], wide.log_var[0]), "lambda = 1 in a stack is lambda = 1 alone"
    assert float(both.log_var[1].max()) <= 0


def test_it_forgets_less_than_the_start_of_its_fit_by_its_own_bound() -> None:
    """The variational fit raises L(q) above that of Laplace propagation."""
    g = torch.Generator().manual_seed(0)
    model = network()
    prior = model.prior({"h": 3})
    x = torch.randn(60, 4, generator=g)
    data = dataset(x, x[:, :3].argmax(1), head="h", runs=RUNS)
    laplace = KroneckerLaplace(Ascent(100, 30, 1e-2, "cosine"))
    project = KroneckerVariational(laplace, Ascent(100, 30, 1e-2, "cosine"))
    start = laplace(Target(laplace.initial(prior).expand(RUNS), model, data, prior), Rng((0, 1)))
    end = project(Target(project.initial(prior).expand(RUNS), model, data, prior), Rng((0, 1)))
    elbo = Elbo(model, InBasis(project.initial(prior).expand(RUNS), start.blocks), 2000, "local")  # type: ignore[arg-type]
    noise = torch.randn(RUNS, elbo.noise(data), generator=g)
    values = [elbo.gradient(elbo.parameters(q), data, 60, noise).value.clone() for q in (start, end)]
    assert bool((values[1] > values[0]).all())


def test_the_kl_of_each_layer_is_that_of_its_marginal() -> None:
    g = torch.Generator().manual_seed(8)
    layout = network().prior({"h": 3}).layout
    q, p = random_belief(layout, g, head=False), random_belief(layout, g, head=False)
    fit = KroneckerFit(p, q.blocks, Roles(layout, layout, NONE))
    found = fit.kl_by_tensor(fit.parameters(q))
    assert list(found) == ["trunk.1.weight", "trunk.3.weight", "heads.h.weight", "heads.h.bias"]
    for name, value in found.items():
        names = {name} if name.startswith("heads") else {name, name.replace("weight", "bias")}
        part = layout.where(lambda each, names=names: each in names)  # type: ignore[misc]
        one, two = q.restrict(part), p.restrict(part)
        precision, shift = torch.linalg.inv(dense(two)), one.mean - two.mean
        trace = (precision * dense(one)).sum((1, 2))
        quadratic = torch.einsum("ri,rij,rj->r", shift, precision, shift)
        exact = 0.5 * (trace + quadratic - part.size + dense(two).logdet() - dense(one).logdet())
        assert torch.allclose(value, exact, rtol=1e-9)


def test_the_standard_deviations_are_those_of_the_weights() -> None:
    g = torch.Generator().manual_seed(8)
    layout = network().prior({"h": 3}).layout
    q, p = random_belief(layout, g, head=False), random_belief(layout, g, head=False)
    for climbs in ("log_var", "log_sd"):
        fit = KroneckerFit(p, q.blocks, Roles(layout, layout, NONE), climbs)
        found = fit.sd_by_tensor(fit.parameters(q))
        exact = layout.split(dense(q).diagonal(dim1=1, dim2=2).sqrt())
        assert list(found) == list(exact)
        for name, value in found.items():
            assert torch.allclose(value, exact[name].flatten(1).mean(1), rtol=1e-9)


@pytest.mark.parametrize("natural", [None, NaturalGradient(forget=0.2)])
def test_a_fit_tells_how_far_it_got(natural: NaturalGradient | None) -> None:
    """Log variances against those of Laplace propagation, where the fit starts; natural steps limit only growth."""
    g = torch.Generator().manual_seed(0)
    model, told = network(), list[Progress]()
    x = torch.randn(40, 4, generator=g)
    data = dataset(x, x[:, :3].argmax(1), head="h", runs=RUNS)
    prior = model.prior({"h": 3})
    laplace = KroneckerLaplace(Ascent(30, 20, 1e-2, "cosine"))
    project = KroneckerVariational(laplace, Ascent(2, None, 1e-3), natural=natural)
    first = project.initial(prior).expand(RUNS)
    start = laplace(Target(first, model, data, prior), Rng((0, 1)))
    q = project(Target(first, model, data, prior), Rng((0, 1)), told.append)
    told = [each for each in told if each.what == "variational fit"]
    assert [each.health is None for each in told] == [True, False]
    health = told[-1].health
    assert health is not None
    moved = q.log_var - start.log_var
    reach = 2e-3 if natural is None else natural.reach(2)
    assert health.reach == pytest.approx(reach)
    far = (moved.abs() if natural is None else moved) >= 0.9 * reach
    assert torch.allclose(health.limited, far.float().mean(1))
    assert bool(far.any())
    assert health.growth == (natural is not None)
    assert list(health.kl) == ["trunk.1.weight", "trunk.3.weight", "heads.h.weight"]
    fit = KroneckerFit(first, q.blocks, Roles(q.layout, q.layout, NONE))
    total = torch.stack([*health.kl.values()]).sum(0)
    assert torch.allclose(total, fit.kl(fit.parameters(q)), rtol=1e-4)
    sds = fit.sd_by_tensor(fit.parameters(q))
    assert all(torch.allclose(value, sds[name], rtol=1e-4) for name, value in health.sd.items())
    assert list(health.sd) == list(q.layout.names)
    assert not health.pruned


def test_it_needs_a_posterior_over_every_parameter() -> None:
    layout = network().prior({"h": 3}).layout
    q = random_belief(layout, torch.Generator().manual_seed(0))
    with pytest.raises(VclError, match="mean-field"):
        KroneckerFit(q, q.blocks, Roles(layout.touched([]), layout, NONE))
    few = {block: factors for block, factors in q.blocks.items() if not block.weight.startswith("heads")}
    with pytest.raises(VclError, match="has factors of"):
        KroneckerFit(q, few, Roles(layout, layout, NONE))
    with pytest.raises(VclError, match="climbs"):
        KroneckerFit(q, q.blocks, Roles(layout, layout, NONE), "sd")
    with pytest.raises(VclError, match="draws is 0"):
        KroneckerVariational(draws=0).check()
    with pytest.raises(VclError, match="estimator"):
        KroneckerVariational(estimator="other").check()  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [True, False])
def test_local_prediction_equals_drawn_weights(bias: bool) -> None:
    """Averages over many draws of units and of weights agree within Monte Carlo errors."""
    g = torch.Generator().manual_seed(2)
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 5, bias=bias), nn.ReLU()), 5, Categorical())
    layout = model.prior({"h": 3}).layout
    blocks = {}
    first = Block("trunk.1.weight", "trunk.1.bias" if bias else None)
    for block, out, width in ((first, 5, 4 + bias), (Block("heads.h.weight", "heads.h.bias"), 3, 6)):
        A, G = (torch.linalg.qr(torch.randn(RUNS, n, n, generator=g, dtype=torch.float64)).Q for n in (width, out))
        blocks[block] = Factors(A, G, torch.ones(RUNS).double(), A, G)
    q = Kronecker(layout, *torch.randn(2, RUNS, layout.size, generator=g, dtype=torch.float64), blocks)
    x = torch.randn(RUNS, 6, 4, generator=g, dtype=torch.float64)
    one, two = (predict(q, model, x, "h", Rng((0, 1)), 40_000, how) for how in ("local", "weights"))  # type: ignore[arg-type]
    assert torch.allclose(one, two, atol=0.012)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("heads", [("h",), ("h", "k")])
def test_the_explicit_gradient_is_torchs(heads: tuple[str, ...], head: bool) -> None:
    """Also where a batch has examples of two heads."""
    g = torch.Generator().manual_seed(4)
    model = network()
    layout = model.prior(dict.fromkeys(heads, 3)).layout
    q, p = random_belief(layout, g, head=head), random_belief(layout, g, head=head)
    parts = [
        dataset(torch.randn(4, 4, generator=g).double(), torch.tensor([0, 1, 2, 1]), f"t{h}", h, RUNS) for h in heads
    ]
    data = parts[0] if len(parts) == 1 else concat(*parts)
    elbo = Elbo(model, InBasis(p, q.blocks), 3, "local")  # type: ignore[arg-type]
    bound, at = elbo.bound(data), elbo.parameters(q)
    assert isinstance(bound, RotatedBound)
    noise = torch.randn(RUNS, elbo.noise(data), generator=g, dtype=torch.float64)
    leaves = tuple(part.clone().requires_grad_() for part in at)
    value = bound.value(leaves, data, 20, noise)
    slopes = torch.autograd.grad(value.sum(), leaves)
    ours, gradients = bound.gradient(at, data, 20, noise)
    assert torch.allclose(ours, value, rtol=1e-10)
    for mine, other in zip(gradients, slopes, strict=True):
        assert torch.allclose(mine, other, rtol=1e-8, atol=1e-10)


def test_stacked_runs_equal_runs_alone() -> None:
    g = torch.Generator().manual_seed(5)
    x = torch.randn(40, 4, generator=g)
    y = x[:, :3].argmax(1)
    model, found = network(), []
    prior = model.prior({"h": 3})
    for seeds in ((0, 1), (1,)):
        laplace = KroneckerLaplace(Ascent(3, 10, 1e-2), lam=(0.5, 2.0) if len(seeds) == 2 else (2.0,))
        project = KroneckerVariational(laplace, Ascent(3, 10, 1e-2))
        q = project.initial(prior).expand(len(seeds))
        for t in range(2):
            q = project(Target(q, model, dataset(x, y, head="h", runs=len(seeds)), prior), Rng(seeds).at(t))
        found.append(q)
    both, alone = found
    for name, value in alone.tensors().items():
        assert torch.equal(both.tensors()[name][1:], value), name
    chosen = KroneckerVariational(KroneckerLaplace(lam=(0.5, 2.0))).select([1])
    assert chosen.lam == (2.0,)


def turned(q: Kronecker, g: torch.Generator) -> Kronecker:
    """The same belief with other eigenvectors: other signs, and another basis of a space in which V is the same."""
    found = {}
    for block, factors in q.blocks.items():
        Q_A, Q_G = factors.Q_A.clone(), factors.Q_G.clone()
        for Q in (Q_A, Q_G):
            Q *= torch.randint(0, 2, Q[:, :1].shape, generator=g) * 2 - 1
        turn = torch.linalg.qr(torch.randn(RUNS, 2, 2, generator=g, dtype=torch.float64)).Q
        Q_A[:, :, :2] = Q_A[:, :, :2] @ turn
        found[block] = factors._replace(Q_A=Q_A, Q_G=Q_G)
    return q._replace(blocks=found)


def with_an_empty_space(q: Kronecker) -> Kronecker:
    """V is the same for the first two directions of a layer's inputs."""
    log_vars = q.layout.split(q.log_var)
    for block in q.blocks:
        log_vars[block.weight] = log_vars[block.weight].clone()
        log_vars[block.weight][:, :, 1] = log_vars[block.weight][:, :, 0]
    return q._replace(log_var=q.layout.join(log_vars, lead=1))


def test_draws_do_not_depend_on_the_choice_of_eigenvectors() -> None:
    g = torch.Generator().manual_seed(6)
    model = network()
    prior = model.prior({"h": 3}).to(torch.float64)
    q = with_an_empty_space(random_belief(prior.layout, g))
    other = turned(q, g)
    noise = torch.randn(RUNS, 3, q.layout.size, generator=g, dtype=torch.float64)
    assert torch.allclose(q.draw(noise), other.draw(noise), rtol=0, atol=1e-11)
    data = dataset(torch.randn(7, 4, generator=g).double(), torch.randint(0, 3, (7,), generator=g), head="h", runs=RUNS)
    first = Kronecker.from_prior(prior).expand(RUNS)
    for estimator in ("weights", "local"):
        values = []
        for each in (q, other):
            elbo = Elbo(model, InBasis(first, each.blocks), 2, estimator)  # type: ignore[arg-type]
            noise = torch.randn(RUNS, elbo.noise(data), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            values.append(elbo.gradient(elbo.parameters(each), data, 7, noise).value)
        assert torch.allclose(*values, rtol=1e-11)
    x = torch.randn(RUNS, 6, 4, generator=g, dtype=torch.float64)
    one, two = (predict(each, model, x, "h", Rng((0, 1)), 3, "local") for each in (q, other))
    assert torch.allclose(one, two, rtol=0, atol=1e-11)
