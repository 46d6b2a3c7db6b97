"""Fetches files into a folder from the first origin that has them; each is verified and written atomically."""

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
    """An origin did not deliver a file; the next one is tried."""


class Origin(NamedTuple):
    """A place on the network from which files can be fetched by name."""

    label: str
    get: Callable[[Iterable[str], int], Iterator[tuple[str, bytes]]]
    """Takes names and a limit in bytes; yields each name with its file, gzipped or plain, or raises OriginError."""


def fetch_files(folder: Path, expected: Mapping[str, str], origins: Sequence[Origin], limit: int, say: Say) -> str:
    """Fetch the files ``expected``, a map from name to SHA-256 of the content; returns the origins used.

    `say` receives one line per failed origin. Raises OriginError if files are still missing after the last origin.
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
    """Write a file atomically (by pooch). Raises OriginError unless its SHA-256 is the expected one."""
    import pooch

    def write(url: str, beside: str, caller: object) -> None:
        # Recreated so that the umask sets its mode: pooch's file is readable by its owner only.
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
    """Check that pooch is installed and make the folder, before any request."""
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise OriginError(f"fetching needs the module {error.name}: pip install 'vcl[lab]'") from error
    pooch.get_logger().setLevel("WARNING")  # `say` reports progress instead
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
