"""The IDX format of MNIST: two zero bytes, the type, the number of dimensions, their sizes, the data."""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from vcl.errors import VclError

_UBYTE = 0x08


def parse(content: bytes, dimensions: int, name: str) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file. Raises VclError unless it has this many dimensions."""
    start = 4 + 4 * dimensions
    magic = bytes((0, 0, _UBYTE, dimensions))
    if content[:4] != magic:
        raise VclError(
            f"{name} is not an IDX file of unsigned bytes in {dimensions} dimensions: "
            f"it starts with {content[:4].hex() or 'nothing'}, expected {magic.hex()}."
        )
    if len(content) < start:
        raise VclError(f"{name} is truncated: {len(content)} bytes do not hold the IDX header of {start}.")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    size = math.prod(shape)
    if len(content) - start != size:
        fault = "is truncated" if len(content) - start < size else "has trailing bytes"
        raise VclError(
            f"{name} {fault}: its IDX header says {' x '.join(map(str, shape))} = {size} bytes, "
            f"{len(content) - start} follow."
        )
    # A copy, because an array over immutable bytes is read-only.
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def images_and_labels(
    images: bytes, labels: bytes, name: str, classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, H, W] and labels [N] of a pair of IDX files."""
    x = parse(images, 3, f"{name} images")
    y = parse(labels, 1, f"{name} labels")
    if len(x) != len(y):
        raise VclError(f"{name} has {len(x)} images but {len(y)} labels: the two files do not belong together.")
    if y.size and int(y.max()) >= classes:
        raise VclError(f"{name} has label {int(y.max())}: expected 0 to {classes - 1}.")
    return x, y.astype(np.int64)
