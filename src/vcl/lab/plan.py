"""A run, described before it starts: every name resolved, every setting checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from vcl.errors import VclError, unknown
from vcl.lab.evaluation import Run
from vcl.lab.experiments.experiment import PARTS, PRESETS, Experiment, Preset, Setup
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.registry import datasets, experiment, method
from vcl.lab.registry import methods as registered
from vcl.lab.results import label
from vcl.lab.settings import (
    SHOWN,
    Setting,
    assign,
    check,
    check_value,
    settings_in,
    split_change,
    values_of,
    with_values,
)
from vcl.lab.streams import Arrays, Stream
from vcl.ops.rng import Rng
from vcl.recursion import Method

Grid = Mapping[str, tuple[float, ...]]
"""The lambdas to try, by method."""


class Value(NamedTuple):
    """A setting with its value and where that comes from."""

    part: str
    setting: Setting
    value: Any
    origin: str


@dataclass(frozen=True)
class Plan:
    """Together with the data it determines every number of a run (on one kind of machine)."""

    experiment: Experiment
    methods: tuple[MethodEntry, ...]
    preset: Preset
    setup: Setup
    """Of the preset, with the user's changes to the parts that methods share."""
    device: torch.device
    changes: tuple[str, ...] = ()
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The user's changes to methods' own settings, by method."""
    grid: Grid = field(default_factory=dict)
    dataset: str | None = None
    validation: float | None = None
    """The share of the training data that stands in for the test data, if any."""
    seeds_given: bool = False
    """Whether the user gave their number by --seeds."""

    @property
    def name(self) -> str:
        """The experiment's, with the dataset where it is not the experiment's own."""
        other = self.dataset is not None and self.dataset != self.experiment.dataset
        return f"{self.experiment.name}-on-{self.dataset}" if other else self.experiment.name

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds 0 to n - 1, all run stacked."""
        return tuple(range(self.setup.run.seeds))

    def stream(self, data: Arrays | None, rng: Rng) -> Stream:
        """The stream of tasks."""
        return self.experiment.stream(data, self.setup.stream, rng)

    def model(self, shape: tuple[int, ...]) -> Any:
        """The model for inputs of this shape."""
        return self.experiment.model(self.setup.network, shape)

    def settings_of(self, entry: MethodEntry) -> Any:
        """The method's settings: its defaults, then the preset's values, then those of the user."""
        return with_values(entry.settings(), {name: value for name, (value, _) in self._values(entry).items()})

    def listed(self) -> list[Value]:
        """Every setting of the plan, part by part."""
        found = []
        given = {(part, name) for part, name, _ in map(split_change, self.changes)}
        given |= {("run", "seeds")} if self.seeds_given else set()
        for part in PARTS:
            before = values_of(getattr(self.experiment.presets[self.preset], part))
            kind = settings_in(type(getattr(self.setup, part)))
            for name, value in values_of(getattr(self.setup, part)).items():
                changed = ("", name) in given or (part, name) in given or value != before[name]
                default = "preset " + self.preset if value != kind[name].default else "default"
                found.append(Value(part, kind[name], value, "given" if changed else default))
        for entry in self.methods:
            known, values = settings_in(entry.settings), self._values(entry)
            for name, value in values_of(self.settings_of(entry)).items():
                found.append(Value(entry.name, known[name], value, values[name][1] if name in values else "default"))
        return found

    def runs(self, entry: MethodEntry) -> tuple[Run, ...]:
        """Every lambda with every seed, as one stack."""
        lams = self.grid.get(entry.name)
        if lams is None:
            lam = values_of(self.settings_of(entry)).get("lam")
            return tuple(Run(entry.name, seed, lam) for seed in self.seeds)
        return tuple(Run(label(entry.name, lam), seed, lam) for lam in lams for seed in self.seeds)

    def build(self, entry: MethodEntry, runs: Sequence[Run] | None = None) -> Method[Any]:
        """The method with the lambda of each run; all runs of the plan if left out."""
        settings = self.settings_of(entry)
        lams = tuple(run.lam for run in (self.runs(entry) if runs is None else runs))
        if entry.takes_lambda and len(set(lams)) > 1:
            settings = with_values(settings, {"lam": lams})
        elif entry.takes_lambda:
            settings = with_values(settings, {"lam": lams[0]})
        return entry.build(settings)

    def _values(self, entry: MethodEntry) -> dict[str, tuple[Any, str]]:
        """The values that are not the method's defaults, each with its origin; later ones win."""
        known, preset = settings_in(entry.settings), f"preset {self.preset}"
        sources = (
            (self.setup.shared, preset),
            (entry.values, "method"),
            (self.setup.own.get(entry.name, {}), f"{preset}, for {entry.name}"),
            (self.own.get(entry.name, {}), "given"),
        )
        return {name: (value, origin) for source, origin in sources for name, value in source.items() if name in known}


