"""Ten clients with two digits each, on MNIST: partitioned VI beside federated averaging and all data in one place.

    python benchmarks/clients.py [--quick] [--tune] [--only "FedAvg"] [--out results/clients]

Client k has half of the images of digit k and half of those of digit k + 1, of the first 10,000 training images (fewer
for the digits that are rare among them, so that all clients have as many). Every method has the network 784-100-10,
Adam and the same number of steps: 25 rounds of 2 epochs of each client in batches of 50, or as many steps in one fit.
Judged on all 10,000 test images by probabilities averaged over 50 draws of the weights (one for points). ``--tune``
tries each method's settings with one seed and judges by 2,000 other training images; report without it.
"""

from __future__ import annotations

import argparse
import csv
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import torch
from torch import Tensor

import vcl
from vcl.beliefs import combine
from vcl.beliefs.point import Point
from vcl.errors import VclError
from vcl.lab.datasets import load
from vcl.lab.provenance import made_by
from vcl.predicting.metrics import accuracy, calibration_error, log_predictive
from vcl.projections import MaximumLikelihood, Target

CLIENTS, HEADS = 10, {"all": 10}
SCORES = ("accuracy", "log predictive", "calibration error")


class Budget(NamedTuple):
    """How much is learned from and how long."""

    images: int = 10_000
    held_out: int = 2_000
    rounds: int = 25
    epochs: int = 2
    batch: int = 50
    hidden: int = 100
    draws: int = 50
    seeds: int = 3


QUICK = Budget(images=400, held_out=100, rounds=2, epochs=1, batch=20, hidden=10, draws=2, seeds=1)


class Way(NamedTuple):
    """A method with what is tuned: Adam's rate, and the share of a new factor or average in a step."""

    name: str
    lr: float
    damping: float = 1.0


WAYS = (
    Way("batch VI", 2e-3),
    Way("PVI", 1e-3, 0.2),
    Way("PVI, in turn", 1e-3, 0.2),
    Way("one round, combine", 2e-3),
    Way("batch maximum likelihood", 5e-3),
    Way("FedAvg", 2e-3),
)
"""With the settings of the best accuracy by ``--tune`` (results/clients/tuning.csv)."""

GRID = (1e-3, 2e-3, 5e-3, 1e-2)
DAMPINGS = {"PVI": (0.1, 0.2, 0.5), "PVI, in turn": (0.1, 0.2)}


class Work(NamedTuple):
    """What all methods share: each client's data, all of it in one place, the network and the seeds."""

    clients: list[vcl.Data]
    together: vcl.Data
    model: vcl.Network
    seeds: tuple[int, ...]
    budget: Budget


def divided(y: Tensor, clients: int) -> list[Tensor]:
    """The positions of each client's examples: equal numbers of digit k (first half) and of k + 1 (second half)."""
    places = [torch.nonzero(y == digit).flatten() for digit in range(clients)]
    half = min(len(each) for each in places) // 2
    return [torch.cat([places[k][:half], places[(k + 1) % clients][half : 2 * half]]) for k in range(clients)]


def work_of(x: Tensor, y: Tensor, budget: Budget, seeds: Sequence[int]) -> Work:
    """The clients of these images."""
    parts = divided(y, CLIENTS)
    whole = torch.cat(parts)
    return Work(
        [vcl.dataset(x[part], y[part], f"client {k}", "all", runs=len(seeds)) for k, part in enumerate(parts)],
        vcl.dataset(x[whole], y[whole], "all data", "all", runs=len(seeds)),
        vcl.Network(vcl.mlp(784, (budget.hidden,)), budget.hidden, vcl.Categorical()),
        tuple(seeds),
        budget,
    )


def ascents(lr: float, budget: Budget, size: int, together: int) -> tuple[vcl.Ascent, vcl.Ascent, vcl.Ascent]:
    """Of a client in one round, of a client in one round for all, and of all data in one place: as many steps."""
    local = vcl.Ascent(budget.epochs, budget.batch, lr)
    epochs = budget.rounds * budget.epochs
    share = CLIENTS * local.steps(size) / local.steps(together)
    return local, replace(local, epochs=epochs), replace(local, epochs=round(share * epochs))


def rounds(way: Way, work: Work) -> Iterator[tuple[int, Any]]:
    """The belief after each round, or after the only one."""
    clients, together, model, seeds, budget = work
    rng = vcl.Rng(seeds)
    local, once, all_of_it = ascents(way.lr, budget, clients[0].size, together.size)
    prior = model.prior(HEADS).expand(len(seeds))
    vi = vcl.VariationalKL(local, 1, "local", ml_start=False)
    match way.name:
        case "batch VI":
            project = replace(vi, ascent=all_of_it)
            yield 1, project(Target(project.initial(prior), model, together, prior), rng)
        case "one round, combine":
            project = replace(vi, ascent=once)
            alone = [project(Target(prior, model, data, prior), rng.at("alone")) for data in clients]
            yield 1, combine(alone, prior=prior)
        case "PVI" | "PVI, in turn":
            inference = vcl.PartitionedVI(vi, way.damping, in_turn=way.name == "PVI, in turn")
            state = inference.initial(model, HEADS, len(clients), len(seeds))
            for number in range(1, budget.rounds + 1):
                state = inference.round(state, clients, model, rng)
                yield number, state.belief
        case "batch maximum likelihood":
            point = MaximumLikelihood(all_of_it)
            yield 1, point(Target(point.initial(prior), model, together, prior), rng)
        case "FedAvg":
            point = MaximumLikelihood(local)
            q = point.initial(prior)
            for number in range(1, budget.rounds + 1):
                # As in partitioned VI, all clients begin alike.
                at = [rng.at("round", number, *(("client", k) if number > 1 else ())) for k in range(len(clients))]
                found = [point(Target(q, model, data, prior), own).mean for data, own in zip(clients, at, strict=True)]
                q = Point(q.layout, torch.stack(found).mean(0))
                yield number, q
        case _:
            raise ValueError(way.name)


