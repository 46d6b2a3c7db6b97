"""Fading of what was known, and tasks that are taken out of the belief again.

With a linear model, given noise and columns at right angles, the posterior has independent weights, and what a task's
data contributes does not depend on the other tasks. There ``forget(task)`` gives the learner that never saw the task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from own_data import classes_of, classifier, numbers, regressor, same, small_net, targets_of, tensors
from vcl.beliefs import MeanField
from vcl.errors import VclError
from vcl.learner import ContinualRegressor
from vcl.learner.sites import natural

NOISE = 0.8
LINEAR: dict[str, Any] = {
    "method": "mean-field", "forgettable": True, "noise": NOISE, "heads": "shared", "standardize": False,
    "epochs": 400, "batch": 64, "draws": 64,
}  # fmt: skip


def at_right_angles(seed: int, n: int = 64) -> np.ndarray:
    """Columns [n, 3] of sum 0 and mean square 1 whose products sum to 0."""
    raw = np.random.default_rng(seed).normal(size=(n, 3))
    return np.linalg.qr(raw - raw.mean(0))[0] * n**0.5


def straight(seed: int, w: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and targets of mean 0 and deviation 1, whose scaling is then the same for each task."""
    x = at_right_angles(seed)
    y = x @ np.array(w) + 0.5 * np.random.default_rng(seed + 50).normal(size=len(x))
    return x, (y - y.mean()) / y.std()


A, B = straight(0, (1.0, 0.5, 0.0)), straight(1, (0.0, -1.0, 0.5))


def moments(learner: ContinualRegressor) -> tuple[torch.Tensor, torch.Tensor]:
    q = learner._knows().state.propagated
    return q.mean[0].double(), (-q.log_var[0].double()).exp()


