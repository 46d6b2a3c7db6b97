"""One update of a large network with a posterior over a part of it, beside one over everything.

    python benchmarks/adapters.py [--parameters 20000000] [--rank 8] [--threads 2]

A perceptron of that many parameters is given as trained. `adapters` has a posterior over low-rank corrections of its
two wide layers and over the head, `last layer` over the second wide layer and the head, with the features before it
computed once, `head` over the head alone, and `everything` over all. An update is one pass over 2,048 images in
batches of 256, with the estimator `local` at one draw; a prediction is of 500 images at 10 draws. Each row is measured
in a process of its own, after a small network. Memory is what the update holds beyond network, data and frozen values:
of tensors, and as the growth of the process, which also has the workspace of matrix products. Frozen values must keep
their bits, and with adapters the tensors of an update must take less than they do.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from vcl.data import dataset
from vcl.fitting.loop import Ascent
from vcl.models import Network, select_posterior, split_head, split_prefix, with_adapters
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import VariationalKL
from vcl.recursion import Method, Task, initial, learn

BATCH, EXAMPLES, TESTED, DRAWS = 256, 2048, 500, 10
SMALL = 100_000
CASES = ("adapters", "last layer", "head", "everything")


def peak() -> float:
    """The peak memory of this process, in bytes."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def most_held(run: Callable[[], object]) -> int:
    """The most bytes that torch's tensors held at once, of what was made since ``run`` was called."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    now = most = 0
    assert seen.profiler is not None
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def trained(parameters: int) -> nn.Sequential:
    hidden = round((784**2 / 4 + parameters) ** 0.5 - 784 / 2)  # 784 h + h^2 = parameters
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def measured(case: str, parameters: int, rank: int) -> dict[str, float]:
    """One row of the table."""
    if parameters > SMALL:
        measured(case, SMALL, rank)  # what torch loads at its first fit is no part of a later one
    net, like = trained(parameters), torch.zeros(())
    net = with_adapters(net, rank) if case == "adapters" else net
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (EXAMPLES, 28, 28), generator=g, dtype=torch.uint8)
    data = dataset(x, torch.randint(0, 10, (EXAMPLES,), generator=g))
    whole = split_head(net, x[:1])
    del net
    posterior = {"adapters": "trainable", "last layer": "3", "head": "head", "everything": "all"}[case]
    frozen = select_posterior(whole.trunk, posterior, whole.name)
    prefix, rest, left = split_prefix(whole.trunk, frozen.frozen)
    head = {"all": (whole.weight, whole.bias)}
    model = Network(rest, whole.features, Categorical(), 1.0, left, "module", head_start=head)
    del whole, rest
    before = {} if prefix is None else {name: value.clone() for name, value in prefix.fixed.values.items()}
    before |= {name: value.clone() for name, value in model.fixed_values(like).items()}
    held, began = peak(), perf_counter()
    data = data if prefix is None else prefix.over(data, like)
    features = perf_counter() - began
    method = Method(VariationalKL(Ascent(1, BATCH, 1e-3), 1, "local", ml_start=False))
    state = initial(model, method, 1)
    task = Task("task", data, heads={"all": 10})
    began = perf_counter()
    (after_it,) = learn(state, [task], model, method, Rng(0))
    fit, grown = perf_counter() - began, peak() - held
    tensors = most_held(lambda: list(learn(state, [task], model, method, Rng(0))))
    after: dict[str, Tensor] = {} if prefix is None else dict(prefix.fixed.values)
    after |= model.fixed_values(like)
    assert all(torch.equal(value, after[name]) for name, value in before.items()), "frozen values moved"
    bytes_ = 4 * sum(value.numel() for value in before.values())
    if case == "adapters" and parameters > SMALL:
        assert tensors < bytes_, f"the fit held {tensors / 2**20:.0f} MiB, and the frozen part has {bytes_ / 2**20:.0f}"
    began = perf_counter()
    found = predict(after_it, model, data.x[:, :TESTED], "all", Rng(0), draws=DRAWS)
    assert bool(found.isfinite().all())
    return {
        "posterior": model.prior({"all": 10}).layout.size, "frozen": bytes_ / 4, "features": features, "fit": fit,
        "tensors": tensors / 2**20, "grown": grown / 2**20, "predict": perf_counter() - began,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=20_000_000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=CASES, help="measure one row in this process, and print it as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only is not None:
        print(json.dumps(measured(options.only, options.parameters, options.rank)))
        return
    print("| posterior over | parameters | frozen | features once | update | tensors | process | predict |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        given = ["--parameters", options.parameters, "--rank", options.rank, "--threads", options.threads]
        command = [sys.executable, __file__, "--only", case, *map(str, given)]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(
            f"| {case} | {row['posterior']:,.0f} | {row['frozen']:,.0f} | {row['features']:.2f} s | {row['fit']:.2f} s "
            f"| {row['tensors']:.0f} MiB | {row['grown']:.0f} MiB | {row['predict']:.2f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
