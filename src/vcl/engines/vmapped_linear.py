"""Linear layers under vmap whose gradient comes as it is needed.

Left to itself, vmap makes the gradient of a weight [out, in] as one of [in, out], turned: with a weight of its own for
every draw that is a copy of all of them, and each bias is multiplied by 1 on its way. Nothing else differs. The price
is time in Python, which a captured step pays once: so it is taken on CUDA devices, and not where steps run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


def with_linear_gradients(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function, whose linear layers bring their own gradient; for use inside vmap."""

    def call(*args: Any) -> Tensor:
        with _Linears():
            return function(*args)

    return call


class _Linears(TorchFunctionMode):
    """Answers linear calls that have rows and a bias; the others are as they are."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and len(args) == 3 and args[2] is not None and args[0].dim() == 2:
            return _Linear.apply(*args)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """a = x W^T + b for x [B, in], W [out, in], b [out]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        return x @ W.mT + b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, W = ctx.saved_tensors
        g_x = g @ W if ctx.needs_input_grad[0] else None
        return g_x, g.mT @ x, g.sum(0)
