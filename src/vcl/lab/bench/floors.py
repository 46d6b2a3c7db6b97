"""Floors of a training step: its matrix products alone, and the bytes that it must move at the device's bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.lab.bench.timing import Job, Timing

Products = list[tuple[Tensor, Tensor]]
"""Pairs of factors, each [batch, rows, sum] and [batch, sum, columns]."""


class Layer(NamedTuple):
    """A linear layer of a step that draws weights."""

    width: int
    out: int
    drawn: bool = True
    """Whether every draw has weights of its own. Otherwise they are points."""
    by_draw: bool = True
    """Whether its input differs between draws. The first layer's does not."""
    back: bool = True
    """Whether the gradient of its input is needed."""


def products(layers: Sequence[Layer], rows: int, draws: int, runs: int, device: torch.device) -> Products:
    """The factors of all products of a step on ``rows`` examples: forward, to the weights, and to the inputs.

    Where draws share an input, their weights stand side by side, as one product with more columns.
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
    """A job that computes these products and nothing else, on CUDA as one recorded graph.

    The memory for the results exists already: how fast the system hands out new memory depends on what else ran in the
    process.
    """
    places = [torch.bmm(a, b) for a, b in pairs]

    def once() -> list[Tensor]:
        return [torch.bmm(a, b, out=place) for (a, b), place in zip(pairs, places, strict=True)]

    if device.type != "cuda":
        return once
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # as a step is: launched one by one they would wait for Python
        once()
    memory = pairs, places  # the graph works in it but does not hold it

    def replay() -> list[Tensor]:
        graph.replay()
        return memory[1]

    return replay


def moved(drawn: int, points: int, draws: int, estimator: str) -> int:
    """Bytes that a step in float32 must move, with ``drawn`` random and ``points`` fixed parameters of all runs.

    ``weights`` writes every drawn weight once and reads it twice (forward and back), and writes and reads its gradient
    once. ``local`` reads means and variances twice, and points are read twice too; their gradients are written and
    read once. Adam reads and writes every climbed value and both of its moments. The batch, activations and noise are
    left out, since one kernel could keep them on the chip.
    """
    climbed = 2 * drawn + points
    passes = 5 * draws * drawn if estimator == "weights" else 4 * 2 * drawn
    return 4 * (passes + 4 * points + 6 * climbed)


class Copy(NamedTuple):
    """A large copy, by which bandwidth is measured."""

    job: Job
    bytes: int
    """Read and written by one call."""

    def time(self, copied: Timing, moved: int) -> Timing:
        """How long moving so many bytes takes, if a call of the job takes ``copied``."""
        share = moved / self.bytes
        return Timing(share * copied.least, share * copied.middle, copied.calls)


def copy(device: torch.device) -> Copy:
    """64 MiB on a CPU and 1 GiB on a GPU: more than their caches hold."""
    source = torch.zeros(2**28 if device.type == "cuda" else 2**24, device=device)
    target = torch.zeros_like(source)
    return Copy(lambda: target.copy_(source), 2 * source.nbytes)
