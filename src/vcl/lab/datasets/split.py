"""A train/test split that depends on the data alone. Identical images are on the same side."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def held_out(images: NDArray[np.uint8], labels: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """A mask [N] of the test images: about this share of each class, identical images kept together.

    Identical images form one group, whatever their labels; it counts for the label of its first image. Groups
    are taken in order of their hashes, which depends on neither file order nor random state. A group larger
    than the share that is left stays in train.
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
