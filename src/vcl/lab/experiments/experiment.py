"""What an experiment is: a stream of tasks, a network, what is measured of it, and settings for three presets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from vcl.errors import VclError
from vcl.lab.called import called
from vcl.lab.classification import CLASSIFICATION
from vcl.lab.evaluation import Evaluation
from vcl.lab.methods.entry import Models
from vcl.lab.networks import classifier
from vcl.lab.settings import Count, values_of, with_values
from vcl.lab.streams import Stream
from vcl.ops.rng import Rng

Preset = Literal["paper", "quick", "smoke"]
PRESETS: tuple[Preset, ...] = ("paper", "quick", "smoke")


@dataclass(frozen=True)
class RunSettings:
    """How many runs there are, and the arithmetic."""

    seeds: Annotated[Count, "seeds 0 to N-1, all run stacked"] = 10
    matmul: Annotated[Literal["float32", "tf32"], "precision of a GPU's matrix products"] = "float32"


PARTS = ("stream", "network", "prediction", "run")
"""The parts of a setup that all methods share."""


@dataclass(frozen=True)
class Setup:
    """Settings of one preset: of the parts that all methods share, and values for the methods' own settings."""

    stream: Any
    network: Any
    prediction: Any
    run: RunSettings = field(default_factory=RunSettings)
    shared: Mapping[str, Any] = field(default_factory=dict)
    """For every method that has a setting of this name."""
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For single methods, by name."""

    def but(self, own: Mapping[str, Mapping[str, Any]] | None = None, **values: Any) -> Setup:
        """The same with other values: each goes to the part that has a setting of this name, or else to ``shared``."""
        changed: dict[str, Any] = {"own": self.own if own is None else own}
        for part in PARTS:
            known = values_of(getattr(self, part))
            mine = {name: values.pop(name) for name in list(values) if name in known}
            changed[part] = with_values(getattr(self, part), mine)
        return replace(self, **changed, shared={**self.shared, **values})


class Experiment(NamedTuple):
    """An experiment by name. ``stream`` and ``model`` take the settings that the presets have for them."""

    name: str
    about: str
    presets: Mapping[Preset, Setup]
    stream: Callable[[Any, Any, Rng], Stream]
    """From the dataset's arrays (None where it makes its own data), the stream's settings and the seeds."""
    dataset: str | None = None
    """The dataset it is run on; None where one must be given, or where it makes its own."""
    makes_data: bool = False
    model: Callable[[Any, tuple[int, ...]], Any] = classifier
    """The model, from the network's settings and the shape of an input."""
    evaluation: Evaluation = CLASSIFICATION
    models: Models = "networks"
    """Which methods it takes."""
    paper: Mapping[str, float] = MappingProxyType({})
    """Average accuracy after the last task that the paper reports, in %, by method."""
    grids: Mapping[str, tuple[float, ...]] = MappingProxyType({})
    """The lambdas that the paper tried, by method."""
    version: int = 1
    """Raise it when the same settings give other numbers: stored results of an older one are not used."""

    def made_stream(self, data: Any, settings: Any, rng: Rng) -> Stream:
        """The stream of tasks. Raises VclError if ``stream`` gives something else."""
        found = called(f"stream of the experiment {self.name}", self.stream, data, settings, rng)
        if not isinstance(found, Stream):
            raise VclError(
                f"stream of the experiment {self.name} returned {type(found).__name__}; return a vcl.lab.plugin.Stream."
            )
        return found

    def made_model(self, settings: Any, shape: tuple[int, ...]) -> Any:
        """The model. Raises VclError if ``model`` gives something else."""
        found = called(f"model of the experiment {self.name}", self.model, settings, shape)
        if not callable(getattr(found, "prior", None)):
            raise VclError(
                f"model of the experiment {self.name} returned {type(found).__name__}; return a model, such as "
                "vcl.Network(...)."
            )
        return found


def check_order(order: tuple[int, ...], tasks: int) -> None:
    """Raise one clear sentence unless ``order`` is empty or names each task once."""
    if order and (len(order) != tasks or sorted(order) != list(range(tasks))):
        wanted = ",".join(map(str, range(tasks))) if tasks <= 20 else f"0 to {tasks - 1}"
        raise VclError(f"order is {order}; name each of {wanted} once, in the order that you want.")
