"""Updates within inference_mode, networks without values, texts that no file can keep, and heads that are guessed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from own_data import classes_of, classifier, numbers, regressor, same, small_net, targets_of, tensors
from vcl.errors import VclError
from vcl.learner import ContinualClassifier

X = numbers()
Y = classes_of(X)
LATER = torch.tensor(numbers(seed=1), dtype=torch.float32)


class TestInferenceMode:
    @pytest.mark.parametrize("settings", [{}, {"method": "mean-field"}, {"posterior": "head"}, {"adapters": 1}])
    def test_a_learner_learns_the_same_bits_within_it(self, settings: dict[str, Any]) -> None:
        with torch.inference_mode():
            inside = classifier(small_net(), **settings).update(torch.tensor(X), Y)
            inside.predict(X)
            later = LATER.clone()
        inside.update(later, Y)
        outside = classifier(small_net(), **settings).update(X, Y).update(LATER, Y)
        assert same(tensors(inside), tensors(outside))

    def test_a_prediction_or_a_load_within_it_spoils_no_later_update(self, tmp_path: Any) -> None:
        learner = regressor().update(X, targets_of(X))
        learner.save(tmp_path)
        with torch.inference_mode():
            learner.predict(X)
            loaded = type(learner).load(tmp_path, small_net(), device="cpu", verbose=0)
        for each in (learner, loaded):
            each.update(LATER, targets_of(LATER.numpy()))
        assert same(tensors(learner), tensors(loaded))


def test_a_network_without_values_is_refused() -> None:
    with pytest.raises(VclError, match=r"^'0.weight' of the network is on the device 'meta' and has no values; make"):
        ContinualClassifier(nn.Sequential(nn.Linear(4, 6, device="meta")))


def test_a_lazy_network_is_refused_until_it_was_called() -> None:
    net = nn.Sequential(nn.LazyLinear(6), nn.ReLU())
    with pytest.raises(VclError, match=r"^'0.weight' of the network is lazy and has no size yet; call the network"):
        ContinualClassifier(net)
    net(torch.zeros(1, 4))
    ContinualClassifier(net)


HALF = "\ud800"


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda: classifier().update(X, np.where(Y, "a", HALF)), "a label"),
        (lambda: classifier().update(X, [HALF if each else "a" for each in Y]), "a label"),
        (lambda: classifier(classes=["a", HALF]), "a label"),
        (lambda: classifier().update(X, Y, task=HALF), "task"),
        (lambda: classifier().update({HALF: X[:, 0]}, Y), "the name of a column"),
        (lambda: classifier().update({"a": ["b", HALF] * 20}, Y), "a category of the column 'a'"),
    ],
)
def test_texts_that_no_file_can_keep_are_refused(act: Callable[[], Any], what: str) -> None:
    with pytest.raises(VclError, match=rf"^{what} is '\\ud800', which has half of a pair of surrogates"):
        act()


def test_that_heads_are_guessed_is_said_once_and_never_where_the_task_is_given() -> None:
    learner = classifier().update(X, Y, task="a").update(X + 1, Y, task="b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.predict(X, task="a")
        learner.uncertainty(X, task="b")
        learner.infer_task(X)
    with pytest.warns(UserWarning, match=r"no task was given: of the heads of a, b, the one that is surest") as seen:
        learner.predict(X)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.predict(X)
        learner.uncertainty(X)
        classifier().update(X, Y).predict(X)
