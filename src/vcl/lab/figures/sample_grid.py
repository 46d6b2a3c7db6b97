"""Samples of the generators: a column per task, a row per number of tasks learned."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import ceil
from pathlib import Path
from textwrap import fill

import matplotlib.image
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vcl.lab.figures.style import save

WHITE = 255
LETTERS = 11
"""Letters of a title that fit in an inch."""


def draw(images: Sequence[Tensor], tasks: Sequence[str], title: str, path: Path) -> list[Path]:
    """Draw ``images[t]`` [tasks so far, H, W] uint8, sampled after task t + 1; ``tasks`` names the columns."""
    return save(picture(images, tasks, title), path)


def picture(images: Sequence[Tensor], tasks: Sequence[str], title: str) -> Figure:
    """The figure that :func:`draw` saves."""
    size = max(2.5, 0.45 * len(tasks) + 0.9)
    figure = Figure(figsize=(size, 0.8 + 0.45 * len(images)), layout="constrained")
    axes = figure.subplots()
    height, width = images[0].shape[-2:]
    axes.imshow(canvas(images, len(tasks)).numpy(), cmap="gray_r", vmin=0, vmax=WHITE, interpolation="nearest")
    axes.set_xticks([(place + 0.5) * (width + 1) - 0.5 for place in range(len(tasks))], tasks, fontsize=8)
    steps = [str(step + 1) for step in range(len(images))]
    axes.set_yticks([(place + 0.5) * (height + 1) - 0.5 for place in range(len(images))], steps, fontsize=8)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.set_xlabel("generator of task", fontsize=8)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("tasks learned", fontsize=8)
    axes.spines[:].set_visible(False)
    figure.suptitle(fill(" ".join(title.split()), int(LETTERS * size)), fontsize=9)
    return figure


def png(images: Tensor) -> bytes:
    """The bytes of a PNG: images [count, H, W] with pixels from 0 to 1 in a square grid, dark ink on white."""
    columns = ceil(len(images) ** 0.5)
    ink = (255 * images.cpu()).round().clamp(0, WHITE).to(torch.uint8)
    page = canvas([ink[first : first + columns] for first in range(0, len(ink), columns)], columns)
    scaled = (WHITE - page).repeat_interleave(4, 0).repeat_interleave(4, 1)
    memory = BytesIO()
    matplotlib.image.imsave(memory, scaled.numpy(), format="png", cmap="gray", vmin=0, vmax=WHITE)
    return memory.getvalue()


def canvas(images: Sequence[Tensor], columns: int, gap: int = 1) -> Tensor:
    """One page uint8 [height, width] of all images in a grid with gaps. Ink is high; empty cells are 0."""
    height, width = images[0].shape[-2:]
    page = torch.zeros(len(images) * (height + gap), columns * (width + gap), dtype=torch.uint8)
    for row, step in enumerate(images):
        for column, image in enumerate(step):
            top, left = row * (height + gap), column * (width + gap)
            page[top : top + height, left : left + width] = image
    return page
