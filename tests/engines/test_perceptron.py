"""The gradient that is written out must be the one that torch finds, from the same noise."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from made import blobs, small_network
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data, concat, dataset
from vcl.engines.forward import ESTIMATORS, Estimator
from vcl.engines.perceptron import Perceptron, parts
from vcl.fitting.step import Step, by_autograd
from vcl.models import LinearGaussian, Network, mlp
from vcl.models.base import as_perceptron
from vcl.models.likelihoods import Categorical, Normal
from vcl.projections.vi import CLIMBS, Climbs, Elbo

WIDTH, CLASSES, TOTAL = 6, 3, 50


def network(hidden: list[int], bias: bool = True) -> Network:
    layers: list[nn.Module] = [nn.Flatten()]
    for width, out in pairwise([WIDTH, *hidden]):
        layers += [nn.Linear(width, out, bias=bias), nn.ReLU()]
    return Network(nn.Sequential(*layers), [WIDTH, *hidden][-1], Categorical())


def examples(n: int, runs: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Data:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(runs, n, 2, 3, generator=g, dtype=torch.float64).to(dtype)
    y = torch.randint(0, CLASSES, (runs, n), generator=g)
    one = dataset(x[0], y[0], head="h", runs=runs)
    return one._replace(x=x, y=y)


def problem(
    model: Network, estimator: Estimator, draws: int, data: Data, climbs: Climbs = "log_var", dtype=torch.float64
) -> tuple[Elbo, tuple[Tensor, ...], Tensor]:  # type: ignore[no-untyped-def]
    g = torch.Generator().manual_seed(1)
    prior = model.prior({"h": CLASSES}).to(dtype)
    shape = (data.runs, prior.layout.size)
    previous, q = (
        MeanField(prior.layout, *torch.randn(2, *shape, generator=g, dtype=torch.float64).to(dtype)) for _ in range(2)
    )
    elbo = Elbo(model, previous, draws, estimator, climbs)
    noise = torch.randn(data.runs, elbo.noise(data), generator=g, dtype=torch.float64).to(dtype)
    return elbo, elbo.parameters(q), noise


def both_ways(elbo: Elbo, at: tuple[Tensor, ...], data: Data, noise: Tensor) -> tuple[Step, Step]:
    assert elbo.perceptron(at[0], data) is not None, "this is about the way that is written out"
    return elbo.gradient(at, data, TOTAL, noise), by_autograd(elbo, at, data, TOTAL, noise)


def assert_same(ours: Step, torchs: Step, tolerance: float = 1e-10) -> None:
    assert torch.allclose(ours.value, torchs.value, rtol=tolerance, atol=tolerance)
    for mine, other in zip(ours.gradients, torchs.gradients, strict=True):
        assert torch.allclose(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [1, 5, 16])
@pytest.mark.parametrize("draws", [1, 4])
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("hidden", [[], [7], [7, 5], [4, 6, 8]], ids=str)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_values_and_gradients_are_torchs(
    estimator: Estimator, hidden: list[int], runs: int, draws: int, size: int
) -> None:
    data = examples(size, runs)
    elbo, at, noise = problem(network(hidden), estimator, draws, data)
    assert_same(*both_ways(elbo, at, data, noise))


@pytest.mark.parametrize("climbs", CLIMBS)
@pytest.mark.parametrize("draws", [1, 4])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_layers_without_biases_and_either_parameter(estimator: Estimator, draws: int, climbs: Climbs) -> None:
    data = examples(5, 3)
    elbo, at, noise = problem(network([7, 5], bias=False), estimator, draws, data, climbs)
    assert_same(*both_ways(elbo, at, data, noise))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_memory_of_one_batch_serves_another_of_any_size(estimator: Estimator) -> None:
    elbo, at, _ = problem(network([7, 5]), estimator, 2, examples(5, 2))
    for size in (5, 8, 5, 2):
        data = examples(size, 2, seed=size)
        noise = torch.randn(2, elbo.noise(data), dtype=torch.float64, generator=torch.Generator().manual_seed(size))
        assert_same(*both_ways(elbo, at, data, noise))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_other_parameters_than_last_time_are_seen(estimator: Estimator) -> None:
    data = examples(5, 2)
    elbo, at, noise = problem(network([7]), estimator, 2, data)
    elbo.gradient(at, data, TOTAL, noise)
    moved = tuple(value + 0.1 for value in at)
    assert_same(*both_ways(elbo, moved, data, noise))
    moved[0].sub_(0.3)
    assert_same(*both_ways(elbo, moved, data, noise))


@pytest.mark.parametrize("draws", [1, 4])
def test_large_networks_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch, draws: int) -> None:
    """Pieces of a few rows, and moments where the gradient will be: nothing but the memory changes."""
    from vcl.beliefs.mean_field import KlTo

    for where in (parts, KlTo):
        monkeypatch.setattr(where, "SMALL", 0)
        monkeypatch.setattr(where, "PIECE", 13)
    data = examples(5, 3)
    elbo, at, noise = problem(network([7, 5]), "local", draws, data)
    assert_same(*both_ways(elbo, at, data, noise))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_pixels_are_divided_by_255(estimator: Estimator) -> None:
    data = examples(9, 2, torch.float32)
    data = data._replace(x=torch.randint(0, 256, data.x.shape, generator=torch.Generator().manual_seed(2)).byte())
    elbo, at, noise = problem(network([7]), estimator, 3, data, dtype=torch.float32)
    assert_same(*both_ways(elbo, at, data, noise), tolerance=1e-3)


@pytest.mark.parametrize("hidden", [[32], [16, 48], [100, 100]], ids=str)
@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_run_ends_at_the_same_bits_whatever_stands_beside_it(
    estimator: Estimator, draws: int, hidden: list[int]
) -> None:
    data = examples(48, 3, torch.float32)
    elbo, at, noise = problem(network(hidden), estimator, draws, data, dtype=torch.float32)
    together = elbo.gradient(at, data, TOTAL, noise)
    for run in range(3):
        only = slice(run, run + 1)
        one = Data(data.x[only], data.y[only], data.source[only], data.sources)
        alone = Elbo(elbo.model, MeanField(elbo.layout, *(part[only] for part in elbo.previous[1:])), draws, estimator)
        step = alone.gradient(tuple(part[only].clone() for part in at), one, TOTAL, noise[only])
        for a, b in zip(step.gradients, together.gradients, strict=True):
            assert torch.equal(a[0], b[run])


def test_the_paper_s_network_is_a_perceptron_with_its_names_in_order() -> None:
    model = small_network()
    assert model.perceptron("a") == Perceptron(("trunk.1.weight", "heads.a.weight"), ("trunk.1.bias", "heads.a.bias"))
    nested = nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False)), nn.ReLU())
    assert Network(nested, 5, Categorical()).perceptron("a") == Perceptron(
        ("trunk.0.1.weight", "heads.a.weight"), (None, "heads.a.bias")
    )


class Own(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def _tied_bias() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU())
    module[3].bias = module[1].bias
    return module


def _listened() -> nn.Module:
    module = mlp(6, [5])
    module[1].register_forward_hook(lambda layer, inputs, output: 2 * output)
    return module


@pytest.mark.parametrize(
    "trunk",
    [
        nn.Identity(),
        nn.Sequential(nn.Linear(6, 6), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 6)),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(6, 6)),
        nn.Sequential(nn.Flatten(), Own(6, 6), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.LayerNorm(6)),
        _tied_bias(),
        _listened(),
    ],
    ids=["identity", "not flat", "no relu", "tanh", "two relus", "relu first", "own", "norm", "tied bias", "hook"],
)
def test_anything_else_takes_the_general_way(trunk: nn.Module) -> None:
    assert Network(trunk, 6, Categorical()).perceptron("h") is None


def test_other_models_likelihoods_batches_and_precisions_take_the_general_way() -> None:
    data = examples(4, 1)
    assert as_perceptron(LinearGaussian(inputs=4, noise=0.5), data.heads) is None
    assert as_perceptron(Network(mlp(6, [5]), 5, Normal(0.5)), data.heads) is None
    assert as_perceptron(small_network(), data.heads) is not None
    two = concat(blobs(4, 0, "t0", "h0"), blobs(4, 0, "t1", "h1"))
    assert as_perceptron(small_network(), two.heads) is None, "two heads"
    same = concat(blobs(4, 0, "t0", "h"), blobs(4, 0, "t1", "h"))
    assert as_perceptron(small_network(), same.heads) is not None, "two tasks, one head"
    model = small_network()
    elbo = Elbo(model, model.prior({"h": 2}), 1, "local")
    single = blobs(4, 0, "t", "h")
    assert elbo.perceptron(elbo.previous.mean, single) is not None
    assert elbo.perceptron(elbo.previous.mean.double(), single._replace(y=single.y.int())) is None
