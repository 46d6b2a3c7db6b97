"""Moment propagation against closed forms and against brute force over draws of the weights."""

from math import pi, sqrt

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from vcl.engines.moment_propagation import linear, relu, through
from vcl.engines.structure import chain_of
from vcl.errors import VclError


def gaussian_like(module: nn.Module, seed: int, sd: float = 0.5) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random means and variances for a module's parameters, in float64."""
    g = torch.Generator().manual_seed(seed)
    mean, var = {}, {}
    for name, value in module.named_parameters():
        mean[name] = torch.randn(value.shape, generator=g, dtype=torch.float64)
        var[name] = sd**2 * (0.5 + torch.rand(value.shape, generator=g, dtype=torch.float64))
    return mean, var


def brute_force(
    module: nn.Module, mean: dict[str, Tensor], var: dict[str, Tensor], x: Tensor, draws: int
) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(99)
    theta = {
        name: mean[name] + var[name].sqrt() * torch.randn(draws, *mean[name].shape, generator=g, dtype=torch.float64)
        for name in mean
    }
    outputs = torch.vmap(lambda params: functional_call(module, params, x))(theta)
    return outputs.mean(0), outputs.var(0)


def test_relu_moments_are_those_of_a_numerical_integral() -> None:
    """At means and variances over many orders of magnitude, by a fine grid around each normal."""
    z = torch.linspace(-12, 12, 400_001, dtype=torch.float64)
    weight = (-0.5 * z.square()).exp() / sqrt(2 * pi) * (z[1] - z[0])
    for m in (-3.0, -0.5, 0.0, 0.2, 2.0, 50.0):
        for v in (1e-4, 0.3, 1.0, 100.0):
            a = (m + sqrt(v) * z).clamp(min=0)
            first = (weight * a).sum()
            second = (weight * (a - first).square()).sum()
            mean, var = relu(torch.tensor([m], dtype=torch.float64), torch.tensor([v], dtype=torch.float64))
            assert mean.item() == pytest.approx(first.item(), rel=1e-8, abs=1e-12)
            assert var.item() == pytest.approx(second.item(), rel=1e-6, abs=1e-12)


def test_relu_moments_at_known_values() -> None:
    """At mean 0: E = s / sqrt(2 pi) and Var = s^2 (1/2 - 1/(2 pi)); far above 0 the input's own; far below, 0."""
    mean, var = relu(torch.tensor([0.0, 100.0, -100.0]), torch.tensor([4.0, 4.0, 4.0]))
    assert mean.tolist() == pytest.approx([2 / sqrt(2 * pi), 100, 0])
    assert var.tolist() == pytest.approx([4 * (0.5 - 0.5 / pi), 4, 0])


def test_relu_of_a_known_value_is_that_value_and_has_no_variance() -> None:
    mean, var = relu(torch.tensor([-2.0, 0.0, 3.0]), torch.zeros(3))
    assert mean.tolist() == pytest.approx([0, 0, 3], abs=1e-7)
    assert var.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite_in_the_tails(dtype: torch.dtype) -> None:
    sizes = [0.0, 1e-20, 1e-6, 1.0, 1e6, 1e12]
    mean = torch.tensor([s * size for size in sizes for s in (-1, 1)], dtype=dtype)
    mean = torch.cat([mean, torch.linspace(-40, 40, 1001, dtype=dtype)])
    for v in (0.0, 1e-30, 1e-12, 1.0, 1e8):
        m, var = mean.clone().requires_grad_(), torch.full_like(mean, v).requires_grad_()
        first, second = relu(m, var)
        gradients = torch.autograd.grad((first + second).sum(), (m, var))
        for value in (first, second, *gradients):
            assert value.isfinite().all(), v
        assert (second >= 0).all()


def test_gradients_of_relu_moments_are_the_known_ones() -> None:
    """dE/dm = Phi(alpha) and dE/dv = phi(alpha) / (2 s)."""
    m = torch.tensor([-2.0, 0.0, 0.7, 3.0], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64, requires_grad=True)
    in_mean, in_var = torch.autograd.grad(relu(m, v)[0].sum(), (m, v))
    normal = torch.distributions.Normal(torch.zeros(()).double(), torch.ones(()).double())
    alpha, sd = (m / v.sqrt()).detach(), v.sqrt().detach()
    assert torch.allclose(in_mean, normal.cdf(alpha))
    assert torch.allclose(in_var, normal.log_prob(alpha).exp() / (2 * sd))


