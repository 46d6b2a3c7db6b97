"""Moment matching against posterior moments that are known exactly, or by brute force on a grid."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from made import blob_tasks, blobs, linear_data, small_network
from oracles import linear_posterior
from vcl.beliefs.layout import Layout, Params
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data, concat, dataset
from vcl.errors import NonFiniteError, VclError
from vcl.models import LinearGaussian, Model, Network, mlp
from vcl.models.likelihoods import Categorical, Likelihood, Probit
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import MomentMatching, Target
from vcl.projections.moment_matching import update


def first_run(data: Data) -> Data:
    return Data(data.x[0], data.y[0], data.source[0], data.sources)


def random_q(layout: Layout, seed: int, runs: int = 1) -> MeanField:
    g = torch.Generator().manual_seed(seed)
    mean, log_var = torch.randn(2, runs, layout.size, generator=g, dtype=torch.float64)
    return MeanField(layout, mean, 0.5 * log_var)


def grid_moments(q: MeanField, model: Model, data: Data, points: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of q(theta) p(y | x, theta) / Z by summing over a grid of +-8 deviations in each direction."""
    steps = torch.linspace(-8, 8, points, dtype=q.mean.dtype)[:, None]
    theta = torch.cartesian_prod(*(q.mean + (q.log_var / 2).exp() * steps).unbind(-1))
    log_q = -0.5 * ((theta - q.mean).square() / q.log_var.exp()).sum(-1)
    log_lik = torch.vmap(lambda flat: model.log_lik(q.layout.split(flat), first_run(data)).sum())(theta)
    weight = (log_q + log_lik).softmax(0)
    mean = weight @ theta
    return mean, weight @ (theta - mean).square()


@pytest.mark.parametrize(
    ("likelihood", "units", "inputs", "points"),
    [(Probit(), 1, 1, 401), (Probit(), 1, 2, 81), (Categorical(), 2, 1, 41)],
    ids=["probit, one input", "probit, two inputs", "logistic, one input"],
)
@pytest.mark.parametrize("y", [0, 1])
def test_one_update_gives_the_exact_posterior_moments(
    likelihood: Likelihood, units: int, inputs: int, points: int, y: int
) -> None:
    """A linear model with bias: 2, 3 and 4 parameters. The label is likely under q once and unlikely once."""
    model = Network(nn.Flatten(), inputs, likelihood)
    prior = model.prior({"all": units}).to(torch.float64)
    q = random_q(prior.layout, 0)
    data = dataset(torch.tensor([[1.3, -0.6][:inputs]], dtype=torch.float64), torch.tensor([y]))
    after = MomentMatching()(Target(q, model, data, prior), Rng((0,)))
    mean, var = grid_moments(q, model, data, points)
    assert torch.allclose(after.mean[0], mean, rtol=0, atol=1e-9)
    assert torch.allclose(after.log_var[0].exp(), var, rtol=0, atol=1e-9)
    assert not torch.allclose(after.mean, q.mean, atol=0.01)


