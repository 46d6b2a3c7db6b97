"""A job: some runs of one part, as plain data that another process or machine can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, final

from vcl.lab.compute import missing, prepare, to_learn
from vcl.lab.evaluation import Run
from vcl.lab.identity import described, identity
from vcl.lab.part import Part
from vcl.lab.provenance import source_digest
from vcl.lab.registry import FILES
from vcl.lab.runner import quiet
from vcl.lab.store import Store, key
from vcl.ops.rng import Rng


@final
class Job(NamedTuple):
    """Runs of a part that are computed together; ``make_plan`` gives the plan again from these values."""

    name: str
    """For people."""
    out: str
    """The folder or address of the results."""
    launch: str
    """Whose jobs take over from each other at an address."""
    folder: str
    """Of the stack, under parts/."""
    runs: tuple[tuple[float | None, int], ...]
    """Lambda and seed of each."""
    tasks: int
    experiment: str
    methods: tuple[str, ...]
    """All of the plan."""
    place: int
    """Of this job's method among them."""
    preset: str
    seeds: int | None
    """If the user gave their number."""
    device: str
    changes: tuple[str, ...]
    grid: Mapping[str, tuple[float, ...]]
    dataset: str | None
    validation: float | None
    data: str | None
    """The folder given with --data."""
    plugins: tuple[str, ...]
    command: str
    asked: str
    save_every: float
    part: str
    """The identity of the part."""
    source: str
    """The digest of vcl's own source."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that :meth:`to_json` wrote."""
        about: dict[str, Any] = json.loads(text)
        for name in ("methods", "changes", "plugins"):
            about[name] = tuple(about[name])
        about["runs"] = tuple((lam, int(seed)) for lam, seed in about["runs"])
        about["grid"] = {name: tuple(lams) for name, lams in about["grid"].items()}
        return cls(**about)


def jobs_of(
    parts: Sequence[Part], store: Store, names: Sequence[str], data: Path | None, slots: int, most: int | None
) -> list[Job]:
    """The jobs that compute what the store lacks of the parts, each of up to ``most`` runs.

    Without ``most``, parts on a CPU are split so that every one of ``slots`` has a job; on a GPU a stack is best whole.
    """
    work = list[tuple[Part, str, str, str, list[Run]]]()
    fresh = list[tuple[Part, str, str, Mapping[str, Any], list[Run]]]()
    for part, name in zip(parts, names, strict=True):
        _, value = prepare(part, store, quiet)
        stacks, made = store.stacks(part.stem, value), identity(described(value))
        begun, rest = to_learn(missing(part, stacks), stacks)
        work += [(part, name, made, stack.folder.name, runs) for stack, runs in begun]
        fresh += [(part, name, made, value, rest)] if rest else []
    # Slots without a stack to continue are shared by the parts.
    share = ceil(max(1, slots - len(work)) / max(1, len(fresh)))
    for part, name, made, about, rest in fresh:
        pieces = 1 if part.plan.device.type == "cuda" else min(share, len(rest))
        pieces = pieces if most is None else ceil(len(rest) / most)
        for each in split(rest, pieces):
            folder = store.new(part.stem, about, [key(run) for run in each]).name
            shown = name if pieces == 1 else f"{name} {shown_runs(each, part.entry.name in part.plan.grid)}"
            work.append((part, shown, made, folder, each))
    return [_job(part, store, name, made, folder, runs, data) for part, name, made, folder, runs in work]


def split(runs: Sequence[Run], pieces: int) -> list[list[Run]]:
    """The runs in so many pieces, in order, whose sizes differ by one at most."""
    size, more = divmod(len(runs), pieces)
    ends = [place * size + min(place, more) for place in range(pieces + 1)]
    return [list(runs[start:end]) for start, end in pairwise(ends)]


def shown_runs(runs: Sequence[Run], grid: bool) -> str:
    """Runs as text, such as ``seeds 0-4``, or with a grid ``lambda 1 seed 0 to lambda 10 seed 4``."""
    first, last = runs[0], runs[-1]
    seeds = f"seeds {first.seed}-{last.seed}" if len(runs) > 1 else f"seed {first.seed}"
    if not grid:
        return seeds
    if first.lam == last.lam:
        return f"lambda {first.lam:g} {seeds}"
    return f"lambda {first.lam:g} seed {first.seed} to lambda {last.lam:g} seed {last.seed}"


def _job(part: Part, store: Store, name: str, made: str, folder: str, runs: Sequence[Run], data: Path | None) -> Job:
    plan = part.plan
    return Job(
        name,
        store.out,
        "" if store.mirror is None else store.mirror.launch,
        folder,
        tuple(key(run) for run in runs),
        _tasks(part),
        plan.experiment.name,
        tuple(entry.name for entry in plan.methods),
        plan.methods.index(part.entry),
        plan.preset,
        len(plan.seeds) if plan.seeds_given else None,
        plan.device.type,
        plan.changes,
        plan.grid,
        plan.dataset,
        plan.validation,
        None if data is None else str(data.expanduser().resolve()),
        tuple(map(str, FILES)),
        store.command,
        store.asked,
        store.save_every,
        made,
        source_digest(),
    )


def _tasks(part: Part) -> int:
    return part.plan.stream(part.data.arrays, Rng((0,))).size
