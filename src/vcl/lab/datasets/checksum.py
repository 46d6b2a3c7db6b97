"""SHA-256 of a file's uncompressed content, since mirrors compress the same content differently."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from pathlib import Path

from vcl.errors import VclError
from vcl.learner.bounded import read_bounded

PACKED = 2**20
"""How many bytes more than its content a packed file may have."""


def sha256(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def unpack(stored: bytes, limit: int) -> bytes:
    """The content of a file, gzipped or plain; if it is damaged, the part that can be read.

    Damage is not reported here, since the hash of the content reveals it. At most `limit` bytes are unpacked,
    so the hash also reveals content beyond the limit.
    """
    if not stored.startswith(b"\x1f\x8b"):
        return stored
    content = io.BytesIO()
    try:
        with gzip.open(io.BytesIO(stored)) as file:
            while part := file.read1(min(2**20, limit - content.tell())):
                content.write(part)
    except (OSError, EOFError, zlib.error):
        pass
    return content.getvalue()


def verified(path: Path, expected: str, mend: str, limit: int) -> bytes:
    """The uncompressed content of a file. Raises VclError unless its SHA-256 is the expected one."""
    try:
        content = unpack(read_bounded(path, limit + PACKED), limit)
    except OSError as error:
        raise VclError(f"cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:
        raise VclError(f"{path} is truncated or altered ({error}): {mend}.") from error
    if sha256(content) != expected:
        raise altered(path, expected, sha256(content), mend)
    return content


def altered(path: Path, expected: str, found: str, mend: str) -> VclError:
    """The error for a file whose SHA-256 is not the expected one; `mend` says what to do."""
    return VclError(
        f"{path} is truncated or altered (SHA-256 of its content: expected {expected}, found {found}): {mend}."
    )
