"""`vcl.sklearn`: scikit-learn's own checks, and what continual estimators add to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from vcl import ContinualClassifier, mlp
from vcl.errors import VclError
from vcl.sklearn import VCLClassifier, VCLRegressor

QUICK = {"hidden": (8,), "epochs": 20, "lr": 0.02}
"""A small network and few steps: the checks are of the estimators, not of the fits."""

FLOAT32 = (
    "networks compute in float32, and a matrix product of other rows around a row may round it differently by 1e-7, "
    "which is the check's tolerance"
)
EXPECTED = {"check_methods_sample_order_invariance": FLOAT32, "check_methods_subset_invariance": FLOAT32}
"""Every check that may fail, with the reason."""

ALLOWED_SKIPS = {"check_array_api_input", "check_classifier_data_not_an_array", "check_regressor_data_not_an_array"}
"""Checks that scikit-learn skips without SCIPY_ARRAY_API or pandas."""


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_iris(return_X_y=True)
    return np.ascontiguousarray(x), np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.mark.filterwarnings("ignore")  # Checks give data that estimators are right to warn about.
@pytest.mark.parametrize(
    "estimator",
    [VCLClassifier((8,), epochs=20, method="mean-field"), VCLRegressor((8,), epochs=20, method="mean-field")],
    ids=lambda each: type(each).__name__,
)
def test_estimators_pass_the_checks_of_scikit_learn(estimator: Any) -> None:
    found = check_estimator(estimator, expected_failed_checks=EXPECTED, on_skip=None)
    assert len(found) > 40
    bad = {each["check_name"] for each in found if each["status"] != "passed"}
    assert bad <= {*EXPECTED, *ALLOWED_SKIPS}


def test_a_classifier_is_as_good_as_the_data_allows(iris: tuple[np.ndarray, np.ndarray]) -> None:
    scores = cross_val_score(VCLClassifier((16,), method="laplace", epochs=60, lr=0.02), *iris, cv=3)
    assert scores.mean() > 0.93


@pytest.mark.filterwarnings("ignore:100% of column")  # A class alone says little about the scale of the others.
def test_columns_are_the_sorted_classes_in_whatever_order_they_came(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    learner = VCLClassifier((16,), method="mean-field", epochs=60)
    for name in ("virginica", "setosa", "versicolor"):
        learner.partial_fit(x[y == name], y[y == name])
    assert learner.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    p = learner.predict_proba(x)
    assert p.shape == (150, 3)
    assert np.allclose(p.sum(1), 1)
    assert (learner.predict(x) == learner.classes_[p.argmax(1)]).all()
    # The last class was learned last, so its own rows are recognised: columns that were not in order would fail here.
    assert (learner.predict(x[y == "versicolor"]) == "versicolor").mean() > 0.9


def test_classes_that_are_given_first_are_fixed(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    learner = VCLClassifier(**QUICK).partial_fit(x[50:100], y[50:100], classes=["setosa", "versicolor", "virginica"])
    assert learner.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert (learner.predict_proba(x) > 0).all()
    assert (learner.predict(x[50:100]) == "versicolor").all()
    before = learner.predict_proba(x)
    with pytest.raises(ValueError, match=r"\['pansy'\] are not among the classes"):
        learner.partial_fit(x[:2], np.array(["pansy", "setosa"]))
    assert (learner.predict_proba(x) == before).all()


def test_partial_fit_goes_on_where_fit_ended_and_fit_begins_anew(iris: tuple[np.ndarray, np.ndarray]) -> None:
    (x, y), (x2, y2) = (tuple(np.ascontiguousarray(each[at::2]) for each in iris) for at in (0, 1))
    once = VCLClassifier(**QUICK).fit(x, y)
    twice = VCLClassifier(**QUICK).fit(x2, y2).fit(x, y)
    assert (once.predict_proba(x) == twice.predict_proba(x)).all()
    assert len(twice.learner_.history) == 1
    direct = ContinualClassifier(
        once._network(once.learner_.settings.seed), heads="shared", epochs=20, lr=0.02, verbose=0,
        seed=once.learner_.settings.seed,
    )  # fmt: skip
    direct.update(x, np.unique(y, return_inverse=True)[1]).update(x2, np.unique(y2, return_inverse=True)[1])
    once.partial_fit(x2, y2)
    beliefs = [each._known.state.propagated for each in (once.learner_, direct)]
    assert torch.equal(beliefs[0].mean, beliefs[1].mean)
    assert np.allclose(once.predict_proba(x), direct.predict_proba(x), rtol=1e-6)


def test_forget_fades_the_past(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    kept, faded = (VCLClassifier(**QUICK, forget=share).fit(x, y).partial_fit(x[::7], y[::7]) for share in (0.0, 0.9))
    assert (kept.predict_proba(x) != faded.predict_proba(x)).any()


def test_seeds_and_settings_are_parameters(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    first, same, other = (
        VCLClassifier(**QUICK, random_state=seed).fit(x, y).predict_proba(x) for seed in (1, 1, 2)
    )  # fmt: skip
    assert (first == same).all()
    assert (first != other).any()
    copied = clone(VCLRegressor((5,), noise=0.5, forget=0.1))
    assert copied.get_params()["noise"] == 0.5
    assert copied.set_params(hidden=(3,)).hidden == (3,)
    search = GridSearchCV(VCLClassifier(**QUICK, method="laplace"), {"prior_var": [1e-6, 1.0]}, cv=2).fit(x, y)
    assert search.best_params_ == {"prior_var": 1.0}


@pytest.mark.parametrize("net", [lambda inputs: mlp(inputs, (7,)), nn.Sequential(nn.Linear(4, 7), nn.Tanh())])
def test_a_network_of_ones_own_or_a_function_that_makes_it(net: Any, iris: tuple[np.ndarray, np.ndarray]) -> None:
    before = [value.clone() for value in net.parameters()] if isinstance(net, nn.Module) else []
    learner = clone(VCLClassifier(net=net, epochs=60, lr=0.02)).fit(*iris)
    assert learner.score(*iris) > 0.9
    widths = {shape for shape in learner.learner_._known.state.propagated.layout.shapes if len(shape) == 2}
    assert widths == {(7, 4), (3, 7)}
    after = list(net.parameters()) if isinstance(net, nn.Module) else []
    assert all((mine == now).all() for mine, now in zip(before, after, strict=True))


def test_a_regressor_has_deviations_intervals_and_parts() -> None:
    x, y = load_diabetes(return_X_y=True)
    model = make_pipeline(StandardScaler(), VCLRegressor((16,), epochs=30))
    model.fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) > 0.35
    mean, sd = model.predict(x[1::2], return_std=True)
    assert mean.shape == sd.shape == (221,)
    last, scaled = model[-1], model[0].transform(x[1::2])
    (lower, upper), (low, high) = (last.intervals(scaled, level) for level in (0.5, 0.9))
    assert ((low < lower) & (lower < mean) & (mean < upper) & (upper < high)).all()
    assert np.allclose(high - low, 2 * 1.6449 * sd, rtol=0.02)  # nearly Gaussian: the noise is most of it
    parts = last.uncertainty(scaled)
    assert np.allclose(parts.total, sd**2)
    assert np.allclose(parts.total, parts.aleatoric + parts.epistemic)


def test_names_of_columns_are_kept_and_others_are_refused(iris: tuple[np.ndarray, np.ndarray]) -> None:
    frame = pytest.importorskip("pandas").DataFrame(iris[0], columns=["a", "b", "c", "d"])
    learner = VCLClassifier(**QUICK).fit(frame, iris[1])
    assert learner.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert (learner.predict(frame) == learner.classes_[learner.predict_proba(frame).argmax(1)]).all()
    for call in (learner.predict, lambda other: learner.partial_fit(other, iris[1])):
        with pytest.raises(ValueError, match="feature names"):
            call(frame.rename(columns={"d": "e"}))


def test_several_targets_and_counts() -> None:
    x, y = load_diabetes(return_X_y=True)
    both = VCLRegressor(**QUICK, method="laplace").fit(x, np.stack([y, -y], 1))
    mean, sd = both.predict(x[:5], return_std=True)
    assert mean.shape == sd.shape == (5, 2)
    counts = VCLRegressor(**QUICK, likelihood="poisson", method="laplace").fit(x, np.round(y / 50))
    assert (counts.predict(x) > 0).all()


def test_what_is_wrong_is_said(iris: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(NotFittedError):
        VCLClassifier().predict(iris[0])
    with pytest.raises(NotFittedError):
        VCLRegressor().intervals(iris[0])
    with pytest.raises(VclError, match="did you mean 'mean-field'"):
        VCLClassifier(method="meanfield").fit(*iris)
    failing = VCLClassifier(lr=-1.0)
    with pytest.raises(VclError, match="lr is"):
        failing.partial_fit(*iris)
    with pytest.raises(NotFittedError):
        failing.predict(iris[0])


def test_a_fit_that_fails_leaves_nothing_behind(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    for failing in (VCLClassifier(lr=-1.0), VCLRegressor(lr=-1.0)):
        targets = y if isinstance(failing, VCLClassifier) else x[:, 0]
        for call in (failing.fit, failing.partial_fit):
            before = dict(vars(failing))
            with pytest.raises(VclError, match="lr is"):
                call(x, targets)
            assert vars(failing) == before
    learner = VCLClassifier(**QUICK).fit(x, y)
    before = dict(vars(learner))
    with pytest.raises(ValueError, match="one class"):
        learner.fit(x[:, :2], np.zeros(150))
    assert vars(learner) == before
    assert learner.predict(x).shape == (150,)


@pytest.mark.parametrize(
    ("first", "later", "said"),
    [
        (np.array([0, 1]), np.array(["a", "b"]), "the labels are strings, such as 'a', and the classes are numbers"),
        (np.array(["0", "1"]), np.array([0, 1]), "the labels are numbers, .* and the classes are strings"),
        (np.array(["0", "1"], dtype=object), np.array([0, 1]), "the labels are numbers"),
        (np.array([False, True]), np.array([1, 2]), "the labels are numbers, .* and the classes are bools"),
    ],
)
def test_labels_of_another_kind_are_refused(first: np.ndarray, later: np.ndarray, said: str) -> None:
    x = np.array([[0.0], [1.0]])
    quick = {"hidden": (3,), "epochs": 1}
    learner = VCLClassifier(**quick).partial_fit(x, first)
    with pytest.raises(VclError, match="give at least two"):
        VCLClassifier(**quick).partial_fit(x, first, classes=[])
    with pytest.raises(ValueError, match=said):
        learner.partial_fit(x, later)
    assert learner.classes_.tolist() == first.tolist()
    with pytest.raises(ValueError, match=said):
        learner.partial_fit(x, first, classes=later)
    with pytest.raises(ValueError, match="give labels of one kind"):
        VCLClassifier(**quick).partial_fit(x, first, classes=later)


def test_wrong_widths_and_texts_as_targets_are_said() -> None:
    x = np.array([[0.0], [1.0]])
    with pytest.raises(VclError, match=r"hidden is 32; give a list of widths, such as \(32,\)"):
        VCLClassifier(hidden=32).fit(x, [0, 1])  # type: ignore[arg-type]
    for y in (["low", "high"], np.array(["low", "high"], dtype=object)):
        with pytest.raises(ValueError, match="y has the text 'low', and VCLRegressor learns numbers; give numbers"):
            VCLRegressor().fit(x, y)


def test_the_learner_of_an_estimator_is_saved_without_pickle(
    iris: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    learner = VCLClassifier(**QUICK).fit(*iris)
    learner.learner_.save(tmp_path / "model")
    back = ContinualClassifier.load(tmp_path / "model", mlp(4, (8,)), verbose=0)
    assert (learner.classes_[back.predict(iris[0])] == learner.predict(iris[0])).all()


def test_without_scikit_learn_the_package_works_and_a_sentence_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None; import vcl; vcl.mlp(2, (3,))\n"
        "try: vcl.sklearn\nexcept ModuleNotFoundError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "vcl.sklearn needs vcl[lab]: pip install 'vcl[lab]'" in ended.stdout
    code = (
        "import sys, vcl; dir(vcl); getattr(vcl, 'nothing', 0)\nprint('sklearn' in sys.modules, vcl.sklearn.__name__)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False vcl.sklearn\n"
