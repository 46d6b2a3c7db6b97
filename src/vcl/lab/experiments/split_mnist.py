"""Split MNIST (section 6.1, figure 4; appendix B)."""

from typing import Any

from vcl.lab.classification import Prediction
from vcl.lab.experiments.experiment import Experiment, RunSettings, Setup
from vcl.lab.experiments.split import Split, stream
from vcl.lab.networks import Mlp
from vcl.lab.paper.numbers import values

# The baselines with the paper's best lambdas. Their epochs and batches are not given, so they are those of VCL.
BASELINES: dict[str, dict[str, Any]] = {
    "ewc": {"lam": 1.0, "fisher_samples": 200},
    "lp": {"lam": 1.0, "fisher_samples": 200},
    "si": {"lam": 1.0},
    # In batches, 20 epochs are 900 steps a task; the paper's 120 full batches are too few.
    **{
        name: {"epochs": 20}
        for name in ("lp-kron", "lp-kron-random", "ewc-kron", "vcl-kron", "vcl-kron-natural", "vcl-kron-random")
    },
}
PAPER = Setup(
    Split(5), Mlp((256, 256)), Prediction(), RunSettings(10),
    {"epochs": 120, "batch": None, "coreset": 40, "coreset_epochs": 120, "coreset_batch": None,
     "predictive": "per-head"},
    BASELINES,
)  # fmt: skip
# As many steps a task as in the paper, on half of the data and in batches that a laptop can take.
QUICK = PAPER.but(epochs=5, batch=256, coreset_epochs=60, draws=2, estimator="local", predict_draws=20,
                  predict_estimator="local", train_limit=6_000, test_limit=1_000, seeds=3)  # fmt: skip
SMOKE = QUICK.but(tasks=2, hidden=(20,), epochs=2, coreset=10, coreset_epochs=2, predict_draws=3, train_limit=200,
                  test_limit=100, seeds=2)  # fmt: skip

SPLIT_MNIST = Experiment(
    name="split-mnist",
    about="MNIST as five tasks of two digits, one head each",
    presets={"paper": PAPER, "quick": QUICK, "smoke": SMOKE},
    stream=stream,
    dataset="mnist",
    paper=values("fig4"),
    grids={"ewc": (1.0, 10.0, 1e2, 1e3, 1e4), "lp": (0.01, 0.1, 1.0, 10.0, 100.0), "si": (0.01, 0.1, 1.0, 2.0, 3.0)},
)
