"""Hostile files for every reader: arbitrary bytes, and valid files edited in what they say and in their bytes.

Each input must be read, or refused by an error of ours, within a time and within half a GiB of memory. A promise that
is believed until memory runs out is lost too, though it ends in a sentence. Inputs are drawn by hypothesis, which
shrinks those that are lost; they follow from the seed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

from outcome import Outcome, Result
from runs import OUT, line_of, run, undisturbed

INPUTS = 55_000
"""Over all readers."""
SHORT = 400
MEMORY = 2**29
"""Bytes of address space that a process may take beside what it has before the first input."""
SECONDS = 20.0
"""For one input."""
LONG = 3_000.0
"""For all inputs of a reader; what hangs in C is seen by that alone."""
LINE = line_of("vcl-random", "split-digits", "--set coreset=4 --set coreset_epochs=1")


class HungError(BaseException):
    """An input took longer than it may."""


class LostError(Exception):
    """What escaped from a reader."""


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """All readers, each in a process of its own (in short all in one)."""
    undisturbed(LINE, folder / "run")
    names = listed(folder)
    total = sum(names.values())
    groups = [list(names)] if short else [[name] for name in names]
    for number, group in enumerate(groups):
        place = folder / f"process {number}"
        place.mkdir()
        counts = {name: max(1, round((SHORT if short else INPUTS) * names[name] / total)) for name in group}
        end = run(partial(hand, counts, folder / "run" / OUT, seed), place, limit=LONG)
        known = [json.loads(line) for line in (place / "found").read_text().splitlines()] if not end.code else []
        if end.code != 0 or len(known) != len(group):
            yield Outcome(f"hostile input: {', '.join(group)}", Result.LOST, f"it ended with {end.code}: {end.last}")
        for each in known:
            yield from told(each)


def told(found: dict[str, Any]) -> Iterator[Outcome]:
    """The outcomes of a reader."""
    fault = f"hostile input: {found['name']}"
    yield Outcome(fault, Result.REFUSED, "", found["refused"])
    yield Outcome(fault, Result.SURVIVED, "", found["read"])
    yield Outcome(fault, Result.SURVIVED, f"slowest {found['slowest']:.2f} s, memory + {found['grown']} MiB", 0)
    for each in found["lost"]:
        yield Outcome(fault, Result.LOST, each)


def listed(folder: Path) -> dict[str, float]:
    """The readers by name, with their weights."""
    place = folder / "listed"
    place.mkdir()
    end = run(partial(name_all, folder / "run" / OUT), place)
    if end.code:
        raise RuntimeError(end.said)
    found: dict[str, float] = json.loads((place / "names").read_text())
    return found


def name_all(results: Path) -> None:
    """In a child: all readers, each of which must take its own valid files."""
    from hostile import readers

    found = readers(Path("made").absolute(), results)
    for name, reader in found.items():
        for content in reader.valid:
            for whole in (content, reader.format.packed(reader.format.unpack(content))):
                reader.place.write_bytes(whole)
                try:
                    reader.read(reader.place)
                except Exception as error:
                    refuses = {"npz of notMNIST", "file of a plugin"}  # other content than theirs is always refused
                    if name not in refuses:
                        raise RuntimeError(f"{name} refuses a valid file: {error}") from error
        reader.place.write_bytes(reader.valid[0])
    Path("names").write_text(json.dumps({name: reader.weight for name, reader in found.items()}))


def hand(counts: dict[str, int], results: Path, seed: int) -> None:
    """In a child: hand each reader so many inputs, and note what became of them."""
    from hostile import readers

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, hung)
    found = readers(Path("made").absolute(), results)
    for reader in found.values():  # what is imported at the first use is no memory of an input
        reader.place.write_bytes(reader.valid[0])
        attempt(reader)
    limit()
    with Path("found").open("w") as file:
        for name, count in counts.items():
            file.write(json.dumps(handed(name, found[name], count, seed)) + "\n")
            found[name].place.write_bytes(found[name].valid[0])


def handed(name: str, reader: Any, count: int, seed: int) -> dict[str, Any]:
    """One reader's inputs."""
    from edits import INPUTS as DRAWN
    from edits import Drawn, edited, over
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    trees = [reader.format.unpack(content) for content in reader.valid]
    done = {"name": name, "refused": 0, "read": 0, "slowest": 0.0, "grown": 0, "lost": []}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @seeded(seed)
    @settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink), print_blob=False,
    )  # fmt: skip
    @given(DRAWN)
    def tried(drawn: Drawn) -> None:
        base = drawn.base % len(trees)
        content = reader.valid[base] if drawn.whole is None else drawn.whole
        if drawn.inside and drawn.whole is None:
            content = reader.format.packed(edited(trees[base], drawn.inside))
        for edit in drawn.outside:
            content = over(content, edit)
        reader.place.write_bytes(content[: 2**24])
        began = perf_counter()
        ended = attempt(reader)
        done["slowest"] = max(done["slowest"], perf_counter() - began)
        if ended not in ("read", "refused"):
            raise LostError(ended)
        done[ended] += 1

    try:
        tried()
    except LostError as error:
        done["lost"].append(f"{error}; the file begins with {reader.place.read_bytes()[:80]!r}")
    except BaseExceptionGroup as several:
        done["lost"] += [str(each) for each in several.exceptions]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return done | {"grown": grown // 1024}


def attempt(reader: Any) -> str:
    """What became of the file that is there: read, refused, or what escaped."""
    from vcl.errors import VclError
    from vcl.lab.datasets.fetch import OriginError

    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        reader.read(reader.place)
    except (VclError, OriginError) as error:
        return "refused" if not (ran_out := out_of_memory(error)) else f"memory was taken: {ran_out}"
    except HungError:
        return f"it took more than {SECONDS:g} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]} ({where(error)})"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "read"


def out_of_memory(error: BaseException | None) -> str:
    """Whether an error comes from a failed allocation, in words."""
    from vcl.ops.out_of_memory import is_out_of_memory

    while error is not None:
        if is_out_of_memory(error):
            return f"{type(error).__name__}: {str(error)[:200]} ({where(error)})"
        error = error.__cause__ or error.__context__
    return ""


def where(error: BaseException) -> str:
    """The innermost line of ours that an error comes from."""
    import traceback

    frames = [each for each in traceback.extract_tb(error.__traceback__) if "/vcl/" in each.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside of vcl"


def hung(number: int, frame: FrameType | None) -> None:
    """At the end of an input's time."""
    raise HungError


def limit() -> None:
    """From now on, this process may take so much memory more."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))


__all__: Sequence[str] = ["trials"]
