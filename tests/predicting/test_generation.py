"""Importance sampling against a latent model that is known exactly; generated images; classifier uncertainty."""

from itertools import pairwise
from math import log

import pytest
import torch
from torch import Tensor, nn

from made import small_vae
from oracles import factor_analysis, factor_posterior
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data, unlabelled
from vcl.errors import VclError
from vcl.models import Vae
from vcl.models.pixels import NormalPixels
from vcl.ops.rng import Rng
from vcl.predicting.generation import classifier_uncertainty, generate, log_marginal

NOISE = 0.4
MODEL = Vae(nn.Linear(5, 4), nn.Identity(), nn.Linear(2, 5), 2, NormalPixels(NOISE))
LAYOUT = MODEL.layout({"a": 5})
G = torch.Generator().manual_seed(0)
# Orthogonal columns make the posterior of z diagonal, as the encoder's is.
W = torch.linalg.qr(torch.randn(5, 2, generator=G, dtype=torch.float64))[0] * torch.tensor([1.5, 0.7]).double()
B = torch.randn(5, generator=G, dtype=torch.float64)
X = torch.randn(40, 2, generator=G, dtype=torch.float64) @ W.T + B + NOISE * torch.randn(40, 5, generator=G).double()
EXACT = factor_analysis(W, B, NOISE, X)


def belief(shift: float = 0.0, widen: float = 1.0, runs: int = 1, bias_var: float = 0.0) -> MeanField:
    """theta known, and the encoder the exact posterior of z; or one that is shifted and widened."""
    A, cover = factor_posterior(W, NOISE)
    params = {
        "trunk.weight": W,
        "trunk.bias": B,
        "heads.a.encoder:weight": torch.cat([A, torch.zeros_like(A)]),
        "heads.a.encoder:bias": torch.cat([-A @ B + shift, 0.5 * cover.diagonal().log() + log(widen)]),
    }
    log_var = {name: torch.full_like(value, -torch.inf) for name, value in params.items()}
    if bias_var:
        log_var["trunk.bias"] = torch.full_like(B, log(bias_var))
    mean, log_vars = (LAYOUT.join(part).expand(runs, -1) for part in (params, log_var))
    return MeanField(LAYOUT, mean, log_vars)


def estimate(q: MeanField, draws: int, **settings: object) -> Tensor:
    runs = q.mean.shape[0]
    return log_marginal(q, MODEL, X.expand(runs, *X.shape), "a", Rng(tuple(range(runs))), draws, **settings)  # type: ignore[arg-type]


