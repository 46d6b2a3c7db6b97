"""SHA-256 of what a file holds: gzip is unwrapped first, since the wrapping differs from mirror to mirror."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from pathlib import Path

from vcl.errors import VclError


def sha256(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def unpack(stored: bytes, limit: int) -> bytes:
    """The content of a file that may be gzipped; of a damaged one, as much as can be read.

    Damage is not reported here: the hash of the content shows it, whatever its kind. No more bytes than the
    limit are unpacked, so the hash shows more than that too.
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


def read_file(path: Path) -> bytes:
    """The bytes of a file, with a sentence for a user where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise VclError(f"cannot read {path}: {error.strerror or error}.") from error


def verified(path: Path, expected: str, mend: str, limit: int) -> bytes:
    """The content of a file, gzipped or plain, once its SHA-256 is the expected one."""
    content = unpack(read_file(path), limit)
    if sha256(content) != expected:
        raise altered(path, expected, sha256(content), mend)
    return content


def altered(path: Path, expected: str, found: str, mend: str) -> VclError:
    """The error for a file that is not what its name says."""
    return VclError(
        f"{path} is truncated or altered (SHA-256 of its content: expected {expected}, found {found}): {mend}."
    )
