"""Where a fit begins: small random means of the deviation asked for, in every projection that has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from made import blobs, small_network
from vcl.fitting.loop import Ascent
from vcl.ops.rng import Rng
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
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
