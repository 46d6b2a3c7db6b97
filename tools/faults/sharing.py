"""Eight processes that share one data cache and one store, from a cold start: all files whole, no work done twice.

What is done is counted where it is done: requests by the server of the data, fits and prepared files by the processes.
"""

from __future__ import annotations

import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Lock, Thread
from time import sleep
from typing import Any

from outcome import Outcome, Result
from runs import OUT, Ended, differing, kept, line_of, start

PROCESSES = 8
METHODS = ("vcl", "mle", "map", "lp", "ewc", "si", "lp-kron", "vcl-random")
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """Of the data cache, of one part, of eight parts, and of what several parts need."""
    for number in range(1 if short else 10):
        yield data_cache(seed + number, folder / f"data {number}")
    for number in range(0 if short else 5):
        yield one_part(folder / f"one {number}")
        yield eight_parts(folder / f"eight {number}")
    for number in range(0 if short else 3):
        yield prepared(folder / f"prepared {number}")


def data_cache(seed: int, folder: Path) -> Outcome:
    """Eight processes read a dataset that is on a server alone, which each file leaves once."""
    fault = f"{PROCESSES} cold starts, one data cache"
    files, log = made(seed), folder / "read"
    folder.mkdir()
    with Server(files) as server:
        children = [
            start(partial(read, server.url, digests(files), folder, log), folder / str(number))
            for number in range(PROCESSES)
        ]
        ends = [child.wait() for child in children]
    asked = dict(server.asked)
    whole = {path.name: path.read_bytes() for path in (folder / "cache" / "vcl" / "tiny").iterdir()}
    if wrong := wrong_in(ends):
        return Outcome(fault, Result.LOST, wrong)
    if len(set(log.read_text().splitlines())) != 1 or len(log.read_text().splitlines()) != PROCESSES:
        return Outcome(fault, Result.LOST, "processes read other arrays")
    if other := differing(whole, files):
        return Outcome(fault, Result.LOST, other)
    if asked != {f"/{name}.gz": 1 for name in NAMES}:
        return Outcome(fault, Result.LOST, f"fetched more than once: {asked}")
    return Outcome(fault, Result.SURVIVED)


def one_part(folder: Path) -> Outcome:
    """Eight processes are given the same command: one learns, the others take its rows or are refused."""
    fault = f"{PROCESSES} cold starts, one part of one store"
    wanted = whole_of(line_of("vcl"), folder / "whole")
    ends, counted = together([line_of("vcl")] * PROCESSES, folder / "shared")
    refused = [end for end in ends if end.code == 1 and "another vcl is at work" in end.said]
    wrong = wrong_in([end for end in ends if end not in refused]) or next((end.wrong for end in ends if end.wrong), "")
    wrong = wrong or differing(kept(folder / "shared" / OUT), wanted)
    if wrong or len(refused) == PROCESSES or max(counted.values()) > 1:
        return Outcome(fault, Result.LOST, wrong or f"{len(refused)} refused, learned {dict(counted)}")
    return Outcome(fault, Result.SURVIVED, f"{len(refused)} of {PROCESSES} were refused with a sentence")


def eight_parts(folder: Path) -> Outcome:
    """Eight processes are given a method each of one experiment and one store: each ends well."""
    fault = f"{PROCESSES} cold starts, {PROCESSES} parts of one store"
    lines = [line_of(method) for method in METHODS]
    wanted = dict[str, bytes]()
    for line in lines:
        wanted |= parts(whole_of(line, folder / "whole"))
    ends, counted = together(lines, folder / "shared")
    wrong = wrong_in(ends) or differing(parts(kept(folder / "shared" / OUT)), wanted)
    if wrong or max(counted.values()) > 1 or len(counted) != PROCESSES:
        return Outcome(fault, Result.LOST, wrong or f"learned {dict(counted)}")
    return Outcome(fault, Result.SURVIVED)


def prepared(folder: Path) -> Outcome:
    """Eight processes learn generators, each of another number of epochs, which one classifier judges: it is made once.

    Other numbers of seeds would be runs of one part, which one process begins and others are refused.
    """
    fault = f"{PROCESSES} cold starts, what all parts need"
    lines = [
        line_of("vcl", "generative-digits").replace(" epochs=3", f" epochs={1 + number}") for number in range(PROCESSES)
    ]
    ends, counted = together(lines, folder / "shared")
    made = {name: count for name, count in counted.items() if name.startswith("made ")}
    wrong = wrong_in(ends)
    if wrong or list(made.values()) != [1]:
        return Outcome(fault, Result.LOST, wrong or f"made {made}")
    return Outcome(fault, Result.SURVIVED)


