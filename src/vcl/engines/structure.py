"""The structure of a model: a fork of chains, an encoder and a decoder, or unknown.

A *chain* is a list of linear layers and elementwise functions over flattened inputs. It may be an ``nn.Sequential`` or
a custom module that applies one layer after another. An ``nn.Sequential`` is read directly. A custom module is traced
(``torch.fx``) and accepted only if the traced layers, called one by one, reproduce its outputs and gradients: code can
do what a trace does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from math import sqrt
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional as F

from vcl.ops.layer_weights import Block

Chain = tuple[Block | nn.Module, ...]
"""Linear layers and elementwise functions without parameters, in order."""


class Fork(NamedTuple):
    """f(x) = head( trunk(x) ), scored by a likelihood. One batch may hold examples of several heads."""

    trunk: Chain
    heads: Mapping[str, Block]
    likelihood: Any
    """Has log_prob(output, y)."""

    @property
    def names(self) -> tuple[str, ...]:
        """All parameters."""
        return names_in((*self.trunk, *self.heads.values()))


class Latent(NamedTuple):
    """x -> encoder -> q(z | x), and z -> decoder -> pixels, scored by log p(x | z, theta)."""

    encoder: Chain
    decoder: Chain
    latent: int
    pixels: Any
    """Has log_prob(output, x)."""

    @property
    def names(self) -> tuple[str, ...]:
        """All parameters."""
        return names_in((*self.encoder, *self.decoder))


class Opaque(NamedTuple):
    """Unknown structure: any other model."""


Structure = Fork | Latent | Opaque


def blocks_of(structure: Fork | Latent, heads: Iterable[str]) -> tuple[Block, ...]:
    """The linear layers that batches of these heads go through, in order."""
    if isinstance(structure, Latent):
        steps: tuple[Block | nn.Module, ...] = (*structure.encoder, *structure.decoder)
    else:
        steps = (*structure.trunk, *(structure.heads[head] for head in heads))
    return tuple(step for step in steps if isinstance(step, Block))


def names_in(steps: Iterable[Block | nn.Module]) -> tuple[str, ...]:
    """The names of the parameters of all linear layers."""
    return tuple(name for step in steps if isinstance(step, Block) for name in step.names)


def chain_from(layers: Layers, named: Callable[[str], str]) -> Chain:
    """Layers as a chain with parameters renamed by ``named``; flattening and identities are left out."""
    steps: list[Block | nn.Module] = []
    for name, layer in layers:
        if isinstance(layer, nn.Linear):
            prefix = f"{name}." if name else ""
            steps.append(Block(named(f"{prefix}weight"), None if layer.bias is None else named(f"{prefix}bias")))
        elif type(layer) not in (nn.Flatten, nn.Identity):
            steps.append(_out_of_place(layer))
    return tuple(steps)


def _out_of_place(function: nn.Module) -> nn.Module:
    """The same function, not in place."""
    if not getattr(function, "inplace", False):
        return function
    other: Any = copy(function)
    other.inplace = False
    return other  # type: ignore[no-any-return]


Layers = list[tuple[str, nn.Module]]
"""Named layers in the order of application. A layer without parameters may have any name."""

ROW_WISE = (nn.Linear, nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus)

FUNCTIONS: Mapping[Callable[..., Tensor] | str, type[nn.Module]] = {
    **dict.fromkeys((F.relu, torch.relu, "relu"), nn.ReLU),
    **dict.fromkeys((F.tanh, torch.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid),
    F.gelu: nn.GELU,
    F.silu: nn.SiLU,
    F.softplus: nn.Softplus,
}
"""Functions and methods that count as layers when called without further arguments."""

FLAT = [
    *((flatten, "x", 1) for flatten in ("flatten", torch.flatten)),
    *((view, "x", ("size", "x", 0), -1) for view in ("view", "reshape")),
    *((view, "x", (getitem, (getattr, "x", "shape"), 0), -1) for view in ("view", "reshape")),
]
"""Traced expressions that flatten an input x."""


def flat_chain(module: nn.Module) -> Layers:
    """The layers of a module that flattens its inputs and then is a plain chain of linear layers and elementwise
    functions; empty if it is not known to be one."""
    if is_flat_chain(module):
        return chain_of(module)
    layers = _traced(module)
    return layers if _flat(layers) and _plain(module, layers[1:]) and _agree(module, layers) else []


def is_flat_chain(module: nn.Module) -> bool:
    """Whether a module is an ``nn.Sequential`` that :func:`flat_chain` accepts."""
    layers = chain_of(module)
    return _flat(layers) and _plain(module, layers[1:])


def is_chain(module: nn.Module) -> bool:
    """Whether a module is an ``nn.Sequential`` of linear layers and elementwise functions, or a single one."""
    return _plain(module, chain_of(module))


def chain_of(module: nn.Module) -> Layers:
    """The layers of an ``nn.Sequential`` of any depth."""
    every = module.named_modules(remove_duplicate=False)
    return [(name, layer) for name, layer in every if type(layer) is not nn.Sequential]


def _flat(layers: Layers) -> bool:
    first = layers[0][1] if layers else None
    return type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1)


def _plain(module: nn.Module, layers: Layers) -> bool:
    """Whether all layers have exact types, no hooks and no shared parameters."""
    plain = all(type(layer) in ROW_WISE for _, layer in layers)
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    found = [id(value) for _, layer in layers for value in layer.parameters()]
    return plain and not hooked and len(set(found)) == len(found)


def _traced(module: nn.Module) -> Layers:
    """The layers that a module's code applies to its input; empty unless it applies one after another."""
    try:
        first, *steps, last = fx.Tracer().trace(module).nodes
    except Exception:  # Tracing may raise anything; treat as not a chain.
        return []
    layers, before, done = _flattened(first, steps)
    for step in steps[done:]:
        layer = _layer(module, step)
        if layer is None or list(before.users) != [step] or step.args[:1] != (before,):
            return []
        layers.append((str(step.target) if step.op == "call_module" else step.name, layer))
        before = step
    return layers if last.args == (before,) else []


