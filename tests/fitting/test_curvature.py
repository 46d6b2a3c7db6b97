"""Phi_t against hand-computed gradients, loops, and the definitions."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from made import blobs, linear_data, small_network
from vcl.beliefs.layout import Layout
from vcl.data import Data, concat, dataset
from vcl.errors import VclError
from vcl.fitting.curvature import Curvature
from vcl.models import LinearGaussian, Model, Network, mlp
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops.rng import Rng

RNG = Rng((0, 1))


def thetas(layout: Layout, runs: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return 0.5 * torch.randn(runs, layout.size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def loop_of_squares(model: Model, layout: Layout, theta: Tensor, data: Data) -> Tensor:
    """sum_n (grad log p(y_n))^2 by one backward pass per example."""
    rows = []
    for r in range(theta.shape[0]):
        total = torch.zeros(layout.size, dtype=theta.dtype)
        for n in range(data.size):
            leaf = theta[r].clone().requires_grad_()
            one = Data(data.x[r, n : n + 1], data.y[r, n : n + 1], data.source[r, n : n + 1], data.sources)
            (gradient,) = torch.autograd.grad(model.log_lik(layout.split(leaf), one).sum(), leaf)
            total += gradient.square()
        rows.append(total)
    return torch.stack(rows)


class Mixing(nn.Module):
    """A module that is no chain of rows, so it takes the general way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.a(x)) * self.b(x)


def two_heads() -> Data:
    return concat(blobs(8, 0, "t0", "h0", runs=2), blobs(6, 1, "t1", "h1", runs=2, classes=3))


CASES: dict[str, tuple[Any, Data, dict[str, int]]] = {
    "network": (small_network(), blobs(12, 0, "t0", "h0", runs=2), {"h0": 2}),
    "deep": (Network(mlp(6, [5, 4]), 4, Categorical()), blobs(12, 0, "t0", "h0", runs=2, classes=3), {"h0": 3}),
    "two heads": (small_network(), two_heads(), {"h0": 2, "h1": 3}),
    "general way": (Network(Mixing(), 5, Categorical()), blobs(12, 0, "t0", "h0", runs=2), {"h0": 2}),
    "regressor": (
        Network(mlp(6, [5]), 5, Normal(0.3)),
        dataset(torch.randn(9, 6, generator=torch.Generator().manual_seed(1)), torch.arange(9.0), "t0", "h0", 2),
        {"h0": 1},
    ),
}


@pytest.mark.parametrize(("model", "data", "heads"), CASES.values(), ids=CASES)
def test_the_empirical_fisher_is_the_sum_of_squared_single_example_gradients(
    model: Any, data: Data, heads: dict[str, int]
) -> None:
    layout = model.prior(heads).layout
    theta = thetas(layout)
    phi = Curvature()(model, layout, theta, data, RNG)
    assert torch.allclose(phi, loop_of_squares(model, layout, theta, data), rtol=1e-4, atol=1e-5)


def test_a_logistic_regression_by_hand() -> None:
    """p(y=1 | x) = s(w.x + b) as a two-class head: the gradient of log p in row c is (1[y=c] - p_c) x."""
    x = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]])
    y = torch.tensor([1, 0, 1])
    model = Network(nn.Flatten(), 2, Categorical())
    layout = model.prior({"h": 2}).layout
    W, b = torch.tensor([[0.1, -0.2], [0.3, 0.4]]), torch.tensor([0.05, -0.1])
    theta = layout.join({"heads.h.weight": W, "heads.h.bias": b}).unsqueeze(0)
    by_hand = {"W": torch.zeros(2, 2), "b": torch.zeros(2)}
    for n in range(3):
        logits = [float(W[c] @ x[n] + b[c]) for c in range(2)]
        p1 = 1 / (1 + 2.718281828459045 ** (logits[0] - logits[1]))
        for c, p in ((0, 1 - p1), (1, p1)):
            error = float(y[n] == c) - p
            by_hand["W"][c] += (error * x[n]) ** 2
            by_hand["b"][c] += error**2
    phi = layout.split(Curvature()(model, layout, theta, dataset(x, y, "t", "h"), Rng((0,)))[0])
    assert torch.allclose(phi["heads.h.weight"], by_hand["W"], atol=1e-6)
    assert torch.allclose(phi["heads.h.bias"], by_hand["b"], atol=1e-6)


def test_it_is_not_the_square_of_a_batch_gradient() -> None:
    """The common bug: at an optimum the summed gradient vanishes while the Fisher information does not."""
    model, data, heads = CASES["network"]
    layout = model.prior(heads).layout
    theta = thetas(layout).requires_grad_()
    total = torch.stack(
        [
            model.log_lik(layout.split(theta[r]), Data(data.x[r], data.y[r], data.source[r], data.sources)).sum()
            for r in range(2)
        ]
    )
    (gradient,) = torch.autograd.grad(total.sum(), theta)
    phi = Curvature()(model, layout, theta.detach(), data, RNG)
    for wrong in (gradient.square(), gradient.square() / data.size):
        assert not torch.allclose(phi, wrong, rtol=0.1, atol=1e-3)


