"""Appendix F: linear regression one example at a time, against the exact posterior and the lower bound."""

import pytest
import torch
from torch import Tensor

from made import blob_tasks, linear_data, small_network
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data, dataset
from vcl.errors import VclError
from vcl.models import LinearGaussian
from vcl.ops.rng import Rng
from vcl.projections import Exact, OnlineLinear, Target
from vcl.projections.online_linear import UPDATE_RULES, UpdateRule, laplace_update, unit_norm_update, variational_update

MODEL = LinearGaussian(inputs=4, noise=0.5, prior_var=2.0)
D = 20


def learned(rule: UpdateRule, data: Data, model: LinearGaussian = MODEL, q: MeanField | None = None) -> MeanField:
    prior = model.prior({}).to(torch.float64)
    return OnlineLinear(rule)(Target(prior.expand(data.runs) if q is None else q, model, data, prior), Rng((0,)))


def some_belief(runs: int = 1) -> MeanField:
    """Unequal means and variances, in float64."""
    g = torch.Generator().manual_seed(3)
    mean, log_var = torch.randn(2, runs, 4, generator=g, dtype=torch.float64)
    return MeanField(MODEL.prior({}).layout, mean, log_var)


def patterns(steps: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random x with entries +-1/sqrt(D) [steps, D] and outcomes y = +-1 [steps]."""
    signs = 2 * torch.randint(2, (steps, D + 1), generator=torch.Generator().manual_seed(seed)).double() - 1
    return signs[:, :D] / D**0.5, signs[:, D]


def by_examples(x: Tensor, y: Tensor, rule: UpdateRule, prior_precision: float) -> list[Tensor]:
    """The means after each example, by the general update."""
    update = variational_update if rule == "variational" else laplace_update
    mean, precision, means = torch.zeros(1, D).double(), torch.full((1, D), prior_precision).double(), []
    for pattern, outcome in zip(x, y, strict=True):
        mean, precision = update(mean, precision, pattern[None], outcome[None])
        means.append(mean[0])
    return means


def test_variational_and_laplace_are_the_same_distribution() -> None:
    data = linear_data(60, seed=1, runs=2)
    one, two = (learned(rule, data, q=some_belief(runs=2)) for rule in UPDATE_RULES)
    assert torch.allclose(one.mean, two.mean, rtol=0, atol=1e-10)
    assert torch.allclose(one.log_var, two.log_var, rtol=0, atol=1e-10)
    assert not torch.allclose(one.mean[0], one.mean[1], atol=1e-3), "each run went on from its own belief"


@pytest.mark.parametrize("rule", UPDATE_RULES)
def test_the_gradient_of_the_lower_bound_vanishes_after_one_example(rule: UpdateRule) -> None:
    """E_q log N(y; w^T x, s^2) - KL(q || q_{t-1}), with every expectation by hand; and both ends of it matter."""
    data, before = linear_data(1, seed=2), some_belief()
    after = learned(rule, data, q=before)

    def gradients(mean: Tensor, log_var: Tensor) -> tuple[Tensor, ...]:
        mean, log_var = mean.clone().requires_grad_(), log_var.clone().requires_grad_()
        x, y, var = data.x[0, 0], data.y[0, 0], log_var.exp()
        expected = -0.5 * ((y - mean @ x) ** 2 + (x**2 * var).sum()) / MODEL.noise**2
        q = torch.distributions.Normal(mean, var.sqrt())
        p = torch.distributions.Normal(before.mean[0], (0.5 * before.log_var[0]).exp())
        return torch.autograd.grad(expected - torch.distributions.kl_divergence(q, p).sum(), (mean, log_var))

    for there, elsewhere in zip(
        gradients(after.mean[0], after.log_var[0]), gradients(before.mean[0], before.log_var[0]), strict=True
    ):
        assert there.abs().max() < 1e-9
        assert elsewhere.abs().max() > 1e-2


@pytest.mark.parametrize("rule", UPDATE_RULES)
def test_one_example_gives_the_exact_mean_and_the_diagonal_of_the_exact_precision(rule: UpdateRule) -> None:
    data, before = linear_data(1, seed=4), some_belief()
    exact = Exact()(Target(Exact().initial(before), MODEL, data, before), Rng((0,)))
    after = learned(rule, data, q=before)
    assert torch.allclose(after.mean, exact.mean, rtol=0, atol=1e-10)
    assert torch.allclose((-after.log_var).exp(), exact.precision.diagonal(dim1=1, dim2=2), rtol=1e-10)
    off_diagonal = exact.precision - torch.diag_embed(exact.precision.diagonal(dim1=1, dim2=2))
    assert off_diagonal.abs().max() > 0.1, "so that something was projected away"


def at_once_and_one_by_one(x: Tensor) -> tuple[Tensor, Tensor, MeanField]:
    """Mean and diagonal of the precision of the exact posterior of all examples, and the sequential belief."""
    y = x @ torch.arange(1.0, 5.0).double() + 0.3 * torch.tensor([1.0, -1.0]).double().repeat(len(x) // 2)
    data, prior = dataset(x, y), MODEL.prior({}).to(torch.float64)
    exact = Exact()(Target(Exact().initial(prior), MODEL, data, prior), Rng((0,)))
    return exact.mean, exact.precision.diagonal(dim1=1, dim2=2), learned("variational", data)


def test_batch_and_sequential_solutions_differ_for_correlated_inputs() -> None:
    """The precisions agree whatever the inputs; the sequential mean ends ten deviations away."""
    mean, precision, q = at_once_and_one_by_one(linear_data(8, seed=5).x[0])
    assert torch.allclose((-q.log_var).exp(), precision, rtol=1e-10)
    assert ((q.mean - mean).abs() * precision.sqrt()).max() > 10


def test_batch_and_sequential_solutions_agree_for_inputs_along_the_axes_and_not_for_all_orthogonal_ones() -> None:
    """Along the axes each example's precision is diagonal, so nothing is lost; a rotation brings the loss back."""
    scale = torch.tensor([0.5, 1.0, 1.5, 2.0]).double()
    axes = torch.cat([torch.diag(scale), torch.diag(scale.flip(0))])
    mean, precision, q = at_once_and_one_by_one(axes)
    assert torch.allclose(q.mean, mean, rtol=0, atol=1e-10)
    assert torch.allclose((-q.log_var).exp(), precision, rtol=1e-10)
    hadamard = torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]).double() / 2
    mean, precision, q = at_once_and_one_by_one(hadamard)
    assert torch.allclose(precision, precision[:, :1].expand_as(precision)), "the exact precision is diagonal too"
    assert ((q.mean - mean).abs() * precision.sqrt()).max() > 0.5


