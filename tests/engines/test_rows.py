"""The fast way through row-wise networks must be the general way, only faster."""

import pytest
import torch
from torch import Tensor, nn

from made import blobs, small_network
from vcl.beliefs.layout import Layout, Params
from vcl.data import Data, concat
from vcl.engines.forward import ESTIMATORS, Estimator, evaluate_draws, evaluate_thetas, plan
from vcl.engines.layers import is_row_wise
from vcl.engines.rows import _ThetaLinear
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical

RUNS = 3
MODEL = Network(mlp(6, [7, 5]), 5, Categorical())
DATA = concat(blobs(9, 0, "t0", "h0", runs=RUNS), blobs(8, 1, "t1", "h1", runs=RUNS, classes=3))
LAYOUT = MODEL.prior({"h0": 2, "h1": 3}).layout


def log_lik(params: Params, x: Tensor, y: Tensor, source: Tensor) -> Tensor:
    return MODEL.log_lik(params, Data(x, y, source, DATA.sources))


def value_and_gradients(estimator: Estimator, draws: int, row_wise: bool) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    mean = torch.randn(RUNS, LAYOUT.size, generator=g, dtype=torch.float64).requires_grad_()
    var = torch.rand(RUNS, LAYOUT.size, generator=g, dtype=torch.float64).requires_grad_()
    one = Data(DATA.x[0].double(), DATA.y[0], DATA.source[0], DATA.sources)
    planned = plan(lambda p: MODEL.log_lik(p, one), LAYOUT.split(mean[0].detach()), DATA.size, estimator, row_wise)
    assert planned.row_wise == row_wise
    noise = torch.randn(RUNS, draws, planned.noise, generator=g, dtype=torch.float64)
    value = evaluate_draws(planned, log_lik, LAYOUT, mean, var, noise, DATA.x.double(), DATA.y, DATA.source)
    weights = torch.randn(value.shape, generator=g, dtype=torch.float64)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), (mean, var))]


@pytest.mark.parametrize("draws", [1, 4])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_values_and_gradients_are_those_of_the_general_way(estimator: Estimator, draws: int) -> None:
    """The same noise gives the same numbers, over several runs, draws and heads of different sizes."""
    fast, general = (value_and_gradients(estimator, draws, row_wise) for row_wise in (True, False))
    assert fast[0].shape == (RUNS, draws, 17)
    for ours, reference in zip(fast, general, strict=True):
        assert torch.allclose(ours, reference, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("draws", [1, 4])
def test_given_parameters_are_those_of_the_general_way(draws: int) -> None:
    theta = torch.randn(RUNS, draws, LAYOUT.size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch = (DATA.x.double(), DATA.y, DATA.source)
    fast, general = (evaluate_thetas(log_lik, LAYOUT, theta, row_wise, *batch) for row_wise in (True, False))
    assert torch.allclose(fast, general, rtol=1e-10)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_first_layer_sees_each_example_once_whatever_the_number_of_draws(estimator: Estimator) -> None:
    seen: list[tuple[int, ...]] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func in (torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default):
                seen.extend(tuple(value.shape) for value in args if isinstance(value, Tensor) and value.dim() == 3)
            return func(*args, **(kwargs or {}))

    with Watch():
        value_and_gradients(estimator, 4, row_wise=True)
    inputs = [shape for shape in seen if 6 in shape[1:] and DATA.size in shape[1:]]
    assert inputs, "products with the raw inputs: 6 values of 17 examples for each run"
    assert all(shape[0] == RUNS for shape in inputs)
    assert not any(shape[0] == 4 * RUNS and 6 in shape[1:] for shape in seen)
    assert not any(4 * DATA.size in shape[1:] and 6 in shape[1:] for shape in seen)


def test_a_layer_without_bias_takes_the_fast_way_too() -> None:
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(6, 4, bias=False), nn.Tanh()), 4, Categorical())
    assert model.row_wise
    layout = model.prior({"h0": 2}).layout
    theta = torch.randn(RUNS, 2, layout.size, generator=torch.Generator().manual_seed(2))
    x = blobs(5, 0, "t", "h0", runs=RUNS).x

    def predict(params: Params, x: Tensor) -> Tensor:
        return model.predict(params, x, "h0")

    fast, general = (evaluate_thetas(predict, layout, theta, row_wise, x) for row_wise in (True, False))
    assert torch.allclose(fast, general, atol=1e-6)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (mlp(6, [5, 5]), True),
        (nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(6, 5)), nn.Tanh()), True),
        (nn.Flatten(), True),
        (nn.Identity(), False),
        (nn.Sequential(nn.Linear(6, 5), nn.Flatten()), False),
        (Residual(), False),
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.LayerNorm(6)), False),
        (nn.Sequential(nn.Conv1d(1, 2, 2), nn.Flatten()), False),
        (nn.Sequential(nn.Flatten(0), nn.Linear(6, 6)), False),
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.Softmax(dim=0)), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_plain_chains_take_the_fast_way(module: nn.Module, expected: bool) -> None:
    assert is_row_wise(module) == expected


def test_a_layer_used_twice_does_not_take_the_fast_way() -> None:
    layer = nn.Linear(6, 6)
    assert not is_row_wise(nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer))
    tied = nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.Linear(6, 6))
    tied[2].weight = tied[1].weight
    assert not is_row_wise(tied)


def test_images_are_flattened_on_the_way() -> None:
    model = small_network(hidden=4, width=6)
    x = torch.randn(RUNS, 5, 2, 3, generator=torch.Generator().manual_seed(3))
    layout = Layout(*model.prior({"h": 2}).layout)
    theta = torch.randn(RUNS, 2, layout.size, generator=torch.Generator().manual_seed(4))
    out = evaluate_thetas(lambda p, x: model.predict(p, x, "h"), layout, theta, True, x)
    assert out.shape == (RUNS, 2, 5, 2)
    assert torch.allclose(
        out, evaluate_thetas(lambda p, x: model.predict(p, x, "h"), layout, theta, True, x.flatten(2))
    )


@pytest.mark.parametrize("own", [True, False], ids=["rows of each draw", "rows shared by all draws"])
def test_the_gradient_in_the_rows_is_there_when_it_is_asked_for_alone(own: bool) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3 if own else 1, 5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    W, b = torch.randn(2, 3, 6, 4, generator=g).double(), torch.randn(2, 3, 6, generator=g).double()
    up = torch.randn(2, 3, 5, 6, generator=g).double()
    (found,) = torch.autograd.grad((_ThetaLinear.apply(x, W, b) * up).sum(), x)
    (known,) = torch.autograd.grad(((x @ W.mT + b.unsqueeze(2)) * up).sum(), x)
    assert torch.allclose(found, known)
