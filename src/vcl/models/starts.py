"""Values that a network offers as the start of a fit, or as its prior's mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from vcl.beliefs.layout import HEAD, Params, head_of
from vcl.errors import VclError, unknown

Values = Literal["module"] | Params
"""``"module"``: the trunk's own values; or tensors by their names in the layout (``trunk.…``, ``heads.…``)."""

HeadStart = Mapping[str, tuple[Tensor, Tensor]]
"""Weight [units, features] and bias [units] by head."""


def start_values(
    given: Values | None, trunk: Params, heads: HeadStart, features: int, what: str
) -> dict[str, Tensor]:  # fmt: skip
    """Copies of the given values, by the layout's names; ``trunk`` are the module's own."""
    if isinstance(given, str) and given != "module":
        raise VclError(f"{what} is {given!r}; give 'module', or a mapping of the layout's names to tensors.")
    values = dict(trunk if isinstance(given, str) else given or {})
    for head, (weight, bias) in heads.items():
        values |= {f"{HEAD}{head}.weight": weight, f"{HEAD}{head}.bias": bias}
    for name, value in values.items():
        _check(name, value, trunk, features, what)
    return {name: _copy(value) for name, value in values.items()}


def check_fits(values: Params, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise VclError where a head has fewer outputs than its values, which are of the first ones if it has more."""
    for name, value in values.items():
        shape, given = shapes.get(name, tuple(value.shape)), tuple(value.shape)
        more = head_of(name) is not None and shape[1:] == given[1:] and shape[:1] >= given[:1]
        if shape != given and not more:
            raise VclError(
                f"the start of {name!r} has shape {tuple(value.shape)}, but the head needs {shapes[name]}; give values "
                "of the head's size."
            )


def _check(name: str, value: Tensor, trunk: Params, features: int, what: str) -> None:
    shape = tuple(value.shape)
    if head_of(name) is not None:
        end = name.rpartition(".")[2]
        if (end == "weight" and shape[1:] == (features,)) or (end == "bias" and len(shape) == 1):
            return
        raise VclError(
            f"{what} of {name!r} has shape {shape}; give a weight [units, {features}] and a bias [units] for a head."
        )
    if name not in trunk:
        raise unknown(f"parameter in {what}", name, trunk)
    if shape != tuple(trunk[name].shape):
        raise VclError(f"{what} of {name!r} has shape {shape}; the parameter has {tuple(trunk[name].shape)}.")


def _copy(value: Tensor) -> Tensor:
    """A float copy on the CPU, where a model's prior stands."""
    return value.detach().to("cpu", torch.get_default_dtype(), copy=True)
