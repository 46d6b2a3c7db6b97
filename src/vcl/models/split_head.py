"""A whole network as a trunk and its own last layer, which then is a head."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcl.data import Array, as_tensor
from vcl.errors import InputError, VclError
from vcl.ops.rows import own_input

ROWS = 3
"""The number of random inputs that a split is verified on."""

ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(1),
    "log_softmax": lambda logits: logits.log_softmax(1),
    "sigmoid": lambda logits: logits.sigmoid(),
}
"""Functions after the last layer that a message can name."""


class Whole(NamedTuple):
    """net(x) = F.linear(trunk(x), weight, bias), with ``features`` values per example between.

    ``name`` is that of the layer in the net; its place in ``trunk`` is empty. Names of other parameters stay.
    """

    trunk: nn.Module
    features: int
    weight: Tensor
    bias: Tensor
    name: str


def split_head(net: nn.Module, example: Array) -> Whole:
    """``net`` cut before the last ``nn.Linear`` that it calls for ``example`` [N, ...], as a copy.

    The cut is verified in evaluation mode on the example and on random inputs of its kind, up to rounding.
    """
    x = as_tensor(example, "the example")
    if x.dim() < 1 or not len(x):
        raise VclError(f"the example has shape {tuple(x.shape)}; give at least one example with a batch axis.")
    copy = deepcopy(net)
    modes = {part: part.training for part in copy.modules()}
    copy.eval()
    inputs = [_as(each, copy) for each in (x, _random(x))]
    name, seen, wanted = _last_linear(copy, inputs[0])
    last = copy.get_submodule(name)
    assert isinstance(last, nn.Linear)
    _refuse_tied(copy, last, name)
    weight = last.weight.detach().clone()
    bias = weight.new_zeros(len(weight)) if last.bias is None else last.bias.detach().clone()
    _refuse_end(name, seen, wanted)
    outputs = [wanted, _called(copy, inputs[1])]
    trunk = _without(copy, name)
    for x_each, output in zip(inputs, outputs, strict=True):
        _verify(trunk, x_each, weight, bias, output, name)
    for part, training in modes.items():
        part.training = training
    return Whole(trunk, last.in_features, weight, bias, name)


@torch.no_grad()
def _called(net: nn.Module, x: Tensor) -> Tensor:
    try:
        found: Any = net(x.clone())
    except Exception as error:  # Code of users may raise anything.
        raise InputError(
            f"the network does not take an example of shape {tuple(x.shape)} and dtype {x.dtype}: "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}; give one batch of its inputs."
        ) from error
    if not isinstance(found, Tensor) or found.dim() != 2:
        what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise VclError(f"the network returns {what}; give one that returns logits [N, classes] for N examples.")
    return found


def _last_linear(net: nn.Module, x: Tensor) -> tuple[str, Tensor, Tensor]:
    """The name of the last linear layer that a call of the network uses, that layer's output, and the network's."""
    called: list[nn.Module] = []
    made: list[Tensor] = []

    def note(part: nn.Module, x: Any, output: Tensor) -> None:
        called.append(part)
        made.append(output.clone())

    linear = [(name, part) for name, part in net.named_modules() if isinstance(part, nn.Linear)]
    hooks = [part.register_forward_hook(note) for _, part in linear]
    try:
        output = _called(net, x)
    finally:
        for hook in hooks:
            hook.remove()
    if not called:
        raise VclError("the network calls no nn.Linear, so it has no last layer that could be a head; end it with one.")
    name = next(name for name, part in linear if part is called[-1])
    if called.count(called[-1]) > 1:
        raise VclError(
            f"the last layer {name!r} is called {called.count(called[-1])} times for one batch, so it is no head of "
            "its own; end the network with a layer that it calls once."
        )
    return name, made[-1], output


def _refuse_end(name: str, logits: Tensor, output: Tensor) -> None:
    """Raise VclError if the network applies a known function to the outputs of its last layer."""
    for after, function in ENDS.items() if logits.dim() == 2 else ():
        if _same(function(logits), output) and not _same(logits, output):
            raise VclError(
                f"the network applies {after} after its last layer {name!r}, which the likelihood does too; return "
                "the logits instead."
            )


def _refuse_tied(net: nn.Module, last: nn.Linear, name: str) -> None:
    mine = {id(value) for value in last.parameters()}
    named = [other for other, value in net.named_parameters(remove_duplicate=False) if id(value) in mine]
    others = [other for other in named if other.rpartition(".")[0] != name]
    if others:
        raise VclError(
            f"the weight of the last layer {name!r} is also {others[0]!r}, so it cannot have a posterior of its own; "
            "untie them, or end the network with another nn.Linear."
        )


def _without(net: nn.Module, name: str) -> nn.Module:
    """The network with an identity in the place of a layer; a network that is that layer alone flattens."""
    if not name:
        return nn.Flatten()
    above, _, own = name.rpartition(".")
    setattr(net.get_submodule(above), own, nn.Identity())
    return net


def _verify(trunk: nn.Module, x: Tensor, weight: Tensor, bias: Tensor, wanted: Tensor, name: str) -> None:
    """Raise VclError unless F.linear(trunk(x), weight, bias) is the network's output."""
    try:
        with torch.no_grad():
            features: Any = trunk(x.clone())
            logits = F.linear(features, weight, bias)
    except Exception as error:  # The code may need the layer itself.
        raise VclError(
            f"the network does not work without its last layer {name!r} ({str(error).splitlines()[0]}); let its code "
            "only call that layer."
        ) from error
    if features.dim() == 2 and logits.shape == wanted.shape and _same(logits, wanted):
        return
    raise VclError(
        f"the output of the network is not that of its last nn.Linear {name!r} alone, so the layer cannot be its head; "
        "return that layer's output, the logits, without further operations."
    )


def _same(one: Tensor, other: Tensor) -> bool:
    scale = float(other.abs().max()) if other.numel() else 0.0
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5 * max(scale, 1e-6))


def _as(x: Tensor, net: nn.Module) -> Tensor:
    """Inputs as the network takes them, on its device and in its dtype."""
    like = next((value for value in net.parameters() if value.is_floating_point()), None)
    x = own_input(x)
    if like is None:
        return x
    return x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)


def _random(x: Tensor) -> Tensor:
    """Inputs of the same kind; of whole numbers such as tokens, those of the example in another order."""
    g = torch.Generator().manual_seed(0)
    shape = (ROWS, *x.shape[1:])
    if x.dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=g, dtype=torch.uint8)
    if x.is_floating_point():
        return torch.randn(shape, generator=g, dtype=torch.float64).to(x.dtype)
    flat = x.reshape(-1).cpu()
    return flat[torch.randint(0, len(flat), shape, generator=g)]
