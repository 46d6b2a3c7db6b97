"""Learned noise against the best q(theta) q(tau) of linear regression, found independently."""

import pytest
import torch
from torch import Tensor

from made import linear_data
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.point import Point
from vcl.data import Data, concat, dataset
from vcl.errors import VclError
from vcl.fitting import learned_noise
from vcl.fitting.learned_noise import NoiseBelief, expected_squares
from vcl.fitting.loop import Ascent
from vcl.models import LinearGaussian, Network, mlp
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops.rng import Rng
from vcl.projections import Exact, Target, VariationalKL
from vcl.recursion import Method, Task, initial, learn

PRIOR = NoiseBelief.prior(1, noise=1.0, examples=1.0)


def exact_squares(q: FullGaussian, data: Data) -> Tensor:
    """sum_n (y - x^T m)^2 + x^T S x, [R, 1]."""
    x, y = data.x, data.y
    spread = (x @ torch.linalg.inv(q.precision) * x).sum((1, 2))
    return ((y - (x @ q.mean[..., None])[..., 0]).square().sum(1) + spread)[:, None]


def coordinate_ascent(
    q: FullGaussian, before: NoiseBelief, data: Data, rounds: int
) -> tuple[FullGaussian, NoiseBelief]:
    noise = before
    for _ in range(rounds):
        (sd,) = noise.of_run(0)
        model = LinearGaussian(4, sd)
        fitted = Exact()(Target(q, model, data, model.prior({}).to(torch.float64)), Rng(0))
        noise = before.update(exact_squares(fitted, data), data.size)
    return fitted, noise


def best(mean: Tensor, precision: Tensor, a: float, b: float, data: Data) -> tuple[Tensor, Tensor, float, float]:
    """The best q(theta) q(tau) from the equation E[tau] = a' / b'(E[tau]) alone, solved by halving in log E[tau]."""
    X, y = data.x[0], data.y[0]

    def given(tau: float) -> tuple[Tensor, Tensor, float]:
        P = precision + tau * X.T @ X
        m = torch.linalg.solve(P, precision @ mean + tau * X.T @ y)
        rate = b + 0.5 * float((y - X @ m).square().sum() + torch.trace(X.T @ X @ torch.linalg.inv(P)))
        return m, P, rate

    shape, low, high = a + len(y) / 2, 1e-8, 1e8
    for _ in range(200):
        tau = (low * high) ** 0.5
        low, high = (tau, high) if shape / given(tau)[2] > tau else (low, tau)
    m, P, rate = given(tau)
    return m, P, shape, rate


def bound(m: Tensor, L: Tensor, a: Tensor, b: Tensor, before: FullGaussian, noise: NoiseBelief, data: Data) -> Tensor:
    """E_q log p(y | theta, tau) - KL(q(theta) || p(theta)) - KL(q(tau) || p(tau)), by torch's distributions."""
    X, y = data.x[0], data.y[0]
    q = torch.distributions.MultivariateNormal(m, scale_tril=L)
    p = torch.distributions.MultivariateNormal(before.mean[0], precision_matrix=before.precision[0])
    squares = (y - X @ m).square().sum() + ((X @ L).square()).sum()
    fit = 0.5 * len(y) * (torch.digamma(a) - b.log()) - 0.5 * a / b * squares
    kl = torch.distributions.kl_divergence
    gammas = torch.distributions.Gamma(a, b), torch.distributions.Gamma(noise.shape[0, 0], noise.rate[0, 0])
    return fit - kl(q, p) - kl(*gammas)


def begin() -> FullGaussian:
    return Exact().initial(LinearGaussian(4, 1.0, 2.0).prior({}).to(torch.float64))


