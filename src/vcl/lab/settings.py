"""The settings of a discriminative experiment, and how the command line changes them."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from vcl.errors import VclError, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Preset = Literal["paper", "quick", "smoke"]
PRESETS: tuple[Preset, ...] = ("paper", "quick", "smoke")


@dataclass(frozen=True)
class Settings:
    """Everything that a run's numbers depend on, beside the experiment, the method, the seeds and the device."""

    tasks: int
    hidden: tuple[int, ...]
    epochs: int
    batch: int | None
    """Examples a step; none takes the whole task."""
    coreset: int
    """Points kept of each task."""
    coreset_epochs: int
    coreset_batch: int | None
    heads: Literal["multi", "single"] = "multi"
    """A head for each task, or one for all."""
    order: tuple[int, ...] = ()
    """The order in which tasks come, by their numbers from 0; none is the given one."""
    predictive: Literal["joint", "per-head"] = "joint"
    lr: float = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    average: float = 0.0
    """The last share of a fit's steps over which its iterates are averaged."""
    draws: int = 10
    estimator: Literal["local", "weights"] = "weights"
    start: Literal["continue", "restart"] = "continue"
    coreset_start: Literal["continue", "restart"] = "continue"
    """Where the fit of a coreset starts; its steps are few, so few methods can afford to begin anew."""
    init_var: float = exp(-6)
    init_sd: float = 0.1
    prior_var: float = 1.0
    lam: float = 1.0
    """lambda: how much the past weighs, for methods that need to be told. `--set lambda=…` sets it."""
    fisher: Literal["empirical", "true", "hessian"] = "empirical"
    fisher_samples: int | None = None
    """Examples that the curvature is taken from; none takes all."""
    anchor: Literal["own", "previous"] = "own"
    damping: float = 1e-3
    filter_batch: int = 1
    """Examples that moment matching takes in at a time."""
    particles: int = 1000
    predict_draws: int = 100
    predict_estimator: Literal["local", "weights"] = "weights"
    train_limit: int | None = None
    """At most this many training examples a task, as equally many of each class as there are; none takes all."""
    test_limit: int | None = None
    matmul: Literal["float32", "tf32"] = "float32"
    """How a GPU rounds the factors of matrix products: not at all, or to TF32 (10 bits), which is faster."""
    seeds: int = 10


AT_LEAST_ONE = (
    "tasks",
    "epochs",
    "coreset_epochs",
    "draws",
    "predict_draws",
    "seeds",
    "coreset",
    "filter_batch",
    "latent",
    "features",
    "fisher_draws",
    "ll_draws",
    "images",
    "classifier_hidden",
    "classifier_epochs",
)
ABOVE_ZERO = (
    "batch",
    "coreset_batch",
    "train_limit",
    "test_limit",
    "lr",
    "init_var",
    "init_sd",
    "prior_var",
    "damping",
    "fisher_samples",
)
RANGES: dict[str, tuple[float, float]] = {
    "init_var": (1e-12, 1e6),
    "prior_var": (1e-12, 1e6),
    "init_sd": (1e-6, 1e3),
    "damping": (1e-12, 1e6),
    "lam": (0, 1e12),
}
"""Least and largest: beyond them numbers of single precision overflow or vanish, whatever the learning rate is."""

MOST = 10**9
"""The largest count of anything; what fits into memory is looked at later (:mod:`vcl.lab.memory`)."""

MOST_OF = {
    "tasks": 10**4,
    "epochs": 10**6,
    "coreset_epochs": 10**6,
    "classifier_epochs": 10**6,
    "predict_draws": 10**6,
    "ll_draws": 10**6,
    "ll_drawn": 10**6,
}
"""The largest count of what takes time and not memory."""

ALIASES = {"lambda": "lam"}
"""Names on the command line that Python keeps for itself."""


S = TypeVar("S", bound="DataclassInstance")


def override(settings: S, pairs: Sequence[str]) -> S:
    """``settings`` (of any kind of experiment) with ``key=value`` pairs applied and checked."""
    kinds = typing.get_type_hints(type(settings))
    changes: dict[str, Any] = {}
    for pair in pairs:
        given, equals, text = pair.partition("=")
        key = ALIASES.get(given, given)
        if not equals:
            raise VclError(f"--set {pair!r} is not of the form key=value, such as --set epochs=20.")
        if key not in kinds:
            raise unknown("setting", key, [*ALIASES, *kinds])
        changes[key] = _parse(given, text, kinds[key])
    changed = replace(settings, **changes)
    check(changed)
    return changed


def check(settings: DataclassInstance) -> None:
    """Raise one clear sentence unless every value can be run. The same name has the same limits in every kind."""
    values = vars(settings)
    for name in AT_LEAST_ONE:
        if values.get(name, 1) < 1:
            raise VclError(f"{name} is {values[name]}; give at least 1.")
    for name in ABOVE_ZERO:
        if values.get(name) is not None and not 0 < values[name] < inf:
            raise VclError(f"{name} is {values[name]}; give a number above 0.")
    for name, value in values.items():
        most = MOST_OF.get(name, MOST)
        if max(value, default=0) > most if isinstance(value, tuple) else isinstance(value, int) and value > most:
            raise VclError(f"{name} is {_listed(value)}; give at most {most:,}.")
    if not 0 <= values["average"] <= 1:
        raise VclError(f"average is {values['average']}; give a share of the steps, from 0 (none) to 1 (all).")
    if values.get("particles", 2) < 2:
        raise VclError(f"particles is {values['particles']}; give at least 2.")
    for name in RANGES:
        if name in values:
            check_range(name, values[name])
    tasks = range(values["tasks"])
    if values["order"] and (len(values["order"]) != len(tasks) or sorted(values["order"]) != list(tasks)):
        wanted = ",".join(map(str, tasks)) if len(tasks) <= 20 else f"0 to {len(tasks) - 1}"
        raise VclError(f"order is {values['order']}; name each of {wanted} once, in the order that you want.")
    layers = values["hidden"] if isinstance(values["hidden"], tuple) else (values["hidden"],)
    if not layers or min(layers) < 1:
        such = "100,100" if isinstance(values["hidden"], tuple) else "100"
        raise VclError(f"hidden is {values['hidden']}; give at least one layer of at least 1 unit, such as {such}.")
    if values.get("ll_drawn", 0) < 0:
        raise VclError(f"ll_drawn is {values['ll_drawn']}; give a number of draws, or 0 for none.")


def check_range(name: str, value: float, told: str = "") -> None:
    """Raise one clear sentence, which may begin otherwise, unless the value of this setting is within its range."""
    least, most = RANGES[name]
    if not least <= value <= most:
        shown = next((alias for alias, own in ALIASES.items() if own == name), name)
        told = told or f"{shown} is {value}; give a number"
        raise VclError(f"{told} from {least:g}{' (which forgets)' if name == 'lam' else ''} to {most:g}.")


def _listed(value: Any) -> str:
    """A number or several, as the command line takes them."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _parse(key: str, text: str, kind: Any) -> Any:
    options = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        if text not in options:
            raise unknown(key, text, options)
        return text
    if isinstance(kind, types.UnionType):
        if text == "none":
            return None
        kind = options[0]
    try:
        if typing.get_origin(kind) is tuple:
            return tuple(int(part) for part in text.split(","))
        return kind(text)
    except ValueError:
        what = {int: "a whole number", float: "a number"}.get(kind, "whole numbers with commas between")
        raise VclError(f"setting {key} takes {what}, not {text!r}.") from None
