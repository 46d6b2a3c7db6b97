"""Finds a dataset in the data folders, or else fetches it into the cache."""

from __future__ import annotations

from pathlib import Path

from vcl.lab.datasets.data_folders import cache, data_folders, offline
from vcl.lab.datasets.entry import Dataset, DatasetEntry, Found, MissingData, Say
from vcl.lab.datasets.fetch import OriginError


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
    origin = _fetch(entry, folder, fetch, say)
    fetched = entry.find(cache())
    if fetched is None or fetched.lacking:
        raise _missing(entry, folder, "what was fetched is gone again")
    return entry.read(fetched, say)._replace(origin=f"fetched from {origin} into {fetched.where}")


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
