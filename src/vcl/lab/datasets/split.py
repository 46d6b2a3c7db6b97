"""A train/test split that is a function of the images alone, with no image on both sides."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def held_out(images: NDArray[np.uint8], labels: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Which images are for testing: about this share of each class, identical images kept together.

    Identical images are one group, whatever their labels, and count for the label of the first. Groups
    are taken in the order of their hashes, which no file order and no random state can change; one that
    is too large for the share that is left stays in train.
    """
    groups: dict[str, list[int]] = {}
    for index, image in enumerate(images):
        groups.setdefault(hashlib.sha256(image.tobytes()).hexdigest(), []).append(index)
    left = {int(label): round(share * int(np.sum(labels == label))) for label in np.unique(labels)}
    chosen = np.zeros(len(images), dtype=np.bool_)
    for _, members in sorted(groups.items()):
        label = int(labels[members[0]])
        if len(members) <= left[label]:
            left[label] -= len(members)
            chosen[members] = True
    return chosen
