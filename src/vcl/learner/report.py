"""The page of a learner: what it knows, what each update changed, and what it is unsure of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from vcl.errors import VclError
from vcl.learner.folder import replace_file
from vcl.learner.knowledge import Knowledge
from vcl.learner.record import Update
from vcl.ops.rng import Rng
from vcl.pages import Page, Section, html, is_page
from vcl.pages.png import data_uri
from vcl.pages.sections import Block, bars, cell, curves, facts, heat, images, table

MOST = 24
"""The examples that are shown."""

DRAWS = 32
"""Draws that a posterior standard deviation is estimated from."""

BINS = 10
"""Bins of confidence in the calibration diagram."""


class Judged(NamedTuple):
    """Predictions of examples as a page shows them, the most uncertain first."""

    order: np.ndarray
    """Positions of the examples [N]."""
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    """One for each of ``order``."""
    facts: tuple[tuple[str, object], ...] = ()
    confidence: np.ndarray | None = None
    """Of each example [N], with whether it was ``right``, where there are labels."""
    right: np.ndarray | None = None


def _start(target: Path) -> str:
    with target.open(encoding="utf-8", errors="replace") as file:
        return file.read(4096)


def write(path: str | os.PathLike[str], page: Page) -> None:
    """Write a page; one that is there is replaced, and another file is refused."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise VclError(f"path is {target}; give a name that ends in .html.")
    if not target.parent.is_dir():
        raise VclError(f"path is {target}, but {target.parent} is not a folder; give a file in a folder that exists.")
    if target.exists() and (target.is_dir() or not is_page(_start(target))):
        raise VclError(f"{target} exists and is no page of vcl; give another name.")
    try:
        replace_file(target, html(page).encode())
    except OSError as error:
        raise VclError(f"cannot write {target} ({error.strerror or error}); give a file in another folder.") from error


def page_of(kind: str, about: str, known: Knowledge, about_x: Sequence[Section], version: str) -> Page:
    """The page; ``about`` is the learner in a line and ``about_x`` is about examples that were given."""
    sections = [_what(known), _tasks(known), _updates(known.history), *_layers(known), *about_x]
    return Page(
        title=f"A {kind} after {len(known.history)} update{'' if len(known.history) == 1 else 's'}",
        lead=about,
        footer=f"Written by vcl {version}.",
        sections=sections,
    )


def _what(known: Knowledge) -> Section:
    q, coreset = known.state.propagated, known.state.coreset
    items: list[tuple[str, object]] = [
        ("tasks", len(known.tasks)),
        ("updates", len(known.history)),
        ("examples learned", sum(update.examples for update in known.history)),
        ("parameters with a posterior", f"{q.layout.size:,}"),
        ("inputs", f"{list(known.inputs.shape)} {known.inputs.kind}"),
        ("examples remembered", 0 if coreset is None else coreset.size),
        ("seconds of learning", f"{sum(update.seconds for update in known.history):.1f}"),
    ]
    return Section("What it is", [facts(items)])


def _tasks(known: Knowledge) -> Section:
    rows = [
        [name, record.head, record.examples, record.updates, str(known.outputs[record.head])]
        for name, record in known.tasks.items()
    ]
    columns = ("task", "head", "examples", "updates", "outputs")
    return Section("Tasks", [table("Tasks", columns, rows, ("examples", "updates"))])


def _updates(history: Sequence[Update]) -> Section:
    numbers = ("examples", "epochs", "seconds", "objective", "limited", "KL", "lost")
    columns = ("update", "task", *numbers, "notes")
    rows = [
        [
            number, one.task, one.examples, one.epochs, cell(one.seconds, f"{one.seconds:.1f}"),
            cell(one.objective, f"{one.objective:.3f}"), _share(one.limited),
            _nats(sum(one.kl.values()) if one.kl else None), _nats(one.lost if number > 1 else None),
            "; ".join(one.notes) or "–",
        ]
        for number, one in enumerate(history, start=1)
    ]  # fmt: skip
    lead = (
        "The objective is per example, in nats, in the last epoch. Limited is the share of variances that moved as "
        "far as the steps allow. KL is that of the new posterior to the old; lost is what the fit to earlier data "
        "lost by the posterior's own estimate, both in nats."
    )
    blocks: list[Block] = [table("What each update did", columns, rows, ("update", *numbers))]
    names = list(dict.fromkeys(name for one in history for name in one.kl))
    if names:
        values = [[one.kl.get(name) for one in history] for name in names]
        about = "KL(q_t || q_{t-1}) of each tensor or layer, in nats, by update"
        blocks.append(heat(about, "tensor", names, [str(n) for n in range(1, len(history) + 1)], values, log=True))
    later = [(f"{n}: {one.task}", one.lost, f"{one.lost:.2f}") for n, one in enumerate(history, start=1) if n > 1]
    if any(value for _, value, _ in later):
        blocks.append(bars("What each update cost earlier data, in nats, by the posterior's own estimate", later))
    return Section("What each update changed", blocks, lead)


