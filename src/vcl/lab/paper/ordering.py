"""The order of tasks: the paper's "adversarial ordering", which it leaves to future work, against random orders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vcl.lab.experiments.split import groups
from vcl.lab.experiments.split_mnist import SPLIT_MNIST
from vcl.lab.paper.item import Context, Request
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng

RANDOM_ORDERS = 3


def task_means(data: Arrays, groups: Sequence[Sequence[int]]) -> Tensor:
    """The mean image of each task [tasks, pixels]."""
    flat = data.train_x.flatten(1).double()
    return torch.stack([flat[torch.isin(data.train_y, torch.tensor(list(group)))].mean(0) for group in groups])


def adversarial(means: Tensor) -> list[int]:
    """An order of the tasks that starts with the first; each next task's mean image is farthest from the last one's.

    The paper's "adversarial ordering": each task is as different as possible from the one before.
    """
    order, left = [0], set(range(1, len(means)))
    while left:
        here = order[-1]
        order.append(max(sorted(left), key=lambda task: float((means[task] - means[here]).norm())))
        left.remove(order[-1])
    return order


def orders(context: Context) -> list[Request]:
    """Requests for Split MNIST in the given order, the adversarial one, and random ones."""
    data = context.load("split-mnist").arrays
    assert data is not None
    tasks = groups(len(data.classes), SPLIT_MNIST.presets[context.preset].stream)
    count = len(tasks)
    found = {"given": list(range(count)), "adversarial": adversarial(task_means(data, tasks))}
    for number in range(RANDOM_ORDERS):
        (order,) = Rng((number,)).at("order").per_run(lambda g: torch.randperm(count, generator=g))
        found[f"random {number + 1}"] = order.tolist()
    return [
        Request("split-mnist", method, (f"order={','.join(str(task) for task in order)}",), None, f"{method}, {name}")
        for method in ("vcl", "mle")
        for name, order in found.items()
    ]
