"""Standardisation of columns and targets: exact values, constants up to rounding, and values far from the first."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from own_data import classifier, numbers, regressor, same, small_net, targets_of, tensors
from vcl.learner import ContinualClassifier
from vcl.learner.draft import read
from vcl.learner.export import Standardized
from vcl.learner.inputs import examples
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


IMAGES = np.random.default_rng(0).uniform(size=(20, 4, 4)) ** 3
LABELS = np.arange(20) % 2


def scaling_of(x: Any, net: Any = None, **settings: Any) -> Any:
    """The scaling that a learner takes from x."""
    learner = classifier(small_net(width=x[0].size) if net is None else net, **settings)
    return read(examples(x, LABELS, None, None, True), None, learner.net, learner.settings).scaling


def trained_net(width: int = 16) -> Any:
    """A network after a step of a fit."""
    net = small_net(width=width)
    with torch.no_grad():
        for value in net.parameters():
            value += 0.01 * torch.sin(torch.arange(value.numel()).view_as(value))
    return net


class TestImages:
    """One centre and one width for all pixels, where the network has not learned the scale that they have."""

    @pytest.mark.parametrize("flat", [False, True])
    def test_a_new_network_gets_them_scaled_as_a_whole(self, flat: bool) -> None:
        x = IMAGES.repeat(2, 1).repeat(2, 2)
        found = scaling_of(x.reshape(20, -1) if flat else x)
        assert found.centre.item() == pytest.approx(x.mean())
        assert found.width.item() == pytest.approx(x.std())

    def test_bytes_are_scaled_as_their_shares_of_255(self) -> None:
        x = (255 * IMAGES).astype(np.uint8)
        found, shares = scaling_of(x), scaling_of(x / 255)
        assert found.centre.item() == pytest.approx(255 * shares.centre.item(), rel=1e-6)
        assert found.width.item() == pytest.approx(255 * shares.width.item(), rel=1e-6)
        net = small_net(width=16)
        one, two = (classifier(net).update(each, LABELS).predict_proba(each) for each in (x, x / 255))
        assert np.allclose(one, two, atol=1e-4)

    def test_a_small_update_of_grey_digits_is_learned(self) -> None:
        """60 labels: 64 % where the pixels keep their scale, 85 % where they are scaled."""
        x, y = load_digits(return_X_y=True)
        torch.manual_seed(0)
        learner = ContinualClassifier(small_net_of_digits(), verbose=0, device="cpu").update(x[:60] / 16, y[:60])
        assert (learner.predict(x[60:] / 16) == y[60:]).mean() > 0.75

    def test_networks_that_know_a_scale_get_them_as_they_are(self) -> None:
        for settings in ({"posterior": "head"}, {"adapters": 1}, {"prior_mean": "net"}, {"posterior": ["1.bias"]}):
            assert scaling_of(IMAGES, **settings) is None
            assert scaling_of((255 * IMAGES).astype(np.uint8), **settings) is None
            assert scaling_of(100 * IMAGES.reshape(20, -1), **settings) is None  # tables too
            assert scaling_of(IMAGES, standardize=True, **settings) is not None
        assert scaling_of(IMAGES, trained_net()) is None
        assert scaling_of((255 * IMAGES).astype(np.uint8), trained_net()) is None
        assert scaling_of(IMAGES, trained_net(), standardize=True) is not None
        assert scaling_of(100 * IMAGES.reshape(20, -1), trained_net()) is not None

    def test_a_network_that_may_be_trained_is_told_about(self) -> None:
        learner = classifier(trained_net()).update(IMAGES, LABELS).update(IMAGES[::-1] ** 2, LABELS)
        assert [("the network may be trained" in update.line()) for update in learner.history] == [True, False]
        assert "inputs [4, 4] numbers, as they are" in learner.summary()
        for others in (classifier(small_net(width=16)), classifier(trained_net(), standardize=False)):
            assert "may be trained" not in others.update(IMAGES, LABELS).history[0].line()
        new = classifier(small_net(width=16)).update(IMAGES, LABELS)
        assert "inputs [4, 4] numbers, scaled by one mean and deviation" in new.summary()

    def test_generators_take_pixels(self) -> None:
        for x in (IMAGES, (255 * IMAGES).astype(np.uint8)):
            given = classifier(method="generative")
            found = read(examples(x, LABELS, None, None, True), None, None, given.settings)
            assert (found.scaling, found.inputs.grey) == (None, x is IMAGES)

    def test_a_folder_of_earlier_versions_keeps_its_scale(self, tmp_path: Path) -> None:
        """They left images as they are; their settings say "auto" too."""
        from vcl.learner.folder import checksum_of

        x, later = ((255 * each).astype(np.uint8) for each in (IMAGES, IMAGES[::-1] ** 2))
        net = small_net(width=16)
        old = classifier(net, standardize=False).update(x, LABELS)
        old.save(tmp_path)
        about = json.loads((tmp_path / "learner.json").read_text())
        about["settings"]["standardize"] = "auto"
        (tmp_path / "learner.json").write_text(json.dumps({**about, "check": checksum_of(about)}))
        found = ContinualClassifier.load(tmp_path, net, device="cpu", verbose=0)
        assert found._knows().scaling is None
        assert same(tensors(found.update(later, LABELS)), tensors(old.update(later, LABELS)))

    @pytest.mark.parametrize("bytes_", [False, True])
    def test_a_saved_learner_goes_on_and_exports_with_its_scale(self, bytes_: bool, tmp_path: Path) -> None:
        x = (255 * IMAGES).astype(np.uint8) if bytes_ else IMAGES
        net = small_net(width=16)
        learner = classifier(net).update(x, LABELS)
        learner.save(tmp_path)
        found = ContinualClassifier.load(tmp_path, net, device="cpu", verbose=0)
        assert np.array_equal(found.predict_proba(x), learner.predict_proba(x))
        mean = classifier(net, method="laplace").update(x, LABELS)
        logits = mean.export()(torch.from_numpy(x)).softmax(-1).numpy()
        assert np.allclose(logits, mean.predict_proba(x), atol=1e-5)
        for each in (found, learner):
            each.update(x[::-1].copy(), LABELS)
        assert same(tensors(found), tensors(learner))


def small_net_of_digits() -> Any:
    """100 units."""
    from vcl.models import mlp

    return mlp(64, (100,))


def test_an_exported_network_standardises_in_float64() -> None:
    """Times in seconds: half a second is less than the step of float32 there."""
    x = 1.7e9 + 0.5 * torch.arange(9, dtype=torch.float64).unsqueeze(1)
    found = learned(x, True)
    assert found is not None
    torch.testing.assert_close(Standardized(found)(x), found(x).float())
