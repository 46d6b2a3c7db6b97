"""Linear layers under vmap with an explicit gradient.

By default vmap computes the gradient of a weight [out, in] as a transposed [in, out]; with one weight per draw this
copies all of them, and it multiplies each bias by 1. Results are otherwise the same. The explicit form costs time in
Python. A captured step pays that once, so it is used on CUDA devices and not for eager steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


def with_linear_gradients(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function with explicit gradients of its linear layers; for use inside vmap."""

    def call(*args: Any) -> Tensor:
        with _Linears():
            return function(*args)

    return call


class _Linears(TorchFunctionMode):
    """Replaces linear calls with rows and a bias; other calls are unchanged."""

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
        of_x, of_W, of_b = ctx.needs_input_grad  # a frozen weight has none
        return g @ W if of_x else None, g.mT @ x if of_W else None, g.sum(0) if of_b else None
