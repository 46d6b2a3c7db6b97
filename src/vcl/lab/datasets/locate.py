"""Finds a dataset in the data folders, or else fetches it into the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from vcl.errors import VclError
from vcl.lab.claim import claimed
from vcl.lab.datasets.data_folders import cache, data_folders, offline
from vcl.lab.datasets.entry import Dataset, DatasetEntry, Found, MissingData, Say
from vcl.lab.datasets.fetch import OriginError

PATIENCE = 600.0
"""Seconds to wait for another process that fetches the same."""


def find_all(entry: DatasetEntry, folder: Path | None = None) -> list[Found]:
    """What each data folder has of a dataset, complete or not, in order of search."""
    return list(dict.fromkeys(found for place in data_folders(folder) if (found := entry.find(place))))


def find(entry: DatasetEntry, folder: Path | None, say: Say) -> Found | None:
    """The dataset in the first data folder that has all its files; incomplete ones are reported and skipped."""
    for found in find_all(entry, folder):
        if not found.lacking:
            return found
        say(f"{found.where} is passed over, for it lacks {', '.join(found.lacking)}")
    return None


def load_dataset(entry: DatasetEntry, folder: Path | None, fetch: bool, say: Say) -> Dataset:
    """Read a dataset; fetch it first if no data folder has it."""
    found = find(entry, folder, say)
    if found is not None:
        return entry.read(found, say)
    if not fetch or offline():
        _fetch(entry, folder, fetch, say)  # raises
    with _alone(entry.name):
        fetched = entry.find(cache())
        if fetched is not None and not fetched.lacking:  # by another process, while this one waited
            return entry.read(fetched, say)
        origin = _fetch(entry, folder, fetch, say)
        fetched = entry.find(cache())
    if fetched is None or fetched.lacking:
        raise _missing(entry, folder, "what was fetched is gone again")
    return entry.read(fetched, say)._replace(origin=f"fetched from {origin} into {fetched.where}")


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold a dataset's place in the cache: of several processes one fetches it, and the others wait for that.

    Where that cannot be, each fetches for itself; files are written whole either way.
    """
    with ExitStack() as stack:
        with suppress(VclError):
            stack.enter_context(claimed(cache() / "fetching" / name, wait=PATIENCE))
        yield


def _fetch(entry: DatasetEntry, folder: Path | None, fetch: bool, say: Say) -> str:
    if entry.fetch is None:
        raise _missing(entry, folder, "there is no verified place to fetch it from")
    if not fetch:
        looked = ", ".join(map(str, data_folders(folder)))
        raise MissingData(
            f"{entry.name} is in none of {looked}, and a dry run (fetch=False) fetches nothing; run `vcl data get "
            f"{entry.name}` first."
        )
    if offline():
        raise _missing(entry, folder, "VCL_OFFLINE forbids the network")
    say(f"{entry.name} is not on this machine; fetching it into {cache()}")
    try:
        return entry.fetch(cache(), say)
    except OriginError as failure:
        raise _missing(entry, folder, str(failure)) from failure


def _missing(entry: DatasetEntry, folder: Path | None, reason: str) -> MissingData:
    looked = ", ".join(str(place) for place in data_folders(folder))
    return MissingData(
        f"{entry.name} is in none of {looked}, and it was not fetched ({reason}); to have it, {entry.by_hand}."
    )
