"""Modules of one's own that are chains are found to be, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from made import blob_tasks
from vcl.coresets import Nothing
from vcl.engines.moment_propagation import through
from vcl.engines.structure import Fork, flat_chain
from vcl.fitting.loop import Ascent
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.projections import VariationalKL
from vcl.recursion import Method, initial, learn


class Own(nn.Module):
    """Two layers, and what a test does with them."""

    def __init__(self, code: Callable[[Own, Tensor], Tensor]) -> None:
        super().__init__()
        self.code, self.act = code, nn.ReLU()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 6)
        self.deep = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Tanh(), nn.Linear(6, 6)))

    def forward(self, x: Tensor) -> Tensor:
        return self.code(self, x)


def more(net: Own, x: Tensor) -> Tensor:
    net.scale = nn.Parameter(torch.tensor(1.0))
    return F.relu(net.second(F.relu(net.first(x.flatten(1)))))


CHAINS: dict[str, Callable[[Own, Tensor], Tensor]] = {
    "functions": lambda net, x: F.relu(net.second(F.relu(net.first(x.flatten(1))))),
    "methods": lambda net, x: net.second(net.first(torch.flatten(x, 1)).relu()).relu(),
    "one module twice": lambda net, x: net.act(net.second(net.act(net.first(x.flatten(1))))),
    "an inner chain": lambda net, x: torch.sigmoid(net.deep(x.flatten(1))),
    "by the batch's size": lambda net, x: F.relu(net.second(F.relu(net.first(x.view(x.size(0), -1))))),
    "by its shape": lambda net, x: F.relu(net.second(F.relu(net.first(x.reshape(x.shape[0], -1))))),
    "by the pixels": lambda net, x: F.relu(net.second(F.relu(net.first(x.view(-1, 4))))),
    "more parameters": more,
    "others": lambda net, x: F.silu(net.second(F.gelu(net.first(x.flatten(1))))),
}


def peeks(net: Own, x: Tensor) -> Tensor:
    x = net.first(x.flatten(1))
    return F.relu(net.second(x)) if x.sum() > 0 else x


def without_gradient(net: Own, x: Tensor) -> Tensor:
    with torch.no_grad():
        h = net.first(x.flatten(1))
    return F.relu(net.second(F.relu(h)))


def coarse(net: Own, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.relu(net.second(F.relu(net.first(x.flatten(1)))))


def changes_its_input(net: Own, x: Tensor) -> Tensor:
    x.mul_(2)
    return F.relu(net.second(F.relu(net.first(x.flatten(1)))))


def wants_pictures(net: Own, x: Tensor) -> Tensor:
    torch._assert(x.dim() == 3, "give pictures")
    return F.relu(net.second(F.relu(net.first(x.flatten(1)))))


OTHERS: dict[str, Callable[[Own, Tensor], Tensor]] = {
    "no flattening": lambda net, x: F.relu(net.second(F.relu(net.first(x)))),
    "flattened too far": lambda net, x: F.relu(net.first(x.flatten())),
    "flattened by another size": lambda net, x: F.relu(net.second(F.relu(net.first(x.view(x.size(1), -1))))),
    "flattened afterwards": lambda net, x: F.relu(net.second(F.relu(net.first(x)).flatten(1))),
    "turned": lambda net, x: F.relu(net.second(F.relu(net.first(x.mT.flatten(1))))),
    "a layer twice": lambda net, x: net.second(F.relu(net.second(net.first(x.flatten(1))))),
    "a residual": lambda net, x: (h := net.first(x.flatten(1))) + net.second(h),
    "a sum of two": lambda net, x: net.first(x.flatten(1)) + net.deep(x.flatten(1)),
    "a number": lambda net, x: 2 * net.second(F.relu(net.first(x.flatten(1)))),
    "another slope": lambda net, x: F.leaky_relu(net.first(x.flatten(1)), 0.3),
    "in place": lambda net, x: net.second(F.relu(net.first(x.flatten(1)), inplace=True)),
    "a bare weight": lambda net, x: F.relu(F.linear(x.flatten(1), net.first.weight)),
    "two answers": lambda net, x: (h := net.first(x.flatten(1)), F.relu(h))[0],
    "no layer": lambda net, x: F.relu(x.flatten(1)),
    "a path by numbers": peeks,
    "no gradient": without_gradient,
    "another precision": coarse,
    "another input": changes_its_input,
    "a condition": wants_pictures,
}


@pytest.mark.parametrize("code", CHAINS.values(), ids=CHAINS)
def test_code_that_is_a_chain_is_read_as_one(code: Callable[[Own, Tensor], Tensor]) -> None:
    net = Own(code)
    layers = flat_chain(net)
    assert type(layers[0][1]) is nn.Flatten
    assert sum(type(layer) is nn.Linear for _, layer in layers) == 2
    assert all(net.get_submodule(name) is layer for name, layer in layers if list(layer.parameters()))
    h = x = torch.randn(5, 2, 2)
    for _, layer in layers:
        h = layer(h)
    assert torch.equal(h, net(x))


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS)
def test_everything_else_takes_the_general_way(code: Callable[[Own, Tensor], Tensor]) -> None:
    assert flat_chain(Own(code)) == []


def test_hooks_subclasses_and_other_parametrisations_take_the_general_way() -> None:
    hooked, normed, other = (Own(CHAINS["functions"]) for _ in range(3))
    hooked.second.register_forward_hook(lambda layer, x, y: 2 * y)
    weight_norm(normed.second)

    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    other.second = Doubled(6, 6)
    assert [flat_chain(net) for net in (hooked, normed, other)] == [[], [], []]


def test_moments_go_through_a_chain_in_code_as_through_a_sequence() -> None:
    own, plain = Own(CHAINS["functions"]), mlp(4, [6, 6])
    x, g = torch.randn(5, 2, 2), torch.Generator().manual_seed(0)
    found = []
    for net, names in ((own, ("first", "second")), (plain, ("1", "3"))):
        g.manual_seed(0)
        mean = {
            f"{name}.{part}": torch.randn(shape, generator=g)
            for name, width in zip(names, (4, 6), strict=True)
            for part, shape in (("weight", (6, width)), ("bias", (6,)))
        }
        found.append(through(Network(net, 6, Categorical()).layers, mean, {k: v**2 for k, v in mean.items()}, x))
    assert all(torch.equal(ours, others) for ours, others in zip(*found, strict=True))


@pytest.mark.parametrize(("estimator", "draws"), [("local", 1), ("local", 3), ("weights", 2)])
def test_a_chain_in_code_ends_at_the_bits_of_the_same_chain_as_a_sequence(estimator: str, draws: int) -> None:
    class Trunk(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # The names that a sequence gives them: starts follow from the seed and the name.
            self.add_module("1", nn.Linear(6, 8))
            self.add_module("3", nn.Linear(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            one, two = self.children()
            return F.relu(two(F.relu(one(x.flatten(1)))))

    ends = []
    for trunk in (Trunk(), mlp(6, [8, 8])):
        model, tasks = Network(trunk, 8, Categorical()), blob_tasks(2, runs=2)
        assert isinstance(model.structure(("h0",)), Fork)
        vi = VariationalKL(Ascent(3, 16, 0.01), draws, estimator)  # type: ignore[arg-type]
        method = Method(vi, Nothing(), vi, "joint")
        ends.append(list(learn(initial(model, method, 2), tasks, model, method, Rng((3, 8))))[-1].propagated)
    assert torch.equal(ends[0].mean, ends[1].mean)
    assert torch.equal(ends[0].log_var, ends[1].log_var)
