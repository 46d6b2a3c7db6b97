"""Kronecker factors of a task's Fisher information, layer by layer.

    A = mean over rows of h h^T,   G = sum over rows of g g^T,   Phi_t ~= A (x) G

h are a layer's inputs, with 1 appended for its bias, and g the gradients of log p(y | theta, x) in its outputs. Labels
y are drawn from the model (the Fisher information), those of the data (empirical), or summed over (exact).

Weight sharing: a convolution or a linear layer over a sequence has T rows an example. ``expand`` takes every row by
itself. ``reduce`` takes the mean of an example's inputs and the sum of its gradients.

Parameters without a rule have a diagonal: sum_n (grad log p^(n))^2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from vcl.beliefs.blocks import block_shape
from vcl.beliefs.information import ADD_RULES, AddRule, Information, Pair
from vcl.beliefs.layout import Layout, Params, head_of
from vcl.data import Data, weight_of_each
from vcl.engines.choose import choose
from vcl.engines.general import squares_one_by_one
from vcl.engines.layered import Layered
from vcl.engines.recorded import Place, collect_recorded, find_layers, find_places
from vcl.engines.structure import Fork
from vcl.errors import VclError, unknown
from vcl.fitting.curvature import chunk_for, drawn_labels, row_values, sample_of
from vcl.fitting.processes import current, own_pieces
from vcl.models.base import HasLabelPoints, Model, held, refuse_latent
from vcl.ops.layer_weights import Block
from vcl.ops.noise import draw_noise
from vcl.ops.rng import Rng

At = Literal["expected", "draws", "mode"]
Labels = Literal["true", "empirical", "exact"]
Sharing = Literal["expand", "reduce"]
HeadRule = Literal["kronecker", "diagonal"]
Labelled = tuple[Data, Tensor | None, bool]
"""A batch, the roots of its examples' weights [R, B] if not 1, and whether its inputs were there before."""

CHOICES: dict[str, tuple[str, ...]] = {
    "at": ("expected", "draws", "mode"),
    "labels": ("true", "empirical", "exact"),
    "sharing": ("expand", "reduce"),
    "rule": tuple(ADD_RULES),
    "heads": ("kronecker", "diagonal"),
}


