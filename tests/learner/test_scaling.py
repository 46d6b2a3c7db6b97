"""Standardisation of columns and targets: exact values, constants up to rounding, and values far from the first."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from own_data import classifier, numbers, regressor, small_net, targets_of
from vcl.learner.export import Standardized
from vcl.learner.scaling import learned, of_targets


class TestWidths:
    @pytest.mark.parametrize("scale", [1e-13, 1e-30, 1.0, 1e13])
    def test_a_column_is_standardised_whatever_its_unit(self, scale: float) -> None:
        x = scale * torch.tensor([[1.0], [3.0]], dtype=torch.float64)
        found = learned(x, True)
        assert found is not None
        torch.testing.assert_close(found(x), torch.tensor([[-1.0], [1.0]], dtype=torch.float64))
        targets = of_targets(x[:, 0])
        torch.testing.assert_close(targets(x[:, 0]), torch.tensor([-1.0, 1.0], dtype=torch.float64))

    @pytest.mark.parametrize("value", [0.0, 0.1, -1e9 / 3, 1e-20])
    def test_a_constant_has_width_1_though_its_mean_is_rounded(self, value: float) -> None:
        x = torch.full((7, 1), value, dtype=torch.float64)
        found = learned(x, True)
        assert found is not None
        assert found.width.tolist() == [1.0]
        assert float(of_targets(x[:, 0]).width) == 1.0

    def test_a_rare_value_is_at_most_thirty_widths_away(self) -> None:
        """The column is 1 once in 10^4 rows: its deviation is 0.01, and its width a thirtieth."""
        x = torch.zeros(10_000, 1, dtype=torch.float64)
        x[0] = 1
        found = learned(x, True)
        assert found is not None
        assert found.width.tolist() == [1 / 30]


def test_a_regressor_learns_after_constant_targets() -> None:
    x = numbers(60)
    learner = regressor(epochs=40).update(x[:7], np.full(7, 0.1))
    learner.update(x, 0.1 + x[:, 0])
    assert ((learner.predict(x) - 0.1 - x[:, 0]) ** 2).mean() < 0.3


class TestTargetsFarFromTheFirst:
    def test_they_are_warned_about_with_numbers(self) -> None:
        x = numbers()
        learner = regressor().update(x, x[:, 0])
        with pytest.warns(
            UserWarning,
            match=r"\d+% of the targets lie more than 6 standard deviations .* \(now [45]\d{3}; then .*\); targets are "
            r"scaled as then, so learn these as a task or with a learner of their own",
        ) as seen:
            learner.update(x + 1, 5000 + 1000 * x[:, 0])
        assert seen[0].filename == __file__

    def test_the_target_is_named(self) -> None:
        x = numbers()
        both = np.stack([x[:, 0], x[:, 1]], 1)
        learner = regressor().update(x, both)
        with pytest.warns(UserWarning, match=r"100% of target 1 lie more than 6 standard deviations"):
            learner.update(x + 1, both + np.array([0, 100]))

    def test_a_head_of_its_own_has_a_scaling_of_its_own(self) -> None:
        x = numbers()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learner = regressor().update(x, x[:, 0], task="a").update(x, 5000 + 1000 * x[:, 0], task="b")
            regressor().update(x, targets_of(x)).update(x + 0.1, targets_of(x, 1))
        found = learner._knows().outputs
        assert float(found["a"].scaling.centre) == pytest.approx(float(np.mean(x[:, 0])), abs=1e-5)
        assert float(found["b"].scaling.centre) == pytest.approx(5000 + 1000 * float(np.mean(x[:, 0])), rel=1e-5)


class TestImagesBeyondTheFirst:
    @pytest.mark.parametrize("shape", [(4, 4), (64,)])
    def test_pixels_of_another_scale_are_warned_about_in_updates_and_predictions(self, shape: tuple[int, ...]) -> None:
        x = np.random.default_rng(0).uniform(size=(20, *shape)).astype(np.float32)
        y = np.arange(20) % 2
        learner = classifier(small_net(width=x[0].size)).update(x, y)
        for act in (lambda: learner.predict(255 * x), lambda: learner.update(255 * x, y)):
            with pytest.warns(
                UserWarning, match=r"x go from [\d.]+ to 25\d.*, and those of the first update went from 0 to 1; bring"
            ) as seen:
                act()
            assert seen[0].filename == __file__

    def test_noise_on_pixels_and_tables_from_0_to_1_are_not(self) -> None:
        x = np.random.default_rng(0).uniform(size=(20, 4, 4)).astype(np.float32)
        y = np.arange(20) % 2
        learner = classifier(small_net(width=16)).update(x, y)
        learner.update(x + 0.3 * np.random.default_rng(1).normal(size=x.shape).astype(np.float32), y)
        table = np.random.default_rng(0).uniform(size=(20, 4))
        assert classifier().update(table, y).predict(30 * table).shape == (20,)


def test_an_exported_network_standardises_in_float64() -> None:
    """Times in seconds: half a second is less than the step of float32 there."""
    x = 1.7e9 + 0.5 * torch.arange(9, dtype=torch.float64).unsqueeze(1)
    found = learned(x, True)
    assert found is not None
    torch.testing.assert_close(Standardized(found)(x), found(x).float())
