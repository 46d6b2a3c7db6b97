"""Appendix D: two tasks of two Gaussians each in the plane, a network of 20 hidden units, two heads.

The green class has the same Gaussian in both tasks; the black class has another one in the second. The paper gives
neither means, nor variances, nor training settings, so those below are ours: Gaussians that overlap slightly, with the
second black class at a right angle to the first. Each seed has its own points and initial weights.

The paper says that EWC with lambda = 1, after the second task, "fails to learn the classifiers for both tasks". Here it
learns the second as well as plain fine-tuning does. It forgets the first, but unevenly: most seeds lose little, some
lose much. We tried 30 settings with 10 seeds each (black classes at a right angle, on opposite sides, or closer;
deviation 0.7 or 1; 200 to 3000 steps; rate 10^-3 or 10^-2). The first task lost 0 to 14 points on average; single seeds
lost up to all there was to lose. VCL lost less than 1 point in each setting, but with 200 steps at rate 10^-3 it had
not learned the second task where EWC had (68 % against 90 %, black classes on opposite sides). With lambda = 10^4 EWC
kept both tasks wherever it was tried.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp
from typing import Any

import torch
from torch import Tensor

from vcl.beliefs.point import Point
from vcl.coresets import Nothing
from vcl.data import Data, Source
from vcl.errors import NonFiniteError, unknown
from vcl.fitting.curvature import Curvature
from vcl.fitting.loop import Ascent
from vcl.lab.experiments.experiment import Preset
from vcl.lab.results import Summary, label, summarise
from vcl.lab.threads import one_thread
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.metrics import accuracy
from vcl.predicting.prediction import predict
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumLikelihood,
    Projection,
    VariationalKL,
)
from vcl.recursion import Method, State, Task, describe_set_aside, initial, learn, require_test_data

COLUMNS = ("kind", "method", "seed", "after", "task", "x1", "x2", "value")
BLACK = 1
"""The label of the black class; green is 0."""

PAPER: dict[str, Any] = {
    "green": [0.0, 0.0],
    "black": [[3.0, 0.0], [0.0, 3.0]],  # in the first and the second task
    "deviation": 0.7,
    "points": 100,  # per class, for training
    "test_points": 1000,
    "hidden": 20,
    "prior_var": 1.0,
    "epochs": 1000,  # steps on all data; VCL takes as many again for its maximum-likelihood start
    "lr": 0.01,
    "draws": 10,
    "estimator": "weights",
    "init_var": exp(-6),
    "init_sd": 0.1,
    "fisher": "empirical",
    "predict_draws": 100,
    "methods": [["vcl", None], ["ewc", 1.0], ["ewc", 10000.0], ["lp", 1.0], ["mle", None]],  # with their lambdas
    "drawn": ["vcl", "ewc lambda=1", "ewc lambda=10000"],  # methods whose probabilities are kept, for the first seed
    "window": [-3.0, 6.0],
    "grid": 41,
    "seeds": 10,
}
SETTINGS: dict[Preset, dict[str, Any]] = {
    "paper": PAPER,
    "quick": {**PAPER, "draws": 3, "grid": 31, "seeds": 5},
    "smoke": {**PAPER, "test_points": 50, "epochs": 5, "draws": 2, "predict_draws": 5, "grid": 7, "seeds": 2},
}


def compute(settings: Mapping[str, Any], device: torch.device) -> str:
    """CSV of the first seed's training points and probabilities over the plane, and every seed's accuracies."""
    rng = Rng(tuple(range(settings["seeds"])))
    tasks = [make_task(number, settings, rng, device) for number in (1, 2)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, task in enumerate(tasks, start=1):
        for (x1, x2), value in zip(task.train.x[0].tolist(), task.train.y[0].tolist(), strict=True):
            writer.writerow(("point", "", rng.seeds[0], "", number, f"{x1:.4f}", f"{x2:.4f}", value))
    with one_thread():
        for name, lam in settings["methods"]:
            writer.writerows(learned(name, lam, tasks, settings, rng))
    return out.getvalue()


def make_task(number: int, settings: Mapping[str, Any], rng: Rng, device: torch.device) -> Task:
    """Task 1 or 2: its training and test points, with its own head."""
    name = f"task {number}"
    means = torch.tensor([settings["green"], settings["black"][number - 1]])

    def draw(purpose: str, count: int) -> Data:
        noise = rng.at(purpose, number).per_run(lambda g: torch.randn(2, count, 2, generator=g))
        x = (means[:, None] + settings["deviation"] * noise).flatten(1, 2)  # [R, 2 count, 2], the green ones first
        y = torch.arange(2).repeat_interleave(count).expand(len(rng.seeds), -1)
        return Data(x, y, torch.zeros_like(y), (Source(name, name),)).to(device)

    return Task(name, draw("train", settings["points"]), draw("test", settings["test_points"]), {name: 2})


def projection(name: str, lam: float | None, settings: Mapping[str, Any]) -> Projection[Any]:
    """The projection of this method; all have the same number of steps, rate and initialisation."""
    ascent, sd = Ascent(settings["epochs"], None, settings["lr"]), settings["init_sd"]
    weight, phi = 1.0 if lam is None else lam, Curvature(settings["fisher"])
    found: dict[str, Callable[[], Projection[Any]]] = {
        "vcl": lambda: VariationalKL(
            ascent, settings["draws"], settings["estimator"], init_var=settings["init_var"], init_sd=sd
        ),
        "ewc": lambda: ElasticWeightConsolidation(ascent, weight, phi, init_sd=sd),
        "lp": lambda: LaplacePropagation(ascent, weight, phi, sd),
        "mle": lambda: MaximumLikelihood(ascent, sd),
    }
    if name not in found:
        raise unknown("method", name, found)
    return found[name]()


def learned(
    name: str, lam: float | None, tasks: Sequence[Task], settings: Mapping[str, Any], rng: Rng
) -> Iterator[tuple[object, ...]]:
    """The rows of one method: accuracies and probabilities on every task so far, after each task."""
    known = name if lam is None else label(name, lam)
    project = projection(name, lam, settings)
    model = Network(mlp(2, [settings["hidden"]]), settings["hidden"], Categorical(), settings["prior_var"])
    method: Method[Any] = Method(project, Nothing(), project)
    runs, device = len(rng.seeds), tasks[0].train.x.device
    draws = settings["predict_draws"] if name == "vcl" else 1  # the others predict with a point estimate
    plane = grid(settings).to(device)

    def probabilities(state: State[Any], x: Tensor, task: Task) -> Tensor:
        belief = state.predictive[task.name]
        belief = belief if name == "vcl" else Point(belief.layout, belief.mean)
        return predict(belief, model, x, task.name, rng.at("evaluate", state.t, task.name), draws)

    for state in learn(initial(model, method, runs, device), tasks, model, method, rng):
        if state.set_aside:
            raise NonFiniteError(describe_set_aside(state))
        for number, task in enumerate(tasks[: state.t], start=1):
            test = require_test_data(task)
            right = accuracy(probabilities(state, test.x, task), test.y).tolist()
            for seed, value in zip(rng.seeds, right, strict=True):
                yield "accuracy", known, seed, state.t, number, "", "", repr(value)
            if known in settings["drawn"]:
                black = probabilities(state, plane.expand(runs, -1, -1), task)[0, :, BLACK]
                for (x1, x2), value in zip(plane.tolist(), black.tolist(), strict=True):
                    yield "probability", known, rng.seeds[0], state.t, number, f"{x1:.4f}", f"{x2:.4f}", f"{value:.4f}"


def grid(settings: Mapping[str, Any]) -> Tensor:
    """The points [grid^2, 2] at which probabilities are evaluated."""
    low, high = settings["window"]
    side = torch.linspace(low, high, settings["grid"])
    return torch.cartesian_prod(side, side)


def measures(rows: Sequence[Mapping[str, str]]) -> dict[str, Summary]:
    """The numbers of :func:`by_seed`, summarised."""
    values = {name: list(seeds.values()) for name, seeds in by_seed(rows).items()}
    return {name: summarise(torch.tensor(each, dtype=torch.float64)) for name, each in values.items()}


def by_seed(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[int, float]]:
    """Accuracy in %, by seed: for each method, on each task after each task, and on both at the end."""
    found: dict[str, dict[int, float]] = {}
    for name in dict.fromkeys(row["method"] for row in rows if row["kind"] == "accuracy"):
        mine = [row for row in rows if (row["kind"], row["method"]) == ("accuracy", name)]
        for row in mine:
            place = f"{name}: task {row['task']} after task {row['after']}"
            found.setdefault(place, {})[int(row["seed"])] = 100 * float(row["value"])
        last = max(int(row["after"]) for row in mine)
        ends: dict[int, list[float]] = {}
        for row in mine:
            if int(row["after"]) == last:
                ends.setdefault(int(row["seed"]), []).append(100 * float(row["value"]))
        found[f"{name}: both tasks after task {last}"] = {seed: sum(each) / len(each) for seed, each in ends.items()}
    return found