@final
@dataclass(frozen=True)
class KroneckerCurvature:
    """How the factors of a task are computed.

    ``at="expected"`` averages the curvature over the ways from the mode to ``draws`` draws of the belief itself, in
    ``rounds`` rounds towards a fixed point, each of one pass over the examples (:meth:`reach` has the reason);
    ``"draws"`` averages it over the draws alone, and ``"mode"`` takes it at the mode. At most ``samples`` examples
    are used, drawn for each run; a sum over fewer is scaled up to N_t. ``rule`` adds factors of tasks: ``"mean"`` takes
    the mean of A and the sum of G, ``"nearest"`` the nearest Kronecker product. A layer with more than ``most`` inputs
    or outputs is diagonal.
    """

    at: At = "expected"
    labels: Labels = "true"
    samples: int | None = None
    rounds: int = 4
    draws: int = 8
    rule: AddRule = "mean"
    heads: HeadRule = "kronecker"
    sharing: Sharing = "expand"
    most: int = 4096

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        if self.samples is not None and self.samples < 1:
            raise VclError(f"the number of Fisher samples is {self.samples}; give at least 1, or none to take all.")
        for name, least in (("rounds", 1), ("draws", 1), ("most", 1)):
            if getattr(self, name) < least:
                raise VclError(f"{name} is {getattr(self, name)}; give at least {least}.")

    def reach(self, like: Tensor) -> Tensor:
        """How far towards draw i of S the curvature is taken: s_i [S, 1], in theta + s_i (draw_i - theta).

        With g the gradient of the log likelihood and d ~ N(0, Sigma),

            Sigma E[-H(theta + d)] = E[d (g(theta) - g(theta + d))^T]      (Stein's lemma)
            g(theta) - g(theta + d) = int_0^1 -H(theta + s d) d ds,

        so a Gaussian's expected curvature is also a mean over the way to its draws, with weights Sigma^{-1} d d^T whose
        mean is the identity. The weights are left out here, and s_i = (i - 1/2) / S. The Fisher information is not the
        same at both, and only the way's stays in place where draws of a wide belief saturate a deep network: there a
        confident answer has no gradient, and the information at draws alone falls to 0.
        """
        steps = torch.arange(self.draws, device=like.device, dtype=like.dtype)
        way = (steps + 0.5) / self.draws
        return (torch.ones_like(way) if self.at == "draws" else way).unsqueeze(1)

    def layers(self, model: Model, layout: Layout, theta: Tensor, data: Data) -> tuple[Block, ...]:
        """The layers of ``layout`` that get factors."""
        refuse_latent(model, "Kronecker-factored curvature")
        known, shapes = set(held(model, layout).names), dict(zip(*layout, strict=True))
        engine = choose(model, layout, data.heads, theta)
        if isinstance(engine, Layered) and isinstance(engine.structure, Fork):
            steps = (*engine.structure.trunk, *engine.structure.heads.values())
            found = tuple(step for step in steps if isinstance(step, Block))
        else:
            one = _run(data, 0, slice(0, 1))

            def log_lik(params: Params) -> Tensor:
                return model.log_lik(params, one)

            params = layout.split(theta[0])
            found = find_layers(log_lik, params)
            collect_recorded(log_lik, params, found, lambda block, h, g: None)  # VclError where that is impossible
        return tuple(
            block for block in found
            if known.issuperset(block.names) and max(block_shape(block, shapes)) <= self.most
            and (self.heads == "kronecker" or head_of(block.weight) is None)
        )  # fmt: skip

    @torch.no_grad()
    def __call__(
        self, model: Model, layout: Layout, thetas: Tensor, data: Data, blocks: tuple[Block, ...], rng: Rng
    ) -> Information:
        """The information of the data, averaged over thetas [R, S, D]: each theta sees every S-th example.

        So S draws cost one pass over the data; the expectation over theta and x is the same.
        """
        sample = sample_of(data, self.samples, rng.at("samples"))
        draws = min(thetas.shape[1], sample.size)
        totals = _Totals(layout, thetas[:, 0], blocks, self.sharing)
        rest = held(model, layout)
        inside = {name for block in blocks for name in block.names}
        rest = rest.where(lambda name: name not in inside)
        scale = weight_of_each(sample.size, data.size)
        places = self._places(model, layout, thetas[0, 0], data, blocks)
        for number, theta in enumerate(thetas.unbind(1)[:draws]):
            theta = theta.contiguous()
            mine = sample.map(lambda part, number=number: part[:, number::draws])  # type: ignore[misc]
            for batch, root, again in self._labelled(model, layout, theta, mine, blocks, rng.at("labels", number)):
                totals.begin(batch, root, again)
                _collect(model, layout, theta, batch, blocks, totals, places)
                if rest.names:
                    totals.add_diagonal(rest, _squares(model, layout, theta, batch, rest, root))
        return totals.information(scale)

    def _places(
        self, model: Model, layout: Layout, theta: Tensor, data: Data, blocks: tuple[Block, ...]
    ) -> Mapping[Block, Place] | None:
        """Which rows of a layer are an example's, if that matters and the layers may have several."""
        engine = choose(model, layout, data.heads, theta.unsqueeze(0))
        if self.sharing == "expand" or isinstance(engine, Layered):
            return None
        one = _run(data, 0, slice(0, 1))

        def log_lik(params: Params, examples: int) -> Tensor:
            x, y, source = (part.expand(examples, *part.shape[1:]) for part in (one.x, one.y, one.source))
            return model.log_lik(params, Data(x, y, source, one.sources))

        return find_places(log_lik, layout.split(theta), blocks)

    def _labelled(
        self, model: Model, layout: Layout, theta: Tensor, data: Data, blocks: tuple[Block, ...], rng: Rng
    ) -> Iterator[Labelled]:
        """Batches with their labels."""
        parts: tuple[Tensor, ...] = (data.x, data.y, data.source)
        if self.labels == "true":
            noise = draw_noise(data.y[0].numel(), rng.generators(theta.device), theta)
            parts = (*parts, noise.view(data.y.shape))
        size = chunk_for(data.runs * _values(model, layout, theta, data, blocks))
        for x, y, source, *drawn in own_pieces(parts, size):
            batch = Data(x, y, source, data.sources)
            if self.labels == "exact":
                yield from _every_label(model, layout, theta, batch)
            elif drawn:
                yield batch._replace(y=drawn_labels(model, layout, theta, batch, drawn[0])), None, False
            else:
                yield batch, None, False


