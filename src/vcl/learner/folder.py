"""A learner as a folder: files that are named by their content, and a manifest that is written last.

    learner.json                    what it is, with the checksum of every other file
    state-<checksum>.safetensors    the belief, the coreset and the heads
    arrays-<checksum>.safetensors   scaling, the network's start, what tasks contributed

A save writes new files beside the old ones, replaces the manifest in one step, and then removes the files that it no
longer names. A crash at any instant leaves the old learner or the new one. Nothing removes a file that the manifest of
that instant names. Saves to one folder wait for each other. No pickle is ever read.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vcl.errors import VclError
from vcl.learner.bounded import read_bounded

if sys.platform != "win32":
    import fcntl

MANIFEST = "learner.json"
FORMAT = 1
MOST_JSON = 2**26
"""The most bytes of a manifest that are read."""

FAULTS = (
    SafetensorError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
)  # fmt: skip
"""What reading a damaged file may raise."""

ABANDONED = 3600.0
"""Seconds after which a temporary file belongs to no save that still runs."""


class Content(NamedTuple):
    """What a folder holds."""

    about: Mapping[str, Any]
    state: bytes
    arrays: Mapping[str, Tensor]


def write(path: str | os.PathLike[str], content: Content) -> None:
    """Write a learner; VclError if the system refuses, and then the folder is as it was."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise VclError(f"{folder} is a file; give a folder to save the learner to.")
    # safetensors writes the entries of its metadata in any order, so names come from the tensors alone.
    parts = {"state": content.state, "arrays": save(dict(content.arrays)) if content.arrays else b""}
    files = {
        name: {"file": f"{name}-{sha256(data).hexdigest()[:16]}.safetensors", "sha256": sha256(data).hexdigest()}
        for name, data in parts.items()
        if data
    }
    about = {"format": FORMAT, **content.about, "files": files}
    about["check"] = checksum_of(about)
    manifest = json.dumps(about, indent=1, ensure_ascii=False).encode()
    try:
        made = _new_folders(folder)
        with _locked(folder) as lock:
            if not (folder / MANIFEST).exists() and any(folder.iterdir()):
                raise VclError(
                    f"{folder} holds other files and no learner; give a folder that is new, empty or a learner's."
                )
            new = [entry["file"] for entry in files.values() if not (folder / entry["file"]).exists()]
            try:
                for name, entry in files.items():
                    replace_file(folder / entry["file"], parts[name])
                _sync(lock)  # the names of the files are on the disk before the manifest that names them
                replace_file(folder / MANIFEST, manifest)
            except BaseException:
                _undo(folder, new, made)
                raise
            with suppress(OSError):  # the new learner is there already, so that nothing here may fail
                _sync(lock)
                _tidy(folder)
    except OSError as error:
        raise VclError(
            f"cannot write to {folder} ({error.strerror or error}); free space or give another folder."
        ) from error