def test_chunks_do_not_change_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("deep", "general way"):
        model, data, heads = CASES[name]
        layout = model.prior(heads).layout
        whole = [Curvature(kind)(model, layout, thetas(layout), data, RNG) for kind in ("empirical", "true")]
        with monkeypatch.context() as patch:
            patch.setattr("vcl.fitting.curvature.VALUES_IN_FLIGHT", 2 * 5 * layout.size)
            parts = [Curvature(kind)(model, layout, thetas(layout), data, RNG) for kind in ("empirical", "true")]
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(whole, parts, strict=True))


def test_fewer_samples_stand_for_the_whole_task() -> None:
    """Sums over few examples are scaled to all N_t: right on average, and exactly so if all examples are equal."""
    model, _, heads = CASES["network"]
    layout = model.prior(heads).layout
    same = dataset(torch.ones(40, 6), torch.ones(40, dtype=torch.int64), "t", "h0", 2)
    theta = thetas(layout)
    every = Curvature()(model, layout, theta, same, RNG)
    assert torch.allclose(Curvature(samples=4)(model, layout, theta, same, RNG), every, rtol=1e-5)
    data = blobs(40, 3, "t", "h0", runs=400)
    wide = theta[:1].expand(400, -1).contiguous()
    mean = Curvature(samples=10)(model, layout, wide, data, Rng(tuple(range(400)))).mean(0)
    exact = Curvature()(model, layout, theta[:1], blobs(40, 3, "t", "h0"), Rng((0,)))[0]
    assert torch.allclose(mean, exact, rtol=0.1, atol=0.02 * float(exact.max()))


def test_more_samples_than_examples_take_each_once() -> None:
    model, data, heads = CASES["network"]
    layout = model.prior(heads).layout
    theta = thetas(layout)
    assert torch.equal(
        Curvature(samples=600)(model, layout, theta, data, RNG), Curvature()(model, layout, theta, data, RNG)
    )


def test_labels_drawn_from_the_model_give_its_expected_fisher_information() -> None:
    """For a logistic regression the expectation over y is known: sum_n p_n (1 - p_n) x_n^2 in each row."""
    g = torch.Generator().manual_seed(5)
    x = torch.randn(6, 2, generator=g).repeat(2000, 1)
    model = Network(nn.Flatten(), 2, Categorical())
    layout = model.prior({"h": 2}).layout
    theta = thetas(layout, 1, 7)
    W, b = layout.split(theta[0])["heads.h.weight"], layout.split(theta[0])["heads.h.bias"]
    p = torch.softmax(x @ W.T + b, -1)
    # All labels are 1, which the empirical Fisher believes and the true one does not look at.
    data = dataset(x, torch.ones(12000, dtype=torch.int64), "t", "h")
    expected = ((p * (1 - p)).T @ x.square()) / 12000
    true = layout.split(Curvature("true")(model, layout, theta, data, Rng((0,)))[0])["heads.h.weight"] / 12000
    empirical = layout.split(Curvature()(model, layout, theta, data, Rng((0,)))[0])["heads.h.weight"] / 12000
    assert torch.allclose(true, expected, rtol=0.03)
    assert not torch.allclose(empirical, expected, rtol=0.1)


def test_drawn_targets_of_a_regressor_have_the_noise_of_the_model() -> None:
    """E grad^2 = x^2 / s^2 for y = w.x + e, whatever the targets in the data are."""
    data = linear_data(4000, 0)
    model = LinearGaussian(4, 0.5)
    layout = model.prior({}).layout
    w = torch.ones(1, 4, dtype=torch.float64)
    phi = Curvature("true")(model, layout, w, data, Rng((0,)))[0]
    assert torch.allclose(phi, data.x[0].square().sum(0) / 0.25, rtol=0.1)


def test_the_hessian_of_linear_regression_is_exact() -> None:
    data = linear_data(30, 0, runs=2)
    model = LinearGaussian(4, 0.5)
    layout = model.prior({}).layout
    phi = Curvature("hessian")(model, layout, thetas(layout, dtype=torch.float64), data, RNG)
    exact = (data.x[0].T @ data.x[0] / 0.25).diagonal()
    assert torch.allclose(phi, exact.expand(2, -1), rtol=1e-12)


def test_the_hessian_of_a_network_agrees_with_autograd_and_is_never_negative() -> None:
    model, data, heads = CASES["general way"]
    layout = model.prior(heads).layout
    theta = thetas(layout)
    phi = Curvature("hessian")(model, layout, theta, data, RNG)
    for r in range(2):
        one = Data(data.x[r], data.y[r], data.source[r], data.sources)
        full = torch.autograd.functional.hessian(
            lambda at, one=one: model.log_lik(layout.split(at), one).sum(), theta[r]
        )
        assert torch.allclose(phi[r], (-full.diagonal()).clamp(min=0), atol=1e-4)
        assert (full.diagonal() > 1e-3).any()  # so the clamp is really tried


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Curvature(samples=0), "the number of Fisher samples is 0; give at least 1"),
        (Curvature("fischer"), "unknown curvature 'fischer'"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_one_sentence(bad: Curvature, words: str) -> None:
    with pytest.raises(VclError, match=words):
        bad.check()


def test_a_hessian_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, heads = CASES["network"]
    layout = model.prior(heads).layout
    monkeypatch.setattr("vcl.fitting.curvature.HESSIAN_LIMIT", layout.size - 1)
    with pytest.raises(VclError, match="use the curvature 'empirical' or 'true'"):
        Curvature("hessian")(model, layout, thetas(layout), data, RNG)
