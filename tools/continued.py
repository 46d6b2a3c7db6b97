"""Stop runs on a device at random instants, continue them, and compare them with runs that nothing stopped.

    python tools/continued.py --device cuda --out results/continued

Every line of ``LINES`` runs three times: twice undisturbed, which shows what the device itself repeats, and once
stopped several times and continued. The table has the largest differences between the rows, and between the means and
log variances of the posteriors. On a CPU every one must be 0; the faults of ``tools/faults`` test that.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import monotonic
from typing import NamedTuple

import torch
from safetensors.torch import load_file

SPLIT, PERMUTED = "split-mnist --preset quick --seeds 3", "permuted-mnist --preset quick --seeds 3 --set tasks=3"
VAES = "class-incremental-mnist --preset quick --seeds 2 --set tasks=3 --set train_limit=3000 --set test_limit=500"
LINES = [
    *(f"{PERMUTED} --method {method}" for method in ("vcl", "vcl-random", "ewc", "lp-kron", "vcl-kron", "vcl-natural")),
    *(f"{SPLIT} --method {method}" for method in ("vcl", "lp", "vcl-kron-natural")),
    f"{VAES} --method vcl",
]
STOPS, EVERY, LIMIT = 3, "0.2", 280
"""Stops of a line at most, the seconds between its saves, and those after which a process is taken to hang."""
PLACES = {"within a task": "goes on within task", "between tasks": "continues after task"}


class Difference(NamedTuple):
    """The largest differences between two runs of a line."""

    rows: float
    mean: float
    log_var: float


class Compared(NamedTuple):
    """A line, how often it was stopped and where it went on, and how its runs differ."""

    line: str
    seconds: float
    stops: int
    places: dict[str, int]
    undisturbed: Difference
    continued: Difference


def command(line: str, device: str, out: Path) -> list[str]:
    """The command of a line."""
    more = ["--device", device, "--save-every", EVERY, "--out", str(out)]
    return [sys.executable, "-m", "vcl", "run", *line.split(), *more]


def whole(line: str, device: str, out: Path) -> tuple[str, float]:
    """Run a line to its end: what it said, and the seconds that it took."""
    began = monotonic()
    made = subprocess.run(command(line, device, out), capture_output=True, text=True, timeout=LIMIT, check=False)
    said = made.stdout + made.stderr
    if made.returncode != 0:
        raise SystemExit(f"{line}: {said.strip().splitlines()[-1]}")
    return said, monotonic() - began


def stopped(line: str, device: str, out: Path, seconds: float, rng: Random, strike: int) -> tuple[int, Counter[str]]:
    """Stop a line's processes at random instants, the last one excepted; where those after a stop went on."""
    stops, places = 0, Counter[str]()

    def note(said: str) -> None:
        places.update([next((place for place, words in PLACES.items() if words in said), "at the start")])

    for _ in range(STOPS):
        follows = stops > 0
        with tempfile.TemporaryFile("w+") as told:
            child = subprocess.Popen(command(line, device, out), stdout=told, stderr=subprocess.STDOUT)
            try:
                child.wait(rng.uniform(0.35, 0.95) * seconds)
            except subprocess.TimeoutExpired:
                child.send_signal(strike)
                child.wait()
                stops += 1
            told.seek(0)
            if follows:
                note(told.read())
        if child.returncode == 0:
            return stops, places
    note(whole(line, device, out)[0])
    return stops, places


def numbers(out: Path) -> Iterator[tuple[str, float]]:
    """The rows of a folder, each with what it is of."""
    for file in sorted(out.glob("parts/*/rows.csv")):
        with file.open() as lines:
            for row in csv.DictReader(lines):
                yield str({name: value for name, value in row.items() if name != "value"}), float(row["value"])


def difference(one: Path, other: Path) -> Difference:
    """The largest differences between what two folders hold."""
    rows, others = dict(numbers(one)), dict(numbers(other))
    if not rows or rows.keys() != others.keys():
        raise SystemExit(f"{one} and {other} do not have the same rows")
    found = dict.fromkeys(("mean", "log_var"), 0.0)
    for file in one.glob("parts/*/predictive.safetensors"):
        tensors, matching = load_file(file), load_file(other / file.relative_to(one))
        for name, tensor in tensors.items():
            kind = name.rpartition(".")[2]
            if kind in found:
                found[kind] = max(found[kind], (tensor - matching[name]).abs().max().item())
    return Difference(max(abs(rows[name] - others[name]) for name in rows), found["mean"], found["log_var"])


def compared(line: str, device: str, folder: Path, seed: int, strike: int) -> Compared:
    """All runs of a line."""
    _, seconds = whole(line, device, folder / "whole")
    whole(line, device, folder / "again")
    stops, places = stopped(line, device, folder / "stopped", seconds, Random(seed), strike)
    return Compared(
        line, round(seconds, 1), stops, dict(places),
        difference(folder / "whole", folder / "again"), difference(folder / "whole", folder / "stopped"),
    )  # fmt: skip


def table(found: list[Compared], about: str) -> str:
    """The results as Markdown."""
    lines = [
        "| line | stops | went on | rows | means | log variances | the same, undisturbed |",
        "| --- | ---: | --- | ---: | ---: | ---: | --- |",
    ]
    for each in found:
        places = ", ".join(f"{count} {place}" for place, count in each.places.items())
        differ = " | ".join(f"{value:.2g}" for value in each.continued)
        repeat = ", ".join(f"{value:.2g}" for value in each.undisturbed)
        lines.append(f"| `{each.line}` | {each.stops} | {places} | {differ} | {repeat} |")
    return f"# Runs that were stopped and continued\n\n{about}\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Write continued.json and table.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--jobs", type=int, default=4, help="lines at once")
    parser.add_argument("--lines", type=int, default=len(LINES), help="the first so many lines alone")
    parser.add_argument("--signal", default="SIGKILL", choices=("SIGKILL", "SIGTERM"), help="what stops a process")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp())
    with ThreadPoolExecutor(given.jobs) as pool:
        lines = LINES[: given.lines]
        found = list(
            pool.map(
                lambda n: compared(lines[n], given.device, place / f"{n}", n, signal.Signals[given.signal]),
                range(len(lines)),
            )
        )
    shutil.rmtree(place)
    machine = torch.cuda.get_device_name() if given.device == "cuda" else f"{platform.machine()} CPU"
    about = (
        f"Largest differences from an undisturbed run, {machine}, torch {torch.__version__}, "
        f"`python tools/continued.py --device {given.device} --jobs {given.jobs} --signal {given.signal}`."
    )
    (given.out / "continued.json").write_text(json.dumps([each._asdict() for each in found], indent=1) + "\n")
    (given.out / "table.md").write_text(table(found, about))
    sys.stdout.write(table(found, about))


if __name__ == "__main__":
    main()
