"""Reads PNG files from one folder per class; unreadable files are counted and left out."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcl.errors import VclError
from vcl.lab.datasets.entry import Say
from vcl.learner.bounded import read_bounded

MOST_BYTES = 2**20
"""The most bytes of one image: those of notMNIST have less than 1,000."""

FAULTS = (
    OSError, ValueError, SyntaxError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError, RuntimeError,
    struct.error, zlib.error,
)  # fmt: skip
"""What Pillow may raise at a damaged image. A size that it calls a bomb never comes so far as to be decoded."""


def read_classes(folders: Sequence[Path], side: int, say: Say) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, side, side] and labels [N], ordered by class, then by file name, on every machine."""
    kept: list[list[NDArray[np.uint8]]] = []
    unreadable: list[Path] = []
    for folder in folders:
        images = [(path, _image(path, side)) for path in _pngs(folder)]
        unreadable += [path for path, image in images if image is None]
        kept.append([image for _, image in images if image is not None])
        if not kept[-1]:
            raise VclError(f"{folder} has no readable PNG file of {side}x{side}: put the images of its class there.")
    if unreadable:
        say(
            f"left out {len(unreadable)} PNG file(s) in {folders[0].parent} that cannot be read as "
            f"{side}x{side} images, such as {unreadable[0]}"
        )
    labels = np.repeat(np.arange(len(kept)), [len(images) for images in kept]).astype(np.int64)
    return np.stack([image for images in kept for image in images]), labels


def _pngs(folder: Path) -> Iterator[Path]:
    # macOS adds ._ files to archives.
    return (path for path in sorted(folder.glob("*.png"), key=lambda path: path.name) if not path.name.startswith("."))


def _image(path: Path, side: int) -> NDArray[np.uint8] | None:
    from PIL import Image

    try:
        content = read_bounded(path, MOST_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes that are refused below
            with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
                # The header has the size, so an image of another size is never decoded.
                if image.size != (side, side):
                    return None
                return np.asarray(image.convert("L"), dtype=np.uint8)
    except (*FAULTS, Image.DecompressionBombError):
        return None
