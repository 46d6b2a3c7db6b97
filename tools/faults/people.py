"""What people do with learners and models of their own: scripts in Python, and several commands in a row.

Errors end a script as they end the command line: one sentence that begins with ``vcl:``, and the exit code 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

ROWS = 30
LEARNER, CHECKPOINT, ANSWER = "learner", "checkpoint", "answer.csv"


def tables(folder: Path) -> None:
    """Three tables of the same question: a.csv, b.csv and c.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate("abc"):
        lines = ["height,colour,label"]
        for row in range(ROWS):
            height = ((7 * row + 3 * place) % 20) / 10 - 1
            colour = "red" if row % 3 else "blue"
            lines.append(f"{height},{colour},{'yes' if height > 0 or row % 3 == 0 else 'no'}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


@contextmanager
def spoken() -> Iterator[None]:
    """An error of vcl as one sentence."""
    from vcl.errors import VclError

    try:
        yield
    except VclError as error:
        print(f"vcl: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def commands(*lines: str) -> None:
    """Several commands of vcl, one after another, until one fails."""
    from vcl.__main__ import main

    for line in lines:
        sys.argv = ["vcl", *line.split()]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise


def data(place: int) -> tuple[Any, Any]:
    """The rows of an update, by its number."""
    import torch

    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(place))
    return x, (x[:, 0] > 0).long()


def network() -> Any:
    """The same values each time."""
    import torch

    import vcl

    torch.manual_seed(0)
    return vcl.mlp(4, (5,))


def learner() -> Any:
    """The learner in its folder, or a new one."""
    import vcl

    if Path(LEARNER).exists():
        return vcl.ContinualClassifier.load(LEARNER, network(), verbose=0)
    return vcl.ContinualClassifier(network(), epochs=4, batch=8, verbose=0)


def begin(place: int = 0) -> None:
    """A learner that has learned once, and is saved."""
    found = learner()
    found.update(*data(place))
    found.save(LEARNER)


def learn_and_save() -> None:
    """One update more, saved to the same folder."""
    with spoken():
        found = learner()
        if len(found.history) < 2:  # the save before may have come to its end
            found.update(*data(1))
            found.save(LEARNER)


def learn_with_checkpoint() -> None:
    """One update more, which saves where it stands after every step."""
    with spoken():
        found = learner()
        if len(found.history) < 2:
            if any(Path(CHECKPOINT).glob("journal-*.json")):
                print("vcl: goes on within task 2", flush=True)
            found.update(*data(1), checkpoint=CHECKPOINT, save_every=0)
            found.save(LEARNER)


def tell() -> None:
    """What the learner in the folder predicts."""
    with spoken():
        found = learner()
        Path(ANSWER).write_bytes(found.predict_proba(data(9)[0], draws=20).tobytes())


def tell_after_update() -> None:
    """What it predicts after one update more, which is not saved."""
    with spoken():
        found = learner()
        found.update(*data(1))
        Path(ANSWER).write_bytes(found.predict_proba(data(9)[0], draws=20).tobytes())


def fetch(url: str, digests: list[str]) -> str:
    """Fetch a small dataset into the cache ``cache/``; a digest of what was read."""
    from hashlib import sha256

    from vcl.lab.datasets.idx_set import IdxFiles, idx_set
    from vcl.lab.datasets.locate import load_dataset
    from vcl.lab.datasets.mirror import mirror

    os.environ["XDG_CACHE_HOME"] = str(Path("cache").resolve())
    for name in ("VCL_OFFLINE", "VCL_DATA"):
        with suppress(KeyError):
            del os.environ[name]
    with spoken():
        entry = idx_set("tiny", "a tiny set", IdxFiles(*digests), tuple("abcdefghij"), [mirror(url)] if url else [])
        found = load_dataset(entry, None, True, print)
        arrays = (found.train_x, found.train_y, found.test_x, found.test_y)
        return sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()


def read_cache(digests: list[str]) -> None:
    """Read that dataset from the cache alone."""
    Path(ANSWER).write_text(fetch("", digests))


def answer(work: Callable[[], object], folder: Path) -> bytes:
    """What work leaves in the answer's file; RuntimeError if it fails."""
    from runs import run

    end = run(work, folder)
    if end.code:
        raise RuntimeError(end.said)
    found = (folder / ANSWER).read_bytes()
    (folder / ANSWER).unlink()
    return found


MODEL = "model"
MADE = ("model new model --hidden 5", "model update model a.csv --target label --quiet")
TOLD = f"model predict {MODEL} c.csv --out {ANSWER}"


def told_by_model(folder: Path) -> bytes:
    """What the model in a folder predicts."""
    return answer(partial(commands, TOLD), folder)
