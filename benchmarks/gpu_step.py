"""One captured training step on a GPU, and where its time goes.

    python benchmarks/gpu_step.py [--matmul tf32] [--profile]

784-100-100-10 with batch 256 at 1, 5 and 10 runs, and the paper's VAE (500 hidden units, batch 50, 10 draws) by VCL and
with points only. --profile lists the kernels of the largest step of each kind, longest first.
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from vcl.data import Data, dataset, unlabelled
from vcl.engines.usage import Estimator
from vcl.fitting.loop import Ascent, ascend
from vcl.fitting.step import Objective, make_step
from vcl.lab.arithmetic import MATMUL_PRECISIONS, matrix_products
from vcl.models import Network, mlp, mlp_vae
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections.point import LogLikelihood
from vcl.projections.vi import Elbo


class Job(NamedTuple):
    """A fit to time."""

    name: str
    objective: Objective
    start: tuple[Tensor, ...]
    data: Data
    batch: int

    def fit(self, epochs: int) -> None:
        """Runs ``epochs`` epochs with captured steps."""
        seeds = Rng(tuple(range(len(self.start[0]))))
        ascend(self.objective, self.start, self.data, Ascent(epochs, self.batch), seeds)


def perceptron(estimator: Estimator, runs: int, draws: int, examples: int = 51_200, device: str = "cuda") -> Job:
    model = Network(mlp(784, [100, 100]), 100, Categorical())
    x = torch.randint(0, 256, (examples, 784), dtype=torch.uint8, device=device)
    data = dataset(x, torch.randint(0, 10, (examples,), device=device), runs=runs)
    prior = model.prior({"all": 10}).to(device).expand(runs)
    start = (0.1 * torch.randn(prior.mean.shape, device=device), prior.log_var - 6)
    return Job(f"{estimator}, {runs} x {draws}", Elbo(model, prior, draws, estimator), start, data, 256)


def vae(drawn: bool, runs: int, examples: int = 5_000, device: str = "cuda") -> Job:
    model = mlp_vae()
    data = unlabelled(torch.randint(0, 256, (examples, 784), dtype=torch.uint8, device=device), "a", "a", runs)
    prior = model.prior({"a": 784}).to(device).expand(runs)
    mean = 0.05 * torch.randn(prior.mean.shape, device=device)
    if not drawn:
        return Job(f"VAE, points, {runs} x 10", LogLikelihood(model, prior.layout, 10), (mean,), data, 50)
    elbo = Elbo(model, prior, 10, "weights", "log_sd")
    narrow = prior._replace(mean=mean, log_var=prior.log_var.clamp(max=-12))
    return Job(f"VAE, drawn, {runs} x 10", elbo, elbo.parameters(narrow), data, 50)


def milliseconds(job: Job) -> float:
    """Milliseconds per step with everything included (batches, noise, gradient, Adam), from a short and a long fit."""

    def timed(epochs: int) -> float:
        torch.cuda.synchronize()
        began = perf_counter()
        job.fit(epochs)
        torch.cuda.synchronize()
        return perf_counter() - began

    timed(1)
    return 1e3 * (timed(6) - timed(1)) / (5 * -(-job.data.size // job.batch))


def kernels_of(job: Job, steps: int = 50) -> None:
    """Prints the kernels of a step, in microseconds."""
    runs = len(job.start[0])
    take = make_step(
        job.objective, tuple(value.clone() for value in job.start), job.data, 1e-3, Rng(tuple(range(runs)))
    )
    index = torch.arange(job.batch, device="cuda").expand(runs, -1).contiguous()
    for _ in range(10):
        take(index)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            take(index)
        torch.cuda.synchronize()
    found = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)
    for event in (event for event in found if event.self_device_time_total > 0):
        print(f"{event.self_device_time_total / steps:10.2f} us x{event.count / steps:5.1f}  {event.key[:100]}")
    print(f"{sum(event.self_device_time_total for event in found) / steps:10.2f} us in all")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--matmul", choices=MATMUL_PRECISIONS, default="float32")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {given.matmul}")
    jobs = [
        perceptron(estimator, runs, draws)
        for estimator in ("local", "weights")
        for runs, draws in ((1, 10), (5, 10), (10, 1), (10, 10))
    ]
    jobs += [vae(True, 3), vae(False, 9)]
    with matrix_products(given.matmul):
        for job in jobs:
            print(f"{job.name:<22}{milliseconds(job):8.3f} ms a step", flush=True)
            if given.profile and job.name.endswith(("10 x 10", "3 x 10", "9 x 10")):
                kernels_of(job)


if __name__ == "__main__":
    main()
