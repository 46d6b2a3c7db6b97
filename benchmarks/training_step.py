"""One training step of VCL on the Permuted MNIST network, against a matrix product measured in the same run.

784-100-100-10, batch 256, one run, CPU. Absolute times depend on the machine and its load, so each time is also given
as a ratio to one 2048-square float32 matrix product, the two interleaved. The target of 3.5 ms at one draw and 14 ms at
ten is for a machine where that product takes 109 ms (157 GFLOP/s).

    python benchmarks/training_step.py [--threads 2] [--rounds 30]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import perf_counter

import torch

from vcl.data import dataset
from vcl.fitting.step import Eager
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections.point import LogLikelihood
from vcl.projections.vi import Elbo

PRODUCT = 2048
GFLOPS_OF_TARGET = 157
TARGET_MS = {("local", 1): 3.5, ("local", 10): 14.0}


def product() -> Callable[[], object]:
    a, b = torch.randn(2, PRODUCT, PRODUCT).unbind()
    return lambda: a @ b


def step(estimator: str, draws: int) -> Callable[[], object]:
    """A full step: gather the batch, draw the noise, bound, gradient, Adam. ``plain`` is a deterministic network."""
    model = Network(mlp(784, [100, 100]), 100, Categorical())
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (2560, 28, 28), generator=g, dtype=torch.uint8)
    data = dataset(x, torch.randint(0, 10, (2560,), generator=g))
    prior = model.prior({"all": 10})
    mean, log_var = 0.1 * torch.randn(prior.mean.shape, generator=g), torch.full_like(prior.mean, -6)
    rng = Rng((0,))
    if estimator == "plain":
        one = Eager(LogLikelihood(model, prior.layout), (mean.requires_grad_(),), data, 1e-3, rng)
    else:
        elbo = Elbo(model, prior, draws, estimator)  # type: ignore[arg-type]
        one = Eager(elbo, (mean.requires_grad_(), log_var.requires_grad_()), data, 1e-3, rng)
    index = torch.randperm(2560, generator=g)[:256][None]
    return lambda: one(index)


def measure(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every job: ten calls in a row, round-robin over jobs, so all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            for call in range(10 if name != "product" else 2):
                began = perf_counter()
                job()
                if call:  # the first call finds another job's data in the caches
                    times[name].append(1e3 * (perf_counter() - began))
    return {name: sorted(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    kinds = [("plain", 1), ("local", 1), ("local", 10), ("weights", 1), ("weights", 10)]
    jobs = {"product": product(), **{f"{kind} {draws}": step(kind, draws) for kind, draws in kinds}}
    times = measure(jobs, options.rounds)
    unit = times["product"][0]
    rate = 2 * PRODUCT**3 / unit / 1e6
    print(f"torch {torch.__version__}, {options.threads} threads")
    print(f"{PRODUCT}-square product: {unit:.1f} ms, {rate:.0f} GFLOP/s")
    print(f"{'step':<12}{'min ms':>9}{'median':>9}{'of product':>12}{'target':>9}")
    for kind, draws in kinds:
        ordered = times[f"{kind} {draws}"]
        ms = TARGET_MS.get((kind, draws))
        target = f"{ms / (2 * PRODUCT**3 / GFLOPS_OF_TARGET / 1e6):.4f}" if ms else ""
        median = ordered[len(ordered) // 2]
        print(f"{kind + ' ' + str(draws):<12}{ordered[0]:>9.2f}{median:>9.2f}{ordered[0] / unit:>12.4f}{target:>9}")
    print(json.dumps({"gflops": round(rate, 1), **{name: round(values[0], 3) for name, values in times.items()}}))


if __name__ == "__main__":
    main()
