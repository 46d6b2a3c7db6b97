"""Evaluation of generative models: log-likelihood of images, samples, and classifier uncertainty on samples.

    log p(x | D_{1:t}) ~= log (1/K) sum_k p(x | z_k, theta) p(z_k) / q(z_k | x),   z_k ~ q(z | x)

by importance sampling with the encoder as proposal. It is a lower bound in expectation and tightens as K grows. Theta
is the posterior mean (as in the authors' code), or also drawn, which averages p(x | theta) over q_t.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Literal

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.beliefs.layout import Params, head_of
from vcl.data import Data, Source, as_tensor
from vcl.engines.general import along
from vcl.errors import VclError, unknown
from vcl.models.base import LatentModel
from vcl.ops.noise import draw_noise
from vcl.ops.out_of_memory import PREDICTION, told_of_memory
from vcl.ops.rng import Rng
from vcl.predicting.learned import Learned, belief_at, inputs_at

ThetaChoice = Literal["mean", "drawn"]
THETA_CHOICES: tuple[ThetaChoice, ...] = ("mean", "drawn")

LEAST_PROBABILITY = 1e-9
"""The lower limit of a classifier's probability, so that no image has infinite uncertainty."""


@told_of_memory("a prediction", PREDICTION)
@torch.no_grad()
def log_marginal(
    belief: Belief | Learned,
    model: LatentModel,
    x: Tensor,
    head: str,
    rng: Rng,
    draws: int = 5000,
    theta: ThetaChoice = "mean",
    theta_draws: int = 100,
    chunk: int = 50_000,
    device: torch.device | str | None = None,
) -> Tensor:
    """log p(x) of each image x [R, N, ...] under ``head``'s generator: [R, N]. ``belief`` may be a state.

    ``draws`` is the total number of draws of z. With ``theta="drawn"`` they are divided among ``theta_draws`` draws of
    theta; ``"mean"`` uses the posterior mean. ``chunk`` limits the rows (runs x draws x images) computed at once; the
    sum over draws is one running logarithm. The noise depends on ``chunk``.
    """
    if draws < 1 or theta_draws < 1 or chunk < 1:
        raise VclError(f"draws is {draws}, theta_draws is {theta_draws} and chunk is {chunk}; give at least 1 of each.")
    x, (belief, rng) = as_tensor(inputs_at(belief, x), "x"), belief_at(belief, model, head, rng)
    q = generator_of(belief, head, device)
    check_runs(q, x, rng)
    runs, source = x.shape[0], (Source(head, head),)
    generators = rng.at("z").generators(q.mean.device)
    images = max(1, min(x.shape[1], chunk // runs))
    at_once = max(1, chunk // (runs * images))

    def log_weight(params: Params, x: Tensor, none: Tensor, noise: Tensor) -> Tensor:
        return model.log_weight(params, Data(x, none, none, source), noise)

    none = torch.zeros(x.shape[:2], dtype=torch.int64, device=q.mean.device)
    total = x.new_full(x.shape[:2], -torch.inf, dtype=q.mean.dtype, device=q.mean.device)
    for values, count in thetas(q, draws, theta, theta_draws, rng):
        params = q.layout.split(values)
        for first in range(0, x.shape[1], images):
            part = x[:, first : first + images].to(values.device)
            here = total[:, first : first + images]
            for done in range(0, count, at_once):
                k = min(at_once, count - done)
                noise = draw_noise(k * part.shape[1] * model.latent, generators, values)
                noise = noise.view(runs, k, part.shape[1], model.latent)
                found = along(log_weight, runs, values.device)(params, part, none[:, : part.shape[1]], noise)
                here.copy_(torch.logaddexp(here, found.logsumexp(1)))
    return total - log(draws)


@told_of_memory("a prediction", PREDICTION)
@torch.no_grad()
def generate(
    belief: Belief | Learned,
    model: LatentModel,
    head: str,
    count: int,
    rng: Rng,
    theta: ThetaChoice = "drawn",
    theta_draws: int = 10,
    device: torch.device | str | None = None,
) -> Tensor:
    """``count`` images of ``head``'s generator as pixel means, E[x | z, theta] at z ~ N(0, I): [R, count, P].

    ``belief`` may be a state. With ``theta="drawn"``, theta is drawn ``theta_draws`` times (at most once per image),
    each for an equal share of the images; ``"mean"`` uses the posterior mean for all.
    """
    if count < 1 or theta_draws < 1:
        raise VclError(f"count is {count} and theta_draws is {theta_draws}; give at least 1 of each.")
    belief, rng = belief_at(belief, model, head, rng)
    q = generator_of(belief, head, device)
    check_runs(q, None, rng)
    generators = rng.at("z").generators(q.mean.device)

    def one(params: Params, z: Tensor) -> Tensor:
        return model.generate(params, z, head)

    images = []
    for values, share in thetas(q, count, theta, theta_draws, rng):
        z = draw_noise(share * model.latent, generators, values).view(len(generators), share, model.latent)
        images.append(torch.vmap(one, randomness="error")(q.layout.split(values), z))
    return torch.cat(images, dim=1)


def classifier_uncertainty(log_probs: Tensor, task: int) -> Tensor:
    """The mean over images of -log p(task | image), for a classifier's log probabilities [..., N, classes]: [...].

    Probabilities are clipped at 1e-9 from below. Lower is better; 0 means certainty of the right class.
    """
    if not 0 <= task < log_probs.shape[-1]:
        raise VclError(f"task is {task}, but the classifier has {log_probs.shape[-1]} classes, counted from 0.")
    return -log_probs[..., task].clamp(min=log(LEAST_PROBABILITY)).mean(-1)


def thetas(q: Belief, draws: int, theta: ThetaChoice, theta_draws: int, rng: Rng) -> Iterator[tuple[Tensor, int]]:
    """Yields each theta [R, D] and its number of draws; the numbers differ by at most one."""
    if theta not in THETA_CHOICES:
        raise unknown("theta", theta, THETA_CHOICES)
    if theta == "mean":
        yield q.mean, draws
        return
    generators = rng.at("theta").generators(q.mean.device)
    groups = min(theta_draws, draws)
    for group in range(groups):
        share = draws // groups + (group < draws % groups)
        yield q.draw(draw_noise(q.layout.size, generators, q.mean)), share


def generator_of(belief: Belief, head: str, device: torch.device | str | None) -> Belief:
    """The belief over the parameters of ``head``'s encoder and decoder."""
    met = [known for known in dict.fromkeys(map(head_of, belief.layout.names)) if known is not None]
    if met and head not in met:
        raise VclError(f"no task {head!r} has been learned; known are: {', '.join(met)}.")
    q = belief.restrict(belief.layout.touched([head]))
    return q.to(belief.mean.device if device is None else device)


def check_runs(q: Belief, x: Tensor | None, rng: Rng) -> None:
    """Raise VclError unless the belief, the inputs and the seeds are of as many runs."""
    given = q.mean.shape[0] if x is None else x.shape[0]
    if not q.mean.shape[0] == given == len(rng.seeds):
        raise VclError(
            f"the belief has {q.mean.shape[0]} runs, x has {given} and there are {len(rng.seeds)} seeds; give all the "
            "same number of runs (x as [runs, examples, ...])."
        )
