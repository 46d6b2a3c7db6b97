"""The cost of a grid of lambdas as one stack of runs: EWC on a task like Permuted MNIST, 5 x 10 or 1 x 10 runs.

    python benchmarks/lambda_grid.py [--examples 60000] [--epochs 2]

It times a whole second task (penalised fit, 600-sample Fisher information), interleaved; the minimum over repeats.
"""

from __future__ import annotations

import argparse
import json
import platform
from time import perf_counter

import torch

from vcl import Categorical, ElasticWeightConsolidation, Network, Rng, mlp
from vcl.data import Data, Source
from vcl.fitting import Ascent, Curvature
from vcl.projections import Target

SEEDS = 10
LAMBDAS = (1.0, 10.0, 1e2, 1e3, 1e4)


def seconds(runs: int, examples: int, epochs: int, device: torch.device) -> float:
    """Seconds of one task from a belief with a past, all runs stacked, each with its own images."""
    g = torch.Generator(device).manual_seed(0)
    x = torch.randint(0, 256, (runs, examples, 784), generator=g, device=device, dtype=torch.uint8)
    y = torch.randint(0, 10, (examples,), generator=g, device=device).expand(runs, -1)
    source = torch.zeros((), dtype=torch.int64, device=device).expand(runs, examples)
    data = Data(x, y, source, (Source("task", "all"),))
    model = Network(mlp(784, [100, 100]), 100, Categorical())
    prior = model.prior({"all": 10}).to(device)
    lam = tuple(LAMBDAS[run // SEEDS] for run in range(runs))
    project = ElasticWeightConsolidation(Ascent(epochs, 200), lam, Curvature(samples=600))
    q = project.initial(prior.expand(runs))
    q = q._replace(mean=0.1 * torch.randn(q.mean.shape, generator=g, device=device), precision=q.precision + 1)
    began = perf_counter()
    after = project(Target(q, model, data, prior), Rng(tuple(range(runs))))
    after.mean.sum().item()  # waits for the device
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stacks = {"1 lambda x 10 seeds": SEEDS, "5 lambdas x 10 seeds": SEEDS * len(LAMBDAS)}
    for runs in stacks.values():
        seconds(runs, 2000, 1, device)
    times: dict[str, list[float]] = {name: [] for name in stacks}
    for _ in range(given.repeats):
        for name, runs in stacks.items():
            times[name].append(seconds(runs, given.examples, given.epochs, device))
    one, five = (min(values) for values in times.values())
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()} CPU"
    print(json.dumps({"device": name, "seconds": times, "ratio": five / one}, indent=2))


if __name__ == "__main__":
    main()
