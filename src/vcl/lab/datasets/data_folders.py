"""The folders that are searched for data, in order, and the cache, which receives fetched data."""

from __future__ import annotations

import os
from pathlib import Path

from vcl.errors import VclError

# Debian's dataset packages (dataset-fashion-mnist) install here. The layout is that of a data folder.
SYSTEM = Path("/usr/share/datasets")


def cache() -> Path:
    """The user's cache folder: `$XDG_CACHE_HOME/vcl`, or `~/.cache/vcl`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    base = Path(given) if Path(given).is_absolute() else Path("~/.cache").expanduser()
    return base / "vcl"


def data_folders(folder: Path | None = None) -> tuple[Path, ...]:
    """The data folders in order of search: the one given, `$VCL_DATA`, the cache, the system's."""
    if folder is not None and not folder.expanduser().is_dir():
        raise VclError(
            f"the data folder {folder} is not a folder: give one that exists, with the datasets in folders "
            f"by their names (such as {folder / 'mnist'})."
        )
    given = os.environ.get("VCL_DATA", "")
    wanted = [folder, Path(given) if given else None, cache(), SYSTEM if SYSTEM.is_dir() else None]
    return tuple(dict.fromkeys(place.expanduser() for place in wanted if place is not None))


def offline() -> bool:
    """Whether `VCL_OFFLINE` forbids the network."""
    return os.environ.get("VCL_OFFLINE", "") not in ("", "0")
