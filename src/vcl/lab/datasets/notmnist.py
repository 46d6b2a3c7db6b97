"""notMNIST: glyphs A to J from many fonts, 28x28. The small set is clean, the large one noisier."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcl.errors import VclError
from vcl.lab import npy
from vcl.lab.datasets.checksum import altered
from vcl.lab.datasets.entry import Dataset, DatasetEntry, Found, Say
from vcl.lab.datasets.png import read_classes
from vcl.lab.datasets.split import held_out

LETTERS = tuple("ABCDEFGHIJ")
SIDE = 28
NPZ = "notmnist_small.npz"
MOST_BYTES = 2**26
"""The most bytes of arrays that are read; the small set has 14 million."""

# The hash of the small set's 18,724 readable images, by letter and then by file name: the bytes of all images,
# then the labels as bytes. It therefore fits the PNG files and any archive of the two arrays.
SMALL_SHA256 = "d6293d32bb251c555a5e1bcc7457d2c3dd9c5ccf292c12243463a154334ccd0e"


def content_sha256(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    """The SHA-256 of the bytes of all images, followed by the labels as bytes."""
    hash = hashlib.sha256(np.ascontiguousarray(images).data)
    hash.update(labels.astype(np.uint8).tobytes())
    return hash.hexdigest()


def read_npz(path: Path, expected: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The arrays `images` [N, 28, 28] and `labels` [N] of an archive. Raises VclError unless their hash is right."""
    mend = "delete it and put the original file, or the class folders A to J with their PNG files, in its place"
    try:
        names = npy.names_in(path, MOST_BYTES)
        lacking = {"images", "labels"} - set(names)
        if lacking:
            raise VclError(
                f"{path} lacks the array {' and the array '.join(sorted(lacking))}: "
                f"expected images and labels, found {', '.join(names[:10]) or 'none'}."
            )
        arrays = npy.read_npz(path, MOST_BYTES, ("images", "labels"))
        images, labels = arrays["images"], arrays["labels"]
    except npy.DAMAGED as error:
        said = str(error).partition("\n")[0][:200]
        raise altered(path, expected, f"none, for it cannot be read: {said}", mend) from error
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise VclError(f"{path} has images of {images.dtype} {images.shape}: expected uint8 (N, {SIDE}, {SIDE}).")
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise VclError(f"{path} has labels of {labels.dtype} {labels.shape}: expected integers ({len(images)},).")
    if labels.size and (int(labels.min()) < 0 or int(labels.max()) >= len(LETTERS)):
        raise VclError(f"{path} has labels from {labels.min()} to {labels.max()}: expected 0 to 9.")
    labels = labels.astype(np.int64)
    found = content_sha256(images, labels)
    if found != expected:
        raise altered(path, expected, found, mend)
    return images, labels


def _letters(folder: Path) -> Found | None:
    present = [folder / letter for letter in LETTERS if (folder / letter).is_dir()]
    lacking = tuple(letter for letter in LETTERS if not (folder / letter).is_dir())
    return Found(str(folder), tuple(present), lacking) if present else None


def _in_folders(data: Path, names: tuple[str, ...]) -> Found | None:
    return next((found for name in names if (found := _letters(data / name))), None)


def _find_small(data: Path) -> Found | None:
    npz = data / "notmnist" / NPZ
    if npz.is_file():
        return Found(str(npz), (npz,))
    return _in_folders(data, ("notmnist", "notmnist_small", "notMNIST_small"))


def _find_large(data: Path) -> Found | None:
    return _in_folders(data, ("notmnist-large", "notmnist_large", "notMNIST_large"))


def _check(path: Path) -> str:
    if path.is_dir():
        return "a folder of PNG files, which has no known hash of its own"
    read_npz(path, SMALL_SHA256)
    return "SHA-256 of its arrays is right"


def _split(name: str, images: NDArray[np.uint8], labels: NDArray[np.int64], origin: str) -> Dataset:
    test = held_out(images, labels, share=0.1)
    return Dataset(name, images[~test], labels[~test], images[test], labels[test], LETTERS, origin)


def _read_small(found: Found, say: Say) -> Dataset:
    if found.files[0].is_file():
        return _split("notmnist", *read_npz(found.files[0], SMALL_SHA256), found.where)
    images, labels = read_classes(found.files, SIDE, say)
    if content_sha256(images, labels) != SMALL_SHA256:
        say(f"{found.where} is not the known notMNIST small: its {len(images):,} images are taken as they are")
    return _split("notmnist", images, labels, found.where)


def _read_large(found: Found, say: Say) -> Dataset:
    say(f"reading the PNG files in {found.where}")
    return _split("notmnist-large", *read_classes(found.files, SIDE, say), found.where)


def _by_hand(size: str) -> str:
    url = f"https://commondatastorage.googleapis.com/books1000/notMNIST_{size}.tar.gz"
    return f"unpack {url} in a folder and give this folder with --data or VCL_DATA"


NOTMNIST = DatasetEntry(
    "notmnist",
    "glyphs A to J, 18,724 images of 28x28 (the small set), of which a tenth to test on",
    by_hand=_by_hand("small"),
    classes=len(LETTERS),
    find=_find_small,
    check=_check,
    read=_read_small,
)
NOTMNIST_LARGE = DatasetEntry(
    "notmnist-large",
    "glyphs A to J, about 500,000 noisier images of 28x28, of which a tenth to test on",
    by_hand=_by_hand("large"),
    classes=len(LETTERS),
    find=_find_large,
    check=_check,
    read=_read_large,
)
