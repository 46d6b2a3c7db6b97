"""A user's network as vcl needs it: a frozen part computed once, and a Network with a posterior over the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vcl.errors import InputError, VclError, unknown
from vcl.learner.features import features_within
from vcl.learner.given import require_positive, require_whole
from vcl.models.adapters import with_adapters
from vcl.models.fixed import digest
from vcl.models.likelihoods import Likelihood
from vcl.models.network import Network
from vcl.models.prefix import Prefix, split_prefix
from vcl.models.selection import Posterior, select_posterior
from vcl.models.split_head import split_head
from vcl.models.starts import Values
from vcl.ops.rows import own_input

Ending = Literal["new", "own"]
ENDINGS: tuple[Ending, ...] = ("new", "own")

PriorMean = Literal["zero", "net"]
PRIOR_MEANS: tuple[PriorMean, ...] = ("zero", "net")


FEATURE_BYTES = 2**30


@dataclass(frozen=True)
class Shape:
    """How a network is used. ``head="new"`` takes it as a trunk, ``"own"`` takes its last layer as the shared head."""

    head: Ending = "new"
    posterior: Posterior = "all"
    adapters: int | None = None
    prior_var: float = 1.0
    prior_mean: PriorMean = "zero"
    feature_bytes: int = FEATURE_BYTES
    """The most bytes of memory that features of the frozen part take; beyond it they are kept in a temporary file."""

    def __post_init__(self) -> None:
        if isinstance(self.posterior, list):
            object.__setattr__(self, "posterior", tuple(self.posterior))

    @property
    def keeps(self) -> bool:
        """Whether the network's own values stay, in a frozen part or as the prior's mean."""
        return self.posterior != "all" or self.adapters is not None or self.prior_mean == "net"

    def check(self) -> None:
        """Raise VclError unless every value is valid."""
        if self.head not in ENDINGS:
            raise unknown("head", str(self.head), ENDINGS)
        if self.prior_mean not in PRIOR_MEANS:
            raise unknown("prior_mean", str(self.prior_mean), PRIOR_MEANS)
        if self.adapters is not None:
            require_whole("adapters", self.adapters, 1, ": their rank, or None")
        patterns = [self.posterior] if isinstance(self.posterior, str) else self.posterior
        if not isinstance(patterns, Sequence) or not patterns or not all(isinstance(p, str) and p for p in patterns):
            raise VclError(
                f"posterior is {self.posterior!r}; give 'all', 'head', 'trainable', or names and patterns of "
                "parameters, as in ['layer4', '*.bias']."
            )
        if self.adapters is not None and self.posterior != "all":
            raise VclError(
                "adapters have the posterior, and everything else is frozen, so posterior cannot be given too; leave "
                "out one of them."
            )
        require_positive("prior_var", self.prior_var)
        require_whole("feature_bytes", self.feature_bytes, 0)


class Backbone(NamedTuple):
    """The parts of a network, without a likelihood."""

    prefix: Prefix | None
    trunk: nn.Module
    frozen: tuple[str, ...]
    features: int
    own_head: tuple[Tensor, Tensor] | None
    """Weight and bias of the network's own last layer, where that is the head."""
    shape: Shape
    note: str
    held: tuple[str, ...]
    """The user's names of all frozen parameters, in their order."""

    def model(self, likelihood: Likelihood, prior: Mapping[str, Tensor] | None = None) -> Network:
        """The model, whose fits start at the module's values. ``prior`` has the prior's mean, if it was saved."""
        # A saved prior also has the head's first values.
        head_start = {} if self.own_head is None or prior is not None else {HEAD: self.own_head}
        mean: Values | None = "module" if self.shape.prior_mean == "net" else None
        return Network(
            self.trunk, self.features, likelihood, self.shape.prior_var, frozen=self.frozen, start="module",
            prior_mean=mean if prior is None else prior, head_start=head_start,
        )  # fmt: skip

    def prior_values(self, model: Network) -> Mapping[str, Tensor]:
        """The mean of the prior, where it is not 0."""
        return model.prior_values

    def digests(self) -> dict[str, str]:
        """A checksum of each value that has no posterior, by its name in the user's network."""
        values = dict(self.trunk.named_parameters())
        found = {name: digest({name: values[name]}) for name in self.frozen}
        if self.prefix is None:
            return found
        # The prefix has the first of the frozen parameters, in their order, under names of its own.
        names = dict(zip((name for name, _ in self.prefix.fixed.module.named_parameters()), self.held, strict=False))
        held = {names.get(name, f"buffer {name}"): value for name, value in self.prefix.fixed.values.items()}
        return {**{name: digest({name: value}) for name, value in held.items()}, **found}

    def inputs(self, x: Tensor, like: Tensor) -> Tensor:
        """What the trunk takes: features of the frozen part, or x itself."""
        return x if self.prefix is None else features_within(self.prefix, x, like, self.shape.feature_bytes)


