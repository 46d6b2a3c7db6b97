"""Where log variances end: natural gradients and Adam, after K steps and after ten times as many, from several starts.

The README's network on its first task, and small networks on scikit-learn's tables. Each row has

    apart     mean over parameters of |log variance after K steps - log variance after 10 K steps|, by parameter
    sorted    the same with the log variances of each tensor sorted, since hidden units may change places
    objective the lower bound, a mean over the last tenth of the epochs, after K steps and after 10 K

as medians over seeds. The fits after 10 K steps start at init_var = e^-6, with the same seeds.

    python benchmarks/variances.py [--data readme,wine] [--steps 1000] [--seeds 3]
"""

from __future__ import annotations

import argparse
from math import exp, log
from typing import NamedTuple

import torch
from torch import Tensor

import vcl
from vcl.data import Data
from vcl.fitting.loop import Progress
from vcl.projections import Target

TABLES = ("digits", "wine", "breast_cancer", "iris", "diabetes")
STARTS = (exp(-12), exp(-6), 1e-2, 1.0)


class Problem(NamedTuple):
    """Data, a network for it, and the number of its outputs."""

    data: Data
    model: vcl.Network
    outputs: int


def problem(name: str, seeds: int) -> Problem:
    """The README's first task, or a table with standardised columns (and target)."""
    if name == "readme":
        torch.manual_seed(0)
        x, y = torch.randn(10, 64).repeat(100, 1) + torch.randn(1000, 64), torch.arange(1000) % 10
        x, hidden, likelihood = x[:, torch.randperm(64)], 100, vcl.Categorical()
    else:
        from sklearn import datasets

        table = getattr(datasets, f"load_{name}")()
        x = torch.tensor(table.data, dtype=torch.float32)
        x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
        y, hidden, likelihood = torch.tensor(table.target), 100 if name == "digits" else 20, vcl.Categorical()
        if name == "diabetes":
            y, likelihood = ((y - y.mean()) / y.std()).float(), vcl.Normal(0.7)  # type: ignore[assignment]
    outputs = 1 if y.is_floating_point() else int(y.max()) + 1
    model = vcl.Network(vcl.mlp(x.shape[1], (hidden,)), features=hidden, likelihood=likelihood)
    return Problem(vcl.dataset(x, y, "t", "all", runs=seeds), model, outputs)


def fit(of: Problem, project: vcl.VariationalKL) -> tuple[Tensor, Tensor, Tensor]:
    """Log variances [R, D] as they are and with each tensor sorted, and the lower bound [R] at the end."""
    data, model, outputs = of
    prior, told = model.prior({"all": outputs}), list[Progress]()
    q = project(Target(prior.expand(data.runs), model, data, prior), vcl.Rng(tuple(range(data.runs))), told.append)
    parts = [part.flatten(1).sort(1).values for part in q.layout.split(q.log_var).values()]
    last = [each.objective for each in told if each.what == "variational fit"][-max(1, project.ascent.epochs // 10) :]
    return q.log_var, torch.cat(parts, 1), torch.stack(last).mean(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(("readme", *TABLES)))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--estimator", default="local")
    parser.add_argument("--fits", default="natural,Adam")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of Adam")
    options = parser.parse_args()
    print("| data | fit | steps | log init_var | apart | sorted | objective | after 10 K |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in options.data.split(","):
        of = problem(name, options.seeds)
        each = -(-of.data.size // 256)
        epochs = -(-options.steps // each)
        for called in options.fits.split(","):
            natural = vcl.NaturalGradient() if called == "natural" else None

            def project(times: int, start: float, natural: vcl.NaturalGradient | None = natural) -> vcl.VariationalKL:
                ascent = vcl.Ascent(times * epochs, 256, options.lr)  # noqa: B023
                return vcl.VariationalKL(
                    ascent, options.draws, options.estimator, init_var=start, ml_start=False, natural=natural
                )

            end = fit(of, project(10, exp(-6)))
            for start in STARTS:
                now = fit(of, project(1, start))
                apart, ordered = (float((now[k] - end[k]).abs().mean(1).median()) for k in (0, 1))
                bounds = (f"{float(found[2].median()):.0f}" for found in (now, end))
                start_of = f"{name} | {called} | {epochs * each} | {log(start):.1f}"
                print(f"| {start_of} | {apart:.2f} | {ordered:.2f} | {' | '.join(bounds)} |", flush=True)


if __name__ == "__main__":
    main()
