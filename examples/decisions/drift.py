"""Tables that drift: each chunk is predicted before it is learned.

    python examples/decisions/drift.py [--quick]

Chunks of scikit-learn's tables, ordered by their first column, arrive one after another (``ordered``). In two more
streams the rule itself changes (``moving``): a threshold of the disease's progression that rises, and a hyperplane that
turns. ``forget`` fades what was known before each update. Scores are those of the next chunk, before it is learned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from common import Baseline, Results, accuracy, cell, log_loss, options, say
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.linear_model import SGDClassifier

import vcl
from vcl.lab.figures.style import colour

CHUNKS = 10


class Stream(NamedTuple):
    """Chunks of examples with labels 0, 1, ..."""

    name: str
    kind: str
    chunks: list[tuple[np.ndarray, np.ndarray]]
    classes: int


def ordered(name: str, x: np.ndarray, y: np.ndarray, seed: int, chunks: int) -> Stream:
    """By the first column that varies; examples that have the same value there come in random order."""
    column = int(np.argmax(x.std(0) > 1e-9))
    order = np.lexsort((np.random.default_rng(seed).random(len(x)), x[:, column]))
    return Stream(name, "ordered", [(x[part], y[part]) for part in np.array_split(order, chunks)], int(y.max()) + 1)


def rising(seed: int, chunks: int) -> Stream:
    """Diabetes in random order: what counts as fast progression rises from the 30th to the 70th percentile."""
    x, progress = load_diabetes(return_X_y=True)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(x)), chunks)
    bounds = np.quantile(progress, np.linspace(0.3, 0.7, chunks))
    return Stream("diabetes, rising threshold", "moving", [
        (x[part], (progress[part] > bound).astype(int)) for part, bound in zip(parts, bounds, strict=True)
    ], 2)  # fmt: skip


def turning(seed: int, chunks: int, rows: int = 100) -> Stream:
    """Ten normal columns; the plane that divides the classes turns by half a circle in all, 5 % of labels are wrong."""
    random, found = np.random.default_rng(seed), []
    for angle in np.linspace(0, np.pi, chunks):
        x = random.standard_normal((rows, 10))
        y = x[:, 0] * np.cos(angle) + x[:, 1] * np.sin(angle) > 0
        found.append((x, (y ^ (random.random(rows) < 0.05)).astype(int)))
    return Stream("turning plane", "moving", found, 2)


def streams(seed: int, chunks: int, quick: bool) -> list[Stream]:
    """The streams of one seed."""
    iris, wine = load_iris(return_X_y=True), load_wine(return_X_y=True)
    if quick:
        return [ordered("wine", *wine, seed, chunks), turning(seed, chunks, 30)]
    x, progress = load_diabetes(return_X_y=True)
    return [
        ordered("iris", *iris, seed, chunks),
        ordered("wine", *wine, seed, chunks),
        ordered("diabetes", x, (progress > np.median(progress)).astype(int), seed, chunks),
        ordered("cancer", *load_breast_cancer(return_X_y=True), seed, chunks),
        ordered("digits", *load_digits(return_X_y=True), seed, chunks),
        rising(seed, chunks),
        turning(seed, chunks),
    ]


class Sgd:
    """SGDClassifier by partial_fit, with so many passes over each chunk, on inputs scaled by the first chunk."""

    def __init__(self, classes: int, passes: int, seed: int) -> None:
        self.model = SGDClassifier(loss="log_loss", random_state=seed)
        self.classes, self.passes, self.scaling = np.arange(classes), passes, None

    def rows(self, x: np.ndarray) -> np.ndarray:
        """As the learner scales them."""
        if self.scaling is None:
            self.scaling = vcl.learner.scaling.learned(torch.from_numpy(x), "auto")
        return x if self.scaling is None else self.scaling(torch.from_numpy(x)).numpy()

    def update(self, x: np.ndarray, y: np.ndarray) -> None:
        """So many calls of partial_fit."""
        rows = self.rows(x)
        for _ in range(self.passes):
            self.model.partial_fit(rows, y, classes=self.classes)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """p(y | x)."""
        return self.model.predict_proba(self.rows(x))


def net(columns: int, seed: int) -> torch.nn.Module:
    """The network of all that learn one."""
    torch.manual_seed(seed)
    return vcl.mlp(columns, (50,))


def learners(stream: Stream, seed: int, shares: Sequence[float], quick: bool) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Learners by name, with what they are told at each update."""
    columns, classes = stream.chunks[0][0].shape[1], stream.classes
    effort: dict[str, Any] = {"epochs": 3} if quick else {}

    def ours() -> vcl.ContinualClassifier:
        return vcl.ContinualClassifier(net(columns, seed), classes=list(range(classes)), seed=seed, verbose=0, **effort)

    def baseline(project: str, lam: float = 1.0) -> Baseline:
        return Baseline(net(columns, seed), 50, classes, project, lam, seed, **effort)

    found: dict[str, tuple[Any, dict[str, Any]]] = {"default": (ours(), {})}
    for share in shares:
        found[f"default, forget={share:g}"] = ours(), {"forget": share}
    found["fine-tuning"] = baseline("fine-tuning"), {}
    found["EWC, lambda 100"] = baseline("ewc", 100.0), {}
    found["SGD, 1 pass"] = Sgd(classes, 1, seed), {}
    found["SGD, 20 passes"] = Sgd(classes, 20, seed), {}
    return found