@contextmanager
def _locked(folder: Path, shared: bool = False) -> Iterator[int | None]:
    """Hold the folder against other saves (``shared``: against saves, not against loads); gives its descriptor.

    The lock is a file of the system's temporary folder that is named by the folder's place on the disk: nothing is left
    in the folder, and a program that has locked the folder itself, as ``vcl model update`` does, is not in the way.
    Where a system or a disk has no such locks, or between machines, the rule of the module alone protects: a file that
    the manifest names is never removed.
    """
    if sys.platform == "win32":
        yield None
        return
    handle = os.open(folder, os.O_RDONLY)
    lock = -1
    try:
        with suppress(OSError):
            about = os.fstat(handle)
            name = Path(tempfile.gettempdir()) / f"vcl-learner-{about.st_dev:x}-{about.st_ino:x}.lock"
            lock = os.open(name, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield handle
    finally:
        if lock >= 0:
            os.close(lock)
        os.close(handle)


def _sync(folder: int | None) -> None:
    """Write the names in a folder to the disk, where its file system can."""
    if folder is None:
        return
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _named(folder: Path) -> set[str]:
    """The files that the folder's manifest names at this instant; OSError or ValueError if it cannot be read."""
    try:
        about = json.loads(read_bounded(folder / MANIFEST, MOST_JSON))
    except FileNotFoundError:
        return set()
    try:
        return {entry["file"] for entry in about["files"].values()}
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{MANIFEST} names no files") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically and to the disk."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)  # as other files: a temporary one is its owner's alone
        os.replace(name, path)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _new_folders(folder: Path) -> list[Path]:
    """Make the folder; the folders that were not there, the innermost first."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return made


def _undo(folder: Path, files: list[str], made: list[Path]) -> None:
    """Remove what a save that failed has written, as far as the system lets us.

    An interrupt may come when the manifest is in its place already: what it names stays.
    """
    with suppress(OSError, ValueError):
        kept = _named(folder)
        for name in files:
            if name not in kept:
                (folder / name).unlink(missing_ok=True)
        for each in made:
            each.rmdir()


def _tidy(folder: Path) -> None:
    """Remove files of earlier saves, and temporary files that were left behind."""
    with suppress(OSError, ValueError):
        kept = _named(folder)
        for old in (*folder.glob("state-*.safetensors"), *folder.glob("arrays-*.safetensors")):
            if old.name not in kept:
                old.unlink(missing_ok=True)
        for left in folder.glob(".*.tmp"):
            if time() - left.stat().st_mtime > ABANDONED:
                left.unlink(missing_ok=True)


def checksum_of(about: Mapping[str, Any]) -> str:
    """A checksum of everything in a manifest but itself."""
    plain = {name: value for name, value in about.items() if name != "check"}
    return sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def read(path: str | os.PathLike[str], kind: str) -> Content:
    """The learner of a folder, with every file checked; VclError if it is none, or damaged, or of another kind."""
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise VclError(f"{folder} is no learner: it has no {MANIFEST}; give the folder that a learner was saved to.")
    try:
        with _locked(folder, shared=True):
            return _read(folder, kind)
    except FileNotFoundError as error:
        lacking = Path(error.filename or folder).name
        raise VclError(f"the learner in {folder} is damaged (it lacks {lacking}); restore it from a copy.") from error
    except OSError as error:
        raise VclError(f"{folder} cannot be read ({error.strerror or error}); mend its permissions.") from error
    except FAULTS as error:
        said = str(error).partition("\n")[0]
        raise VclError(f"the learner in {folder} is damaged ({said}); restore it from a copy.") from error


def _read(folder: Path, kind: str) -> Content:
    """The learner of a folder that no save changes meanwhile; errors of many kinds if it is damaged."""
    manifest = folder / MANIFEST
    about = json.loads(read_bounded(manifest, MOST_JSON))
    if not isinstance(about, dict) or not isinstance(about.get("format"), int):
        raise ValueError("it has no format")
    if about["format"] > FORMAT:
        raise VclError(
            f"{folder} has format {about['format']}, and this version of vcl reads up to {FORMAT}; install a newer "
            "version of vcl."
        )
    if about.get("check") != checksum_of(about):
        raise ValueError(f"{MANIFEST} is not what was saved")
    if about.get("kind") != kind:
        raise VclError(f"{folder} holds a {about.get('kind')!r}, not a {kind!r}; load it with that class.")
    found = {name: _checked(folder, entry) for name, entry in about["files"].items()}
    arrays = load(found["arrays"]) if "arrays" in found else {}
    return Content(about, found["state"], arrays)


def _checked(folder: Path, entry: Mapping[str, Any]) -> bytes:
    name = entry["file"]
    if not isinstance(name, str) or Path(name).name != name:
        raise ValueError(f"{MANIFEST} names a file {name!r} outside of the folder")
    data = read_bounded(folder / name)
    if sha256(data).hexdigest() != entry["sha256"]:
        raise ValueError(f"{name} is not what was saved")
    return data
