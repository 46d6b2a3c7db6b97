"""Files at an address such as s3://bucket/folder. Nothing else knows fsspec, an extra: ``pip install 'vcl[remote]'``.

A file appears whole or not at all. An object store sees to that; elsewhere a file is written beside and renamed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar, final
from uuid import uuid4

from vcl.errors import VclError

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci"})
"""Protocols without folders, where a file that is put appears whole."""

PATIENCE = 30.0
"""Seconds for an address to answer at first."""

OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 3}}}
}
"""Where nothing is configured: the defaults wait for many minutes."""

ENDING = ".tmp"
T = TypeVar("T")


class AddressError(VclError):
    """An address did not do what was asked of it."""


class GoneError(AddressError):
    """A file is not there."""


def is_address(text: str) -> bool:
    """Whether a text is an address and no path."""
    return "://" in text


@final
class Files:
    """The files under an address; their names have slashes and no protocol."""

    def __init__(self, address: str) -> None:
        """Raises one clear sentence if the protocol is unknown or its driver is missing; does not use the network."""
        self.protocol, _, folder = address.partition("://")
        if not folder.strip("/"):
            raise VclError(f"{address} names no folder; give one, such as {self.protocol}://bucket/folder.")
        self.address = address.rstrip("/")
        self.fs, self.root = _opened(self.address, self.protocol)

    def check(self, write: bool) -> list[str]:
        """The names at the top; one clear sentence if the address does not answer or refuses."""
        return within(PATIENCE, lambda: self._check(write), self.address)

    def _check(self, write: bool) -> list[str]:
        with self._asked("read"):
            try:
                self.fs.invalidate_cache()
                top = self.fs.ls(self.root, detail=False)
            except FileNotFoundError:
                top = []
        if write:
            name = f".vcl-{uuid4().hex}"
            self.write(name, b"a probe")
            self.remove([name])
        names = [str(each).rstrip("/").rpartition("/")[2] for each in top]
        return [name for name in names if name and not name.startswith(".vcl-")]

    def names(self, under: str = "") -> dict[str, int]:
        """The bytes of every file under a folder."""
        start = f"{self.root}/{under}".rstrip("/")
        with self._asked("read"):
            self.fs.invalidate_cache()
            try:
                found = self.fs.find(start, detail=True)
            except FileNotFoundError:
                return {}
        return {
            name.removeprefix(f"{self.root}/"): int(about["size"] or 0)
            for name, about in found.items()
            if name.startswith(f"{start}/") and not name.endswith(ENDING)
        }

    def put(self, path: Path, name: str) -> None:
        """Upload a file."""
        self._place(name, lambda where: self.fs.put_file(str(path), where))

    def write(self, name: str, data: bytes) -> None:
        """The same for bytes."""
        self._place(name, lambda where: self.fs.pipe_file(where, data))

    def get(self, name: str, path: Path) -> None:
        """Download a file; GoneError if it is not there."""
        with self._asked("read"):
            self.fs.get_file(f"{self.root}/{name}", str(path))

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a small file; GoneError if it is not there, ValueError if it has more."""
        with self._asked("read"):
            data = bytes(self.fs.cat_file(f"{self.root}/{name}", start=0, end=most + 1))
        if len(data) > most:
            raise ValueError(f"it has more than {most} bytes")
        return data

    def remove(self, names: Sequence[str]) -> None:
        """Remove files, one after another in order; one that is not there is fine."""
        for name in names:
            with self._asked("remove files from"):
                try:
                    self.fs.rm_file(f"{self.root}/{name}")
                except FileNotFoundError:
                    continue

    def _place(self, name: str, put: Callable[[str], object]) -> None:
        with self._asked("write to"):
            whole = f"{self.root}/{name}"
            if self.protocol in OBJECT_STORES:
                put(whole)
                return
            folder, _, last = whole.rpartition("/")
            self.fs.makedirs(folder, exist_ok=True)
            beside = f"{folder}/.{last}.{uuid4().hex}{ENDING}"
            try:
                put(beside)
                self.fs.mv(beside, whole)
            except BaseException:
                if self.fs.exists(beside):
                    self.fs.rm_file(beside)
                raise

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Errors of drivers, each of which has its own, as one clear sentence."""
        try:
            yield
        except (VclError, ValueError):
            raise
        except FileNotFoundError as error:
            raise GoneError(
                f"cannot {what} {self.address} ({_first_line(error)}); is the bucket or folder there?"
            ) from error
        except Exception as error:
            name, why = type(error).__name__, _first_line(error)
            if isinstance(error, PermissionError) or any(word in name for word in ("Credential", "Auth", "Token")):
                mend = "give credentials that may, as the driver of this protocol takes them"
            elif isinstance(error, ConnectionError | TimeoutError) or any(
                word in name for word in ("Connect", "Timeout")
            ):
                mend = "is its endpoint right, and the network there?"
            else:
                mend = "look at the address and its service"
            raise AddressError(f"cannot {what} {self.address} ({name}: {why}); {mend}") from error


def _opened(address: str, protocol: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise VclError(f"{address} needs fsspec: pip install 'vcl[remote]' on every machine.") from error
    logging.getLogger("s3fs").setLevel(logging.CRITICAL)  # what fails is said here
    own = {} if fsspec.config.conf.get(protocol) else OPTIONS.get(protocol, {})
    try:
        fs, root = fsspec.core.url_to_fs(address, use_listings_cache=False, skip_instance_cache=True, **own)
    except ImportError as error:
        raise VclError(
            f"{address} needs a driver that is not installed here ({_first_line(error)}); install it on every machine."
        ) from error
    except ValueError as error:
        raise VclError(
            f"{address} cannot be opened ({_first_line(error)}); give a folder, or an address such as "
            "s3://bucket/folder."
        ) from error
    except Exception as error:  # a driver's own
        raise VclError(f"{address} cannot be opened ({type(error).__name__}: {_first_line(error)}).") from error
    return fs, root.rstrip("/")


def within(seconds: float, call: Callable[[], T], address: str) -> T:
    """What ``call`` gives, if it does in so many seconds."""
    found: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=work, daemon=True)  # one that never ends holds up no exit
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise AddressError(
            f"{address} does not answer within {seconds:g} s; is its endpoint right, and the network there?"
        )
    return found[0]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no reason is given"])[0].rstrip(".")