def test_a_linear_layer_is_exact() -> None:
    """Against a million draws of inputs, weights and bias (standard errors about 1e-3 of the value)."""
    g = torch.Generator().manual_seed(0)
    h, h_var = torch.randn(1, 3, generator=g), torch.rand(1, 3, generator=g)
    M, V = torch.randn(2, 3, generator=g), torch.rand(2, 3, generator=g)
    b, b_var = torch.randn(2, generator=g), torch.rand(2, generator=g)
    draws = 1_000_000
    inputs = h + h_var.sqrt() * torch.randn(draws, 3, generator=g)
    weights = M + V.sqrt() * torch.randn(draws, 2, 3, generator=g)
    outputs = (weights * inputs[:, None]).sum(-1) + b + b_var.sqrt() * torch.randn(draws, 2, generator=g)
    mean, var = linear(h, h_var, (M, V), (b, b_var))
    assert torch.allclose(mean[0], outputs.mean(0), atol=4 * (var.max() / draws).sqrt().item())
    assert torch.allclose(var[0], outputs.var(0), rtol=0.01)


def test_known_inputs_are_inputs_of_variance_zero() -> None:
    mean, var = gaussian_like(nn.Linear(4, 3), 0)
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight, bias = (mean["weight"], var["weight"]), (mean["bias"], var["bias"])
    for ours, reference in zip(
        linear(x, None, weight, bias), linear(x, torch.zeros_like(x), weight, bias), strict=True
    ):
        assert torch.allclose(ours, reference, rtol=1e-12)


def test_one_hidden_layer_is_exact_in_mean_and_variance() -> None:
    """The hidden units are Gaussian and independent, so nothing is approximated: only Monte Carlo error is left."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    mean, var = gaussian_like(module, 0)
    x = torch.randn(3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    m, v = through(chain_of(module), mean, var, x)
    first, second = brute_force(module, mean, var, x, 200_000)
    assert torch.allclose(m, first, atol=4 * (v.max() / 200_000).sqrt().item())
    assert torch.allclose(v, second, rtol=0.02)


def test_two_hidden_layers_are_close() -> None:
    """Units of the second hidden layer share the first's and are not quite Gaussian: within 10% of the deviation."""
    relu_twice = nn.ReLU()
    module = nn.Sequential(nn.Sequential(nn.Linear(4, 20), relu_twice), nn.Linear(20, 20), relu_twice, nn.Linear(20, 2))
    mean, var = gaussian_like(module, 0, sd=0.3)
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    m, v = through(chain_of(module), mean, var, x)
    first, second = brute_force(module, mean, var, x, 20_000)
    assert ((m - first).abs() < 0.1 * second.sqrt()).all()
    assert torch.allclose(v.sqrt(), second.sqrt(), rtol=0.1)


def test_parameters_without_variance_give_the_plain_network() -> None:
    module = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Identity(), nn.ReLU(), nn.Linear(6, 2)).double()
    mean, _ = gaussian_like(module, 0)
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    m, v = through(chain_of(module), mean, {name: torch.zeros_like(value) for name, value in mean.items()}, x)
    assert torch.allclose(m, functional_call(module, mean, x), atol=1e-7)
    assert v.abs().max() < 1e-12


def test_no_layers_at_all_pass_the_inputs_on() -> None:
    x = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0))
    mean, var = through(chain_of(nn.Flatten()), {}, {}, x)
    assert torch.equal(mean, x.flatten(1))
    assert not var.any()


class MyLinear(nn.Linear):
    pass


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.Tanh(), r"layer '1' \(Tanh\) has no rule for its moments; .* takes an nn.Sequential of nn.Flatten"),
        (MyLinear(3, 3), r"layer '1' \(MyLinear\) has no rule"),
        (nn.Sequential(nn.Conv1d(1, 1, 1)), r"layer '1.0' \(Conv1d\) has no rule"),
    ],
    ids=["tanh", "subclass", "nested convolution"],
)
def test_other_layers_are_refused(layer: nn.Module, words: str) -> None:
    module = nn.Sequential(nn.Linear(3, 3), layer).double()
    mean, var = gaussian_like(module, 0)
    with pytest.raises(VclError, match=words):
        through(chain_of(module), mean, var, torch.zeros(2, 3, dtype=torch.float64))


def test_weights_that_are_shared_are_refused() -> None:
    twice = nn.Linear(3, 3)
    module = nn.Sequential(twice, nn.ReLU(), twice)
    with pytest.raises(VclError, match=r"layer '2' \(Linear\) shares its weights with an earlier one"):
        through(chain_of(module), *gaussian_like(module, 0), torch.zeros(2, 3, dtype=torch.float64))
    rows = nn.Sequential(nn.Linear(3, 2), nn.Flatten())
    with pytest.raises(VclError, match=r"layer '0' \(Linear\) gets \(4, 3\) values per example.*put nn.Flatten before"):
        through(chain_of(rows), *gaussian_like(rows, 0), torch.zeros(2, 4, 3, dtype=torch.float64))