def bounds(q: MeanField, draws: int) -> Tensor:
    data = unlabelled(X, "a", "a")
    noise = torch.randn(draws, 40, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return MODEL.log_lik(LAYOUT.split(q.mean[0]), Data(data.x[0], data.y[0], data.source[0], data.sources), noise)


class TestAgainstFactorAnalysis:
    @pytest.mark.parametrize("chunk", [1, 7, 130, 50_000])
    def test_with_the_exact_posterior_as_the_encoder_every_draw_is_exact(self, chunk: int) -> None:
        assert torch.allclose(estimate(belief(), 3, chunk=chunk)[0], EXACT, atol=1e-9)

    def test_the_bound_is_then_the_log_likelihood(self) -> None:
        found = bounds(belief(), 20_000)
        assert ((found.mean(0) - EXACT).abs() < 5 * found.std(0) / 20_000**0.5).all()

    def test_another_encoder_gets_there_with_many_draws_and_tightens_on_the_way(self) -> None:
        q = belief(shift=0.4, widen=1.5, runs=20)
        gaps = [(EXACT - estimate(q, draws)).mean().item() for draws in (1, 10, 100, 1000)]
        assert all(a > b for a, b in pairwise(gaps)), gaps
        assert abs(gaps[-1]) < 0.01
        assert torch.allclose(estimate(q, 20_000)[0], EXACT, atol=0.1)

    def test_the_bound_is_never_above_beyond_error(self) -> None:
        found = bounds(belief(shift=0.4, widen=1.5), 5000)
        error = 4 * found.std(0) / 5000**0.5
        assert (found.mean(0) < EXACT + error).all()
        # One draw of z is the bound itself, in expectation: KL in closed form or not.
        single = estimate(belief(shift=0.4, widen=1.5, runs=500), 1)
        assert single.mean().item() == pytest.approx(found.mean().item(), abs=0.1)
        assert found.mean() < EXACT.mean() - 0.1

    def test_chunks_change_nothing_but_the_noise(self) -> None:
        q = belief(shift=0.3, widen=1.2)
        a, b = (estimate(q, 3000, chunk=chunk)[0] for chunk in (100, 10_000))
        assert torch.allclose(a, b, atol=0.15)

    def test_drawn_weights_are_averaged_over(self) -> None:
        q = belief(bias_var=0.1)
        exact = factor_analysis(W, B, NOISE, X, extra=0.1)
        drawn = estimate(q, 4000, theta="drawn", theta_draws=4000)[0]
        assert (drawn - exact).abs().mean() < 0.1
        assert (exact - EXACT).abs().mean() > 0.3
        assert torch.allclose(estimate(q, 5)[0], EXACT, atol=1e-9), "theta='mean' does not see the variance"

    def test_runs_alone_and_stacked_agree(self) -> None:
        stack = estimate(belief(shift=0.2, runs=3), 50)
        alone = log_marginal(belief(shift=0.2), MODEL, X[None], "a", Rng((2,)), 50, chunk=50_000 // 3)
        assert torch.allclose(stack[2], alone[0], atol=1e-9)
        assert not torch.allclose(stack[0], stack[1])


class TestGenerate:
    def test_images_have_the_models_moments(self) -> None:
        images = generate(belief(), MODEL, "a", 20_000, Rng((0,)), "mean")[0]
        assert torch.allclose(images.mean(0), B, atol=0.05)
        assert torch.allclose(torch.cov(images.T), W @ W.T, atol=0.1)

    def test_drawn_weights_are_shared_by_equal_parts_of_the_images(self) -> None:
        q = belief(bias_var=0.1)._replace(mean=belief().mean.clone())
        LAYOUT.split(q.mean)["trunk.weight"].zero_()
        images = generate(q, MODEL, "a", 7, Rng((0,)), theta_draws=3)[0]
        _, counts = images[:, 0].unique(return_counts=True)
        assert sorted(counts.tolist()) == [2, 2, 3]
        alike = generate(q, MODEL, "a", 7, Rng((0,)), "mean")[0]
        assert torch.allclose(alike, B.expand(7, 5))

    def test_probabilities_of_pixels_and_seeds(self) -> None:
        model = small_vae()
        prior = model.prior({"a": 16}).expand(2)
        one, two, other = (generate(prior, model, "a", 4, Rng(seeds)) for seeds in ((0, 1), (0, 1), (0, 2)))
        assert one.shape == (2, 4, 16)
        assert ((one >= 0) & (one <= 1)).all()
        assert torch.equal(one, two)
        assert torch.equal(one[0], other[0])
        assert not torch.equal(one[1], other[1])


class TestClassifierUncertainty:
    def test_by_hand(self) -> None:
        p = torch.tensor([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]]).double()
        assert classifier_uncertainty(p.log(), 0).item() == pytest.approx(-(log(0.5) + log(0.9)) / 3)
        # A probability of 0 counts as 1e-9.
        assert classifier_uncertainty(p.log(), 1).item() == pytest.approx(-(log(0.5) + log(0.1) + log(1e-9)) / 3)

    def test_runs_stay_apart(self) -> None:
        log_probs = torch.randn(3, 8, 4).log_softmax(-1)
        whole = classifier_uncertainty(log_probs, 2)
        assert torch.allclose(whole, torch.stack([classifier_uncertainty(part, 2) for part in log_probs]))

    def test_a_class_that_is_not_there(self) -> None:
        with pytest.raises(VclError, match="task is 4, but the classifier has 4 classes"):
            classifier_uncertainty(torch.zeros(3, 4), 4)


class TestBadInput:
    def test_zero_of_anything(self) -> None:
        with pytest.raises(VclError, match="draws is 0, theta_draws is 100 and chunk is 50000; give at least 1"):
            estimate(belief(), 0)
        with pytest.raises(VclError, match="theta_draws is 0"):
            estimate(belief(), 5, theta="drawn", theta_draws=0)
        with pytest.raises(VclError, match="count is 0"):
            generate(belief(), MODEL, "a", 0, Rng((0,)))

    def test_a_task_never_trained(self) -> None:
        with pytest.raises(VclError, match="no task 'b' has been learned; known are: a"):
            generate(belief(), MODEL, "b", 1, Rng((0,)))
        with pytest.raises(VclError, match="no task 'b' has been learned; known are: a"):
            log_marginal(belief(), MODEL, X[None], "b", Rng((0,)), 2)

    def test_words_and_runs(self) -> None:
        with pytest.raises(VclError, match="unknown theta 'mode'"):
            estimate(belief(), 5, theta="mode")
        with pytest.raises(VclError, match="the belief has 1 runs, x has 2 and there are 1 seeds"):
            log_marginal(belief(), MODEL, X.expand(2, 40, 5), "a", Rng((0,)), 2)
