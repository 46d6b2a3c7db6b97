"""Fits of every family, for a test that runs them in one process and in two; `python shared_fits.py FILE` writes them.

Batches have 10 of 41 examples, so the last of an epoch has 1: one of two processes has no share of it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from made import blobs, linear_data, shapes, small_network, small_vae
from vcl.data import concat, in_precision
from vcl.errors import VclError
from vcl.fitting import Ascent, Curvature, sharing
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.models import LinearGaussian, Network
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops.rng import Rng
from vcl.projections import (
    ElasticWeightConsolidation,
    Exact,
    KroneckerLaplace,
    KroneckerVariational,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    Merged,
    MomentMatching,
    OnlineLinear,
    SequentialMonteCarlo,
    SynapticIntelligence,
    Target,
    VariationalKL,
)

ADAM = Ascent(epochs=2, batch=10, lr=1e-2)
RUNS = 2


class Rows(nn.Module):
    """A trunk of unknown structure: one linear layer over three pieces of an input, one over the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.whole = nn.Linear(2, 2), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.whole(self.shared(x.view(-1, 3, 2)).flatten(1)))


def fits() -> dict[str, tuple[Any, Any, list[Any]]]:
    """By name: a projection, a model and the data of two tasks."""
    two = [concat(blobs(20, 1, "a", "a", RUNS), blobs(21, 2, "b", "b", RUNS)), blobs(41, 3, "a", "a", RUNS)]
    images = [shapes(41, 0, "s", RUNS), shapes(41, 1, "s", RUNS)]
    lines = [linear_data(41, 0, "a", RUNS), linear_data(41, 1, "a", RUNS)]
    net, opaque, vae = small_network(), Network(Rows(), 4, Categorical()), small_vae()
    line = LinearGaussian(4, noise=0.5)
    # Factors of full rank. Where no data speaks the exact gradient is 0, and Adam would follow the sign of rounding.
    ranked = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh()), 3, Normal(0.5))
    targets = [data._replace(y=data.x[..., :3].sin()) for data in lines]
    vi = VariationalKL(ADAM, draws=2)
    kron = KroneckerLaplace(ADAM, curvature=KroneckerCurvature(rounds=1, draws=2))
    return {
        "mean field": (vi, net, two),
        "mean field, all at once": (replace(vi, ascent=replace(ADAM, batch=None)), net, two),
        "mean field, local": (replace(vi, estimator="local"), net, two),
        "mean field, any module": (replace(vi, estimator="local"), opaque, two),
        "natural gradients": (replace(vi, natural=NaturalGradient()), net, two),
        "generator": (vi, vae, images),
        "full": (replace(vi, family="full"), line, lines),
        "maximum likelihood": (MaximumLikelihood(ADAM), net, two),
        "naive generator": (MaximumLikelihood(ADAM, draws=2), vae, images),
        "MAP": (MaximumAPosteriori(ADAM), net, two),
        "Laplace": (LaplacePropagation(ADAM), net, two),
        "Laplace, drawn labels": (LaplacePropagation(ADAM, curvature=Curvature("true", samples=31)), opaque, two),
        "Laplace, Hessian": (LaplacePropagation(ADAM, curvature=Curvature("hessian")), line, lines),
        "Laplace of a generator": (LaplacePropagation(ADAM, draws=2), vae, images),
        "EWC": (ElasticWeightConsolidation(ADAM), net, two),
        "SI": (SynapticIntelligence(ADAM), net, two),
        "Kronecker": (kron, net, two),
        "Kronecker, any module": (
            replace(kron, curvature=KroneckerCurvature(at="mode", sharing="reduce")),
            opaque,
            two,
        ),
        "variational Kronecker, local": (KroneckerVariational(kron, ADAM, draws=2, estimator="local"), ranked, targets),
        "variational Kronecker, weights": (
            KroneckerVariational(kron, ADAM, draws=2, estimator="weights"),
            ranked,
            targets,
        ),
        "particles": (SequentialMonteCarlo(particles=40, min_ess=5), line, lines),
        "merged": (Merged(vi), net, two),
        "exact": (Exact(), line, lines),
        "exact, one example at a time": (OnlineLinear(), line, lines),
        "moment matching": (MomentMatching(batch=10), net, two),
    }


def fitted(name: str) -> dict[str, Tensor]:
    """The belief after two tasks, in float64."""
    project, model, tasks = fits()[name]
    prior = model.prior({source.head: 3 for data in tasks for source in data.sources}).to(torch.float64).expand(RUNS)
    q = project.initial(prior)
    for number, data in enumerate(tasks):
        data = in_precision(data, torch.float64)
        q = project(Target(q, model, data, prior), Rng(range(RUNS)).at("task", number))
    return {f"{name}/{key}": value.contiguous() for key, value in q.tensors().items()}


def refused(rank: int) -> str:
    """What is said where the processes have other seeds."""
    model, data = small_network(), blobs(10, 1, "a", "a")
    prior = model.prior({"a": 2})
    try:
        MaximumLikelihood(ADAM)(Target(MaximumLikelihood().initial(prior), model, data, prior), Rng(rank))
    except VclError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    torch.set_num_threads(1)
    with sharing() as group:
        assert group.size == 2
        found = {key: value for name in fits() for key, value in fitted(name).items()}
        said = refused(group.rank)
    save_file(found, sys.argv[1] + str(group.rank), {"refused": said})
