"""A dataset of four IDX files, gzipped or plain, with MNIST's file names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vcl.lab.datasets.checksum import verified
from vcl.lab.datasets.entry import LIMIT, Dataset, DatasetEntry, Found, Say
from vcl.lab.datasets.fetch import Origin, fetch_files
from vcl.lab.datasets.idx import images_and_labels


class IdxFiles(NamedTuple):
    """One string for each of the four files."""

    train_images: str
    train_labels: str
    test_images: str
    test_labels: str


FILES = IdxFiles(
    train_images="train-images-idx3-ubyte",
    train_labels="train-labels-idx1-ubyte",
    test_images="t10k-images-idx3-ubyte",
    test_labels="t10k-labels-idx1-ubyte",
)


def idx_set(
    name: str,
    about: str,
    sha256: IdxFiles,
    classes: tuple[str, ...],
    origins: Sequence[Origin],
    also: str = "",
    limit: int = LIMIT,
) -> DatasetEntry:
    """The entry of the dataset in the folder `name` of a data folder; hashes are of the uncompressed files."""
    expected = dict(zip(FILES, sha256, strict=True))
    mend = f"delete it and run `vcl data get {name}`, or put the original file in its place"
    by_hand = (
        f"put {', '.join(FILES)} (plain or .gz) into a folder `{name}` "
        f"and give the folder around it with --data or VCL_DATA{also}"
    )

    def present(data: Path) -> dict[str, Path]:
        ways = {file: (data / name / f"{file}.gz", data / name / file) for file in FILES}
        return {file: path for file, paths in ways.items() for path in paths if path.is_file()}

    def find(data: Path) -> Found | None:
        files = present(data)
        lacking = tuple(file for file in FILES if file not in files)
        return Found(str(data / name), tuple(files.values()), lacking) if files else None

    def content(path: Path) -> bytes:
        return verified(path, expected[path.name.removesuffix(".gz")], mend, entry.limit)

    def check(path: Path) -> str:
        content(path)
        return "SHA-256 is right"

    def read(found: Found, say: Say) -> Dataset:
        paths = {path.name.removesuffix(".gz"): path for path in found.files}
        train_images, train_labels, test_images, test_labels = (content(paths[file]) for file in FILES)
        train_x, train_y = images_and_labels(train_images, train_labels, f"{name} train", len(classes))
        test_x, test_y = images_and_labels(test_images, test_labels, f"{name} test", len(classes))
        return Dataset(name, train_x, train_y, test_x, test_y, classes, found.where)

    def fetch(data: Path, say: Say) -> str:
        missing = {file: hash for file, hash in expected.items() if file not in present(data)}
        return fetch_files(data / name, missing, origins, entry.limit, say)

    entry = DatasetEntry(name, about, by_hand, find, check, read, fetch, len(classes), limit)
    return entry
