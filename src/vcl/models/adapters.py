"""Low-rank adapters: a posterior over a small correction of each linear layer, with the layer itself frozen.

    W = W_0 + s U V,   V [r, in],  U [out, r],   s = 1 / sqrt(r in)

The posterior is over U and V. Under the default prior N(0, 1) over both, an entry of s U V has mean 0 and variance
s^2 r = 1 / in. For an input whose values have mean square 1 the correction s U V x then has variance 1 in each output,
whatever the rank and the width: as much as the outputs of a layer of common initialisation. So ``prior_var=1`` allows
corrections of the size of the layer, and sqrt(prior_var) of the standard deviation scales both factors.

Start values are a draw of that prior for V and 0 for U, so the network is unchanged at the start; V has the size that
the prior expects, and only its use is learned. Without values as a start (``Network(start="module")``) U starts at
random like any other tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from math import sqrt
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from vcl.errors import VclError


@final
class LowRank(nn.Module):
    """base(x) + s up(down(x)) with the base frozen; ``down`` and ``up`` are linear layers without a bias."""

    def __init__(self, base: nn.Linear, rank: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 1 <= rank <= min(base.in_features, base.out_features):
            raise VclError(
                f"the rank is {rank}; give at least 1 and at most {min(base.in_features, base.out_features)}, the "
                "smaller side of the layer."
            )
        like = base.weight
        self.base = base.requires_grad_(False)
        self.down, self.up = (
            # Without torch's own start, which draws from its global generator.
            nn.utils.skip_init(nn.Linear, *sizes, bias=False, device=like.device, dtype=like.dtype)  # type: ignore[no-untyped-call]
            for sizes in ((base.in_features, rank), (rank, base.out_features))
        )
        self.scale = 1 / sqrt(rank * base.in_features)
        with torch.no_grad():
            self.down.weight.copy_(torch.randn(self.down.weight.shape, generator=generator))
            self.up.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """The layer's outputs with the correction."""
        base: Tensor = self.base(x)
        change: Tensor = self.up(self.down(x))
        return base + self.scale * change


class Adapters(NamedTuple):
    """The layers of a module with adapters, and those that can have none."""

    layers: tuple[str, ...]
    left_out: tuple[str, ...]
    """Attention multiplies with its projections itself instead of calling layers."""
    size: int
    """The number of values of all adapters."""


def with_adapters(net: nn.Module, rank: int, where: str | Sequence[str] | None = None, seed: int = 0) -> nn.Module:
    """A copy of ``net`` in which each chosen ``nn.Linear`` is a :class:`LowRank`; everything but adapters is frozen.

    ``where`` are patterns of layers' names; a name stands for all layers below it. By default all linear layers are
    chosen but the last of the module, its head. A last layer without an adapter stays trainable.
    :func:`adapters_in` names what was chosen. ``posterior="trainable"`` selects these parameters again.
    """
    linear = {name: part for name, part in net.named_modules() if type(part) is nn.Linear and not _inside(net, name)}
    if not linear:
        raise VclError(
            "the module has no nn.Linear, so it has no place for adapters; choose a posterior over its layers."
        )
    last = list(linear)[-1]
    chosen = _chosen(net, list(linear), last, where)
    _refuse_tied(net, chosen)
    copy = deepcopy(net).requires_grad_(False)
    if last not in chosen:
        copy.get_submodule(last).requires_grad_(True)
    generator = torch.Generator().manual_seed(seed)
    for name in chosen:
        base = copy.get_submodule(name)
        assert isinstance(base, nn.Linear)
        made = LowRank(base, rank, generator).train(base.training)
        if not name:
            return made
        above, _, own = name.rpartition(".")
        setattr(copy.get_submodule(above), own, made)
    for part in copy.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            # torch's fused form reads the weights of its layers and would pass by the adapters.
            part.activation_relu_or_gelu = 0
    return copy


def adapters_in(module: nn.Module) -> Adapters:
    """The layers of ``module`` with adapters, those that can have none, and the number of the adapters' values."""
    found = {name: part for name, part in module.named_modules() if isinstance(part, LowRank)}
    size = sum(part.down.weight.numel() + part.up.weight.numel() for part in found.values())
    return Adapters(tuple(found), _attention(module), size)


def _attention(net: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, part in net.named_modules() if isinstance(part, nn.MultiheadAttention))


def _inside(net: nn.Module, name: str) -> bool:
    """Whether a layer belongs to attention, which does not call it, or to an adapter."""
    parts = name.split(".")
    above = (".".join(parts[:count]) for count in range(len(parts)))
    return any(isinstance(net.get_submodule(each), nn.MultiheadAttention | LowRank) for each in above)


def _chosen(net: nn.Module, linear: list[str], last: str, where: str | Sequence[str] | None) -> list[str]:
    if where is None:
        chosen = [name for name in linear if name != last]
        if not chosen:
            raise VclError(
                f"the module has no nn.Linear but the last one, {last!r}, which is taken as its head; name the layers "
                "that get adapters, as in where='*'."
            )
        return chosen
    patterns = (where,) if isinstance(where, str) else tuple(where)
    hit = {pattern: [name for name in linear if _below(name, pattern)] for pattern in patterns}
    for pattern, names in hit.items():
        if not names:
            why = f" ({', '.join(_attention(net))}: attention does not call its projections)" if _attention(net) else ""
            raise VclError(
                f"where names {pattern!r}, which matches no nn.Linear{why}; give patterns of these: "
                f"{', '.join(linear)}."
            )
    return [name for name in linear if any(name in names for names in hit.values())]


def _below(name: str, pattern: str) -> bool:
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))


def _refuse_tied(net: nn.Module, chosen: list[str]) -> None:
    """A layer that stands in two places would get an adapter in one of them only."""
    places = [name for name, part in net.named_modules(remove_duplicate=False) if isinstance(part, nn.Linear)]
    for name in chosen:
        twice = [other for other in places if net.get_submodule(other) is net.get_submodule(name) and other != name]
        if twice:
            raise VclError(
                f"the layer {name!r} is also {twice[0]!r}; give the two places layers of their own, or leave it out by "
                "where=..."
            )
