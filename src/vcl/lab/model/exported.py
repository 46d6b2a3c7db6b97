"""A learned network for other programs: at the posterior's mean, from numbers to logits or means.

A program takes uint8 where inputs are pixels, float64 where it scales them, and else float32.

    .pt2            a program of ``torch.export`` for any number of rows; ``torch.export.load`` reads it
    .safetensors    the weights by name

Neither has a pickle in it. A description in JSON says what the inputs and outputs are: in a .pt2 it is the extra file
``vcl.json``, in a .safetensors the metadata ``vcl``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from vcl.errors import VclError
from vcl.lab.model.described import described
from vcl.lab.model.recipe import Learner, Recipe
from vcl.learner.export import Standardized

ABOUT = "vcl.json"
"""The name of the description in a .pt2 file."""


def check_ending(out: Path) -> None:
    """Raise VclError unless a module can be written with this ending."""
    if out.suffix.lower() not in WRITERS:
        raise VclError(f"--out is {out}; give a name that ends in {' or '.join(WRITERS)}.")


def exported(folder: Path, recipe: Recipe, learner: Learner, task: str | None, ending: str) -> bytes:
    """The module as a file with this ending."""
    module = learner.export(task)
    known = described(folder, recipe)
    about = {
        "kind": recipe.kind, "task": task, "inputs": known["inputs"], "columns": known["columns"],
        "outputs": known["heads"],
    }  # fmt: skip
    return WRITERS[ending.lower()](module, about)


def _program(module: nn.Module, about: dict[str, Any]) -> bytes:
    # Two rows: torch.export takes a size of 1 for a constant.
    example = torch.zeros(2, *about["inputs"]["shape"], dtype=_dtype(module, about))
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    program.example_inputs = None  # They would be the only pickle in the file.
    memory = io.BytesIO()
    torch.export.save(program, memory, extra_files={ABOUT: json.dumps(about, ensure_ascii=False)})
    return memory.getvalue()


def _dtype(module: nn.Module, about: dict[str, Any]) -> torch.dtype:
    """Of the program's inputs. Float32 would merge large numbers that are close together before they are scaled."""
    if about["inputs"]["kind"] == "pixels":
        return torch.uint8
    return torch.float64 if any(isinstance(step, Standardized) for step in module.children()) else torch.float32


def _weights(module: nn.Module, about: dict[str, Any]) -> bytes:
    values = {name: value.contiguous() for name, value in module.state_dict().items()}
    return save(values, {"vcl": json.dumps(about, ensure_ascii=False)})


WRITERS: Mapping[str, Callable[[nn.Module, dict[str, Any]], bytes]] = {".pt2": _program, ".safetensors": _weights}