def exact(weights: dict[int, float], prior: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and precision of weights and bias: each task's data counts with its weight."""
    precision, shift = torch.full((4,), prior, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for task, weight in weights.items():
        x, y = (A, B)[task]
        rows = np.c_[x, np.ones(len(x))]
        precision += weight * torch.from_numpy((rows**2).sum(0)) / NOISE**2
        shift += weight * torch.from_numpy(rows.T @ y) / NOISE**2
    return shift / precision, precision


def close(learner: ContinualRegressor, wanted: tuple[torch.Tensor, torch.Tensor], sds: float = 0.05) -> bool:
    """The mean within ``sds`` posterior deviations, the precision within 3 %: twice the error of such a fit."""
    (mean, precision), (m, p) = moments(learner), wanted
    return bool(((mean - m).abs() * p.sqrt() < sds).all() and ((precision / p - 1).abs() < 0.03).all())


DIVIDED = 0.2
"""A quotient has the errors of two fits, counted in deviations of a wider belief."""


def linear() -> ContinualRegressor:
    return regressor(nn.Flatten(), **LINEAR)


def learner_prior() -> MeanField:
    """The prior of a small network with a shared head of two classes."""
    made = classifier(method="mean-field").update(numbers(), classes_of(numbers()))
    prior: MeanField = made._model().prior({"all": 2})
    return prior


class TestForgettingATask:
    def test_a_linear_gaussian_model_is_then_the_one_that_never_saw_it(self) -> None:
        both = linear().update(*A, task="a").update(*B, task="b")
        assert close(both, exact({0: 1, 1: 1}))
        (mean, _), (m, p) = moments(both), exact({1: 1})
        assert float(((mean - m).abs() * p.sqrt()).max()) > 10 * DIVIDED
        assert close(both.forget("a"), exact({1: 1}), DIVIDED)
        assert both.tasks == ("b",)
        never = linear().update(*B, task="b")
        assert close(never, exact({1: 1}))
        x = at_right_angles(9)
        assert np.abs(both.predict(x) - never.predict(x)).max() < 0.05
        other = linear().update(*A, task="a").update(*B, task="b").forget("b")
        assert close(other, exact({0: 1}), DIVIDED)

    def test_the_belief_is_divided_exactly(self) -> None:
        """(q_3 / (q_1 / p)) in natural parameters, where the other tasks stay as they are."""
        learner = classifier(method="mean-field", forgettable=True, heads="shared", epochs=60)
        prior, naturals = natural(learner_prior()), []
        for seed, task in enumerate("abc"):
            learner.update(numbers(60, seed), classes_of(numbers(60, seed)), task=task)
            naturals.append(natural(learner._knows().state.propagated))
        found = natural(learner.forget("b")._knows().state.propagated)
        wanted = naturals[2].plus(naturals[1].scaled(-1)).plus(naturals[0])
        assert prior.layout == found.layout
        torch.testing.assert_close(found.precision, wanted.precision, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.shift, wanted.shift, rtol=1e-5, atol=1e-5)

    def test_what_was_revisited_goes_as_a_whole(self) -> None:
        twice = linear().update(*A, task="a").update(*B, task="b").update(*A, task="a", revisit=True)
        assert close(twice, exact({0: 2, 1: 1}))
        assert close(twice.forget("a"), exact({1: 1}), DIVIDED)

    def test_what_has_faded_goes_as_what_is_left_of_it(self) -> None:
        faded = linear().update(*A, task="a").update(*B, task="b", forget=0.4)
        assert close(faded, exact({0: 0.6, 1: 1}))
        assert close(faded.forget("a"), exact({1: 1}), DIVIDED)

    def test_without_any_task_it_is_the_prior_to_the_bit_and_learns_again(self) -> None:
        learner = linear().update(*A, task="a").update(*B, task="b").forget("a").forget("b")
        q = learner._knows().state.propagated
        assert learner.tasks == ()
        assert q.layout == learner._model().prior({}).layout
        for ask in (learner.predict, learner.uncertainty):
            with pytest.raises(VclError, match=r"all tasks were forgotten; call update\(x, y\) first"):
                ask(A[0])
        assert close(learner.update(*B, task="b"), exact({1: 1}))

    def test_a_network_that_forgot_everything_learns_as_at_first(self) -> None:
        x, y = numbers(60), classes_of(numbers(60))
        learner = classifier(method="mean-field", forgettable=True, epochs=60, heads="shared")
        learner.update(numbers(60, 3), classes_of(numbers(60, 3)), task="a").forget("a")
        q = learner._knows().state.propagated
        assert torch.equal(q.mean, torch.zeros_like(q.mean))
        learner.update(x, y, task="a")
        assert (learner.predict(x) == y).mean() > 0.9

    @pytest.mark.filterwarnings("ignore:without '.', .* of .* parameters")
    def test_its_head_and_its_data_go_with_it(self, tmp_path: Path) -> None:
        x, y = numbers(), classes_of(numbers())
        learner = classifier(method="mean-field", forgettable=True).update(x, y, task="a")
        learner.update(numbers(seed=1), classes_of(numbers(seed=1), 2), task="b").forget("a")
        known = learner._knows()
        assert learner.classes() == (2, 3)
        assert known.state.heads == {"b": 2}
        assert not any(name.startswith("heads.a") for name in known.state.propagated.layout.names)
        with pytest.raises(VclError, match=r"unknown task 'a'; accepted: b"):
            learner.predict(x, "a")
        learner.save(tmp_path)
        loaded = type(learner).load(tmp_path, small_net(4), device="cpu", verbose=0)
        assert same(tensors(loaded), tensors(learner))
        for each in (learner, loaded):
            each.update(x, y + 5, task="a")  # the data may come again, with other classes
            assert each.classes("a") == (5, 6)
        assert same(tensors(loaded), tensors(learner))
        loaded.forget("a").forget("b").save(tmp_path)
        again = type(learner).load(tmp_path, small_net(4), device="cpu", verbose=0)
        assert again.tasks == ()
        assert again.update(x, y, task="a").tasks == ("a",)

    def test_a_head_that_grew_since(self) -> None:
        learner = classifier(method="mean-field", forgettable=True, heads="shared", epochs=60)
        learner.update(numbers(60), classes_of(numbers(60)), task="a")
        learner.update(numbers(60, 1), classes_of(numbers(60, 1), 1), task="b").forget("a")
        assert learner.classes() == (0, 1, 2)
        x = numbers(60, 1)
        assert (learner.predict(x) == classes_of(x, 1)).mean() > 0.8

    @pytest.mark.filterwarnings("ignore:without '.', .* of .* parameters")
    def test_learned_noise_of_a_head_of_its_own_goes_too(self) -> None:
        learner = regressor(method="mean-field", forgettable=True)
        for task in ("a", "b"):
            learner.update(numbers(seed=ord(task)), targets_of(numbers(seed=ord(task))), task=task)
        assert set(learner._knows().noise) == {"a", "b"}
        assert set(learner.forget("a")._knows().noise) == {"b"}

    def test_what_cannot_be_forgotten_is_said_and_nothing_changes(self) -> None:
        learner = classifier().update(numbers(), classes_of(numbers()), task="a")
        with pytest.raises(
            VclError,
            match=r"what 'a' contributed was not kept; make the learner with method='mean-field' and forgettable=True",
        ):
            learner.forget("a")
        with pytest.raises(VclError, match=r"nothing has been learned yet"):
            classifier().forget("a")

    def test_parameters_without_a_positive_precision_go_back_to_the_prior_with_a_warning(self) -> None:
        bold = linear().update(*A, task="a").update(*B, task="b")
        known = bold._knows()
        site = known.sites["a"]
        weights = site.precision.clone()
        weights[:, 1] *= 9
        bold._known = known._replace(sites={**known.sites, "a": site._replace(precision=weights)})
        with pytest.warns(
            UserWarning,
            match=r"without 'a', 1 of 4 parameters would have no positive precision, .* go back to the prior",
        ) as seen:
            bold.forget("a")
        assert seen[0].filename == __file__
        mean, precision = moments(bold)
        assert (float(mean[1]), float(precision[1])) == (0.0, 1.0)
        left = exact({1: 1})[1]
        assert ((precision / left - 1).abs() < 0.03).tolist() == [True, False, True, True]


class TestFading:
    def test_it_is_the_power_of_the_belief_times_the_prior(self) -> None:
        for share in (0.0, 0.25, 0.9):
            assert close(linear().update(*A).update(*B, forget=share), exact({0: 1 - share, 1: 1}))

    def test_it_helps_where_the_data_has_changed_and_costs_where_it_has_not(self) -> None:
        x, turned = at_right_angles(7), straight(5, (-1.0, -0.5, 0.0))
        true = x @ np.array([-1.0, -0.5, 0.0]) / np.std(at_right_angles(5) @ np.array([-1, -0.5, 0]) + 0.5)
        keeps, fades = (linear().update(*A).update(*turned, forget=share) for share in (0.0, 0.9))
        error = [float(((learner.predict(x) - true) ** 2).mean()) for learner in (keeps, fades)]
        assert error[1] < 0.5 * error[0]
        again = straight(6, (1.0, 0.5, 0.0))
        kept, faded = (linear().update(*A).update(*again, forget=share) for share in (0.0, 0.9))
        assert kept.uncertainty(x).epistemic.mean() < 0.7 * faded.uncertainty(x).epistemic.mean()

    @pytest.mark.parametrize("method", ["structured", "mean-field", "laplace", "generative"])
    def test_without_a_first_update_there_is_nothing_to_fade(self, method: str) -> None:
        x, y = numbers(), classes_of(numbers())
        plain, faded = (classifier(method=method).update(x, y, forget=share) for share in (0.0, 0.5))
        assert same(tensors(plain), tensors(faded))

    def test_the_learned_noise_fades_by_the_same_share(self) -> None:
        """q(tau) of two updates has the shape 1/2 + (N_1 + N_2) / 2; with fading 1/2 + (1 - f) N_1 / 2 + N_2 / 2."""
        x, y = A
        first = regressor(nn.Flatten(), method="mean-field", heads="shared").update(x, y, task="a")
        was = first._knows().noise["all"]
        assert was.shape.tolist() == [[0.5 + 32]]
        first.update(*B, task="b", forget=0.75)
        assert first._knows().noise["all"].shape.tolist() == [[0.5 + 8 + 32]]
        kept = regressor(nn.Flatten(), method="mean-field", heads="shared").update(x, y, task="a").update(*B, task="b")
        assert kept._knows().noise["all"].shape.tolist() == [[0.5 + 32 + 32]]

    def test_the_noise_of_other_heads_fades_too(self) -> None:
        learner = regressor(nn.Flatten(), method="mean-field").update(*A, task="a")
        rate = float(learner._knows().noise["a"].rate)
        learner.update(*B, task="b", forget=0.5)
        found = learner._knows().noise["a"]
        assert found.shape.tolist() == [[0.5 + 16]]
        assert float(found.rate) == pytest.approx(0.5 * rate + 0.5 * 0.5 * 0.03**2, rel=1e-12)