def prequential(learner: Any, extra: dict[str, Any], stream: Stream, note: Callable[..., None]) -> None:
    """Scores of each chunk but the first, before it is learned."""
    for number, (x, y) in enumerate(stream.chunks):
        if number:
            p = learner.predict_proba(x)
            note(chunk=number, log_loss=log_loss(p, y), accuracy=accuracy(p, y))
        if number < len(stream.chunks) - 1:
            learner.update(x, y, **extra)


def main(given: Sequence[str] | None = None) -> None:
    """Run all streams, print the table, write rows and figure."""
    asked = options(__doc__, 5, given)
    results = Results("drift", asked)
    chunks, shares = (3, (0.1,)) if asked.quick else (CHUNKS, (0.01, 0.1, 0.3))
    warnings.filterwarnings("ignore", message=".*standard deviations from the first update.*")
    for seed in results.missing():
        for stream in streams(seed, chunks, asked.quick):
            for name, (learner, extra) in learners(stream, seed, shares, asked.quick).items():

                def note(name: str = name, stream: Stream = stream, seed: int = seed, **scores: float) -> None:
                    results.add(stream=stream.name, kind=stream.kind, learner=name, seed=seed, **scores)

                prequential(learner, extra, stream, note)
            say(f"seed {seed}, {stream.name}")
        results.keep()
    names = list(dict.fromkeys(row["learner"] for row in results.rows))
    tables = list(dict.fromkeys(row["stream"] for row in results.rows))
    table = [
        [name, *(f"{by_seed(results, 'log_loss', 2, name, each)}; {by_seed(results, 'accuracy', 1, name, each)}"
                 for each in tables)]
        for name in names
    ]  # fmt: skip
    note = "Log-loss, then accuracy in %, of the next chunk before it is learned; means and standard errors over seeds."
    results.write(["learner", *tables], table, figure(results, names, tables), note)


def by_seed(results: Results, score: str, digits: int, name: str, stream: str) -> str:
    """A mean over chunks, then over seeds."""
    seeds = dict.fromkeys(row["seed"] for row in results.where(learner=name, stream=stream))
    return cell((np.mean(results.values(score, learner=name, stream=stream, seed=seed)) for seed in seeds), digits)


COLUMNS = 4
"""Panels beside each other."""


def figure(results: Results, names: Sequence[str], tables: Sequence[str]) -> Figure:
    """The log-loss of each chunk, averaged over seeds, one panel a stream."""
    columns = min(COLUMNS, len(tables))
    rows = -(-len(tables) // columns)
    drawn = Figure(figsize=(2.7 * columns, 2.5 * rows), layout="constrained")
    shown = [name for name in names if name in {"default", "default, forget=0.1", "fine-tuning", "SGD, 1 pass"}]
    panels = np.atleast_1d(drawn.subplots(rows, columns)).ravel()
    for axes, stream in zip(panels, tables, strict=False):
        for place, name in enumerate(shown):
            numbers = sorted({row["chunk"] for row in results.where(learner=name, stream=stream)})
            means = [np.mean(results.values("log_loss", learner=name, stream=stream, chunk=n)) for n in numbers]
            axes.plot(numbers, means, color=colour(place), label=name)
        axes.set_title(stream, fontsize=9)
        axes.set(xlabel="chunk", yscale="log")
        axes.tick_params(which="both", labelsize=7)
    for axes in panels[::columns]:
        axes.set_ylabel("log-loss before learning", fontsize=8)
    for axes in panels[len(tables) :]:
        axes.set_axis_off()
    where = panels[-1] if len(panels) > len(tables) else panels[0]
    where.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="center" if where is panels[-1] else "best")
    return drawn


if __name__ == "__main__":
    main()
