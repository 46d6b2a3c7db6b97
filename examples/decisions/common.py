"""What the scripts of this folder share: options, baselines with the learner's words, scores, and files of results."""

from __future__ import annotations

import argparse
import csv
import json
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import process_time
from typing import Any, Self

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import vcl
from vcl.lab.figures.style import save
from vcl.lab.provenance import made_by
from vcl.learner.defaults import Effort
from vcl.learner.scaling import Standardize, learned

Row = dict[str, Any]

SMALLEST = 1e-6
"""Probabilities below this count as this much in a log-loss, so that one sure mistake costs at most 14 nats."""


def options(
    doc: str | None, seeds: int, given: Sequence[str] | None = None, parts: Sequence[str] = ()
) -> argparse.Namespace:
    """The command line of a script: how many seeds, where the results go, a quick try, and which of its ``parts``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"seeds 0, 1, ... (default {seeds})")
    parser.add_argument("--quick", action="store_true", help="a try of some seconds; its numbers mean nothing")
    parser.add_argument("--add", action="store_true", help="keep the seeds that the folder has, and run the others")
    parser.add_argument("--out", type=Path, default=Path("results/decisions"), help="folder of tables and figures")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="leave out the others")
    found = parser.parse_args(given)
    if found.quick:
        found.seeds = min(found.seeds, 2)
    torch.set_num_threads(1)
    return found


# Baselines.


class Baseline:
    """A projection without a posterior for predictions, such as fine-tuning, with as many steps as the learner takes.

    ``outputs`` is the size of the one shared head; labels are 0, 1, ... Tables are scaled as the learner scales them.
    """

    def __init__(
        self, net: nn.Module, features: int, outputs: int, project: str, lam: float = 1.0, seed: int = 0,
        standardize: Standardize = "auto",
        epochs: int | None = None,
    ) -> None:  # fmt: skip
        self.model = vcl.Network(net, features, vcl.Categorical(), start="module")
        self.outputs, self.project, self.lam, self.rng = outputs, project, lam, vcl.Rng(seed)
        self.state: Any = None
        self.scaling: Any = None
        self.effort, self.standardize = Effort(epochs), standardize

    def method(self, examples: int) -> vcl.Method[Any]:
        """Fine-tuning or EWC."""
        how = self.effort.ascent(examples)
        if self.project == "fine-tuning":
            return vcl.Method(vcl.MaximumLikelihood(how))
        return vcl.Method(vcl.ElasticWeightConsolidation(how, self.lam))

    def rows(self, x: Any) -> torch.Tensor:
        """Inputs as the network takes them."""
        given = torch.as_tensor(x)
        return given if self.scaling is None else self.scaling(given.double()).float()

    def update(self, x: Any, y: Any, task: str | None = None) -> Self:
        """Learn from x with the labels y."""
        method = self.method(len(x))
        if self.state is None:
            self.scaling = learned(torch.as_tensor(x), self.standardize)
            self.state = vcl.initial(self.model, method, 1)
        name = f"{self.state.t}"
        data = vcl.dataset(self.rows(x), torch.as_tensor(y).long(), name, "all")
        task_now = vcl.Task(name, data, heads={"all": self.outputs})
        (self.state,) = vcl.learn(self.state, [task_now], self.model, method, self.rng)
        return self

    def predict_proba(self, x: Any) -> np.ndarray:
        """p(y | x) [N, C]."""
        found = vcl.predict(self.state, self.model, self.rows(x)[None], "all", self.rng, 1)[0]
        return np.asarray(found.double())


# Scores.


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    """-log p(y), on average, for labels that are the columns of p."""
    return float(-np.log(np.clip(p[np.arange(len(y)), y], SMALLEST, 1)).mean())


def accuracy(p: np.ndarray, y: np.ndarray) -> float:
    """In per cent."""
    return float(100 * (p.argmax(1) == y).mean())


def ece(p: np.ndarray, y: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error in per cent: the mean distance of confidence and accuracy over bins of confidence."""
    sure, right = p.max(1), p.argmax(1) == y
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = [abs(right[place == b].sum() - sure[place == b].sum()) for b in range(bins)]
    return float(100 * sum(gaps) / len(y))


