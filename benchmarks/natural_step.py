"""A step of natural gradients against one of Adam's, in the same run, on the Permuted MNIST network.

784-100-100-10, batch 256, one run, CPU. The two alternate, so both see the same machine. Times are of the processor,
which other work on the machine changes little; the ratio is that of the medians. A step is whole: batch, noise, bound,
gradient and the optimiser.

    python benchmarks/natural_step.py [--threads 1] [--rounds 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time

import torch

import vcl
from vcl.fitting.step import Eager, MakeOptimiser
from vcl.ops.adam import make_adam
from vcl.ops.rng import Rng
from vcl.projections.vi import Elbo


def step(estimator: str, draws: int, optimiser: MakeOptimiser) -> Callable[[], object]:
    """A whole step."""
    model = vcl.Network(vcl.mlp(784, (100, 100)), features=100, likelihood=vcl.Categorical())
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (2560, 28, 28), generator=g, dtype=torch.uint8)
    data = vcl.dataset(x, torch.randint(0, 10, (2560,), generator=g))
    prior = model.prior({"all": 10})
    start = 0.1 * torch.randn(prior.mean.shape, generator=g), torch.full_like(prior.mean, -6)
    one = Eager(Elbo(model, prior, draws, estimator), start, data, 1e-3, Rng((0,)), optimiser)  # type: ignore[arg-type]
    index = torch.randperm(2560, generator=g)[:256][None]
    return lambda: one(index)


def measure(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median milliseconds of each job: ten calls in a row, round-robin over jobs."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            for call in range(10):
                began = process_time()
                job()
                if call:  # the first call finds another job's data in the caches
                    times[name].append(1e3 * (process_time() - began))
    return {name: median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    natural = vcl.NaturalGradient().optimiser(100_000)
    print(f"torch {torch.__version__}, {options.threads} threads")
    print(f"{'step':<12}{'Adam ms':>10}{'natural ms':>12}{'ratio':>8}")
    for estimator, draws in (("local", 1), ("local", 10), ("weights", 1), ("weights", 10)):
        jobs = {"adam": step(estimator, draws, make_adam), "natural": step(estimator, draws, natural)}
        times = measure(jobs, options.rounds)
        adam, ours = times["adam"], times["natural"]
        print(f"{estimator + ' ' + str(draws):<12}{adam:>10.2f}{ours:>12.2f}{ours / adam:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
