"""The two MNIST experiments on the 8x8 digits that scikit-learn carries: for everyone, without a download."""

from dataclasses import replace

from vcl.lab.experiments import permuted_mnist, split_mnist
from vcl.lab.experiments.experiment import Experiment

# Ours, not the paper's: tasks are 40 times smaller than MNIST's, where a mean-field posterior over two hidden layers
# stays close to the prior and underfits. One hidden layer and a larger rate learn these.
PERMUTED = replace(permuted_mnist.PAPER, tasks=5, hidden=(100,), epochs=60, batch=64, lr=5e-3, coreset=40)
SPLIT = replace(split_mnist.PAPER, hidden=(100,), epochs=200, lr=5e-3, coreset=10, coreset_epochs=200)

PERMUTED_DIGITS = Experiment(
    name="permuted-digits",
    about="8x8 digits under a new pixel permutation each task, one head of 10 classes",
    dataset="digits",
    presets={
        "paper": PERMUTED,
        "quick": replace(
            PERMUTED,
            tasks=4,
            epochs=30,
            draws=2,
            coreset_epochs=60,
            estimator="local",
            predict_draws=20,
            seeds=3,
        ),
        "smoke": replace(
            PERMUTED,
            tasks=2,
            hidden=(16,),
            epochs=2,
            draws=2,
            coreset_epochs=2,
            estimator="local",
            predict_draws=3,
            train_limit=300,
            test_limit=100,
            seeds=2,
        ),
    },
    stream=permuted_mnist.stream,
)
SPLIT_DIGITS = Experiment(
    name="split-digits",
    about="8x8 digits as five tasks of two, one head each",
    dataset="digits",
    presets={
        "paper": SPLIT,
        "quick": replace(SPLIT, draws=2, estimator="local", predict_draws=20, seeds=3),
        "smoke": replace(
            SPLIT,
            tasks=2,
            hidden=(16,),
            epochs=2,
            draws=2,
            coreset_epochs=2,
            estimator="local",
            predict_draws=3,
            seeds=2,
        ),
    },
    stream=split_mnist.stream,
)
