"""Inputs from no known task: a learner of digits is shown letters and noise.

    python examples/decisions/unknown_inputs.py [--only default fine-tuning] [--quick]

Learners see MNIST in two updates (digits 0-4, then 5-9, one head). Each score ranks test digits against letters
(notMNIST) and against noise; AUROC is the probability that an unknown input has the larger score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from common import Baseline, Results, accuracy, auroc, cell, mean_and_error, options, say
from matplotlib.figure import Figure

import vcl
from vcl.lab.datasets import load
from vcl.lab.figures.style import colour

TRAIN, TEST = 3000, 500
LEARNERS = ("fine-tuning", "default", "generative")


def unknowns(x: np.ndarray, count: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs that are no digits: letters, uniform noise, and digits whose pixels were shuffled."""
    letters = load("notmnist").test_x
    mixed = x.reshape(len(x), -1).copy()
    for row in mixed:
        random.shuffle(row)
    return {
        "letters": letters[random.permutation(len(letters))[:count]],
        "noise": random.integers(0, 256, (count, 28, 28), dtype=np.uint8),
        "shuffled pixels": mixed.reshape(x.shape),
    }


def entropy(p: np.ndarray) -> np.ndarray:
    """H(p) of each row."""
    return np.asarray(-(p * np.log(np.clip(p, 1e-30, None))).sum(1))


def one(seed: int, quick: bool, results: Results, only: Sequence[str] = LEARNERS) -> None:
    """The learners of one seed that have no rows yet."""
    data, random = load("mnist"), np.random.default_rng(seed)
    train, test = (50, 15) if quick else (TRAIN, TEST)
    parts = [random.permutation(np.flatnonzero(data.train_y // 5 == half))[:train] for half in range(2)]
    known = random.permutation(len(data.test_y))[:test]
    x, y = data.test_x[known], data.test_y[known].astype(int)
    others = unknowns(x, test, random)
    torch.manual_seed(seed)
    trunk = vcl.mlp(784, (100, 100))
    few: dict[str, Any] = {"epochs": 2} if quick else {}

    def note(learner: str, score: str, right: float, own: np.ndarray, each: dict[str, np.ndarray]) -> None:
        for kind, values in each.items():
            results.add(
                learner=learner, score=score, seed=seed, accuracy=right, kind=kind, auroc=100 * auroc(own, values)
            )

    def learn(learner: vcl.ContinualClassifier | Baseline) -> float:
        for number, part in enumerate(parts):
            learner.update(data.train_x[part], data.train_y[part].astype(int), f"half {number}")
        return accuracy(learner.predict_proba(x), y)

    classes = list(range(10))
    missing = [name for name in only if not results.where(learner=name, seed=seed)]
    if "fine-tuning" in missing:
        tuned = Baseline(trunk, 100, 10, "fine-tuning", seed=seed, **few)
        right, own = learn(tuned), tuned.predict_proba(x)
        each = {kind: tuned.predict_proba(values) for kind, values in others.items()}
        note(
            "fine-tuning", "1 - largest probability", right, 1 - own.max(1), {k: 1 - p.max(1) for k, p in each.items()}
        )
        note("fine-tuning", "entropy", right, entropy(own), {kind: entropy(p) for kind, p in each.items()})
        results.keep()
    if "default" in missing:
        default = vcl.ContinualClassifier(trunk, classes=classes, heads="shared", seed=seed, verbose=0, **few)
        right, unsure = learn(default), default.uncertainty(x)
        spread = {kind: default.uncertainty(values) for kind, values in others.items()}
        note("default", "epistemic", right, unsure.epistemic, {kind: u.epistemic for kind, u in spread.items()})
        note("default", "total", right, unsure.total, {kind: u.total for kind, u in spread.items()})
        results.keep()
    if "generative" in missing:
        made = vcl.ContinualClassifier(method="generative", classes=classes, seed=seed, verbose=0, **few)
        right = learn(made)
        evidence = {kind: -made.log_evidence(values) for kind, values in others.items()}
        note("generative", "-log evidence", right, -made.log_evidence(x), evidence)


def main(given: Sequence[str] | None = None) -> None:
    """Run all seeds, print the table, write rows and figure."""
    asked = options(__doc__, 5, given, LEARNERS)
    results = Results("unknown-inputs", asked)
    for seed in range(asked.seeds):
        one(seed, asked.quick, results, asked.only)
        say(f"seed {seed}")
        results.keep()
    scores = list(dict.fromkeys((row["learner"], row["score"]) for row in results.rows))
    kinds = list(dict.fromkeys(row["kind"] for row in results.rows))
    table = [
        [learner, score, str(len(results.where(learner=learner, score=score, kind=kinds[0]))),
         cell(results.values("accuracy", learner=learner, score=score, kind=kinds[0])),
         *(cell(results.values("auroc", learner=learner, score=score, kind=kind)) for kind in kinds)]
        for learner, score in scores
    ]  # fmt: skip
    note = (
        "Accuracy on all ten digits in %, then AUROC in % of digits against each kind of unknown input (50 is chance)."
    )
    results.write(("learner", "score", "seeds", "accuracy", *kinds), table, figure(results, scores, kinds), note)


def figure(results: Results, scores: Sequence[tuple[str, str]], kinds: Sequence[str]) -> Figure:
    """AUROC of each score and its standard error, in groups by kind; a line at chance."""
    drawn = Figure(figsize=(6, 4), layout="constrained")
    axes = drawn.subplots()
    width = 0.8 / len(scores)
    for place, (learner, score) in enumerate(scores):
        each = [mean_and_error(results.values("auroc", learner=learner, score=score, kind=kind)) for kind in kinds]
        means, errors = zip(*each, strict=True)
        at, label = np.arange(len(kinds)) + place * width, f"{learner}: {score}"
        axes.bar(at, means, width, yerr=errors, color=colour(place), error_kw={"lw": 1}, label=label)
    axes.axhline(50, color="grey", lw=0.8)
    axes.set(ylabel="AUROC, %", ylim=(0, 100))
    axes.set_xticks(np.arange(len(kinds)) + 0.4 - width / 2, kinds)
    drawn.legend(fontsize=7, loc="outside lower center", ncols=2)
    return drawn


if __name__ == "__main__":
    main()