def make_plan(
    name: str,
    methods: str,
    preset: str,
    seeds: int | None,
    device: str,
    changes: Sequence[str] = (),
    grid: str | None = None,
    dataset: str | None = None,
) -> Plan:
    """The plan that the command line asks for, or one clear sentence on what is wrong with it."""
    chosen = experiment(name)
    names = [part.strip() for part in methods.split(",") if part.strip()]
    if not names or len(set(names)) != len(names):
        raise VclError(f"--method {methods!r} must name at least one method, each once, with commas between.")
    entries = tuple(method(part, chosen.models) for part in names)
    known = next((known for known in PRESETS if known == preset), None)
    if known is None:
        raise unknown("preset", preset, PRESETS)
    setup = chosen.presets[known]
    if seeds is not None:
        if seeds < 1:
            raise VclError(f"--seeds is {seeds}; give at least 1.")
        if any(split_change(change)[1] == "seeds" for change in changes):
            raise VclError("both --seeds and --set seeds=… were given; give one of them.")
        setup = setup.but(setup.own, seeds=seeds)
    lams = {} if grid is None else make_grid(grid, entries, chosen)
    if lams and any(split_change(change)[1] == "lam" for change in changes):
        raise VclError("both --grid lambda=… and --set lambda=… were given; give one of them.")
    shared = {part: type(getattr(setup, part)) for part in PARTS}
    others = {name: entry.settings for name, entry in registered(chosen.models).items()}
    values = assign(changes, shared, {entry.name: entry.settings for entry in entries}, others)
    setup = replace(setup, **{part: with_values(getattr(setup, part), values[part]) for part in PARTS})
    own = {entry.name: values[entry.name] for entry in entries}
    plan = Plan(
        chosen, entries, known, setup, choose_device(device), tuple(changes), own, lams, _dataset(chosen, dataset),
        seeds_given=seeds is not None,
    )  # fmt: skip
    for part in PARTS:
        check(getattr(setup, part))
    for entry in entries:
        check(plan.settings_of(entry))
    return plan


def _dataset(chosen: Experiment, given: str | None) -> str | None:
    """The dataset to run on, checked."""
    if chosen.makes_data:
        if given is not None:
            raise VclError(f"{chosen.name} makes its own data; leave out --dataset.")
        return None
    if given is not None and given not in datasets():
        raise unknown("dataset", given, list(datasets()))
    if given is None and chosen.dataset is None:
        raise VclError(f"{chosen.name} takes any dataset; give one with --dataset: {', '.join(datasets())}.")
    return given or chosen.dataset