def _flattened(x: fx.Node, steps: list[fx.Node]) -> tuple[Layers, fx.Node, int]:
    """The first steps of a trace, if they only flatten the input: as a layer, their last node, and their number.

    x.view(-1, 784) counts, because a :class:`~vcl.models.Network` refuses inputs whose rows it would mix.
    """
    count = next((place for place, step in enumerate(steps) if step.op == "call_module"), len(steps))
    last = steps[count - 1] if count else x
    written = _written(last, x)
    by_pixels = len(written) == 4 and written[:3] in (("view", "x", -1), ("reshape", "x", -1))
    return ([(last.name, nn.Flatten())], last, count) if written in FLAT or by_pixels else ([], x, 0)


def _written(value: object, x: fx.Node) -> Any:
    """A traced node as an expression: a function or method with its arguments, "x" for the input."""
    if not isinstance(value, fx.Node):
        return value
    return "x" if value is x else (value.target, *(_written(each, x) for each in value.args), *value.kwargs)


def _layer(module: nn.Module, step: fx.Node) -> nn.Module | None:
    """A step of a trace as a layer; None if it is not one."""
    target: Any = step.target
    more = step.args[1:]
    if step.op == "call_module" and not more and not step.kwargs:
        return module.get_submodule(target)
    if step.op not in ("call_function", "call_method"):
        return None
    plain = not more and step.kwargs in ({}, {"inplace": False})  # a trace adds this argument itself
    return FUNCTIONS[target]() if plain and target in FUNCTIONS else None


def _agree(module: nn.Module, layers: Layers) -> bool:
    """Whether the layers reproduce the module's outputs and gradients at random parameters and inputs."""
    linear = [layer for _, layer in layers if isinstance(layer, nn.Linear)]
    if not linear:
        return False
    g = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(3, linear[0].in_features, generator=g, device="cpu")
    params = {
        name: torch.randn(value.shape, generator=g, device="cpu").div_(sqrt(linear[0].in_features))
        for name, value in module.named_parameters()
    }

    def one_by_one(params: dict[str, Tensor], x: Tensor) -> Tensor:
        for name, layer in layers:
            x = functional_call(layer, {key: params[f"{name}.{key}"] for key, _ in layer.named_parameters()}, x)
        return x

    def found(call: Callable[[dict[str, Tensor], Tensor], Tensor]) -> list[Tensor]:
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            output = call(leaves, x.clone())
            gradients = torch.autograd.grad(output.square().sum(), list(leaves.values()), materialize_grads=True)
        return [output, *gradients]

    try:
        theirs = found(lambda params, x: functional_call(module, params, x))
    except Exception:  # Code may refuse these inputs.
        return False
    pairs = zip(theirs, found(one_by_one), strict=True)
    return all(their.dtype == our.dtype and torch.allclose(their, our, rtol=1e-4) for their, our in pairs)
