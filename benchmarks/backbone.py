"""A trained network of 20 million parameters, adapters of rank 8, three tasks: time, memory, and what is trained.

    python benchmarks/backbone.py [--quick] [--method structured] [--out results/backbone/backbone.json]

The network learns the ten digits of MNIST by plain training. Then a learner with adapters learns three tasks of two
letters each (notMNIST), one after another, each with a head of its own. Memory is that of the process, sampled every
5 ms; before an update the data and the network are there already. Seconds are of the clock, and of all processors.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import threading
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import vcl
from vcl.lab.datasets import load
from vcl.lab.provenance import made_by
from vcl.ops import adam

PAGE, MIB = 4096, 2**20
TASKS = ((0, 1), (2, 3), (4, 5))
DRAWS = 5


class Residual(nn.Module):
    """x + W_2 gelu(W_1 norm(x)), four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, width] to [N, width]."""
        change: Tensor = self.back(nn.functional.gelu(self.wide(self.norm(x))))
        return x + change


def network(width: int, blocks: int) -> nn.Module:
    """A residual network of images; 640 and 6 give 20.2 million parameters."""
    torch.manual_seed(0)
    inner = [Residual(width) for _ in range(blocks)]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), *inner, nn.LayerNorm(width))


def trained(net: nn.Module, width: int, examples: int) -> None:
    """One pass over digits with Adam."""
    data, whole = load("mnist"), nn.Sequential(net, nn.Linear(width, 10))
    optimiser = torch.optim.Adam(whole.parameters(), 3e-4)
    x = torch.from_numpy(data.train_x[:examples]).float() / 255
    y = torch.from_numpy(data.train_y[:examples].astype(np.int64))
    for part, labels in zip(x.split(64), y.split(64), strict=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(whole(part), labels).backward()
        optimiser.step()


def letters(pair: tuple[int, int], part: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """So many images of two letters, and which of them it is."""
    data = load("notmnist")
    x, y = (data.train_x, data.train_y) if part == "train" else (data.test_x, data.test_y)
    at = np.random.default_rng(0).permutation(np.flatnonzero(np.isin(y, pair)))[:count]
    return x[at], (y[at] == pair[1]).astype(int)


class Watched:
    """The largest memory of the process and the values that Adam holds, while it is open."""

    def __enter__(self) -> Watched:
        self.before, self.most, self.held, self.open = resident(), 0.0, 0, True
        self.real = adam.TorchAdam.step

        def step(optimiser: Any, gradients: tuple[Tensor, ...]) -> None:
            self.held = max(self.held, sum(value.numel() for value in (*optimiser.m, *optimiser.v)))
            self.real(optimiser, gradients)

        adam.TorchAdam.step = step  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        self.begun, self.worked = monotonic(), process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.processor, self.open = monotonic() - self.begun, process_time() - self.worked, False
        self.thread.join()
        adam.TorchAdam.step = self.real  # type: ignore[method-assign]

    def _watch(self) -> None:
        while self.open:
            self.most = max(self.most, resident())
            sleep(0.005)


def resident() -> float:
    """The memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / MIB


def main() -> None:
    """Train, learn, print, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small network and few steps; its numbers mean nothing")
    parser.add_argument("--method", default="structured", help="the learner's method")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    given = parser.parse_args()
    width, blocks, epochs, count = (16, 1, 1, 64) if given.quick else (640, 6, 5, 500)
    net = network(width, blocks)
    trained(net, width, 128 if given.quick else 4000)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    learner = vcl.ContinualClassifier(
        net, adapters=8, classes=[0, 1], method=given.method, epochs=epochs, device="cpu", verbose=0
    )
    updates = []
    for number, pair in enumerate(TASKS):
        x, y = letters(pair, "train", count)
        with Watched() as watched:
            learner.update(x, y, task=f"letters {number}")
        updates.append(
            {
                "seconds": watched.seconds,
                "seconds of processors": watched.processor,
                "MiB more": watched.most - watched.before,
                "Adam's values": watched.held,
            }
        )
        print(learner.history[-1].line(), file=sys.stderr, flush=True)
    right = []
    for number, pair in enumerate(TASKS):
        x, y = letters(pair, "test", 20 if given.quick else 200)
        right.append(float(100 * (learner.predict_proba(x, f"letters {number}", draws=DRAWS).argmax(1) == y).mean()))
    after, exported = net.state_dict(), learner.export("letters 0").state_dict()
    found = {
        "parameters": sum(value.numel() for value in net.parameters()),
        "with a posterior": learner._knows().state.propagated.layout.size,
        "updates": updates,
        "accuracy after all tasks": right,
        "frozen values unchanged": all(
            any(torch.equal(value, other) for other in exported.values() if other.shape == value.shape)
            and torch.equal(value, after[name])
            for name, value in before.items()
        ),
        "command": shlex.join(["python", "benchmarks/backbone.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        **made_by(),
    }
    print(json.dumps(found, indent=2))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
