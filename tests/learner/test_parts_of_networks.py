"""Networks that are trained already, of which a part is frozen: where fits start, and what never changes."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from own_data import classes_of, classifier, fit, numbers, regressor, same, small_net, targets_of, tensors
from vcl.errors import VclError
from vcl.learner import ContinualClassifier, features
from vcl.learner.continual import ContinualLearner
from vcl.learner.features import features_within
from vcl.learner.networks import WIDEST
from vcl.models.prefix import Prefix

X = numbers(200)
Y = ((X**2).sum(1) > 3.4).astype(int)
"""Classes that need hidden units."""


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())


def trained(outputs: bool = False) -> nn.Module:
    """The network trained on other data of this kind, without or with its last layer."""
    body, head = net(), nn.Linear(16, 2)
    x = numbers(400, 7)
    y = torch.from_numpy(((x**2).sum(1) > 3.4).astype(int))
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-2)
    inputs = torch.from_numpy((x - X.mean(0)) / X.std(0)).float()
    for _ in range(200):
        optimiser.zero_grad()
        F.cross_entropy(head(body(inputs)), y).backward()
        optimiser.step()
    return nn.Sequential(*body, head) if outputs else body


def log_loss(learner: ContinualClassifier) -> float:
    x = numbers(300, 8)
    p = learner.predict_proba(x)[np.arange(300), ((x**2).sum(1) > 3.4).astype(int)]
    return float(-np.log(p).mean())


class TestATrainedStart:
    @pytest.mark.parametrize("method", ["structured", "mean-field", "laplace"])
    @pytest.mark.parametrize("settings", [{}, {"head": "own"}, {"prior_mean": "net"}], ids=["trunk", "whole", "prior"])
    def test_it_is_better_than_a_random_one_after_one_epoch(self, method: str, settings: Any) -> None:
        own = "head" in settings
        random = nn.Sequential(*net(3), nn.Linear(16, 2)) if own else net(3)
        found = [
            log_loss(ContinualClassifier(start, **fit(method, epochs=1), **settings).update(X, Y))
            for start in (trained(own), random)
        ]
        assert found[0] < found[1] - 0.05

    def test_it_is_the_mean_of_the_prior_if_asked(self) -> None:
        start = trained()
        for mean, wanted in (("net", start[0].weight), ("zero", torch.zeros(16, 4))):  # type: ignore[index]
            learner = classifier(start, prior_mean=mean).update(X, Y)
            prior = learner._model().prior({"all": 2})
            assert torch.equal(prior.layout.split(prior.mean)["trunk.0.weight"][0], wanted)


FROZEN: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"posterior": "head"}, ("0.weight", "0.bias", "2.weight", "2.bias")),
    ({"posterior": ["2"]}, ("0.weight", "0.bias")),
    ({"posterior": "*.bias"}, ("0.weight", "2.weight")),
    ({"posterior": ["0"]}, ("2.weight", "2.bias")),
    ({"posterior": ["0.weight", "*.bias"]}, ("2.weight",)),
    ({"adapters": 2}, ("0.weight", "0.bias", "2.weight", "2.bias")),
]


@pytest.mark.parametrize(("settings", "frozen"), FROZEN, ids=[str(each) for each, _ in FROZEN])
class TestFrozenParameters:
    def learner(self, settings: dict[str, Any], **more: Any) -> ContinualLearner:
        make = classifier(trained(), **settings, **more)
        return make.update(X[:100], Y[:100]).update(X[100:], Y[100:])

    def test_they_are_bitwise_unchanged_and_have_no_place_in_the_belief(
        self, settings: dict[str, Any], frozen: tuple[str, ...]
    ) -> None:
        before = dict(trained().named_parameters())
        learner = self.learner(settings)
        values = list(learner.export().state_dict().values())  # type: ignore[attr-defined]
        for name in frozen:
            assert any(torch.equal(value, before[name]) for value in values if value.shape == before[name].shape), name
        q = learner._knows().state.propagated
        if "adapters" not in settings:
            free = sum(value.numel() for name, value in before.items() if name not in frozen)
            assert q.layout.size == free + 16 * 2 + 2
        else:
            assert q.layout.size == 2 * (4 + 16) + 2 * (16 + 16) + 16 * 2 + 2
        posterior, whole = learner.summary().split(" parameters have a posterior")[0].rsplit("(", 1)[1].split(" of ")
        assert int(posterior.replace(",", "")) == q.layout.size - (16 * 2 + 2)
        assert int(whole.replace(",", "")) >= sum(value.numel() for value in before.values())

    def test_what_has_a_posterior_moves(self, settings: dict[str, Any], frozen: tuple[str, ...]) -> None:
        learner = self.learner(settings, method="mean-field")
        prior = learner._model().prior({"all": 2})
        q = learner._knows().state.propagated
        moved = [not torch.equal(now, q.layout.split(prior.mean)[name]) for name, now in q.layout.split(q.mean).items()]
        assert all(moved)
        assert len(frozen) + len(moved) >= 6

    def test_memory_and_a_later_head_use_the_same_features(
        self, settings: dict[str, Any], frozen: tuple[str, ...]
    ) -> None:
        learner = classifier(trained(), memory=5, **settings)
        learner.update(X[:100], Y[:100], task="a").update(X[100:], Y[100:], task="b")
        coreset = learner._knows().state.coreset
        assert coreset is not None
        assert coreset.size == 10
        assert np.isfinite(learner.predict_proba(X[:5], "a")).all()
        assert frozen


class TestFeaturesWithinABudget:
    def frozen(self, **settings: Any) -> ContinualClassifier:
        return classifier(trained(), posterior="head", memory=5, **settings)

    def test_a_file_gives_the_same_bits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(features, "BLOCK", 1000)  # several blocks
        known = tensors(self.frozen().update(X, Y))
        made: list[tuple[int, ...]] = []
        real = features._mapped
        monkeypatch.setattr(features, "_mapped", lambda shape, *rest: made.append(shape) or real(shape, *rest))
        size = 200 * 16 * 4
        assert same(tensors(self.frozen(feature_bytes=size).update(X, Y)), known)
        assert made == []
        learner = self.frozen(feature_bytes=size - 1).update(X, Y)
        assert same(tensors(learner), known)
        assert made == [(200, 16)]
        assert np.array_equal(learner.predict_proba(X[:50]), self.frozen().update(X, Y).predict_proba(X[:50]))

    def test_the_file_leaves_nothing_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        prefix, x = Prefix(net()), torch.randn(50, 4)
        found = features_within(prefix, x, torch.zeros(()), 0)
        assert list(tmp_path.iterdir()) == []
        assert torch.equal(found, prefix.features(x, torch.zeros(())))
        found[0] = 7.0  # it can be written to, as memory can
        assert found[0, 0] == 7.0

    def test_a_disk_without_room_is_said_before_the_fit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        learner = self.frozen(feature_bytes=100)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(
                VclError,
                match=r"take 12,800 bytes, and .* has no room for them \(No space left on device\); set TMPDIR",
            ):
                learner.update(X, Y)
        assert learner.tasks == ()
        assert list(tmp_path.iterdir()) == []
        assert learner.update(X, Y).tasks == ("update 1",)

    def test_a_network_that_gives_no_features_beyond_its_inputs_needs_no_file(self) -> None:
        assert classifier(small_net(), feature_bytes=0).update(X, Y).tasks == ("update 1",)

    def test_a_regressor_has_the_budget_too(self) -> None:
        one, two = (
            regressor(trained(), posterior=["2"], feature_bytes=size).update(X, targets_of(X)) for size in (0, 2**30)
        )
        assert same(tensors(one), tensors(two))


class TestAdapters:
    def test_they_learn_what_a_frozen_network_cannot(self) -> None:
        x = numbers(200, 5)
        learner = classifier(net(), adapters=4, **fit("laplace")).update(x, classes_of(x))
        assert (learner.predict(x) == classes_of(x)).mean() > 0.9

    @pytest.mark.parametrize("method", ["structured", "laplace"])
    def test_on_a_wide_layer_they_have_no_factor_of_its_size(self, method: str) -> None:
        wide = nn.Sequential(nn.Linear(4, WIDEST + 1), nn.ReLU(), nn.Linear(WIDEST + 1, 8), nn.ReLU())
        learner = classifier(wide, adapters=2, method=method, epochs=1).update(X[:32], Y[:32])
        q = learner._knows().state.propagated
        assert {block.weight for block in q.blocks} == {"trunk.0.down.weight", "trunk.2.up.weight", "heads.all.weight"}
        assert "diagonal instead of Kronecker factors: trunk.0.up.weight" in learner.history[-1].line()

    def test_there_must_be_a_place_for_them(self) -> None:
        conv = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2), nn.Flatten())
        with pytest.raises(VclError, match=r"the module has no nn.Linear, so it has no place for adapters"):
            classifier(conv, adapters=2).update(X, Y)
