"""Datasets by name: found on this machine or fetched, verified, and split the same way every time."""

from __future__ import annotations

from pathlib import Path

from vcl.errors import unknown
from vcl.lab.datasets.digits import DIGITS
from vcl.lab.datasets.entry import Dataset, DatasetEntry, MissingData, Say, silent
from vcl.lab.datasets.fashion_mnist import FASHION_MNIST
from vcl.lab.datasets.locate import load_dataset
from vcl.lab.datasets.mnist import MNIST
from vcl.lab.datasets.notmnist import NOTMNIST, NOTMNIST_LARGE

__all__ = ["DATASETS", "Dataset", "MissingData", "dataset_entry", "describe", "load", "names", "silent"]

# A new dataset is a DatasetEntry in a file of its own and its name here.
DATASETS = (DIGITS, MNIST, FASHION_MNIST, NOTMNIST, NOTMNIST_LARGE)


def names() -> tuple[str, ...]:
    """The names of all datasets."""
    return tuple(entry.name for entry in DATASETS)


def dataset_entry(name: str) -> DatasetEntry:
    """What is known of the dataset of this name."""
    for entry in DATASETS:
        if entry.name == name:
            return entry
    raise unknown("dataset", name, names())


def describe(name: str) -> str:
    """What a dataset is, in a line."""
    return dataset_entry(name).about


def load(name: str, folder: Path | None = None, *, fetch: bool = True, say: Say = silent) -> Dataset:
    """Load a dataset from the folder given, `$VCL_DATA` or the cache, else fetch it into the cache.

    Every file with a known hash is verified on every load: one that is truncated or altered is an error
    and is never fetched over. MissingData is raised when the dataset cannot be had; `VCL_OFFLINE=1` and
    `fetch=False` forbid the network. What happens on the way is said line by line through `say`.
    """
    return load_dataset(dataset_entry(name), folder, fetch, say)
