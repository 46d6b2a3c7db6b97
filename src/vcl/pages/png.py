"""Pictures of arrays as data URIs, by the standard library alone."""

from __future__ import annotations

from base64 import b64encode
from struct import pack
from typing import Any
from zlib import compress, crc32

import numpy as np

GREY, COLOUR = 0, 2
"""Colour types of the format."""


def data_uri(image: Any) -> str:
    """A PNG of uint8 [H, W] or [H, W, 3] as a data URI."""
    pixels = np.ascontiguousarray(image, np.uint8)
    height, width = pixels.shape[:2]
    lines = np.zeros((height, 1 + pixels[0].size), np.uint8)  # each line begins with its filter, 0 for none
    lines[:, 1:] = pixels.reshape(height, -1)
    kind = GREY if pixels.ndim == 2 else COLOUR
    chunks = (
        (b"IHDR", pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        pack(">I", len(content)) + name + content + pack(">I", crc32(name + content)) for name, content in chunks
    )
    return "data:image/png;base64," + b64encode(data).decode()
