"""Lower bounds on the time of a training step: its matrix products, and its memory traffic at full bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.lab.bench.timing import Job, Timing

Products = list[tuple[Tensor, Tensor]]
"""Pairs of factors, [batch, rows, inner] and [batch, inner, columns]."""


class Layer(NamedTuple):
    """A linear layer in a training step."""

    width: int
    out: int
    drawn: bool = True
    """Whether each draw has its own weights. Otherwise they are point estimates."""
    by_draw: bool = True
    """Whether its input differs between draws; the first layer's does not."""
    back: bool = True
    """Whether the gradient of its input is needed."""


def products(layers: Sequence[Layer], rows: int, draws: int, runs: int, device: torch.device) -> Products:
    """The factors of all products of a step on ``rows`` examples: forward, and the gradients of weights and inputs.

    If draws share an input, their weights are concatenated into one product with more columns.
    """
    pairs: Products = []
    for layer in layers:
        many = runs * draws if layer.by_draw else runs
        out = layer.out * draws if layer.drawn and not layer.by_draw else layer.out
        shapes = (rows, layer.width), (out, layer.width), (rows, out)
        x, w, g = (torch.randn(many, *shape, device=device) for shape in shapes)
        pairs += [(x, w.mT), (g.mT, x)] + ([(g, w)] if layer.back else [])
    return pairs


def multiply(pairs: Products, device: torch.device) -> Callable[[], list[Tensor]]:
    """A job that computes only these products, on CUDA as one recorded graph.

    The results go to preallocated memory, since the speed of allocation depends on what else ran in the process.
    """
    places = [torch.bmm(a, b) for a, b in pairs]

    def once() -> list[Tensor]:
        return [torch.bmm(a, b, out=place) for (a, b), place in zip(pairs, places, strict=True)]

    if device.type != "cuda":
        return once
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # like a step; separate launches would wait for Python
        once()
    memory = pairs, places  # the graph uses this memory but does not keep it alive

    def replay() -> list[Tensor]:
        graph.replay()
        return memory[1]

    return replay


def moved(drawn: int, points: int, draws: int, estimator: str) -> int:
    """Bytes that a float32 step must move; ``drawn`` counts random and ``points`` deterministic parameters of all runs.

    ``weights`` writes every drawn weight once, reads it twice (forward and backward), and writes and reads its gradient
    once. ``local`` reads means and variances twice; it writes and reads their gradients once. The same holds for
    points. Adam reads and writes every optimised value and both of its moments. The batch, activations and noise are
    left out, since one kernel could keep them on the chip.
    """
    climbed = 2 * drawn + points
    passes = 5 * draws * drawn if estimator == "weights" else 4 * 2 * drawn
    return 4 * (passes + 4 * points + 6 * climbed)


class Copy(NamedTuple):
    """A large copy that measures bandwidth."""

    job: Job
    bytes: int
    """Bytes that one call reads and writes."""

    def time(self, copied: Timing, moved: int) -> Timing:
        """The time to move ``moved`` bytes, if a call of the job takes ``copied``."""
        share = moved / self.bytes
        return Timing(share * copied.least, share * copied.middle, copied.calls)


def copy(device: torch.device) -> Copy:
    """A copy of 64 MiB on a CPU and 1 GiB on a GPU, larger than their caches."""
    source = torch.zeros(2**28 if device.type == "cuda" else 2**24, device=device)
    target = torch.zeros_like(source)
    return Copy(lambda: target.copy_(source), 2 * source.nbytes)
