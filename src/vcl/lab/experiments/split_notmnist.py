"""Split notMNIST (section 6.1, figure 5; appendix C), on the small set of 18,724 glyphs; the paper had 400,000."""

from typing import Any

from vcl.lab.experiments import split_mnist
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.experiments.split import stream
from vcl.lab.paper.numbers import values

BASELINES: dict[str, dict[str, Any]] = {
    "ewc": {"lam": 1e4, "fisher_samples": 200},
    "lp": {"lam": 1.0, "fisher_samples": 200},
    "si": {"lam": 0.1},
}
# A/F, B/G, C/H, D/I, E/J.
PAPER = split_mnist.PAPER.but(BASELINES, hidden=(150, 150, 150, 150), pairing="halves")
QUICK = split_mnist.QUICK.but(BASELINES, hidden=(150, 150, 150, 150), pairing="halves", epochs=10, train_limit=3_000)
SMOKE = split_mnist.SMOKE.but(BASELINES, hidden=(20, 20), pairing="halves")
ABOUT = "five tasks of two letters, one head each, a deeper network"

SPLIT_NOTMNIST = Experiment(
    name="split-notmnist",
    about=f"notMNIST (small) as {ABOUT}",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    dataset="notmnist",
    paper=values("fig5"),
    grids=split_mnist.SPLIT_MNIST.grids,
)
SPLIT_NOTMNIST_LARGE = SPLIT_NOTMNIST._replace(
    name="split-notmnist-large",
    about=f"notMNIST (large, as in the paper, where you have it) as {ABOUT}",
    dataset="notmnist-large",
)
