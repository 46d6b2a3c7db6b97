"""Parts: one method of one experiment with all its runs stacked, computed once, kept, and gone on with after a stop.

A part is recognised by everything that its numbers depend on (and by nothing else): the data, the stream, the network,
the method as it was built, how it predicts, and the runs. So a part that several figures share is computed once, and a
changed setting computes anew only what it touches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vcl import __version__
from vcl.checkpoint import from_bytes, packed
from vcl.errors import VclError
from vcl.lab.behind import Behind
from vcl.lab.estimate import check_methods
from vcl.lab.folder import make_folder, write_atomic, write_atomic_bytes
from vcl.lab.plan import Plan
from vcl.lab.progress import both, watching
from vcl.lab.results import Row, read_csv, to_csv
from vcl.lab.runner import run_method
from vcl.lab.session import device_name
from vcl.lab.streams import Arrays
from vcl.optimise import Report, silent

FORMAT = 1
"""Raised when the same description would give other numbers."""

PART, ROWS, TABLE, STATE = "part.json", "rows.csv", "table.csv", "state.safetensors"
PICTURES = "pictures.safetensors"


class Loaded(NamedTuple):
    """A dataset as arrays, where it came from, and a digest of every byte of it."""

    arrays: Arrays
    origin: str
    digest: str


class Kept(NamedTuple):
    """A finished part: its file of numbers, the seconds that it took, and whether it was computed just now."""

    path: Path
    seconds: float
    new: bool

    def pictures(self) -> list[Tensor]:
        """What generators drew after each task, if there are any."""
        return read_pictures(self.path.with_name(PICTURES))


def description(plan: Plan, data: Loaded) -> dict[str, Any]:
    """Everything that the numbers of a plan with one method depend on."""
    (entry,) = plan.methods
    settings, kind = vars(plan.settings_of(entry)), plan.experiment.kind
    prediction = {name: settings[name] for name in kind.prediction(entry)}
    return {
        "format": FORMAT,
        "version": __version__,
        "experiment": plan.experiment.name,
        "data": data.digest,
        "stream": {name: settings[name] for name in kind.stream},
        "network": {name: settings[name] for name in kind.network},
        "method": described(plan.build(entry)),
        "prediction": prediction or "the mean",
        "matmul": settings["matmul"],
        "runs": [[run.label, run.seed] for run in plan.runs(entry)],
    }


def described(value: Any) -> Any:
    """A method in words: its parts by name, each with what differs from its defaults.

    So a setting that is added later, with a default that changes nothing, leaves what was computed before as it is.
    """
    if not is_dataclass(value):
        return repr(value)
    made: dict[str, Any] = {"": type(value).__name__}
    for field in fields(value):
        own = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is MISSING or own != default:
            made[field.name] = described(own)
    return made


def identity(about: Mapping[str, Any]) -> str:
    """A short name that no other description has."""
    return blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=6).hexdigest()


def write_pictures(pictures: Sequence[Tensor]) -> bytes:
    """Pictures after each task as bytes."""
    return save({str(after): images.contiguous() for after, images in enumerate(pictures, start=1)})


def read_pictures(path: Path) -> list[Tensor]:
    """The pictures that :func:`write_pictures` wrote, in order; none if there is no such file."""
    if not path.exists():
        return []
    try:
        found = load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise VclError(f"{path} cannot be read ({error}); delete its folder to compute it anew.") from error
    return [found[str(after)] for after in range(1, len(found) + 1)]


class Store:
    """The parts under one folder."""

    def __init__(self, root: Path, device: torch.device, command: str, console: Console) -> None:
        self.root, self.device, self.command, self.console = root, device, command, console

    def finished(self, plan: Plan, data: Loaded) -> bool:
        """Whether there is nothing left to compute."""
        about = description(plan, data)
        path = self.root / f"{plan.experiment.name}-{plan.methods[0].name}-{identity(about)}"
        return bool(self._known(path).get("finished"))

    def stream(self, plan: Plan, data: Loaded, called: str | None = None, beside: Report = silent) -> Kept:
        """The rows of a plan with one method: read, gone on with from the last finished task, or computed.

        ``called`` is what it goes by where others are at work too, which ``beside`` is told of the epochs for.
        """
        (entry,) = plan.methods
        about = description(plan, data)
        folder = self._folder(f"{plan.experiment.name}-{entry.name}", about)
        known = self._known(folder)
        if known.get("finished"):
            return Kept(folder / ROWS, known["seconds"], False)
        check_methods(plan, data.arrays)
        state, rows, seconds, pictures = None, list[Row](), 0.0, list[Tensor]()
        if (folder / STATE).exists() and known:
            state = from_bytes((folder / STATE).read_bytes(), plan.device)
            # Rows are written before the state, so there may be some of a task that the state does not have.
            rows = [row for row in read_csv(folder / ROWS) if row.after <= state.t]
            seconds, pictures = known["seconds"], read_pictures(folder / PICTURES)[: state.t]
            self._say(f"{folder.name}: goes on after task {state.t}")
        notes = list(known.get("notes", ()))

        def say(line: str) -> None:
            notes.extend(() if line in notes else (line,))
            self._say(line)

        self._write(folder, about, seconds, notes, finished=False)
        with watching(self.console, lines=called is not None) as watch, Behind() as behind:
            watch.begin(entry.name, plan.settings_of(entry).tasks)
            for done in run_method(plan, entry, data.arrays, both(watch.epoch, beside), state, say):
                rows += done.rows
                if done.pictures is not None:
                    pictures.append(done.pictures)
                    write_atomic_bytes(folder / PICTURES, write_pictures(pictures))
                seconds += done.seconds
                write_atomic(folder / ROWS, to_csv(rows))
                self._write(folder, about, seconds, notes, finished=False)
                behind(folder / STATE, packed(done.state))
                watch.task(done if called is None else done._replace(method=called))
        seconds = round(seconds, 3)  # as a later call will read it
        self._write(folder, about, seconds, notes, finished=True)
        (folder / STATE).unlink(missing_ok=True)
        return Kept(folder / ROWS, seconds, True)

    def table(self, name: str, settings: Mapping[str, Any], compute: Callable[..., str]) -> Kept:
        """The table of an item that is no stream of tasks: read or computed, whole."""
        about = {"format": FORMAT, "version": __version__, "name": name, "settings": dict(settings)}
        folder = self._folder(name, about)
        known = self._known(folder)
        if known.get("finished"):
            return Kept(folder / TABLE, known["seconds"], False)
        self._write(folder, about, 0.0, [], finished=False)
        began = perf_counter()
        write_atomic(folder / TABLE, compute(settings, self.device))
        seconds = round(perf_counter() - began, 3)
        self._write(folder, about, seconds, [], finished=True)
        self._say(f"{name} in {seconds:.1f} s")
        return Kept(folder / TABLE, seconds, True)

    def _folder(self, name: str, about: Mapping[str, Any]) -> Path:
        return make_folder(self.root / f"{name}-{identity(about)}")

    def _known(self, folder: Path) -> dict[str, Any]:
        path = folder / PART
        if not path.exists():
            return {}
        try:
            known: dict[str, Any] = json.loads(path.read_text())
            return known
        except (OSError, ValueError) as error:
            raise VclError(f"{path} cannot be read ({error}); delete its folder to compute it anew.") from error

    def _write(
        self, folder: Path, about: Mapping[str, Any], seconds: float, notes: Sequence[str], finished: bool
    ) -> None:
        text = {
            "finished": finished,
            "seconds": seconds,
            "command": self.command,
            "device": device_name(self.device),
            "torch": torch.__version__,
            "notes": list(notes),
            "description": about,
        }
        write_atomic(folder / PART, json.dumps(text, indent=2) + "\n")

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)
