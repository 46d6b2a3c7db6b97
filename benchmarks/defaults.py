"""The defaults of learners, on tables, images and streams that differ in everything, beside other methods.

    python benchmarks/defaults.py [--seeds 3] [--only wine,digits] [--tune] [--quick]

Each stream is learned by one ``update`` after another and judged at its end on held-out examples of all updates:
accuracy, log-loss and calibration error (ECE) of classes; RMSE in deviations of the target and coverage of 90 %
intervals of numbers. ``--tune`` holds out other examples, a part of the training data: choose settings with it, and
report without it.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import datasets
from torch import nn

import vcl
from vcl.lab.provenance import made_by

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "decisions"))

from common import Baseline, accuracy, ece, log_loss, markdown

Pair = tuple[np.ndarray, np.ndarray]


class Case(NamedTuple):
    """A stream of updates, held-out examples, and the network for it."""

    updates: list[Pair]
    test: Pair
    net: Callable[[], nn.Module]
    features: int


def table(x: np.ndarray, y: np.ndarray, updates: int, random: np.random.Generator, tune: bool, by: Any = None) -> Case:
    """Updates in random order, or in the order of ``by``; 30 % are held out (with ``tune``: 30 % of the others)."""
    order = np.random.default_rng(7).permutation(len(x))  # the same for all seeds
    cut = len(order) * 7 // 10
    train, test = order[:cut], order[cut:]
    if tune:
        train, test = train[: cut * 7 // 10], train[cut * 7 // 10 :]
    train = random.permutation(train)
    if by is not None:
        train = train[np.argsort(by[train], kind="stable")]
    parts = [(x[part], y[part]) for part in np.array_split(train, updates)]
    return Case(parts, (x[test], y[test]), lambda: vcl.mlp(x[0].size, (50, 50)), 50)


class Conv(nn.Module):
    """A small convolutional network for 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 8, 8] to [N, 64]."""
        return self.layers(x.unsqueeze(1))


def made(rows: int, columns: int, classes: int, **more: Any) -> Pair:
    """scikit-learn's made-up classes."""
    given = {"n_informative": min(columns, 10), "n_redundant": 0, "random_state": 1, "n_clusters_per_class": 1, **more}
    return datasets.make_classification(rows, columns, n_classes=classes, **given)


def wave(rows: int) -> Pair:
    """A noisy sine over one column."""
    random = np.random.default_rng(3)
    x = random.uniform(-3, 3, (rows, 1))
    return x, np.sin(2 * x[:, 0]) + 0.1 * random.standard_normal(rows)


def classification(name: str, random: np.random.Generator, tune: bool) -> Case:
    """A stream of classes."""
    digits = datasets.load_digits(return_X_y=True)
    match name:
        case "iris, 2 updates":
            return table(*datasets.load_iris(return_X_y=True), 2, random, tune)
        case "wine, 3 updates":
            return table(*datasets.load_wine(return_X_y=True), 3, random, tune)
        case "cancer, 5 updates":
            return table(*datasets.load_breast_cancer(return_X_y=True), 5, random, tune)
        case "cancer, 20 updates":
            return table(*datasets.load_breast_cancer(return_X_y=True), 20, random, tune)
        case "digits, 5 updates":
            return table(*digits, 5, random, tune)
        case "digits, by their ink, 5 updates":
            return table(*digits, 5, random, tune, digits[0].sum(1))
        case "digits, convolutions, 3 updates":
            case = table(digits[0].reshape(-1, 8, 8) / 16, digits[1], 3, random, tune)
            return case._replace(net=Conv, features=64)
        case "grey digits, 10 updates of 20":
            case = table(digits[0] / 16, digits[1], 1, random, tune)
            x, y = case.updates[0]
            return case._replace(
                updates=[(x[first : first + 20], y[first : first + 20]) for first in range(0, 200, 20)]
            )
        case "rare class (3 %), 4 updates":
            return table(*made(2000, 10, 2, weights=(0.97,), n_informative=5), 4, random, tune)
        case "100 rows of 100 columns, 2 updates":
            return table(*made(100, 100, 2), 2, random, tune)
        case "20 classes, 20,000 rows, 3 updates":
            return table(*made(20000, 20, 20), 3, random, tune)
    raise ValueError(name)


CLASSES = (
    "iris, 2 updates", "wine, 3 updates", "cancer, 5 updates", "cancer, 20 updates", "digits, 5 updates",
    "digits, by their ink, 5 updates", "digits, convolutions, 3 updates", "grey digits, 10 updates of 20",
    "rare class (3 %), 4 updates", "100 rows of 100 columns, 2 updates", "20 classes, 20,000 rows, 3 updates",
)  # fmt: skip


def regression(name: str, random: np.random.Generator, tune: bool) -> Case:
    """A stream of numbers."""
    match name:
        case "diabetes, 4 updates":
            return table(*datasets.load_diabetes(return_X_y=True), 4, random, tune)
        case "friedman, 5 updates":
            return table(*datasets.make_friedman1(1500, 10, noise=1.0, random_state=1), 5, random, tune)
        case "200 rows of 100 columns, 2 updates":
            return table(*datasets.make_regression(200, 100, noise=10, random_state=1), 2, random, tune)
        case "sine, 1 column, 4 updates":
            return table(*wave(400), 4, random, tune)
        case "sine, left to right, 4 updates":
            x, y = wave(400)
            return table(x, y, 4, random, tune, x[:, 0])
    raise ValueError(name)


NUMBERS = (
    "diabetes, 4 updates", "friedman, 5 updates", "200 rows of 100 columns, 2 updates", "sine, 1 column, 4 updates",
    "sine, left to right, 4 updates",
)  # fmt: skip

