"""Bring verified files into a folder from the first origin that gives them, each one whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from vcl.errors import VclError
from vcl.lab.datasets.checksum import sha256, unpack
from vcl.lab.datasets.entry import Say
from vcl.lab.datasets.origins import Origin, OriginError


def fetch_files(folder: Path, expected: Mapping[str, str], origins: Sequence[Origin], say: Say) -> str:
    """Fetch files, given as name to SHA-256 of the content, and name the origins they came from.

    Raises OriginError when all origins failed; each failure is said in one line.
    """
    missing = dict(expected)
    came_from: list[str] = []
    failures: list[str] = []
    _ready(folder)
    for origin in origins:
        if not missing:
            break
        before = len(missing)
        try:
            for name, stored in origin.get(tuple(missing)):
                file = name.removesuffix(".gz")
                found = sha256(unpack(stored))
                if found != missing[file]:
                    raise OriginError(f"sent a {file} with SHA-256 {found}, expected {missing[file]}")
                write(folder / name, stored)
                del missing[file]
        except OriginError as failure:
            failures.append(f"{origin.label}: {failure}")
            say(f"cannot fetch from {failures[-1]}")
        if len(missing) < before:
            came_from.append(origin.label)
    if missing:
        raise OriginError("; ".join(failures))
    return " and ".join(came_from)


def write(path: Path, content: bytes) -> None:
    """Write a file under another name beside its place and rename it: no one ever sees half of it."""
    # The name is one no other process or thread picks; the mode is the one the umask gives.
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _ready(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> VclError:
    return VclError(
        f"cannot write to {folder}: {error.strerror or error}; set XDG_CACHE_HOME to a folder that can be "
        f"written, or put the files into a folder and give it with --data or VCL_DATA."
    )
