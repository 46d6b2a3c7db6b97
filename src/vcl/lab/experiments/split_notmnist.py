"""Split notMNIST (section 6.1, figure 5; appendix C), on the small set of 18,724 glyphs; the paper had 400,000."""

from dataclasses import replace
from typing import Any

from vcl.lab.experiments import split_mnist
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.paper.numbers import values
from vcl.lab.settings import Settings
from vcl.lab.streams import Arrays, Stream
from vcl.ops.rng import Rng

PAIRS = ((0, 5), (1, 6), (2, 7), (3, 8), (4, 9))
PAPER = replace(split_mnist.PAPER, hidden=(150, 150, 150, 150))
QUICK = replace(split_mnist.QUICK, hidden=(150, 150, 150, 150), epochs=10, train_limit=3_000)
SMOKE = replace(split_mnist.SMOKE, hidden=(20, 20))
BASELINES: dict[str, dict[str, Any]] = {
    "ewc": {"lam": 1e4, "fisher_samples": 200},
    "lp": {"lam": 1.0, "fisher_samples": 200},
    "si": {"lam": 0.1},
}


def stream(data: Arrays, s: Settings, rng: Rng) -> Stream:
    """A/F, B/G, C/H, D/I, E/J, each with a head of its own, or all with one over ten classes."""
    return split_mnist.pairs(data, PAIRS, s, rng)


ABOUT = "five tasks of two letters, one head each, a deeper network"

SPLIT_NOTMNIST = Experiment(
    name="split-notmnist",
    about=f"notMNIST (small) as {ABOUT}",
    dataset="notmnist",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    paper=values("fig5"),
    overrides={"paper": BASELINES, "quick": BASELINES, "smoke": BASELINES},
    grids=split_mnist.SPLIT_MNIST.grids,
)
SPLIT_NOTMNIST_LARGE = SPLIT_NOTMNIST._replace(
    name="split-notmnist-large",
    about=f"notMNIST (large, as in the paper, where you have it) as {ABOUT}",
    dataset="notmnist-large",
)
