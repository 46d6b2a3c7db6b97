"""Split MNIST (section 6.1, figure 4; appendix B)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vcl.errors import VclError
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.paper.numbers import values
from vcl.lab.settings import Settings
from vcl.lab.streams import Arrays, Stream, reordered, split
from vcl.ops.rng import Rng

PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
PAPER = Settings(
    tasks=5,
    heads="multi",
    hidden=(256, 256),
    epochs=120,
    batch=None,
    coreset=40,
    coreset_epochs=120,
    coreset_batch=None,
    predictive="per-head",
)
# As many steps a task as in the paper, on half of the data and in batches that a laptop can take.
QUICK = replace(PAPER, epochs=5, batch=256, coreset_epochs=60, draws=2, estimator="local", predict_draws=20,
                predict_estimator="local", train_limit=6_000, test_limit=1_000, seeds=3)  # fmt: skip
SMOKE = replace(QUICK, tasks=2, hidden=(20,), epochs=2, coreset=10, coreset_epochs=2, predict_draws=3,
                train_limit=200, test_limit=100, seeds=2)  # fmt: skip

# The baselines with the paper's best lambdas. Their epochs and batches are not said, so they are those of VCL.
BASELINES: dict[str, dict[str, Any]] = {
    "ewc": {"lam": 1.0, "fisher_samples": 200},
    "lp": {"lam": 1.0, "fisher_samples": 200},
    "si": {"lam": 1.0},
}


def stream(data: Arrays, s: Settings, rng: Rng) -> Stream:
    """0/1, 2/3, 4/5, 6/7, 8/9, each with a head of its own, or all with one over ten classes."""
    return pairs(data, PAIRS, s, rng)


def pairs(data: Arrays, groups: Sequence[tuple[int, int]], s: Settings, rng: Rng) -> Stream:
    """Tasks of two classes each, in the order of the settings."""
    if s.tasks > len(groups):
        raise VclError(f"tasks is {s.tasks}; ten classes make at most {len(groups)} pairs.")
    made = split(data, groups[: s.tasks], len(rng.seeds), s.heads == "single", s.train_limit, s.test_limit)
    return reordered(made, s.order)


SPLIT_MNIST = Experiment(
    name="split-mnist",
    about="MNIST as five tasks of two digits, one head each",
    dataset="mnist",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    paper=values("fig4"),
    overrides={"paper": BASELINES, "quick": BASELINES, "smoke": BASELINES},
    grids={"ewc": (1.0, 10.0, 1e2, 1e3, 1e4), "lp": (0.01, 0.1, 1.0, 10.0, 100.0), "si": (0.01, 0.1, 1.0, 2.0, 3.0)},
)
