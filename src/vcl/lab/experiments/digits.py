"""The two MNIST experiments on the 8x8 digits that scikit-learn carries: for everyone, without a download."""

from typing import Any

from vcl.lab.experiments import permuted, split_mnist
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.experiments.split import stream

# Ours, not the paper's: tasks are 40 times smaller than MNIST's, where a mean-field posterior over two hidden layers
# stays close to the prior and underfits. One hidden layer and a larger rate learn these.
PERMUTED = permuted.PAPER.but({}, tasks=5, hidden=(100,), epochs=60, batch=64, lr=5e-3, coreset=40)
SPLIT = split_mnist.PAPER.but({}, hidden=(100,), epochs=200, lr=5e-3, coreset=10, coreset_epochs=200)
SHORT: dict[str, Any] = {
    "estimator": "local",
    "draws": 2,
    "hidden": (16,),
    "epochs": 2,
    "coreset_epochs": 2,
    "predict_draws": 3,
}

PERMUTED_DIGITS = Experiment(
    name="permuted-digits",
    about="8x8 digits under a new pixel permutation each task, one head of 10 classes",
    presets={
        "paper": PERMUTED,
        "quick": PERMUTED.but(tasks=4, epochs=30, draws=2, coreset_epochs=60, estimator="local", predict_draws=20,
                              seeds=3),
        "smoke": PERMUTED.but(**SHORT, tasks=2, train_limit=300, test_limit=100, seeds=2),
    },
    stream=permuted.stream,
    dataset="digits",
)  # fmt: skip
SPLIT_DIGITS = Experiment(
    name="split-digits",
    about="8x8 digits as five tasks of two, one head each",
    presets={
        "paper": SPLIT,
        "quick": SPLIT.but(draws=2, estimator="local", predict_draws=20, seeds=3),
        "smoke": SPLIT.but(**SHORT, tasks=2, seeds=2),
    },
    stream=stream,
    dataset="digits",
)
