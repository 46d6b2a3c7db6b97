"""`--log tensorboard`: scalars of each finished task, as TensorBoard reads them. No other file knows TensorBoard.

The rows on disk are read while a command works, wherever its parts are computed, and each run has a folder of its own:
``DIR/tensorboard/split-digits-vcl-3f2a…/seed-0``. A folder is written anew by the command that goes on with its part.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from time import time
from typing import Any, NamedTuple, final

import torch

from vcl.errors import VclError
from vcl.lab.folder import make_folder
from vcl.lab.results import read_measures, read_objectives
from vcl.lab.store import FITS, OBJECTIVE, RunKey, Stack, Store, stored_label

NAME = "tensorboard"
EVERY = 2.0
"""Seconds between two looks at the folder."""

KINDS = {"sd": "posterior sd", "kl": "KL", "pruned": "pruned"}
"""Measures of tensors by the first word of their names, and what they are called here."""


class Scalar(NamedTuple):
    """A number of a run at a step: the number of tasks learned, or the epochs of a fit over all tasks."""

    run: str
    tag: str
    step: int
    value: float


def check_log(log: str | None) -> None:
    """Raise VclError unless the log is known and its package is installed."""
    if log is None:
        return
    if log != NAME:
        raise VclError(f"--log is {log!r}; give {NAME}.")
    _package("tensorboard.summary.writer.record_writer")


def _package(module: str) -> Any:
    """A module of tensorboard; VclError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise VclError(f"--log {NAME} needs tensorboard: pip install 'vcl[{NAME}]'.") from error


@contextmanager
def logged(out: Path, log: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Write scalars of a folder of results while the inside computes there; a failure is said and stops nothing."""
    if log is None:
        yield
        return
    follower, ended = _Log(out), Event()

    def follow() -> None:
        while not ended.wait(EVERY):
            follower.look()

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        follower.look()
        if follower.fault:
            say(f"{out / NAME} is not complete: {follower.fault}")


@final
class _Log:
    """What was written of each stack by this command: the tasks, and the file of each run."""

    def __init__(self, out: Path) -> None:
        self.out, self.fault = out, ""
        self.tasks: dict[str, int] = {}
        self.files: dict[Path, Path] = {}
        self.before = {} if not (out / "parts").exists() else self._states()

    def look(self) -> None:
        """Write what is new on disk."""
        try:
            for stack in self._stacks():
                name, done = stack.folder.name, len(stack.known["tasks"])
                there = (self.out / NAME / name).exists()
                if there and self.before.get(name) == _state(stack):
                    continue
                if done > self.tasks.get(name, 0):
                    self._write(stack, self.tasks.get(name, 0))
                    self.tasks[name] = done
            self.fault = ""
        except (VclError, OSError) as error:
            self.fault = str(error)

    def _stacks(self) -> list[Stack]:
        return Store(self.out, torch.device("cpu"), "").stacks()

    def _states(self) -> dict[str, Any]:
        try:
            return {stack.folder.name: _state(stack) for stack in self._stacks()}
        except VclError:  # the command says so itself
            return {}

    def _write(self, stack: Stack, begun: int) -> None:
        events = _package("tensorboard.compat.proto.event_pb2")
        summaries = _package("tensorboard.compat.proto.summary_pb2")
        records = _package("tensorboard.summary.writer.record_writer")
        found: dict[str, list[Scalar]] = {}
        for each in scalars(stack, begun):
            found.setdefault(each.run, []).append(each)
        for run, mine in found.items():
            with self._file(self.out / NAME / stack.folder.name / run).open("ab") as file:
                writer, now = records.RecordWriter(file), time()
                if not file.tell():
                    writer.write(events.Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
                for each in mine:
                    value = summaries.Summary.Value(tag=each.tag, simple_value=each.value)
                    event = events.Event(wall_time=now, step=each.step, summary=summaries.Summary(value=[value]))
                    writer.write(event.SerializeToString())

    def _file(self, folder: Path) -> Path:
        """The file of a run; those that an earlier command left are replaced."""
        if folder not in self.files:
            for old in make_folder(folder).glob("events.out.tfevents.*.vcl"):
                old.unlink()
            self.files[folder] = folder / f"events.out.tfevents.{int(time())}.{socket.gethostname()}.{os.getpid()}.vcl"
        return self.files[folder]


def _state(stack: Stack) -> tuple[object, int]:
    return stack.known.get("written"), len(stack.known["tasks"])


def scalars(stack: Stack, begun: int) -> Iterator[Scalar]:
    """The scalars of a stack's finished tasks after the first ``begun``, in order of their steps."""
    done, named = len(stack.known["tasks"]), [task for task, _ in stack.known["tasks"]]
    method = str(stack.known["method"])
    runs = {(stored_label(method, run), run.seed): _called(run) for run in stack.alive}
    averages: dict[tuple[str, str, int], list[float]] = {}
    for row in stack.rows():
        if begun < row.after <= done:
            run = runs[row.method, row.seed]
            averages.setdefault((run, row.metric, row.after), []).append(row.value)
            yield Scalar(run, f"{row.metric}/on {named[row.on - 1]}", row.after, row.value)
    for (run, metric, after), values in averages.items():
        yield Scalar(run, f"{metric}/average so far", after, sum(values) / len(values))
    epochs: dict[tuple[str, str, int], int] = {}  # before each task, those of all fits of that name
    objectives = [each for each in read_objectives(stack.file(OBJECTIVE)) if (each.method, each.seed) in runs]
    for each in objectives:
        for task in range(each.task + 1, done + 1):
            place = (runs[each.method, each.seed], each.fit, task)
            epochs[place] = epochs.get(place, 0) + 1
    for each in objectives:
        if begun < each.task <= done:
            run = runs[each.method, each.seed]
            yield Scalar(
                run, f"objective/{each.fit}", epochs.get((run, each.fit, each.task), 0) + each.epoch, each.value
            )
    for measured in read_measures(stack.file(FITS)):
        if begun < measured.task <= done and (measured.method, measured.seed) in runs:
            kind, _, tensor = measured.measure.partition(" ")
            tag = f"{KINDS.get(kind, kind)}/{measured.fit}{f' {tensor}' if tensor else ''}"
            yield Scalar(runs[measured.method, measured.seed], tag, measured.task, measured.value)


def _called(run: RunKey) -> str:
    """The folder of a run."""
    return f"seed-{run.seed}" if run.lam is None else f"lambda={run.lam:g}-seed-{run.seed}"
