"""Adam for maximisation: torch's, or a Triton kernel."""

from __future__ import annotations

from typing import Protocol, final

import torch
from torch import Tensor

from vcl.ops import kernels
from vcl.ops.cuda_streams import Branch

BETAS = (0.9, 0.999)
EPS = 1e-8


class Optimiser(Protocol):
    """Moves parameters in place along given gradients."""

    def rate(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        ...

    def held(self) -> tuple[Tensor, ...]:
        """All that a step changes beside the parameters, to read and to write into."""
        ...

    def step(self, gradients: tuple[Tensor, ...]) -> None:
        """Take one step uphill."""
        ...


@final
class TorchAdam:
    """torch's Adam, with each run as a separate tensor.

    Its fused CPU kernel rounds the last few elements of a tensor differently, and a run's bits must not depend on the
    other runs. The kernel is called directly: the Python overhead of ``torch.optim.Adam`` would double the time for
    networks of the usual size.
    """

    def __init__(self, parameters: tuple[Tensor, ...], lr: float) -> None:
        on_gpu = parameters[0].is_cuda
        # On a GPU the rate is a tensor, so that a captured step sees changes.
        self.lr = torch.tensor(lr, device=parameters[0].device) if on_gpu else lr
        self.runs = [run for value in parameters for run in value.detach().unbind(0)]
        self.m, self.v = ([torch.zeros_like(run) for run in self.runs] for _ in range(2))
        self.counts = [torch.zeros((), device=parameters[0].device)] * len(self.runs)

    def rate(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        if isinstance(self.lr, Tensor):
            self.lr.fill_(lr)
        else:
            self.lr = lr

    def held(self) -> tuple[Tensor, ...]:
        """The moments of each run, and the number of steps."""
        return (*self.m, *self.v, self.counts[0])

    def step(self, gradients: tuple[Tensor, ...]) -> None:
        """Take one step uphill."""
        self.counts[0].add_(1)
        torch._fused_adam_(
            self.runs, [run for g in gradients for run in g.unbind(0)], self.m, self.v, [], self.counts,
            lr=self.lr, beta1=BETAS[0], beta2=BETAS[1], weight_decay=0.0, eps=EPS, amsgrad=False, maximize=True,
        )  # fmt: skip


@final
class KernelAdam:
    """Adam on a GPU, one kernel per parameter: torch's kernel is built for large tensors, and ours are small.

    m <- b1 m + (1 - b1) g
    v <- b2 v + (1 - b2) g^2
    theta <- theta + lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
    """

    def __init__(self, parameters: tuple[Tensor, ...], lr: float) -> None:
        self.parameters = tuple(value.detach() for value in parameters)
        self.moments = [(torch.zeros_like(value), torch.zeros_like(value)) for value in self.parameters]
        device = parameters[0].device
        self.lr, self.count = torch.tensor(lr, device=device), torch.zeros((), dtype=torch.int64, device=device)
        self.told = lr

    def rate(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        if lr != self.told:
            self.lr.fill_(lr)
            self.told = lr

    def held(self) -> tuple[Tensor, ...]:
        """The moments of each parameter, and the number of steps."""
        return (*(value for pair in self.moments for value in pair), self.count)

    def step(self, gradients: tuple[Tensor, ...]) -> None:
        """Take one step uphill."""
        scales = kernels.adam_scales(self.count, self.lr, *BETAS)
        first, *rest = zip(self.parameters, self.moments, (g.contiguous() for g in gradients), strict=True)
        branch = Branch(self.count.device)
        for value, (m, v), g in rest:
            with branch.beside(g, scales):
                kernels.adam(value, m, v, g, scales, *BETAS, EPS)
        value, (m, v), g = first
        kernels.adam(value, m, v, g, scales, *BETAS, EPS)
        branch.join()


def make_adam(parameters: tuple[Tensor, ...], lr: float) -> Optimiser:
    """The kernel form if usable, else torch's."""
    usable = all(kernels.usable(value) and value.is_contiguous() for value in parameters)
    return KernelAdam(parameters, lr) if usable else TorchAdam(parameters, lr)