def scores(belief: Any, work: Work, x: Tensor, y: Tensor) -> list[dict[str, float]]:
    """Of each seed, on these images."""
    draws = 1 if isinstance(belief, Point) else work.budget.draws
    inputs = x.expand(len(work.seeds), *x.shape)
    p = vcl.predict(belief, work.model, inputs, "all", vcl.Rng(work.seeds).at("judge"), draws)
    found = [metric(p, y.expand(len(p), -1)) for metric in (accuracy, log_predictive, calibration_error)]
    return [dict(zip(SCORES, (float(each[run]) for each in found), strict=True)) for run in range(len(p))]


def tried(way: Way, work: Work, x: Tensor, y: Tensor) -> Iterator[dict[str, Any]]:
    """A row for each seed and round; what a method refuses to give is said in its only row."""
    began = process_time()
    about = {"method": way.name, "lr": way.lr, "damping": way.damping}
    try:
        for number, belief in rounds(way, work):
            spent = process_time() - began
            for seed, found in zip(work.seeds, scores(belief, work, x, y), strict=True):
                yield {**about, "seed": seed, "round": number, **found, "seconds": round(spent, 1)}
    except VclError as error:
        yield {**about, "refused": str(error)}


def candidates() -> Iterator[Way]:
    """What ``--tune`` tries."""
    for way in WAYS:
        for lr in GRID:
            for damping in DAMPINGS.get(way.name, (1.0,)):
                yield way._replace(lr=lr, damping=damping)


def table(rows: Sequence[dict[str, Any]], ways: Sequence[Way]) -> str:
    """The last round of each method: means over seeds, with the standard error of the accuracy."""
    notes, lines = (
        list[str](),
        ["| method | Adam's rate | damping | rounds | accuracy, % | log predictive | calibration error |"],
    )
    lines.append("| --- " + "| ---: " * 6 + "|")
    for way in ways:
        mine = [row for row in rows if (row["method"], row["lr"], row["damping"]) == way]
        damping = f"{way.damping:g}" if way.name.startswith("PVI") else "-"
        if "refused" in mine[-1]:
            done = max((row["round"] for row in mine if "round" in row), default=0)
            lines.append(f"| {way.name} | {way.lr:g} | {damping} | {done} | refused | | |")
            notes.append(f"Refused: {way.name}, after round {done}: {mine[-1]['refused']}\n")
            continue
        last = [row for row in mine if row["round"] == mine[-1]["round"]]
        right, log, gap = (torch.tensor([row[name] for row in last], dtype=torch.float64) for name in SCORES)
        error = f" ± {100 * right.std() / len(last) ** 0.5:.1f}" if len(last) > 1 else ""
        lines.append(
            f"| {way.name} | {way.lr:g} | {damping} | {mine[-1]['round']} | {100 * right.mean():.1f}{error} | "
            f"{log.mean():.3f} | {gap.mean():.3f} |"
        )
    return "\n".join([*lines, "", *notes])


def main(given: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Learn by every method; print, write, and return the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny budget; its numbers mean nothing")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--only", default="", help="methods, separated by semicolons")
    parser.add_argument("--out", type=Path, help="a folder for table.md and rows.csv")
    asked = parser.parse_args(given)
    torch.set_num_threads(1)
    budget = QUICK if asked.quick else Budget(seeds=1) if asked.tune else Budget()
    began, images = process_time(), load("mnist", fetch=False)
    x = torch.as_tensor(images.train_x).reshape(-1, 784)
    y = torch.as_tensor(images.train_y).long()
    train, held_out = slice(0, budget.images), slice(budget.images, budget.images + budget.held_out)
    judge = (x[held_out], y[held_out])
    if not asked.tune:
        judge = (torch.as_tensor(images.test_x).reshape(-1, 784), torch.as_tensor(images.test_y).long())
    seeds = range(100, 100 + budget.seeds) if asked.tune else range(budget.seeds)
    work = work_of(x[train], y[train], budget, seeds)
    wanted = asked.only.split(";") if asked.only else [way.name for way in WAYS]
    ways = [way for way in (candidates() if asked.tune else WAYS) if way.name in wanted]
    rows = list[dict[str, Any]]()
    for way in ways:
        rows += tried(way, work, *judge)
        print(way, rows[-1], file=sys.stderr, flush=True)
    versions = ", ".join(f"{name} {value}" for name, value in made_by().items())
    command = shlex.join(["python", "benchmarks/clients.py", *sys.argv[1:]])
    head = (
        f"# Ten clients with two digits each\n\n    {command}\n\n"
        f"{versions}; {platform.system()} {platform.machine()}, one thread; seeds {seeds[0]} to {seeds[-1]}; "
        f"{work.clients[0].size} images a client; {process_time() - began:.0f} s of processor time.\n\n"
    )
    print(head + table(rows, ways))
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "table.md").write_text(head + table(rows, ways), encoding="utf-8")
        with (asked.out / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            names = list(dict.fromkeys(name for row in rows for name in row))
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return rows


if __name__ == "__main__":
    main()
