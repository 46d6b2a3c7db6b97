"""Permuted MNIST (section 6.1, figure 2; appendix A)."""

from dataclasses import replace

from vcl.lab.experiments.experiment import Experiment
from vcl.lab.settings import Settings
from vcl.lab.streams import Arrays, Stream, permuted
from vcl.rng import Rng

PAPER = Settings(
    tasks=10,
    hidden=(100, 100),
    epochs=100,
    batch=256,
    coreset=200,
    coreset_epochs=100,
    coreset_batch=256,
)
QUICK = replace(PAPER, tasks=4, epochs=10, draws=2, estimator="local", coreset_epochs=50, predict_draws=20,
                predict_estimator="local", train_limit=10_000, test_limit=2_000, seeds=3)  # fmt: skip
SMOKE = replace(QUICK, tasks=2, hidden=(20,), epochs=1, coreset=20, coreset_epochs=2, predict_draws=3,
                train_limit=500, test_limit=200, seeds=2)  # fmt: skip


def stream(data: Arrays, s: Settings, rng: Rng) -> Stream:
    """A permutation of the pixels per task and run; one head of ten classes."""
    return permuted(data, s.tasks, rng, s.train_limit, s.test_limit)


PERMUTED_MNIST = Experiment(
    name="permuted-mnist",
    about="MNIST under a new pixel permutation each task, one head of 10 classes",
    dataset="mnist",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    paper={"vcl": 90.0, "vcl-random": 93.0, "vcl-kcenter": 93.0},
)
