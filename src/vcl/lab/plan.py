"""A run, described before it starts: every name resolved, every setting checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from vcl.errors import VclError, unknown
from vcl.lab.experiments import Experiment, experiment
from vcl.lab.methods import MethodEntry, method
from vcl.lab.settings import PRESETS, Settings, override


@dataclass(frozen=True)
class Plan:
    """Together with the data it determines every number of a run (on one kind of machine)."""

    experiment: Experiment
    methods: tuple[MethodEntry, ...]
    preset: str
    settings: Settings
    device: torch.device

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds 0 to n - 1, all run stacked."""
        return tuple(range(self.settings.seeds))


def make_plan(
    name: str, methods: str, preset: str, seeds: int | None, device: str, changes: Sequence[str] = ()
) -> Plan:
    """The plan that the command line asks for, or one clear sentence on what is wrong with it."""
    chosen = experiment(name)
    names = [part.strip() for part in methods.split(",") if part.strip()]
    if not names or len(set(names)) != len(names):
        raise VclError(f"--method {methods!r} must name at least one method, each once, with commas between.")
    entries = tuple(method(part) for part in names)
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
    return Plan(chosen, entries, known, override(settings, changes), choose_device(device))


def choose_device(name: str) -> torch.device:
    """``auto`` takes a GPU if there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise VclError("--device cuda was asked for but torch sees no CUDA device here; give --device cpu or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
