"""Greedy K-center, 200 of 60,000 x 784 pixels, against the plain vectorised rule in float64 and bare passes over data.

python benchmarks/k_center.py [--threads 2]
"""

from __future__ import annotations

import argparse
from time import perf_counter

import torch

from vcl.coresets import k_center


def plain(x: torch.Tensor, k: int) -> list[int]:
    points, chosen = x.double(), [0]
    nearest = (points - points[0]).square().sum(1)
    while len(chosen) < k:
        chosen.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, (points - points[chosen[-1]]).square().sum(1))
    return chosen


def timed(job) -> tuple[float, object]:  # type: ignore[no-untyped-def]
    began = perf_counter()
    result = job()
    return perf_counter() - began, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    g = torch.Generator().manual_seed(0)
    # As sparse as MNIST: four of five pixels are black.
    x = torch.randint(0, 256, (60_000, 784), generator=g, dtype=torch.uint8)
    x *= (torch.rand(60_000, 784, generator=g) < 0.2).byte()
    ours, chosen = timed(lambda: k_center(x[None], 200)[0].tolist())
    reference, first = timed(lambda: plain(x, 20))
    assert chosen[:20] == first  # type: ignore[index]
    passes, _ = timed(lambda: [x.sum() for _ in range(200)])
    print(f"vcl: {ours:.2f} s for 200 points; plain float64 rule: {10 * reference:.1f} s (10 x 20 points)")
    print(f"200 bare passes over the 47 MB of pixels: {passes:.2f} s")


if __name__ == "__main__":
    main()
