"""A walk through chains of linear layers and elementwise functions: up with values, down with gradients.

    F = share sum_n sum_s log p(y^(n) | theta_s, x^(n)),   up: h_l = layer_l(h_{l-1}),   down: g_{l-1} = layer_l^T(g_l)

A walk is independent of the distribution of the weights and of the use of their gradients. A supplier
(:mod:`vcl.ops.layer_weights`) provides the weights of each layer and takes their gradient, layer by layer, so that the
gradient of all draws is never stored. The layers are computed elsewhere: :mod:`vcl.ops.layers_torch` for any device,
one run at a time, and :mod:`vcl.ops.layers_triton` for all runs at once on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from vcl.data import Data, as_labels
from vcl.engines.structure import Chain, Fork, Latent
from vcl.ops.layer_weights import Block
from vcl.ops.layers import Function, Layer, Linear, Score, Sizes

LayerRule = Callable[[Block], str]
"""The rule that computes a linear layer: "given", "local", or another name in a table of rules."""


class Bindings(NamedTuple):
    """The fixed settings of a walk: sizes of tensors, the rule of each layer, and the weights that draws share."""

    shapes: Mapping[str, tuple[int, ...]]
    rule: LayerRule
    shared: Callable[[Block], bool]
    sizes: Sizes
    like: Tensor
    leaves: Any
    """The module that computes layers: :mod:`vcl.ops.layers_torch`, or one with the same interface."""


class _Walk:
    """Builds the layers of a walk, each with its own memory."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings, self.noise = bindings, 0

    def layers(self, chain: Chain, shared_input: bool, below: bool) -> list[Layer]:
        """The layers of a chain; ``below`` says whether its input needs a gradient."""
        linear: list[Linear | nn.Module] = []
        for step in chain:
            if isinstance(step, Block):
                linear.append(self.linear(step, shared_input, below))
                shared_input, below = shared_input and self.bindings.shared(step), True
            elif type(step) is nn.ReLU and linear and isinstance(linear[-1], Linear) and not linear[-1].relu:
                linear[-1] = linear[-1]._replace(relu=True)
            else:
                linear.append(step)
        made: list[Layer] = []
        for of in reversed(linear):  # from the last: a layer may write where the next one reads
            made.append(self.make(of, made[-1] if made else None) if isinstance(of, Linear) else Function(of))
        return made[::-1]

    def linear(self, block: Block, shared_input: bool, below: bool) -> Linear:
        """A linear layer's sizes, and the start of its noise if it draws units."""
        out, width = self.bindings.shapes[block.weight]
        at = self.noise
        if self.bindings.leaves.RULES[self.bindings.rule(block)].NOISY:
            self.noise += self.bindings.sizes.examples * out
        return Linear(block, out, width, False, shared_input, self.bindings.shared(block), below, at)

    def make(self, of: Linear, above: Layer | None = None) -> Layer:
        """The layer itself."""
        layer: Layer = self.bindings.leaves.RULES[self.bindings.rule(of.block)](
            of, self.bindings.sizes, self.bindings.like, above
        )
        return layer


def _up(layers: list[Layer], h: Tensor, weights: Any) -> Tensor:
    for layer in layers:
        h = layer.up(h, weights)
    return h


def _down(layers: list[Layer], g: Tensor | None, weights: Any) -> Tensor | None:
    for layer in reversed(layers):
        if g is None:
            return None
        g = layer.down(g, weights)
    return g


@final
class ForkWalk:
    """Through the trunk and each head of a batch, and back."""

    def __init__(self, structure: Fork, heads: tuple[str, ...], bindings: Bindings) -> None:
        walk, likelihood = _Walk(bindings), structure.likelihood
        self.heads, self.group = heads, bindings.sizes.group
        self.readouts: list[Any]
        name = SCORED.get(type(likelihood), "")
        self.labels = name == "softmax"
        blocks = [structure.heads[head] for head in heads]
        scores = [score_of(name, likelihood, bindings.shapes[block.weight][0], bindings) for block in blocks]
        if len(heads) == 1:
            self.layers = walk.layers((*structure.trunk, *blocks), True, False)
            fused = (
                bindings.leaves.readout(self.layers, name, bindings.sizes)
                if _tail_in_order(structure, blocks[0], bindings)
                else None
            )
            self.layers = self.layers if fused is None else self.layers[:-1]
            self.readouts = [End(scores[0]) if fused is None else fused]
        else:
            trunk = [step for step in structure.trunk if isinstance(step, Block)]
            self.layers = walk.layers(structure.trunk, True, False)
            linears = [walk.linear(block, all(map(bindings.shared, trunk)), bool(trunk)) for block in blocks]
            self.readouts = [Head(walk.make(of), score) for of, score in zip(linears, scores, strict=True)]
        self.inputs = bindings.leaves.Inputs(self.layers[0] if self.layers else None, bindings.like)

    def __call__(self, weights: Any, batch: Data, z: Tensor | None, share: float) -> Tensor:
        """sum_n log p of each draw, in parts [G S, parts]; ``weights`` gets the gradients of ``share`` times it."""
        h = _up(self.layers, self.inputs(batch.x), weights)
        y = as_labels(batch.y, 2) if self.labels and batch.y.dtype != torch.int64 else batch.y
        values: list[Tensor] = []
        g: Tensor | None = None
        for head, readout in zip(self.heads, self.readouts, strict=True):
            mask, mine = (None, y) if len(self.heads) == 1 else _of_head(batch, y, head)
            value, back = readout(h, mine, mask, share, weights)
            values.append(value)
            g = back if g is None or back is None else g + back
        _down(self.layers, g, weights)
        return torch.cat(values, dim=1) if len(values) > 1 else values[0]


