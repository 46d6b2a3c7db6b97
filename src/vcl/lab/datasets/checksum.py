"""SHA-256 of what a file holds: gzip is unwrapped first, since the wrapping differs from mirror to mirror."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from pathlib import Path

from vcl.errors import VclError

# No file of a known dataset holds more; what unpacks to more is not one of them.
LIMIT = 64 * 2**20


def sha256(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def unpack(stored: bytes) -> bytes:
    """The content of a file that may be gzipped; of a damaged one, as much as can be read.

    Damage is not reported here: the hash of the content shows it, whatever its kind.
    """
    if not stored.startswith(b"\x1f\x8b"):
        return stored
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.open(io.BytesIO(stored)) as file:
            while size <= LIMIT and (part := file.read(2**20)):
                parts.append(part)
                size += len(part)
    except (OSError, EOFError, zlib.error):
        pass
    return b"".join(parts)


def read_file(path: Path) -> bytes:
    """The bytes of a file, with a sentence for a user where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise VclError(f"cannot read {path}: {error.strerror or error}.") from error


def verified(path: Path, expected: str, mend: str) -> bytes:
    """The content of a file, gzipped or plain, once its SHA-256 is the expected one."""
    content = unpack(read_file(path))
    if sha256(content) != expected:
        raise altered(path, expected, sha256(content), mend)
    return content


def altered(path: Path, expected: str, found: str, mend: str) -> VclError:
    """The error for a file that is not what its name says."""
    return VclError(
        f"{path} is truncated or altered (SHA-256 of its content: expected {expected}, found {found}): {mend}."
    )
