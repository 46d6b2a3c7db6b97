"""The layered engine must give the values and gradients of the general one, from the same noise."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from made import small_network
from vcl.beliefs import mean_field_torch
from vcl.beliefs.belief import Roles
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.mean_field_fit import CLIMBS, Climbs, MeanFieldFit
from vcl.data import Data, concat, dataset, unlabelled
from vcl.engines.bound import LayeredBound
from vcl.engines.choose import choose
from vcl.engines.general import General
from vcl.engines.layered import Layered
from vcl.engines.structure import Fork, Latent, Opaque
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import VclError
from vcl.fitting.step import Step, by_autograd
from vcl.models import LinearGaussian, Network, Vae, mlp, mlp_vae
from vcl.models.likelihoods import Categorical, Likelihood, Normal, Probit
from vcl.models.pixels import BernoulliPixels, NormalPixels
from vcl.ops.layer_weights import Block
from vcl.projections.point import LogLikelihood
from vcl.projections.vi import Elbo

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
    assert isinstance(elbo.bound(data), LayeredBound), "this is about the layered engine"
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

    for where in (mean_field_torch, KlTo):
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
    previous = MeanField(elbo.layout, *elbo.fit.previous.moments)
    together = elbo.gradient(at, data, TOTAL, noise)
    for run in range(3):
        only = slice(run, run + 1)
        one = Data(data.x[only], data.y[only], data.source[only], data.sources)
        alone = Elbo(elbo.model, MeanField(elbo.layout, *(part[only] for part in previous[1:])), draws, estimator)
        step = alone.gradient(tuple(part[only].clone() for part in at), one, TOTAL, noise[only])
        for a, b in zip(step.gradients, together.gradients, strict=True):
            assert torch.equal(a[0], b[run])


def test_the_structure_of_the_paper_s_network_has_its_names_in_order() -> None:
    found = small_network().structure(("a", "b"))
    assert isinstance(found, Fork)
    first, relu = found.trunk
    assert first == Block("trunk.1.weight", "trunk.1.bias")
    assert isinstance(relu, nn.ReLU)
    assert found.heads == {head: Block(f"heads.{head}.weight", f"heads.{head}.bias") for head in ("a", "b")}
    nested = nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False)), nn.ReLU())
    found = Network(nested, 5, Categorical()).structure(("a",))
    assert isinstance(found, Fork)
    assert found.names == ("trunk.0.1.weight", "heads.a.weight", "heads.a.bias")


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
        nn.Sequential(nn.Flatten(), Own(6, 6), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.LayerNorm(6)),
        _tied_bias(),
        _listened(),
    ],
    ids=["identity", "not flat", "own", "norm", "tied bias", "hook"],
)
def test_anything_else_is_opaque_and_takes_the_general_engine(trunk: nn.Module) -> None:
    model = Network(trunk, 6, Categorical())
    assert isinstance(model.structure(("h",)), Opaque)
    prior = model.prior({"h": 3})
    assert isinstance(choose(model, prior.layout, ("h",), prior.mean), General)


def test_other_models_and_precisions_take_the_general_engine() -> None:
    line = LinearGaussian(inputs=4, noise=0.5)
    prior = line.prior({})
    assert isinstance(choose(line, prior.layout, ("all",), prior.mean), General)
    model = small_network()
    prior = model.prior({"h": 2, "k": 2})
    assert isinstance(choose(model, prior.layout, ("h", "k"), prior.mean), Layered)
    assert isinstance(choose(model, prior.layout, ("h", "k"), prior.mean.half()), General)
    assert isinstance(choose(model, prior.layout, ("h",), prior.mean), General), "a head that no example has"


TRUNKS = {
    "no layer": nn.Flatten(),
    "no relu": nn.Sequential(nn.Flatten(), nn.Linear(6, 5)),
    "two relus": nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.ReLU()),
    "relu first": nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(6, 5)),
    "in place": nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ELU(inplace=True), nn.Linear(5, 5), nn.ReLU(True)),
    "tanh": nn.Sequential(nn.Flatten(), nn.Linear(6, 7, bias=False), nn.Tanh(), nn.Linear(7, 5), nn.ReLU(), nn.GELU()),
    "many": nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.SiLU(), nn.Linear(5, 4), nn.Softplus(), nn.Linear(4, 5), nn.Sigmoid()
    ),
}  # fmt: skip


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("trunk", TRUNKS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_chains_of_any_functions_have_torchs_gradients(estimator: Estimator, trunk: str, draws: int) -> None:
    data, module = examples(5, 2), TRUNKS[trunk]
    width = [layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear)]
    elbo, at, noise = problem(Network(module, width[-1] if width else 6, Categorical()), estimator, draws, data)
    assert_same(*both_ways(elbo, at, data, noise))


def _of_heads(heads: tuple[str, ...], runs: int) -> Data:
    g = torch.Generator().manual_seed(3)
    parts = [
        dataset(
            torch.randn(4, 6, generator=g).double(), torch.randint(0, 2 + n, (4,), generator=g), f"t{n}", head, runs
        )
        for n, head in enumerate(heads)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = concat(whole, part)
    return whole


@pytest.mark.parametrize("heads", [("a", "b"), ("a", "b", "a")], ids=str)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_heads_mixed_in_one_batch_have_torchs_gradients(estimator: Estimator, heads: tuple[str, ...]) -> None:
    """Heads of different sizes, and a task that shares its head with another."""
    data, model, g = _of_heads(heads, 2), network([7, 5]), torch.Generator().manual_seed(1)
    prior = model.prior({"a": 4, "b": 3}).to(torch.float64)
    previous, q = (
        MeanField(prior.layout, *torch.randn(2, 2, prior.layout.size, generator=g, dtype=torch.float64))
        for _ in range(2)
    )
    elbo = Elbo(model, previous, 3, estimator)
    noise = torch.randn(2, elbo.noise(data), generator=g, dtype=torch.float64)
    assert_same(*both_ways(elbo, elbo.parameters(q), data, noise))


class Laplacian:
    """A likelihood that the package does not know: log p = -|y - f| - log 2."""

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        return -(y.reshape(output.shape) - output).abs().sum(-1)


@pytest.mark.parametrize(
    "likelihood", [Normal(0.7), Probit(), Laplacian()], ids=lambda likelihood: type(likelihood).__name__
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_any_likelihood_has_torchs_gradients(estimator: Estimator, likelihood: Likelihood) -> None:
    data, g = examples(5, 2), torch.Generator().manual_seed(1)
    units = 1 if isinstance(likelihood, Probit) else 3
    y = torch.randint(0, 2, (2, 5), generator=g) if units == 1 else torch.randn(2, 5, 3, generator=g).double()
    model, data = Network(mlp(6, [7]), 7, likelihood), data._replace(y=y)
    prior = model.prior({"h": units}).to(torch.float64)
    previous, q = (
        MeanField(prior.layout, *torch.randn(2, 2, prior.layout.size, generator=g, dtype=torch.float64))
        for _ in range(2)
    )
    elbo = Elbo(model, previous, 3, estimator)
    noise = torch.randn(2, elbo.noise(data), generator=g, dtype=torch.float64)
    assert_same(*both_ways(elbo, elbo.parameters(q), data, noise))


def test_a_subclass_of_a_known_likelihood_is_not_taken_for_it() -> None:
    class Tempered(Categorical):
        def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
            return super().log_prob(3 * output, y)

    data = examples(5, 2)
    elbo, at, noise = problem(Network(mlp(6, [7]), 7, Tempered()), "weights", 2, data)
    plain, _, _ = problem(Network(mlp(6, [7]), 7, Categorical()), "weights", 2, data)
    ours, torchs = both_ways(elbo, at, data, noise)
    assert_same(ours, torchs)
    assert not torch.allclose(ours.value, plain.gradient(at, data, TOTAL, noise).value)


def vae(private: str = "lower", shared_encoder: bool = False, head_kl: bool = False, pixels: object = None) -> Vae:
    return mlp_vae(8, 3, 5, 6, pixels, private, shared_encoder, head_kl)  # type: ignore[arg-type]


VAES = {
    "paper": vae(),
    "private upper": vae("upper"),
    "private both": vae("both"),
    "shared encoder": vae(shared_encoder=True),
    "head kl": vae(head_kl=True),
    "normal pixels": vae(pixels=NormalPixels(0.7)),
    "relu last": Vae(
        nn.Sequential(nn.Flatten(), nn.Linear(8, 6)), nn.Sequential(nn.Linear(3, 4), nn.Tanh()),
        nn.Sequential(nn.Linear(4, 8), nn.ReLU()), 3, BernoulliPixels(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("climbs", CLIMBS)
@pytest.mark.parametrize("name", VAES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_encoders_and_decoders_have_torchs_gradients(
    estimator: Estimator, name: str, climbs: Climbs, draws: int
) -> None:
    model, g = VAES[name], torch.Generator().manual_seed(1)
    assert isinstance(model.structure(("a",)), Latent)
    data = unlabelled(torch.rand(5, 8, generator=g, dtype=torch.float64), "a", "a", 2)
    prior = model.prior({"a": 8}).to(torch.float64)
    mean, spread = 0.3 * torch.randn(2, 2, prior.layout.size, generator=g, dtype=torch.float64)
    q = MeanField(prior.layout, mean, torch.where(prior.log_var.isfinite(), spread, prior.log_var))
    elbo = Elbo(model, prior.expand(2), draws, estimator, climbs)
    noise = torch.randn(2, elbo.noise(data), generator=g, dtype=torch.float64)
    assert_same(*both_ways(elbo, elbo.parameters(q), data, noise))
    point = LogLikelihood(model, prior.layout, draws)
    noise = torch.randn(2, point.noise(data), generator=g, dtype=torch.float64)
    assert_same(point.gradient((mean,), data, TOTAL, noise), by_autograd(point, (mean,), data, TOTAL, noise))


def test_several_tasks_of_a_vae_in_one_batch_take_the_general_engine() -> None:
    assert isinstance(vae().structure(("a", "b")), Opaque)


@pytest.mark.parametrize(
    "model", [network([]), network([7, 5]), Network(TRUNKS["tanh"], 5, Categorical())], ids=range(3)
)
def test_points_and_particles_have_torchs_gradients(model: Network) -> None:
    data, g = examples(5, 2), torch.Generator().manual_seed(1)
    layout = model.prior({"h": CLASSES}).layout
    theta = torch.randn(2, 4, layout.size, generator=g, dtype=torch.float64)
    ours, torchs = choose(model, layout, ("h",), theta), General(model, layout)
    assert isinstance(ours, Layered)
    for mine, other in zip(ours.gradient(theta, data, 2.5), torchs.gradient(theta, data, 2.5), strict=True):
        assert torch.allclose(mine, other, rtol=1e-10, atol=1e-10)
    for mine, other in zip(
        ours.point_gradient(theta[:, 0], data, 2.5), torchs.point_gradient(theta[:, 0], data, 2.5), strict=True
    ):
        assert torch.allclose(mine, other, rtol=1e-10, atol=1e-10)
    assert torch.allclose(ours.squares(theta[:, 0], data), torchs.squares(theta[:, 0], data), rtol=1e-10)
    assert torch.allclose(ours.predictions(theta, data.x, "h"), torchs.predictions(theta, data.x, "h"), rtol=1e-10)
    assert torch.allclose(ours.log_lik(theta, data).sum(-1), ours.gradient(theta, data, 1.0)[0], rtol=1e-10)


def test_an_unknown_estimator_is_refused() -> None:
    with pytest.raises(VclError, match="unknown estimator 'wieghts': did you mean 'weights'"):
        problem(network([7]), "wieghts", 2, examples(5, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_another_tensor_of_variances_beside_the_same_means_is_seen(estimator: Estimator) -> None:
    data = examples(5, 2)
    elbo, (mean, log), noise = problem(network([7]), estimator, 2, data)
    elbo.gradient((mean, log), data, TOTAL, noise)
    assert_same(*both_ways(elbo, (mean, log + 0.5), data, noise))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_numbers_of_several_heads_in_one_batch_have_torchs_gradients(estimator: Estimator) -> None:
    g = torch.Generator().manual_seed(3)
    parts = [
        dataset(torch.randn(4, 6, generator=g).double(), torch.randn(4, 2, generator=g).double(), head, head, 2)
        for head in ("a", "b")
    ]
    data, model = concat(*parts), Network(mlp(6, [7]), 7, Normal(0.7))
    prior = model.prior({"a": 2, "b": 2}).to(torch.float64)
    previous, q = (
        MeanField(prior.layout, *torch.randn(2, 2, prior.layout.size, generator=g, dtype=torch.float64))
        for _ in range(2)
    )
    elbo = Elbo(model, previous, 3, estimator)
    noise = torch.randn(2, elbo.noise(data), generator=g, dtype=torch.float64)
    assert_same(*both_ways(elbo, elbo.parameters(q), data, noise))


def test_a_head_that_a_batch_does_not_have_has_gradient_0() -> None:
    model, data = network([7]), examples(5, 2)
    layout = model.prior({"h": CLASSES, "other": 2}).layout
    theta = torch.randn(2, 3, layout.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    engine = choose(model, layout, ("h", "other"), theta)
    assert isinstance(engine, Layered)
    ours, torchs = (each.gradient(theta, data, 1.0)[1] for each in (engine, General(model, layout)))
    assert torch.allclose(ours, torchs, rtol=1e-10, atol=1e-12)


def test_the_kl_where_what_is_held_does_not_stand_first() -> None:
    layout, g = Layout(("free", "held"), ((3,), (4,))), torch.Generator().manual_seed(0)
    parts = (layout.where(lambda name: name == "held"), layout, layout.where(lambda name: False))
    previous, q = (MeanField(layout, *torch.randn(2, 2, 7, generator=g, dtype=torch.float64)) for _ in range(2))
    fit = MeanFieldFit(previous, Roles(*parts))
    taken = torch.zeros(2, 2, 7, dtype=torch.float64)
    value = fit.subtract_kl(q.mean, q.log_var, *taken, None, slice(0, 2))
    leaves = tuple(part.clone().requires_grad_() for part in (q.mean, q.log_var))
    exact = fit.kl(leaves)
    assert torch.allclose(value, exact.detach())
    for mine, other in zip(taken, torch.autograd.grad(exact.sum(), leaves), strict=True):
        assert torch.allclose(mine, -other)
