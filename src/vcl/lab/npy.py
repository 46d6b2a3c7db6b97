"""Arrays in npy and npz files. A header is believed only as far as the file goes, and no pickle is ever read.

numpy makes room for what a header promises before it looks whether the file has it. Here the promised bytes must be
those that follow, and they may not be more than a limit.
"""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Iterable
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MOST_HEADER = 10_000
"""The most characters of a header: numpy's own limit."""

MOST_MEMBERS = 1000
"""The most arrays in an npz file."""

MOST_SIDES = 32
CHUNK = 2**20

DAMAGED = (
    OSError, ValueError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, SyntaxError, RecursionError,
    MemoryError, NotImplementedError, RuntimeError, TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What reading a damaged or hostile file may raise: numpy parses headers as Python, and zip files may be encrypted."""


class PickledError(ValueError):
    """An array of Python objects, which only pickle could read."""


def read_npy(path: Path, most: int) -> NDArray[Any]:
    """The array in an npy file of at most ``most`` bytes; one of :data:`DAMAGED` if it is none."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        return _array(file, size, most)


def read_npz(path: Path, most: int, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file by name, together at most ``most`` bytes; only those of ``names`` if given."""
    with zipfile.ZipFile(path) as parts:
        members = _members(parts, most)
        wanted = members if names is None else {name: members[name] for name in names if name in members}
        return {name: _member(parts, about, most) for name, about in wanted.items()}


def names_in(path: Path, most: int) -> list[str]:
    """The names of the arrays in an npz file, in its order."""
    with zipfile.ZipFile(path) as parts:
        return list(_members(parts, most))


def is_npz(path: Path) -> bool:
    """Whether a file begins as npz files do."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _members(parts: zipfile.ZipFile, most: int) -> dict[str, zipfile.ZipInfo]:
    listed = parts.infolist()
    if len(listed) > MOST_MEMBERS:
        raise ValueError(f"it has {len(listed):,} members, and at most {MOST_MEMBERS:,} are read")
    size = sum(part.file_size for part in listed)
    if size > most:
        raise TooLargeError(size, most)
    return {part.filename.removesuffix(".npy"): part for part in listed}


class TooLargeError(ValueError):
    """More bytes of arrays than are read."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"it has {size:,} bytes of arrays, and at most {most:,} are read")
        self.size = size


def _member(parts: zipfile.ZipFile, about: zipfile.ZipInfo, most: int) -> NDArray[Any]:
    with parts.open(about) as file:
        return _array(file, about.file_size, most)


def _array(file: IO[bytes], size: int, most: int) -> NDArray[Any]:
    """The array in a stream that has ``size`` bytes, or says so."""
    version = npy.read_magic(file)
    if version != (1, 0):  # numpy writes others for records alone
        raise ValueError(f"its format is {version}, and (1, 0) is read")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is odd in a header is refused below
        shape, fortran, dtype = npy.read_array_header_1_0(file, MOST_HEADER)
    if dtype.hasobject:
        raise PickledError("it has an array of Python objects, which only pickle could read")
    if dtype.kind not in "biufcSUMm" or not dtype.itemsize:
        raise ValueError(f"its numbers are {dtype}")
    if len(shape) > MOST_SIDES or any(side < 0 for side in shape):
        raise ValueError(f"its shape is {str(shape)[:80]}")
    wanted, left = prod(shape) * dtype.itemsize, size - file.tell()
    if wanted != left:
        raise ValueError(f"its header promises {wanted:,} bytes, and {left:,} follow")
    if wanted > most:
        raise TooLargeError(wanted, most)
    content = bytearray()
    while len(content) < wanted and (part := file.read(min(CHUNK, wanted - len(content)))):
        content += part
    if len(content) < wanted:
        raise ValueError(f"it is cut short: {len(content):,} of {wanted:,} bytes of an array are there")
    file.read(1)  # the end of a member of a zip file is where its checksum is looked at
    return np.ndarray(shape, dtype, content, order="F" if fortran else "C")
