"""Low-rank adapters: the network is unchanged at the start, and only they and the head have a posterior."""

from __future__ import annotations

import warnings
from copy import deepcopy
from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from made import blob_tasks, blobs
from vcl.data import Data
from vcl.engines.usage import find_usage
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.models import LowRank, Network, adapters_in, select_posterior, split_head, with_adapters
from vcl.models.likelihoods import Categorical
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import KroneckerLaplace, Target, VariationalKL
from vcl.recursion import Method, initial, learn

FEW = Ascent(2, 16, 0.01)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))


def attending() -> nn.Sequential:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1), nn.Flatten(), nn.Linear(24, 2)).eval()


def partial(made: nn.Module, x: Tensor) -> Network:
    whole = split_head(made, x)
    frozen = select_posterior(whole.trunk, "trainable", whole.name).frozen
    return Network(whole.trunk, whole.features, Categorical(), frozen=frozen, start="module")


@pytest.mark.parametrize(("make", "shape"), [(net, (6,)), (attending, (3, 8))], ids=["chain", "attention"])
def test_the_network_is_unchanged_at_the_start_and_only_adapters_and_head_are_free(make: Any, shape: Any) -> None:
    plain, x = make(), torch.randn(9, *shape)
    before = deepcopy(plain.state_dict())
    made = with_adapters(plain, 2)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", UserWarning)  # of nested tensors, by torch
        torch.testing.assert_close(made(x), plain(x))
        wanted = made(x)
        for name in adapters_in(made).layers:
            made.get_submodule(name).up.weight.normal_()  # type: ignore[operator, union-attr]
        assert not torch.allclose(made(x), wanted), "in evaluation mode the adapters count"
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())
    last = list(plain.named_modules())[-1][0]
    free = {name for name, value in made.named_parameters() if value.requires_grad}
    adapters = {f"{name}.{part}.weight" for name in adapters_in(made).layers for part in ("down", "up")}
    assert free == adapters | {f"{last}.weight", f"{last}.bias"}
    assert all(value.requires_grad for value in plain.parameters())


def test_attention_is_named_as_left_out() -> None:
    found = adapters_in(with_adapters(attending(), 2))
    assert found.layers == ("0.layers.0.linear1", "0.layers.0.linear2")
    assert found.left_out == ("0.layers.0.self_attn",)
    assert found.size == 2 * 2 * (8 + 16)


@pytest.mark.parametrize(("where", "layers"), [
    (None, ("1", "3")), ("*", ("1", "3", "5")), ("3", ("3",)), (["1", "5"], ("1", "5")),
])  # fmt: skip
def test_patterns_choose_the_layers(where: Any, layers: tuple[str, ...]) -> None:
    made = with_adapters(net(), 1, where)
    assert adapters_in(made).layers == layers


def test_a_layer_alone_becomes_an_adapter() -> None:
    assert isinstance(with_adapters(nn.Linear(3, 4), 2, "*"), LowRank)


def test_the_seed_draws_and_nothing_else_does() -> None:
    plain = net()
    state = torch.get_rng_state()
    one, same, other = (with_adapters(plain, 2, seed=seed).state_dict()["1.down.weight"] for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_under_the_default_prior_a_correction_has_the_variance_of_a_layer() -> None:
    """Var of s U V x is the mean square of x in every output, whatever rank and width."""
    g = torch.Generator().manual_seed(0)
    for inputs, rank in ((8, 2), (50, 7)):
        layer = LowRank(nn.Linear(inputs, 9), rank, g)
        V, U = torch.randn(20_000, rank, inputs, generator=g), torch.randn(20_000, 9, rank, generator=g)
        x = 3 * torch.randn(inputs, generator=g)
        change = layer.scale * (U @ (V @ x).unsqueeze(-1)).squeeze(-1)
        assert layer.scale == 1 / sqrt(rank * inputs)
        torch.testing.assert_close(change.var(0) / x.square().mean(), torch.ones(9), atol=0.08, rtol=0.0)
        assert abs(layer.down.weight.std().item() - 1) < 0.3


def test_local_rules_and_kronecker_factors_take_adapters_as_layers() -> None:
    model, data = partial(with_adapters(net(), 2), torch.zeros(1, 6)), blobs(12, 0, "t", "h0")
    prior = model.prior({"h0": 2})
    names = [name for name in prior.layout.names if name.startswith("trunk.")]
    assert names == [f"trunk.{n}.{part}.weight" for n in (1, 3) for part in ("down", "up")]
    one = Data(data.x[0], data.y[0], data.source[0], data.sources)
    usage = find_usage(lambda p: model.log_lik(p, one), prior.layout.split(torch.randn(prior.layout.size)), 12, "local")
    assert set(usage.local) == set(prior.layout.names)
    q = KroneckerLaplace(FEW)(Target(KroneckerLaplace().initial(prior), model, data, prior), Rng(0))
    assert {block.weight for block in q.blocks} == {*names, "heads.h0.weight"}


def test_a_stream_moves_adapters_alone() -> None:
    plain = net()
    model = partial(with_adapters(plain, 2), torch.zeros(1, 6))
    frozen = {name: value.clone() for name, value in model.fixed_values(torch.zeros(())).items()}
    assert torch.equal(frozen["1.base.weight"], plain.state_dict()["1.weight"])
    tasks, method = blob_tasks(2, runs=2), Method(VariationalKL(Ascent(30, 16, 0.01), 2, "local"))
    *_, state = learn(initial(model, method, 2), tasks, model, method, Rng((0, 1)))
    assert all(torch.equal(value, frozen[name]) for name, value in model.fixed_values(torch.zeros(())).items())
    found = predict(state, model, tasks[1].train.x, "h1", Rng((0, 1)), draws=10).argmax(-1)
    assert (found == tasks[1].train.y).float().mean() > 0.8


@pytest.mark.parametrize(("make", "words"), [
    (lambda: with_adapters(nn.ReLU(), 2), "has no nn.Linear"),
    (lambda: with_adapters(nn.Linear(3, 4), 2), "no nn.Linear but the last one, ''"),
    (lambda: with_adapters(net(), 0), "the rank is 0; give at least 1 and at most 5"),
    (lambda: with_adapters(net(), 5), "the rank is 5; give at least 1 and at most 4"),
    (lambda: with_adapters(net(), 2, "layer9"), "matches no nn.Linear; give patterns of these: 1, 3, 5"),
    (lambda: with_adapters(attending(), 2, "*self_attn"), "attention does not call its projections"),
    (lambda: with_adapters(nn.Sequential(one := nn.Linear(3, 3), one, nn.Linear(3, 2)), 2), "'0' is also '1'"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(make: Any, words: str) -> None:
    with pytest.raises(VclError) as error:
        make()
    assert words in str(error.value)
