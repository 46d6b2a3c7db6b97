"""All runs and draws of a VAE in one call must be the general way, only faster; and its gradients in one piece."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from made import shapes, small_vae
from vcl.beliefs.layout import Layout
from vcl.data import Data, concat
from vcl.engines.chain import chain, linear, stacked
from vcl.engines.places import home_of, pieces
from vcl.models import Vae
from vcl.ops.pixels import NormalPixels
from vcl.projections.point import LogLikelihood
from vcl.projections.vi import Elbo

RUNS, S = 3, 4


def mixed(heads: int) -> Data:
    """Images of one task, or of two in one batch."""
    data = shapes(5, 0, "a", runs=RUNS) if heads == 1 else concat(shapes(5, 0, "a", RUNS), shapes(4, 1, "b", RUNS))
    return data._replace(x=data.x.double())


def vae(kind: str) -> Vae:
    if kind == "odd":
        encoder = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(16, 7, bias=False), nn.Tanh()), nn.Linear(7, 6))
        upper = nn.Sequential(nn.ELU(), nn.Linear(3, 16, bias=False))
        return Vae(encoder, nn.Identity(), upper, 3, NormalPixels(0.5), "upper")
    return small_vae(**{"upper": {"private": "upper"}, "shared": {"shared_encoder": True}}.get(kind, {}))  # type: ignore[arg-type]


def value_and_gradients(objective: Any, parameters: tuple[Tensor, ...], data: Data) -> list[Tensor]:
    g = torch.Generator().manual_seed(1)
    noise = torch.randn(RUNS, objective.noise(data), generator=g, dtype=torch.float64)
    leaves = tuple(part.clone().requires_grad_() for part in parameters)
    value = objective(leaves, data, 50, noise)
    weights = torch.randn(value.shape, generator=g, dtype=torch.float64)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), leaves)]


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("kind", ["lower", "upper", "shared", "odd"])
@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "points"])
def test_values_and_gradients_are_those_of_the_general_way(drawn: bool, kind: str, heads: int) -> None:
    data, found = mixed(heads), []
    for row_wise in (True, False):
        model = vae(kind)
        assert model.row_wise
        model.row_wise = row_wise
        prior = model.prior(dict.fromkeys(data.heads, 16)).to(torch.float64).expand(RUNS)
        g = torch.Generator().manual_seed(0)
        if drawn:
            elbo = Elbo(model, prior, S, "weights")
            start = elbo.parameters(prior)
            parameters = tuple(0.5 * torch.randn(part.shape, generator=g, dtype=torch.float64) for part in start)
            assert elbo.plan(data).row_wise == row_wise
            found.append(value_and_gradients(elbo, parameters, data))
        else:
            theta = 0.5 * torch.randn(prior.mean.shape, generator=g, dtype=torch.float64)
            found.append(value_and_gradients(LogLikelihood(model, prior.layout, S), (theta,), data))
    for ours, reference in zip(*found, strict=True):
        assert ours.abs().max() > 0.01
        assert torch.allclose(ours, reference, rtol=1e-10, atol=1e-10)


def test_other_modules_take_the_general_way() -> None:
    flat, plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 6)), nn.Linear(16, 6)
    lower, upper = nn.Linear(3, 4), nn.Linear(4, 16)
    assert Vae(flat, lower, upper, 3).row_wise
    assert not Vae(plain, lower, upper, 3).row_wise  # images would have to be flat already
    assert not Vae(flat, lower, nn.Sequential(upper, nn.LayerNorm(16)), 3).row_wise
    assert not Vae(flat, nn.Sequential(lower, nn.Unflatten(-1, (4, 1)), nn.Flatten()), upper, 3).row_wise
    assert not Vae(nn.Flatten(), nn.Linear(8, 4), upper, 8).row_wise
    hooked = nn.Linear(4, 16)
    hooked.register_forward_hook(lambda module, given, out: 2 * out)
    assert not Vae(flat, lower, hooked, 3).row_wise
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 16))
    tied[1].bias = tied[0].bias
    assert not Vae(flat, lower, tied, 3).row_wise


@pytest.mark.parametrize("seen", [1, S])
@pytest.mark.parametrize("own", [True, False], ids=["each draw its own", "shared by the draws"])
def test_a_chain_is_the_module_at_each_run_and_draw(own: bool, seen: int) -> None:
    module = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.ReLU(), nn.Sequential(nn.Linear(7, 6), nn.Tanh()))
    g = torch.Generator().manual_seed(0)
    params = {
        name: torch.randn(RUNS, *((S,) if own else ()), *value.shape, generator=g)
        for name, value in module.named_parameters()
    }
    assert stacked(module, params)
    assert not stacked(module, dict(module.named_parameters()))
    x = torch.randn(RUNS, seen, 3, 5, generator=g)
    found = chain(module, params, x)
    assert found.shape == (RUNS, S if own else seen, 3, 6)
    for run in range(RUNS):
        for draw in range(found.shape[1]):
            mine = {name: value[run, draw] if own else value[run] for name, value in params.items()}
            assert torch.allclose(found[run, draw], functional_call(module, mine, x[run, draw % seen]), atol=1e-6)


def test_activations_in_place_are_as_others() -> None:
    found = []
    for inplace in (True, False):
        module = nn.Sequential(nn.Linear(5, 7), nn.LeakyReLU(0.1, inplace), nn.Linear(7, 6), nn.ReLU(inplace))
        g = torch.Generator().manual_seed(0)
        params = {
            name: torch.randn(RUNS, *value.shape, generator=g).requires_grad_()
            for name, value in module.named_parameters()
        }
        value = chain(module, params, torch.randn(RUNS, S, 3, 5, generator=g))
        found.append([value.detach(), *torch.autograd.grad(value.sin().sum(), list(params.values()))])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("own", [True, False], ids=["each draw its own", "shared by the draws"])
def test_the_written_gradient_of_a_layer_is_torchs(own: bool, relu: bool, biased: bool) -> None:
    g = torch.Generator().manual_seed(0)
    lead = (RUNS, S) if own else (RUNS,)
    x, W, b = (
        torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()
        for shape in ((RUNS, S, 3, 5), (*lead, 4, 5), (*lead, 4))
    )
    assert torch.autograd.gradcheck(lambda *a: linear(*a, relu=relu), (x, W, b) if biased else (x, W, None))


class TestPieces:
    LAYOUT = Layout(("w", "b", "s", "v"), ((4, 5), (4,), (), (6, 4)))

    def flat(self) -> Tensor:
        g = torch.Generator().manual_seed(0)
        return torch.randn(RUNS, self.LAYOUT.size, generator=g, dtype=torch.float64).requires_grad_()

    def value(self, params: dict[str, Tensor], twice: bool) -> Tensor:
        x = torch.arange(RUNS * 2 * 3 * 5, dtype=torch.float64).view(RUNS, 2, 3, 5).cos()
        h = linear(x, params["w"], params["b"], relu=True)
        if twice:
            h = h + linear(x.sin(), params["w"], params["b"])
        return (linear(h, params["v"], None) * params["s"].view(RUNS, 1, 1, 1)).square().sum()

    @pytest.mark.parametrize("twice", [False, True], ids=["each used once", "one used twice"])
    def test_gradients_are_those_of_split(self, twice: bool) -> None:
        flat = self.flat()
        ways = [pieces(self.LAYOUT, flat), self.LAYOUT.split(flat)]
        ours, plain = (torch.autograd.grad(self.value(params, twice), flat)[0] for params in ways)
        assert torch.allclose(ours, plain, rtol=1e-12, atol=1e-12)

    def test_a_second_backward_pass_and_tensors_without_a_use(self) -> None:
        flat = self.flat()
        params = pieces(self.LAYOUT, flat)
        value = linear(torch.ones(RUNS, 1, 1, 5, dtype=torch.float64), params["w"], None).sum()
        one, two = (torch.autograd.grad(value, flat, retain_graph=True)[0] for _ in range(2))
        assert torch.equal(one, two)
        assert one.data_ptr() != two.data_ptr()
        assert torch.equal(one, (torch.arange(self.LAYOUT.size) < 20).double().expand_as(one))

    def test_each_tensor_knows_its_place_and_others_have_none(self) -> None:
        params = pieces(self.LAYOUT, self.flat())
        homes = [home_of(value) for value in params.values()]
        assert [home and home.number for home in homes] == [0, 1, 2, 3]
        assert home_of(params["w"].view(RUNS, -1)) is None
        assert home_of(self.LAYOUT.split(self.flat())["w"]) is None
        assert home_of(None) is None

    def test_nothing_is_copied_together(self) -> None:
        seen: list[str] = []

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(func.__name__)
                return func(*args, **(kwargs or {}))

        model, data = small_vae(), mixed(1)
        layout = model.layout({"a": 16})
        theta = torch.randn(RUNS, layout.size, dtype=torch.float64).requires_grad_()
        objective = LogLikelihood(model, layout, S)
        noise = torch.randn(RUNS, objective.noise(data), dtype=torch.float64)
        value = objective((theta,), data, 5, noise).sum()
        with Watch():
            torch.autograd.grad(value, theta)
        assert "bmm.out" in seen
        assert not any("copy" in name or "clone" in name for name in seen)
        assert sum("cat" in name for name in seen) <= 1  # of the encoder's two outputs
