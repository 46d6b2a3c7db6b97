"""Values of a new network are told from trained ones, so that images are scaled only where none learned their scale."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from vcl.models import mlp
from vcl.models.untrained import untrained


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, groups=2), nn.Flatten())


NEW: dict[str, Callable[[], nn.Module]] = {
    "a perceptron": lambda: mlp(64, (50, 50)),
    "few weights": lambda: nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1)),
    "convolutions": convolutions,
    "recurrent": lambda: nn.GRU(5, 7),
    "attention": lambda: nn.TransformerEncoderLayer(16, 2, 32),
    "half precision": lambda: mlp(64, (50,)).to(torch.bfloat16),
    "lazy": lambda: nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)),
}


@pytest.mark.parametrize("name", NEW)
def test_new_networks_are_new(name: str) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        assert untrained(NEW[name]()), seed


@pytest.mark.parametrize("name", ["a perceptron", "convolutions", "recurrent", "attention"])
@pytest.mark.parametrize("change", ["some steps", "shrunk", "another start"])
def test_others_are_not(name: str, change: str) -> None:
    torch.manual_seed(0)
    net = NEW[name]()
    with torch.no_grad():
        for value in net.parameters():
            if change == "some steps":
                value += 0.1 * torch.randn_like(value)
            elif change == "shrunk":
                value *= 0.7
            else:
                value.normal_(0, 0.5)
    assert not untrained(net)


def test_one_step_of_adam_is_noticed_in_a_layer_of_some_thousand_weights() -> None:
    torch.manual_seed(0)
    net = NEW["a perceptron"]()
    with torch.no_grad():
        for value in net.parameters():
            value += 1e-3 * torch.randn_like(value).sign()
    assert not untrained(net)


def test_nothing_is_known_of_a_network_without_such_layers() -> None:
    assert not untrained(nn.Flatten())
    assert not untrained(nn.Embedding(5, 3))