def _layers(known: Knowledge) -> list[Section]:
    """The posterior standard deviation of each tensor now, estimated from draws."""
    q = known.state.propagated
    squares = torch.zeros_like(q.mean)
    for draw in range(DRAWS):  # one at a time, to save memory
        noise = Rng(0).at("report", draw).per_run(lambda g: torch.randn(q.mean.shape[1], generator=g))
        squares += (q.draw(noise.to(q.mean)) - q.mean).square()
    sds = q.layout.split((squares / DRAWS).sqrt())
    items = [(name, float(each.mean()), f"{float(each.mean()):.3g}") for name, each in sds.items()]
    if not any(value for _, value, _ in items):
        return []  # a point has none
    about = f"The mean posterior standard deviation of each tensor, from {DRAWS} draws"
    return [Section("The posterior now", [bars(about, items)])]


def array_of(x: Any) -> np.ndarray | None:
    """Inputs as an array that pictures are cut from; None if they are a table or a Dataset."""
    if isinstance(x, torch.Tensor):
        return x.detach().cpu().numpy()
    return x if isinstance(x, np.ndarray) else None


def examples(judged: Judged, x: np.ndarray | None) -> Section:
    """The most uncertain of the examples, with pictures where these are images."""
    blocks: list[Block] = [facts(judged.facts)] if judged.facts else []
    shown = [[int(at), *row] for at, row in zip(judged.order[:MOST], judged.rows, strict=False)]
    if x is not None and (shown_as := [_picture(x[at]) for at in judged.order[:MOST]]) and shown_as[0] is not None:
        told = [
            ", ".join(f"{name} {_word(value)}" for name, value in zip(judged.columns[:2], row[1:], strict=False))
            for row in shown
        ]
        blocks.append(
            images([
                (source, f"Example {row[0]}: {words}", f"{row[0]}: {words}")
                for source, row, words in zip(shown_as, shown, told, strict=True)
                if source is not None
            ])
        )  # fmt: skip
    columns = ("example", *judged.columns)
    blocks.append(table("The most uncertain of them", columns, shown, columns[-3:]))
    if judged.confidence is not None and judged.right is not None:
        blocks.append(_reliability(judged.confidence, judged.right))
    return Section("The most uncertain examples", blocks, f"Of {len(judged.order)} that were given, the first {MOST}.")


def _reliability(confidence: np.ndarray, right: np.ndarray) -> Block:
    """Accuracy against confidence, in bins."""
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    points = [
        (float(confidence[place == each].mean()), float(right[place == each].mean()))
        for each in range(BINS)
        if (place == each).any()
    ]
    alt = "Accuracy in each bin of confidence: " + ", ".join(f"{a:.2f} at {c:.2f}" for c, a in points) + "."
    caption = "Calibration: the accuracy in each bin of confidence. Below the dotted diagonal it is too confident."
    return curves(caption, "confidence", {"this learner": points}, alt, shares=True)


def _picture(x: np.ndarray) -> str | None:
    """An input as a picture, if it has the shape of one: [H, W], [1 or 3, H, W] or [H, W, 1 or 3]."""
    if x.ndim == 3 and x.shape[0] in (1, 3):
        x = np.moveaxis(x, 0, -1)
    if x.ndim == 3 and x.shape[-1] == 1:
        x = x[..., 0]
    if x.ndim not in (2, 3) or (x.ndim == 3 and x.shape[-1] != 3) or min(x.shape[:2]) < 2:
        return None
    if x.dtype != np.uint8:
        low, high = float(x.min()), float(x.max())
        x = np.round(255 * (x - low) / ((high - low) or 1.0)).astype(np.uint8)
    return data_uri(x)


def _nats(value: float | None) -> dict[str, Any]:
    return cell(value, "–" if value is None else f"{value:.1f}")


def _share(value: float | None) -> dict[str, Any]:
    return cell(value, "–" if value is None else f"{100 * value:.0f} %")


def _word(value: Any) -> str:
    return str(value["text"]) if isinstance(value, dict) else str(value)