def _every_label(model: Model, layout: Layout, theta: Tensor, batch: Data) -> Iterator[Labelled]:
    """The batch with each label of a sum, and the roots of the labels' weights."""
    if not isinstance(model, HasLabelPoints):
        raise VclError(
            f"{type(model).__name__} has no label_points(params, data), which labels='exact' needs; use labels='true'."
        )
    runs = [model.label_points(layout.split(theta[run]), _run(batch, run)) for run in range(batch.runs)]
    labels, weights = (torch.stack([each[part] for each in runs], 1) for part in (0, 1))
    for number, (y, weight) in enumerate(zip(labels, weights, strict=True)):
        yield batch._replace(y=y.reshape(batch.y.shape) if y.is_floating_point() else y), weight.sqrt(), number > 0


def _run(data: Data, run: int, rows: slice = slice(None)) -> Data:
    """One run's examples, without the run axis."""
    return Data(data.x[run, rows], data.y[run, rows], data.source[run, rows], data.sources)


def _values(model: Model, layout: Layout, theta: Tensor, data: Data, blocks: tuple[Block, ...]) -> int:
    """The values in memory per example: rows of the layers, or the gradient of what has no rule."""
    inside = {name for block in blocks for name in block.names}
    rest = layout.where(lambda name: name not in inside)
    if isinstance(choose(model, layout, data.heads, theta), Layered):
        return row_values(layout, data) + rest.size
    rows = 0

    def count(block: Block, h: Tensor, g: Tensor) -> None:
        nonlocal rows
        rows += 3 * (h.numel() + g.numel())

    one = _run(data, 0, slice(0, 1))
    collect_recorded(lambda params: model.log_lik(params, one), layout.split(theta[0]), blocks, count)
    return rows + row_values(layout, data) + 4 * rest.size


def _collect(
    model: Model, layout: Layout, theta: Tensor, batch: Data, blocks: tuple[Block, ...], totals: _Totals,
    places: Mapping[Block, Place] | None,
) -> None:  # fmt: skip
    """Each layer's inputs and gradients, to ``totals``."""
    engine = choose(model, layout, batch.heads, theta)
    if isinstance(engine, Layered):
        engine.collect(theta, batch, totals)
        return
    for run in range(batch.runs):
        one, weight = _run(batch, run), None if totals.root is None else totals.root[run]

        def log_lik(params: Params, one: Data = one, weight: Tensor | None = weight) -> Tensor:
            found = model.log_lik(params, one)
            return found if weight is None else weight * found

        collect_recorded(
            log_lik,
            layout.split(theta[run]), blocks, lambda block, h, g, run=run: totals.take_rows(run, block, h, g),  # type: ignore[misc]
            places, one.x.shape[0],
        )  # fmt: skip


