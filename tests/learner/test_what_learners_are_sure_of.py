"""Uncertainty of learners: what it is made of, where it is large, and how often intervals hold what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from own_data import classes_of, classifier, fit, numbers, regressor, targets_of
from vcl.errors import VclError
from vcl.learner import ContinualRegressor

LINEAR: dict[str, Any] = {"epochs": 40, "batch": 25, "lr": 5e-2}
"""For a linear model: a network without parameters, and a head."""


class TestEpistemicUncertainty:
    @pytest.mark.parametrize("method", ["structured", "mean-field", "laplace"])
    @pytest.mark.parametrize("make", [classifier, regressor])
    def test_it_falls_with_data_and_rises_away_from_it(self, make: Any, method: str) -> None:
        learner = make(**fit(method, epochs=20))
        target = classes_of if make is classifier else targets_of
        near, found = numbers(60, 99), []
        for part in range(3):
            x = numbers(40 * 2**part, part)
            learner.update(x, target(x))
            found.append(learner.uncertainty(near).epistemic.mean())
        assert found[0] > found[1] > found[2]
        if make is regressor:
            assert learner.uncertainty(8 * near).epistemic.mean() > 10 * found[2]
        else:  # where classes overlap and beyond, weights disagree about the class most near their boundary
            edge = near * np.array([0, 12, 12, 12])
            assert learner.uncertainty(edge).epistemic.mean() > 2 * found[2]

    def test_noise_is_aleatoric_and_stays(self) -> None:
        learner = regressor(**fit("mean-field"), noise=2.0)
        for part in range(2):
            x = numbers(100, part)
            learner.update(x, 5 * x[:, 0])
        found = learner.uncertainty(numbers(20, 9))
        np.testing.assert_allclose(found.aleatoric, 4.0, rtol=1e-5)
        np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)

    def test_the_deviation_of_a_prediction_and_the_draws_agree_with_its_parts(self) -> None:
        learner = regressor(**fit("structured", epochs=10)).update(x := numbers(80), targets_of(x))
        mean, sd = learner.predict(x, return_std=True)
        np.testing.assert_allclose(sd**2, learner.uncertainty(x).total, rtol=1e-10)
        draws = learner.predict_draws(x, draws=2000)
        assert draws.shape == (2000, 80)
        again = learner.predict(x, draws=2000, return_std=True)
        assert (np.abs(draws.mean(0) - again[0]) < 5 * again[1] / 2000**0.5).all()
        assert (np.abs(draws.std(0) / again[1] - 1) < 5 / (2 * 2000) ** 0.5).all()
        assert np.array_equal(mean, learner.predict(x))


def held_out(learner: ContinualRegressor, x: np.ndarray, y: np.ndarray, level: float) -> int:
    """How many targets their intervals hold."""
    lower, upper = learner.intervals(x, level)
    assert (lower < upper).all()
    return int(((lower <= y) & (y <= upper)).sum())


class TestCoverage:
    """Of data from the model itself, over many data sets: within three standard errors of a binomial."""

    SETS, TRAIN, TEST = 8, 100, 150

    @pytest.mark.parametrize("noise", [0.7, "learned"])
    def test_of_a_linear_gaussian_model(self, noise: Any) -> None:
        held = {0.5: 0, 0.9: 0}
        for seed in range(self.SETS):
            rng = np.random.default_rng(seed)
            x, w = rng.normal(size=(self.TRAIN + self.TEST, 3)), rng.normal(size=3)
            y = 20 + x @ w + 0.7 * rng.normal(size=len(x))
            learner = regressor(nn.Flatten(), noise=noise, seed=seed, **LINEAR)
            half = self.TRAIN // 2
            learner.update(x[:half], y[:half]).update(x[half : self.TRAIN], y[half : self.TRAIN])
            for level in held:
                held[level] += held_out(learner, x[self.TRAIN :], y[self.TRAIN :], level)
        count = self.SETS * self.TEST
        for level, found in held.items():
            assert abs(found / count - level) < 3 * (level * (1 - level) / count) ** 0.5

    def test_a_learned_noise_is_that_of_the_data(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(800, 3))
        y = np.stack([x[:, 0] + 0.3 * rng.normal(size=800), 50 * x[:, 1] + 20 * rng.normal(size=800)], 1)
        learner = regressor(nn.Flatten(), **LINEAR).update(x[:400], y[:400]).update(x[400:], y[400:])
        found = learner.uncertainty(x[:5]).aleatoric[0] ** 0.5
        assert (np.abs(found / [0.3, 20] - 1) < 4 / (2 * 800) ** 0.5).all()

    def test_noise_as_a_function_of_the_input(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.uniform(-1, 1, (600, 1))
        sd = np.exp(1.2 * x[:, 0])
        y = 3 * x[:, 0] + sd * rng.normal(size=600)
        learner = regressor(nn.Flatten(), noise="heteroscedastic", **LINEAR).update(x[:300], y[:300])
        learner.update(x[300:400], y[300:400])
        found = learner.uncertainty(x[400:]).aleatoric ** 0.5
        assert np.corrcoef(np.log(found), np.log(sd[400:]))[0, 1] > 0.99
        for side in (x[400:, 0] < 0, x[400:, 0] > 0):
            held, count = held_out(learner, x[400:][side], y[400:][side], 0.9), int(side.sum())
            assert abs(held / count - 0.9) < 4 * (0.09 / count) ** 0.5

    def test_counts(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(700, 2))
        rate = np.exp(1 + 0.5 * x[:, 0])
        y = rng.poisson(rate)
        learner = (
            regressor(nn.Flatten(), likelihood="poisson", **LINEAR)
            .update(x[:200], y[:200])
            .update(x[200:400], y[200:400])
        )
        mean = learner.predict(x[400:])
        assert np.corrcoef(np.log(mean), np.log(rate[400:]))[0, 1] > 0.99
        assert abs(np.log(mean / rate[400:]).mean()) < 0.1
        found = learner.uncertainty(x[400:])
        np.testing.assert_allclose(found.aleatoric, mean, rtol=0.05)
        lower, upper = learner.intervals(x[400:], 0.8)
        assert np.array_equal(lower, np.floor(lower))
        assert ((lower <= y[400:]) & (y[400:] <= upper)).mean() > 0.8 - 3 * (0.16 / 300) ** 0.5
        assert learner.predict_draws(x[400:], draws=3).shape == (3, 300)
        rates = learner.export()(torch.from_numpy(x[:5]))
        assert np.allclose(np.exp(rates.squeeze(1).numpy()), learner.predict(x[:5]), rtol=0.1)

    def test_levels_that_cannot_be(self) -> None:
        learner = regressor().update(x := numbers(), targets_of(x))
        for level in (0, 1, 90, -0.1, "0.9", [0.5], True):
            with pytest.raises(VclError, match=r"level is .*; an interval holds a probability above 0 and below 1"):
                learner.intervals(x, level)
