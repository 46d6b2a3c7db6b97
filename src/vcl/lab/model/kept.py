"""A model's folder: made, locked for an update, loaded, and saved so that a crash leaves the old or the new model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

from vcl.errors import VclError
from vcl.lab.claim import MARKER, Claim, TakenError
from vcl.lab.model import recipe as recipes
from vcl.lab.model.recipe import NAME, Learner, Recipe
from vcl.learner.folder import MANIFEST, read
from vcl.learner.stored import damage
from vcl.learner.tables import Table

FIRST = ".first-update"
"""Where the first update is saved before its files are moved."""

TRIES = 3
"""Attempts to read a model that an update replaces at the same moment."""


def make(folder: Path, recipe: Recipe) -> None:
    """A new model that has learned nothing; VclError if the folder has anything in it."""
    recipe.check()
    if folder.exists() and not folder.is_dir():
        raise VclError(f"{folder} is a file; give a folder that is new or empty.")
    if folder.is_dir() and any(folder.iterdir()):
        what = "a model" if (folder / recipes.NAME).exists() else "files"
        raise VclError(f"{folder} already holds {what}; give a folder that is new or empty. Nothing was changed.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        recipes.write(folder, recipe)
    except OSError as error:
        raise _refused(folder, error) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder, for this process alone; VclError if another one updates it."""
    try:
        claim = Claim(folder)
    except TakenError as error:
        marker = folder / MARKER
        more = f" (or was killed there; then delete {marker})" if marker.exists() else ""
        raise VclError(
            f"another update of {folder} is at work{more}; wait until it has ended. Nothing was changed."
        ) from error
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        if not os.access(folder, os.W_OK):
            raise VclError(f"nothing may be written in {folder}; mend its permissions. Nothing was changed.")
        yield
    finally:
        claim.give_back()


def has_learned(folder: Path) -> bool:
    """Whether there was an update; VclError if there was one whose manifest is gone, which must not begin anew."""
    if (folder / MANIFEST).is_file():
        return True
    if not (folder / FIRST).exists() and any(_tensors(folder)):
        raise VclError(f"the model in {folder} is damaged (it lacks {MANIFEST}); restore it from a copy.")
    return False


def load(folder: Path, recipe: Recipe, device: str = "cpu", verbose: int = 1) -> Learner:
    """The learner of a folder."""
    if not has_learned(folder):
        raise VclError(f"{folder} has learned nothing yet; give it data with `vcl model update {folder} FILE`.")
    for _ in range(TRIES - 1):
        before = _stamp(folder)
        try:
            return _load(folder, recipe, device, verbose)
        except VclError:
            if _stamp(folder) == before:  # nothing replaced it meanwhile
                raise
    return _load(folder, recipe, device, verbose)


def inputs_of(folder: Path, recipe: Recipe) -> int:
    """The number of inputs of the network."""
    content = read(folder, recipe.kind)
    with damage(folder):
        found = int(prod(content.about["inputs"]["shape"]))
        # Its belief has at least one number for each value of the network, which is made first.
        if 4 * recipe.values(found) > len(content.state):
            raise ValueError(f"{NAME} names a network that is larger than what was learned")
        return found


def table_of(folder: Path, recipe: Recipe) -> Table | None:
    """The columns of the first update, if it was a table."""
    given = read(folder, recipe.kind).about.get("table")
    with damage(folder):
        return None if given is None else Table.from_described(given)


def save(folder: Path, learner: Learner, recipe: Recipe) -> None:
    """Save a learner to a folder that the caller has locked."""
    if has_learned(folder):
        learner.save(folder)
        return
    first = folder / FIRST
    learner.save(first)
    try:
        recipes.write(folder, recipe)  # The target counts only once there is a learner.
        for file in sorted(first.iterdir(), key=lambda file: file.name == MANIFEST):  # the manifest last
            os.replace(file, folder / file.name)  # noqa: PTH105
        first.rmdir()
    except OSError as error:
        raise _refused(folder, error) from error


def clear(folder: Path) -> None:
    """Remove what an interrupted first update left; the caller has locked the folder."""
    if (folder / FIRST).exists() and not (folder / MANIFEST).exists():
        for file in _tensors(folder):  # those that were moved already, before their manifest
            file.unlink(missing_ok=True)
    shutil.rmtree(folder / FIRST, ignore_errors=True)


def _load(folder: Path, recipe: Recipe, device: str, verbose: int) -> Learner:
    net = recipe.network(inputs_of(folder, recipe))
    return recipe.learner_class.load(folder, net, device=device, verbose=verbose)


def _tensors(folder: Path) -> list[Path]:
    return [*folder.glob("state-*.safetensors"), *folder.glob("arrays-*.safetensors")]


def _stamp(folder: Path) -> tuple[int, int]:
    try:
        about = (folder / MANIFEST).stat()
    except OSError:
        return (0, 0)
    return about.st_ino, about.st_mtime_ns


def _refused(folder: Path, error: OSError) -> VclError:
    return VclError(f"cannot write to {folder} ({error.strerror or error}); give a folder that you may write.")
