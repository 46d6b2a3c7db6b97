"""Files that belong together at an address: each under a name of its own, and a manifest that is written last.

The manifest has size and SHA-256 of each, and its own. Whoever reads finds all files of one manifest, or none of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple, final

from vcl.errors import VclError
from vcl.lab.remote.files import AddressError, Files

FORMAT = 1
MOST = 2**24
"""The most bytes of a manifest that are read."""

PLAIN = re.compile(r"[A-Za-z0-9][\w.\- ]*")
"""Names that lead nowhere else."""

FAULTS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a damaged manifest may raise."""


class DamagedError(VclError):
    """What is at an address is not what its manifest says."""


@final
class Object(NamedTuple):
    """A file at an address."""

    at: str
    """Below the address."""
    size: int
    sha256: str


Manifest = Mapping[str, Object]
"""The files by the names that they have in a folder."""


def publish(
    files: Files, folder: Path, names: Sequence[str], manifest: str, place: Callable[[str, str], str]
) -> Manifest:
    """Upload files of a folder, each to ``place(name, sha256)`` unless it is there, and then the manifest."""
    found: dict[str, Object] = {}
    there = files.names(manifest.rpartition("/")[0])
    for name in names:
        path = folder / name
        digest = digest_of(path)
        found[name] = Object(place(name, digest), path.stat().st_size, digest)
        at = found[name].at
        # A name with the digest in it is the file; others may be of an attempt that was broken off.
        if digest not in at or there.get(at) != found[name].size:
            files.put(path, at)
    text = json.dumps({"format": FORMAT, "files": {name: list(each) for name, each in found.items()}})
    outer = {"sha256": sha256(text.encode()).hexdigest(), "about": text}
    files.write(manifest, (json.dumps(outer) + "\n").encode())
    return found


def read(files: Files, manifest: str) -> Manifest:
    """The files of a manifest; GoneError if it is not there, DamagedError if it is not whole."""
    where = f"{files.address}/{manifest}"
    try:
        outer = json.loads(files.read(manifest, MOST))
        text: str = outer["about"]
        if sha256(text.encode()).hexdigest() != outer["sha256"]:
            raise ValueError("its checksum is another")
        about: Mapping[str, Any] = json.loads(text)
        if about["format"] > FORMAT:
            raise VclError(
                f"{where} has format {about['format']}, and this version of vcl reads up to {FORMAT}; install a newer "
                "version of vcl."
            )
        found = {
            str(name): Object(str(at), int(size), str(digest)) for name, (at, size, digest) in about["files"].items()
        }
        if not all(PLAIN.fullmatch(name) for name in found):
            raise ValueError("it names files elsewhere")
    except FAULTS as error:
        raise DamagedError(f"{where} is damaged ({str(error).partition(chr(10))[0]})") from error
    return found


def fetch(files: Files, found: Manifest, wanted: Sequence[str], folder: Path) -> None:
    """Download files of a manifest into a folder and check them; DamagedError if one is not what it should be."""
    parents = {found[name].at.rpartition("/")[0] for name in wanted}
    there = {name: size for parent in parents for name, size in files.names(parent).items()}
    for name in wanted:
        at, size, digest = found[name]
        if there.get(at) != size:  # before any of it is downloaded
            raise DamagedError(f"{files.address}/{at} is damaged (it has {there.get(at, 'no')} bytes and not {size})")
        files.get(at, folder / name)
        if digest_of(folder / name) != digest:
            raise DamagedError(f"{files.address}/{at} is damaged (its checksum is another)")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


__all__ = ["AddressError", "DamagedError", "Manifest", "Object", "fetch", "publish", "read"]
