"""Active learning on digits: how many labels are needed for 95 %, asking where the learner is unsure.

    python examples/decisions/active_learning.py [--quick]

The learner starts with 20 random labels. Then 20 at a time are asked for and learned by one ``update``: those of the
largest epistemic uncertainty (BALD), or random ones. Old labels are never shown again. Labels are counted until the
accuracy on test images first reaches 95 %.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from common import Results, accuracy, cell, log_loss, options, say
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import vcl
from vcl.lab.figures.style import colour

GOAL, AT_ONCE, MOST = 95.0, 20, 600
WAYS = ("random", "BALD")


def ask(
    way: str, learner: vcl.ContinualClassifier, x: np.ndarray, count: int, random: np.random.Generator
) -> np.ndarray:
    """The positions in x of the examples whose labels are wanted next."""
    if way == "random":
        return random.permutation(len(x))[:count]
    unsure = learner.uncertainty(x)
    return np.argsort(-unsure.epistemic, kind="stable")[:count]


def one(way: str, seed: int, quick: bool, results: Results) -> None:
    """Ask and learn until the goal is reached."""
    x, y = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    order = random.permutation(len(x))
    pool, test = order[:1200], order[1200:]
    torch.manual_seed(seed)
    learner = vcl.ContinualClassifier(
        vcl.mlp(64, (100,)), classes=list(range(10)), seed=seed, verbose=0, epochs=2 if quick else None
    )
    wanted, labels = pool[:AT_ONCE], 0
    while True:
        learner.update(x[wanted], y[wanted])
        labels += len(wanted)
        pool = np.setdiff1d(pool, wanted)
        p = learner.predict_proba(x[test])
        right = accuracy(p, y[test])
        results.add(ask=way, seed=seed, labels=labels, accuracy=right, log_loss=log_loss(p, y[test]))
        if right >= GOAL or labels >= (60 if quick else MOST):
            return
        wanted = pool[ask(way, learner, x[pool], AT_ONCE, random)]


def main(given: Sequence[str] | None = None) -> None:
    """Run all ways with all seeds, print the table, write rows and figure."""
    asked = options(__doc__, 10, given)
    warnings.filterwarnings("ignore", message=".*standard deviations from the first update.*")
    results = Results("active-learning", asked)
    for seed in results.missing():
        for way in WAYS:
            one(way, seed, asked.quick, results)
            say(f"seed {seed}, {way}: {results.rows[-1]['labels']} labels, {results.rows[-1]['accuracy']:.1f} %")
        results.keep()
    table = [
        [way, cell(needed(results, way), 0), cell(at(results, way, 200)),
         f"{sum(best(results, way, seed) >= GOAL for seed in results.seeds())} of {len(results.seeds())}"]
        for way in WAYS
    ]  # fmt: skip
    note = (
        f"Labels until {GOAL:.0f} % (a run that does not get there counts its last number), the accuracy in % "
        "after 200 labels, and the runs that got there; means and standard errors."
    )
    heading = ("asks for", "labels to 95 %", "accuracy at 200", "reached")
    results.write(heading, table, figure(results), note)


def needed(results: Results, way: str) -> list[int]:
    """The labels of each seed's run."""
    return [max(results.values("labels", ask=way, seed=seed)) for seed in results.seeds()]


def best(results: Results, way: str, seed: int) -> float:
    """The best accuracy of a run."""
    return max(results.values("accuracy", ask=way, seed=seed))


def at(results: Results, way: str, labels: int) -> list[float]:
    """The accuracy of each seed after so many labels, or at the end of its run: fair before any run stops."""
    runs = [results.where(ask=way, seed=seed) for seed in results.seeds()]
    return [[row["accuracy"] for row in run if row["labels"] <= labels][-1] for run in runs]


def figure(results: Results) -> Figure:
    """Accuracy against labels, a line for each run."""
    drawn = Figure(figsize=(5, 3.4), layout="constrained")
    axes = drawn.subplots()
    for place, way in enumerate(WAYS):
        for number, seed in enumerate(results.seeds()):
            run = results.where(ask=way, seed=seed)
            name = way if number == 0 else None
            axes.plot([r["labels"] for r in run], [r["accuracy"] for r in run], color=colour(place), lw=0.8, label=name)
    axes.axhline(GOAL, color="grey", lw=0.8)
    axes.set(xlabel="labels", ylabel="accuracy, %", title="Digits")
    axes.legend()
    return drawn


if __name__ == "__main__":
    main()
