"""Every likelihood as a distribution: it sums to one, its evidence is an integral, and any dtype of labels will do."""

from math import exp, log, pi, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from generated import LABELS, SEEDS, few, numbers, seeded
from vcl.models.likelihoods import Categorical, Likelihood, Normal, Probit

LEAD = st.lists(st.integers(1, 4), min_size=1, max_size=2)
FLOATS = st.sampled_from([torch.float32, torch.float64])
MEANS = st.floats(-30, 30)
VARS = st.floats(1e-4, 300)
CLASSIFIERS: list[tuple[Likelihood, int, int]] = [
    (Categorical(), 2, 2),
    (Categorical(), 3, 3),
    (Categorical(), 7, 7),
    (Probit(), 1, 2),
]
"""A likelihood, the outputs that it takes and its classes."""
ANY_CLASSIFIER = st.sampled_from(CLASSIFIERS)


def outputs(lead: list[int], width: int, seed: int, dtype: torch.dtype, scale: float = 3.0) -> Tensor:
    return scale * torch.randn((*lead, width), generator=seeded(seed), dtype=dtype)


@few(80)
@given(ANY_CLASSIFIER, LEAD, FLOATS, SEEDS)
def test_probabilities_of_the_classes_sum_to_one_and_are_the_expectation(
    classifier: tuple[Likelihood, int, int], lead: list[int], dtype: torch.dtype, seed: int
) -> None:
    likelihood, width, classes = classifier
    output = outputs(lead, width, seed, dtype)
    each = torch.stack([likelihood.log_prob(output, torch.full(lead, y)) for y in range(classes)], -1)
    assert each.shape == (*lead, classes)
    assert each.dtype == dtype
    assert torch.allclose(each.logsumexp(-1), torch.zeros(lead, dtype=dtype), atol=1e-5)
    assert torch.allclose(likelihood.expectation(output), each.exp(), atol=1e-5)


@few(80)
@given(ANY_CLASSIFIER, LEAD, LABELS, st.booleans(), SEEDS)
def test_labels_mean_the_same_in_every_dtype_and_shape(
    classifier: tuple[Likelihood, int, int], lead: list[int], dtype: torch.dtype, column: bool, seed: int
) -> None:
    likelihood, width, classes = classifier
    mean, y = outputs(lead, width, seed, torch.float32), numbers(lead, seed, torch.int64, classes - 1)
    var, other = mean.square() + 0.1, (y[..., None] if column else y).to(dtype)
    assert torch.equal(likelihood.log_prob(mean, other), likelihood.log_prob(mean, y))
    assert torch.equal(likelihood.log_evidence(mean, var, other), likelihood.log_evidence(mean, var, y))
    many = torch.vmap(likelihood.log_prob)(mean, other)
    assert torch.allclose(many, likelihood.log_prob(mean, y), atol=1e-6)


@few(60)
@given(ANY_CLASSIFIER, LEAD, SEEDS, st.sampled_from([0.0, 1.0, 40.0]))
def test_drawn_labels_are_classes_however_far_out_the_noise_is(
    classifier: tuple[Likelihood, int, int], lead: list[int], seed: int, scale: float
) -> None:
    likelihood, width, classes = classifier
    noise = scale * torch.randn(lead, generator=seeded(seed + 1))
    drawn = likelihood.sample(outputs(lead, width, seed, torch.float32), noise)
    assert drawn.shape == noise.shape
    assert drawn.dtype == torch.int64
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < classes
    likelihood.check(drawn.flatten()[None], width, "what was drawn")


@pytest.mark.parametrize(("likelihood", "width", "classes"), CLASSIFIERS, ids=str)
def test_drawn_labels_have_their_probabilities(likelihood: Likelihood, width: int, classes: int) -> None:
    output = outputs([], width, 3, torch.float64, 1.0).expand(100_000, width)
    drawn = likelihood.sample(output, torch.randn(100_000, generator=seeded(4), dtype=torch.float64))
    shares = drawn.bincount(minlength=classes) / 100_000
    assert torch.allclose(shares.double(), likelihood.expectation(output[:1])[0], atol=0.006)


def quadrature(mean: float, var: float) -> tuple[Tensor, Tensor]:
    """A fine grid f [K, 1] around every peak of p(y | f) N(f; mean, var), and the logs of its weights."""
    reach = var + 14 * var**0.5
    f = torch.linspace(min(mean, 0.0) - reach, max(mean, 0.0) + reach, 40_001, dtype=torch.float64)
    return f[:, None], -0.5 * (f - mean).square() / var - 0.5 * log(2 * pi * var) + (f[1] - f[0]).log()