def test_coordinate_ascent_is_the_best_product_over_one_and_several_tasks() -> None:
    """And the truth, 0.5, lies within the credible interval after each task."""
    q, noise = begin(), PRIOR
    mean, precision, a, b = q.mean[0], q.precision[0], 0.5, 0.5
    assert (noise.shape.item(), noise.rate.item()) == (0.5, 0.5)
    for t, size in enumerate((30, 80, 20)):
        data = linear_data(size, t)
        before, prior = q, noise
        q, noise = coordinate_ascent(q, noise, data, 60)
        mean, precision, a, b = best(mean, precision, a, b, data)
        assert torch.allclose(q.mean[0], mean, rtol=1e-9)
        assert torch.allclose(q.precision[0], precision, rtol=1e-9)
        assert noise.shape.item() == pytest.approx(a)
        assert noise.rate.item() == pytest.approx(b, rel=1e-9)
        lower, upper = noise.interval(0.95)
        assert lower.item() < 0.5 < upper.item()
        # A stationary point of the bound, and no other start leads elsewhere.
        root = torch.linalg.cholesky(torch.linalg.inv(q.precision[0]))
        leaves = [part.clone().requires_grad_() for part in (q.mean[0], root, noise.shape[0, 0], noise.rate[0, 0])]
        value = bound(*leaves, before, prior, data)  # type: ignore[arg-type]
        for slope in torch.autograd.grad(value, leaves):
            assert float(slope.tril().abs().amax() if slope.dim() == 2 else slope.abs().amax()) < 1e-6
    assert noise.shape.item() == 0.5 + 65
    assert (upper - lower).item() < 0.2


def test_each_round_raises_the_bound() -> None:
    data, before, values = linear_data(30, 0), begin(), []
    for rounds in (1, 2, 3, 5):
        q, noise = coordinate_ascent(before, PRIOR, data, rounds)
        root = torch.linalg.cholesky(torch.linalg.inv(q.precision[0]))
        values.append(float(bound(q.mean[0], root, noise.shape[0, 0], noise.rate[0, 0], before, PRIOR, data)))
    assert values == sorted(values)
    assert values[1] > values[0] + 1e-6


def test_expected_squares_are_those_of_the_belief(monkeypatch: pytest.MonkeyPatch) -> None:
    """By draws: the mean is exact in pairs, so only the spread has an error, of a share sqrt(2 / pairs)."""
    data = linear_data(12, 3, runs=2)
    q, _ = coordinate_ascent(begin(), PRIOR, data.select([0]), 3)
    both = FullGaussian(q.layout, q.mean.expand(2, -1), q.precision.expand(2, -1, -1))
    model = LinearGaussian(4)
    exact, certain = exact_squares(both, data), (data.y - data.x @ q.mean[0]).square().sum(1)[:, None]
    found = expected_squares(both, model, data, Rng((0, 1)), draws=4000)
    assert found.shape == (2, 1)
    assert torch.allclose(found - certain, exact - certain, rtol=5 * (2 / 2000) ** 0.5)
    sure = expected_squares(Point(q.layout, both.mean), model, data, Rng((0, 1)), draws=1)
    assert torch.allclose(sure, certain)
    alone = expected_squares(q, model, data.select([1]), Rng((1,)), draws=4000)
    assert torch.allclose(alone, found[1:], rtol=1e-12)
    monkeypatch.setattr(learned_noise, "chunk_for", lambda each: 5)
    assert torch.allclose(expected_squares(both, model, data, Rng((0, 1)), draws=4000), found, rtol=1e-12)


def test_every_target_of_a_network_has_noise_of_its_own() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(9, 3, generator=g)
    y = torch.stack([torch.zeros(9), torch.full((9,), 2.0)], 1)
    data = dataset(x, y, "t", "h", 2)
    model = Network(mlp(3, [4]), 4, Normal())
    q = model.prior({"h": 2})
    nothing = Point(q.layout, torch.zeros(2, q.layout.size))
    found = expected_squares(nothing, model, data, Rng((0, 1)))
    assert torch.equal(found, torch.tensor([[0.0, 36.0]] * 2).double())
    after = NoiseBelief.prior(2, 2, noise=1.0, examples=1.0).update(found, data.size)
    assert torch.allclose(after.noise, torch.tensor([[1 / 10, 37 / 10]] * 2).double().sqrt())
    assert Normal(after.of_run(1)).noise == pytest.approx((0.1**0.5, 3.7**0.5))
    assert torch.equal(after.select([1]).noise, after.noise[1:])


def test_the_deviation_and_the_interval_are_those_of_a_gamma() -> None:
    belief = NoiseBelief(torch.tensor([[0.5, 3.0, 400.0]]).double(), torch.tensor([[2.0, 0.1, 7.0]]).double())
    assert belief.sd.tolist()[0] == pytest.approx([float("inf"), (0.1 / 2) ** 0.5, (7 / 399) ** 0.5])
    for level in (0.5, 0.99):
        lower, upper = belief.interval(level)
        for bound, share in ((lower, (1 + level) / 2), (upper, (1 - level) / 2)):
            found = torch.special.gammainc(belief.shape, belief.rate / bound.square())
            assert torch.allclose(found, torch.full_like(found, share), atol=1e-9)
    tau = torch.distributions.Gamma(3.0, 0.1).sample((200_000,))
    assert (1 / tau).mean().sqrt().item() == pytest.approx(belief.sd[0, 1].item(), rel=0.02)


