"""Does one job in this process: the plan is made again from the job's values, and its stack is learned or continued.

As a program, ``python -m vcl.lab.launching.work``, it reads jobs as lines of its input and writes how each ended as a
line of its output. It stops, as on SIGTERM, when its input ends: the process that began it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Literal, NamedTuple, final

from rich.console import Console

from vcl.errors import VclError
from vcl.fitting.loop import silent
from vcl.lab.claim import TakenError
from vcl.lab.compute import prepare
from vcl.lab.console import say_on
from vcl.lab.evaluation import Run
from vcl.lab.holding_out import hold_out
from vcl.lab.identity import described, identity
from vcl.lab.launching.job import Job
from vcl.lab.learning import Learning
from vcl.lab.loading import load_named
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import make_plan
from vcl.lab.provenance import source_digest
from vcl.lab.registry import load_file
from vcl.lab.remote.place import place_of
from vcl.lab.results import label
from vcl.lab.stopped import TERMINATED
from vcl.lab.store import Store
from vcl.ops.out_of_memory import TASK, is_out_of_memory, sentence

WAIT = 120.0
"""Seconds to wait for a lost job's folder, which a process that is not quite dead may hold."""

How = Literal["done", "failed", "lost"]


@final
class End(NamedTuple):
    """How a job ended: a failure would happen again, a loss need not."""

    how: How
    why: str = ""
    said: tuple[str, ...] = ()
    """What it said on the way, line by line."""


def do(job: Job) -> End:
    """Do a job; errors that a user can mend are told and not raised."""
    said = StringIO()
    console = Console(file=said, width=200, markup=False, emoji=False)

    def lines() -> tuple[str, ...]:
        return tuple(said.getvalue().splitlines())

    try:
        _learn(job, console)
    except TakenError as error:
        return End("lost", str(error), lines())
    except VclError as error:
        return End("failed", str(error), lines())
    except Exception as error:  # of a plugin, of torch or of the system
        why = sentence(error, "the job", TASK) if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        return End("failed", why, lines())
    return End("done", "", lines())


def _learn(job: Job, console: Console) -> None:
    if source_digest() != job.source:
        raise VclError(
            f"vcl here ({sys.prefix}) has other source files than vcl where the command was given; install the same "
            "version on every machine."
        )
    for plugin in job.plugins:
        load_file(Path(plugin))
    part = part_of(job)
    notes: list[str] = []
    place = place_of(job.out, lambda line: say_on(console, line), job.launch)
    store = Store(place.folder, part.plan.device, job.command, job.save_every, place.mirror)
    store.asked = job.asked
    prepared, value = prepare(part, store, notes.append)
    if identity(described(value)) != job.part:
        raise VclError(
            f"{job.name} is another part here than where the command was given: its data, plugin or kind of device "
            "differs; give every machine the same."
        )
    runs = [Run(part.entry.name if lam is None else label(part.entry.name, lam), seed, lam) for lam, seed in job.runs]
    work = Learning(part, value, prepared, store, console, notes, job.name, silent)
    work.learn(store.root / job.folder, runs, None, WAIT)


def part_of(job: Job) -> Part:
    """The part that a job belongs to, with its data."""
    plan = make_plan(
        job.experiment, ",".join(job.methods), job.preset, job.seeds, job.device, job.changes, None, job.dataset
    )
    plan = replace(plan, grid=job.grid, validation=job.validation)
    data = load_named(plan.dataset, None if job.data is None else Path(job.data), print_nothing)
    if job.validation is not None and data.arrays is not None:
        rest = hold_out(data.arrays, job.validation)
        data = Loaded(rest, data.origin, rest.digest())
    return Part(plan, plan.methods[job.place], data)


def print_nothing(line: str) -> None:
    """Say nothing: the command has said where the data is."""


def main() -> None:
    """Do the jobs that come as lines of the input, one after another."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the command passes it on
    given, busy = Queue[str](), Event()
    Thread(target=_read, args=(given, busy), daemon=True).start()
    while line := given.get():
        busy.set()
        end = do(Job.from_json(line))
        busy.clear()
        sys.stdout.write(json.dumps(end) + "\n")
        sys.stdout.flush()


def _read(given: Queue[str], busy: Event) -> None:
    """Pass on the lines of the input; its end stops this process, for the one that began it is gone."""
    for line in sys.stdin:
        given.put(line)
    given.put("")
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(TERMINATED)


if __name__ == "__main__":
    main()
