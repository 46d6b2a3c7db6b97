"""Names and patterns of what has a posterior."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from vcl.errors import VclError
from vcl.models import select_posterior


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
        self.layer10 = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.layer10.weight


ALL = ("layer1.0.weight", "layer1.0.bias", "layer1.1.weight", "layer1.1.bias", "layer10.weight", "layer10.bias")


@pytest.mark.parametrize(("posterior", "names"), [
    ("all", ALL),
    ("head", ()),
    ("layer1", ALL[:4]),
    ("layer1.1", ALL[2:4]),
    ("layer1*", ALL),
    ("*.bias", (ALL[1], ALL[3], ALL[5])),
    (["layer1.0.weight", "layer10"], (ALL[0], *ALL[4:])),
    ("tied", (ALL[4],)),
    ("*", ALL),
])  # fmt: skip
def test_patterns_are_of_parameters_or_modules(posterior: Any, names: tuple[str, ...]) -> None:
    found = select_posterior(Net(), posterior)
    assert found.posterior == names
    assert found.frozen == tuple(name for name in ALL if name not in names)
    assert found.size + found.frozen_size == 12 + 4 + 4 + 4 + 16 + 4
    sizes = dict(zip(ALL, (12, 4, 4, 4, 16, 4), strict=True))
    assert found.size == sum(sizes[name] for name in names)
    assert str(found) == f"{found.size} of 44 parameters have a posterior"


def test_trainable_is_what_requires_a_gradient() -> None:
    net = Net().requires_grad_(False)
    with pytest.raises(VclError, match="no parameter has requires_grad"):
        select_posterior(net, "trainable")
    net.layer1.requires_grad_(True)
    assert select_posterior(net, "trainable").posterior == ALL[:4]


def test_a_pattern_that_matches_nothing_is_refused_with_the_names() -> None:
    with pytest.raises(VclError, match=r"posterior names 'layer2', which matches no parameter .* layer1\.0\.weight"):
        select_posterior(Net(), ["layer1", "layer2"])
    with pytest.raises(VclError, match="'fc'"):
        select_posterior(Net(), "fc")
    assert select_posterior(Net(), "fc", head="fc").posterior == ()
    assert select_posterior(Net(), ["fc.bias", "layer10"], head="fc").posterior == ALL[4:]


def test_of_many_names_the_modules_are_listed() -> None:
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(20)))
    with pytest.raises(VclError) as error:
        select_posterior(deep, "x")
    assert "patterns of these: 0, 1, 2, " in str(error.value)
    assert str(error.value).endswith("19.")
