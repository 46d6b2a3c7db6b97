from __future__ import annotations

import numpy as np
import pytest

from vcl.errors import VclError
from vcl.lab.datasets.idx import images_and_labels, parse

IMAGES = bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2)) + bytes((1, 2, 3, 4))
LABELS = bytes((0, 0, 8, 1, 0, 0, 0, 2)) + bytes((1, 0))


def test_idx_round_trip() -> None:
    x, y = images_and_labels(IMAGES, LABELS, "train", 2)
    assert x.tolist() == [[[1, 2]], [[3, 4]]]
    assert y.tolist() == [1, 0]
    assert (x.dtype, y.dtype) == (np.uint8, np.int64)
    x[0] = 0  # writable


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\x00\x08\x01" + IMAGES[4:], "starts with 00000801, expected 00000803"),
        (b"\x00\x00\x0d\x03" + IMAGES[4:], "starts with 00000d03"),
        (b"", "starts with nothing"),
        (IMAGES[:10], "10 bytes do not hold the IDX header of 16"),
        (IMAGES[:-1], "truncated.*2 x 1 x 2 = 4 bytes, 3 follow"),
        (IMAGES + b"\x00", "trailing bytes.*4 bytes, 5 follow"),
    ],
)
def test_idx_faults_are_named(content: bytes, message: str) -> None:
    with pytest.raises(VclError, match=f"^some file .*{message}"):
        parse(content, 3, "some file")


def test_idx_counts_have_to_agree() -> None:
    one = bytes((0, 0, 8, 1, 0, 0, 0, 1, 0))
    with pytest.raises(VclError, match="train has 2 images but 1 labels"):
        images_and_labels(IMAGES, one, "train", 2)


def test_idx_label_out_of_range() -> None:
    with pytest.raises(VclError, match="label 1: expected 0 to 0"):
        images_and_labels(IMAGES, LABELS, "train", 1)
