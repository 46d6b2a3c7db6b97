"""Datasets by name: found on this machine or fetched, then verified. The train/test split never changes."""

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

# To add a dataset, write a DatasetEntry in a new file and list it here.
DATASETS = (DIGITS, MNIST, FASHION_MNIST, NOTMNIST, NOTMNIST_LARGE)


def names() -> tuple[str, ...]:
    """The names of all datasets."""
    return tuple(entry.name for entry in DATASETS)


def dataset_entry(name: str) -> DatasetEntry:
    """The entry of a dataset."""
    for entry in DATASETS:
        if entry.name == name:
            return entry
    raise unknown("dataset", name, names())


def describe(name: str) -> str:
    """One line that describes a dataset."""
    return dataset_entry(name).about


def load(name: str, folder: Path | None = None, *, fetch: bool = True, say: Say = silent) -> Dataset:
    """Load a dataset from the folder given, `$VCL_DATA` or the cache, else fetch it into the cache.

    Every load verifies each file with a known hash. A truncated or altered file is an error and is never
    overwritten. Raises MissingData if the dataset is unavailable. `VCL_OFFLINE=1` and `fetch=False` forbid the
    network. `say` receives progress messages, one line each.
    """
    return load_dataset(dataset_entry(name), folder, fetch, say)