HEAD = "all"
"""The name of the shared head."""


def backbone(net: nn.Module, example: Tensor, shape: Shape, seed: int = 0) -> Backbone:
    """``net`` prepared for inputs like ``example`` [N, ...]; ``net`` itself is not changed."""
    shape.check()
    own, name = None, None
    if shape.head == "own":
        whole = split_head(net, example)
        trunk, own, name = whole.trunk, (whole.weight, whole.bias), whole.name
    else:
        trunk = net
    if shape.adapters is not None:
        trunk = with_adapters(trunk, shape.adapters, WITH_ALL, seed)
    posterior: Posterior = "trainable" if shape.adapters is not None else shape.posterior
    chosen = select_posterior(trunk, posterior, name or HEAD)
    _require_float32(trunk, chosen.frozen)
    width = features(trunk, example)
    trunk = trunk if width.flat else nn.Sequential(trunk, nn.Flatten())
    frozen = chosen.frozen if width.flat else tuple(f"0.{each}" for each in chosen.frozen)
    prefix, rest, left = split_prefix(trunk, frozen)
    note = str(chosen) if chosen.frozen else ""
    rest = _copy(rest) if shape.adapters is None and own is None else rest
    return Backbone(prefix, rest, left, width.values, own, shape, note, chosen.frozen)


def _require_float32(trunk: nn.Module, frozen: Sequence[str]) -> None:
    """Raise VclError unless all parameters with a posterior are float32."""
    for name, value in trunk.named_parameters():
        if name not in frozen and value.dtype != torch.float32:
            raise VclError(
                f"the parameter {name!r} of the network is {str(value.dtype).removeprefix('torch.')}, and learners "
                "compute in float32; give net.float()."
            )


def _copy(module: nn.Module) -> nn.Module:
    """A copy, which what the user does to the network later does not change."""
    try:
        return deepcopy(module)
    except RuntimeError as error:
        raise VclError(
            f"the network cannot be copied ({error}); give one whose parameters are plain nn.Parameter."
        ) from error


WITH_ALL: Sequence[str] = ("*",)
"""Adapters on every linear layer: the head that follows is not part of the trunk."""


class Width(NamedTuple):
    """The values per example that a trunk gives, and whether as one row."""

    values: int
    flat: bool


@torch.no_grad()
def features(trunk: nn.Module, example: Tensor) -> Width:
    """The width of the trunk's features for one example; buffers and modes of the trunk are as before."""
    mode = {part: part.training for part in trunk.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in trunk.buffers()]
    like = next((value for value in trunk.parameters() if value.is_floating_point()), None)
    x = own_input(example[:1])
    if like is not None:
        x = x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)
    other = x + torch.linspace(-1, 1, x.numel()).view_as(x).to(x) if x.is_floating_point() else x.flip(-1)
    both = torch.cat([x, other])
    try:
        trunk.eval()
        found, beside = trunk(x), trunk(both)
    except Exception as error:  # Code of users may raise anything.
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"the network does not take inputs of shape {tuple(example.shape[1:])} and dtype {example.dtype}: {said}"
        ) from error
    finally:
        for part, training in mode.items():
            part.training = training
        for buffer, value in buffers:
            buffer.copy_(value)
    if not isinstance(found, Tensor) or found.dim() < 2 or len(found) != 1:
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"type {type(found).__name__}"
        raise VclError(
            f"for one example the network returns a value of {what}; give one that returns features [N, F] or logits "
            "[N, classes] for N examples."
        )
    _refuse_mixing(found[0], beside)
    return Width(found[0].numel(), found.dim() == 2)


def _refuse_mixing(alone: Tensor, beside: Tensor) -> None:
    """Raise VclError unless an example has the same features up to rounding alone and beside another one."""
    if len(beside) == 2 and beside[0].shape == alone.shape:
        slack = torch.finfo(alone.dtype).eps ** 0.5 if alone.is_floating_point() else 0.0
        size = float(beside.abs().max()) if beside.numel() else 0.0
        if torch.allclose(beside[0], alone, rtol=slack, atol=slack * size, equal_nan=True):
            return
    raise VclError(
        "the network gives an example other features beside a second one than alone; take out what draws at random or "
        "computes over the batch (nn.LayerNorm normalises each example by itself)."
    )
