"""Facts of devices: how work is handed to them, and how much they hold at once."""

from __future__ import annotations

from typing import NamedTuple

import torch


def is_queued(device: torch.device) -> bool:
    """Whether work is queued and done later: then steps are recorded once, and checks lag behind."""
    return device.type == "cuda"


class Limits(NamedTuple):
    """What predictions take at once."""

    rows: int
    """Rows (runs x draws x examples) of a chain of layers."""
    values: int
    """Values that all rows of another model make on their way."""
    columns: int
    """Columns (draws x examples) that one run's layers are walked with."""


CPU = Limits(30_000, 2**25, 2048)
"""What caches hold, and 128 MiB of float32."""

OTHER = Limits(20_000_000, 2**30, 2**62)
"""What memory holds, and 4 GiB; kernels of convolutions count in 32 bits."""


def limits(device: torch.device) -> Limits:
    """Those of a device."""
    return CPU if device.type == "cpu" else OTHER
