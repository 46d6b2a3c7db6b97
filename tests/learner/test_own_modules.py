"""Modules of users in learners: layers of many kinds, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from own_data import QUICK, fit, same, tensors
from vcl.errors import VclError
from vcl.learner import ContinualClassifier, backbone


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1)).tanh()
        return h + self.second(h).tanh()  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).mean(1)  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]  # type: ignore[no-any-return]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(16, 8)
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(self.into(x.flatten(1)).tanh()).tanh()).tanh()  # type: ignore[no-any-return]


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(12, 5), nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.table(x).mean(1)).tanh()  # type: ignore[no-any-return]


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.ReLU())


def images(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """4 x 4 images, brighter on the left or on the right."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.random((n, 4, 4)) * 0.5
    x[:, :, :2] += 0.5 * y[:, None, None]
    x[:, :, 2:] += 0.5 * (1 - y)[:, None, None]
    return x, y


def tokens(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 5 tokens, from 0 to 5 or from 6 to 11."""
    y = np.arange(n) % 2
    return np.random.default_rng(seed).integers(0, 6, (n, 5)) + 6 * y[:, None], y


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[..., tuple[np.ndarray, np.ndarray]]]] = {
    "convolutional": (convolutional, images),
    "residual": (Residual, images),
    "attention": (Attention, images),
    "recurrent": (Recurrent, images),
    "tied": (Tied, images),
    "tokens": (Words, tokens),
}


@pytest.mark.parametrize("name", MODULES)
class TestOwnModules:
    def learner(self, name: str, **settings: Any) -> ContinualClassifier:
        torch.manual_seed(1)
        return ContinualClassifier(MODULES[name][0](), **settings)

    def test_it_learns(self, name: str) -> None:
        data = MODULES[name][1]
        learner = self.learner(name, **fit("structured", epochs=25)).update(*data(60))
        x, y = data(40, 1)
        assert (learner.predict(x) == y).mean() > 0.9
        assert learner.uncertainty(x).epistemic.mean() > 0

    def test_it_goes_on_after_a_load_and_in_every_method(self, name: str, tmp_path: Path) -> None:
        data = MODULES[name][1]
        for method in ("structured", "laplace"):
            learner = self.learner(name, method=method, memory=4, **{**QUICK, "epochs": 1}).update(*data(24))
            learner.save(tmp_path / method)
            other = ContinualClassifier.load(tmp_path / method, MODULES[name][0](), device="cpu", verbose=0)
            for each in (learner, other):
                each.update(*data(24, 2))
            assert same(tensors(other), tensors(learner))

    def test_export_and_draws_give_its_own_module(self, name: str) -> None:
        x, y = MODULES[name][1](24)
        learner = self.learner(name, method="mean-field", **QUICK).update(x, y)
        module, rows = learner.export(), learner._rows(x)
        state = learner._knows().state.predictive["all"]
        for values in ({}, learner.sample_posterior(1)[0]):
            if values:
                module.load_state_dict(values)
            trunk = {
                f"trunk.{key[6:]}": value for key, value in module.state_dict().items() if key.startswith("trunk.")
            }
            head = {f"heads.all.{key[5:]}": value for key, value in module.state_dict().items() if key[:5] == "head."}
            params = {key: value for key, value in {**trunk, **head}.items() if key in state.layout.names}
            torch.testing.assert_close(module(torch.from_numpy(x)), learner._model().outputs(params, rows[0], "all"))


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (
            nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8)),
            "'2' .BatchNorm1d. keeps running statistics .* use LayerNorm or GroupNorm instead",
        ),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5)),
            "'2' .Dropout. adds its own noise .* remove it, or call .eval",
        ),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), "adds its own noise .dropout."),
    ],
)
def test_layers_without_a_sound_treatment_are_refused_with_a_hint(net: nn.Module, words: str) -> None:
    learner = ContinualClassifier(net, **QUICK)
    with pytest.raises(VclError, match=words):
        learner.update(*images(20))
    assert learner.tasks == ()


@pytest.mark.parametrize("posterior", ["head", ["4"]])
def test_batch_normalisation_is_taken_where_it_is_frozen_and_in_evaluation_mode(posterior: Any) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8)).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    learner = ContinualClassifier(net, posterior=posterior, **fit("structured")).update(*images(60))
    x, y = images(40, 1)
    assert (learner.predict(x) == y).mean() > 0.9
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_dropout_is_taken_in_evaluation_mode_and_stays_off_where_the_user_turns_it_on_later() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5)).eval()
    learner = ContinualClassifier(net, **QUICK).update(*images(20))
    x = images(10, 1)[0]
    before, exported = learner.predict_proba(x), learner.export()(torch.from_numpy(x))
    net.train()
    with torch.no_grad():
        for value in net.parameters():
            value.zero_()  # nor does it matter what else becomes of the network
    assert np.array_equal(learner.predict_proba(x), before)
    assert torch.equal(learner.export()(torch.from_numpy(x)), exported)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x.flatten(1)), x


@pytest.mark.parametrize("head", ["new", "own"])
def test_what_a_network_must_give_is_said(head: Any) -> None:
    with pytest.raises(VclError, match=r"returns a (value of type )?tuple; give one that returns"):
        ContinualClassifier(Pair(), head=head, **QUICK).update(*images(20))
    with pytest.raises(VclError, match=r"the network does not take (inputs|an example) of shape"):
        ContinualClassifier(nn.Linear(5, 3), head=head, **QUICK).update(*images(20))


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.Linear, "net is the class Linear; give an instance, such as Linear"),
        ([nn.Linear(4, 2)], "net is a list; give an nn.Module, such as vcl.mlp"),
        ("net.pt", "net is a str; give an nn.Module"),
        (lambda x: x, "net is a function; give an nn.Module"),
    ],
)
def test_what_is_no_network_is_refused_at_once(net: Any, words: str) -> None:
    with pytest.raises(VclError, match=words):
        ContinualClassifier(net)


def test_a_learner_without_a_network_needs_generators() -> None:
    with pytest.raises(VclError, match=r"net is missing; give an nn.Module"):
        ContinualClassifier(**QUICK).update(*images(20))
    with pytest.raises(VclError, match=r"net is a Sequential; method='generative' takes a vcl.Vae, or none"):
        ContinualClassifier(convolutional(), method="generative", **QUICK).update(*images(20))


def test_draws_of_a_tied_weight_are_one_value_under_all_its_names() -> None:
    x = np.random.default_rng(0).normal(size=(30, 16))
    learner = ContinualClassifier(Tied(), **QUICK).update(x, np.arange(30) % 2)
    module, (drawn,) = learner.export(), learner.sample_posterior(1)
    mean = module.state_dict()["trunk.one.weight"].clone()
    assert torch.equal(drawn["trunk.two.weight"], drawn["trunk.one.weight"])
    assert not torch.equal(drawn["trunk.one.weight"], mean)
    module.load_state_dict(drawn)
    assert all(torch.equal(value, drawn[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("method", ["structured", "generative"])
def test_the_global_generator_of_torch_is_not_used(method: Any) -> None:
    x = np.random.default_rng(0).normal(size=(30, 16))
    net = None if method == "generative" else Residual()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    learner = ContinualClassifier(net, method=method, **QUICK).update(x, np.arange(30) % 2)
    learner.predict(x[:3])
    if net is not None:
        learner.export()
        learner.sample_posterior(2)
    assert torch.equal(torch.get_rng_state(), before)


class ByTheBatch(nn.Module):
    """Normalises by the mean of the batch, also in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.layer = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x)  # type: ignore[no-any-return]


def test_a_network_whose_examples_depend_on_each_other_is_refused() -> None:
    x = np.random.default_rng(0).normal(size=(30, 16))
    with pytest.raises(VclError, match=r"other features beside a second one than alone; take out"):
        ContinualClassifier(nn.Sequential(ByTheBatch(), nn.Linear(16, 4)), **QUICK).update(x, np.arange(30) % 2)


def test_the_buffers_of_the_network_of_the_user_stay() -> None:
    net = Counting()
    backbone.features(net, torch.zeros(1, 16))
    assert float(net.calls) == 0