def together(lines: list[str], folder: Path) -> tuple[list[Ended], Counter[str]]:
    """How processes in one folder end that begin at one instant, and how often each thing was done."""
    folder.mkdir(parents=True)
    log, gate = folder / "done.log", folder / "gate"
    children = [start(partial(counted_run, line, folder, log, gate), folder / f".{n}") for n, line in enumerate(lines)]
    gate.touch()
    ends = [child.wait() for child in children]
    counted = Counter(log.read_text().splitlines()) if log.exists() else Counter[str]()
    return ends, counted


def counted_run(line: str, folder: Path, log: Path, gate: Path) -> None:
    """In a child: a command in a folder, whose fits and prepared files are noted in a log."""
    from vcl.lab.cli import main
    from vcl.lab.learning import Learning
    from vcl.lab.store import Store

    learn, once = Learning._learn, Store.once

    def learned(self: Any, where: Path, *given: Any) -> None:
        note(log, f"learned {where.name}")
        learn(self, where, *given)

    def made_once(self: Any, name: str, about: Any, make: Any, file: str) -> Path:
        def noted() -> bytes:
            note(log, f"made {name}")
            return bytes(make())

        return once(self, name, about, noted, file)

    Learning._learn, Store.once = learned, made_once  # type: ignore[method-assign, assignment]
    os.chdir(folder)
    sys.argv = ["vcl", *line.split()]
    while not gate.exists():
        sleep(0.001)
    main()


def whole_of(line: str, folder: Path) -> dict[str, bytes]:
    """What one process alone leaves."""
    (end,), _ = together([line], folder) if not folder.exists() else again(line, folder)
    if end.code != 0:
        raise RuntimeError(f"the run alone ended with {end.code}: {end.said}")
    return kept(folder / OUT)


def again(line: str, folder: Path) -> tuple[list[Ended], Counter[str]]:
    """Another command in the same folder."""
    child = start(partial(counted_run, line, folder, folder / "done.log", folder / "gate"), folder / ".again")
    return [child.wait()], Counter()


def parts(found: dict[str, bytes]) -> dict[str, bytes]:
    """Without the tables, which tell of all parts that are there when they are drawn."""
    return {name: data for name, data in found.items() if name.startswith("parts/")}


def wrong_in(ends: list[Ended]) -> str:
    """What is wrong with processes that should have ended well."""
    return next((end.wrong or f"it ended with {end.code}: {end.last}" for end in ends if end.wrong or end.code), "")


def note(log: Path, line: str) -> None:
    """A line of a file that several processes write to."""
    with log.open("a") as file:
        file.write(f"{line}\n")


def made(seed: int) -> dict[str, bytes]:
    """Four IDX files."""
    random, files = Random(seed), {}
    for name, shape in zip(NAMES, ((300, 28, 28), (300,), (60, 28, 28), (60,)), strict=True):
        size = 784 * shape[0] if len(shape) > 1 else shape[0]
        values = random.randbytes(size) if len(shape) > 1 else bytes(place % 10 for place in range(size))
        files[name] = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + values
    return files


def digests(files: dict[str, bytes]) -> list[str]:
    """Of each, in order."""
    return [sha256(files[name]).hexdigest() for name in NAMES]


def read(url: str, wanted: list[str], folder: Path, log: Path) -> None:
    """In a child: read the dataset, from a cache that all share, and note what was read."""
    from vcl.lab.datasets.idx_set import IdxFiles, idx_set
    from vcl.lab.datasets.locate import load_dataset
    from vcl.lab.datasets.mirror import mirror

    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    for name in ("VCL_OFFLINE", "VCL_DATA"):
        with suppress(KeyError):
            del os.environ[name]
    entry = idx_set("tiny", "a tiny set", IdxFiles(*wanted), tuple("abcdefghij"), [mirror(url)])
    found = load_dataset(entry, None, True, print)
    note(log, sha256(found.train_x.tobytes() + found.train_y.tobytes() + found.test_x.tobytes()).hexdigest())


class Server:
    """Serves files, slowly, and counts how often each is asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        import gzip

        self.asked, lock = Counter[str](), Lock()
        packed = {f"/{name}.gz": gzip.compress(content) for name, content in files.items()}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with lock:
                    outer.asked[self.path] += 1
                content = packed[self.path]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                for at in range(0, len(content), 1 + len(content) // 5):
                    self.wfile.write(content[at : at + 1 + len(content) // 5])
                    self.wfile.flush()
                    sleep(0.05)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"

    def __enter__(self) -> Server:
        self.thread = Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()
