"""Memory and time of a large network and of a long stream on a small machine.

    python benchmarks/large.py [--parameters 20000000] [--examples 1000000] [--threads 2]

`network` fits a perceptron of that many parameters (its posterior has twice as many values) to a few batches, with the
estimator `local` at one draw. Memory is given in values per optimised value (mean or log variance of a parameter), as
the growth of the process: value, gradient, two moments of Adam and the previous posterior make 5. `stream` learns that
many examples (synthetic uint8 images) in chunks, one task each, with the paper's network. Only the posterior is kept,
so memory is that of one chunk.
"""

from __future__ import annotations

import argparse
import resource
from time import perf_counter

import torch

from vcl.coresets import Nothing
from vcl.data import dataset
from vcl.fitting.loop import Ascent
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import VariationalKL
from vcl.recursion import Method, Task, initial, learn

BATCH = 256


def made_up(examples: int, seed: int, name: str) -> Task:
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (examples, 28, 28), generator=g, dtype=torch.uint8)
    data = dataset(x, torch.randint(0, 10, (examples,), generator=g), name)
    return Task(name, data, data, {"all": 10})


def peak() -> float:
    """The peak memory of this process, in bytes."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def network(parameters: int) -> None:
    """Fits two tasks: the first starts at the prior, the second at a posterior, like all later ones."""
    hidden = round((784**2 / 4 + parameters) ** 0.5 - 784 / 2)  # 784 h + h^2 = parameters
    model = Network(mlp(784, [hidden, hidden]), hidden, Categorical())
    size = model.prior({"all": 10}).layout.size
    method = Method(project := VariationalKL(Ascent(1, BATCH, 1e-3), 1, "local", ml_start=False), Nothing(), project)
    before = peak()
    states = learn(
        initial(model, method, 1), (made_up(8 * BATCH, t, str(t)) for t in range(2)), model, method, Rng((0,))
    )
    began = perf_counter()
    for t, state in enumerate(states, start=1):
        taken, began = perf_counter() - began, perf_counter()
        print(
            f"task {t}: {size / 1e6:.1f} million parameters, {taken / 8:.2f} s a step of {BATCH}, "
            f"{(peak() - before) / 2 / size / 4:.2f} values per optimised value ({(peak() - before) / 2**20:.0f} MiB)",
            flush=True,
        )
        assert bool(state.propagated.mean.isfinite().all())


def stream(examples: int, chunk: int) -> None:
    """One pass over all examples, chunk by chunk."""
    model = Network(mlp(784, [100, 100]), 100, Categorical())
    method = Method(project := VariationalKL(Ascent(1, BATCH, 1e-3), 1, "local", ml_start=False), Nothing(), project)
    tasks = (made_up(chunk, t, str(t)) for t in range(examples // chunk))
    before, began = peak(), perf_counter()
    for state in learn(initial(model, method, 1), tasks, model, method, Rng((0,))):
        if state.t % max(1, examples // chunk // 5) == 0:
            print(
                f"{state.t * chunk:>9,} examples: {perf_counter() - began:6.1f} s (their making included), "
                f"{(peak() - before) / 2**20:.0f} MiB more than before",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=20_000_000)
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--chunk", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stream(options.examples, options.chunk)
    network(options.parameters)


if __name__ == "__main__":
    main()
