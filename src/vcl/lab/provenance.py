"""What made a number: the versions, the code itself, the commit and the device."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

import vcl

PACKAGE = Path(vcl.__file__).parent


def made_by() -> dict[str, Any]:
    """Versions, a digest of the source, and the commit where the package is in a git checkout of its own."""
    return {
        "vcl": vcl.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "source": source_digest(),
        "commit": commit(),
    }


@cache
def source_digest() -> str:
    """Of every file of the package that numbers may come from, by name and content; the same wherever it is."""
    made = sha256()
    for path in sorted(PACKAGE.rglob("*.py")) + sorted(PACKAGE.rglob("*.toml")):
        made.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return made.hexdigest()[:16]


@cache
def commit() -> str | None:
    """The commit of the checkout that the package is in, with ``-changed`` where its files differ; None elsewhere."""
    if not (PACKAGE.parents[1] / ".git").exists():
        return None  # an installed package may lie within somebody else's checkout
    found = _git("rev-parse", "HEAD")
    if not found:
        return None
    return f"{found}-changed" if _git("status", "--porcelain", "--", str(PACKAGE)) else found


def _git(*arguments: str) -> str:
    """What git says; nothing if there is no git or it refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