def test_what_is_no_noise_is_refused() -> None:
    with pytest.raises(VclError, match="noise is 0"):
        NoiseBelief.prior(1, noise=0.0)
    with pytest.raises(VclError, match=r"expected_squares has shape \(1, 2\) but the noise has \(1, 1\)"):
        PRIOR.update(torch.zeros(1, 2), 3)
    with pytest.raises(VclError, match="finite sums of squares"):
        PRIOR.update(torch.tensor([[float("nan")]]), 3)
    with pytest.raises(VclError, match="level is 0"):
        PRIOR.interval(0)
    model = LinearGaussian(4)
    q, data = model.prior({}).to(torch.float64), linear_data(5, 0)
    with pytest.raises(VclError, match="draws is 0"):
        expected_squares(q, model, data, Rng(0), draws=0)
    with pytest.raises(VclError, match="the belief has 1 runs, the data has 1 and there are 2 seeds"):
        expected_squares(q, model, data, Rng((0, 1)))
    two = concat(dataset(data.x[0], data.y[0], "a", "a"), dataset(data.x[0], data.y[0], "b", "b"))
    with pytest.raises(VclError, match=r"heads \['a', 'b'\]; give the examples of one head"):
        expected_squares(q, model, two, Rng(0))
    classes = Network(mlp(4, [2]), 2, Categorical())
    labels = dataset(data.x[0].float(), torch.zeros(5).long(), "a", "a")
    with pytest.raises(VclError, match=r"floating-point targets of one head, but these are torch.int64"):
        expected_squares(classes.prior({"a": 2}), classes, labels, Rng(0))


def test_a_network_learns_its_noise_from_task_to_task() -> None:
    """Noise 0.1 in the first target and 0.5 in the second, through the recursion, from a guess of 1."""
    g, noise = torch.Generator().manual_seed(0), NoiseBelief.prior(2, noise=1.0)
    method = Method(VariationalKL(Ascent(40, 30, 0.02), 2))

    def network(noise: NoiseBelief) -> Network:
        return Network(mlp(2, [8]), 8, Normal(noise.of_run(0)))

    before = initial(network(noise), method, 1)
    for t in range(2):
        x = torch.randn(150, 2, generator=g)
        y = x.sum(1, keepdim=True) + torch.tensor([0.1, 0.5]) * torch.randn(150, 2, generator=g)
        task, prior = Task(f"{t}", dataset(x, y, f"{t}", "all"), heads={"all": 2}), noise
        for _ in range(4):
            model = network(noise)
            if t:
                with pytest.raises(VclError, match="not the network that the state was learned with"):
                    next(learn(before, [task], model, method, Rng(0)))
            (state,) = learn(before._replace(fingerprint=None), [task], model, method, Rng(0))
            noise = prior.update(expected_squares(state.predictive["all"], model, task.train, Rng(1)), 150)
        before = state
    assert noise.shape.tolist() == [[150.5, 150.5]]
    lower, upper = noise.interval(0.99)
    assert lower[0, 1].item() < 0.5 < upper[0, 1].item()
    assert noise.noise[0, 0].item() < 0.25


def test_a_faded_belief_is_the_power_of_both() -> None:
    """log of Gamma(a, b)^(1-f) Gamma(a0, b0)^f differs from that of the result by a constant."""
    old = NoiseBelief(torch.tensor([[9.0]]).double(), torch.tensor([[2.0]]).double())
    prior, share = NoiseBelief.prior(1, noise=0.5), 0.3
    tau = torch.tensor([0.1, 1.0, 4.0, 20.0]).double()

    def log_p(q: NoiseBelief) -> torch.Tensor:
        return torch.distributions.Gamma(q.shape[0, 0], q.rate[0, 0]).log_prob(tau)

    rest = log_p(old.fade(prior, share)) - (1 - share) * log_p(old) - share * log_p(prior)
    torch.testing.assert_close(rest, rest[:1].expand_as(rest))
    assert old.fade(prior, 0).shape.equal(old.shape)
    assert old.fade(prior, 1).rate.equal(prior.rate)
    with pytest.raises(VclError, match=r"share is 1.5; give the share of the past to fade, from 0 to 1"):
        old.fade(prior, 1.5)
