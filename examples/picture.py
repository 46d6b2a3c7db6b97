"""What the examples of this folder share: ``--quick`` and ``--out``, and a picture as a PNG file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

matplotlib.use("Agg", force=False)


def options(doc: str | None, given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of an example."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a try of some seconds; its numbers mean nothing")
    parser.add_argument("--out", type=Path, default=Path("runs/examples"), help="folder of the picture")
    found = parser.parse_args(given)
    torch.manual_seed(0)  # for the start of networks
    return found


def panels(columns: int, width: float = 8.0, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """A figure with plots side by side, without the box's upper and right lines."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def write(figure: Figure, given: argparse.Namespace, name: str) -> Path:
    """OUT/name.png; says where it is."""
    given.out.mkdir(parents=True, exist_ok=True)
    path: Path = given.out / f"{name}.png"
    figure.savefig(path, dpi=110)
    print(path)
    return path