def full_posterior(mean: Tensor, var: Tensor, x: Tensor, y: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Mean and marginal variances of N(theta; mean, diag var) N(y; theta^T x, noise^2), from the full covariance."""
    covariance = torch.linalg.inv(torch.diag(1 / var) + torch.outer(x, x) / noise**2)
    return covariance @ (mean / var + x * y / noise**2), covariance.diagonal()


def test_a_linear_gaussian_pass_is_the_marginals_of_the_full_posterior_of_one_example_after_another() -> None:
    model, data = LinearGaussian(4, 0.5, 2.0), linear_data(6, 0, runs=2)
    prior = model.prior({}).to(torch.float64)
    after = MomentMatching()(Target(prior.expand(2), model, data, prior), Rng((3, 4)))
    for run, generator in enumerate(Rng((3, 4)).at("order").generators()):
        mean, var = prior.mean[0], prior.log_var[0].exp()
        for n in torch.randperm(6, generator=generator).tolist():
            mean, var = full_posterior(mean, var, data.x[run, n], data.y[run, n], 0.5)
        assert torch.allclose(after.mean[run], mean, rtol=1e-9)
        assert torch.allclose(after.log_var[run].exp(), var, rtol=1e-9)
    assert not torch.allclose(after.mean[0], after.mean[1]), "each run has an order of its own"


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_every_example_counts_exactly_once_whatever_the_batch(batch: int) -> None:
    """With one parameter a Gaussian site does not depend on q, so any batch size ends at the exact posterior."""
    model, data = LinearGaussian(1, 0.5, 2.0), linear_data(30, 0, inputs=1)
    prior = model.prior({}).to(torch.float64)
    after = MomentMatching(batch)(Target(prior, model, data, prior), Rng((0,)))
    mean, precision = linear_posterior(data.x[0], data.y[0], 0.5, 2.0)
    assert torch.allclose(after.mean[0], mean, rtol=1e-10)
    assert torch.allclose((-after.log_var[0]).exp(), precision[0], rtol=1e-10)


def test_a_batch_adds_the_natural_parameters_of_its_examples_sites() -> None:
    """1/v and m/v change by the sum of what each example alone would change them by, from the same q."""
    model, data = Network(nn.Flatten(), 4, Probit()), linear_data(5, 0)
    data = data._replace(y=(data.y > 0).long())
    prior = model.prior({"all": 1}).to(torch.float64)
    q = random_q(prior.layout, 1)

    def natural(q: MeanField) -> Tensor:
        precision = (-q.log_var[0]).exp()
        return torch.stack([precision, precision * q.mean[0]])

    together = MomentMatching(5)(Target(q, model, data, prior), Rng((0,)))
    alone = [
        MomentMatching()(Target(q, model, data.take(torch.tensor([[n]])), prior), Rng((0,))) for n in range(data.size)
    ]
    expected = natural(q) + sum((natural(one) - natural(q) for one in alone), torch.zeros(()))
    assert torch.allclose(natural(together), expected, rtol=1e-9)


class Given:
    """log Z = m_0 + x v_1, to see what becomes of a coordinate that cannot be matched."""

    def log_evidence(self, mean: Params, var: Params, data: Data) -> Tensor:
        return mean["w"][0] + data.x[:, 0] * var["w"][1]


@pytest.mark.parametrize(
    ("slopes", "var_after"),
    [([5.0], 3.0), ([-10.0], 0.5), ([5.0, 5.0], 0.5), ([5.0, -10.0], 3.0)],
    ids=["matched", "a site alone", "sites together", "one site of two"],
)
def test_a_coordinate_whose_variance_would_not_be_positive_keeps_its_value(
    slopes: list[float], var_after: float
) -> None:
    """From v = 1/2. dlogZ/dv = 5 asks for v + 10 v^2 = 3, which takes 5/3 off 1/v = 2; two such would make it negative.

    dlogZ/dv = -10 asks for v - 20 v^2 < 0, so this site changes nothing, whatever stands beside it.
    """
    layout, half, examples = Layout(("w",), ((2,),)), torch.full((1, 2), 0.5), len(slopes)
    given: Any = Given()
    data = dataset(torch.tensor(slopes)[:, None], torch.zeros(examples, dtype=torch.int64))
    mean, var, log_z = update(given, layout, torch.ones(1, 2), half, data)
    # Coordinate 0 has slope 1 in each example, so each adds 1 / (1 - 1/2) = 2 to its precision 2.
    assert var[0].tolist() == pytest.approx([1 / (2 + 2 * examples), var_after])
    assert mean[0].tolist() == pytest.approx([1 + 2 * examples / (2 + 2 * examples), 1])
    assert log_z[0].tolist() == pytest.approx([1 + slope / 2 for slope in slopes])


def test_the_evidence_of_a_network_is_the_average_likelihood_over_its_weights() -> None:
    """Two classes and one hidden layer: only the output's shape and the logits' correlation are approximated."""
    model, data = small_network(hidden=20), blobs(6, 0, "t", "h")
    layout = model.prior({"h": 2}).layout
    g = torch.Generator().manual_seed(0)
    q = MeanField(layout, 0.3 * torch.randn(1, layout.size, generator=g), torch.full((1, layout.size), -2.5))
    theta = q.draw(torch.randn(1, 20_000, layout.size, generator=g))[0]
    one = first_run(data)
    brute = torch.vmap(lambda flat: model.log_lik(layout.split(flat), one).exp())(theta).mean(0)
    ours = model.log_evidence(layout.split(q.mean[0]), layout.split(q.log_var[0].exp()), one).exp()
    assert torch.allclose(ours, brute, atol=0.02)
    assert brute.std() > 0.1, "the examples differ, so the comparison says something"


@pytest.mark.parametrize("likelihood", [Categorical(), Probit()], ids=["categorical", "probit"])
def test_each_example_is_answered_by_its_own_head(likelihood: Likelihood) -> None:
    """In log_lik and log_evidence, with mixed heads; labels of one may be out of range for the other."""
    units = {"h0": 2, "h1": 3} if isinstance(likelihood, Categorical) else {"h0": 1, "h1": 1}
    model = Network(mlp(6, [5]), 5, likelihood)
    mixed = first_run(concat(blobs(6, 0, "a", "h0"), blobs(7, 1, "b", "h1", classes=max(2, units["h1"]))))
    layout = model.prior(units).layout
    q = random_q(layout, 0).to(torch.float32)
    mean, var = layout.split(q.mean[0]), layout.split(q.log_var[0].exp())
    for number in (0, 1):
        rows = mixed.source == number
        alone = Data(mixed.x[rows], mixed.y[rows], torch.zeros_like(mixed.source[rows]), (mixed.sources[number],))
        assert torch.allclose(model.log_lik(mean, mixed)[rows], model.log_lik(mean, alone), atol=1e-6)
        evidence = model.log_evidence(mean, var, mixed)[rows]
        assert torch.allclose(evidence, model.log_evidence(mean, var, alone), atol=1e-6)


@pytest.mark.parametrize(("batch", "classes"), [(1, 2), (5, 2), (1, 4)])
def test_one_pass_teaches_a_small_network_to_tell_blobs_apart(batch: int, classes: int) -> None:
    """On new examples, within 4% of the best there is here, the nearest class mean (measured: 0.5 to 3% below it)."""
    model = small_network(20)
    data = blobs(800, 0, "t", "h", runs=2, classes=classes)
    train, test = data.divide(torch.arange(400).expand(2, -1))
    prior = model.prior({"h": classes})
    told: list[Any] = []
    q = MomentMatching(batch)(Target(prior.expand(2), model, train, prior), Rng((0, 1)), told.append)
    right = predict(q, model, test.x, "h", Rng((0, 1))).argmax(-1) == test.y
    centres = torch.stack([train.x[0][train.y[0] == c].mean(0) for c in range(classes)])
    nearest = torch.cdist(test.x[0], centres).argmin(-1) == test.y[0]
    assert (right.float().mean(1) > nearest.float().mean() - 0.04).all()
    assert nearest.float().mean() > 0.95, "the classes can be told apart"
    assert (told[-1].objective > told[0].objective + 0.3).all(), "the evidence of examples not yet seen grows"


def test_a_run_of_a_stack_is_that_run_alone() -> None:
    model = small_network()

    def end(seeds: tuple[int, ...]) -> MeanField:
        prior = model.prior({"h0": 2})
        data = blobs(40, 0, "t", "h0", runs=len(seeds))
        return MomentMatching(3)(Target(prior.expand(len(seeds)), model, data, prior), Rng(seeds))

    stack = end((3, 8))
    for run, seed in enumerate((3, 8)):
        alone = end((seed,))
        assert torch.allclose(stack.mean[run], alone.mean[0], atol=1e-5)
        assert torch.allclose(stack.log_var[run], alone.log_var[0], atol=1e-5)
    assert not torch.allclose(stack.mean[0], stack.mean[1], atol=1e-2)


def test_hidden_means_at_the_prior_start_small_and_random_and_everything_else_at_q() -> None:
    """A head of one class has evidence 1 whatever the weights, so nothing moves after the start."""
    model = small_network()
    data = dataset(torch.randn(3, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(3, dtype=torch.int64))
    prior = model.prior({"all": 1, "other": 2})
    first = MomentMatching(init_sd=0.05)(Target(prior, model, data, prior), Rng((0,)))
    for name, value in prior.layout.split(first.mean).items():
        assert bool(value.any()) == name.startswith("trunk."), name
    assert first.mean.abs().max() <= 0.1
    assert torch.equal(first.log_var, prior.log_var)
    again = MomentMatching(init_sd=0.05)(Target(first, model, data, prior), Rng((1,)))
    assert torch.equal(again.mean, first.mean), "informed means are not drawn anew"


def test_heads_of_other_tasks_are_bitwise_unchanged() -> None:
    model, tasks = small_network(), blob_tasks(2)
    prior = model.prior({"h0": 2, "h1": 2})
    one = MomentMatching()(Target(prior, model, tasks[0].train, prior), Rng((0,)))
    two = MomentMatching()(Target(one, model, tasks[1].train, prior), Rng((1,)))
    for before, after in ((one.mean, two.mean), (one.log_var, two.log_var)):
        for name, value in prior.layout.split(before).items():
            assert torch.equal(value, prior.layout.split(after)[name]) == name.startswith("heads.h0."), name


@pytest.mark.parametrize(("examples", "ticks"), [(3, 3), (10, 10), (101, 10)])
def test_progress_is_told_at_most_ten_times_and_ends_at_the_last(examples: int, ticks: int) -> None:
    model, data = LinearGaussian(4), linear_data(examples, 0, runs=2)
    prior = model.prior({}).to(torch.float64)
    told: list[Any] = []
    MomentMatching()(Target(prior.expand(2), model, data, prior), Rng((0, 1)), told.append)
    assert [(step.what, step.epoch, step.epochs) for step in told] == [
        ("moment matching", number, ticks) for number in range(1, ticks + 1)
    ]
    assert all(step.objective.shape == (2,) for step in told)


def test_what_is_told_is_the_log_evidence_of_each_example_before_it_was_seen() -> None:
    """Its sum over one pass is the log evidence of all data, exact here: the chain rule of probability."""
    model, data = LinearGaussian(1, 0.5, 2.0), linear_data(10, 0, inputs=1)
    prior = model.prior({}).to(torch.float64)
    told: list[Any] = []
    MomentMatching()(Target(prior, model, data, prior), Rng((0,)), told.append)
    x, eye = data.x[0], torch.eye(10, dtype=torch.float64)
    joint = torch.distributions.MultivariateNormal(torch.zeros(10, dtype=torch.float64), 2.0 * x @ x.T + 0.25 * eye)
    assert sum(step.objective.item() for step in told) == pytest.approx(joint.log_prob(data.y[0]).item(), rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"batch": 0}, "batch is 0; give at least 1"), ({"init_sd": 0.0}, "init_sd is 0.0; a deviation must be above 0")],
)
def test_settings_that_cannot_be_run_are_refused(settings: dict[str, Any], words: str) -> None:
    model, data = LinearGaussian(4), linear_data(5, 0)
    prior = model.prior({}).to(torch.float64)
    with pytest.raises(VclError, match=words):
        MomentMatching(**settings)(Target(prior, model, data, prior), Rng((0,)))


def test_a_network_without_rules_for_its_moments_is_refused() -> None:
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh()), 5, Categorical())
    prior = model.prior({"h": 2})
    with pytest.raises(VclError, match=r"layer '2' \(Tanh\) has no rule for its moments"):
        MomentMatching()(Target(prior, model, blobs(4, 0, "t", "h"), prior), Rng((0,)))


def test_leaving_the_finite_numbers_is_said() -> None:
    model, data = small_network(), blobs(4, 0, "t", "h", runs=2)
    prior = model.prior({"h": 2})
    x = data.x.clone()
    x[1] *= 1e30
    with pytest.raises(NonFiniteError, match=r"became non-finite \(seed 9\).*scale them, or give a smaller prior_var"):
        MomentMatching()(Target(prior.expand(2), model, data._replace(x=x), prior), Rng((8, 9)))
