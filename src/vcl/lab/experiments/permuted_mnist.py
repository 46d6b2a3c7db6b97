"""Permuted MNIST (section 6.1, figure 2; appendix A)."""

from typing import Any

from vcl.lab.experiments import permuted
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.paper.numbers import values

# Long fits. A small initial variance lets the new means settle before the noise grows: started at e^-6, some fits end
# where an earlier task is lost. (Short fits, as in the other presets, could not grow it again.)
RESTART = {"epochs": 150, "batch": 1024, "lr": 5e-3, "draws": 4, "init_var": 1e-4}
# Kronecker-factored posteriors: a fit of each task that converges; nothing else is chosen.
KRONECKER: dict[str, dict[str, Any]] = {
    "lp-kron": {"epochs": 30},
    "lp-kron-random": {"epochs": 30, "coreset_epochs": 30},
    "ewc-kron": {"epochs": 30},
    "vcl-kron": {"epochs": 15},
    "vcl-kron-natural": {"epochs": 15},
    "vcl-kron-random": {"epochs": 15, "coreset_epochs": 15},
}
# The baselines as the paper ran them, each with its best lambda; SI's damping is that of Zenke et al.
BASELINES: dict[str, dict[str, Any]] = {
    "ewc": {"lam": 100.0, "epochs": 20, "batch": 200, "fisher_samples": 600},
    "lp": {"lam": 0.1, "epochs": 20, "batch": 200, "fisher_samples": 200},
    "si": {"lam": 0.5, "epochs": 20, "batch": 256, "damping": 0.1},
    # Not in the paper's figure: trained as EWC is.
    "map": {"epochs": 20, "batch": 200},
    "mle": {"epochs": 20, "batch": 200},
    # Ours: long fits from a new start, with few draws in large batches.
    "vcl-restart": RESTART,
    "vcl-restart-random": RESTART,
    **KRONECKER,
}
# Without the paper's epochs and batches, which are too much for a laptop.
SHORT: dict[str, dict[str, Any]] = {
    "ewc": {"lam": 100.0, "fisher_samples": 600},
    "lp": {"lam": 0.1, "fisher_samples": 200},
    "si": {"lam": 0.5, "damping": 0.1},
    "vcl-restart": {"lr": 5e-3},
    "vcl-restart-random": {"lr": 5e-3},
}
PAPER = permuted.PAPER.but(BASELINES)

PERMUTED_MNIST = Experiment(
    name="permuted-mnist",
    about="MNIST under a new pixel permutation each task, one head of 10 classes",
    presets={"paper": PAPER, "quick": permuted.QUICK.but(SHORT), "smoke": permuted.SMOKE.but(SHORT)},
    stream=permuted.stream,
    dataset="mnist",
    paper=values("fig2"),
    grids={
        "ewc": (1.0, 10.0, 1e2, 1e3, 1e4),
        "lp": (0.01, 0.1, 1.0, 10.0, 100.0),
        "si": (0.01, 0.1, 0.5, 1.0, 2.0),
    },
)