@final
class End:
    """The score of a chain's last layer."""

    def __init__(self, score: Score) -> None:
        self.score = score

    def __call__(
        self, h: Tensor, y: Tensor, mask: Tensor | None, share: float, weights: Any
    ) -> tuple[Tensor, Tensor | None]:
        """sum_n log p of each draw, in parts [G S, parts], and its gradient in h."""
        return self.score(h, y, share, mask)


@final
class Head:
    """One of several heads, and its score."""

    def __init__(self, layer: Layer, score: Score) -> None:
        self.layer, self.score = layer, score

    def __call__(
        self, h: Tensor, y: Tensor, mask: Tensor | None, share: float, weights: Any
    ) -> tuple[Tensor, Tensor | None]:
        """sum_n log p of each draw, in parts [G S, parts], and its gradient in h."""
        value, g = self.score(self.layer.up(h, weights), y, share, mask)
        return value, self.layer.down(g, weights)


def _tail_in_order(structure: Fork, head: Block, bindings: Bindings) -> bool:
    """Whether the last hidden layer's bias, the head's weight and its bias are adjacent in theta."""
    blocks = [step for step in structure.trunk if isinstance(step, Block)]
    if not blocks:
        return False
    names = list(bindings.shapes)
    at = names.index(head.weight)
    return names[max(0, at - 1) : at + 2] == [blocks[-1].bias, head.weight, head.bias]


@final
class LatentWalk:
    """Through the encoder, a draw of z, the decoder, and back."""

    def __init__(self, structure: Latent, heads: tuple[str, ...], bindings: Bindings) -> None:
        walk, pixels = _Walk(bindings), structure.pixels
        self.encoder = walk.layers(structure.encoder, True, False)
        self.decoder = walk.layers(structure.decoder, False, True)
        self.encoding = bindings.leaves.Encoding(bindings.sizes)
        last = [step for step in structure.decoder if isinstance(step, Block)][-1]
        out = bindings.shapes[last.weight][0]
        self.score = score_of(SCORED.get(type(pixels), ""), pixels, out, bindings)
        self.inputs, self.sizes = bindings.leaves.Inputs(self.encoder[0], bindings.like), bindings.sizes
        self.group = bindings.sizes.group

    def __call__(self, weights: Any, batch: Data, z: Tensor | None, share: float) -> Tensor:
        """sum_n of each draw's bound, in parts [G S, parts], with ``z`` [G, S, B, latent]; see :class:`ForkWalk`."""
        assert z is not None
        x, draws = self.inputs(batch.x), self.sizes.draws
        drawn, divergence = self.encoding.up(_up(self.encoder, x, weights), z)
        value, g = self.score(_up(self.decoder, drawn, weights), x, share, None)
        g_z = _down(self.decoder, g, weights)
        _down(self.encoder, self.encoding.down(g_z, share * draws), weights)
        return torch.cat([value, -divergence.repeat_interleave(draws).unsqueeze(1)], dim=1)


SCORED: dict[type, str] = {}
"""Likelihoods with an explicit gradient, by exact type; torch differentiates any other."""


def score_of(name: str, likelihood: Any, out: int, bindings: Bindings) -> Score:
    """The score (log p and its gradient) for outputs of ``out`` units."""
    if name in bindings.leaves.SCORES:
        score: Score = bindings.leaves.SCORES[name](bindings.sizes, out, bindings.like)
        return score
    found: Score = bindings.leaves.Differentiated(likelihood.log_prob, bindings.sizes)
    return found


def runs_of(batch: Data, runs: slice) -> Data:
    """Some runs of a batch."""
    return Data(batch.x[runs], batch.y[runs], batch.source[runs], batch.sources)


def _of_head(batch: Data, y: Tensor, head: str) -> tuple[Tensor, Tensor]:
    """A 0/1 mask [G, B] of the head's examples, and labels within its range."""
    mine = torch.stack([batch.source == at for at, source in enumerate(batch.sources) if source.head == head]).any(0)
    if y.is_floating_point():
        return mine.to(y.dtype), y
    return mine, y.where(mine.view(*mine.shape, *(1,) * (y.dim() - 2)), 0)
