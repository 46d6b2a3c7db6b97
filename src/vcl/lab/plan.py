"""A run, described before it starts: every name resolved, every setting checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from vcl.errors import VclError, unknown
from vcl.lab.experiments import Experiment, experiment
from vcl.lab.kind import MethodEntry, Run
from vcl.lab.methods import method, with_lambda
from vcl.lab.results import label
from vcl.lab.settings import ALIASES, PRESETS, Preset, Settings, check_range, override
from vcl.recursion import Method

Grid = Mapping[str, tuple[float, ...]]
"""The lambdas to try, by method."""


@dataclass(frozen=True)
class Plan:
    """Together with the data it determines every number of a run (on one kind of machine)."""

    experiment: Experiment
    methods: tuple[MethodEntry, ...]
    preset: Preset
    settings: Settings
    device: torch.device
    changes: tuple[str, ...] = ()
    grid: Grid = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds 0 to n - 1, all run stacked."""
        return tuple(range(self.settings.seeds))

    def settings_of(self, entry: MethodEntry) -> Settings:
        """The settings with what this method does differently, here and everywhere; the user's own changes win."""
        overrides = self.experiment.overrides.get(self.preset, {}).get(entry.name, {})
        return override(replace(self.settings, **{**entry.settings, **overrides}), self.changes)

    def overrides(self, entry: MethodEntry) -> dict[str, Any]:
        """The settings of a method that differ from the common ones."""
        common = asdict(self.settings)
        return {key: value for key, value in asdict(self.settings_of(entry)).items() if value != common[key]}

    def runs(self, entry: MethodEntry) -> tuple[Run, ...]:
        """Every lambda with every seed, as one stack."""
        lams = self.grid.get(entry.name)
        if lams is None:
            return tuple(Run(entry.name, seed, None) for seed in self.seeds)
        return tuple(Run(label(entry.name, lam), seed, lam) for lam in lams for seed in self.seeds)

    def build(self, entry: MethodEntry, settings: Any = None) -> Method[Any]:
        """The method (of other ``settings`` than the plan's, if given), with a lambda for each run of a grid."""
        made = entry.build(self.settings_of(entry) if settings is None else settings)
        lams = self.grid.get(entry.name)
        return made if lams is None else with_lambda(made, tuple(lam for lam in lams for _ in self.seeds))

    def paper(self) -> dict[str, float]:
        """The paper's numbers by label: a lambda of a grid has one if it is the paper's own choice."""
        numbers = dict(self.experiment.paper)
        for entry in self.methods:
            best = self.experiment.overrides.get(self.preset, {}).get(entry.name, {}).get("lam")
            if entry.name in numbers and best in self.grid.get(entry.name, ()):
                numbers[label(entry.name, best)] = numbers[entry.name]
        return numbers


def make_plan(
    name: str,
    methods: str,
    preset: str,
    seeds: int | None,
    device: str,
    changes: Sequence[str] = (),
    grid: str | None = None,
) -> Plan:
    """The plan that the command line asks for, or one clear sentence on what is wrong with it."""
    chosen = experiment(name)
    names = [part.strip() for part in methods.split(",") if part.strip()]
    if not names or len(set(names)) != len(names):
        raise VclError(f"--method {methods!r} must name at least one method, each once, with commas between.")
    entries = tuple(method(part, chosen.kind.methods) for part in names)
    known = next((known for known in PRESETS if known == preset), None)
    if known is None:
        raise unknown("preset", preset, PRESETS)
    settings = chosen.presets[known]
    if seeds is not None:
        if seeds < 1:
            raise VclError(f"--seeds is {seeds}; give at least 1.")
        if any(change.startswith("seeds=") for change in changes):
            raise VclError("both --seeds and --set seeds=… were given; give one of them.")
        settings = replace(settings, seeds=seeds)
    lams = {} if grid is None else make_grid(grid, entries, chosen)
    if lams and any(ALIASES.get(key := change.partition("=")[0], key) == "lam" for change in changes):
        raise VclError("both --grid lambda=… and --set lambda=… were given; give one of them.")
    return Plan(chosen, entries, known, override(settings, changes), choose_device(device), tuple(changes), lams)


def make_grid(text: str, entries: Sequence[MethodEntry], chosen: Experiment) -> Grid:
    """``lambda=1,10,100``, or ``lambda=paper`` for what the paper tried; for the methods that take a lambda."""
    key, equals, values = text.partition("=")
    if key != "lambda" or not equals:
        raise VclError(
            f"--grid {text!r} is not of the form lambda=1,10,100 or lambda=paper; only lambda can be a grid."
        )
    takers = [entry for entry in entries if entry.takes_lambda]
    if not takers:
        raise VclError(
            f"none of {', '.join(e.name for e in entries)} takes a lambda, so there is no grid to try; those that do: "
            f"{', '.join(e.name for e in chosen.kind.methods if e.takes_lambda)}."
        )
    if values == "paper":
        missing = [entry.name for entry in takers if entry.name not in chosen.grids]
        if missing:
            raise VclError(
                f"the paper has no grid of lambda for {missing[0]} on {chosen.name}; give one, as in "
                "--grid lambda=1,10,100."
            )
        return {entry.name: chosen.grids[entry.name] for entry in takers}
    lams = tuple(_number(part) for part in values.split(","))
    if len(set(lams)) != len(lams):
        raise VclError(f"--grid {text!r} names a lambda twice; give each once.")
    return {entry.name: lams for entry in takers}


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise VclError(f"--grid lambda takes numbers with commas between, not {text!r}.") from None
    check_range("lam", value, f"lambda is {text} in --grid; give numbers")
    return value


def choose_device(name: str) -> torch.device:
    """``auto`` takes a GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise VclError("--device cuda was asked for but torch sees no CUDA device here; give --device cpu or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
