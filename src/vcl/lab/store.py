"""The store: every number comes from a *part*, one method of one experiment, whose runs are computed once and kept.

A part is known by everything that its numbers depend on (:mod:`vcl.lab.identity`). Its runs, one for each seed and
lambda, are kept in *stacks*: those that were computed together, in a folder of their own.

    parts/split-digits-vcl-3f2a…/part.json            what it is: description, runs, engine, versions, machine, command
                                 rows.csv             one number per (method, seed, after task, on task, metric)
                                 objective.csv        the objective after each epoch of each fit
                                 fits.csv             how far each variational fit got: KLs, limited variances
                                 now.json             where the fit in progress stands (:mod:`vcl.lab.pulse`)
                                 calibration.csv      how often predictions were right, by confidence
                                 state.safetensors    where it stands, until it is finished
                                 journal-7.…          where the task in progress stands (:mod:`vcl.learner.generations`)
                                 predictive.safetensors  once it is finished: what predictions need
                                 pictures.safetensors what generators drew after each task

Every file is written atomically. Rows are written after each task, then the state; within a task the journal is, every
few minutes. Ctrl-C and SIGTERM save it and lose nothing of a fit. A process that is killed loses the time since the
journal was last saved. A state of 64 MiB or more is written while the next task is learned
(:mod:`vcl.lab.background_writer`), and the journal of its task is kept until then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from glob import escape
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, final

import torch
from safetensors.torch import load, save
from torch import Tensor

from vcl.errors import VclError
from vcl.lab.claim import claimed
from vcl.lab.evaluation import Run
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.folder import make_folder, write_atomic, write_atomic_bytes
from vcl.lab.identity import described, identity, same
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.provenance import device_name, made_by, now
from vcl.lab.reading import FORMAT, check_pictures, check_rows, read_part, read_runs, read_set_aside, reading
from vcl.lab.registry import experiments, methods
from vcl.lab.remote.mirror import Mirror
from vcl.lab.results import Row, label, read_csv
from vcl.lab.sums import FILES, Sums, check_file, signed, sums_of
from vcl.learner.bounded import read_bounded
from vcl.learner.generations import STEM
from vcl.learner.saving import EVERY
from vcl.recursion import SetAside

PARTS = "parts"
PART, ROWS, STATE, PREDICTIVE = "part.json", "rows.csv", "state.safetensors", "predictive.safetensors"
PICTURES, OBJECTIVE, FITS, CALIBRATION = "pictures.safetensors", "objective.csv", "fits.csv", "calibration.csv"
SMALL = (ROWS, OBJECTIVE, FITS, CALIBRATION, PICTURES)
"""The files whose checksums are in part.json."""
HASH = "[0-9a-f]" * 12
MOVING = "still_moving"
"""In part.json: one line, where the variances of many fits show their start (:mod:`vcl.fitting.health`)."""


class RunKey(NamedTuple):
    """Which run of a part."""

    lam: float | None
    seed: int


def key(run: Run) -> RunKey:
    """The key of a run."""
    return RunKey(run.lam, run.seed)


@final
class Stack(NamedTuple):
    """Runs of a part that were computed together, as they are on disk."""

    folder: Path
    known: Mapping[str, Any]
    """The content of part.json."""

    @property
    def finished(self) -> bool:
        """Whether all tasks are learned."""
        return bool(self.known["finished"])

    @property
    def runs(self) -> tuple[RunKey, ...]:
        """Its runs, in the order of the stack."""
        return tuple(RunKey(*run) for run in self.known["runs"])

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """The runs that its numbers are without."""
        return read_set_aside(self.folder / PART, self.known, len(self.runs))

    @property
    def alive(self) -> tuple[RunKey, ...]:
        """The runs that are left."""
        gone = {each.run for each in self.set_aside}
        return tuple(run for place, run in enumerate(self.runs) if place not in gone)

    @property
    def name(self) -> str:
        """Its experiment's name, with the dataset where the folder has it: how the plan is called."""
        own = str(self.known["experiment"])
        other = f"{own}-on-{self.known['dataset']}"
        return other if self.folder.name.startswith(f"{other}-") else own

    def experiment(self) -> Experiment:
        """Its experiment, which must be known here."""
        name = str(self.known["experiment"])
        if name not in experiments():
            raise self._unknown("experiment", name)
        return experiments()[name]

    def entry(self) -> MethodEntry:
        """Its method, which must be known here."""
        name, there = str(self.known["method"]), methods(self.experiment().models)
        if name not in there:
            raise self._unknown("method", name)
        return there[name]

    def _unknown(self, what: str, name: str) -> VclError:
        return VclError(
            f"{self.folder / PART} is of the {what} {name!r}, which is not known here; give the file that defines it "
            "with --plugin."
        )

    @property
    def sums(self) -> Sums | None:
        """The checksums that its files may have; None where an earlier version wrote it."""
        return self.known.get(FILES)

    def file(self, name: str) -> Path:
        """The path of a file, which must be what was written if the stack is finished; VclError if it is not.

        Of one that is not, files are replaced while others read them, by a process that reads none of them.
        """
        path = self.folder / name
        if self.finished:
            with reading(path):
                check_file(path, self.sums)
        return path

    def rows(self) -> list[Row]:
        """The rows of all finished tasks, of the runs that are left; they must be exactly those."""
        path, name = self.file(ROWS), str(self.known["method"])
        with reading(path):
            alive = {(stored_label(name, run), run.seed) for run in self.alive}
            rows = [row for row in read_csv(path) if row[:2] in alive]
        if not self.finished:  # rows are written before part.json, and may be of a task more
            rows = [row for row in rows if row.after <= len(self.known["tasks"])]
        check_rows(rows, sorted(alive), self.known["tasks"], path, self.known.get("metrics", ()))
        return rows

    def pictures(self) -> list[Tensor]:
        """What the runs that are left drew after each task: uint8 [runs, tasks so far, count, H, W]; checked."""
        tasks = 0 if self.experiment().evaluation.samples is None else len(self.known["tasks"])
        there = read_pictures(self.file(PICTURES))
        drawn = of_those_left(there if self.finished else there[:tasks], len(self.runs), self.set_aside)
        check_pictures(drawn, len(self.alive), tasks, self.folder / PICTURES)
        return drawn


