"""The order of tasks: the paper's "adversarial ordering", which it leaves to future work, against random ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vcl.lab.experiments import experiment
from vcl.lab.paper.item import Context, Request
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng

RANDOM_ORDERS = 3


def task_means(data: Arrays, groups: Sequence[Sequence[int]]) -> Tensor:
    """The mean picture of each task, flattened."""
    flat = data.train_x.flatten(1).double()
    return torch.stack([flat[torch.isin(data.train_y, torch.tensor(list(group)))].mean(0) for group in groups])


def adversarial(means: Tensor) -> list[int]:
    """From the first task always on to the one, of those left, whose mean picture is farthest from the present one's.

    The paper's "adversarial ordering": each task is as different from the one before as can be.
    """
    order, left = [0], set(range(1, len(means)))
    while left:
        here = order[-1]
        order.append(max(sorted(left), key=lambda task: float((means[task] - means[here]).norm())))
        left.remove(order[-1])
    return order


def orders(context: Context) -> list[Request]:
    """Split MNIST in the given order, in the adversarial one, and in some random ones."""
    from vcl.lab.experiments.split_mnist import PAIRS

    count = experiment("split-mnist").presets[context.preset].tasks
    found = {
        "given": list(range(count)),
        "adversarial": adversarial(task_means(context.load("split-mnist").arrays, PAIRS[:count])),
    }
    for number in range(RANDOM_ORDERS):
        (order,) = Rng((number,)).at("order").per_run(lambda g: torch.randperm(count, generator=g))
        found[f"random {number + 1}"] = order.tolist()
    return [
        Request("split-mnist", method, (f"order={','.join(str(task) for task in order)}",), None, f"{method}, {name}")
        for method in ("vcl", "mle")
        for name, order in found.items()
    ]
