"""Disks that are full, and folders that may not be written, at every kind of work that writes.

A disk is full in three ways: no file may grow beyond a size; the n-th change of a file is refused, and all later ones
or that one alone; and a small file system. A folder is closed by its modes, or is on a disk that is read-only.

A work that fails does so with one sentence and a status that is not 0, and what was there before is whole. With room
again, the same work ends as if nothing had happened, byte for byte, and no finished task is learned again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import people
from filling import closed, full_at, limit, may_mount, opened, read_only, small_disk, with_room, without_rights
from killing import OPERATIONS, Killed
from outcome import Outcome, Result
from runs import OUT, Ended, Undisturbed, Work, differing, kept, line_of, run
from sharing import Server, digests, made
from side import side_by_side

PAGE = 4096
LEAST = 2 * PAGE
"""The smallest size of a file to which a process is limited: what it says is a file too."""
SENTENCE = re.compile(r"vcl: [^\n]{10,1000}\.")
LINE = line_of("vcl-random", "split-digits", "--save-every 0").replace("--seeds 2", "--seeds 12")
"""With so many seeds that each of its files is larger than what it says."""
WRITTEN = re.compile(rb"Written by vcl [^<\"]*? UTC")

Contents = Mapping[str, bytes]


class Job(NamedTuple):
    """A work that writes."""

    name: str
    work: Work
    disk: str
    """The folder that it writes to, within a trial's."""
    answer: Callable[[Path], Contents]
    """What it leaves, of a trial's folder."""
    begin: Sequence[Work] = ()
    """What was done before."""
    still: Callable[[Path], Contents] | None = None
    """What must be as before or as afterwards, whatever fails."""
    drawn: bool = False
    tries: int = 4
    """Trials of each way in which a disk is full."""
    goes_on: str = ""
    """What is said where nothing can be written, if the work goes on nevertheless."""


