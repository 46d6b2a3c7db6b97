"""F(q) and its gradient on the CPU, run after run, in memory that is made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.data import Data, weight_of_each
from vcl.engines.forward import Estimator
from vcl.engines.perceptron.local import Local
from vcl.engines.perceptron.parts import Perceptron
from vcl.engines.perceptron.weights import Drawn


class Fit(NamedTuple):
    """F(q) of each run [R], and its gradient [R, D] twice, which is lent: the next call writes over it."""

    value: Tensor
    g_mean: Tensor
    g_log_var: Tensor


Finish = Callable[[slice, Tensor, Tensor, Tensor | None], None]
"""What is done with a run's gradient while it is at hand: which run, both parts, and e^{log_var} if kept; [1, D]."""


@final
class Workspace:
    """The memory of the last call, which serves the next if that is of the same kind."""

    def __init__(self) -> None:
        self.kind: tuple[object, ...] = ()
        self.mean: Tensor | None = None
        self.chain: Local | Drawn | None = None

    def chain_for(
        self, net: Perceptron, layout: Layout, estimator: Estimator, draws: int, examples: int, mean: Tensor
    ) -> Local | Drawn:
        """Memory for this kind of call, with the layers of ``mean`` in place."""
        kind = (net, layout, estimator, draws, examples)
        if self.chain is None or self.mean is not mean or self.kind != kind:
            self.chain = None  # what is freed can be used again
            chain = Local if estimator == "local" else Drawn
            self.kind, self.mean, self.chain = kind, mean, chain(net, layout, draws, examples, mean)
        return self.chain


def suits(net: Perceptron, layout: Layout, mean: Tensor, batch: Data) -> bool:
    """Whether :func:`fit_gradient` can take this: the layout is the perceptron's and no more, all in one precision."""
    precision = torch.float32 if batch.x.dtype == torch.uint8 else batch.x.dtype
    return (
        mean.device.type == "cpu"
        and mean.dtype == precision
        and mean.dtype in (torch.float32, torch.float64)
        and batch.y.dtype == torch.int64
        and set(net.names) == set(layout.names)
    )


@torch.no_grad()
def fit_gradient(
    net: Perceptron,
    layout: Layout,
    estimator: Estimator,
    draws: int,
    mean: Tensor,
    log_var: Tensor,
    batch: Data,
    total: int,
    noise: Tensor,
    workspace: Workspace,
    finish: Finish | None = None,
) -> Fit:
    """F(q) and its gradient for q given by mean and log variance [R, D], with noise [R, K]; see :func:`suits`."""
    chain = workspace.chain_for(net, layout, estimator, draws, batch.size, mean)
    share = weight_of_each(batch.size, total) / draws
    tapes = noise.view(len(mean), draws, -1)
    value = mean.new_empty(len(mean))
    for run in range(len(mean)):
        chain(run, (mean[run], log_var[run]), batch.x[run], batch.y[run], tapes[run], share, value[run])
        if finish is not None:
            only = slice(run, run + 1)
            finish(only, chain.g_mean[only], chain.g_log_var[only], chain.var)
    return Fit(value.mul_(share), chain.g_mean, chain.g_log_var)
