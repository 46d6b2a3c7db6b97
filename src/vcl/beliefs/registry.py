"""The families of beliefs that a saved state may contain, by name."""

from __future__ import annotations

from vcl.beliefs.full import FullGaussian
from vcl.beliefs.kronecker import Kronecker
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.beliefs.quadratic import Quadratic
from vcl.beliefs.stored import Stored
from vcl.errors import VclError

FAMILIES: dict[str, type[Stored]] = {
    "mean-field": MeanField,
    "full": FullGaussian,
    "kronecker": Kronecker,
    "point": Point,
    "quadratic": Quadratic,
}
"""Files contain these names, so they never change."""


def register(name: str, family: type[Stored]) -> None:
    """Registers your own family under a name, so that its beliefs can be saved and loaded."""
    if FAMILIES.get(name, family) is not family:
        raise VclError(f"the name {name!r} is taken by {FAMILIES[name].__name__}; register under another name.")
    for known, other in FAMILIES.items():
        if other is family and known != name:
            raise VclError(f"{family.__name__} is already registered as {known!r}; a family has one name in files.")
    FAMILIES[name] = family


def name_of(belief: object) -> str:
    """The name under which the family of ``belief`` is registered."""
    for name, family in FAMILIES.items():
        if type(belief) is family:
            return name
    kind = type(belief).__name__
    raise VclError(
        f"a belief of the family {kind} cannot be saved, since {kind} is not registered; give it tensors() and "
        f'from_tensors(layout, tensors), and call vcl.beliefs.registry.register("a-name", {kind}) first.'
    )
