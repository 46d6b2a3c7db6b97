"""Features of the frozen part: in memory, or beyond a budget in a temporary file that is mapped into memory."""

from __future__ import annotations

import os
import tempfile
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.models.prefix import Prefix

BLOCK = 2**24
"""The bytes of features that are computed before they are written to the file."""


def features_within(prefix: Prefix, x: Tensor, like: Tensor, most: int) -> Tensor:
    """Features [N, ...] of inputs x [N, ...], of which at most ``most`` bytes take memory.

    The file has no name any more when this returns, so nothing is left of it when the features are no longer used.
    """
    one = prefix.features(x[:1], like)
    shape, size = (len(x), *one.shape[1:]), len(x) * one.numel() * one.element_size()
    if size <= most or not one.numel():
        return prefix.features(x, like)
    if like.device.type != "cpu":
        raise VclError(
            f"the features of the frozen part take {size:,} bytes, and feature_bytes allows {most:,} in the memory of "
            f"{like.device}; allow more, give the data in several updates, or use device='cpu', which has files."
        )
    found = _mapped(shape, size, like)
    step = max(1, BLOCK // (one.numel() * one.element_size()))
    for start in range(0, len(x), step):
        found[start : start + step] = prefix.features(x[start : start + step], like)
    return found


def _mapped(shape: tuple[int, ...], size: int, like: Tensor) -> Tensor:
    """An empty tensor in a file that is already unlinked, and whose space is reserved."""
    handle, name = tempfile.mkstemp(prefix="vcl-features-")
    try:
        # A mapped file without space behind it would kill the process when the disk is full.
        _reserve(handle, size)
        return torch.from_file(name, shared=True, size=prod(shape), dtype=like.dtype).view(shape)
    except OSError as error:
        raise VclError(
            f"the features of the frozen part take {size:,} bytes, and {tempfile.gettempdir()} has no room for them "
            f"({error.strerror or error}); set TMPDIR to a larger disk, or raise feature_bytes."
        ) from error
    finally:
        os.close(handle)
        Path(name).unlink(missing_ok=True)


def _reserve(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    zeros = bytes(BLOCK)  # pragma: no cover
    for start in range(0, size, BLOCK):
        os.write(handle, zeros[: size - start])
