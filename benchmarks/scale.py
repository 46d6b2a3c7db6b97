"""How cost and memory grow with tasks, parameters, data and runs, for three kinds of posterior.

    python benchmarks/scale.py [--quick] [--out results/scale]

`vcl` is mean field, `lp-kron` Kronecker factors by Laplace propagation, and `adapters` mean field over low-rank
corrections of two wide layers and a head, the rest frozen. The network is a perceptron 784-h-h-10 with one head; data
are synthetic images, and a task is one pass in batches of 128. Each row is measured in a process of its own, on one
thread, after a small fit of the same kind. Memory is the growth of the process's peak. Times are of the
processor, for the machine may do other work; a step is the least over epochs, and what `lp-kron` does beyond its steps
is curvature. The journal's rows save every 50 steps, so that most epochs have no save, and divide the median time of a
save, by the clock, by the default interval; a step without a journal is measured before, in the same process.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
from torch import nn

from vcl.data import dataset
from vcl.fitting.loop import Ascent
from vcl.fitting.progress import Progress
from vcl.lab.provenance import made_by
from vcl.learner.checkpoint import to_bytes
from vcl.learner.saving import EVERY, SHARE, JournalledReport, Saver
from vcl.models import Network, mlp, select_posterior, split_head, with_adapters
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import KroneckerLaplace, VariationalKL
from vcl.recursion import Method, Task, initial, learn

BATCH, RANK = 128, 8
KINDS = ("vcl", "lp-kron", "adapters")
SEED = 0


class Work(NamedTuple):
    """What is measured in one process."""

    grows: str
    kind: str
    hidden: int = 100
    examples: int = 2048
    tasks: int = 2
    runs: int = 1
    epochs: int = 3
    save_steps: int | None = None
    """Steps between two saves of a journal; without it, none is kept."""


def everything(quick: bool) -> Iterator[Work]:
    """All rows."""
    for kind in KINDS:
        for tasks in (2, 3) if quick else (2, 50):
            yield Work("tasks", kind, tasks=tasks, examples=256, epochs=1)
        for hidden in (10, 20) if quick else (100, 500, 1500):
            yield Work("parameters", kind, hidden, 256 if quick else 512, epochs=2)
        for examples in (128, 256) if quick else (2048, 8192):
            yield Work("data", kind, examples=examples, epochs=2)
        if kind != "adapters":  # a learner has one run
            for runs in (1, 2) if quick else (1, 8):
                yield Work("runs", kind, runs=runs, epochs=2)
    for hidden, runs in ((10, 1),) if quick else ((100, 1), (100, 10), (1000, 1)):
        yield Work("journal", "vcl", hidden, 256 if quick else 2048, runs=runs, epochs=8, save_steps=5 if quick else 50)


def made(work: Work) -> tuple[Any, Any]:
    """Model and method."""
    ascent = Ascent(work.epochs, BATCH, 1e-3)
    kl = VariationalKL(ascent, 1, "local", ml_start=False)
    if work.kind != "adapters":
        project = kl if work.kind == "vcl" else KroneckerLaplace(ascent)
        return Network(mlp(784, [work.hidden] * 2), work.hidden, Categorical()), Method(project)
    torch.manual_seed(SEED)
    h = work.hidden
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 10))
    whole = split_head(with_adapters(net, RANK), torch.zeros(1, 28, 28))
    frozen = select_posterior(whole.trunk, "trainable", whole.name).frozen
    head = {"all": (whole.weight, whole.bias)}
    return Network(whole.trunk, whole.features, Categorical(), 1.0, frozen, "module", head_start=head), Method(kl)


def tasks_of(work: Work) -> Iterator[Task]:
    """Tasks of one head, each with images of its own."""
    for t in range(work.tasks):
        g = torch.Generator().manual_seed(t)
        x = torch.randint(0, 256, (work.examples, 28, 28), generator=g, dtype=torch.uint8)
        data = dataset(x, torch.randint(0, 10, (work.examples,), generator=g), f"task {t}", runs=work.runs)
        yield Task(f"task {t}", data, heads={"all": 10})


def peak() -> float:
    """The peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(work: Work, warm: bool = True) -> dict[str, Any]:
    """One row."""
    if warm:  # what torch loads at its first fit is no part of a later one
        measured(work._replace(hidden=8, examples=128, tasks=1, runs=1, epochs=1, save_steps=None), warm=False)
    alone = {} if work.save_steps is None else measured(work._replace(save_steps=None), warm=False)
    model, method = made(work)
    with tempfile.TemporaryDirectory() as folder:
        epochs: list[float] = []

        def told(progress: Progress) -> None:
            epochs.append(process_time())

        saver = Saver(Path(folder), EVERY, print)
        if work.save_steps is not None:
            calls, apart = iter(range(1, 10**9)), work.save_steps
            saver.due = lambda: next(calls) % apart == 0  # type: ignore[method-assign]
            wrote, saves, sizes = saver.write, list[float](), list[int]()

            def write(entries: Any) -> None:
                began = perf_counter()
                wrote(entries)
                saves.append(perf_counter() - began)
                sizes.append(sum(path.stat().st_size for path in Path(folder).iterdir()))

            saver.write = write  # type: ignore[method-assign]
        saver.begin("scale")
        report: Any = JournalledReport(told, saver) if work.save_steps is not None else told
        held, seconds, sizes_of, least = peak(), list[float](), list[int](), list[float]()
        first_peak, began = 0.0, process_time()
        for state in learn(
            initial(model, method, work.runs),
            tasks_of(work),
            model,
            method,
            Rng(tuple(range(SEED, SEED + work.runs))),
            report,
        ):
            seconds.append(process_time() - began)
            marks = [began, *epochs]
            steps = -(-work.examples // BATCH)
            least += [(after - before) / steps for before, after in pairwise(marks[1:])]
            least += [(marks[1] - marks[0]) / steps] if len(marks) == 2 else []
            epochs.clear()
            sizes_of.append(len(to_bytes(state)))
            first_peak = first_peak or peak()
            if work.save_steps is not None:
                saver.begin(f"scale {state.t}")
            began = process_time()
    found = {
        **work._asdict(),
        "posterior": state.propagated.layout.size,
        "all parameters": 784 * work.hidden + work.hidden * (work.hidden + 1) + work.hidden + 10 * (work.hidden + 1),
        "ms a step": round(1e3 * min(least), 3),
        "s a task": round(median(seconds), 4),
        "MiB": round(peak() - held, 1),
        "MiB after task 1": round(first_peak - held, 1),
        "state bytes": sizes_of[-1],
        "state bytes after 2": sizes_of[min(1, len(sizes_of) - 1)],
    }
    if work.save_steps is not None:
        typical = median(saves)
        found |= {
            "ms a step without": alone["ms a step"], "saves": len(saves), "bytes of a save": max(sizes) // 2,
            "ms a save": round(1e3 * typical, 1), "slowest ms": round(1e3 * max(saves), 1),
            "share of the time": round(typical / max(EVERY, typical / SHARE), 6),
        }  # fmt: skip
    return found


COLUMNS = {
    "kind": "posterior", "hidden": "hidden", "all parameters": "parameters", "posterior": "with a posterior",
    "examples": "examples", "tasks": "tasks", "runs": "runs", "ms a step": "CPU ms a step", "s a task": "CPU s a task",
    "MiB": "MiB more at the peak", "state bytes after 2": "state after 2 tasks, bytes",
    "state bytes": "state at the end, bytes",
}  # fmt: skip
OF_JOURNAL = {
    "hidden": "hidden", "runs": "runs", "posterior": "with a posterior", "ms a step without": "CPU ms a step alone",
    "ms a step": "with a journal", "saves": "saves", "bytes of a save": "a save, bytes", "ms a save": "ms a save",
    "slowest ms": "ms of the slowest", "share of the time": "share of the time",
}  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """One table for each thing that grows."""
    lines: list[str] = []
    for grows in dict.fromkeys(row["grows"] for row in rows):
        columns = OF_JOURNAL if grows == "journal" else COLUMNS
        lines += [f"## {grows.capitalize()}", "", f"| {' | '.join(columns.values())} |", "| ---: " * len(columns) + "|"]
        for row in (row for row in rows if row["grows"] == grows):
            lines.append(f"| {' | '.join(shown(row[name]) for name in columns)} |")
        lines.append("")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A number for people."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure each row in its own process; print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small work; its numbers mean nothing")
    parser.add_argument("--out", type=Path, help="a folder for table.md and rows.csv")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.row is not None:
        print(json.dumps(measured(Work(*json.loads(given.row)))))
        return
    began, rows = perf_counter(), list[dict[str, Any]]()
    for work in everything(given.quick):
        row = subprocess.run(
            [sys.executable, __file__, "--row", json.dumps(work)], check=True, capture_output=True, text=True
        )
        rows.append(json.loads(row.stdout))
        print(work, {name: rows[-1][name] for name in ("ms a step", "s a task", "MiB")}, file=sys.stderr, flush=True)
    versions = ", ".join(f"{name} {value}" for name, value in made_by().items())
    command = shlex.join(["python", "benchmarks/scale.py", *sys.argv[1:]])
    head = (
        f"# Scale\n\n    {command}\n\n{versions}; {platform.system()} {platform.machine()}, one thread of a machine "
        f"with other work; seed {SEED}; {perf_counter() - began:.0f} s.\n\n"
    )
    print(head + table(rows))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "table.md").write_text(head + table(rows), encoding="utf-8")
        with (given.out / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            names = list(dict.fromkeys(name for row in rows for name in row))
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
