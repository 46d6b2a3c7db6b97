"""A pickle, planted under each name where a loader looks: it would make a file if it were read, and never does.

It comes bare, in torch's own format, and as an array of objects of numpy; in place of every file that vcl keeps, with
checksums that fit where a stranger can make them fit, beside these files under names that other programs use, and as
each kind of file that people give.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import people
from damage import write
from outcome import Outcome, Result
from runs import OUT, Work, line_of, run
from scenes import SENTENCE, Made, Scene, plain, scenes
from sharing import Server, digests, made

BESIDE = (
    "state.pt",
    "checkpoint.pt",
    "model.pt",
    "learner.pkl",
    "data.pkl",
    "predictions.npz",
    "journal-99.pt",
    "x.npy",
)
"""Names that other programs read pickles from."""

GIVEN: Mapping[str, str] = {
    "vcl predict --inputs, npy": f"predict {OUT} --task 2/3 --inputs given.npy --out p.npz",
    "vcl predict --inputs, npz": f"predict {OUT} --task 2/3 --inputs given.npz --out p.npz",
    "vcl model update, npz": "model update model given.npz",
    "vcl model update, csv": "model update model given.csv --target label",
    "vcl model update, parquet": "model update model given.parquet --target label",
    "vcl model predict, npz": "model predict model given.npz",
    "vcl show of a file": "show given.pt",
    "vcl report of a file": "report given.pt",
}
"""Commands on files that people give."""


class Planted:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def contents(mark: Path) -> dict[str, bytes]:
    """The pickle in each format."""
    import numpy as np
    import torch

    planted = Planted(mark)
    array = np.array([planted], dtype=object)
    of_torch, of_npy, of_npz = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(planted, of_torch)
    np.save(of_npy, array, allow_pickle=True)
    np.savez(of_npz, x=array, y=array, images=array, labels=array)
    return {
        "bare": pickle.dumps(planted), "of torch": of_torch.getvalue(), "npy": of_npy.getvalue(),
        "npz": of_npz.getvalue(),
    }  # fmt: skip


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """In place of files, beside them, and given."""
    rng, files, mark = Random(seed), made(seed), folder / "mark"
    kinds = contents(mark)
    with Server(files) as server:
        for scene in scenes(server.url, digests(files), short):
            yield from planted(Made.of(scene, folder / scene.name), kinds, mark, rng, short)
    if not short:
        yield from given(folder / "given", kinds, mark)
        yield from archives(folder / "archives", kinds, mark)
    pickle.loads(kinds["bare"])
    if not mark.exists():
        raise RuntimeError("the pickle that was planted is none that would have run")


def planted(found: Made, kinds: Mapping[str, bytes], mark: Path, rng: Random, short: bool) -> Iterator[Outcome]:
    """In place of each file of a scene, and beside them."""
    scene = found.scene
    for place, file in enumerate(rng.sample(found.files, 1) if short else found.files):
        for number in range(1 if short else 2):
            kind, content = list(kinds.items())[(2 * number + place) % len(kinds)]
            ask = scene.asks[(place + number) % len(scene.asks)]
            touches: dict[str, Callable[[Path], object]] = {"": partial(write, file, content)}
            if file.suffix != ".json":
                touches[" with checksums that fit"] = partial(fitting, file, content)
            for how, touch in touches.items():
                outcome = found.tried(
                    f"{scene.name}: a pickle in place of a file{how}", f"{file.name}, {kind}", ask, touch
                )
                yield without(mark, outcome)
    for ask in scene.asks[: 1 if short else None]:
        touch = partial(beside, scene, kinds)
        outcome = found.tried(f"{scene.name}: pickles beside", ask.name, ask, touch, partial(tidy, scene))
        yield without(mark, outcome)


def without(mark: Path, outcome: Outcome) -> Outcome:
    """The outcome, which is lost where the pickle was read."""
    if not mark.exists():
        return outcome
    mark.unlink()
    return Outcome(outcome.fault, Result.LOST, f"a pickle was read: {outcome.note}")


def beside(scene: Scene, kinds: Mapping[str, bytes], folder: Path) -> None:
    """A pickle under each name, in each folder."""
    where = [path for path in (folder / scene.within).rglob("*") if path.is_dir()]
    for place in (folder / scene.within, *where):
        for number, name in enumerate(BESIDE):
            (place / name).write_bytes(list(kinds.values())[number % len(kinds)])


def tidy(scene: Scene, folder: Path) -> None:
    """Remove them: what a command makes of a folder may be compared with what it holds."""
    for path in (folder / scene.within).rglob("*"):
        if path.name in BESIDE:
            path.unlink()


def fitting(file: Path, content: bytes, folder: Path) -> None:
    """Put other content into a file, and make what a stranger can make fit: the checksums that name it."""
    from vcl.lab.sums import signed

    (folder / file).write_bytes(content)
    digest, here = sha256(content).hexdigest(), (folder / file).parent
    for path in here.glob("*.json"):
        about = json.loads(path.read_text())
        if path.name == "part.json" and file.name in about.get("files", {}):
            about["files"][file.name] = [digest]
            path.write_text(json.dumps(signed(about)))
        elif path.name == "learner.json":
            for entry in about["files"].values():
                if entry["file"] == file.name:
                    entry["sha256"] = digest
            path.write_text(json.dumps(signed(about)))
        elif path.stem == file.stem and "about" in about:
            text = json.dumps(json.loads(about["about"]) | {"sha256": digest, "bytes": len(content)})
            path.write_text(json.dumps({"about": text, "sha256": sha256(text.encode()).hexdigest()}))


def given(folder: Path, kinds: Mapping[str, bytes], mark: Path) -> Iterator[Outcome]:
    """As each kind of file that people give: refused with a sentence."""
    people.tables(folder)
    prepared: list[Work] = [line_of("vcl-random", "split-digits"), partial(people.commands, *people.MADE)]
    for work in prepared:
        end = run(work, folder, drawn=False)
        if end.code:
            raise RuntimeError(end.said)
    for name, line in GIVEN.items():
        (file,) = [word for word in line.split() if word.startswith("given.")]
        for kind, content in kinds.items():
            (folder / file).write_bytes(content)
            end = run(line, folder, drawn=False)
            fine = end.code == 1 and not end.wrong and SENTENCE.fullmatch(end.last)
            result = Result.REFUSED if fine else Result.LOST
            note = plain(end.last) if fine else f"{kind}: it ended with {end.code}: {end.last}"
            yield without(mark, Outcome(f"a pickle is given: {name}", result, note))


def archives(folder: Path, kinds: Mapping[str, bytes], mark: Path) -> Iterator[Outcome]:
    """As the files of a dataset that hold arrays or images, and as a learner that draws."""
    folder.mkdir()
    for kind, content in kinds.items():
        for reader in (letters, letters_as_images, generative):
            end = run(partial(reader, content), folder)
            fine = end.code == 1 and not end.wrong and SENTENCE.fullmatch(end.last)
            result = Result.REFUSED if fine else Result.LOST
            note = plain(end.last) if fine else f"{kind}: it ended with {end.code}: {end.last}"
            yield without(mark, Outcome(f"a pickle as {reader.__doc__}", result, note))


def letters(content: bytes) -> None:
    """the arrays of notMNIST"""
    from vcl.lab.datasets import notmnist

    Path("letters.npz").write_bytes(content)
    with people.spoken():
        notmnist.read_npz(Path("letters.npz"), "0" * 64)


def letters_as_images(content: bytes) -> None:
    """an image of notMNIST"""
    from vcl.lab.datasets.png import read_classes

    Path("A").mkdir(exist_ok=True)
    Path("A/a.png").write_bytes(content)
    with people.spoken():
        read_classes([Path("A")], 28, print)


def generative(content: bytes) -> None:
    """the file of a GenerativeLearner"""
    import vcl

    Path("generator").write_bytes(content)
    with people.spoken():
        vcl.GenerativeLearner.load("generator", vcl.mlp_vae(16, latent=3, features=6, hidden=5))