def _squares(model: Model, layout: Layout, theta: Tensor, batch: Data, part: Layout, root: Tensor | None) -> Tensor:
    """sum_n weight_n (grad log p^(n))^2 of ``part`` [R, D of part], from per-example gradients."""
    params = layout.split(theta)
    mine = {name: params.pop(name) for name in part.names}
    weight = batch.x.new_ones(batch.source.shape, dtype=theta.dtype) if root is None else root

    def log_lik(params: Params, x: Tensor, y: Tensor, source: Tensor, root: Tensor) -> Tensor:
        return root * model.log_lik(params, Data(x, y, source, batch.sources))

    found = squares_one_by_one(log_lik, mine, batch.x, batch.y, batch.source, weight, fixed=params)
    return part.join(found, lead=1)


@final
class _Totals:
    """Sums of h h^T and g g^T of every layer and run; a collector of the layered engine."""

    def __init__(self, layout: Layout, like: Tensor, blocks: tuple[Block, ...], sharing: Sharing) -> None:
        self.layout, self.sharing, runs = layout, sharing, len(like)
        shapes = dict(zip(*layout, strict=True))
        sizes = {block: block_shape(block, shapes) for block in blocks}
        self.A = {block: [like.new_zeros(n, n) for _ in range(runs)] for block, (_, n) in sizes.items()}
        self.G = {block: [like.new_zeros(m, m) for _ in range(runs)] for block, (m, _) in sizes.items()}
        self.count = {block: like.new_zeros(runs) for block in blocks}
        self.diagonal = torch.zeros_like(like)
        self.batch: Data | None = None
        self.root: Tensor | None = None
        self.again = False

    def begin(self, batch: Data, root: Tensor | None, again: bool) -> None:
        """The batch whose rows come next, the roots of its weights, and whether its inputs were counted before."""
        self.batch, self.root, self.again = batch, root, again

    def take(self, run: int, block: Block, h: Tensor, g: Tensor) -> None:
        """Add a layer's rows h [B, in] and g [B, out]."""
        if block in self.A:
            g = g if self.root is None else g * self.root[run].unsqueeze(1)
            self.take_rows(run, block, h.unsqueeze(1), g.unsqueeze(1))

    def take_rows(self, run: int, block: Block, h: Tensor, g: Tensor) -> None:
        """Add a layer's rows h [N, T, in] and g [N, T, out]; rows of other heads do not count.

        With ``sharing="reduce"`` and for heads, N are the examples.
        """
        assert self.batch is not None
        batch, head = self.batch, head_of(block.weight)
        if self.sharing == "reduce":
            h, g = h.mean(1, keepdim=True), g.sum(1, keepdim=True)
        if head is not None and len(batch.heads) > 1:
            mine = [at for at, source in enumerate(batch.sources) if source.head == head]
            keep = torch.isin(batch.source[run], torch.tensor(mine, device=h.device))
            h, g = h[keep], g[keep]
        g = g.reshape(-1, g.shape[-1])
        self.G[block][run].addmm_(g.mT, g)
        if self.again:
            return
        h = h.reshape(-1, h.shape[-1])
        if block.bias is not None:
            h = torch.cat([h, h.new_ones(len(h), 1)], 1)
        self.A[block][run].addmm_(h.mT, h)
        self.count[block][run] += len(h)

    def add_diagonal(self, part: Layout, values: Tensor) -> None:
        """Add to the diagonal of ``part``."""
        self.diagonal += self.layout.pad(values, part)

    def information(self, scale: float) -> Information:
        """Means of A, and sums of G and of the diagonal times ``scale``."""
        sums = (value for part in (self.A, self.G) for each in part.values() for value in each)
        current().add(*sums, *self.count.values(), self.diagonal)
        pairs = {}
        for block, count in self.count.items():
            A = torch.stack(self.A[block]) / count.clamp(min=1).view(-1, 1, 1)
            pairs[block] = Pair(A, torch.stack(self.G[block]) * scale, count * scale)
        return Information(pairs, self.diagonal * scale)