def drawn_in(folder: Path) -> Contents:
    """All files of the results; a page without the time at which it was written."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / OUT).rglob("*") if fine(path)}
    return {name: WRITTEN.sub(b"", data) for name, data in found.items()}


def fine(path: Path) -> bool:
    """Whether it is a file, and none that was being written."""
    return path.is_file() and path.suffix != ".tmp"


def results(folder: Path) -> Contents:
    """What a run keeps."""
    return kept(folder / OUT)


def told(work: Work, folder: Path) -> Contents:
    """What a script says of what it finds."""
    assert not isinstance(work, str)
    return {people.ANSWER: people.answer(work, folder)}


def one(name: str, folder: Path) -> Contents:
    """One file."""
    return {name: (folder / name).read_bytes()}


def cached(folder: Path) -> Contents:
    """The files of the data cache."""
    return {path.name: path.read_bytes() for path in (folder / "cache").rglob("*-ubyte")}


def jobs(url: str, wanted: list[str], short: bool) -> Iterator[Job]:
    """All kinds of work that write."""
    yield Job("vcl run", LINE, OUT, results, tries=1 if short else 12)
    learned, model = partial(told, people.tell), people.told_by_model
    yield Job(
        "learner.save",
        people.learn_and_save,
        people.LEARNER,
        learned,
        (people.begin,),
        learned,
        tries=1 if short else 4,
    )
    if short:
        return
    yield Job("vcl show: tables and figures", f"show {OUT}", OUT, drawn_in, (LINE,), drawn_in, drawn=True)
    yield Job("vcl report", f"report {OUT}", OUT, drawn_in, (LINE, f"report {OUT}"), drawn_in, tries=3)
    file = f"{OUT}/predictions.npz"
    yield Job("vcl predict", f"predict {OUT} --task 2/3 --out {file}", OUT, partial(one, file), (LINE,), tries=2)
    yield Job(
        "learner.update(checkpoint=)", people.learn_with_checkpoint, people.CHECKPOINT, learned, (people.begin,),
        learned, tries=6, goes_on="the work goes on",
    )  # fmt: skip
    made_of = partial(people.commands, *people.MADE)

    def by_model(folder: Path) -> Contents:
        return {people.ANSWER: model(folder)}

    update = partial(people.commands, f"model update {people.MODEL} b.csv --quiet")
    first = partial(people.commands, people.MADE[1])
    yield Job("vcl model update", update, people.MODEL, by_model, (made_of,), by_model)
    yield Job("vcl model update, the first", first, people.MODEL, by_model, (people.MADE[0],))
    file = f"{people.MODEL}/predictions.csv"
    predict = f"model predict {people.MODEL} c.csv --out {file}"
    yield Job("vcl model predict", predict, people.MODEL, partial(one, file), (made_of,), tries=2)
    fetch = partial(people.fetch, url, wanted)
    yield Job("a dataset that is fetched", fetch, "cache", cached)


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """Each work on full disks, and on those that may not be written."""
    rng, files = Random(seed), made(seed)
    why = may_mount(folder / "mounted")
    with Server(files) as server:
        for job in jobs(server.url, digests(files), short):
            yield from full(Tried.of(job, folder / job.name), rng, why, short)
    if why:
        said = f"NOT TRIED, neither small disks nor read-only ones: they need root, and {why}"
        yield Outcome("a small disk", Result.SURVIVED, said, 0)


class Tried(NamedTuple):
    """A job, with what it leaves where nothing disturbs it."""

    job: Job
    base: Path
    """A folder in which all was done that comes before."""
    before: Contents
    after: Contents
    sizes: list[int]
    """Of the files that it writes."""
    changes: int
    """How many changes of files take room."""
    said: str

    @classmethod
    def of(cls, job: Job, base: Path) -> Tried:
        """Do what comes before, and the work once."""
        people.tables(base / "base")
        for work in job.begin:
            end = run(work, base / "base", drawn=job.drawn)
            if end.code:
                raise RuntimeError(end.said)
        before = job.still(base / "base") if job.still else {}
        (base / "base" / job.disk).mkdir(exist_ok=True)
        copy = copied(base / "base", base / "whole")
        end = run(job.work, copy, partial(full_at, 0), drawn=job.drawn)
        if end.code:
            raise RuntimeError(end.said)
        changes = int((copy / OPERATIONS).read_text())
        old = {path.relative_to(base / "base"): path.stat() for path in (base / "base").rglob("*")}
        sizes = [
            path.stat().st_size
            for path in (copy / job.disk).rglob("*")
            if path.is_file() and path.relative_to(copy) not in old
        ]
        return cls(job, base, before, job.answer(copy), sorted(sizes), changes, end.said)

    def judged(self, fault: str, note: str, folder: Path, first: Ended, closed: bool = False) -> Outcome:
        """What became of a trial: how its first process ended, what it left, and what the next one makes of that."""
        lost = partial(Outcome, fault, Result.LOST)
        if first.wrong or (first.code and not SENTENCE.fullmatch(first.last)):
            return lost(f"{note}: {first.wrong or f'it ended with {first.code}: {first.last}'}")
        if closed and not first.code and not (self.job.goes_on and self.job.goes_on in first.said):
            return lost(f"{note}: it ended well, and wrote nothing")
        if self.job.still is not None:
            there = self.job.still(folder)
            halves = [name for name in self.before if there.get(name) not in (self.before[name], self.after.get(name))]
            if halves:
                return lost(f"{note}: neither old nor new: {', '.join(halves)}; {first.last}")
        both = [first.said]
        if first.code:
            end = run(self.job.work, folder, drawn=self.job.drawn)
            both.append(end.said)
            if end.wrong or end.code:
                return lost(f"{note}: with room again it ended with {end.code}: {end.wrong or end.last}")
        other = differing(self.job.answer(folder), self.after)
        known = Undisturbed({}, 0.0, self.said)
        again = Killed(1, tuple(both), first).lost(known) if len(both) > 1 else ""
        if other or again:
            return lost(f"{note}: {other or again}; {first.last}")
        said = first.last.replace(f"{folder}/", "") if first.code else ""
        return Outcome(fault, Result.REFUSED if first.code else Result.SURVIVED, said)


def copied(base: Path, to: Path) -> Path:
    """A folder as it was before."""
    shutil.copytree(base, to)
    return to


def spread(most: int, count: int, rng: Random) -> list[int]:
    """So many numbers from 1 to ``most``, one in each of as many equal pieces."""
    count = min(count, most)
    return [1 + rng.randrange(place * most // count, (place + 1) * most // count) for place in range(count)]


def full(tried: Tried, rng: Random, why: str, short: bool) -> Iterator[Outcome]:
    """All ways for one job; ``why`` disks cannot be mounted, if so."""
    job, base = tried.job, tried.base
    limits = [size for each in sorted({*tried.sizes}) for size in (each // 2, each - 1) if size >= LEAST]
    asked = [partial(limited, tried, size) for size in rng.sample(limits, min(job.tries, len(limits)))]
    for number in spread(tried.changes, job.tries, rng):
        asked.append(partial(changed, tried, number, bool(rng.randrange(2))))
    if not why:
        old = sum(pages(path) for path in (base / "base" / job.disk).rglob("*"))
        new = sum(pages(path) for path in (base / "whole" / job.disk).rglob("*"))
        for number in spread(max(1, new - old // 2), job.tries // 2 or 1, rng):
            asked.append(partial(small, tried, old, number))
    if not short:
        asked += [partial(shut, tried), *([] if why else [partial(mounted, tried)])]
    yield from side_by_side(asked)


def limited(tried: Tried, size: int) -> Outcome:
    """No file may grow beyond a size."""
    job, fault = tried.job, f"full disk (a limit of the size of files): {tried.job.name}"
    folder = copied(tried.base / "base", tried.base / f"limit {size}")
    end = run(job.work, folder, partial(limit, size), drawn=job.drawn)
    return tried.judged(fault, f"{size} bytes", folder, end)


def changed(tried: Tried, number: int, lasting: bool) -> Outcome:
    """A change of a file finds the disk full."""
    job, fault = tried.job, f"full disk (ENOSPC at a change of a file): {tried.job.name}"
    folder = copied(tried.base / "base", tried.base / f"change {number}")
    end = run(job.work, folder, partial(full_at, number, lasting), drawn=job.drawn)
    note = f"change {number} of {tried.changes}{' and all later ones' if lasting else ''}"
    return tried.judged(fault, note, folder, end)


def small(tried: Tried, old: int, number: int) -> Outcome:
    """The work's folder on a disk of its own, with room for a part of what it writes."""
    job, fault = tried.job, f"full disk (a small file system): {tried.job.name}"
    folder = copied(tried.base / "base", tried.base / f"small {number}")
    shutil.rmtree(folder / job.disk)
    (folder / job.disk).mkdir()
    with small_disk(folder / job.disk, (old + number) * PAGE):
        shutil.copytree(tried.base / "base" / job.disk, folder / job.disk, dirs_exist_ok=True)
        end = run(job.work, folder, drawn=job.drawn)
        with_room(folder / job.disk)
        return tried.judged(fault, f"{number} pages free", folder, end)


def pages(path: Path) -> int:
    """How many pages of a disk a file or a folder takes."""
    return -(-path.stat().st_size // PAGE) if path.is_file() else 1


def shut(tried: Tried) -> Outcome:
    """A folder that may not be written, by its modes."""
    job, fault = tried.job, f"a folder without the right to write: {tried.job.name}"
    folder = copied(tried.base / "base", tried.base / "closed")
    closed(folder / job.disk)
    end = run(job.work, folder, without_rights, drawn=job.drawn)
    opened(folder / job.disk)
    return tried.judged(fault, "by its modes", folder, end, closed=True)


def mounted(tried: Tried) -> Outcome:
    """A folder that may not be written, by its file system."""
    job, fault = tried.job, f"a read-only file system: {tried.job.name}"
    folder = copied(tried.base / "base", tried.base / "read-only")
    with read_only(folder / job.disk):
        end = run(job.work, folder, drawn=job.drawn)
    return tried.judged(fault, "mounted so", folder, end, closed=True)
