"""The digest of data: every example and label counts, so that results of different data never meet."""

from __future__ import annotations

import pytest
import torch
from lab_made import images


@pytest.mark.parametrize("part", ["train_x", "train_y", "test_x", "test_y"])
def test_each_value_counts(part: str) -> None:
    data = images()
    changed = getattr(data, part).clone()
    changed.view(-1)[-1] += 1
    assert data._replace(**{part: changed}).digest() != data.digest()


def test_equal_data_has_the_same_digest_wherever_it_stands_in_memory() -> None:
    data = images()
    assert len(data.digest()) == 16
    assert data._replace(train_x=data.train_x.mT.contiguous().mT).digest() == data.digest()
    assert data._replace(train_y=torch.stack([data.train_y] * 2, 1)[:, 0]).digest() == data.digest()


def test_shapes_types_and_classes_count() -> None:
    data = images()
    others = (
        data._replace(classes=(*data.classes, "more")),
        data._replace(train_x=data.train_x.view(-1, 4, 16)),
        data._replace(train_y=data.train_y.view(torch.uint64)),
    )
    assert len({data.digest(), *(other.digest() for other in others)}) == 4
