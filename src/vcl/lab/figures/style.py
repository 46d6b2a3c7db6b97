"""Style shared by all figures: a palette for colour-blind readers, markers, and saving as PNG and SVG."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg", force=False)

from matplotlib.figure import Figure

from vcl.lab.folder import write_atomic_bytes

# Okabe and Ito's palette, dark enough on white. Markers differ too, for readers who cannot tell the colours apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def colour(position: int) -> str:
    """The colour of the line at this position."""
    return COLOURS[position % len(COLOURS)]


def mark(position: int) -> str:
    """The mark of the line at this position."""
    return MARKS[position % len(MARKS)]


def line(position: int) -> str:
    """The style of the line at this position: solid, then dotted once the colours repeat."""
    return "-" if position < len(COLOURS) else ":"


def save(figure: Figure, path: Path) -> list[Path]:
    """Save as ``path``.png and ``path``.svg, each written atomically; returns both paths."""
    made = [path.with_suffix(".png"), path.with_suffix(".svg")]
    write_atomic_bytes(made[0], _rendered(figure, format="png", dpi=200))
    with matplotlib.rc_context({"svg.hashsalt": "vcl"}):  # the same rows give the same bytes
        write_atomic_bytes(made[1], _rendered(figure, format="svg", metadata={"Date": None}))
    return made


def _rendered(figure: Figure, **how: Any) -> bytes:
    """The figure as the bytes of a file."""
    memory = BytesIO()
    figure.savefig(memory, **how)
    return memory.getvalue()