def stored_label(method: str, run: RunKey) -> str:
    """What a run's rows are called in the store."""
    return method if run.lam is None else label(method, run.lam)


def write_pictures(pictures: Sequence[Tensor]) -> bytes:
    """Pictures after each task as bytes."""
    return save({str(after): images.contiguous() for after, images in enumerate(pictures, start=1)})


def read_pictures(path: Path) -> list[Tensor]:
    """The pictures that :func:`write_pictures` wrote, in order; none if there is no such file."""
    if not path.exists():
        return []
    with reading(path):
        found = load(read_bounded(path))
        return [found[str(after)] for after in range(1, len(found) + 1)]


def of_those_left(pictures: Sequence[Tensor], runs: int, set_aside: Sequence[SetAside]) -> list[Tensor]:
    """Pictures [runs there were, ...] after each task, of the runs that are left at the end."""

    def there(after: int) -> list[int]:
        gone = {each.run for each in set_aside if each.task <= after}
        return [run for run in range(runs) if run not in gone]

    end = there(len(pictures))
    return [
        images if there(after) == end else images[[there(after).index(run) for run in end]]
        for after, images in enumerate(pictures, start=1)
    ]


@final
class Store:
    """The parts under one folder."""

    def __init__(
        self, root: Path, device: torch.device, command: str, save_every: float = EVERY, mirror: Mirror | None = None
    ) -> None:
        self.root, self.device, self.command, self.asked = root / PARTS, device, command, now()
        self.save_every, self.mirror = save_every, mirror

    @property
    def out(self) -> str:
        """The folder, or the address of which it is the working copy."""
        return str(self.root.parent.resolve()) if self.mirror is None else self.mirror.address

    @contextmanager
    def taken(self, folder: Path, wait: float = 0.0) -> Iterator[None]:
        """Hold a stack's folder inside the context, and what its address has of it."""
        with claimed(folder, wait), nullcontext() if self.mirror is None else self.mirror.taken(folder, wait):
            yield

    def kept(self, folder: Path) -> None:
        """Say that something of a stack was written that a later command can continue."""
        if self.mirror is not None:
            self.mirror.kept(folder)

    def bring(self) -> None:
        """Bring what other machines have finished."""
        if self.mirror is not None:
            self.mirror.pull()

    def stacks(self, stem: str = "*", value: Mapping[str, Any] | None = None) -> list[Stack]:
        """The stacks of the part that ``value`` describes (or of all), oldest first."""
        found = []
        for folder in sorted(self.root.glob(f"{stem if stem == '*' else escape(stem)}-{HASH}")):
            stack = self.at(folder)
            if stack is not None and (value is None or same(stack.known["description"], value)):
                read_runs(folder / PART, stack.known)
                found.append(stack)
        return sorted(found, key=lambda stack: (str(stack.known["asked"]), int(stack.known["place"])))

    def at(self, folder: Path) -> Stack | None:
        """The stack in a folder; None if there is none, or what `once` made. Its runs are not checked."""
        path, learned = folder / PART, (folder / ROWS).exists()
        if not learned and not path.exists():
            return None
        known = read_part(path)
        return Stack(folder, known) if learned or "runs" in known else None

    def tidy(self, stack: Stack) -> None:
        """Remove what a process left of the way to a finished stack, if it was killed between its end and that."""
        left = [*stack.folder.glob(f"{STEM}*"), *stack.folder.glob(".*.tmp"), *stack.folder.glob(STATE)]
        with suppress(VclError, OSError):  # in use, or read-only: it does no harm there
            if left:
                with claimed(stack.folder):
                    for file in left:
                        file.unlink(missing_ok=True)

    def new(self, stem: str, value: Mapping[str, Any], runs: Sequence[RunKey]) -> Path:
        """The folder of a new stack."""
        return self.root / f"{stem}-{identity({'description': described(value), 'runs': list(runs)})}"

    def write(self, folder: Path, known: Mapping[str, Any]) -> None:
        """Write what a stack is, with what computes it now."""
        builds = [build for build in known.get("builds", ()) if build != made_by()]
        text = {
            "format": FORMAT,
            "finished": False,
            "command": self.command,
            "device": device_name(self.device),
            **known,
            "builds": [*builds, made_by()],
            "written": now(),
        }
        write_atomic(make_folder(folder) / PART, json.dumps(signed(text), indent=1) + "\n")

    def once(self, name: str, about: Mapping[str, Any], make: Callable[[], bytes], file: str) -> Path:
        """A file that depends on a description alone: made once, whole, and kept as a part.

        Where another process is making it, this one waits.
        """
        value = {"name": name, **about}
        folder = self.root / f"{name}-{identity(described(value))}"

        def finished() -> bool:
            known = read_part(folder / PART) if (folder / PART).exists() else {}
            if not known.get("finished"):
                return False
            with reading(folder / file):
                check_file(folder / file, known.get(FILES))
            return True

        if finished():
            return folder / file
        with claimed(folder, wait=inf):
            if self.mirror is not None:
                self.mirror.update(folder)
            if not finished():
                began = perf_counter()
                content = make()
                write_atomic_bytes(make_folder(folder) / file, content)
                known = {
                    "description": described(value),
                    "finished": True,
                    "notes": [],
                    FILES: sums_of({file: content}),
                }
                self.write(folder, {**known, "seconds": round(perf_counter() - began, 3)})
                if self.mirror is not None:
                    self.mirror.finish(folder)
        return folder / file
