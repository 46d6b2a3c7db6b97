"""Find a dataset in the data folders, and fetch it into the cache where it is in none of them."""

from __future__ import annotations

from pathlib import Path

from vcl.lab.datasets.origins import OriginError
from vcl.lab.datasets.places import cache, offline, places
from vcl.lab.datasets.source import Dataset, Found, MissingData, Say, Source


def find_all(source: Source, folder: Path | None = None) -> list[Found]:
    """What lies of a dataset in each of the data folders, whole or not, in their order."""
    return list(dict.fromkeys(found for place in places(folder) if (found := source.find(place))))


def find(source: Source, folder: Path | None, say: Say) -> Found | None:
    """The first data folder's that has it whole; what lacks files is said and passed over."""
    for found in find_all(source, folder):
        if not found.lacking:
            return found
        say(f"{found.where} is passed over, for it lacks {', '.join(found.lacking)}")
    return None


def load_source(source: Source, folder: Path | None, fetch: bool, say: Say) -> Dataset:
    """Read a dataset from where it is, or fetch it first."""
    found = find(source, folder, say)
    if found is not None:
        return source.read(found, say)
    origin = _fetch(source, folder, fetch, say)
    fetched = source.find(cache())
    if fetched is None or fetched.lacking:
        raise _missing(source, folder, "what was fetched is gone again")
    return source.read(fetched, say)._replace(origin=f"fetched from {origin} into {fetched.where}")


def _fetch(source: Source, folder: Path | None, fetch: bool, say: Say) -> str:
    if source.fetch is None:
        raise _missing(source, folder, "there is no verified place to fetch it from")
    if not fetch:
        raise _missing(source, folder, "this call does not fetch")
    if offline():
        raise _missing(source, folder, "VCL_OFFLINE forbids the network")
    say(f"{source.name} is not on this machine; fetching it into {cache()}")
    try:
        return source.fetch(cache(), say)
    except OriginError as failure:
        raise _missing(source, folder, str(failure)) from failure


def _missing(source: Source, folder: Path | None, reason: str) -> MissingData:
    looked = ", ".join(str(place) for place in places(folder))
    return MissingData(
        f"{source.name} is in none of {looked}, and it was not fetched ({reason}); to have it, {source.by_hand}."
    )
