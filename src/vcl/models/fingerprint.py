"""Recognises the network that a belief belongs to, by its outputs for fixed inputs and parameters.

A belief's layout has the names and shapes of the parameters. It does not show a Tanh in place of a ReLU, or another
likelihood. So a state stores a few of the model's outputs for fixed inputs and parameters, and a model that is used
with that state must reproduce them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import NamedTuple
from zlib import crc32

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import Data, Source
from vcl.errors import VclError
from vcl.models.base import Heads, Model, digest_of

EXAMPLES = 2
MOST = 32
"""The number of stored outputs."""

PERIOD = 1009
"""The period of the fixed values; prime, to be out of step with layer widths."""

FINE, COARSE = 1e-6, 1e-2
"""The tolerance of an output, relative to the largest: rounding differs between devices.

Fine if both were computed in float64, coarse otherwise.
"""


class Fingerprint(NamedTuple):
    """The query (head and its units, input shape, dtype) and the outputs."""

    head: str
    units: int
    shape: tuple[int, ...]
    whole: bool
    """Whether inputs are integers other than pixels, such as tokens."""
    dtype: str
    values: tuple[float, ...]
    fixed: str = ""
    """The checksum of values besides the parameters, such as frozen ones."""


def fingerprint(model: Model, data: Data, heads: Heads, like: Tensor) -> Fingerprint:
    """The fingerprint of a model whose first data is ``data``; ``like`` has the device and dtype of its parameters.

    It is computed in float64 if the model allows, which all devices round finely, else in the dtype of ``like``; also
    if the model has frozen values, of which float64 would need a copy. Their checksum then tells models apart.
    """
    head, x, fixed = data.sources[0].head, data.x, digest_of(model)
    whole = not x.is_floating_point() and x.dtype != torch.uint8
    dtype = _name(like) if fixed else "float64"
    return _answered(model, Fingerprint(head, heads.get(head, 1), tuple(x.shape[2:]), whole, dtype, (), fixed), like)


def check_model(model: Model, layout: Layout, heads: Heads, known: Fingerprint | None, like: Tensor) -> None:
    """Raise VclError unless this is the network that a belief over ``layout`` was learned with.

    ``known`` is that network's fingerprint, if any. The check costs one pass of two examples.
    """
    fault = _other_parameters(layout, model.prior(heads).layout)
    if fault is None and known is not None and known.fixed != digest_of(model):
        fault = "its parameters have the same names and shapes, but its frozen values or its prior's mean are others"
    if fault is None and known is not None:
        fault = _other_answers(known, _answered(model, known, like))
    if fault is not None:
        raise VclError(
            f"this is not the network that the state was learned with: {fault}; give the model that it was learned "
            "with."
        )


def _other_parameters(learned: Layout, given: Layout) -> str | None:
    there, here = (dict(zip(each.names, each.shapes, strict=True)) for each in (learned, given))
    for name in {**there, **here}:
        if name not in here:
            return f"it has no parameter {name!r} {there[name]}"
        if name not in there:
            return f"it has a new parameter {name!r} {here[name]}"
        if there[name] != here[name]:
            return f"its parameter {name!r} has shape {here[name]} instead of {there[name]}"
    return None


def _other_answers(known: Fingerprint, here: Fingerprint) -> str | None:
    same, coarse = "its parameters have the same names and shapes, but", {known.dtype, here.dtype} != {"float64"}
    if len(here.values) != len(known.values):
        return f"{same} it has {len(here.values)} outputs for a fixed input instead of {len(known.values)}"
    scale = max((abs(value) for value in known.values if isfinite(value)), default=1.0)
    bound = (COARSE if coarse else FINE) * max(scale, 1e-30)
    for old, new in zip(known.values, here.values, strict=True):
        fits = abs(old - new) <= bound if isfinite(old) and isfinite(new) else repr(old) == repr(new)
        if not fits:
            return f"{same} its output for a fixed input is {new:.6g} instead of {old:.6g}"
    return None


def _name(like: Tensor) -> str:
    return str(like.dtype).removeprefix("torch.")


def _answered(model: Model, asked: Fingerprint, like: Tensor) -> Fingerprint:
    """``asked`` with this model's outputs; in the dtype of ``like`` if model or device do not support the asked one."""
    values = _answers(model, asked, like)
    if not values:
        asked = asked._replace(dtype=_name(like))
        values = _answers(model, asked, like)
    return asked._replace(values=values)


@torch.no_grad()
def _answers(model: Model, asked: Fingerprint, like: Tensor) -> tuple[float, ...]:
    """The first outputs at fixed parameters and inputs; empty if the model refuses them."""
    dtype: torch.dtype = getattr(torch, asked.dtype)

    def made(values: Tensor) -> Tensor:
        return values.to(device=like.device, dtype=dtype)

    layout, source = model.prior({asked.head: asked.units}).layout, (Source(asked.head, asked.head),)
    shape = (EXAMPLES, *asked.shape)
    none = torch.zeros(EXAMPLES, dtype=torch.int64, device=like.device)
    # Numbers of both signs or, if the outputs for these are not finite, from 0 to 1 like pixels; tokens 0 and 1, or
    # only 0, which every vocabulary has.
    wave, tokens = _pattern(shape, "x"), torch.arange(prod(shape), device=like.device).view(shape) % 2
    inputs = [tokens, tokens * 0] if asked.whole else [made(2 * wave), made(0.5 + 0.5 * wave)]
    if model.latent:
        inputs = inputs[1:]  # pixels of a generator are from 0 to 1
    answers: tuple[float, ...] = ()
    for x in inputs:
        try:
            params = {name: made(_fixed(shape, name)) for name, shape in zip(*layout, strict=True)}
            if model.latent:
                noise = made(_pattern((EXAMPLES, model.latent), "noise"))
                found = model.log_lik(params, Data(x, none, none, source), noise)
            else:
                found = model.predict(params, x, asked.head)
        except (RuntimeError, TypeError, ValueError, IndexError, VclError):
            continue
        answers = tuple(found.flatten()[:MOST].double().tolist())
        if all(map(isfinite, answers)):
            return answers
    return answers


def _fixed(shape: Sequence[int], name: str) -> Tensor:
    """A parameter's fixed values; weights are scaled so that signals neither vanish nor explode."""
    return _pattern(shape, name) * (2 / prod(shape[1:]) ** 0.5 if len(shape) > 1 else 0.5)


def _pattern(shape: Sequence[int], name: str) -> Tensor:
    """Values from -1 to 1 that depend only on name and shape, the same on every machine."""
    one = torch.sin(torch.arange(PERIOD, dtype=torch.float64).add_(crc32(name.encode()) % PERIOD).mul_(2.4))
    size = prod(shape)
    return one.repeat(-(-size // PERIOD))[:size].view(tuple(shape))
