"""`benchmarks/clients.py`: who has which digits, that steps are as many, and a row of each method at a tiny budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scripts import load

from vcl.lab.datasets import load as load_data

clients = load("clients")
TINY = clients.QUICK


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """The 8x8 digits in the middle of images of MNIST's size."""
    data = load_data("digits")
    x = torch.zeros(len(data.train_x), 28, 28, dtype=torch.uint8)
    x[:, 10:18, 10:18] = torch.as_tensor(np.asarray(data.train_x))
    return x.reshape(-1, 784), torch.as_tensor(data.train_y).long()


def work(**changed: Any) -> Any:
    x, y = digits()
    return clients.work_of(x[:400], y[:400], TINY._replace(**changed), (0, 1))


def test_a_client_has_two_digits_and_nobody_elses_images() -> None:
    _, y = digits()
    parts = clients.divided(y, 10)
    assert [sorted(set(y[part].tolist())) for part in parts] == [sorted((k, (k + 1) % 10)) for k in range(10)]
    assert len({len(part) for part in parts}) == 1
    everything = torch.cat(parts).tolist()
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize("way", clients.WAYS, ids=lambda way: way.name)
def test_a_method_has_a_row_for_each_seed_and_round(way: Any) -> None:
    x, y = digits()
    given = work()
    rows = list(clients.tried(way._replace(damping=min(way.damping, 0.1) if "PVI" in way.name else 1), given, x, y))
    rounds = TINY.rounds if way.name in ("PVI", "PVI, in turn", "FedAvg") else 1
    assert [(row["round"], row["seed"]) for row in rows] == [(r + 1, s) for r in range(rounds) for s in (0, 1)]
    for row in rows:
        assert 0 <= row["accuracy"] <= 1
        assert row["log predictive"] < 0
        assert 0 <= row["calibration error"] <= 1
    assert f"| {way.name} |" in clients.table(rows, [way._replace(damping=rows[0]["damping"])])


def test_what_a_method_refuses_is_in_its_row_and_in_the_table() -> None:
    x, y = digits()
    way = clients.Way("PVI", 1e-3, 2.0)
    rows = list(clients.tried(way, work(), x, y))
    assert rows == [{"method": "PVI", "lr": 1e-3, "damping": 2.0, "refused": rows[0]["refused"]}]
    assert rows[0]["refused"].startswith("damping is 2.0; give a share")
    assert f"after round 0: {rows[0]['refused']}" in clients.table(rows, [way])


def test_all_methods_take_as_many_steps() -> None:
    """Of each client, and ten times as many on all data; up to half an epoch."""
    budget = clients.Budget()
    local, once, all_of_it = clients.ascents(1e-3, budget, 862, 8620)
    assert budget.rounds * local.steps(862) == once.steps(862) == 900
    an_epoch = all_of_it.steps(8620) / all_of_it.epochs
    assert abs(all_of_it.steps(8620) - 10 * 900) <= an_epoch / 2
