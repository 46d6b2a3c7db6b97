"""Engines and bounds have names, and a bound that stands in for another says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from made import small_network
from vcl.beliefs.mean_field_fit import MeanFieldFit
from vcl.engines import choose as chooser
from vcl.engines.choose import choose, choose_bound
from vcl.models import LinearGaussian, Network
from vcl.models.base import Model, roles
from vcl.models.likelihoods import Categorical
from vcl.projections import Exact, MaximumLikelihood, MomentMatching, SequentialMonteCarlo, VariationalKL
from vcl.projections.base import engine_name


class Odd(nn.Module):
    """No chain of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * x


def named(project: Any, model: Model) -> str:
    return engine_name(project, model, model.prior({"h0": 2, "h1": 2}), ("h0",))


CHAIN, ODD = small_network(), Network(Odd(), 4, Categorical())


@pytest.mark.parametrize("project", [VariationalKL(), VariationalKL(estimator="local"), MaximumLikelihood()], ids=str)
def test_a_projection_names_the_engine_of_its_model(project: Any) -> None:
    assert named(project, CHAIN) == "layered/torch"
    assert named(project, ODD) == "general/torch"


def test_particles_are_scored_by_an_engine_and_closed_forms_by_none() -> None:
    assert named(SequentialMonteCarlo(), CHAIN) == "layered/torch"
    assert named(MomentMatching(), CHAIN) == "-"
    linear = LinearGaussian(4)
    assert engine_name(Exact(), linear, linear.prior({}), ("all",)) == "-"


def test_a_family_without_rules_says_that_theta_is_drawn_whole() -> None:
    whole = "theta drawn whole (no rules for the family FullFit)"
    assert named(VariationalKL(family="full"), CHAIN) == f"layered/torch, {whole}"
    assert named(VariationalKL(family="full"), ODD) == f"general/torch, {whole}"


def test_a_family_that_one_engine_does_not_know_falls_back_to_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {key: value for key, value in chooser.SUPPLIERS.items() if not key[2].startswith("layered")}
    monkeypatch.setattr(chooser, "SUPPLIERS", known)
    prior = CHAIN.prior({"h0": 2})
    engine = choose(CHAIN, prior.layout, ("h0",), prior.mean)
    bound = choose_bound(engine, MeanFieldFit(prior, roles(CHAIN, prior.layout)), "weights", 2, 0)
    assert engine.name == "layered/torch"
    assert bound.name == "general/torch (no rules for MeanFieldFit by weights in layered/torch)"
