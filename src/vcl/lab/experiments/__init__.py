"""One file per experiment."""

from vcl.errors import unknown
from vcl.lab.experiments.digits import PERMUTED_DIGITS, SPLIT_DIGITS
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.experiments.generative import GENERATIVE_DIGITS, GENERATIVE_MNIST, GENERATIVE_NOTMNIST
from vcl.lab.experiments.permuted_mnist import PERMUTED_MNIST
from vcl.lab.experiments.split_mnist import SPLIT_MNIST
from vcl.lab.experiments.split_notmnist import SPLIT_NOTMNIST, SPLIT_NOTMNIST_LARGE

__all__ = ["EXPERIMENTS", "Experiment", "experiment"]

# A new experiment is an Experiment in a file of its own and its name here.
EXPERIMENTS: tuple[Experiment, ...] = (
    PERMUTED_MNIST,
    SPLIT_MNIST,
    SPLIT_NOTMNIST,
    SPLIT_NOTMNIST_LARGE,
    PERMUTED_DIGITS,
    SPLIT_DIGITS,
    GENERATIVE_MNIST,
    GENERATIVE_NOTMNIST,
    GENERATIVE_DIGITS,
)


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    for entry in EXPERIMENTS:
        if entry.name == name:
            return entry
    raise unknown("experiment", name, [entry.name for entry in EXPERIMENTS])