def make_grid(text: str, entries: Sequence[MethodEntry], chosen: Experiment) -> Grid:
    """``lambda=1,10,100``, or ``lambda=paper`` for what the paper tried, or what a method has of its own."""
    key, equals, values = text.partition("=")
    if key != "lambda" or not equals:
        raise VclError(
            f"--grid {text!r} is not of the form lambda=1,10,100 or lambda=paper; only lambda can be a grid."
        )
    takers = [entry for entry in entries if entry.takes_lambda]
    if not takers:
        known = [each.name for each in registered(chosen.models).values() if each.takes_lambda]
        raise VclError(
            f"none of {', '.join(e.name for e in entries)} takes a lambda, so there is no grid to try; those that do: "
            f"{', '.join(known)}."
        )
    if values == "paper":
        grids = {entry.name: chosen.grids.get(entry.name, entry.grid) for entry in takers}
        missing = [name for name, lams in grids.items() if not lams]
        if missing:
            raise VclError(
                f"the paper has no grid of lambda for {missing[0]} on {chosen.name}; give one, as in "
                "--grid lambda=1,10,100."
            )
        return grids
    lams = tuple(_number(part, settings_in(takers[0].settings)["lam"]) for part in values.split(","))
    if len(set(lams)) != len(lams):
        raise VclError(f"--grid {text!r} names a lambda twice; give each once.")
    return {entry.name: lams for entry in takers}


def _number(text: str, setting: Setting) -> float:
    try:
        value = float(text)
    except ValueError:
        raise VclError(f"--grid lambda takes numbers with commas between, not {text!r}.") from None
    check_value(setting, value, f"lambda is {text} in --grid")
    return value


def choose_device(name: str) -> torch.device:
    """``auto`` takes a GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise VclError("--device cuda was asked for but torch sees no CUDA device here; give --device cpu or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def unused_parts(plan: Plan, entry: MethodEntry) -> set[str]:
    """The settings of shared parts, by name, that this method's numbers do not depend on."""
    unused = set(entry.ignores) if set(entry.ignores) & set(values_of(plan.setup.network)) else set()
    if not entry.draws:
        unused |= set(plan.experiment.evaluation.unused_at_mean)
    return unused | ({"matmul"} if plan.device.type == "cpu" else set())


def uses(plan: Plan, entry: MethodEntry, part: str, name: str) -> bool:
    """Whether a method's numbers depend on a setting (of a part, or of any part where ``part`` is empty)."""
    own = part in ("", entry.name) and name in settings_in(entry.settings)
    shared = any(name in values_of(getattr(plan.setup, each)) for each in PARTS if part in ("", each))
    return own or (shared and name not in unused_parts(plan, entry))


def check_used(plans: Sequence[Plan]) -> None:
    """Raise one clear sentence if the user changed a setting that no method of these plans uses."""
    for part, name, _ in dict.fromkeys(split_change(change) for plan in plans for change in plan.changes):
        pairs = [(plan, entry) for plan in plans for entry in plan.methods]
        if not any(uses(plan, entry, part, name) for plan, entry in pairs):
            methods = dict.fromkeys(entry.name for _, entry in pairs)
            known = {each.setting.shown for plan in plans for each in plan.listed() if _used(plan, each)}
            raise VclError(
                f"setting {SHOWN.get(name, name)} changes nothing for {', '.join(methods)} on {plans[0].device.type}; "
                f"leave it out. What can be set here: {', '.join(sorted(known))}."
            )


def unused(plan: Plan) -> list[str]:
    """One sentence for each setting that the user changed and that some methods of the plan do not use."""
    found = []
    for part, name, _ in dict.fromkeys(split_change(change) for change in plan.changes):
        using = [entry.name for entry in plan.methods if uses(plan, entry, part, name)]
        others = [entry.name for entry in plan.methods if entry.name not in using]
        if using and others and part not in using:
            found.append(
                f"note: setting {SHOWN.get(name, name)} changes nothing for {', '.join(others)}; it is for "
                f"{', '.join(using)}."
            )
    return found


def _used(plan: Plan, value: Value) -> bool:
    return any(uses(plan, entry, value.part, value.setting.name) for entry in plan.methods)
