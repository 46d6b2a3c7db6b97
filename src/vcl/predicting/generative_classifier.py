"""Classification by generators: a generator per class, and Bayes' rule over the classes.

    p(y | x) = p(y) p(x | y) / p(x),   p(x) = sum_y p(y) p(x | y)

    log p(x | y) ~= log (1/K) sum_k p(x | z_k, theta_y) p(z_k) / q_y(z_k | x),   z_k = mu_y(x) + sd_y(x) eps_k

by importance sampling with the encoder of class y as proposal. theta_y is the posterior mean, or also drawn. The draws
eps_k are the same for all images: an image's answer depends neither on the other images nor on how they are divided
into blocks.

A draw whose weight is no number counts 0: so far from all data the encoder's or the decoder's output overflows. An
input for which all draws of all classes do so has log p(x) = -inf, and p(y | x) = p(y): nothing is known of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.beliefs.layout import Params
from vcl.data import Array, Data, Source, as_tensor
from vcl.engines.general import along
from vcl.engines.size import values_made
from vcl.errors import VclError
from vcl.models.base import LatentModel
from vcl.ops.devices import limits
from vcl.ops.noise import draw_noise
from vcl.ops.out_of_memory import PREDICTION, told_of_memory
from vcl.ops.rng import Rng
from vcl.predicting.generation import ThetaChoice, check_runs, generator_of, thetas
from vcl.predicting.learned import Learned, belief_at, inputs_at


@told_of_memory("a prediction", PREDICTION)
@torch.no_grad()
def class_log_marginals(
    belief: Belief | Learned,
    model: LatentModel,
    x: Array,
    classes: Sequence[str],
    rng: Rng,
    draws: int = 50,
    theta: ThetaChoice = "mean",
    theta_draws: int = 10,
    chunk: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """log p(x | y) of each image x [R, N, ...] under the generator of each class: [R, N, C].

    ``belief`` is a state or a bare belief; ``classes`` are heads, in the order of the result. ``draws`` is the number
    of draws of z for each image and class. With ``theta="drawn"`` they are divided among ``theta_draws`` draws of
    theta. ``chunk`` limits the rows (runs x draws x images) computed at once; by default it is what fits the device.
    """
    if draws < 1 or theta_draws < 1 or (chunk is not None and chunk < 1):
        raise VclError(f"draws is {draws}, theta_draws is {theta_draws} and chunk is {chunk}; give at least 1 of each.")
    check_classes(classes)
    images = as_tensor(inputs_at(belief, x), "x")
    if not bool(images.isfinite().all()):
        raise VclError("x has values that are not finite; drop or fill those images.")
    found = []
    for place, name in enumerate(classes):
        mine, seeds = belief_at(belief, model, name, rng, checked=place > 0)
        q = generator_of(mine, name, device)
        check_runs(q, images, seeds)
        if not bool(q.mean.isfinite().all()):
            raise VclError(f"the generator of {name!r} has weights that are not finite; learn it anew.")
        found.append(_log_marginal(q, model, images, name, seeds.at("class", name), draws, theta, theta_draws, chunk))
    return torch.stack(found, dim=-1)


def classify(log_marginals: Tensor, prior: Sequence[float] | Tensor | None = None) -> Tensor:
    """p(y | x) from log p(x | y) [..., C], in float64: [..., C]. ``prior`` is p(y); by default all are alike."""
    log_prior = _log_prior(log_marginals, prior)
    joint = log_marginals.double() + log_prior
    none = (joint == -torch.inf).all(-1, keepdim=True)
    return torch.where(none, log_prior, joint).softmax(-1)


def score(log_marginals: Tensor, prior: Sequence[float] | Tensor | None = None) -> Tensor:
    """log p(x) = log sum_y p(y) p(x | y) from log p(x | y) [..., C]: [...], low for inputs of no known class."""
    return (log_marginals.double() + _log_prior(log_marginals, prior)).logsumexp(-1)


def check_classes(classes: Sequence[str]) -> None:
    """Raise VclError unless there is a class, and each is named once."""
    if isinstance(classes, str) or not classes:
        raise VclError(f"classes is {classes!r}; give a list of at least one class, such as ['0', '1'].")
    twice = [name for place, name in enumerate(classes) if name in classes[:place]]
    if twice:
        raise VclError(f"classes names {twice[0]!r} twice; give each class once.")


def _log_prior(log_marginals: Tensor, prior: Sequence[float] | Tensor | None) -> Tensor:
    """log p(y) [C], normalised."""
    count = log_marginals.shape[-1]
    if prior is None:
        return torch.full((count,), -log(count), dtype=torch.float64, device=log_marginals.device)
    try:
        given = torch.as_tensor(prior, dtype=torch.float64, device=log_marginals.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise VclError(f"prior is {prior!r}; give one number for each of the {count} classes.") from error
    if given.shape != (count,) or not bool((given >= 0).all()) or not 0 < float(given.sum()) < torch.inf:
        raise VclError(
            f"prior is {given.tolist()}; give one weight of at least 0 for each of the {count} classes, not all 0."
        )
    return (given / given.sum()).log()


def _log_marginal(
    q: Belief,
    model: LatentModel,
    x: Tensor,
    head: str,
    rng: Rng,
    draws: int,
    theta: ThetaChoice,
    theta_draws: int,
    chunk: int | None,
) -> Tensor:
    """log p(x | y) [R, N] of one class, block by block."""
    runs, source, where = x.shape[0], (Source(head, head),), q.mean.device

    def log_weight(params: Params, x: Tensor, none: Tensor, noise: Tensor) -> Tensor:
        noise = noise.unsqueeze(-2).expand(-1, x.shape[0], -1)  # [K, N, latent], the same for all images
        return model.log_weight(params, Data(x, none, none, source), noise)

    none = torch.zeros(x.shape[:2], dtype=torch.int64, device=where)
    total = torch.full(x.shape[:2], -torch.inf, dtype=q.mean.dtype, device=where)
    if not x.shape[1]:
        return total
    if chunk is None:
        one, image = q.layout.split(q.mean[0]), x[0, :1].to(where)

        def size(draws: int) -> int:
            return values_made(lambda: log_weight(one, image, none[0, :1], q.mean.new_zeros(draws, model.latent)))

        most = limits(where)
        chunk = max(1, min(most.rows, most.values // max(1, size(2) - size(1))))  # of one more draw
    generators = rng.at("z").generators(where)
    for values, count in thetas(q, draws, theta, theta_draws, rng):
        params = q.layout.split(values)
        noise = draw_noise(count * model.latent, generators, values).view(runs, count, model.latent)
        at_once = max(1, min(count, chunk // runs))
        images = max(1, chunk // (runs * at_once))
        for first in range(0, x.shape[1], images):
            part = x[:, first : first + images].to(where)
            here = total[:, first : first + images]
            for done in range(0, count, at_once):
                eps = noise[:, done : done + at_once]
                found = along(log_weight, runs, where)(params, part, none[:, : part.shape[1]], eps)
                known = found.masked_fill(~found.isfinite(), -torch.inf)
                here.copy_(torch.logaddexp(here, known.logsumexp(1)))
    return total - log(draws)
