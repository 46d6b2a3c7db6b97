"""Uncertainty of predictions against formulas written out, and quantiles against the mixtures themselves."""

from math import exp, log

import pytest
import torch
from torch import Tensor

from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.errors import VclError
from vcl.models import LinearGaussian, Network, mlp
from vcl.models.likelihoods import Categorical, HasCdf, HeteroscedasticNormal, Likelihood, Normal, Poisson
from vcl.ops.rng import Rng
from vcl.predicting import uncertainty
from vcl.predicting.prediction import predict_outputs
from vcl.predicting.uncertainty import decompose, intervals, quantiles, sample_targets, variances

NUMBERS: list[tuple[Likelihood, int]] = [
    (Normal(0.4), 2),
    (Normal((0.4, 3.0)), 2),
    (HeteroscedasticNormal(), 4),
    (Poisson(), 2),
]
LEVELS = (0.01, 0.05, 0.5, 0.9, 0.999)


def outputs(units: int, draws: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return 1.5 * torch.randn(2, draws, 5, units, generator=g, dtype=dtype)


def test_entropies_are_their_definitions() -> None:
    p = outputs(3).softmax(-1)
    found = decompose(p)

    def entropy(p: Tensor) -> Tensor:
        return -(p * p.log()).sum(-1)

    assert torch.allclose(found.total, entropy(p.mean(1)))
    assert torch.allclose(found.aleatoric, entropy(p).mean(1))
    assert torch.allclose(found.epistemic, entropy(p.mean(1)) - entropy(p).mean(1))


def test_draws_that_disagree_surely_are_all_epistemic_and_a_coin_is_all_aleatoric() -> None:
    sure = torch.eye(2).view(1, 2, 1, 2)
    for found, expected in (
        (decompose(sure), (log(2), 0, log(2))),
        (decompose(torch.full((1, 2, 1, 2), 0.5)), (log(2), log(2), 0)),
        (decompose(sure[:, :1]), (0, 0, 0)),
    ):
        assert [part.item() for part in found] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_are_never_negative_and_sum_exactly(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    base = (20 * torch.randn(3, 1, 200, 10, generator=g, dtype=dtype)).softmax(-1)
    nearly = (base.log().clamp(min=-80) + 1e-7 * torch.randn(3, 30, 200, 10, generator=g, dtype=dtype)).softmax(-1)
    for p in (base.expand(-1, 30, -1, -1), nearly, torch.randn(3, 30, 200, 10, generator=g, dtype=dtype).softmax(-1)):
        found = decompose(p)
        assert torch.equal(found.total, found.aleatoric + found.epistemic)
        assert all(bool((part >= 0).all()) for part in found)
        assert float(found.total.amax()) <= log(10) + 1e-6


def test_a_small_information_keeps_its_digits() -> None:
    """p = 1/2 +- d: I = 2 d^2 to first order, far below the rounding of the entropies."""
    d = 1e-9
    p = torch.tensor([[0.5 + d, 0.5 - d], [0.5 - d, 0.5 + d]], dtype=torch.float64).view(1, 2, 1, 2)
    assert decompose(p).epistemic.item() == pytest.approx(2 * d**2, rel=1e-2, abs=1e-16)


@pytest.mark.parametrize(("likelihood", "units"), NUMBERS, ids=str)
def test_variances_add_up_to_that_of_samples(likelihood: Likelihood, units: int) -> None:
    f = outputs(units, draws=4)
    found = variances(likelihood, f)
    assert torch.equal(found.total, found.aleatoric + found.epistemic)
    assert isinstance(likelihood, HasCdf)
    mean, var = likelihood.moments_of(f)
    assert torch.allclose(found.mean, mean.mean(1))
    assert torch.allclose(found.total, (var + mean**2).mean(1) - mean.mean(1) ** 2)
    assert torch.allclose(found.epistemic, mean.var(1, correction=0))
    y = sample_targets(likelihood, f.repeat_interleave(5_000, 1), Rng((0, 1)))
    assert y.shape == (2, 20_000, 5, 2)
    squares = (y - found.mean[:, None]).square()
    for values, exact in ((y, found.mean), (squares, found.total)):
        assert bool(((values.mean(1) - exact).abs() < 5 * (values.var(1) / 20_000).sqrt()).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_far_from_zero_keep_their_variance(dtype: torch.dtype) -> None:
    """E[y^2] - E[y]^2 of moments in float32 is wrong by more than the variance here."""
    f = 1e4 + torch.tensor([0.0, 0.25], dtype=dtype).view(1, 2, 1, 1)
    found = variances(Normal(0.1), f)
    assert found.epistemic.item() == pytest.approx(0.125**2, rel=1e-9)
    assert found.aleatoric.item() == pytest.approx(0.01, rel=1e-6)
    averaged = Normal.moments(Normal(0.1).expectation(f.float()).mean(1))[1].item()
    assert abs(averaged - 0.125**2 - 0.01) > 0.01


@pytest.mark.parametrize(("likelihood", "units"), NUMBERS, ids=str)
def test_quantiles_are_where_the_mixture_reaches_the_level(likelihood: Likelihood, units: int) -> None:
    assert isinstance(likelihood, HasCdf)
    f = outputs(units)
    found = quantiles(likelihood, f, LEVELS)
    assert found.shape == (2, len(LEVELS), 5, 2)
    for place, level in enumerate(LEVELS):
        y = found[:, place]
        here = likelihood.cdf(f, y.unsqueeze(1)).mean(1)
        if likelihood.whole:
            assert torch.equal(y, y.round())
            before = likelihood.cdf(f, y.unsqueeze(1) - 1).mean(1)
            assert bool(((here >= level) & (before < level)).all())
        else:
            assert torch.allclose(here, torch.full_like(here, level), atol=1e-12)


def test_one_draw_has_the_quantiles_of_its_distribution() -> None:
    f = outputs(1, draws=1)
    found = quantiles(Normal(0.4), f, (0.1, 0.5))
    normal = torch.distributions.Normal(f[:, 0], 0.4)
    for place, level in enumerate((0.1, 0.5)):
        assert torch.allclose(found[:, place], normal.icdf(torch.tensor(level, dtype=torch.float64)), atol=1e-12)
    # P(Y = 0) = e^-1/2 = 0.6 for a rate of a half
    half = torch.full((1, 1, 1, 1), log(0.5))
    assert quantiles(Poisson(), half, (0.5, exp(-0.5) + 1e-6, 0.95)).flatten().tolist() == [0, 1, 2]


def test_intervals_hold_their_share_of_samples() -> None:
    for likelihood, units in NUMBERS:
        f = outputs(units, draws=3)
        lower, upper = intervals(likelihood, f, 0.8)
        y = sample_targets(likelihood, f.repeat_interleave(10_000, 1), Rng((0, 1)))
        left, right = ((y < lower[:, None]).double().mean(1), (y > upper[:, None]).double().mean(1))
        error = 5 * (0.1 * 0.9 / 30_000) ** 0.5
        assert float(torch.maximum(left, right).amax()) < 0.1 + error
        if not isinstance(likelihood, Poisson):
            assert float(torch.minimum(left, right).amin()) > 0.1 - error


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    p, f = outputs(3).softmax(-1), outputs(2)

    def everything() -> list[Tensor]:
        return [*decompose(p), *variances(Poisson(), f), quantiles(Normal(), f, LEVELS), *intervals(Poisson(), f)]

    whole, seen = everything(), []
    plain = uncertainty._entropies
    monkeypatch.setattr(uncertainty, "VALUES_IN_FLIGHT", 2 * 6 * 3 * 2)
    monkeypatch.setattr(uncertainty, "_entropies", lambda p: [seen.append(p.shape[2]), plain(p)][1])
    for one, other in zip(whole, everything(), strict=True):
        assert torch.equal(one, other)
    assert seen == [2, 2, 1]


def test_a_run_has_the_same_samples_alone_and_in_a_stack() -> None:
    f = outputs(4)
    both = sample_targets(HeteroscedasticNormal(), f, Rng((4, 5)))
    assert torch.equal(sample_targets(HeteroscedasticNormal(), f[1:], Rng((5,))), both[1:])


def test_linear_regression_has_its_exact_predictive_distribution() -> None:
    g = torch.Generator().manual_seed(0)
    root = torch.randn(3, 3, generator=g, dtype=torch.float64)
    precision, mean = root @ root.T + torch.eye(3), torch.randn(3, generator=g, dtype=torch.float64)
    q = FullGaussian(Layout(("w",), ((3,),)), mean[None], precision[None])
    x = torch.randn(1, 4, 3, generator=g, dtype=torch.float64)
    model = LinearGaussian(3, 0.5)
    f = predict_outputs(q, model, x, "all", Rng(0), draws=40_000)
    assert f.shape == (1, 40_000, 4, 1)
    spread = (x[0] @ torch.linalg.inv(precision) * x[0]).sum(-1)
    found = variances(model.likelihood, f)
    assert torch.allclose(found.epistemic[0, :, 0], spread, rtol=5 * (2 / 40_000) ** 0.5)
    assert found.aleatoric.flatten().tolist() == pytest.approx([0.25] * 4)
    sd = (spread + 0.25).sqrt()
    (lower,), (upper,) = intervals(model.likelihood, f, 0.9)
    middle = (x[0] @ mean)[:, None]
    assert torch.allclose((lower - middle)[:, 0] / sd, torch.tensor(-1.6449, dtype=torch.float64), atol=0.05)
    assert torch.allclose((upper - middle)[:, 0] / sd, torch.tensor(1.6449, dtype=torch.float64), atol=0.05)


class NoOutputs:
    """A model that predicts, and no more."""


def test_what_cannot_be_answered_is_refused() -> None:
    f = outputs(2)
    with pytest.raises(VclError, match="Categorical has no moments_of"):
        variances(Categorical(), f)
    with pytest.raises(VclError, match="Categorical has no moments_of"):
        quantiles(Categorical(), f, (0.5,))
    with pytest.raises(VclError, match=r"levels are \[0.5, 1.0\]; give"):
        quantiles(Normal(), f, (0.5, 1.0))
    with pytest.raises(VclError, match="levels are"):
        quantiles(Normal(), f, ())
    with pytest.raises(VclError, match="level is 1"):
        intervals(Normal(), f, 1.0)
    with pytest.raises(VclError, match=r"probabilities have shape \(5, 2\); give those of each draw"):
        decompose(f[0, 0])
    with pytest.raises(VclError, match="2 runs and there are 1 seeds"):
        sample_targets(Normal(), f, Rng(0))
    q = Network(mlp(2, [2]), 2, Normal()).prior({"h": 1})
    with pytest.raises(VclError, match=r"NoOutputs has no outputs\(params, x, head\)"):
        predict_outputs(q, NoOutputs(), f, "h", Rng(0))  # type: ignore[arg-type]
