"""Where a fit begins: small random means of the deviation asked for, in every projection that has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from made import blobs, small_network
from vcl.data import concat, dataset
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.loop import Ascent
from vcl.models import Network, mlp, split_head
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import (
    ElasticWeightConsolidation,
    KroneckerLaplace,
    KroneckerVariational,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    MomentMatching,
    SynapticIntelligence,
    Target,
    VariationalKL,
)
from vcl.projections.base import fresh

STANDING = Ascent(epochs=1, batch=None, lr=1e-9)
"""One step that goes nowhere: what comes out is where the fit began."""
PROJECTIONS: dict[str, Any] = {
    "mle": MaximumLikelihood(STANDING),
    "map": MaximumAPosteriori(STANDING),
    "lp": LaplacePropagation(STANDING),
    "ewc": ElasticWeightConsolidation(STANDING),
    "si": SynapticIntelligence(STANDING),
    "vi": VariationalKL(STANDING, draws=1),
    "vi, no maximum likelihood": VariationalKL(STANDING, draws=1, ml_start=False),
    "vi, anew": VariationalKL(STANDING, draws=1, start="restart"),
}


def beginning(project: Any) -> torch.Tensor:
    model, data = small_network(40), blobs(10, 0, "t", "h0")
    prior = model.prior({"h0": 2})
    mean: torch.Tensor = project(Target(project.initial(prior.expand(1)), model, data, prior), Rng((0,))).mean
    return mean


@pytest.mark.parametrize("name", PROJECTIONS)
def test_init_sd_is_the_deviation_of_the_first_means(name: str) -> None:
    """402 means; a normal cut at two deviations has 0.88 of its deviation."""
    at = {sd: beginning(replace(PROJECTIONS[name], init_sd=sd)) for sd in (0.05, 0.1, 0.4)}
    assert at[0.1].std().item() == pytest.approx(0.088, rel=0.12)
    torch.testing.assert_close(at[0.4], 4 * at[0.1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(at[0.05], at[0.1] / 2, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(beginning(PROJECTIONS[name]), at[0.1])


ALL = PROJECTIONS | {
    "kronecker": KroneckerLaplace(STANDING, curvature=KroneckerCurvature("mode")),
    "kronecker vi": KroneckerVariational(KroneckerLaplace(STANDING, curvature=KroneckerCurvature("mode")), STANDING),
    "vi, natural": VariationalKL(STANDING, draws=1, estimator="local", ml_start=False),
    "full": VariationalKL(STANDING, draws=1, family="full", ml_start=False),
}


def trained() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU())


@pytest.mark.parametrize("at_prior", [False, True], ids=["start", "prior's mean"])
@pytest.mark.parametrize("name", ALL)
def test_a_fit_starts_at_the_values_that_a_model_offers(name: str, at_prior: bool) -> None:
    """The trunk at the module's, a head at the given ones, and another head at random."""
    trunk, data = trained(), concat(blobs(10, 0, "t0", "h0", 2), blobs(10, 0, "t1", "h1", 2))
    head = torch.randn(2, 5), torch.randn(2)
    offer: Any = {"prior_mean": "module"} if at_prior else {"start": "module"}
    model = Network(trunk, 5, Categorical(), head_start={"h0": head}, **offer)
    with torch.no_grad():
        wanted = [trunk[1].weight.clone(), trunk[1].bias.clone(), *head]  # type: ignore[operator, union-attr]
        trunk[1].weight.zero_()  # type: ignore[operator, union-attr]
    prior = model.prior({"h0": 2, "h1": 2})
    for part, mean in zip(wanted, prior.layout.split(prior.mean).values(), strict=False):
        assert torch.equal(mean[0], part * at_prior)
    project = ALL[name]
    found = project(Target(project.initial(prior.expand(2)), model, data, prior), Rng((0, 1)))
    values = list(found.layout.split(found.mean).values())
    for part, value in zip(wanted, values, strict=False):
        torch.testing.assert_close(value, part.expand_as(value), rtol=1e-6, atol=1e-6)
    for value in values[4:]:
        assert bool(value.any())
        assert not torch.equal(value[0], value[1]), "seeds differ at random"


def test_informed_tensors_continue_where_they_are_and_a_restart_does_not() -> None:
    model, data = Network(trained(), 5, Categorical(), start="module"), blobs(10, 0, "t", "h0")
    prior = model.prior({"h0": 2})
    informed = prior._replace(mean=torch.full_like(prior.mean, 0.25))
    for start in ("continue", "reset"):
        found = VariationalKL(STANDING, draws=1, start=start)(Target(informed, model, data, prior), Rng(0))  # type: ignore[arg-type]
        torch.testing.assert_close(found.mean, informed.mean)
    again = VariationalKL(STANDING, draws=1, start="restart")(Target(informed, model, data, prior), Rng(0))
    torch.testing.assert_close(
        again.layout.split(again.mean)["trunk.1.weight"][0], model.start_values["trunk.1.weight"]
    )


