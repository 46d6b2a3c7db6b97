"""Layers that have no sound treatment under a posterior over weights are refused before any work."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from vcl.engines.recurrent import drops_out
from vcl.errors import VclError


def refuse_unsound(module: nn.Module, frozen: Collection[str] = ()) -> None:
    """Raise VclError if a layer has no sound treatment, where the parameters named in ``frozen`` have no posterior.

    Running statistics that stay as they are make a layer a fixed function of each example, so a layer in evaluation
    mode without a posterior is sound.
    """
    known = set(frozen)
    held = {id(value) for name, value in module.named_parameters() if name in known}
    for name, layer in module.named_modules():
        what = f"layer {name!r} ({type(layer).__name__})"
        fixed = not layer.training and all(id(value) in held for value in layer.parameters())
        if _tracks(layer) and not fixed:
            raise VclError(
                f"{what} keeps running statistics of batches, which no posterior covers and old tasks would lose; use "
                "LayerNorm or GroupNorm instead, or freeze the whole layer and call .eval() on it."
            )
        if drops_out(layer) or (isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0 and layer.training):
            raise VclError(
                f"{what} adds its own noise (dropout) to the draws of the weights; remove it, or call .eval() on "
                "the module."
            )


def _tracks(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.batchnorm._BatchNorm) or bool(getattr(layer, "track_running_stats", False))
