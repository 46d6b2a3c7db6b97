"""Deterministic moment propagation: the mean and variance of a network's output under independent Gaussian weights.

This is the forward pass of probabilistic backpropagation. After a linear layer the units are assumed Gaussian and
independent; given that, both kinds of layer are exact. With one hidden layer the output's mean and variance are exact,
because the first layer's units are Gaussian and share no weights.
"""

from __future__ import annotations

from math import pi
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from vcl.beliefs.layout import Params
from vcl.engines.structure import Layers
from vcl.errors import VclError
from vcl.ops.layers import TINY


def through(
    layers: Layers, mean: Params, var: Params, x: Tensor, fixed: Params = MappingProxyType({})
) -> tuple[Tensor, Tensor]:
    """E and Var [N, out] of a chain's output for inputs x [N, ...], with parameters ~ N(mean, diag var).

    The layers may be nn.Linear, nn.ReLU, nn.Flatten and nn.Identity. ``fixed`` are known parameters, without variance;
    single layers of any kind that have no others may come first.
    """
    mean = {**fixed, **mean}
    var = {**{name: value.new_zeros(()).expand_as(value) for name, value in fixed.items()}, **var}  # one number each
    h: Tensor = x
    h_var: Tensor | None = None
    for name, layer in layers:
        held = _held(layer, name, fixed) if fixed and h_var is None else None
        if held is not None:
            h = functional_call(layer, held, h)
        else:
            h, h_var = _apply(layer, name, mean, var, h, h_var)
    return h, torch.zeros_like(h) if h_var is None else h_var


def _held(layer: nn.Module, name: str, fixed: Params) -> dict[str, Tensor] | None:
    """The values of a single layer, by its own names, if all its parameters are known; else None."""
    places = {own: f"{name}.{own}" if name else own for own in layer.state_dict()}
    if next(layer.children(), None) is not None or any(places[own] not in fixed for own, _ in layer.named_parameters()):
        return None
    return {own: fixed[place] for own, place in places.items() if place in fixed}


def linear(
    h: Tensor, h_var: Tensor | None, weight: tuple[Tensor, Tensor], bias: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """E and Var of a = sum_i w_i h_i + b for independent w, h and b, each given by mean and variance.

    E a = E h (E W)^T + E b;  Var a = Var h (E W)^2^T + ((E h)^2 + Var h) (Var W)^T + Var b. Known inputs have
    ``h_var`` None, which saves a product.
    """
    (M, V), (b, b_var) = weight, bias or (None, None)
    mean = F.linear(h, M, b)
    if h_var is None:
        return mean, F.linear(h.square(), V, b_var)
    return mean, F.linear(h_var, M.square()) + F.linear(h.square() + h_var, V, b_var)


def relu(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """E and Var of max(0, a) for a ~ N(mean, var). With s^2 = var and Phi, phi taken at alpha = mean / s,

    E = mean Phi + s phi,  Var = s^2 [ Phi + (alpha Phi + phi) (alpha (1 - Phi) - phi) ].

    The variance is E[max(0, a)^2] - E^2, rearranged so that no two large terms cancel.
    """
    sd = (var + TINY).sqrt()
    alpha = mean / sd
    below, above = torch.special.ndtr(alpha), torch.special.ndtr(-alpha)
    density = (-0.5 * alpha.square()).exp() * (2 * pi) ** -0.5
    share = below + (alpha * below + density) * (alpha * above - density)
    return mean * below + sd * density, var * share.clamp(min=0)


def _apply(
    layer: nn.Module, name: str, mean: Params, var: Params, h: Tensor, h_var: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The moments after one layer. Exact types only: a subclass may compute something else."""
    kind = type(layer)
    if isinstance(layer, nn.Linear) and kind is nn.Linear:
        return _linear_layer(layer, name, mean, var, h, h_var)
    if kind is nn.Flatten:
        return layer(h), None if h_var is None else layer(h_var)
    if kind is nn.ReLU:
        return (h.relu(), None) if h_var is None else relu(h, h_var)
    if kind is nn.Identity:
        return h, h_var
    raise VclError(
        f"layer {name!r} ({kind.__name__}) has no rule for its moments; moment propagation takes an nn.Sequential of "
        "nn.Flatten, nn.Linear, nn.ReLU and nn.Identity."
    )


def _linear_layer(
    layer: nn.Linear, name: str, mean: Params, var: Params, h: Tensor, h_var: Tensor | None
) -> tuple[Tensor, Tensor]:
    weight, bias = (f"{name}.{part}" if name else part for part in ("weight", "bias"))
    if h.dim() != 2:
        raise VclError(
            f"layer {name!r} (Linear) gets {tuple(h.shape[1:])} values per example, which would share weights; "
            "moment propagation takes one row per example, so put nn.Flatten before it."
        )
    if weight not in mean or (layer.bias is not None and bias not in mean):
        raise VclError(
            f"layer {name!r} (Linear) shares its weights with an earlier one, so their outputs are not "
            "independent; moment propagation takes layers that share no weights."
        )
    return linear(h, h_var, (mean[weight], var[weight]), None if layer.bias is None else (mean[bias], var[bias]))
