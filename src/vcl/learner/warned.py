"""Warnings at the line of the user's program that led to them."""

from __future__ import annotations

import sys
from warnings import warn

HERE = __name__.partition(".")[0]


def warn_user(text: str) -> None:
    """A UserWarning at the first frame outside of this package, and of torch's decorators within it."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and _ours(str(frame.f_globals.get("__name__", ""))):
        depth, frame = depth + 1, frame.f_back
    warn(text, UserWarning, stacklevel=max(1, depth))


def _ours(module: str) -> bool:
    return module in (HERE, "torch.utils._contextlib") or module.startswith(f"{HERE}.")
