"""Files over HTTP(S) by pooch, with bounds on the time to connect, on the time without progress and on the size."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from vcl.lab.datasets.fetch import Origin, OriginError

# Two mirrors and npm have to give up within 10 s on a machine without network.
CONNECT_S = 2.5
STALL_S = 15.0


def mirror(base: str, end: str = ".gz") -> Origin:
    """The origin that keeps file `name` at `base + name + end`."""

    def get(names: Iterable[str], limit: int) -> Iterator[tuple[str, bytes]]:
        # The first failure ends it, so a host that cannot be reached is tried once and not per file.
        for name in names:
            yield name, download(base + name + end, limit)

    return Origin(urlsplit(base).netloc, get)


def download(url: str, limit: int, connect_s: float = CONNECT_S, stall_s: float = STALL_S) -> bytes:
    """The bytes at a URL, or OriginError with the reason.

    A thread does the transfer, since no socket time-out bounds name resolution, nor the trying of one
    address after another. A thread given up on ends by itself, at its next chunk or time-out.
    """
    import pooch

    content = _Bounded()
    content.limit = limit
    replies: list[Any] = []
    faults: list[Exception] = []
    take = {"response": lambda reply, **_: replies.append(reply)}
    # The time-out is longer than is waited for: it only ends a thread that was given up on.
    http = pooch.HTTPDownloader(chunk_size=2**12, timeout=connect_s + stall_s, hooks=take)

    def transfer() -> None:
        try:
            http(url, content, None)
        except Exception as error:
            faults.append(error)
        for reply in replies:
            reply.close()

    thread = threading.Thread(target=transfer, daemon=True, name="vcl-download")
    thread.start()
    with content:  # closed at the end, so that the next chunk ends a thread that was given up on
        thread.join(connect_s)
        if thread.is_alive() and not replies:
            raise OriginError(f"no answer within {connect_s:g} s")
        size = -1
        while thread.is_alive():
            if content.tell() == size:
                raise OriginError(f"nothing came for {stall_s:g} s")
            size = content.tell()
            thread.join(stall_s)
        if faults:
            raise OriginError(_reason(faults[0])) from faults[0]
        return content.getvalue()


class _Bounded(io.BytesIO):
    limit = 0

    def write(self, chunk: Any) -> int:
        if self.tell() + len(chunk) > self.limit:
            raise OriginError(f"sent more than {self.limit >> 20} MiB for one file")
        return super().write(chunk)


def _reason(error: BaseException) -> str:
    reply = getattr(error, "response", None)
    if reply is not None:
        return f"answered {reply.status_code} {reply.reason}"
    while error.__context__ is not None:  # the system's own words, without what is wrapped around them
        error = error.__context__
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
