"""Bring verified files into a folder from the first origin that gives them, each one whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vcl.errors import VclError
from vcl.lab.datasets.checksum import sha256, unpack
from vcl.lab.datasets.entry import Say


class OriginError(Exception):
    """An origin did not give what was asked; the next one is tried."""


class Origin(NamedTuple):
    """One place in the network that keeps files under the names asked for."""

    label: str
    get: Callable[[Iterable[str], int], Iterator[tuple[str, bytes]]]
    """For each name asked, the name and the file, gzipped or plain, within a limit of bytes; raises OriginError."""


def fetch_files(folder: Path, expected: Mapping[str, str], origins: Sequence[Origin], limit: int, say: Say) -> str:
    """Fetch files, given as name to SHA-256 of the content, and name the origins they came from.

    Raises OriginError when all origins failed; each failure is said in one line.
    """
    missing = dict(expected)
    came_from: list[str] = []
    failures: list[str] = []
    _prepare(folder)
    for origin in origins:
        before = len(missing)
        try:
            for name, stored in origin.get(tuple(missing), limit) if missing else ():
                store(folder / name, unpack(stored, limit), missing[name])
                del missing[name]
        except OriginError as failure:
            failures.append(f"{origin.label}: {failure}")
            say(f"cannot fetch from {failures[-1]}")
        if len(missing) < before:
            came_from.append(origin.label)
    if missing:
        raise OriginError("; ".join(failures))
    return " and ".join(came_from)


def store(path: Path, content: bytes, expected: str) -> None:
    """Write a file whose SHA-256 is the expected one. pooch renames it into its place: no one ever sees half of it."""
    import pooch

    def write(url: str, beside: str, caller: object) -> None:
        # Made anew, because the umask is to give the mode: pooch's file is for its owner only.
        Path(beside).unlink()
        with Path(beside).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    if (found := sha256(content)) != expected:
        raise OriginError(f"sent a {path.name} with SHA-256 {found}, expected {expected}")
    with _writing(path.parent):
        pooch.retrieve(str(path), f"sha256:{expected}", path.name, path.parent, downloader=write)


def _prepare(folder: Path) -> None:
    """See to it that what comes can be kept, before anything is asked for."""
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise OriginError(f"fetching needs the module {error.name}: pip install 'vcl[lab]'") from error
    pooch.get_logger().setLevel("WARNING")  # what happens is said through `say`
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise VclError(
            f"cannot write to {folder}: {error.strerror or error}; set XDG_CACHE_HOME to a folder that can be "
            f"written, or put the files into a folder and give it with --data or VCL_DATA."
        ) from error
