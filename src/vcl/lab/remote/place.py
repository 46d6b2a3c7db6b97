"""Where results are: a folder, or an address with a working copy on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, final

from vcl.errors import VclError
from vcl.lab.remote.files import is_address
from vcl.lab.remote.mirror import Mirror


@final
class Place(NamedTuple):
    """A folder of results, and what keeps it the same as an address."""

    folder: Path
    mirror: Mirror | None = None

    @property
    def shown(self) -> str:
        """The folder or the address, for people and commands."""
        return str(self.folder) if self.mirror is None else self.mirror.address


def place_of(out: str, say: Callable[[str], None], launch: str = "") -> Place:
    """The place that --out names, which is tried if it is an address; ``launch`` says whose job asks."""
    if not is_address(out):
        return Place(Path(out))
    mirror = Mirror(out, True, say, launch)
    return Place(mirror.folder, mirror)


def check_shared(out: str | None, apart: bool) -> None:
    """Raise one clear sentence if other processes, ``apart``, cannot see the place that --out names."""
    if apart and out is not None and out.startswith("memory:"):
        raise VclError(f"{out} is this process's own memory, which jobs in others cannot see; give another address.")


def read_from(given: str, say: Callable[[str], None], whole: bool = False) -> Path:
    """The folder of results that is given, or the copy of an address; ``whole``: with what predictions need."""
    if not is_address(given):
        return Path(given)
    mirror = Mirror(given, False, say)
    mirror.pull()
    mirror.pull_top()
    for folder in sorted((mirror.folder / "parts").glob("*/")) if whole else ():
        mirror.bring_whole(folder)
    if not any(mirror.folder.glob("parts/*/part.json")):
        raise VclError(f"{given} holds no results; give an address that `vcl run` or `vcl paper` wrote to.")
    return mirror.folder
