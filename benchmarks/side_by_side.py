"""Compares concurrent fits, each on its own CUDA stream, with the same fits one after another.

    python benchmarks/side_by_side.py [--matmul tf32]

Both run in one process, interleaved; times are minima over repeats.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from time import perf_counter

import torch
from gpu_step import Job, perceptron, vae

from vcl.fitting.loop import Report
from vcl.lab.arithmetic import MATMUL_PRECISIONS, matrix_products
from vcl.lab.side_by_side import side_by_side

EPOCHS, REPEATS = 5, 3


def seconds(jobs: Sequence[Job], at_once: int, device: str = "cuda") -> float:
    """Seconds for all jobs, ``at_once`` at a time."""

    def piece(job: Job, report: Report) -> None:
        job.fit(EPOCHS)

    began = perf_counter()
    side_by_side([partial(piece, job) for job in jobs], at_once, torch.device(device))
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--matmul", choices=MATMUL_PRECISIONS, default="float32")
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {given.matmul}")
    cases = {
        "2 perceptrons, weights, 10 x 10": [perceptron("weights", 10, 10)] * 2,
        "3 perceptrons, weights, 10 x 10": [perceptron("weights", 10, 10)] * 3,
        "2 VAEs, drawn, 3 runs": [vae(True, 3)] * 2,
        "2 VAEs, points, 9 runs": [vae(False, 9)] * 2,
        "a VAE of each": [vae(True, 3), vae(False, 9)],
    }
    with matrix_products(given.matmul):
        for name, jobs in cases.items():
            seconds(jobs, 1)
            times = [(seconds(jobs, 1), seconds(jobs, len(jobs))) for _ in range(REPEATS)]
            alone, beside = (min(column) for column in zip(*times, strict=True))
            print(f"{name:<34}{alone:7.2f} s, side by side {beside:7.2f} s: {alone / beside:.2f} times", flush=True)


if __name__ == "__main__":
    main()
