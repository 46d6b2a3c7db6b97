import warnings

import pytest
import torch
from torch import Tensor, nn

from made import blobs, linear_data, small_network
from oracles import linear_posterior
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.coresets import Nothing
from vcl.data import dataset
from vcl.engines.layered import Layered
from vcl.engines.size import values_made
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.models import LinearGaussian, Network
from vcl.models.likelihoods import Categorical, Normal
from vcl.ops import devices
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import VariationalKL
from vcl.recursion import Method, Task, initial, learn

NETWORK = small_network()
PRIOR = NETWORK.prior({"h": 2, "other": 3})
X = blobs(30, 0, "t", "h", runs=2).x


def belief(log_var: float, runs: int = 2) -> MeanField:
    g = torch.Generator().manual_seed(0)
    mean = torch.randn(1, PRIOR.layout.size, generator=g).expand(runs, -1)
    return MeanField(PRIOR.layout, mean, torch.full_like(mean, log_var))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_trap_probabilities_are_averaged_and_not_logits(estimator: Estimator) -> None:
    q, x = belief(-0.5), 0.3 * X
    p = predict(q, NETWORK, x, "h", Rng((0, 1)), draws=20_000, estimator=estimator)
    theta = q.draw(torch.randn(2, 20_000, PRIOR.layout.size, generator=torch.Generator().manual_seed(1)))[0]
    each = torch.vmap(lambda params: NETWORK.predict(params, x[0], "h").double())(PRIOR.layout.split(theta))
    assert torch.allclose(p[0].double(), each.mean(0), atol=0.02)
    logits_averaged = each.log().mean(0).softmax(-1)
    assert (logits_averaged - each.mean(0)).abs().max() > 0.1, "the wrong average must be told apart here"
    assert torch.allclose(p.sum(-1), torch.ones(2, 30), atol=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("chunk", [1, 64, 10**9])
def test_chunks_change_nothing_but_the_memory(estimator: Estimator, chunk: int) -> None:
    q = belief(-30.0)  # next to no variance, so the noise itself does not matter
    p = predict(q, NETWORK, X, "h", Rng((0, 1)), draws=3, estimator=estimator, chunk=chunk)
    certain = NETWORK.predict(PRIOR.layout.split(q.mean[0]), X[0], "h")
    assert torch.allclose(p[1], certain, atol=1e-4)


def test_drawn_weights_are_the_same_whatever_the_chunks() -> None:
    few, many = (predict(belief(0.0), NETWORK, X, "h", Rng((0, 1)), draws=5, chunk=chunk) for chunk in (7, 10**6))
    assert torch.allclose(few, many, atol=1e-6)


def test_the_first_layer_is_multiplied_once_for_all_draws_and_noise_is_shared_by_all_inputs() -> None:
    q = belief(-1.0)
    whole, parts = (predict(q, NETWORK, X, "h", Rng((0, 1)), 50, "local", chunk=chunk) for chunk in (10**9, 7))
    torch.testing.assert_close(whole, parts)
    # Twins among the inputs get the same answer, as they do where weights are drawn.
    twins = predict(q, NETWORK, torch.cat([X, X], dim=1), "h", Rng((0, 1)), 50, "local")
    torch.testing.assert_close(twins[:, :30], twins[:, 30:])
    wide = torch.rand(2, 40, X.shape[2], generator=torch.Generator().manual_seed(3))
    local, drawn = (predict(q, NETWORK, wide, "h", Rng((0, 1)), 20_000, how) for how in ESTIMATORS)
    torch.testing.assert_close(local, drawn, atol=0.02, rtol=0)


def test_the_device_is_an_argument() -> None:
    one, two = (predict(belief(0.0), NETWORK, X, "h", Rng((0, 1)), draws=3, device=device) for device in (None, "cpu"))
    assert torch.equal(one, two)


def test_a_run_predicts_the_same_alone_and_in_a_stack() -> None:
    both = predict(belief(0.0), NETWORK, X, "h", Rng((4, 5)), draws=5)
    alone = predict(belief(0.0, runs=1), NETWORK, X[:1], "h", Rng((5,)), draws=5)
    assert torch.equal(both[1], alone[0])


def test_a_point_needs_one_draw_and_a_full_gaussian_uses_its_correlations() -> None:
    theta = belief(0.0).mean
    p = predict(Point(PRIOR.layout, theta), NETWORK, X, "h", Rng((0, 1)), draws=1)
    assert torch.allclose(p[0], NETWORK.predict(PRIOR.layout.split(theta[0]), X[0], "h"), atol=1e-6)

    data, test = linear_data(20, 0), linear_data(6, 1)
    mean, precision = linear_posterior(data.x[0], data.y[0], 0.5, 2.0)
    q = FullGaussian(Layout(("w",), ((4,),)), mean[None], precision[None])
    moments = predict(q, LinearGaussian(4, 0.5, 2.0), test.x, "all", Rng((0,)), draws=100_000, chunk=10**7)
    first, variance = Normal(0.5).moments(moments[0])
    spread = (test.x[0] @ torch.linalg.inv(precision) * test.x[0]).sum(-1) + 0.25
    assert torch.allclose(first[:, 0], test.x[0] @ mean, atol=0.02)
    assert torch.allclose(variance[:, 0], spread, rtol=0.05)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(VclError, match="draws is 0 and chunk is 5"):
        predict(belief(0.0), NETWORK, X, "h", Rng((0, 1)), draws=0, chunk=5)
    with pytest.raises(VclError, match="unknown estimator 'mean'"):
        predict(belief(0.0), NETWORK, X, "h", Rng((0, 1)), estimator="mean")  # type: ignore[arg-type]
    with pytest.raises(VclError, match="the belief has 2 runs, x has 1 and there are 2 seeds"):
        predict(belief(0.0), NETWORK, X[:1], "h", Rng((0, 1)))
    with pytest.raises(VclError, match="no task has added a head 'new' yet"):
        predict(belief(0.0), NETWORK, X, "new", Rng((0, 1)))


@pytest.mark.parametrize("chunk", [12, 100, 10**6])
def test_no_more_rows_than_the_chunk_are_worked_on_at_once(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    plain = Layered.predictions

    def spy(self: Layered, theta: torch.Tensor, x: torch.Tensor, head: str) -> torch.Tensor:
        seen.append(theta.shape[0] * theta.shape[1] * x.shape[1])
        return plain(self, theta, x, head)

    monkeypatch.setattr(Layered, "predictions", spy)
    predict(belief(0.0), NETWORK, X, "h", Rng((0, 1)), draws=3, chunk=chunk)
    assert sum(seen) == 2 * 3 * 30
    assert max(seen) == min(chunk // 6 * 6, 180)


class Conv(nn.Module):
    """Not a chain of linear layers, and remembers how many rows it was called for."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(x.shape[0])
        return torch.relu(self.conv(x.unsqueeze(1))).mean((2, 3))


def test_rows_in_flight_follow_from_what_the_model_makes_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = Conv()
    model = Network(trunk, 4, Categorical())
    q = model.prior({"h": 2}).expand(2)
    x, rng = torch.rand(2, 50, 12, 12), Rng((0, 1))
    wanted = predict(q, model, x, "h", rng, draws=6)
    params, one = q.layout.split(q.mean[0]), x[0, :1]
    each = values_made(lambda: model.predict(params, one, "h"))
    assert each > 144 + 2 * 4 * 100, "the input, the convolution and the ReLU at least"
    monkeypatch.setattr(devices, "CPU", devices.CPU._replace(values=2 * 6 * 7 * each))
    trunk.rows.clear()
    found = predict(q, model, x, "h", rng, draws=6)
    assert trunk.rows[0] == 1, "counted on one example"
    assert set(trunk.rows[1:]) == {7, 1}, "seven examples at once for 2 runs and 6 draws, and the last one"
    assert torch.allclose(found, wanted, atol=1e-6)
    # Where not even one example of all draws fits, fewer draws are held at once.
    monkeypatch.setattr(devices, "CPU", devices.CPU._replace(values=2 * 3 * each))
    trunk.rows.clear()
    assert predict(q, model, x, "h", rng, draws=6).shape == wanted.shape
    assert set(trunk.rows) == {1}


def test_transformers_are_the_same_in_training_and_evaluation_mode() -> None:
    """The fused path of evaluation mode has no derivative; dropout is off in it, so it may be there."""

    def learned(dropout: float, training: bool) -> Tensor:
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        trunk = nn.Sequential(nn.TransformerEncoder(layer, 1), nn.Flatten()).train(training)
        model, method = Network(trunk, 24, Categorical()), Method(VariationalKL(Ascent(2, 8, 0.01), 2), Nothing())
        g = torch.Generator().manual_seed(0)
        data = dataset(torch.randn(16, 3, 8, generator=g), torch.arange(16) % 2, head="h", runs=2)
        rng = Rng((0, 1))
        (state,) = learn(initial(model, method, 2), [Task("t", data, data, {"h": 2})], model, method, rng)
        assert torch.backends.mha.get_fastpath_enabled(), "torch's switch is put back"
        return predict(state.predictive["h"], model, data.x, "h", rng, draws=3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of nested tensors, by torch
        wanted = learned(0.0, True)
        for dropout in (0.0, 0.1):
            assert torch.allclose(learned(dropout, False), wanted, atol=1e-6)
