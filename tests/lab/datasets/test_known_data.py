"""The real datasets: digits always, the others where VCL_DATA names a folder that has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vcl.lab.datasets import dataset_entry, load


def test_digits() -> None:
    digits = load("digits", fetch=False)
    assert digits.train_x.shape == (1438, 8, 8)
    assert digits.test_x.shape == (359, 8, 8)
    assert (digits.train_x.dtype, digits.train_y.dtype) == (np.uint8, np.int64)
    assert (digits.train_x.min(), digits.train_x.max()) == (0, 255)
    counts = np.bincount(digits.test_y)
    assert counts.min() >= 34
    assert counts.max() <= 37
    assert digits.origin == "embedded in scikit-learn"
    again = load("digits", fetch=False)
    np.testing.assert_array_equal(digits.test_x, again.test_x)
    # The first images for testing: a change of the split is a change of every result.
    assert digits.test_y[:12].tolist() == [3, 6, 9, 8, 5, 8, 1, 7, 0, 7, 2, 1]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_idx_sets(real_data: Path, name: str) -> None:
    if dataset_entry(name).find(real_data) is None:
        pytest.skip(f"the folder that VCL_DATA names has no {name}")
    dataset = load(name, real_data, fetch=False)
    assert dataset.train_x.shape == (60000, 28, 28)
    assert dataset.test_x.shape == (10000, 28, 28)
    assert len(dataset.classes) == 10
    assert set(dataset.test_y.tolist()) == set(range(10))


def test_real_notmnist(real_data: Path) -> None:
    if dataset_entry("notmnist").find(real_data) is None:
        pytest.skip("the folder that VCL_DATA names has no notmnist")
    dataset = load("notmnist", real_data, fetch=False)
    assert len(dataset.train_x) + len(dataset.test_x) == 18724
    counts = np.bincount(dataset.test_y)
    assert counts.min() >= 185
    assert counts.max() <= 189
    train = {image.tobytes() for image in dataset.train_x}
    assert not any(image.tobytes() in train for image in dataset.test_x)
