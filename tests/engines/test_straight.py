"""The straight way through linear layers under vmap: the values and gradients of the plain way."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from vcl.engines.straight import straight

R, S, B = 2, 3, 4


def two_layers(params: dict[str, Tensor], x: Tensor, extra: Tensor) -> Tensor:
    """The first layer is shared by all draws of a run, the second is each draw's own."""
    return F.linear(F.linear(x, params["V"], params["c"]).relu() + extra, params["W"], params["b"]).sin()


def leaves() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    shapes = {"V": (R, 6, 5), "c": (R, 6), "W": (R, S, 7, 6), "b": (R, S, 7)}
    return {name: torch.randn(shape, generator=g, requires_grad=True) for name, shape in shapes.items()}


def gradients(wrap: Callable[..., Any], x: Tensor, params: dict[str, Tensor]) -> tuple[Tensor, ...]:
    noise = torch.randn(R, S, B, 6, generator=torch.Generator().manual_seed(1))
    axes = ({"V": None, "c": None, "W": 0, "b": 0}, None, 0)
    value = torch.vmap(torch.vmap(wrap(two_layers), in_dims=axes))(params, x, noise)
    wanted = [*params.values(), *([x] if x.requires_grad else [])]
    return value.detach(), *torch.autograd.grad((value * torch.arange(7)).sum(), wanted)


@pytest.mark.parametrize("inputs", [True, False], ids=["inputs have a gradient", "inputs are data"])
def test_values_and_gradients_are_those_of_the_plain_way(inputs: bool) -> None:
    x = torch.randn(R, B, 5, generator=torch.Generator().manual_seed(2), requires_grad=inputs)
    for ours, plain in zip(gradients(straight, x, leaves()), gradients(lambda f: f, x, leaves()), strict=True):
        torch.testing.assert_close(ours, plain)


def test_no_gradient_of_a_weight_is_copied_to_turn_it() -> None:
    copies: list[torch.Size] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "clone" in func.__name__:
                copies.append(args[0].shape)
            return func(*args, **(kwargs or {}))

    x, params = torch.randn(R, B, 5), leaves()
    flat = {name: value.detach().flatten().requires_grad_() for name, value in params.items()}
    with Watch():
        shaped = {name: value.view(params[name].shape) for name, value in flat.items()}
        gradients(straight, x, shaped)
    assert not copies


def test_layers_without_bias_and_over_sequences_are_as_they_are() -> None:
    x, W, b = torch.randn(3, 4, 5), torch.randn(2, 5), torch.randn(2)
    assert torch.equal(straight(F.linear)(x, W, b), F.linear(x, W, b))
    assert torch.equal(straight(F.linear)(x[0], W), F.linear(x[0], W))