def test_moment_matching_starts_there_too() -> None:
    """One example of no weight: a label of an input of zeros moves the biases alone."""
    model = Network(trained(), 5, Categorical(), start="module")
    data = dataset(torch.zeros(1, 6), torch.tensor([0]), "t", "h0")
    prior = model.prior({"h0": 2})
    q = MomentMatching()(Target(prior, model, data, prior), Rng(0))
    assert torch.equal(q.layout.split(q.mean)["trunk.1.weight"][0], model.start_values["trunk.1.weight"])


def test_the_penalty_and_the_kl_are_around_the_priors_mean() -> None:
    """At the prior's mean the gradient of either is zero, so a fit to nothing but it stays; elsewhere it returns."""
    trunk = trained()
    model = Network(trunk, 5, Categorical(), prior_var=1e-6, prior_mean="module", start={
        "trunk.1.weight": torch.zeros(5, 6),
    })  # fmt: skip
    data, prior = blobs(10, 0, "t", "h0"), model.prior({"h0": 2})
    fit = Ascent(300, None, 0.01, schedule="cosine")
    for project in (
        VariationalKL(fit, 1, "local", ml_start=False), LaplacePropagation(fit), MaximumAPosteriori(fit),
        KroneckerLaplace(fit, curvature=KroneckerCurvature("mode")),
    ):  # fmt: skip
        q: Any = project(Target(project.initial(prior), model, data, prior), Rng(0))  # type: ignore[attr-defined, operator]
        found = q.layout.split(q.mean)["trunk.1.weight"][0]
        torch.testing.assert_close(found, model.prior_values["trunk.1.weight"], rtol=0.0, atol=2e-3)


def test_a_network_is_made_again_from_the_values_that_it_shows() -> None:
    head = {"h0": (torch.randn(2, 5), torch.randn(2))}
    one = Network(trained(), 5, Categorical(), prior_mean="module", head_start=head)
    two = Network(mlp(6, [5]), 5, Categorical(), start=one.start_values, prior_mean=one.prior_values)
    assert torch.equal(one.prior({"h0": 2}).mean, two.prior({"h0": 2}).mean)
    assert one.digest() == two.digest() != Network(mlp(6, [5]), 5, Categorical(), prior_mean="module").digest()
    assert all(torch.equal(value, two.start_values[name]) for name, value in one.start_values.items())


def test_one_epoch_from_trained_values_is_better_than_from_random_ones() -> None:
    """A network trained on one half of the classes' examples, and a fit of one epoch to the other half."""
    trunk, x, y = trained(), *blobs(400, 3, "t", "h0", classes=4)[:2]
    net = nn.Sequential(trunk, nn.Linear(5, 4))
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x[0, :200]), y[0, :200]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    data = dataset(x[0, 200:], y[0, 200:], "t", "h0", 3)
    whole = split_head(net, x[0, :1])
    accuracy = []
    for offer in ({}, {"start": "module"}, {"start": "module", "head_start": {"h0": (whole.weight, whole.bias)}}):
        model: Any = Network(whole.trunk, 5, Categorical(), **offer)  # type: ignore[arg-type]
        prior = model.prior({"h0": 4})
        q = VariationalKL(Ascent(1, 20, 1e-3), 1, "local", ml_start=False)(
            Target(prior.expand(3), model, data, prior), Rng((0, 1, 2))
        )
        found = predict(q, model, data.x, "h0", Rng((0, 1, 2)), draws=10).argmax(-1)
        accuracy.append((found == data.y).float().mean().item())
    assert accuracy[0] < 0.6 < 0.9 < accuracy[2]
    assert accuracy[0] < accuracy[2]


@pytest.mark.parametrize("start", ["continue", "reset", "restart"])
def test_init_var_is_the_first_variance(start: Any) -> None:
    model, data = small_network(4), blobs(10, 0, "t", "h0")
    prior = model.prior({"h0": 2})
    for var in (1e-3, 0.3):
        project = VariationalKL(STANDING, draws=1, start=start, init_var=var)
        q = project(Target(prior.expand(1), model, data, prior), Rng((0,)))
        torch.testing.assert_close(q.log_var.exp(), torch.full_like(q.log_var, var), rtol=1e-5, atol=0.0)


def test_a_tensor_is_fresh_only_where_all_of_it_stands_at_the_prior() -> None:
    """A weight of a dead unit stays at 0 though data has informed the others of its tensor."""
    prior = small_network().prior({"h0": 2})
    mean = prior.layout.split(prior.mean.clone())
    mean["trunk.1.weight"][0, 0, 0] = 1.0
    informed = prior._replace(mean=prior.layout.join(mean, lead=1))
    assert fresh(prior, prior) == dict.fromkeys(prior.layout.names, 0)
    assert fresh(informed, prior) == {name: 0 for name in prior.layout.names if name != "trunk.1.weight"}
