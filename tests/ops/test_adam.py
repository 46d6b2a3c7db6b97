"""Adam against its equations, written out in float64."""

import pytest
import torch
from torch import Tensor

from vcl.ops import kernels
from vcl.ops.adam import KernelAdam, Optimiser, TorchAdam, make_adam

CUDA = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(
    not kernels.usable(torch.zeros(1, device=CUDA)), reason="the kernel needs a CUDA device and Triton"
)


def by_hand(start: Tensor, gradients: list[Tensor], rates: list[float]) -> Tensor:
    value, m, v = start.double(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
    for t, (g, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = 0.9 * m + 0.1 * g.double()
        v = 0.999 * v + 0.001 * g.double() ** 2
        value = value + lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return value


@pytest.mark.parametrize(
    ("kind", "device"), [(TorchAdam, "cpu"), pytest.param(KernelAdam, "cuda", marks=needs_kernels)]
)
def test_it_goes_up_as_the_equations_say_at_the_rates_it_is_told(
    kind: type[TorchAdam | KernelAdam], device: str
) -> None:
    g = torch.Generator().manual_seed(0)
    starts = (torch.randn(3, 700, generator=g), torch.randn(3, 700, generator=g))
    gradients = [tuple(torch.randn(3, 700, generator=g) * 10.0**scale for _ in starts) for scale in range(-3, 4)]
    rates = [0.1 / (1 + step) for step in range(len(gradients))]
    values = tuple(start.clone().to(device) for start in starts)
    adam: Optimiser = kind(values, 1.0)
    for step, lr in zip(gradients, rates, strict=True):
        adam.rate(lr)
        adam.step(tuple(part.to(device) for part in step))
    for place, (start, value) in enumerate(zip(starts, values, strict=True)):
        expected = by_hand(start, [step[place] for step in gradients], rates)
        torch.testing.assert_close(value.cpu().double(), expected, rtol=1e-5, atol=1e-5)


def test_on_the_cpu_it_is_the_one_of_torch() -> None:
    assert isinstance(make_adam((torch.zeros(2, 3),), 0.1), TorchAdam)
