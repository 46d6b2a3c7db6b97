"""Measures whether the time of a task grows with the number of tasks, and the size of a checkpoint.

    python benchmarks/growth.py [--tasks 200] [--threads 2]

VCL without a coreset on a stream of tasks with one head each (256 synthetic images, 8 epochs). It prints the seconds
per task (the fit with everything around it), as minimum and median of ten early and ten late tasks; the machine may
change its speed in between, which affects the minimum less. It also prints the checkpoint's size and its growth per
task, next to the size of a head (mean and log variance in float32).
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from statistics import median
from time import perf_counter

import torch

from vcl.coresets import Nothing
from vcl.data import dataset
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import to_bytes
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import VariationalKL
from vcl.recursion import Method, Task, initial, learn


def task(t: int) -> Task:
    g = torch.Generator().manual_seed(t)
    x = torch.randint(0, 256, (256, 28, 28), generator=g, dtype=torch.uint8)
    data = dataset(x, torch.randint(0, 2, (256,), generator=g), f"task {t}", f"head {t}")
    return Task(f"task {t}", data, data, {f"head {t}": 2})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = Network(mlp(784, [100, 100]), 100, Categorical())
    method = Method(project := VariationalKL(Ascent(8, 64, 1e-3), 1, "local", ml_start=False), Nothing(), project)
    seconds, sizes = [], []
    began = perf_counter()
    for state in learn(initial(model, method, 1), map(task, range(options.tasks)), model, method, Rng((0,))):
        seconds.append(perf_counter() - began)
        sizes.append(len(to_bytes(state)))
        began = perf_counter()
    for what, of in (("least", min), ("median", median)):
        early, late = of(seconds[1:11]), of(seconds[-10:])
        times = f"{1e3 * early:.1f} ms (2 to 11), {1e3 * late:.1f} ms (the last ten)"
        print(f"a task, {what}: {times}, {late / early:.3f} times as long")
    growth = median(after - before for before, after in pairwise(sizes))
    print(
        f"checkpoint: {sizes[0]:,} bytes after 1 task, {sizes[-1]:,} after {options.tasks}; a task adds {growth:,.0f}"
    )
    print(f"a head of 2 classes has {2 * 4 * 202:,} bytes of mean and log variance")


if __name__ == "__main__":
    main()
