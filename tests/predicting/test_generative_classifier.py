"""Classes told apart by their generators, against factor analysis, where log p(x | y) is known exactly."""

from math import log

import pytest
import torch
from torch import Tensor, nn

from made import shapes, small_vae
from oracles import factor_analysis, factor_posterior
from vcl.beliefs.mean_field import MeanField
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.learner import GenerativeClassifier, generative_vcl
from vcl.models import Vae
from vcl.models.pixels import NormalPixels
from vcl.ops.rng import Rng
from vcl.predicting import class_log_marginals, classify, score

NOISE = 0.4
MODEL = Vae(nn.Linear(5, 4), nn.Linear(2, 2), nn.Linear(2, 5), 2, NormalPixels(NOISE))
CLASSES = ("a", "b", "c")
LAYOUT = MODEL.layout(dict.fromkeys(CLASSES, 5))
G = torch.Generator().manual_seed(0)
# One shared upper part with orthonormal columns, and diagonal lower parts: each posterior of z is diagonal, as the
# encoders' are.
UPPER = torch.linalg.qr(torch.randn(5, 2, generator=G, dtype=torch.float64))[0]
SHIFT = torch.randn(5, generator=G, dtype=torch.float64)
LOWER = {name: torch.randn(2, generator=G, dtype=torch.float64) for name in CLASSES}
BIAS = {name: torch.randn(2, generator=G, dtype=torch.float64) for name in CLASSES}
WEIGHTS = {name: UPPER * LOWER[name] for name in CLASSES}
CENTRES = {name: UPPER @ BIAS[name] + SHIFT for name in CLASSES}
X = torch.cat(
    [
        torch.randn(20, 2, generator=G, dtype=torch.float64) @ WEIGHTS[name].T
        + CENTRES[name]
        + NOISE * torch.randn(20, 5, generator=G, dtype=torch.float64)
        for name in CLASSES
    ]
)
EXACT = torch.stack([factor_analysis(WEIGHTS[name], CENTRES[name], NOISE, X) for name in CLASSES], dim=-1)


def belief(shift: float = 0.0, widen: float = 1.0, runs: int = 1, shift_var: float = 0.0) -> MeanField:
    """theta known, and each class's encoder the exact posterior of z; or one that is shifted and widened."""
    params: dict[str, Tensor] = {"trunk.weight": UPPER, "trunk.bias": SHIFT}
    for name in CLASSES:
        A, cover = factor_posterior(WEIGHTS[name], NOISE)
        params |= {
            f"heads.{name}.decoder:weight": LOWER[name].diag(),
            f"heads.{name}.decoder:bias": BIAS[name],
            f"heads.{name}.encoder:weight": torch.cat([A, torch.zeros_like(A)]),
            f"heads.{name}.encoder:bias": torch.cat(
                [-A @ CENTRES[name] + shift, 0.5 * cover.diagonal().log() + log(widen)]
            ),
        }
    log_var = {name: torch.full_like(value, -torch.inf) for name, value in params.items()}
    if shift_var:
        log_var["trunk.bias"] = torch.full_like(SHIFT, log(shift_var))
    mean, log_vars = (LAYOUT.join(part).expand(runs, -1) for part in (params, log_var))
    return MeanField(LAYOUT, mean, log_vars)


def estimate(q: MeanField, draws: int, x: Tensor = X, seeds: tuple[int, ...] | None = None, **more: object) -> Tensor:
    runs = q.mean.shape[0]
    rng = Rng(tuple(range(runs)) if seeds is None else seeds)
    return class_log_marginals(q, MODEL, x.expand(runs, *x.shape), CLASSES, rng, draws, **more)  # type: ignore[arg-type]


