"""The provenance of a number: versions, source code, commit and device."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

import vcl

PACKAGE = Path(vcl.__file__).parent


def made_by() -> dict[str, Any]:
    """Versions, a digest of the source, and the commit if the package is in its own git checkout."""
    return {
        "vcl": vcl.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "source": source_digest(),
        "commit": commit(),
    }


@cache
def source_digest() -> str:
    """A hash of the names and contents of the package's source files; it does not depend on their location."""
    made = sha256()
    for path in sorted(PACKAGE.rglob("*.py")) + sorted(PACKAGE.rglob("*.toml")):
        made.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return made.hexdigest()[:16]


@cache
def commit() -> str | None:
    """The commit of the package's checkout, with ``-changed`` if its files differ; None outside a checkout."""
    if not (PACKAGE.parents[1] / ".git").exists():
        return None  # an installed package may be inside an unrelated checkout
    found = _git("rev-parse", "HEAD")
    if not found:
        return None
    return f"{found}-changed" if _git("status", "--porcelain", "--", str(PACKAGE)) else found


def _git(*arguments: str) -> str:
    """The output of git; empty if git is missing or fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def device_name(device: torch.device) -> str:
    """A description of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def command(arguments: Sequence[str]) -> str:
    """The command line without --out and --data, which do not affect the numbers."""
    kept: list[str] = []
    skip = False
    for word in arguments:
        if not skip and word.split("=")[0] not in ("--out", "--data"):
            kept.append(word)
        skip = not skip and word in ("--out", "--data")
    return shlex.join(["vcl", *kept])


def now() -> str:
    """The current time in UTC, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