@pytest.mark.parametrize("rule", UPDATE_RULES)
@pytest.mark.parametrize("prior_precision", [1.0, 0.25])
def test_the_unit_norm_form_is_the_update_one_example_at_a_time(rule: UpdateRule, prior_precision: float) -> None:
    x, y = patterns(200)
    mean = torch.zeros(D).double()
    for t, expected in enumerate(by_examples(x, y, rule, prior_precision), start=1):
        mean = unit_norm_update(mean, y[t - 1] * x[t - 1], t, prior_precision)
        assert torch.allclose(mean, expected, rtol=0, atol=1e-10)
    model = LinearGaussian(D, 1.0, 1 / prior_precision)
    through_data = learned(rule, dataset(x, y), model)
    assert torch.allclose(through_data.mean[0], mean, rtol=0, atol=1e-6), "the prior's variance is stored in float32"


def test_the_papers_t_over_d_is_one_step_off() -> None:
    """Printed: c = 1 + 1/v_0 + t/D. It is not the update that the paper's own general equations give."""
    x, y = patterns(5)
    printed, right = torch.zeros(D).double(), torch.zeros(D).double()
    for t in range(1, 6):
        x_bar = y[t - 1] * x[t - 1]
        c = 1 + 1.0 + t / D
        printed = (torch.eye(D).double() - torch.outer(x_bar, x_bar) / c) @ printed + x_bar / c
        right = unit_norm_update(right, x_bar, t, prior_precision=1.0)
    expected = by_examples(x, y, "variational", 1.0)[-1]
    assert (right - expected).norm() < 1e-12
    assert 0.01 < (printed - expected).norm() / expected.norm() < 0.1


def test_without_a_prior_it_is_equation_s4_and_the_limit_of_an_ever_wider_prior() -> None:
    """S4 (Kirkpatrick et al., 2017): w <- [I - x x^T / (1 + n/D)] w + x / (1 + n/D), n examples having been seen."""
    x, y = patterns(60)
    s4, ours = torch.zeros(D).double(), torch.zeros(D).double()
    for n, x_bar in enumerate(y[:, None] * x):
        s4 = (torch.eye(D).double() - torch.outer(x_bar, x_bar) / (1 + n / D)) @ s4 + x_bar / (1 + n / D)
        ours = unit_norm_update(ours, x_bar, n + 1, prior_precision=0.0)
        assert torch.allclose(ours, s4, rtol=0, atol=1e-12)
    gaps = [(by_examples(x, y, "variational", precision)[-1] - s4).norm() for precision in (1e-2, 1e-4, 1e-6)]
    assert gaps[0] < 0.1
    assert gaps[1] < gaps[0] / 50
    assert gaps[2] < gaps[1] / 50


def test_the_first_pattern_is_remembered_perfectly_without_a_prior() -> None:
    x, y = patterns(1)
    assert (x[0] @ unit_norm_update(torch.zeros(D).double(), y[0] * x[0], 1, 0.0)).item() == pytest.approx(y[0].item())


def test_examples_count_in_the_order_of_the_data() -> None:
    data = linear_data(6, seed=6)
    backwards = data.take(torch.arange(5, -1, -1)[None])
    assert not torch.allclose(learned("laplace", data).mean, learned("laplace", backwards).mean, atol=1e-3)
    halves = learned("laplace", data.take(torch.arange(3)[None]))
    continued = learned("laplace", data.take(torch.arange(3, 6)[None]), q=halves)
    assert torch.allclose(continued.mean, learned("laplace", data).mean, rtol=0, atol=1e-10)


def test_no_data_returns_q_itself_and_nothing_else_is_accepted() -> None:
    prior = MODEL.prior({}).to(torch.float64)
    assert OnlineLinear()(Target(prior, MODEL, linear_data(3, 0).empty(), prior), Rng((0,))) is prior
    model, (task,) = small_network(), blob_tasks(1)
    with pytest.raises(VclError, match="linear-Gaussian models only, not Network"):
        OnlineLinear()(Target(model.prior({"h0": 2}), model, task.train, model.prior({"h0": 2})), Rng((0,)))
    with pytest.raises(VclError, match="unknown rule 'laplac': did you mean 'laplace'"):
        learned("laplac", linear_data(3, 0))  # type: ignore[arg-type]
    with pytest.raises(VclError, match="t is 0; the first example has t = 1"):
        unit_norm_update(torch.zeros(D), torch.zeros(D), 0, 1.0)