class TestAgainstFactorAnalysis:
    @pytest.mark.parametrize("chunk", [1, 7, 130, None])
    def test_with_the_true_posteriors_as_encoders_one_draw_is_exact(self, chunk: int | None) -> None:
        assert torch.allclose(estimate(belief(), 1, chunk=chunk)[0], EXACT, atol=1e-9)
        assert torch.allclose(estimate(belief(), 3, chunk=chunk)[0], EXACT, atol=1e-9)

    def test_other_encoders_agree_within_the_monte_carlo_error(self) -> None:
        weights = estimate(belief(shift=0.1, widen=1.2, runs=400), 50).exp() / EXACT.exp()
        # p(x | y) itself is unbiased: its mean over 400 independent runs, by their own standard errors.
        error = weights.std(0) / 400**0.5
        assert ((weights.mean(0) - 1).abs() < 5 * error).all()
        assert float(error.max()) < 0.1

    def test_class_probabilities_are_those_of_bayes_rule(self) -> None:
        prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
        joint = EXACT.exp() * prior
        found = estimate(belief(), 2)[0]
        assert torch.allclose(classify(found, prior), joint / joint.sum(-1, keepdim=True), atol=1e-9)
        assert torch.allclose(classify(found, [5, 3, 2]), classify(found, prior), atol=1e-12)
        assert torch.allclose(classify(found), EXACT.softmax(-1), atol=1e-9)
        assert torch.allclose(score(found, prior), joint.sum(-1).log(), atol=1e-9)
        assert torch.allclose(score(found), EXACT.logsumexp(-1) - log(3), atol=1e-9)
        assert torch.allclose(score(found, [5, 3, 2]), score(found, prior), atol=1e-9), "weights need not sum to 1"

    def test_classes_take_different_draws(self) -> None:
        """Two classes that are alike have different Monte Carlo errors, which then do not move with each other."""
        q = belief(shift=0.1, widen=1.2)
        params = LAYOUT.split(q.mean)
        for name in LAYOUT.names:
            if name.startswith(f"heads.{CLASSES[1]}."):
                params[name] = params[name.replace(f"heads.{CLASSES[1]}.", f"heads.{CLASSES[0]}.")]
        found = estimate(q._replace(mean=LAYOUT.join(params, lead=1)), 20)[0]
        gap = (found[:, 0] - found[:, 1]).abs()
        assert float(gap.min()) > 0
        assert float(gap.max()) < 3

    def test_drawn_weights_are_averaged_over(self) -> None:
        exact = torch.stack(
            [factor_analysis(WEIGHTS[name], CENTRES[name], NOISE, X, extra=0.1) for name in CLASSES], dim=-1
        )
        q = belief(shift_var=0.1)
        drawn = estimate(q, 4000, theta="drawn", theta_draws=4000)[0]
        assert (drawn - exact).abs().mean() < 0.1
        assert torch.allclose(estimate(q, 5)[0], EXACT, atol=1e-9), "theta='mean' does not see the variance"

    def test_the_score_is_low_for_inputs_of_no_class(self) -> None:
        found = estimate(belief(), 2)[0]
        far = estimate(belief(), 2, X + 5)[0]
        assert score(far).max() < score(found).min()


class TestInputsFarFromAllData:
    def test_draws_that_overflow_count_nothing(self) -> None:
        far = torch.cat([X[:3], X[:1] * 1e200])
        found = estimate(belief(shift=0.1, widen=1.2), 20, far)[0]
        assert torch.allclose(found[:3], estimate(belief(shift=0.1, widen=1.2), 20)[0, :3], rtol=0, atol=1e-10)
        assert (found[3] == -torch.inf).all()
        prior = [0.5, 0.3, 0.2]
        assert score(found, prior)[3] == -torch.inf
        assert torch.allclose(classify(found, prior)[3], torch.tensor(prior, dtype=torch.float64), atol=1e-12)

    def test_what_is_not_finite_itself_is_refused_and_no_overflow(self) -> None:
        with pytest.raises(VclError, match="x has values that are not finite; drop or fill those images"):
            estimate(belief(), 2, torch.cat([X[:3], X[:1] * float("nan")]))
        with pytest.raises(VclError, match="the generator of 'a' has weights that are not finite"):
            estimate(belief()._replace(mean=torch.full_like(belief().mean, float("nan"))), 2)

    def test_a_class_that_overflows_is_not_the_answer(self) -> None:
        found = torch.tensor([[-torch.inf, -5.0, -5.0]])
        assert torch.allclose(classify(found), torch.tensor([[0.0, 0.5, 0.5]], dtype=torch.float64))


class TestBlocksRunsAndImages:
    def test_blocks_change_no_answer(self) -> None:
        q = belief(shift=0.3, widen=1.3, runs=2)
        whole = estimate(q, 20)
        for chunk in (1, 3, 41, 97, 10_000):
            assert torch.allclose(estimate(q, 20, chunk=chunk), whole, rtol=0, atol=1e-10)

    def test_an_images_answer_does_not_depend_on_the_others(self) -> None:
        q = belief(shift=0.3, widen=1.3)
        assert torch.allclose(estimate(q, 20, X[7:9])[0], estimate(q, 20)[0, 7:9], rtol=0, atol=1e-10)

    def test_a_classs_answer_does_not_depend_on_the_others(self) -> None:
        q, rng = belief(shift=0.3, widen=1.3), Rng((0,))
        alone = class_log_marginals(q, MODEL, X[None], ("b",), rng, 20)
        assert torch.allclose(alone[..., 0], estimate(q, 20)[..., 1], rtol=0, atol=1e-12)

    def test_runs_stacked_equal_runs_alone(self) -> None:
        stack = estimate(belief(shift=0.2, widen=1.2, runs=3), 20)
        alone = estimate(belief(shift=0.2, widen=1.2), 20, seeds=(2,))
        assert torch.allclose(stack[2], alone[0], rtol=0, atol=1e-10)
        assert not torch.allclose(stack[0], stack[1])

    def test_no_images(self) -> None:
        assert estimate(belief(), 2, X[:0]).shape == (1, 0, 3)

    def test_a_block_fits_the_devices_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from vcl.ops.devices import Limits
        from vcl.predicting import generative_classifier

        seen: list[int] = []
        rows = generative_classifier.along

        def watched(function: object, runs: int, device: torch.device) -> object:
            def call(params: object, part: Tensor, none: Tensor, eps: Tensor) -> Tensor:
                seen.append(part.shape[0] * part.shape[1] * eps.shape[1])
                return rows(function, runs, device)(params, part, none, eps)  # type: ignore[arg-type]

            return call

        q = belief(runs=2)
        whole = estimate(q, 10)
        monkeypatch.setattr(generative_classifier, "along", watched)
        monkeypatch.setattr(generative_classifier, "limits", lambda device: Limits(60, 2**25, 2048))
        assert torch.allclose(estimate(q, 10), whole, rtol=0, atol=1e-10)
        assert max(seen) <= 60
        assert max(seen) > 30, "a block of less than half of what fits"


