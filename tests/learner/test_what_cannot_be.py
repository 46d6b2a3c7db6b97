"""Inputs and settings that no learner can take, each refused with one clear sentence before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from own_data import QUICK, classes_of, classifier, numbers, regressor, small_net, targets_of
from vcl.errors import VclError
from vcl.learner import ContinualClassifier

X = numbers(40)
Y = classes_of(X)

BAD: list[tuple[Any, str]] = [
    (X[:0], "the data is empty; give at least one example"),
    (X[:, :0], "an example has no values; give at least one column"),
    (X[:, 0], r"x has shape \(40,\); give examples as rows"),
    (None, "x is missing; give the inputs"),
    (3, r"x has shape \(\); give examples as rows"),
    ("data.csv", "x is a str; give numbers as an array or tensor"),
    ((each for each in X), "x is a generator; give numbers"),
    ([[1, 2], [3]], "x has rows of different lengths"),
    (
        np.where(np.arange(40)[:, None] % 4 == 3, np.nan, X),
        "x has NaN or infinite values in the rows 3, 7, 11, 15, 19, 23, 27, 31 and 2 more; fill them or drop",
    ),
    (np.where(np.arange(40)[:, None] == 5, np.inf, X), "x has NaN or infinite values in the rows 5; fill"),
    (X + 1j, "x has dtype torch.complex128; give real numbers"),
    (
        np.array([["a", "b"]] * 40),
        "x has dtype <U1; give numbers as an array or tensor .* or a table with named columns",
    ),
    (
        np.array([[1, "b"]] * 40, dtype=object),
        "x is an array of objects, and could not convert string to float: 'b'; give numbers, or a table",
    ),
    (np.array([[1, None]] * 40, dtype=object), "x has NaN or infinite values in the rows 0, 1"),
    (
        np.ma.masked_array(X, np.broadcast_to(np.arange(40)[:, None] % 10 == 3, X.shape)),
        r"x has masked values in 4 rows, the first at row 3; fill them, as filled\(0\) does, or drop",
    ),
    (torch.from_numpy(X).to_sparse(), r"x is a tensor of the layout sparse_coo; give what to_dense\(\) makes"),
]


class TestInputsThatCannotBe:
    @pytest.mark.parametrize(("x", "words"), BAD, ids=range(len(BAD)))
    def test_in_the_first_update(self, x: Any, words: str) -> None:
        learner = classifier()
        with pytest.raises(VclError, match=words):
            learner.update(x, Y)
        assert learner.tasks == ()

    @pytest.mark.parametrize(("x", "words"), BAD[1:], ids=range(1, len(BAD)))
    def test_in_a_prediction(self, x: Any, words: str) -> None:
        if x is None or hasattr(x, "__next__"):
            words = "x is a "
        with pytest.raises(VclError, match=words):
            classifier().update(X, Y).predict(x)

    def test_against_the_first_update(self) -> None:
        learner = classifier().update(X, Y)
        known = learner._known
        for ask in (learner.predict, lambda x: learner.update(x, Y)):
            with pytest.raises(VclError, match=r"examples have shape \(3,\), and those of the first update had \(4,\)"):
                ask(X[:, :3])
            with pytest.raises(
                VclError, match=r"x is a table with named columns, but the learner was begun with arrays"
            ):
                ask({"a": X[:, 0]})
        with pytest.raises(VclError, match=r"x has no examples"):
            learner.predict(X[:0])
        assert learner._known is known

    def test_tokens_are_whole_numbers(self) -> None:
        class Words(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = nn.Embedding(5, 3)

            def forward(self, x: Tensor) -> Tensor:
                return self.table(x).flatten(1)

        x = np.random.default_rng(0).integers(0, 5, (40, 4))
        learner = ContinualClassifier(Words(), **QUICK).update(x, Y)
        assert learner._knows().inputs.kind == "tokens"
        with pytest.raises(
            VclError, match=r"dtype float64, which is read as numbers, and the first update had int64, tokens"
        ):
            learner.update(x.astype(float), Y)

    def test_a_fit_that_diverges_leaves_the_learner_as_it_was(self) -> None:
        learner = classifier(method="laplace", lr=1e30, standardize=False)
        with pytest.raises(VclError, match=r"finite"):
            learner.update(X * 1e30, Y)
        assert learner.tasks == ()

    def test_outliers_are_warned_about_with_numbers_at_the_users_line(self) -> None:
        learner = classifier().update(X, Y)
        far = X + np.array([0, 0, 50.0, 0])
        with pytest.warns(
            UserWarning,
            match=r"100% of column 2 lie more than 6 .* .*mean \(now 49\.9; then [-\d.]+ ± [\d.]+\)",
        ) as seen:
            learner.update(far, Y)
        assert seen[0].filename == __file__
        images = classifier(small_net(width=16)).update(numbers(20, 0, 16).reshape(20, 4, 4) * 300, Y[:20])
        with pytest.warns(UserWarning, match=r"100\.0% of the values lie more than 6 standard deviations"):
            images.update(numbers(20, 1, 16).reshape(20, 4, 4) + 1e5, Y[:20])


class TestSettingsThatCannotBe:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"method": "vcl"}, "unknown method 'vcl'; accepted: generative, laplace, mean-field, structured"),
            ({"method": None}, "unknown method 'None'"),
            ({"method": ["laplace"]}, "unknown method"),
            ({"head": "old"}, "unknown head 'old'; accepted: new, own"),
            ({"heads": None}, "unknown heads 'None'"),
            ({"heads": "per-task", "head": "own"}, "head='own' takes the network's last layer as the one shared head"),
            ({"heads": "per-task", "method": "generative"}, "tells all classes apart by itself; leave out heads"),
            ({"posterior": 5}, "posterior is 5; give 'all', 'head', 'trainable', or names"),
            ({"posterior": []}, "posterior is "),
            ({"posterior": [3]}, "posterior is "),
            ({"posterior": None}, "posterior is None"),
            ({"posterior": ""}, "posterior is ''"),
            ({"adapters": 0}, "adapters is 0; give a whole number from 1"),
            ({"adapters": "8"}, "adapters is '8'"),
            ({"adapters": True}, "adapters is True"),
            ({"adapters": 2.5}, "adapters is 2.5"),
            ({"adapters": 2, "posterior": "head"}, "adapters have the posterior, and everything else is frozen"),
            ({"memory": -1}, "memory is -1; give a whole number from 0"),
            ({"memory": 2.0}, "memory is 2.0"),
            ({"memory": 5, "method": "generative"}, "needs no memory; leave out memory"),
            ({"posterior": "head", "method": "generative"}, "leave out posterior"),
            ({"prior_var": 0}, "prior_var is 0; give a finite number above 0"),
            ({"prior_var": "1"}, "prior_var is '1'"),
            ({"prior_var": float("inf")}, "prior_var is inf"),
            ({"prior_var": float("nan")}, "prior_var is nan"),
            ({"prior_mean": "mine"}, "unknown prior_mean 'mine': did you mean 'net'. Accepted: net, zero"),
            ({"epochs": 0}, "epochs is 0; give a whole number from 1, or None"),
            ({"epochs": "3"}, "epochs is '3'"),
            ({"batch": -2}, "batch is -2"),
            ({"draws": 1.5}, "draws is 1.5"),
            ({"lr": 0}, "lr is 0; give a finite number above 0"),
            ({"lr": "fast"}, "lr is 'fast'"),
            ({"lr": 0.1, "method": "mean-field"}, "natural-gradient steps, .*; leave out lr"),
            ({"standardize": "no"}, "standardize is 'no'; give True, False or 'auto'"),
            (
                {"forgettable": True},
                "forgettable=True needs a family whose quotient is known, .*'structured'.* method='mean-field'",
            ),
            (
                {"forgettable": True, "method": "mean-field", "memory": 5},
                "forgettable=True and memory=5 .* never saw the memory; leave out one of them",
            ),
            ({"forgettable": 1, "method": "mean-field"}, "forgettable is 1; give True or False"),
            ({"seed": "one"}, "seed is 'one'; give a whole number"),
            ({"seed": None}, "seed is None"),
            ({"verbose": "loud"}, "verbose is 'loud'"),
            ({"verbose": -1}, "verbose is -1"),
            ({"device": "gpu"}, "device is 'gpu', which is not here .*; give 'auto' or 'cpu'"),
            ({"device": 3.5}, "device is 3.5"),
            ({"feature_bytes": -1}, "feature_bytes is -1"),
            ({"feature_bytes": 1e9}, "feature_bytes is 1000000000.0"),
            ({"classes": "ab"}, "classes are 'ab'; give a list of labels"),
            ({"classes": 3}, "classes are 3; give a list"),
            ({"classes": ["a"]}, "give at least two"),
            ({"classes": []}, "give at least two"),
            ({"classes": ["a", "b", "a"]}, "with one of them twice; give each once"),
            ({"classes": ["a", 1]}, "of several kinds"),
            ({"classes": [1.5, 2.5]}, "names no class"),
        ],
    )
    def test_of_a_classifier(self, settings: dict[str, Any], words: str) -> None:
        with pytest.raises(VclError, match=words):
            classifier(**settings)

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            (
                {"method": "generative"},
                "method 'generative' learns classes only; give one of structured, mean-field, laplace",
            ),
            ({"method": "x"}, "unknown method 'x'"),
            ({"likelihood": "student"}, "unknown likelihood 'student'; accepted: normal, poisson"),
            ({"noise": "much"}, "noise is 'much'; give 'learned', 'heteroscedastic', or deviations"),
            ({"noise": 0}, "noise is 0"),
            ({"noise": [1.0, -1.0]}, "finite and above 0"),
            ({"noise": []}, "noise is "),
            ({"noise": None}, "noise is None"),
            ({"noise": True}, "noise is True"),
            ({"noise": ["a"]}, "noise is "),
            ({"noise": 1.0, "likelihood": "poisson"}, "a Poisson likelihood has no noise of its own; leave it out"),
        ],
    )
    def test_of_a_regressor(self, settings: dict[str, Any], words: str) -> None:
        with pytest.raises(VclError, match=words):
            regressor(**settings)

    def test_patterns_that_match_nothing_name_what_there_is(self) -> None:
        with pytest.raises(
            VclError, match=r"posterior names 'layer4', which matches no parameter .* 1\.weight, 1\.bias"
        ):
            classifier(posterior="layer4").update(X, Y)

    def test_numpy_values_are_stored_as_pythons_own(self, tmp_path: Any) -> None:
        learner = classifier(classes=np.array([1, 0]), lr=np.float64(1e-3)).update(X, Y)
        learner.save(tmp_path)
        assert ContinualClassifier.load(tmp_path, small_net(), device="cpu").classes() == (1, 0)
        noisy = regressor(noise=np.array([0.5])).update(X, targets_of(X))
        noisy.save(tmp_path / "noisy")

    def test_auto_is_a_device_that_is_here(self) -> None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
        assert classifier(device="auto").device.type == wanted
        assert classifier(device="auto").update(X, Y)._knows().state.propagated.mean.device.type == wanted
