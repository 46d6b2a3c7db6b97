"""Training data of which a part is held out, to choose by."""

from __future__ import annotations

import torch

from vcl.errors import VclError
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng


def hold_out(data: Arrays, share: float) -> Arrays:
    """The training data alone, a random part of it in the test data's place; the same part for every run."""
    size = data.train_x.shape[0]
    held = max(1, round(share * size))
    if held >= size:
        raise VclError(f"holding out {share:g} of {size} training examples leaves none to train on; hold out less.")
    (order,) = Rng((0,)).at("validation").per_run(lambda g: torch.randperm(size, generator=g))
    order = order.to(data.train_x.device)
    test, train = order[:held], order[held:].sort().values  # the rest in its old order
    return Arrays(data.train_x[train], data.train_y[train], data.train_x[test], data.train_y[test], data.classes)
