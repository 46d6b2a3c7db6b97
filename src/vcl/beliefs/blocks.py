"""A layer's weight and bias as one matrix W [out, in + 1], the bias as the last column."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from vcl.beliefs.layout import Params
from vcl.ops.layer_weights import Block


def block_shape(block: Block, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """(out, in + 1), or (out, in) without a bias; a convolution's kernel counts as inputs."""
    out, *rest = shapes[block.weight]
    return out, prod(rest) + (block.bias is not None)


def joined(params: Params, block: Block, lead: int) -> Tensor:
    """W [..., out, in + 1]; ``lead`` is the number of axes before those of a parameter."""
    W = params[block.weight].flatten(lead + 1)
    return W if block.bias is None else torch.cat([W, params[block.bias].unsqueeze(-1)], -1)


def put_back(params: dict[str, Tensor], block: Block, W: Tensor) -> None:
    """The inverse of :func:`joined`: replaces the weight and the bias in ``params``."""
    if block.bias is not None:
        params[block.bias] = W[..., -1]
        W = W[..., :-1]
    params[block.weight] = W.reshape(params[block.weight].shape)