class TestStates:
    def test_a_state_is_its_predictive_beliefs_and_refuses_another_model(self) -> None:
        learner = GenerativeClassifier(small_vae(), generative_vcl(Ascent(1, 8, 0.01), 1), (0, 1))
        learner.update(shapes(8, 0, "any").x[0], torch.arange(8) % 2)
        state, x, rng = learner.learner.state, shapes(3, 1, "any", runs=2).x, Rng((0, 1))
        bare = class_log_marginals(state.propagated, small_vae(), x, ("0", "1"), rng, 5)
        assert torch.equal(class_log_marginals(state, small_vae(), x, ("0", "1"), rng, 5), bare)
        with pytest.raises(VclError, match="not the network that the state was learned with"):
            class_log_marginals(state, small_vae("upper"), x, ("0", "1"), rng, 5)
        with pytest.raises(VclError, match=r"no task has added a head '2' yet; .*known heads: \['0', '1'\]"):
            class_log_marginals(state, small_vae(), x, ("0", "2"), rng, 5)


class TestBadInput:
    def test_classes(self) -> None:
        rng = Rng((0,))
        with pytest.raises(VclError, match="classes names 'a' twice; give each class once"):
            class_log_marginals(belief(), MODEL, X[None], ("a", "b", "a"), rng)
        with pytest.raises(VclError, match="no task 'z' has been learned; known are: a, b, c"):
            class_log_marginals(belief(), MODEL, X[None], ("a", "z"), rng)
        with pytest.raises(VclError, match="classes is \\(\\); give a list of at least one class"):
            class_log_marginals(belief(), MODEL, X[None], (), rng)
        with pytest.raises(VclError, match="classes is 'abc'; give a list"):
            class_log_marginals(belief(), MODEL, X[None], "abc", rng)

    def test_numbers(self) -> None:
        with pytest.raises(VclError, match="draws is 0, theta_draws is 10 and chunk is None; give at least 1"):
            estimate(belief(), 0)
        with pytest.raises(VclError, match="the belief has 1 runs, x has 2 and there are 1 seeds"):
            class_log_marginals(belief(), MODEL, X.expand(2, *X.shape), CLASSES, Rng((0,)))
        with pytest.raises(VclError, match="unknown theta 'mode'"):
            estimate(belief(), 5, theta="mode")

    @pytest.mark.parametrize("prior", [[1.0, 1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, float("nan"), 1.0]])
    def test_priors(self, prior: list[float]) -> None:
        with pytest.raises(VclError, match="give one weight of at least 0 for each of the 3 classes, not all 0"):
            classify(EXACT, prior)

    @pytest.mark.parametrize("prior", ["abc", [1.0, "a", 1.0], {"a": 1.0}, [[1.0], [2.0, 3.0]]])
    def test_priors_that_are_no_numbers(self, prior: object) -> None:
        with pytest.raises(VclError, match="give one number for each of the 3 classes"):
            classify(EXACT, prior)  # type: ignore[arg-type]

    def test_a_class_of_prior_zero_is_never_the_answer(self) -> None:
        assert (classify(EXACT, [0.0, 1.0, 1.0])[:, 0] == 0).all()


def test_float32_and_pixels_as_bytes() -> None:
    model = small_vae()
    prior = model.prior(dict.fromkeys("ab", 16)).expand(2)
    pixels = torch.randint(0, 256, (2, 6, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = class_log_marginals(prior, model, pixels, ("a", "b"), Rng((0, 1)), 4)
    assert (found.shape, found.dtype) == ((2, 6, 2), torch.float32)
    assert torch.allclose(classify(found).sum(-1), torch.ones(2, 6, dtype=torch.float64))
