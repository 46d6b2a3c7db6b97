"""One captured training step on a GPU: 784-100-100-10, batch 256, at 1, 5 and 10 runs.

python benchmarks/gpu_step.py
"""

from __future__ import annotations

from time import perf_counter

import torch

from vcl.data import dataset
from vcl.likelihood import Categorical
from vcl.models import Network, mlp
from vcl.optimise import Ascent, ascend
from vcl.projections.vi import Elbo
from vcl.rng import Rng

EXAMPLES, BATCH = 51_200, 256


def milliseconds(estimator: str, runs: int, draws: int) -> float:
    """Per step, everything included (batches, noise, gradient, Adam), from a short and a long fit."""
    model = Network(mlp(784, [100, 100]), 100, Categorical())
    x = torch.randint(0, 256, (EXAMPLES, 784), dtype=torch.uint8, device="cuda")
    data = dataset(x, torch.randint(0, 10, (EXAMPLES,), device="cuda"), runs=runs)
    prior = model.prior({"all": 10}).to("cuda").expand(runs)
    start = (0.1 * torch.randn_like(prior.mean), prior.log_var - 6)
    elbo = Elbo(model, prior, draws, estimator)  # type: ignore[arg-type]

    def timed(epochs: int) -> float:
        torch.cuda.synchronize()
        began = perf_counter()
        ascend(elbo, start, data, Ascent(epochs, BATCH), Rng(tuple(range(runs))))
        torch.cuda.synchronize()
        return perf_counter() - began

    timed(1)
    return 1e3 * (timed(5) - timed(1)) / (4 * EXAMPLES / BATCH)


def main() -> None:
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"{'estimator':<10}{'runs':>6}{'draws':>7}{'ms a step':>11}")
    for estimator in ("local", "weights"):
        for runs, draws in ((1, 10), (5, 10), (10, 1), (10, 10)):
            print(f"{estimator:<10}{runs:>6}{draws:>7}{milliseconds(estimator, runs, draws):>11.3f}")


if __name__ == "__main__":
    main()