def auroc(negative: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive example has a larger score than a negative one; ties count half."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left")
    not_above = np.searchsorted(ordered, positive, "right")
    return float((below + not_above).sum() / (2 * len(negative) * len(positive)))


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """The mean and its standard error over seeds."""
    found = np.array(list(values), dtype=float)
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else float("nan")


def cell(values: Iterable[float], digits: int = 1) -> str:
    """A mean and its standard error, for a table."""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" if np.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"


# Results.


class Results:
    """The rows, the table and the figure of one script, in one folder."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self.name, self.out, self.given = name, given.out, given
        self.rows: list[Row] = []
        self.begun, self.spent = process_time(), 0.0
        self.made: list[Row] = []
        self.before: list[str] = []
        if given.add and (self.out / f"{name}.csv").exists():
            with (self.out / f"{name}.csv").open(newline="") as file:
                self.rows = [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(file)]
            about = json.loads((self.out / f"{name}.json").read_text())
            self.spent, self.made, self.before = about["seconds"], about["made"], about["command"].split("; ")

    def seeds(self) -> list[int]:
        """The seeds of all rows."""
        return sorted({row["seed"] for row in self.rows})

    def missing(self) -> list[int]:
        """The seeds that have no rows yet."""
        return [seed for seed in range(self.given.seeds) if seed not in self.seeds()]

    def add(self, **row: Any) -> None:
        """One row of the CSV."""
        self.rows.append(row)

    def where(self, **wanted: Any) -> list[Row]:
        """The rows with these values."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in wanted.items())]

    def values(self, of: str, **wanted: Any) -> list[float]:
        """One column of the rows with these values."""
        return [row[of] for row in self.where(**wanted)]

    def keep(self) -> dict[str, Any]:
        """NAME.csv, and in NAME.json how the rows were made, which it returns; a stop loses one seed at most."""
        self.out.mkdir(parents=True, exist_ok=True)
        about = {
            "command": self.command(),
            "seeds": self.seeds(), "seconds": round(self.spent + process_time() - self.begun, 1),
            "machine": f"{platform.machine()}, 1 thread", "made": self.made_so_far(),
        }  # fmt: skip
        (self.out / f"{self.name}.json").write_text(json.dumps(about, indent=2) + "\n")
        with (self.out / f"{self.name}.csv").open("w", newline="") as file:
            names = list(dict.fromkeys(name for row in self.rows for name in row))
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: _short(value) for name, value in row.items()} for row in self.rows)
        return about

    def command(self) -> str:
        """The command of these rows. Where ``--only`` left out parts, also the commands that others were made by."""
        given = [each for each in sys.argv[1:] if each != "--add"]
        now = shlex.join(["python", f"examples/decisions/{Path(sys.argv[0]).name}", *given])
        return "; ".join(dict.fromkeys([*(self.before if "--only" in given else []), now]))

    def made_so_far(self) -> list[Row]:
        """By which code each seed was made: seeds of an earlier command keep theirs."""
        old = {seed for each in self.made for seed in each["seeds"]}
        new = [seed for seed in self.seeds() if seed not in old]
        return [*self.made, {"seeds": new, **made_by()}] if new else self.made

    def write(self, heading: Sequence[str], table: Sequence[Sequence[str]], figure: Figure, note: str) -> None:
        """The rows, NAME.md, NAME.png and NAME.svg; prints the table."""
        about = self.keep()
        minutes, text = about["seconds"] / 60, markdown(heading, table)
        made = f"`{about['command']}`, {len(self.seeds())} seeds, {minutes:.1f} minutes of one core."
        (self.out / f"{self.name}.md").write_text(f"{text}\n\n{note}\n\n{made}\n")
        save(figure, self.out / self.name)
        print(text)


def markdown(heading: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [heading, ["---"] * len(heading), *table]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def say(text: str) -> None:
    """A line of progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
