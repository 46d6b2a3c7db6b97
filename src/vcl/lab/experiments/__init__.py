"""One file per experiment."""

from vcl.lab.experiments.class_incremental import (
    CLASS_INCREMENTAL_DIGITS,
    CLASS_INCREMENTAL_MNIST,
    CLASS_INCREMENTAL_NOTMNIST,
    SINGLE_HEAD_DIGITS,
    SINGLE_HEAD_MNIST,
    SINGLE_HEAD_NOTMNIST,
)
from vcl.lab.experiments.digits import PERMUTED_DIGITS, SPLIT_DIGITS
from vcl.lab.experiments.experiment import Experiment as Experiment
from vcl.lab.experiments.generative import GENERATIVE_DIGITS, GENERATIVE_MNIST, GENERATIVE_NOTMNIST
from vcl.lab.experiments.permuted import PERMUTED
from vcl.lab.experiments.permuted_mnist import PERMUTED_MNIST
from vcl.lab.experiments.sine import SINE
from vcl.lab.experiments.split import SPLIT
from vcl.lab.experiments.split_mnist import SPLIT_MNIST
from vcl.lab.experiments.split_mnist_conv import SPLIT_MNIST_CONV
from vcl.lab.experiments.split_notmnist import SPLIT_NOTMNIST, SPLIT_NOTMNIST_LARGE

# A new experiment is an Experiment in a file of its own and its name here.
EXPERIMENTS: tuple[Experiment, ...] = (
    PERMUTED_MNIST,
    SPLIT_MNIST,
    SPLIT_MNIST_CONV,
    SPLIT_NOTMNIST,
    SPLIT_NOTMNIST_LARGE,
    PERMUTED_DIGITS,
    SPLIT_DIGITS,
    PERMUTED,
    SPLIT,
    SINE,
    GENERATIVE_MNIST,
    GENERATIVE_NOTMNIST,
    GENERATIVE_DIGITS,
    CLASS_INCREMENTAL_MNIST,
    CLASS_INCREMENTAL_NOTMNIST,
    CLASS_INCREMENTAL_DIGITS,
    SINGLE_HEAD_MNIST,
    SINGLE_HEAD_NOTMNIST,
    SINGLE_HEAD_DIGITS,
)
