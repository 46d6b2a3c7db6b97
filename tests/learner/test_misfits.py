"""Networks that do not take the inputs: the error says what would fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from own_data import QUICK, classes_of, numbers, same, tensors
from vcl.errors import VclError
from vcl.learner import ContinualClassifier, ContinualRegressor
from vcl.learner.misfits import what_fits

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
Y = np.arange(20) % 2


def conv(channels: int) -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(nn.Conv2d(channels, 2, 3, stride=2), nn.ReLU(), nn.Flatten())


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x).flatten(1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("head", ["new", "own"])
@pytest.mark.parametrize(
    ("net", "x", "advice"),
    [
        (conv(1), IMAGES[..., 0], r"takes x as \[N, 1, height, width\]; give x\[:, None\]\."),
        (conv(3), IMAGES, r"as \[N, 3, height, width\]; bring the channels to the front, as in x\.permute\(0, 3, 1, 2"),
        (conv(1), numbers(20, width=9), r"; its nn.Conv2d takes x as \[N, 1, height, width\]\.$"),
        (nn.Linear(6, 3), numbers(20), r"first layer takes 6 values, and an example has 4; begin with nn.Linear\(4, "),
        (nn.Linear(64, 3), IMAGES[..., 0], r"first layer takes 64 values; begin with nn.Flatten\(\), or give rows of"),
    ],
)
def test_the_error_says_what_fits(net: nn.Module, x: np.ndarray, advice: str, head: Any) -> None:
    whole = nn.Sequential(net, nn.Linear(2, 2)) if head == "own" else net
    with pytest.raises(VclError, match=rf"the network does not take .*{advice}"):
        ContinualClassifier(whole, head=head, **QUICK).update(x, Y)


def test_the_advice_is_right() -> None:
    one = ContinualClassifier(conv(1), **QUICK).update(IMAGES[:, None, :, :, 0], Y)
    three = ContinualClassifier(conv(3), **QUICK).update(np.moveaxis(IMAGES, -1, 1), Y)
    flat = ContinualClassifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), **QUICK).update(IMAGES[..., 0], Y)
    assert [each.summary() != "" for each in (one, three, flat)] == [True] * 3


def test_a_network_without_a_layer_that_tells_gets_no_advice() -> None:
    assert what_fits(nn.GRU(3, 4), (5,)) == ""
    assert what_fits(nn.Linear(4, 2), (4,)) == ""
    assert what_fits(None, (4,)) == ""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats_are_refused_where_they_would_learn(dtype: torch.dtype) -> None:
    x = numbers()
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(VclError, match=rf"the parameter 'weight' of the network is {name}, and .*; give net.float\(\)"):
        ContinualClassifier(nn.Linear(4, 3).to(dtype), **QUICK).update(x, classes_of(x))


def test_tokens_without_a_row_are_one_sentence_and_change_nothing() -> None:
    x = np.random.default_rng(0).integers(0, 5, (40, 4))
    y = np.arange(40) % 2
    learner = ContinualClassifier(Words(), **QUICK).update(x, y)
    before = tensors(learner)
    told = r"x has tokens from 4 to 8, and the network's nn.Embedding has 5 rows, for 0 to 4; give tokens"
    more = np.full((40, 4), 4)
    more[30, 2] = 8
    asks: list[Any] = [
        learner.predict, learner.predict_proba, learner.uncertainty, learner.predict_draws,
        lambda given: learner.update(given, y),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(VclError, match=told):
            ask(more)
    assert same(tensors(learner), before)
    by_number = ContinualRegressor(Words(), **QUICK).update(x, y * 1.0)
    with pytest.raises(VclError, match=told):
        by_number.predict(more)
    frozen = ContinualClassifier(nn.Sequential(Words(), nn.Linear(12, 4)), posterior=["1"], **QUICK).update(x, y)
    with pytest.raises(VclError, match=told):
        frozen.predict(more)
