"""What `vcl model` knows about a model besides the learner: its network, its target, and columns left out.

    model.json    kind, widths, options; the target and dropped columns of the first update; its own checksum
    learner.json  and its files: the learner (:mod:`vcl.learner.folder`), from the first update on

The network follows from the folder, so the folder is all that a command needs. In Python, the learner loads with the
network that `vcl model info` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vcl.errors import VclError, unknown
from vcl.lab.folder import UnwritableError, write_atomic
from vcl.lab.sums import CHECK, check_signed, signed
from vcl.learner import ContinualClassifier, ContinualRegressor
from vcl.learner.bounded import read_bounded
from vcl.models.network import mlp
from vcl.ops.out_of_memory import told_of_memory

NAME = "model.json"
FORMAT = 2
"""The first had no checksum."""
MOST_BYTES = 2**24
"""The most bytes of a description that are read."""

Learner = ContinualClassifier | ContinualRegressor

KINDS: Mapping[str, type[ContinualClassifier] | type[ContinualRegressor]] = {
    "classifier": ContinualClassifier,
    "regressor": ContinualRegressor,
}


@dataclass(frozen=True)
class Recipe:
    """A model as `vcl model new` made it."""

    kind: str
    hidden: tuple[int, ...]
    """The widths of the network's hidden layers; empty for generators, which make their own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the learner that differ from its defaults."""
    target: str | None = None
    """The target's column, from the first update of a table on."""
    drop: tuple[str, ...] = ()
    """Columns that are left out of every table."""

    @property
    def learner_class(self) -> type[ContinualClassifier] | type[ContinualRegressor]:
        """The class of the learner."""
        if self.kind not in KINDS:
            raise unknown("kind", self.kind, KINDS)
        return KINDS[self.kind]

    def network(self, inputs: int) -> nn.Module | None:
        """The network for so many inputs, with the same first values every time; None where the learner makes it."""
        if not self.hidden:
            return None
        with torch.random.fork_rng(devices=[]), told_of_memory("the making of the network", "give narrower layers"):
            torch.manual_seed(int(self.options.get("seed", 0)))
            return mlp(inputs, self.hidden)

    def values(self, inputs: int) -> int:
        """How many weights and biases that network has."""
        return sum((before + 1) * after for before, after in pairwise((inputs, *self.hidden)))

    def learner(self, inputs: int, device: str = "cpu", verbose: int = 1) -> Learner:
        """A learner that has learned nothing; VclError if an option is wrong."""
        make: Callable[..., Learner] = self.learner_class
        return make(self.network(inputs), **self.options, device=device, verbose=verbose)

    def check(self) -> None:
        """Raise VclError unless a learner can be made."""
        if self.options.get("method") == "generative" and self.hidden:
            raise VclError("method 'generative' makes its own networks, one for each class; leave out --hidden.")
        if self.options.get("method") != "generative" and (not self.hidden or any(width < 1 for width in self.hidden)):
            raise VclError(f"--hidden is {','.join(map(str, self.hidden))}; give widths from 1, such as 100,100.")
        replace(self, hidden=(1,) if self.hidden else ()).learner(1)  # a wide network takes memory

    def python(self, folder: Path, inputs: int) -> str:
        """How to load the learner in Python."""
        net = f", vcl.mlp({inputs}, {self.hidden})" if self.hidden else ""
        return f"vcl.{self.learner_class.__name__}.load({str(folder)!r}{net})"


def write(folder: Path, recipe: Recipe) -> None:
    """Write the description, atomically."""
    text = json.dumps(signed({"format": FORMAT, **asdict(recipe)}), indent=1, ensure_ascii=False)
    try:
        write_atomic(folder / NAME, text + "\n")
    except UnwritableError as error:
        raise VclError(f"cannot write to {folder} ({error.__cause__}); free space or give another folder.") from error


def read(folder: Path) -> Recipe:
    """The description of a folder; VclError if it is no model, or damaged."""
    path = folder / NAME
    if not path.is_file():
        raise VclError(
            f"{folder} is no model: it has no {NAME}; give a folder that `vcl model new` made (a learner that "
            "was saved in Python is loaded there, with its network)."
        )
    try:
        given = json.loads(read_bounded(path, MOST_BYTES))
        made = given.pop("format")
        if type(made) is int and made > FORMAT:
            raise VclError(
                f"{path} has format {made}, and this version reads {FORMAT}; install a newer version of vcl."
            )
        if made != 1 or CHECK in given:
            check_signed({CHECK: "", "format": made, **given})
            del given[CHECK]
        recipe = Recipe(**{**given, "hidden": tuple(given["hidden"]), "drop": tuple(given["drop"])})
        if not all(type(width) is int for width in recipe.hidden) or not isinstance(recipe.options, dict):
            raise ValueError("its values are of other types than were written")
        recipe.check()
    except OSError as error:
        raise VclError(f"{path} cannot be read ({error.strerror or error}).") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise VclError(f"{path} is damaged ({error}); restore it from a copy.") from error
    return recipe