def moments(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


@few(60)
@given(MEANS, VARS, st.integers(0, 1), st.floats(0.05, 0.95))
def test_the_evidence_of_two_classes_is_the_integral_over_the_outputs(
    mean: float, var: float, y: int, share: float
) -> None:
    """Of a probit, and of a softmax of two outputs, which depends on their difference alone."""
    f, log_weight = quadrature(mean, var)
    label, every = torch.tensor([y]), torch.full((len(f),), y)
    exact = (Probit().log_prob(f, every) + log_weight).logsumexp(0).item()
    assert Probit().log_evidence(moments(mean), moments(var), label).item() == pytest.approx(exact, rel=1e-6, abs=1e-7)
    two = torch.cat([torch.zeros_like(f), f], -1)
    exact = (Categorical().log_prob(two, every) + log_weight).logsumexp(0).item()
    m, v = moments(1.3 - mean, 1.3), moments(share * var, (1 - share) * var)
    assert Categorical().log_evidence(m, v, label).item() == pytest.approx(exact, rel=1e-6, abs=1e-7)


@few(60)
@given(st.sampled_from([(Categorical(), 2), (Probit(), 1)]), LEAD, SEEDS, FLOATS, st.floats(1e-6, 1e3))
def test_the_evidence_of_two_classes_sums_to_one(
    classifier: tuple[Likelihood, int], lead: list[int], seed: int, dtype: torch.dtype, scale: float
) -> None:
    likelihood, width = classifier
    mean = outputs(lead, width, seed, dtype)
    var = scale * torch.rand(mean.shape, generator=seeded(seed + 1), dtype=dtype)
    both = torch.stack([likelihood.log_evidence(mean, var, torch.full(lead, y)) for y in (0, 1)], -1)
    assert torch.allclose(both.logsumexp(-1), torch.zeros(lead, dtype=dtype), atol=1e-5)


@few(40)
@given(st.integers(3, 6), st.lists(st.integers(1, 3), min_size=1, max_size=2), SEEDS, st.floats(0.01, 30))
def test_the_evidence_of_more_classes_is_its_formula_written_out(
    classes: int, lead: list[int], seed: int, scale: float
) -> None:
    """1 / sum_c exp((m_c - m_y) / sqrt(1 + pi/8 (v_c + v_y))), one example and one class at a time."""
    mean, y = outputs(lead, classes, seed, torch.float64), numbers(lead, seed, torch.int64, classes - 1)
    var = scale * torch.rand(mean.shape, generator=seeded(seed + 1), dtype=torch.float64)
    found = Categorical().log_evidence(mean, var, y).flatten().tolist()
    for m, v, label, value in zip(
        mean.view(-1, classes).tolist(), var.view(-1, classes).tolist(), y.flatten().tolist(), found, strict=True
    ):
        terms = (exp((m[c] - m[label]) / sqrt(1 + pi / 8 * (v[c] + v[label]))) for c in range(classes) if c != label)
        assert value == pytest.approx(-log(1 + sum(terms)), rel=1e-9, abs=1e-12)


@few(60)
@given(st.floats(0.01, 10), MEANS, st.floats(1e-4, 100), st.floats(-3, 3))
def test_a_normal_integrates_to_one_and_its_evidence_is_the_integral_over_the_output(
    noise: float, mean: float, var: float, off: float
) -> None:
    likelihood = Normal(noise)
    y = torch.linspace(mean - 12 * noise, mean + 12 * noise, 2_001, dtype=torch.float64)
    density = likelihood.log_prob(torch.full((2_001, 1), mean, dtype=torch.float64), y)
    assert (density.logsumexp(0) + (y[1] - y[0]).log()).item() == pytest.approx(0, abs=1e-9)
    sd = min(noise, var**0.5)
    target, wide = mean + off * (noise**2 + var) ** 0.5, (noise**2 + var) ** 0.5
    f = torch.linspace(mean - 15 * wide, mean + 15 * wide, 1 + int(60 * wide / sd), dtype=torch.float64)
    log_q = -0.5 * (f - mean).square() / var - 0.5 * log(2 * pi * var)
    exact = likelihood.log_prob(f[:, None], torch.full(f.shape, target, dtype=torch.float64)) + log_q
    value = likelihood.log_evidence(moments(mean), moments(var), torch.tensor([target], dtype=torch.float64))
    assert value.item() == pytest.approx((exact.logsumexp(0) + (f[1] - f[0]).log()).item(), abs=1e-6)


@few(60)
@given(LEAD, st.integers(1, 3), FLOATS, SEEDS, st.floats(0.1, 3))
def test_a_normal_takes_targets_of_one_column_with_and_without_it_and_draws_around_the_output(
    lead: list[int], width: int, dtype: torch.dtype, seed: int, noise: float
) -> None:
    likelihood, output = Normal(noise), outputs(lead, width, seed, dtype)
    y, unit = outputs(lead, width, seed + 1, dtype), outputs(lead, width, seed + 2, dtype, 1.0)
    var = output.square() + 0.1
    drawn = likelihood.sample(output, unit)
    assert drawn.shape == output.shape
    assert torch.allclose((drawn - output) / noise, unit, atol=1e-4)
    assert likelihood.log_prob(output, y).shape == likelihood.log_evidence(output, var, y).shape == tuple(lead)
    if width == 1:
        assert torch.equal(likelihood.log_prob(output, y[..., 0]), likelihood.log_prob(output, y))
        assert torch.equal(likelihood.log_evidence(output, var, y[..., 0]), likelihood.log_evidence(output, var, y))
        assert torch.equal(likelihood.sample(output, unit[..., 0]), drawn[..., 0])
    mean, variance = Normal.moments(likelihood.expectation(output))
    assert torch.equal(mean, output)
    assert torch.allclose(variance, torch.full_like(output, noise**2), atol=1e-3)
