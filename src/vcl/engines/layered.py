"""The layered engine: forks of chains and encoder-decoders, with explicit gradients layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from vcl.beliefs.climbed_triton import PointsTriton
from vcl.beliefs.layout import Layout
from vcl.data import Data
from vcl.engines.general import General
from vcl.engines.structure import Chain, Fork, Latent
from vcl.engines.theta import AtTheta, Collecting, Collector, Diagonal
from vcl.engines.walk import Bindings, ForkWalk, LatentWalk, runs_of
from vcl.ops import layers_torch, layers_triton
from vcl.ops.layer_weights import Block
from vcl.ops.layers import Sizes
from vcl.ops.rows import as_input

LEAVES: dict[str, Any] = {"layered/torch": layers_torch, "layered/triton": layers_triton}
"""The module that computes layers, by engine name."""


@final
class Layered:
    """Evaluates a model of known structure. Rare requests, such as one example's bound, use the general engine."""

    def __init__(self, structure: Fork | Latent, layout: Layout, general: General, name: str) -> None:
        self.structure, self.layout, self.general, self.name = structure, layout, general, name
        self.shapes = dict(zip(*layout, strict=True))
        self.counts_rows = isinstance(structure, Fork)
        """The number of rows determines the memory of a prediction."""
        self.walks: dict[tuple[object, ...], ForkWalk | LatentWalk] = {}

    def walk(
        self, rule: str, points: tuple[str, ...], batch: Data, sizes: Sizes, like: Tensor, leaves: Any = None,
        rules: Mapping[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """The walk for such batches, with its own memory. Layers use ``rule``; draws share the weights in ``points``.

        ``rules`` gives another rule for single weights.
        """
        leaves = LEAVES[self.name] if leaves is None else leaves
        known, others = set(points), dict(rules or {})
        where = (like.dtype, like.device, leaves.__name__)
        kind = (rule, points, batch.heads, sizes, *where, *others.items())
        if kind not in self.walks:
            bindings = Bindings(
                shapes=self.shapes,
                rule=lambda block: "given" if block.weight in known else others.get(block.weight, rule),
                shared=lambda block: block.weight in known,
                sizes=sizes,
                like=like,
                leaves=leaves,
            )
            structure = self.structure
            if isinstance(structure, Fork):
                self.walks[kind] = ForkWalk(structure, batch.heads, bindings)
            else:
                self.walks[kind] = LatentWalk(structure, batch.heads, bindings)
        return self.walks[kind]

    @torch.no_grad()
    def gradient(self, theta: Tensor, batch: Data, share: float, z: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """sum_n log p at theta [R, S, D]: [R, S], and ``share`` times its gradient [R, S, D]."""
        supplier = AtTheta(self.layout, theta)
        value = self._through(supplier, (), theta, batch, share, theta.shape[1], z)
        return value, supplier.g.reshape(theta.shape)

    @torch.no_grad()
    def point_gradient(
        self, theta: Tensor, batch: Data, share: float, z: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """:meth:`gradient` at one theta [R, D], averaged over draws of z: [R], and the gradient [R, D]."""
        draws = 1 if z is None else z.shape[1]
        names = self.layout.names
        if self.name == "layered/torch":
            supplier = AtTheta(self.layout, theta.unsqueeze(1))
            return self._through(supplier, names, theta, batch, share / draws, draws, z).mean(1), supplier.g
        g = torch.zeros_like(theta, memory_format=torch.contiguous_format)
        points = PointsTriton(self.layout, theta, g)
        points.open(slice(0, len(theta)))
        sizes = Sizes(len(theta), draws, batch.size)
        value = self.walk("given", names, batch, sizes, theta)(points, batch, z, share / draws)
        points.close(slice(0, len(theta)))
        return value.view(len(theta), -1).sum(1).div_(draws), g

    def squares(self, theta: Tensor, batch: Data) -> Tensor:
        """sum_n ( grad log p(y^(n) | theta, x^(n)) )^2 at theta [R, D]: [R, D]."""
        diagonal = Diagonal(self.layout, theta)
        self.collect(theta, batch, diagonal)
        return diagonal.total

    @torch.no_grad()
    def collect(self, theta: Tensor, batch: Data, collector: Collector) -> None:
        """Pass every layer's per-example inputs and gradients at theta [R, D] to ``collector``."""
        self._through(Collecting(self.layout, theta, collector), (), theta, batch, 1.0, 1, None)

    def _through(
        self,
        supplier: Any,
        points: tuple[str, ...],
        theta: Tensor,
        batch: Data,
        share: float,
        draws: int,
        z: Tensor | None,
    ) -> Tensor:
        """sum_n log p of each draw [R, S], one run at a time."""
        walk = self.walk("given", points, batch, Sizes(1, draws, batch.size), theta, layers_torch)
        values = []
        for runs in supplier.groups:
            supplier.open(runs)
            part = runs_of(batch, runs)
            values.append(walk(supplier, part, None if z is None else z[runs], share).sum(1))
        return torch.stack(values)

    def log_lik(self, theta: Tensor, batch: Data, z: Tensor | None = None) -> Tensor:
        """log p(y^(n) | theta, x^(n)) at theta [R, S, D]: [R, S, B]. ``z`` [R, S, B, latent] is each draw's noise."""
        return self.general.log_lik(theta, batch, z)

    def predictions(self, theta: Tensor, x: Tensor, head: str) -> Tensor:
        """The prediction's moments at theta [R, S, D] for x [R, n, ...]: [R, S, n, C]."""
        structure = self.structure
        if not isinstance(structure, Fork):
            return self.general.predictions(theta, x, head)
        output = self.outputs(theta, x, head)
        found: Tensor = structure.likelihood.expectation(output.flatten(0, 2))
        return found.view(*output.shape[:3], -1)

    def outputs(self, theta: Tensor, x: Tensor, head: str) -> Tensor:
        """The model's outputs f at theta [R, S, D] for x [R, n, ...]: [R, S, n, units]."""
        structure = self.structure
        if not isinstance(structure, Fork):
            return self.general.outputs(theta, x, head)
        chain = (*structure.trunk, structure.heads[head])
        return outputs(chain, self.layout.split(theta), as_input(x).flatten(2).unsqueeze(1))


def outputs(chain: Chain, params: Mapping[str, Tensor], h: Tensor) -> Tensor:
    """The outputs of a chain at parameters [R, S, ...] for rows h [R, S, B, in]; a shared S is 1."""
    for step in chain:
        h = _linear(h, params[step.weight], params.get(step.bias or "")) if isinstance(step, Block) else step(h)
    return h


def _linear(h: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    """h W^T + b for every run and draw."""
    (runs, draws, out, width), examples = W.shape, h.shape[2]
    if draws == 1:  # the rows of all draws in one product
        a = torch.bmm(h.reshape(runs, -1, width), W[:, 0].mT).view(runs, -1, examples, out)
    elif h.shape[1] == 1:  # the units of all draws side by side
        wide = torch.bmm(h[:, 0], W.reshape(runs, draws * out, width).mT)
        a = wide.view(runs, examples, draws, out).transpose(1, 2)
    else:
        a = torch.bmm(h.reshape(-1, examples, width), W.reshape(-1, out, width).mT).view(runs, draws, examples, out)
    if b is None:
        return a.contiguous()
    return torch.add(a, b.unsqueeze(2), out=a if a.is_contiguous() else a.new_empty(a.shape))
