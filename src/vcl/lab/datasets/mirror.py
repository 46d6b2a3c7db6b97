"""Files over HTTP(S), with a bound on the time to connect and on the time without progress."""

from __future__ import annotations

import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from vcl.lab.datasets.checksum import LIMIT
from vcl.lab.datasets.origins import Origin, OriginError

# Two mirrors and npm have to give up within 10 s on a machine without network.
CONNECT_S = 2.5
STALL_S = 15.0


def mirror(base: str, end: str = ".gz") -> Origin:
    """The origin that keeps file `name` at `base + name + end`."""

    def get(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        # The first failure ends it, so a host that cannot be reached is tried once and not per file.
        for name in names:
            yield name + end, download(base + name + end)

    return Origin(urlsplit(base).netloc, get)


def download(url: str, connect_s: float | None = None, stall_s: float | None = None) -> bytes:
    """The bytes at a URL, or OriginError with the reason.

    A thread does the transfer, since no socket time-out bounds name resolution, nor the trying of one
    address after another. A thread given up on ends by itself, at its next chunk or time-out.
    """
    connect_s = CONNECT_S if connect_s is None else connect_s
    stall_s = STALL_S if stall_s is None else stall_s
    inbox: queue.Queue[bytes | Exception | None] = queue.Queue()
    given_up = threading.Event()

    def transfer() -> None:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "vcl"})
            # Longer than the reader waits: this one only ends a thread that no one listens to any more.
            with urllib.request.urlopen(request, timeout=connect_s + stall_s) as reply:
                inbox.put(b"")  # connected
                while not given_up.is_set() and (chunk := reply.read1(2**16)):
                    inbox.put(chunk)
            inbox.put(None)
        except Exception as error:
            inbox.put(error)

    threading.Thread(target=transfer, daemon=True, name="vcl-download").start()
    try:
        return b"".join(_chunks(inbox, connect_s, stall_s))
    finally:
        given_up.set()


def _chunks(inbox: queue.Queue[bytes | Exception | None], connect_s: float, stall_s: float) -> Iterator[bytes]:
    size = 0
    patience, complaint = connect_s, f"no answer within {connect_s:g} s"
    while True:
        try:
            item = inbox.get(timeout=patience)
        except queue.Empty:
            raise OriginError(complaint) from None
        if item is None:
            return
        if isinstance(item, Exception):
            raise OriginError(_reason(item)) from item
        size += len(item)
        if size > LIMIT:
            raise OriginError(f"sent more than {LIMIT >> 20} MiB for one file")
        patience, complaint = stall_s, f"nothing came for {stall_s:g} s"
        yield item


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__
