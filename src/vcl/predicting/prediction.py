"""p(y* | x*, D_{1:t}) = integral of q_t(theta) p(y* | theta, x*) d theta, by Monte Carlo."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.data import Array, as_tensor
from vcl.engines.choose import Engine, choose
from vcl.engines.predictor import drawn_outputs, drawn_predictions, predictor
from vcl.engines.size import values_made
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import VclError, unknown
from vcl.models.base import HasFixed, HasOutputs, Model, roles
from vcl.ops.devices import limits
from vcl.ops.out_of_memory import PREDICTION, told_of_memory
from vcl.ops.rng import Rng
from vcl.predicting.learned import Learned, belief_at, inputs_at

WEIGHTS_IN_FLIGHT = 2**26
"""The most drawn weights in memory at once, over runs and draws (256 MiB of float32)."""


@told_of_memory("a prediction", PREDICTION)
@torch.no_grad()
def predict(
    belief: Belief | Learned,
    model: Model,
    x: Array,
    head: str,
    rng: Rng,
    draws: int = 100,
    estimator: Estimator = "weights",
    chunk: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Moments of the prediction (for a classifier: probabilities) for x [R, N, ...] at ``head``: [R, N, C].

    ``belief`` is a state, which refuses any other network, or a bare belief. If runs of a state were set aside, x and
    seeds may still be those of all runs; the result covers the remaining ones. Probabilities are averaged over draws,
    never logits. ``chunk`` limits the rows (runs x draws x examples) computed at once; by default it is what is fast on
    the device and fits into memory. The estimator ``local`` multiplies the first layer once for all draws and has the
    same expectation; it needs a mean-field belief, others draw their weights. The work runs on ``device`` (default: the
    belief's); x may be on any device.
    """
    if draws < 1 or (chunk is not None and chunk < 1):
        raise VclError(f"draws is {draws} and chunk is {chunk}; give at least 1 of each.")
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    x, (belief, rng) = inputs_at(belief, x), belief_at(belief, model, head, rng)
    q, x = _at(belief, x, head, rng, device)
    _check_inputs(q, model, head, x)
    runs, device = x.shape[0], q.mean.device
    generators = rng.generators(device)
    engine = choose(model, q.layout, (head,), q.mean)
    rows = _rows(q, model, engine, head, x)
    chunk, at_once = chunk or rows, _at_once(q, draws, rows)
    block = max(1, chunk // (runs * at_once))
    total = torch.zeros((), device=device)
    for first in range(0, draws, at_once):
        count = min(at_once, draws - first)
        add = predictor(engine, q, roles(model, q.layout), head, count, estimator, generators)
        total = total + torch.cat([add(part.to(device)) for part in torch.split(x, block, dim=1)], dim=1)
    return total / draws


@torch.no_grad()
def predict_draws(
    belief: Belief | Learned,
    model: Model,
    x: Array,
    head: str,
    rng: Rng,
    draws: int = 100,
    device: torch.device | str | None = None,
) -> Tensor:
    """The prediction of each draw of the weights, for x [R, N, ...] at ``head``: [R, S, N, C].

    All examples share a draw, so differences between draws show the belief's uncertainty. The mean over S equals
    :func:`predict` with drawn weights.
    """
    return _each_draw(drawn_predictions, belief, model, x, head, rng, draws, device)


@torch.no_grad()
def predict_outputs(
    belief: Belief | Learned,
    model: Model,
    x: Array,
    head: str,
    rng: Rng,
    draws: int = 100,
    device: torch.device | str | None = None,
) -> Tensor:
    """The model's outputs f under each draw of the weights, for x [R, N, ...] at ``head``: [R, S, N, units].

    The draws are those of :func:`predict_draws`. What a likelihood says given f (moments, distribution function,
    samples) follows from them: :mod:`vcl.predicting.uncertainty`.
    """
    if not isinstance(model, HasOutputs):
        raise VclError(
            f"{type(model).__name__} has no outputs(params, x, head), which predict_outputs needs; give it that "
            "method, or use predict_draws."
        )
    return _each_draw(drawn_outputs, belief, model, x, head, rng, draws, device)


@told_of_memory("a prediction", PREDICTION)
def _each_draw(
    drawn: Callable[..., Callable[[Tensor], Tensor]], belief: Belief | Learned, model: Model, x: Array, head: str,
    rng: Rng, draws: int, device: torch.device | str | None,
) -> Tensor:  # fmt: skip
    """The values [R, S, N, C] of ``drawn(engine, q, head, draws, generators)``, in blocks of draws and examples."""
    if draws < 1:
        raise VclError(f"draws is {draws}; give at least 1.")
    x, (belief, rng) = inputs_at(belief, x), belief_at(belief, model, head, rng)
    q, x = _at(belief, x, head, rng, device)
    _check_inputs(q, model, head, x)
    engine = choose(model, q.layout, (head,), q.mean)
    generators, chunk = rng.generators(q.mean.device), _rows(q, model, engine, head, x)
    at_once = _at_once(q, draws, chunk)
    block = max(1, chunk // (x.shape[0] * at_once))
    found = []
    for first in range(0, draws, at_once):
        each = drawn(engine, q, head, min(at_once, draws - first), generators)
        found.append(torch.cat([each(part.to(q.mean.device)) for part in torch.split(x, block, dim=1)], dim=2))
    return torch.cat(found, dim=1)


def _at(belief: Belief, x: Array, head: str, rng: Rng, device: torch.device | str | None) -> tuple[Belief, Tensor]:
    """The belief over the parameters of ``head`` on the device, and inputs in its dtype; checks the runs."""
    x = as_tensor(x, "x")
    if not belief.mean.shape[0] == x.shape[0] == len(rng.seeds):
        raise VclError(
            f"the belief has {belief.mean.shape[0]} runs, x has {x.shape[0]} and there are {len(rng.seeds)} seeds; "
            "give all three the same number of runs (x as [runs, examples, ...])."
        )
    q = belief.restrict(belief.layout.touched([head])).to(belief.mean.device if device is None else device)
    return q, x.to(q.mean.dtype) if x.is_floating_point() else x


def _check_inputs(q: Belief, model: Model, head: str, x: Tensor) -> None:
    """Raise VclError unless the model accepts such inputs; tries one example of one run."""
    if x.dim() < 2 or not x.shape[1]:
        return
    try:
        model.predict(q.layout.split(q.mean[0]), x[0, :1].to(q.mean.device), head)
    except (RuntimeError, ValueError) as error:
        raise VclError(
            f"the network does not take inputs of shape {tuple(x.shape[2:])} and dtype {x.dtype}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _at_once(q: Belief, draws: int, rows: int) -> int:
    """The number of weight draws in memory at once: as many as fit, each with at least one example."""
    runs = q.mean.shape[0]
    return max(1, min(draws, WEIGHTS_IN_FLIGHT // (runs * q.layout.size), rows // runs))


def _rows(q: Belief, model: Model, engine: Engine, head: str, x: Tensor) -> int:
    """The number of rows (runs x draws x examples) computed at once: what is fast and fits into memory.

    A row of a chain of layers is small. For any other model its size is measured on one example.
    """
    most = limits(q.mean.device)
    if engine.counts_rows or not x.shape[1]:
        return most.rows
    params, one = q.layout.split(q.mean[0]), x[0, :1].to(q.mean.device)
    fixed = model.fixed_values(q.mean).values() if isinstance(model, HasFixed) else ()
    each = max(1, values_made(lambda: model.predict(params, one, head), fixed))
    return max(1, min(most.rows, most.values // each))
