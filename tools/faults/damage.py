"""Every file that vcl keeps, in turn truncated, emptied, bit-flipped, deleted, and swapped with another run's.

What is asked of it then must give the exact answer (the file was not needed, or an earlier state was), or be refused
with a sentence, and then nothing else is changed: with the file of before the answer is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from outcome import Outcome, Result
from scenes import Made, scenes
from sharing import Server, digests, made
from side import side_by_side

FLIPS = 2
"""Bits of each file that are flipped, one at a time."""
CUTS = 1
"""Random lengths to which each file is cut, beside those that are always tried."""

Touch = Callable[[Path], object]


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """All ways of damage, file by file."""
    rng, files = Random(seed), made(seed)
    with Server(files) as server:
        for scene in scenes(server.url, digests(files), short):
            found = Made.of(scene, folder / scene.name)
            if len({path.name for path in found.files}) < 1:
                raise RuntimeError(f"{scene.name} has no files")
            # What cuts and bits are asked of goes round, so that each file meets each ask.
            asked = [
                partial(found.tried, f"{scene.name}: files {kind}", f"{note}, {ask.name}", ask, touch)
                for place, (kind, note, touch, always) in enumerate(damages(found, rng, short))
                for ask in (scene.asks if always and not short else [scene.asks[place % len(scene.asks)]])
            ]
            yield from side_by_side(asked)
            names = ", ".join(sorted({path.name for path in found.files}))
            yield Outcome(
                f"{scene.name}: files truncated", Result.SURVIVED, f"of all: {len(asked)} times with {names}", 0
            )


def damages(found: Made, rng: Random, short: bool) -> Iterator[tuple[str, str, Touch, bool]]:
    """Kind, note and deed of each; whether all is asked of it, and not one thing in turn."""
    for file in rng.sample(found.files, 1) if short else found.files:
        content = (found.folder / file).read_bytes()
        yield "deleted", f"{file.name} deleted", partial(delete, file), True
        yield "emptied", f"{file.name} emptied", partial(write, file, b""), False
        other = found.counterpart(file)
        if other is not None and other.read_bytes() != content:
            yield "swapped", f"{file.name} of another run", partial(write, file, other.read_bytes()), False
        cuts = {len(content) - 1, len(content) // 2, *(rng.randrange(len(content)) for _ in range(CUTS))}
        if file.suffix == ".csv":
            cuts.add(content.rstrip().rfind(b"\n") + 6)
        for cut in sorted(cuts)[: 1 if short else None]:
            yield "truncated", f"{file.name} cut at byte {cut}", partial(write, file, content[:cut]), False
        for number in range(1 if short else FLIPS):
            bit = rng.randrange(8 * len(content) * number // FLIPS, 8 * len(content) * (number + 1) // FLIPS)
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            yield "bit-flipped", f"{file.name} bit {bit}", partial(write, file, bytes(flipped)), False


def write(file: Path, content: bytes, folder: Path) -> None:
    """Put other content into a file."""
    (folder / file).write_bytes(content)


def delete(file: Path, folder: Path) -> None:
    """Remove a file."""
    (folder / file).unlink()