METHODS = ("default", "mean-field", "laplace", "fine-tuning")


def classes_of(case: Case, method: str, seed: int, quick: bool) -> dict[str, float]:
    """Scores of a classifier."""
    torch.manual_seed(seed)
    net, count = case.net(), 1 + int(max(y.max() for _, y in case.updates))
    learner: Any
    if method == "fine-tuning":
        learner = Baseline(net, case.features, count, method, seed=seed)
    else:
        way: Any = "structured" if method == "default" else method
        few = {"epochs": 2} if quick else {}
        learner = vcl.ContinualClassifier(net, method=way, classes=list(range(count)), seed=seed, verbose=0, **few)
    for x, y in case.updates:
        learner.update(x, y)
    p, y = learner.predict_proba(case.test[0]), case.test[1]
    return {"accuracy": accuracy(p, y), "log-loss": log_loss(p, y), "ECE": ece(p, y)}


def numbers_of(case: Case, method: str, seed: int, quick: bool) -> dict[str, float]:
    """Scores of a regressor; fine-tuning takes the residuals of its last update for its noise."""
    torch.manual_seed(seed)
    net = case.net()
    (x, y), width = case.test, float(np.concatenate([y for _, y in case.updates]).std())
    if method == "fine-tuning":
        low, mean, high = tuned_numbers(net, case, seed)
    else:
        way: Any = "structured" if method == "default" else method
        learner = vcl.ContinualRegressor(net, method=way, seed=seed, verbose=0, epochs=2 if quick else None)
        for each in case.updates:
            learner.update(*each)
        (low, high), mean = learner.intervals(x), np.asarray(learner.predict(x))
    error = float(np.sqrt(((mean - y) ** 2).mean())) / width
    inside = float(100 * ((low <= y) & (y <= high)).mean())
    return {"RMSE": error, "coverage": inside, "interval": float((high - low).mean()) / width}


def tuned_numbers(net: nn.Module, case: Case, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower bounds, means and upper bounds of fine-tuning by least squares."""
    model = vcl.Network(net, case.features, vcl.Normal(), start="module")
    x, y = (torch.from_numpy(part) for part in case.updates[0])
    scaling, targets = vcl.learner.scaling.learned(x, "auto"), vcl.learner.scaling.of_targets(y)
    assert scaling is not None
    state: Any = None
    for number, (x, y) in enumerate(case.updates):
        method = vcl.Method(vcl.MaximumLikelihood(vcl.learner.defaults.Effort().ascent(len(x))))
        state = vcl.initial(model, method, 1) if state is None else state
        rows, goal = scaling(torch.from_numpy(x)).float(), targets(torch.from_numpy(y)).float()
        task = vcl.Task(f"{number}", vcl.dataset(rows, goal, f"{number}", "all"), heads={"all": 1})
        (state,) = vcl.learn(state, [task], model, method, vcl.Rng(seed))

    def at(x: np.ndarray) -> np.ndarray:
        found = vcl.predict(state, model, scaling(torch.from_numpy(x)).float()[None], "all", vcl.Rng(seed), 1)
        return targets.inverse(_mean(found).double()).numpy().reshape(-1)

    mean, spread = at(case.test[0]), float((at(case.updates[-1][0]) - case.updates[-1][1]).std())
    return mean - 1.645 * spread, mean, mean + 1.645 * spread


def _mean(found: Any) -> torch.Tensor:
    """The mean of a regression's prediction [1, N, 1, ...]."""
    return found[0][..., 0, 0] if found.dim() == 4 else found[0][..., 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="streams whose names begin so, separated by semicolons")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="a CSV file of rows")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*standard deviations from the first update.*")
    wanted = tuple(given.only.split(";"))
    for heads, names, case_of, scores_of in (
        (("accuracy", "log-loss", "ECE"), CLASSES, classification, classes_of),
        (("RMSE", "coverage", "interval"), NUMBERS, regression, numbers_of),
    ):
        rows: list[dict[str, Any]] = []
        for name in (name for name in names if name.startswith(wanted)):
            for method in given.methods.split(","):
                for seed in range(given.seeds):
                    case = case_of(name, np.random.default_rng(seed + 100 * given.tune), given.tune)
                    begun = process_time()
                    found = scores_of(case, method, seed, given.quick)
                    rows.append(
                        {"stream": name, "method": method, "seed": seed, **found, "seconds": process_time() - begun}
                    )
                mine = [row for row in rows if (row["stream"], row["method"]) == (name, method)]
                print(name, method, *(f"{head} {np.mean([r[head] for r in mine]):.3f}" for head in (*heads, "seconds")),
                      file=sys.stderr, flush=True)  # fmt: skip
        if rows:
            print(markdown(("stream", "method", *heads, "seconds"), summary(rows, (*heads, "seconds"))) + "\n")
        if rows and given.out is not None:
            write(given.out.with_stem(f"{given.out.stem}-{scores_of.__name__.removesuffix('_of')}"), rows)


def summary(rows: list[dict[str, Any]], heads: tuple[str, ...]) -> list[list[str]]:
    """A line for each stream and method: means over seeds."""
    found = []
    for stream, method in dict.fromkeys((row["stream"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["stream"], row["method"]) == (stream, method)]
        found.append([stream, method, *(f"{np.mean([row[head] for row in mine]):.{DIGITS[head]}f}" for head in heads)])
    return found


DIGITS = {"accuracy": 1, "log-loss": 3, "ECE": 1, "RMSE": 2, "coverage": 0, "interval": 2, "seconds": 1}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    command = shlex.join(["python", "benchmarks/defaults.py", *sys.argv[1:]])
    about = {"command": command, "machine": f"{platform.machine()}, 1 thread", **made_by()}
    path.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
