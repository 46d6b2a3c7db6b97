"""Properties of devices: whether work is queued, and how much to process at once."""

from __future__ import annotations

from typing import NamedTuple

import torch


def is_queued(device: torch.device) -> bool:
    """Whether work is queued asynchronously; then steps are recorded once, and checks lag."""
    return device.type == "cuda"


class Limits(NamedTuple):
    """The most that a prediction processes at once."""

    rows: int
    """Rows (runs x draws x examples) of a chain of layers."""
    values: int
    """Intermediate values of all rows of any other model."""
    columns: int
    """Columns (draws x examples) of one run."""


CPU = Limits(30_000, 2**25, 2048)
"""Sized to the caches, and 128 MiB of float32."""

OTHER = Limits(20_000_000, 2**30, 2**62)
"""Sized to memory, and 4 GiB; convolution kernels count in 32 bits."""


def limits(device: torch.device) -> Limits:
    """The limits of a device."""
    return CPU if device.type == "cpu" else OTHER
