"""Draws of theta against their equation, and their gradient against autograd's."""

import pytest
import torch

from vcl.beliefs.layout import Layout
from vcl.engines.draws import draw_params

LAYOUT = Layout(("w", "b", "heads.a.weight"), ((3, 4), (4,), (2, 5)))


@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (3, 1), (2, 7)])
def test_values_and_gradients_are_those_of_the_equation(runs: int, draws: int) -> None:
    g = torch.Generator().manual_seed(1)
    mean, log_var = (torch.randn(runs, LAYOUT.size, generator=g, dtype=torch.float64).requires_grad_() for _ in "ab")
    noise = torch.randn(runs, draws, LAYOUT.size, generator=g, dtype=torch.float64)
    drawn = draw_params(LAYOUT, mean, log_var.exp(), noise, noise.shape[1])
    plain = LAYOUT.split(mean.unsqueeze(1) + (0.5 * log_var).exp().unsqueeze(1) * noise)

    def gradients(params: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        value = sum((part.sin() * part.cos().cumsum(1)).sum() for part in params.values())
        assert isinstance(value, torch.Tensor)
        return torch.autograd.grad(value, (mean, log_var))

    for name, expected in plain.items():
        torch.testing.assert_close(drawn[name], expected)
        assert drawn[name].is_contiguous()
    for ours, expected in zip(gradients(drawn), gradients(plain), strict=True):
        torch.testing.assert_close(ours, expected)
