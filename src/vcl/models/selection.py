"""Which parameters of a module have a posterior, by names and patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import nn

from vcl.errors import VclError

Posterior = str | Sequence[str]
"""``"all"``, ``"head"`` (none of the module's), ``"trainable"`` (those with requires_grad), or patterns.

A pattern (as in :mod:`fnmatch`) is of parameters' names or of modules' names, which stand for all below them:
``"layer4"``, ``"*.bias"``, ``["encoder.layers.1", "norm.*"]``.
"""

MOST = 24
"""The number of names that a message lists."""


class Selection(NamedTuple):
    """The parameters of a module with a posterior, and the frozen ones, by name; tied ones by their first name."""

    posterior: tuple[str, ...]
    frozen: tuple[str, ...]
    size: int
    """The number of values with a posterior."""
    frozen_size: int
    """The number of values without one."""

    def __str__(self) -> str:
        return f"{self.size:,} of {self.size + self.frozen_size:,} parameters have a posterior"


def select_posterior(module: nn.Module, posterior: Posterior, head: str | None = None) -> Selection:
    """The parameters of ``module`` that ``posterior`` chooses.

    ``head`` is the name of a layer that was taken out of the module: it always has a posterior, and patterns may name
    it.
    """
    aliases = _aliases(module)
    sizes = {name: value.numel() for name, value in module.named_parameters()}
    if posterior in ("all", "head", "trainable"):
        wanted = {name for name, value in module.named_parameters() if _by_word(str(posterior), value)}
        if posterior == "trainable" and sizes and not wanted and head is None:
            raise VclError("posterior is 'trainable', but no parameter has requires_grad; set it on some of them.")
    else:
        wanted = _matched(aliases, (posterior,) if isinstance(posterior, str) else tuple(posterior), head)
    chosen = tuple(name for name in sizes if name in wanted)
    frozen = tuple(name for name in sizes if name not in wanted)
    return Selection(chosen, frozen, sum(sizes[name] for name in chosen), sum(sizes[name] for name in frozen))


def _by_word(word: str, value: nn.Parameter) -> bool:
    return word == "all" or (word == "trainable" and value.requires_grad)


def _aliases(module: nn.Module) -> dict[str, str]:
    """The first name of the parameter of each name, which differs for tied parameters."""
    first = {id(value): name for name, value in module.named_parameters()}
    return {name: first[id(value)] for name, value in module.named_parameters(remove_duplicate=False)}


def _matched(aliases: dict[str, str], patterns: tuple[str, ...], head: str | None) -> set[str]:
    """The parameters that match, by their first names; every pattern must match one."""
    wanted: set[str] = set()
    for pattern in patterns:
        found = {first for name, first in aliases.items() if _matches(name, pattern)}
        of_head = head is not None and any(_matches(f"{head}.{part}", pattern) for part in ("weight", "bias"))
        if not found and not of_head:
            raise VclError(
                f"posterior names {pattern!r}, which matches no parameter and no module; give 'all', 'head', "
                f"'trainable', or patterns of these: {_listed(aliases, head)}."
            )
        wanted |= found
    return wanted


def _matches(name: str, pattern: str) -> bool:
    return any(fnmatchcase(part, pattern) for part in _above(name))


def _above(name: str) -> Iterator[str]:
    """A parameter's name, and those of the modules that hold it."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        yield ".".join(parts[:count])


def _listed(aliases: dict[str, str], head: str | None) -> str:
    """The parameters' names or, if there are many, those of the modules that a name begins with."""
    names = [*aliases, *([] if head is None else [f"{head}.weight", f"{head}.bias"])]
    depth = max((name.count(".") for name in names), default=0)
    while len(names) > MOST and depth > 0:
        names = list(dict.fromkeys(".".join(name.split(".")[:depth]) for name in names))
        depth -= 1
    return ", ".join(names[:MOST]) + (", ..." if len(names) > MOST else "") if names else "there are none"
