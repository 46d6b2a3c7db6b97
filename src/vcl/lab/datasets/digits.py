"""The 1,797 handwritten 8x8 digits that ship with scikit-learn: real data without a download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vcl.lab.datasets.entry import Dataset, DatasetEntry, Found, Say
from vcl.lab.datasets.split import held_out


def _find(data: Path) -> Found:
    return Found("embedded in scikit-learn")


def _check(path: Path) -> str:
    return "embedded"


def _read(found: Found, say: Say) -> Dataset:
    # Imported here, because scikit-learn takes a second to import.
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = np.rint(raw.images * (255 / 16)).astype(np.uint8)
    labels = raw.target.astype(np.int64)
    test = held_out(images, labels, share=0.2)
    return Dataset("digits", images[~test], labels[~test], images[test], labels[test], tuple("0123456789"), found.where)


DIGITS = DatasetEntry(
    "digits",
    "handwritten digits, 1,797 images of 8x8, of which a fifth to test on",
    by_hand="install scikit-learn",
    classes=10,
    find=_find,
    check=_check,
    read=_read,
)
