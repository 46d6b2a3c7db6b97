"""Small data, tasks and models for the tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from vcl.data import Data, dataset, unlabelled
from vcl.models import Network, Vae, mlp, mlp_vae
from vcl.models.likelihoods import Categorical
from vcl.recursion import Task


def linear_data(n: int, seed: int, task: str = "a", runs: int = 1, inputs: int = 4) -> Data:
    """Correlated inputs and noisy targets in float64."""
    g = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=g, dtype=torch.float64)
    x = torch.randn(n, inputs, generator=g, dtype=torch.float64) @ mix
    y = x @ torch.arange(1.0, inputs + 1, dtype=torch.float64) + 0.5 * torch.randn(n, generator=g, dtype=torch.float64)
    return dataset(x, y, task, runs=runs)


def linear_tasks(sizes: list[int], runs: int = 1) -> list[Task]:
    return [
        Task(str(t), linear_data(n, t, str(t), runs), linear_data(2, 100 + t, str(t), runs), {"all": 1})
        for t, n in enumerate(sizes)
    ]


def blobs(n: int, seed: int, task: str, head: str, runs: int = 1, classes: int = 2, width: int = 6) -> Data:
    """Classes that a small network can tell apart, in float32."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centres = 2 * torch.randn(classes, width, generator=g)
    return dataset(centres[y] + torch.randn(n, width, generator=g), y, task, head, runs)


def blob_tasks(count: int, runs: int = 1, single_head: bool = False, n: int = 40) -> list[Task]:
    tasks = []
    for t in range(count):
        head = "all" if single_head else f"h{t}"
        tasks.append(Task(f"t{t}", blobs(n, t, f"t{t}", head, runs), blobs(20, t, f"t{t}", head, runs), {head: 2}))
    return tasks


def small_network(hidden: int = 8, width: int = 6) -> Network:
    return Network(mlp(width, [hidden]), hidden, Categorical())


def small_vae(private: str = "lower", **settings: object) -> Vae:
    """4 x 4 images, 3 latent variables."""
    return mlp_vae(16, latent=3, features=6, hidden=5, private=private, **settings)  # type: ignore[arg-type]


def shapes(n: int, seed: int, task: str, runs: int = 1) -> Data:
    """Images of one kind: a bright half (which one depends on the seed) with a grey value of its own for each."""
    g = torch.Generator().manual_seed(seed)
    half = (torch.arange(16).view(4, 4) * (1 + 2 * seed) % 16 < 8).float()
    return unlabelled(
        (half * torch.rand(n, 1, 1, generator=g) + 0.1 * torch.rand(n, 4, 4, generator=g)) / 1.1, task, task, runs
    )


def shape_tasks(count: int, runs: int = 1, n: int = 32) -> list[Task]:
    return [
        Task(f"t{t}", shapes(n, t, f"t{t}", runs), shapes(8, 100 + t, f"t{t}", runs), {f"t{t}": 16})
        for t in range(count)
    ]


def most_held(run: Callable[[], object]) -> int:
    """The most bytes that torch held at once, of what it made since ``run`` was called."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        run()
    now = most = 0
    for event in seen.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most
