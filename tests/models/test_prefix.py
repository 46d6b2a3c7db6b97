"""The frozen first part of a module: where it can be cut, and its features in blocks."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from made import blobs, most_held
from vcl.data import dataset
from vcl.engines.structure import Fork
from vcl.errors import VclError
from vcl.models import Network, Prefix, select_posterior, split_prefix
from vcl.models.likelihoods import Categorical
from vcl.ops import devices

LIKE = torch.zeros(())


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU())


def nested() -> nn.Sequential:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 1), nn.ReLU())
    return nn.Sequential(inner, nn.Flatten(), nn.Linear(8, 4)).eval()


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x).relu())


CASES: dict[str, tuple[Callable[[], nn.Module], Any, tuple[int, ...], tuple[str, ...] | None]] = {
    "chain": (chain, "3", (6,), ("3.weight", "3.bias")),
    "chain, all frozen": (chain, "head", (6,), ()),
    "chain, a later layer frozen": (chain, "1", (6,), None),
    "nested": (nested, ["0.3", "2"], (1, 2, 3), ("0.3.weight", "0.3.bias", "2.weight", "2.bias")),
    "nested, a layer between frozen": (nested, "0.3", (1, 2, 3), ("0.3.weight", "0.3.bias", "2.weight", "2.bias")),
    "any module, all frozen": (Custom, "head", (6,), ()),
    "any module": (Custom, "two", (6,), None),
    "nothing frozen": (chain, "all", (6,), None),
}


@pytest.mark.parametrize("name", CASES)
def test_prefix_and_rest_are_the_module(name: str) -> None:
    make, posterior, shape, rest = CASES[name]
    module, x = make(), torch.randn(7, *shape)
    sel = select_posterior(module, posterior)
    split = split_prefix(module, sel.frozen)
    with torch.no_grad():
        wanted = module(x)
    if rest is None:
        assert split == (None, module, sel.frozen)
        return
    assert split.prefix is not None
    assert tuple(key for key, _ in split.rest.named_parameters()) == rest
    assert split.frozen == tuple(key for key in sel.frozen if key in rest)
    with torch.no_grad():
        assert torch.equal(split.rest(split.prefix.features(x, LIKE)), wanted)


def test_the_rest_of_a_chain_is_a_chain() -> None:
    split = split_prefix(chain(), ("1.weight", "1.bias"))
    model = Network(split.rest, 4, Categorical(), frozen=split.frozen)
    assert isinstance(model.structure(("h",)), Fork)
    assert model.prior({}).layout.names == ("trunk.3.weight", "trunk.3.bias")


def test_what_a_cut_could_change_is_not_cut() -> None:
    hooked = chain()
    hooked.register_forward_hook(lambda module, x, y: 2 * y)
    frozen = ("1.weight", "1.bias")
    assert split_prefix(hooked, frozen).prefix is None
    trained = nested().train()
    with pytest.raises(VclError, match="keeps running statistics"):
        split_prefix(trained, select_posterior(trained, "head").frozen)


def test_features_are_computed_in_blocks_of_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(6, 4000), nn.ReLU(), nn.Linear(4000, 3)).requires_grad_(True)
    prefix, x = Prefix(wide), torch.randn(2000, 6)
    with torch.no_grad():
        wanted = wide(x)
    monkeypatch.setattr(devices, "CPU", devices.CPU._replace(values=200_000))
    found: list[Tensor] = []
    held = most_held(lambda: found.append(prefix.features(x, LIKE)))
    torch.testing.assert_close(found[0], wanted)
    assert not found[0].requires_grad
    assert held < 4 * 400_000, "the outputs of all examples would take 64 MB"


def test_inputs_are_as_a_network_takes_them_and_shared_runs_stay_shared() -> None:
    prefix = Prefix(chain())
    bytes_ = torch.randint(0, 256, (9, 2, 3), dtype=torch.uint8)
    torch.testing.assert_close(prefix.features(bytes_, LIKE), prefix.features(bytes_.float() / 255, LIKE))
    data = dataset(bytes_, torch.arange(9) % 2, runs=3)
    over = prefix.over(data, LIKE.double())
    assert over.x.shape == (3, 9, 4)
    assert over.x.stride(0) == 0
    assert over.x.dtype == torch.float64
    assert over.y is data.y
    own = blobs(5, 0, "t", "h", runs=2).map(lambda part: part.clone())
    apart = prefix.over(own, LIKE)
    assert apart.x.stride(0) != 0
    torch.testing.assert_close(apart.x[1], prefix.features(own.x[1], LIKE))
    empty = data.empty()
    assert prefix.over(empty, LIKE) is empty


def test_the_checksum_is_of_the_values() -> None:
    one, two = chain(), chain()
    assert Prefix(one).digest() == Prefix(two).digest()
    assert Prefix(deepcopy(one).double()).digest() == Prefix(one).digest()
    with torch.no_grad():
        two[3].bias[1] += 1e-6  # type: ignore[index, operator, union-attr]
    assert Prefix(one).digest() != Prefix(two).digest()
