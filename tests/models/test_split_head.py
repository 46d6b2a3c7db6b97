"""A whole network as a trunk and its last layer; what cannot be cut so gets a sentence."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcl.errors import VclError
from vcl.models import Network, split_head
from vcl.models.likelihoods import Categorical


class Residual(nn.Module):
    """Its last layer is not its last attribute."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.out = nn.Linear(5, 3, bias)
        self.body = nn.Sequential(nn.Conv2d(1, 5, 2), nn.BatchNorm2d(5), nn.Dropout(0.5))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x).mean((2, 3)))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mix(self.embed(x)).mean(1))


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor, str, int]] = {
    "sequential": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
                   torch.randn(2, 2, 3), "3", 5),
    "any module": (Residual, torch.randn(2, 1, 4, 4), "out", 5),
    "without a bias": (lambda: Residual(False), torch.randn(1, 1, 4, 4), "out", 5),
    "bytes": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
              torch.randint(0, 256, (2, 6), dtype=torch.uint8), "3", 5),
    "tokens": (Tokens, torch.randint(0, 7, (3, 5)), "out", 4),
    "a layer alone": (lambda: nn.Linear(6, 3), torch.randn(4, 6), "", 6),
    "double": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)).double(), torch.randn(4, 6), "1", 5),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_trunk_and_layer_are_the_network(name: str) -> None:
    make, x, layer, features = CASES[name]
    torch.manual_seed(0)
    net = make()
    before, modes = deepcopy(net.state_dict()), [part.training for part in net.modules()]
    state = torch.get_rng_state()
    whole = split_head(net, x)
    assert torch.equal(torch.get_rng_state(), state), "no global randomness"
    assert whole.name == layer
    assert whole.features == features == whole.weight.shape[1]
    assert whole.bias.shape == whole.weight.shape[:1]
    assert [part.training for part in net.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert not [part for part in net.modules() if part._forward_hooks]
    like = next(net.parameters())
    x = x.float() / 255 if x.dtype == torch.uint8 else x.to(like.dtype) if x.is_floating_point() else x
    net.eval()
    trunk = deepcopy(whole.trunk).eval()
    with torch.no_grad():
        torch.testing.assert_close(F.linear(trunk(x), whole.weight, whole.bias), net(x))
    prefix = f"{layer}." if layer else ("weight", "bias")
    wanted = [key for key, _ in net.named_parameters() if not key.startswith(prefix)]
    assert [key for key, _ in whole.trunk.named_parameters()] == wanted


def test_modes_stay_as_they_were() -> None:
    net = Residual()
    net.body.eval()
    trunk = split_head(net, torch.randn(2, 1, 4, 4)).trunk
    assert trunk.training
    assert not trunk.body.training
    Network(split_head(nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Linear(5, 2)), torch.randn(1, 6)).trunk, 5,
            Categorical())  # fmt: skip


class Between(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.one, self.two = way, nn.Linear(4, 4), nn.Linear(4, 4)
        if way == "tied":
            self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        h = self.two(self.one(x).relu())
        if self.way == "twice":
            return self.two(h)  # type: ignore[no-any-return]
        if self.way == "itself":
            return h * self.two.in_features  # type: ignore[no-any-return]
        after = {"tied": h, "tuple": (h, h), "softmax": h.softmax(1), "log_softmax": h.log_softmax(1),
                 "sigmoid": h.sigmoid(), "scaled": 2 * h, "skip": h + x, "three": h[:, None]}  # fmt: skip
        return after[self.way]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("net", "words"), [
    (Between("softmax"), "applies softmax after its last layer 'two', which the likelihood does too"),
    (Between("log_softmax"), "applies log_softmax after"),
    (Between("sigmoid"), "applies sigmoid after"),
    (Between("tied"), "the weight of the last layer 'two' is also 'one.weight'"),
    (Between("twice"), "the last layer 'two' is called 2 times"),
    (Between("scaled"), "is not that of its last nn.Linear 'two' alone"),
    (Between("skip"), "is not that of its last nn.Linear 'two' alone"),
    (Between("itself"), "does not work without its last layer 'two'"),
    (Between("tuple"), "the network returns a tuple; give one that returns logits [N, classes]"),
    (Between("three"), "returns a tensor of shape (2, 1, 4)"),
    (nn.Sequential(nn.ReLU()), "calls no nn.Linear"),
    (nn.Linear(5, 2), "does not take an example of shape (2, 4)"),
])  # fmt: skip
def test_what_cannot_be_cut_is_refused_with_a_sentence(net: nn.Module, words: str) -> None:
    with pytest.raises(VclError) as error:
        split_head(net, torch.randn(2, 4))
    assert words in str(error.value)
