"""Binned confidences of predictions, as a page draws reliability diagrams from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vcl.lab.results import Confidence, read_confidences
from vcl.lab.show import Member
from vcl.lab.store import CALIBRATION

BINS = 10


def reliability(members: Sequence[Member], label: str, seeds: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """[seeds, bins, 3] of a line: examples, those that are right, and the sum of their confidences, over all tasks.

    ``end`` is after the last task learned, ``learned`` just after each task was. Empty where a folder has no file.
    """
    found: dict[tuple[int, int, int, int], Confidence] = {}
    for member in members:
        for row in read_confidences(member.stack.file(CALIBRATION)):
            if member.names.get((row.method, row.seed)) == label:
                found[row.seed, row.after, row.on, row.bin] = row
    if not found:
        return {}
    place = {seed: number for number, seed in enumerate(seeds)}
    last = {seed: max((after for one, after, _, _ in found if one == seed), default=0) for seed in seeds}
    end, learned = (np.zeros((len(seeds), BINS, 3)) for _ in range(2))
    for row in found.values():
        numbers = (row.examples, row.right, row.examples * row.confidence)
        if row.after == last[row.seed]:
            end[place[row.seed], row.bin - 1] += numbers
        if row.after == row.on:
            learned[place[row.seed], row.bin - 1] += numbers
    return {"end": end, "learned": learned}
