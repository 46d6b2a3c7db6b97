"""Downloads files over HTTP(S) by pooch, with limits on the time to connect, on stalls and on the size."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from vcl.lab.datasets.fetch import Origin, OriginError

# Without a network, two mirrors and npm must give up within 10 s in total.
CONNECT_S = 2.5
STALL_S = 15.0


def mirror(base: str, end: str = ".gz") -> Origin:
    """The origin that has the file `name` at `base + name + end`."""

    def get(names: Iterable[str], limit: int) -> Iterator[tuple[str, bytes]]:
        # Stops at the first failure, so that an unreachable host is tried once, not once per file.
        for name in names:
            yield name, download(base + name + end, limit)

    return Origin(urlsplit(base).netloc, get)


def download(url: str, limit: int, connect_s: float = CONNECT_S, stall_s: float = STALL_S) -> bytes:
    """The bytes at a URL. Raises OriginError with the reason if it fails.

    The transfer runs in a thread, since a socket time-out limits neither name resolution nor the attempts at
    several addresses. An abandoned thread ends at its next chunk or time-out.
    """
    import pooch

    content = _Bounded()
    content.limit = limit
    replies: list[Any] = []
    faults: list[Exception] = []
    take = {"response": lambda reply, **_: replies.append(reply)}
    # Longer than the waits below: this time-out only ends an abandoned thread.
    http = pooch.HTTPDownloader(chunk_size=2**12, timeout=2 * (connect_s + stall_s), hooks=take)

    def transfer() -> None:
        try:
            http(url, content, None)
        except Exception as error:
            faults.append(error)
        for reply in replies:
            reply.close()

    thread = threading.Thread(target=transfer, daemon=True, name="vcl-download")
    thread.start()
    with content:  # closing it makes the next chunk end an abandoned thread
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
    while error.__context__ is not None:  # the innermost error has the system's message
        error = error.__context__
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
