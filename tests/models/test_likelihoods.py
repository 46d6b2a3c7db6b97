from math import log, pi

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal as TorchNormal

from vcl.data import WHOLE
from vcl.errors import VclError
from vcl.models.likelihoods import Categorical, Likelihood, Normal, Probit, log_ndtr


def test_categorical_is_the_log_softmax_of_the_label() -> None:
    logits, y = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    assert torch.allclose(Categorical().log_prob(logits, y), TorchCategorical(logits=logits).log_prob(y))
    assert torch.allclose(Categorical().expectation(logits).sum(-1), torch.ones(5))


def test_normal_sums_over_target_dimensions() -> None:
    output, y = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(Normal(0.3).log_prob(output, y), TorchNormal(output, 0.3).log_prob(y).sum(-1))
    assert torch.allclose(
        Normal(0.3).log_prob(output[:, :1], y[:, 0]), TorchNormal(output[:, 0], 0.3).log_prob(y[:, 0])
    )


def test_normal_moments_add_noise_and_spread_of_the_draws() -> None:
    outputs = torch.tensor([[1.0], [3.0]])  # two draws of the mean of one example
    mean, variance = Normal(0.5).moments(Normal(0.5).expectation(outputs).mean(0))
    assert mean.item() == pytest.approx(2.0)
    assert variance.item() == pytest.approx(1.0 + 0.25)


def test_labels_outside_the_head_are_refused() -> None:
    with pytest.raises(VclError, match=r"labels run from 0 to 3 but its head has 2 classes.*relabel"):
        Categorical().check(torch.tensor([[0, 3]]), 2, "task 'x'")
    with pytest.raises(VclError, match="labels run from -1"):
        Categorical().check(torch.tensor([[-1, 0]]), 2, "task 'x'")
    with pytest.raises(VclError, match="a classifier takes integers 0 to 1"):
        Categorical().check(torch.tensor([[0.0]]), 2, "task 'x'")
    with pytest.raises(VclError, match="takes floating-point targets"):
        Normal().check(torch.tensor([[1]]), 1, "task 'x'")
    with pytest.raises(VclError, match="2 values per example but the head has 3"):
        Normal().check(torch.zeros(1, 4, 2), 3, "task 'x'")


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_labels_of_every_integer_dtype_give_the_same_numbers(dtype: torch.dtype) -> None:
    g, y = torch.Generator().manual_seed(0), torch.tensor([0, 1, 0, 1, 1])
    for likelihood, outputs in ((Categorical(), 2), (Categorical(), 3), (Probit(), 1)):
        mean, var = torch.randn(5, outputs, generator=g), torch.rand(5, outputs, generator=g)
        for given in (y.to(dtype), y.to(dtype)[:, None]):
            assert torch.equal(likelihood.log_prob(mean, given), likelihood.log_prob(mean, y))
            assert torch.equal(likelihood.log_evidence(mean, var, given), likelihood.log_evidence(mean, var, y))
        likelihood.check(y.to(dtype)[None], outputs, "task 'x'")
        likelihood.check(y.to(dtype)[None, :, None], outputs, "task 'x'")


@pytest.mark.parametrize("likelihood", [Categorical(), Probit()], ids=str)
@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([0.0, 1.0]), "dtype torch.float32"),
        (torch.tensor([True, False]), "dtype torch.bool"),
        (torch.tensor([[0, 1], [1, 0]]), "shape .*2, 2"),
    ],
)
def test_what_is_no_label_is_refused_also_by_the_density(likelihood: Likelihood, y: torch.Tensor, words: str) -> None:
    output = torch.zeros(2, 1 if isinstance(likelihood, Probit) else 2)
    calls = (
        lambda: likelihood.log_prob(output, y),
        lambda: likelihood.log_evidence(output, output + 1, y),
        lambda: likelihood.check(y[None], output.shape[-1], "task 'x'"),
    )
    for call in calls:
        with pytest.raises(VclError, match=words):
            call()


@pytest.mark.parametrize("noise", [0, 0.0, -1.0, float("nan"), float("inf")])
def test_a_deviation_that_is_none_is_refused_when_the_likelihood_is_built(noise: float) -> None:
    with pytest.raises(VclError, match=f"noise is {noise}; a deviation must be a finite number above 0"):
        Normal(noise)


