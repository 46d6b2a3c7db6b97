"""The journal of a task on disk: two generations of files, of which the older is kept until the newer is complete.

    journal-7.safetensors   the tensors of every stage
    journal-7.json          what they are, with the checksum of the other file and its own; written last

A generation names what it belongs to, so that one of other work is not taken for it. No pickle is ever read.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vcl.errors import VclError
from vcl.fitting.health import Health
from vcl.fitting.journal import Entry
from vcl.fitting.progress import Progress
from vcl.learner.bounded import read_bounded

FORMAT = 1
STEM = "journal-"
MOST_JSON = 2**28
"""The most bytes of a manifest that are read."""

FAULTS = (
    OSError, SafetensorError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError,
    MemoryError,
)  # fmt: skip
"""What reading a damaged file may raise."""


class Found(NamedTuple):
    """What a folder holds for some work."""

    entries: dict[str, Entry]
    damaged: tuple[str, ...]
    """One sentence on each generation that could not be read."""


@final
class Generations:
    """The journals of one piece of work in a folder; ``identity`` says which work."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity

    def numbers(self) -> list[int]:
        """The generations that have a manifest, the newest first."""
        names = [path.stem.removeprefix(STEM) for path in self.folder.glob(f"{STEM}*.json")]
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def read(self) -> Found:
        """The newest generation that is whole and of this work; none if there is none."""
        damaged = []
        for number in self.numbers():
            try:
                found = self._read(number)
            except VclError:
                raise
            except FAULTS as why:
                said = str(why).partition("\n")[0]
                damaged.append(f"{self._path(number, 'json')} is damaged ({said}) and is not used")
                continue
            if found is not None:
                return Found(found, tuple(damaged))
        return Found({}, tuple(damaged))

    def write(self, entries: Mapping[str, Entry]) -> None:
        """Write a new generation, and then remove all but the one before; raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = self.numbers()
        number = there[0] + 1 if there else 1
        tensors: dict[str, Tensor] = {}
        stages: list[dict[str, Any]] = []
        for name, entry in entries.items():
            place = len(stages)
            values = {f"tensor.{key}": value for key, value in entry.tensors.items()} | _told_tensors(entry.told)
            tensors |= {
                f"{place}.{key}": value.detach().to("cpu", copy=True).contiguous() for key, value in values.items()
            }
            stages.append({"name": name, "done": entry.done, "told": [_described(each) for each in entry.told]})
        data = save(tensors)
        about = {
            "format": FORMAT, "identity": self.identity, "stages": stages, "bytes": len(data),
            "sha256": sha256(data).hexdigest(),
        }  # fmt: skip
        text = json.dumps(about)
        self._replace(self._path(number, "safetensors"), data)
        manifest = json.dumps({"sha256": sha256(text.encode()).hexdigest(), "about": text})
        self._replace(self._path(number, "json"), manifest.encode())
        self._remove(keep={number, *there[:1]})

    def drop(self) -> None:
        """Remove all generations: the work is done."""
        self._remove(keep=set())

    def _remove(self, keep: set[int]) -> None:
        # Manifests go first: tensors without one count for nothing.
        for ending in ("json", "safetensors"):
            for path in self.folder.glob(f"{STEM}*.{ending}"):
                if path.stem.removeprefix(STEM) not in map(str, keep):
                    path.unlink(missing_ok=True)
        for path in self.folder.glob(f".{STEM}*.tmp"):
            path.unlink(missing_ok=True)

    def _path(self, number: int, ending: str) -> Path:
        return self.folder / f"{STEM}{number}.{ending}"

    def _read(self, number: int) -> dict[str, Entry] | None:
        """A generation; None if it is of other work, ValueError if it is damaged."""
        path = self._path(number, "json")
        outer = json.loads(read_bounded(path, MOST_JSON))
        text = outer["about"]
        if sha256(text.encode()).hexdigest() != outer["sha256"]:
            raise ValueError("its checksum is another")
        about = json.loads(text)
        if about["format"] > FORMAT:
            raise VclError(
                f"{path} has format {about['format']}, and this version of vcl reads up to {FORMAT}; install a newer "
                "version of vcl, or delete the file to begin the task again."
            )
        if about["identity"] != self.identity:
            return None
        file = self._path(number, "safetensors")
        if file.stat().st_size != about["bytes"]:
            raise ValueError(f"{file.name} has {file.stat().st_size} bytes and not {about['bytes']}")
        data = read_bounded(file)
        if sha256(data).hexdigest() != about["sha256"]:
            raise ValueError(f"the checksum of {file.name} is another")
        tensors = load(data)
        return {stage["name"]: _entry(stage, tensors, f"{place}.") for place, stage in enumerate(about["stages"])}

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a file to the disk, whole or not at all."""
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


MEASURES = ("kl", "pruned", "sd")
"""The measures of a health that have a value for each tensor of parameters."""


def _told_tensors(told: tuple[Progress, ...]) -> dict[str, Tensor]:
    """The tensors of reports: the objectives together, and each health.

    Reports that were read from a file are on the CPU, where those of the fit in progress may be on a GPU.
    """
    found = {} if not told else {"objective": torch.stack([each.objective.cpu() for each in told])}
    for place, each in enumerate(told):
        if each.health is not None:
            found[f"health.{place}.limited"] = each.health.limited
            for part in MEASURES:
                values: Mapping[str, Tensor] = getattr(each.health, part)
                found |= {f"health.{place}.{part}.{name}": value for name, value in values.items()}
    return found


def _described(progress: Progress) -> list[Any]:
    health = progress.health
    # safetensors has no order of its own, so names are listed.
    about = None
    if health is not None:
        about = [health.reach, health.growth, [list(getattr(health, part)) for part in MEASURES]]
    return [progress.what, progress.epoch, progress.epochs, progress.note, about]


def _entry(stage: Mapping[str, Any], tensors: Mapping[str, Tensor], start: str) -> Entry:
    mine = _within(tensors, start)
    told = []
    for place, (what, epoch, epochs, note, about) in enumerate(stage["told"]):
        health = None
        if about is not None:
            reach, growth, names = about
            at = f"health.{place}"
            measures = {
                part: {name: mine[f"{at}.{part}.{name}"] for name in mine_of}
                for part, mine_of in zip(MEASURES, names, strict=True)
            }
            health = Health(mine[f"{at}.limited"], **measures, reach=reach, growth=growth)
        told.append(Progress(what, epoch, epochs, mine["objective"][place], note, health))
    return Entry(_within(mine, "tensor."), tuple(told), bool(stage["done"]))


def _within(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
