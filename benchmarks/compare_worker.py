"""Times jobs of the importable vcl and prints them as JSON. `compare.py` runs it once per tree and round.

    PYTHONPATH=TREE python benchmarks/compare_worker.py [--device cuda] [--only PATTERN] [--quick]

It uses only calls that are stable across commits, and nothing from vcl.lab.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vcl
from vcl.data import dataset, unlabelled
from vcl.fitting.step import make_step
from vcl.models import Network, mlp, mlp_vae
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections.vi import Elbo

Job = Callable[[], object]
ROW_SECONDS, LONGEST_ROW = 5e-3, 20


class AnyModule(nn.Module):
    """784-100-100 in code that cannot be traced, so it uses the general engine."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(784, 100), nn.Linear(100, 100)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x.reshape(len(x), -1)))))


def images(examples: int, side: int, device: torch.device) -> Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (examples, side, side), generator=g, dtype=torch.uint8).to(device)


def labels(examples: int, classes: int, device: torch.device) -> Tensor:
    return torch.randint(0, classes, (examples,), generator=torch.Generator().manual_seed(1)).to(device)


def belief(prior: Any, init_log_var: float) -> Any:
    """A belief with small random means and the initial variance; variance 0 where the prior has 0."""
    g = torch.Generator().manual_seed(2)
    mean = 0.05 * torch.randn(prior.mean.shape, generator=g).to(prior.mean.device)
    return prior._replace(mean=mean, log_var=prior.log_var.clamp(max=init_log_var).contiguous())


def step(model: Any, data: Any, heads: dict[str, int], batch: int, draws: int, how: tuple[Any, ...], lr: float) -> Job:
    """A training step; ``how`` is the estimator and the optimised log. A full batch is not gathered."""
    runs, examples, device = data.x.shape[0], data.x.shape[1], data.x.device
    prior = model.prior(heads).to(device).expand(runs)
    elbo = Elbo(model, prior, draws, *how)
    parameters = tuple(part.clone() for part in elbo.parameters(belief(prior, -12.0 if "log_sd" in how else -6.0)))
    take = make_step(elbo, parameters, data, lr, Rng(tuple(range(runs))))
    if batch >= examples:
        return lambda: take(None)
    index = torch.randperm(examples, generator=torch.Generator().manual_seed(3))[:batch].to(device)
    together = index.expand(runs, -1).contiguous()
    return lambda: take(together)


def perceptron(
    sizes: tuple[int, ...], examples: int, batch: int, runs: int, draws: int, estimator: str, device: torch.device,
    general: bool = False,
) -> Job:  # fmt: skip
    x = images(examples, round(sizes[0] ** 0.5), device)
    if batch >= examples:
        x = x.float().div_(255)  # a fit converts a full batch only once
    data = dataset(x, labels(examples, sizes[-1], device), runs=runs)
    trunk = AnyModule() if general else mlp(sizes[0], sizes[1:-1])
    return step(Network(trunk, sizes[-2], Categorical()), data, {"all": sizes[-1]}, batch, draws, (estimator,), 1e-3)


def generator(examples: int, runs: int, draws: int, device: torch.device) -> Job:
    data = unlabelled(images(examples, 28, device), runs=runs)
    return step(mlp_vae(), data, {"all": 784}, 50, draws, ("weights", "log_sd"), 1e-4)


def prediction(examples: int, draws: int, estimator: str, device: torch.device) -> Job:
    from vcl.predicting.prediction import predict

    model = Network(mlp(784, (100, 100)), 100, Categorical())
    q = belief(model.prior({"all": 10}).to(device), -6.0)
    x = images(examples, 28, device)[None]
    return lambda: predict(q, model, x, "all", Rng((0,)), draws, estimator)  # type: ignore[arg-type]


def fisher(examples: int, device: torch.device) -> Job:
    from vcl.fitting.curvature import Curvature

    model = Network(mlp(784, (100, 100)), 100, Categorical())
    q = belief(model.prior({"all": 10}).to(device), -6.0)
    data = dataset(images(2560, 28, device), labels(2560, 10, device))
    return lambda: Curvature(samples=examples)(model, q.layout, q.mean, data, Rng((0,)))


def jobs(device: torch.device, quick: bool) -> dict[str, Callable[[], Job]]:
    """Functions that build each job, by name. Published networks have ten runs on CUDA only."""
    most = 30 if quick else 10**9
    found: dict[str, Callable[[], Job]] = {}
    for runs in (1, 10):
        for draws in (1, 10):
            for estimator in ("local", "weights"):
                for general in (False, True):
                    name = f"step, {estimator}{', general' if general else ''}, {runs} x {draws}"
                    found[name] = partial(
                        perceptron, (784, 100, 100, 10), 2560, min(256, most), runs, draws, estimator, device, general
                    )
    for estimator in ("local", "weights"):
        found[f"prediction, {estimator}"] = partial(prediction, min(10_000, most), 100, estimator, device)
    found["Fisher"] = partial(fisher, min(600, most), device)
    for runs in (1, 10) if device.type == "cuda" else (1,):
        found[f"split-mnist, {runs} x 10"] = partial(
            perceptron, (784, 256, 256, 2), min(12_000, most), most, runs, 10, "weights", device
        )
        found[f"split-notmnist, {runs} x 10"] = partial(
            perceptron, (784, 150, 150, 150, 150, 2), min(3_370, most), most, runs, 10, "weights", device
        )
        found[f"permuted-digits, {runs} x 10"] = partial(
            perceptron, (64, 100, 10), 1_440, min(64, most), runs, 10, "weights", device
        )
    for runs in (1, 3) if device.type == "cuda" else (1,):
        found[f"generative-mnist, {runs} x 10"] = partial(generator, min(5_400, most), runs, 10, device)
    return found


def measure(job: Job, device: torch.device, budget: float) -> dict[str, float]:
    """Milliseconds per call: minimum and median of as many calls as fit into the budget, at least three.

    On CUDA, short calls are timed in batches between two synchronisations, as in a fit.
    """

    def row(calls: int) -> float:
        finish(device)
        began = perf_counter()
        for _ in range(calls):
            job()
        finish(device)
        return (perf_counter() - began) / calls

    once = row(1)
    for _ in range(5 if device.type == "cuda" or once < 0.1 * budget else 0):  # capture needs three eager steps
        once = row(1)
    length = max(1, min(LONGEST_ROW, int(ROW_SECONDS / once))) if device.type == "cuda" else 1
    times: list[float] = []
    began = perf_counter()
    while len(times) < 3 or (perf_counter() - began < budget and len(times) < 1000):
        times.append(row(length))
    return {"least_ms": 1e3 * min(times), "median_ms": 1e3 * median(times), "calls": length * len(times)}


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="a regular expression: jobs whose names it is found in")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of timed calls of each job")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--matmul", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that every job runs")
    given = parser.parse_args()
    device = torch.device(given.device)
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    torch.backends.cuda.matmul.fp32_precision = "tf32" if given.matmul == "tf32" else "ieee"
    found: dict[str, dict[str, float | str]] = {}
    for name, make in jobs(device, given.quick).items():
        if re.search(given.only, name) is None:
            continue
        try:
            found[name] = {**measure(make(), device, given.budget)}
        except Exception as error:  # a tree may fail in one job and be worth comparing in others
            found[name] = {"error": f"{type(error).__name__}: {error}"}
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    tree = str(Path(vcl.__file__).resolve().parent.parent)
    print(json.dumps({"tree": tree, "torch": torch.__version__, "device": where, "jobs": found}))


if __name__ == "__main__":
    main()