def test_targets_of_several_axes_count_all_their_values() -> None:
    Normal().check(torch.zeros(1, 4, 2, 3), 6, "task 'x'")
    with pytest.raises(VclError, match="targets have 6 values per example but the head has 3"):
        Normal().check(torch.zeros(1, 4, 2, 3), 3, "task 'x'")


def test_probit_is_the_normal_distribution_function_of_the_output() -> None:
    output, y = torch.tensor([[-1.0], [0.0], [2.0]], dtype=torch.float64), torch.tensor([1, 0, 1])
    below = TorchNormal(0.0, 1.0).cdf(output[:, 0])
    assert torch.allclose(Probit().expectation(output), torch.stack([1 - below, below], dim=-1))
    assert torch.allclose(Probit().log_prob(output, y).exp(), torch.where(y == 1, below, 1 - below))


def test_probit_samples_each_label_with_its_probability() -> None:
    noise = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    drawn = Probit().sample(torch.full((100_000, 1), 0.7), noise)
    assert drawn.dtype == torch.int64
    assert drawn.double().mean().item() == pytest.approx(TorchNormal(0.0, 1.0).cdf(torch.tensor(0.7)).item(), abs=0.005)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_ndtr_and_its_gradient_are_right_far_into_the_tails(dtype: torch.dtype) -> None:
    """log Phi(x) ~ -x^2/2 - log(-x) - log(2 pi)/2 and its slope ~ -x far below 0; torch's own in between."""
    x = torch.tensor([-1e4, -100.0, -10.0, -1.0, -0.5, 0.0, 3.0, 10.0, 1e4], dtype=dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(log_ndtr(x).sum(), x)
    wide = x.detach().double().requires_grad_()
    expected = torch.special.log_ndtr(wide)
    (expected_slope,) = torch.autograd.grad(expected.sum(), wide)
    assert torch.allclose(log_ndtr(x).double(), expected, rtol=1e-6, atol=1e-12)
    assert torch.allclose(slope.double(), expected_slope, rtol=1e-5, atol=1e-12)


def integral(likelihood: Likelihood, mean: float, var: float, y: int) -> float:
    """log of the integral of p(y | f) N(f; mean, var) for one output, by a fine grid around every peak."""
    reach = var + 14 * var**0.5
    f = torch.linspace(min(mean, 0.0) - reach, max(mean, 0.0) + reach, 200_001, dtype=torch.float64)
    log_p = likelihood.log_prob(f[:, None], torch.full((200_001,), y))
    log_q = -0.5 * (f - mean).square() / var - 0.5 * log(2 * pi * var)
    return (log_p + log_q + (f[1] - f[0]).log()).logsumexp(0).item()


def test_the_evidence_of_a_normal_is_exact() -> None:
    mean, var, y = torch.tensor([[0.3, -1.0]]), torch.tensor([[0.5, 2.0]]), torch.tensor([[1.0, 1.0]])
    expected = TorchNormal(mean, (var + 0.3**2).sqrt()).log_prob(y).sum(-1)
    assert torch.allclose(Normal(0.3).log_evidence(mean, var, y), expected)
    one = Normal(0.3).log_evidence(mean[:, :1], var[:, :1], y[:, 0])
    assert torch.allclose(one, TorchNormal(0.3, (0.5 + 0.3**2) ** 0.5).log_prob(torch.tensor([1.0])))


MEANS = (-100.0, -30.0, -3.0, -0.4, 0.0, 1.0, 8.0)
VARS = (1e-3, 0.5, 0.999, 1.001, 4.0, 300.0)


@pytest.mark.parametrize("var", VARS)
def test_the_evidence_of_a_probit_is_exact(var: float) -> None:
    for mean in MEANS:
        for y in (0, 1):
            moments = torch.tensor([[mean]], dtype=torch.float64), torch.tensor([[var]], dtype=torch.float64)
            value = Probit().log_evidence(*moments, torch.tensor([y])).item()
            assert value == pytest.approx(integral(Probit(), mean, var, y), rel=1e-8, abs=1e-10)


class Logistic:
    """p(y = 1) = logistic(f), one output: two classes whose logits differ by f."""

    def log_prob(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.logsigmoid((2 * y - 1) * output.squeeze(-1))


@pytest.mark.parametrize("var", VARS)
def test_the_evidence_of_two_classes_is_a_numerical_integral(var: float) -> None:
    """By both kinds of quadrature (they meet at variance 1) and into the lower tail, which is reflected."""
    for mean in MEANS:
        for y in (0, 1):
            # The logits' means differ by ``mean`` and their variances add to ``var``.
            m = torch.tensor([[0.7 - mean, 0.7]], dtype=torch.float64)
            v = torch.tensor([[0.25 * var, 0.75 * var]], dtype=torch.float64)
            value = Categorical().log_evidence(m, v, torch.tensor([y])).item()
            expected = integral(Logistic(), mean, var, y)  # type: ignore[arg-type]
            assert value == pytest.approx(expected, rel=1e-8, abs=1e-10)


def test_the_evidence_of_two_classes_has_the_gradient_of_its_values() -> None:
    """By automatic differentiation against small differences, under vmap, on both sides of each switch."""
    means = torch.tensor([-20.0, -3.0, -0.5, 0.1, 2.0], dtype=torch.float64)
    for var in (1e-2, 0.9, 1.1, 30.0):
        moments = torch.stack([means, torch.full_like(means, var)], dim=-1)

        def value(moments: torch.Tensor) -> torch.Tensor:
            mean, var = moments.unbind(-1)
            m, v = torch.stack([torch.zeros_like(mean), mean], -1), torch.stack([var / 2, var / 2], -1)
            return Categorical().log_evidence(m, v, torch.ones((), dtype=torch.int64))

        slopes = torch.vmap(torch.func.grad(value))(moments)
        for column in (0, 1):
            shift = torch.zeros(2, dtype=torch.float64)
            shift[column] = 1e-5
            differences = (value(moments + shift) - value(moments - shift)) / 2e-5
            assert torch.allclose(slopes[:, column], differences, atol=1e-7)


@pytest.mark.parametrize("likelihood", [Categorical(), Probit()])
def test_evidence_and_its_gradient_are_finite_in_the_tails(likelihood: Likelihood) -> None:
    outputs = 2 if isinstance(likelihood, Categorical) else 1
    for size in (0.0, 1.0, 1e2, 1e5):
        for var in (0.0, 1e-12, 1.0, 1e8):
            for sign in (-1, 1):
                mean = torch.zeros(1, outputs)
                mean[0, -1] = sign * size
                mean, spread = mean.requires_grad_(), torch.full((1, outputs), var).requires_grad_()
                value = likelihood.log_evidence(mean, spread, torch.tensor([1]))
                slopes = torch.autograd.grad(value.sum(), (mean, spread))
                assert all(part.isfinite().all() for part in (value, *slopes)), (size, var, sign)


@pytest.mark.parametrize(("spread", "error"), [(0.1, 0.005), (1.0, 0.03), (10.0, 0.07)])
def test_the_evidence_of_more_classes_is_close_and_nearly_sums_to_one(spread: float, error: float) -> None:
    """Four classes against draws: the approximation's largest error in probability, at variances about ``spread``."""
    g = torch.Generator().manual_seed(1)
    worst, totals = 0.0, []
    for _ in range(20):
        mean, var = 2 * torch.randn(4, generator=g), spread * (0.5 + torch.rand(4, generator=g))
        drawn = (mean + var.sqrt() * torch.randn(100_000, 4, generator=g)).softmax(-1).mean(0)
        ours = Categorical().log_evidence(mean.expand(4, 4), var.expand(4, 4), torch.arange(4)).exp()
        worst = max(worst, (ours - drawn).abs().max().item())
        totals.append(ours.sum().item())
    assert worst < error
    assert totals == pytest.approx([1] * 20, abs=0.005)


def test_more_classes_without_variance_are_the_softmax_exactly() -> None:
    mean, y = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 5
    evidence = Categorical().log_evidence(mean, torch.zeros_like(mean), y)
    assert torch.allclose(evidence, Categorical().log_prob(mean, y), atol=1e-6)


@pytest.mark.parametrize(
    ("y", "units", "words"),
    [
        (torch.tensor([[0, 1]]), 2, "its head has 2 units; a probit model has one output"),
        (torch.tensor([[0.0, 1.0]]), 1, "labels have dtype torch.float32; a probit model takes the integers 0 and 1"),
        (torch.tensor([[0, 2]]), 1, "labels run from 0 to 2; .* relabel them 0 and 1"),
        (torch.tensor([[-1, 1]]), 1, "labels run from -1 to 1"),
    ],
)
def test_what_a_probit_cannot_learn_is_refused(y: torch.Tensor, units: int, words: str) -> None:
    with pytest.raises(VclError, match=f"task 'x': {words}"):
        Probit().check(y, units, "task 'x'")
