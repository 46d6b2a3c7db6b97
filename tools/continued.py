"""Stop runs on a device at random instants, continue them, and compare them with runs that nothing stopped.

    python tools/continued.py --device cuda --out results/continued

Every line of ``LINES`` runs three times: twice undisturbed, which shows what the device itself repeats, and once
stopped several times and continued. The table has the largest differences between the rows, between the objectives of
all epochs, and between all tensors of the posteriors. On a CPU every one must be 0, which ``tools/faults`` tests.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from math import isfinite, nan
from pathlib import Path
from random import Random
from time import monotonic
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

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
    objectives: float
    """Of every epoch."""
    tensors: float
    """Of the posterior, every one."""


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
                child.wait(LIMIT)
                stops += 1
            else:
                if child.returncode != 0:
                    told.seek(0)
                    raise SystemExit(f"{line}: {told.read().strip().splitlines()[-1]}") from None
            finally:
                child.kill()
            told.seek(0)
            if follows:
                note(told.read())
        if child.returncode == 0:
            return stops, places
    note(whole(line, device, out)[0])
    return stops, places


def values(out: Path, name: str) -> dict[str, float]:
    """The last column of a table that every part has, by the other columns."""
    found = {}
    for file in sorted(out.glob(f"parts/*/{name}")):
        with file.open() as lines:
            for *key, value in list(csv.reader(lines))[1:]:
                found[", ".join(key)] = float(value)
    return found


def tensors(out: Path) -> dict[str, Tensor]:
    """The tensors of every part's posterior, by the part's folder and their names."""
    return {
        f"{file.parent.name} {name}": tensor.double()
        for file in sorted(out.glob("parts/*/predictive.safetensors"))
        for name, tensor in load_file(file).items()
    }


def largest(one: dict[str, float], other: dict[str, float], what: str) -> float:
    """The largest difference; SystemExit where there is nothing, something else, or what is not finite."""
    differences = [abs(value - other.get(name, nan)) for name, value in one.items()]
    if not one or one.keys() != other.keys() or not all(map(isfinite, differences)):
        raise SystemExit(f"{what}: two runs do not have the same finite values")
    return max(differences)


def difference(line: str, one: Path, other: Path) -> Difference:
    """The largest differences between what two folders hold."""
    mine, theirs = tensors(one), tensors(other)
    apart = {name: (each - theirs[name]).abs().max().item() if name in theirs else nan for name, each in mine.items()}
    return Difference(
        largest(values(one, "rows.csv"), values(other, "rows.csv"), f"{line}: rows"),
        largest(values(one, "objective.csv"), values(other, "objective.csv"), f"{line}: objectives"),
        largest(apart, dict.fromkeys(theirs, 0.0), f"{line}: posterior"),
    )


def compared(line: str, device: str, folder: Path, seed: int, strike: int) -> Compared:
    """All runs of a line."""
    _, seconds = whole(line, device, folder / "whole")
    whole(line, device, folder / "again")
    stops, places = stopped(line, device, folder / "stopped", seconds, Random(seed), strike)
    return Compared(
        line, round(seconds, 1), stops, dict(places),
        difference(line, folder / "whole", folder / "again"), difference(line, folder / "whole", folder / "stopped"),
    )  # fmt: skip


def table(found: list[Compared], about: str) -> str:
    """The results as Markdown."""
    lines = [
        "| line | stops | went on | rows | objectives | posterior | the same, undisturbed |",
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
    strike, lines = signal.Signals[given.signal], LINES[: given.lines]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        places = [Path(folder, str(number)) for number in range(len(lines))]
        made = pool.map(lambda n: compared(lines[n], given.device, places[n], n, strike), range(len(lines)))
        found = list(made)
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
