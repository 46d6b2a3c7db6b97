"""Every kernel against its plain form in torch: values and gradients.

They run on a CUDA device with Triton, and on any CPU under Triton's interpreter (``make test-kernels``). What the
interpreter cannot show, and only a GPU does:

- compilation: types and layouts that the compiler refuses, and races between programs, which it runs one by one;
- the short logarithm, sine and cosine of the device (``SHORT`` in ops/kernels/inputs.py): it takes the long ones;
- products rounded to TF32, and sums in the order of a GPU's threads;
- steps recorded as CUDA graphs, with branches on other streams: those tests are skipped and say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from kernel_checks import (
    DEVICE,
    INTERPRETED,
    POSSIBLE,
    both,
    by_kernels,
    every_kernel,
    launches,
    name_of,
    scaled,
)
from made import shapes, small_vae
from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.mean_field_fit import CLIMBS, Climbs
from vcl.data import Data, concat, dataset
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.fitting.loop import Ascent, ascend
from vcl.fitting.step import Eager, by_autograd
from vcl.models import Model, Network, Vae, mlp
from vcl.models.likelihoods import Categorical, Normal
from vcl.models.pixels import BernoulliPixels
from vcl.ops import kernels, layers_torch, layers_triton
from vcl.ops.adam import make_adam
from vcl.ops.kernels import draws as draws_kernel
from vcl.ops.kernels import inputs
from vcl.ops.layer_weights import Block
from vcl.ops.layers import Linear, Sizes
from vcl.ops.noise import Key
from vcl.ops.penalties import add_path
from vcl.ops.rng import Rng
from vcl.projections.point import LogLikelihood
from vcl.projections.vi import Elbo

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="kernels need CUDA and Triton, or make test-kernels")

GPU_ONLY = pytest.mark.skipif(INTERPRETED, reason="NOT COVERED by Triton's interpreter: CUDA graphs and streams")
SLOW = "left to a GPU, since the interpreter needs minutes"


@pytest.fixture(autouse=True)
def launched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold each test to the kernels that it says it launches."""
    seen: set[str] = set()
    kind = type(inputs._normal)
    run = kind.run

    def recorded(self: Any, *given: Any, **named: Any) -> Any:
        seen.add(name_of(self))
        return run(self, *given, **named)

    monkeypatch.setattr(kind, "run", recorded)
    yield
    assert set(getattr(request.function, "kernels", ())) <= seen


def whole(q: MeanField) -> MeanField:
    """The same in memory of its own, as kernels need it."""
    return MeanField(q.layout, q.mean.contiguous(), q.log_var.contiguous())


WIDTHS = [1024, 1300, 1301]
"""One block; more; and rows that do not stand on 16 bytes."""


def rows(device: str, width: int, count: int) -> list[torch.Tensor]:
    """Tensors [3, width]; the last is shared by the runs, and the one before is a part of wider rows."""
    g = torch.Generator().manual_seed(3)
    plain = [torch.randn(3, width, generator=g).to(device) for _ in range(count - 2)]
    wider, shared = (torch.randn(*shape, generator=g).to(device) for shape in ((3, 2 * width), (1, width)))
    return [*plain, wider[:, :width], shared.expand(3, -1)]


@launches("parameters._take_quadratic")
@pytest.mark.parametrize("width", WIDTHS)
def test_the_penalty_and_its_gradient_are_those_of_torch(width: int) -> None:
    def values(device: str) -> tuple[torch.Tensor, ...]:
        theta, precision, taken, centre = rows(device, width, 4)
        factor = DiagonalFactor(Layout(("w",), ((width,),)), centre, precision)
        return tuple(part.cpu() for part in (factor.pull(theta, taken), taken))

    both(values, rtol=1e-5, atol=1e-3)


@launches("parameters._add_path")
@pytest.mark.parametrize("width", WIDTHS)
def test_the_path_integral_is_that_of_torch(width: int) -> None:
    def values(device: str) -> tuple[torch.Tensor, ...]:
        omega, before, theta, g, precision, centre = rows(device, width, 6)
        add_path(omega, before, theta, g, centre, precision)
        return omega.cpu(), before.cpu()

    both(values, rtol=1e-5, atol=1e-5)


def weights_of(layout: Layout, theta: torch.Tensor) -> Any:
    """Weights [N, D] that a layer takes as they are, and what it hands back."""

    class Weights:
        def __init__(self) -> None:
            self.views, self.found = layout.split(theta), {}

        def take(self, name: str) -> torch.Tensor:
            return self.views[name]

        def layer(self, block: Block) -> tuple[torch.Tensor, torch.Tensor | None]:
            return self.views[block.weight], None if block.bias is None else self.views[block.bias]

        def push(self, block: Block, h: Any, g: Any, g_bias: Any = None, tail: bool = False) -> None:
            count = len(self.views[block.weight])
            if g.shape[0] != count:  # draws side by side
                g = g.view(*g.shape[:2], -1, layout.shapes[0][0]).transpose(1, 2).flatten(0, 1)
            h = h if len(h) == count else h.repeat_interleave(count // len(h), 0)
            self.found["weight"] = torch.bmm(g.mT, h)
            if block.bias is not None:
                self.found["bias"] = g.sum(1) if g_bias is None else g_bias.sum(1)

    return Weights()


@launches("layers._activate", "layers._activate_gradient")
@pytest.mark.parametrize(("relu", "biased"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("rows", "out"), [(1, 1), (50, 36), (70, 33), (3, 300)])
@pytest.mark.parametrize("shared_weight", [True, False])
@pytest.mark.parametrize("shared_input", [True, False])
def test_a_layer_at_given_weights_is_that_of_torch(
    shared_input: bool, shared_weight: bool, rows: int, out: int, relu: bool, biased: bool
) -> None:
    runs, draws, width, g = 2, 3, 7, torch.Generator().manual_seed(4)
    block = Block("weight", "bias" if biased else None)
    layout = Layout(("weight", "bias")[: 1 + biased], ((out, width), (out,))[: 1 + biased])
    of = Linear(block, out, width, relu, shared_input, shared_weight, needs_input=not shared_input)
    h = torch.randn(runs, 1 if shared_input else draws, rows, width, generator=g)
    theta = torch.randn(runs, 1 if shared_weight else draws, layout.size, generator=g)
    up = torch.randn(runs, 1 if shared_input and shared_weight else draws, rows, out, generator=g)
    twin: dict[str, list[torch.Tensor]] = {"a": [], "weight": [], "bias": [], "h": []}
    for run in range(runs):
        layer = layers_torch.Given(of, Sizes(1, draws, rows), theta)
        weights = weights_of(layout, theta[run])
        twin["a"].append(layer.up(h[run], weights).clone())
        back = layer.down(up[run].clone(), weights)
        for name, found in weights.found.items():
            twin[name].append(found)
        if back is not None:
            twin["h"].append(back.clone())
    layer = layers_triton.Given(of, Sizes(runs, draws, rows), theta.to(DEVICE))
    weights = weights_of(layout, theta.flatten(0, 1).to(DEVICE))
    found = {"a": layer.up(h.flatten(0, 1).to(DEVICE), weights).clone()}
    back = layer.down(up.flatten(0, 1).to(DEVICE), weights)
    found |= weights.found | ({} if back is None else {"h": back})
    for name, values in twin.items():
        assert (name in found) == bool(values)
        if values:
            torch.testing.assert_close(found[name].cpu(), torch.cat(values), rtol=1e-4, atol=1e-4)


@launches("scores._softmax")
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("classes", [1, 2, 10, 70])
def test_a_softmax_is_scored_as_by_torch(classes: int, masked: bool) -> None:
    g = torch.Generator().manual_seed(5)
    output, y = 3 * torch.randn(2, 3, 5, classes, generator=g), torch.randint(0, classes, (2, 5), generator=g)
    mask = torch.rand(2, 5, generator=g) < 0.5 if masked else None
    score = layers_triton.Softmax(Sizes(2, 3, 5), classes, output.to(DEVICE))
    on = None if mask is None else mask.to(DEVICE)
    value, gradient = score(output.flatten(0, 1).to(DEVICE), y.to(DEVICE), 0.7, on)
    for run in range(2):
        twin = layers_torch.Softmax(Sizes(1, 3, 5), classes, output)
        plain, g_plain = twin(output[run], y[run : run + 1], 0.7, None if mask is None else mask[run : run + 1])
        mine = slice(3 * run, 3 * run + 3)
        torch.testing.assert_close(value[mine].sum(1).cpu(), plain.sum(1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(gradient[mine].cpu(), g_plain, rtol=1e-4, atol=1e-5)


@launches("scores._bernoulli")
@pytest.mark.parametrize("width", [16, 37])
@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (3, 4)])
def test_pixels_are_scored_as_by_torch(runs: int, draws: int, width: int) -> None:
    g = torch.Generator().manual_seed(5)
    output, x = 3 * torch.randn(runs, draws, 5, width, generator=g), torch.rand(runs, 5, width, generator=g)
    output[0, 0, 0, :4] = torch.tensor([-200.0, 200.0, 12.0, -12.0])
    score = layers_triton.Bernoulli(Sizes(runs, draws, 5), width, output.to(DEVICE))
    value, gradient = score(output.flatten(0, 1).to(DEVICE), x.to(DEVICE), 0.7, None)
    exact = BernoulliPixels().log_prob(output, x[:, None])
    torch.testing.assert_close(value.cpu(), exact.flatten(0, 1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        gradient.cpu(), (0.7 * (x[:, None] - output.sigmoid())).flatten(0, 1), rtol=1e-4, atol=1e-5
    )


@launches("scores._encode", "scores._encode_gradient")
@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (2, 5), (3, 20)])
def test_latent_variables_and_their_kl_are_those_of_torch(runs: int, draws: int) -> None:
    g = torch.Generator().manual_seed(6)
    codes = 0.3 * torch.randn(runs, 7, 6, generator=g)
    tape = torch.randn(runs, draws, 11 + 7 * 3, generator=g)  # behind the noise of the weights
    g_z = torch.randn(runs * draws, 7, 3, generator=g)

    def values(leaves: Any, device: str) -> list[torch.Tensor]:
        encoding = leaves.Encoding(Sizes(runs, draws, 7))
        z, divergence = encoding.up(codes.to(device), tape.to(device)[..., 11:].view(runs, draws, 7, 3))
        return [part.cpu() for part in (z, divergence, encoding.down(g_z.to(device), 1.5))]

    for ours, plain in zip(values(layers_triton, DEVICE), values(layers_torch, "cpu"), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


@launches("inputs._normal")
def test_noise_is_standard_normal_and_independent_between_runs_and_steps() -> None:
    seeds = torch.tensor([12345678901234567, 3, 2**62 + 5], device=DEVICE)
    first, second = (
        kernels.normal(seeds, torch.tensor(step, device=DEVICE), 100_003).double().cpu() for step in (1, 2)
    )
    noise = torch.cat([first, second])
    assert noise.mean(1).abs().max() < 0.015
    assert (noise.var(1) - 1).abs().max() < 0.025
    assert (noise.pow(4).mean(1) - 3).abs().max() < 0.15
    assert torch.corrcoef(noise).triu(1).abs().max() < 0.015
    assert kernels.normal(seeds, torch.tensor(1, device=DEVICE), 100_003).cpu().double().equal(first)
    assert kernels.normal(seeds[1:2], torch.tensor(1, device=DEVICE), 100_003).cpu().double().equal(first[1:2])
    assert torch.unique(first[0]).numel() > 99_000


@launches("inputs._normal")
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 4097])
def test_noise_is_written_where_it_belongs_and_nowhere_else(size: int) -> None:
    seeds, step, quarter = torch.tensor([5, 6], device=DEVICE), torch.tensor(1, device=DEVICE), -(-size // 4)
    blocks = -(-quarter // 1024)
    memory = torch.full((2 * size + 4 * quarter,), torch.inf, device=DEVICE)
    inputs._normal[(2 * blocks,)](memory, seeds, step, size, quarter, blocks, GROUP=0, BLOCK=1024)
    assert memory[: 2 * size].isfinite().all()
    assert memory[2 * size :].isinf().all()
    assert torch.equal(memory[: 2 * size].view(2, size), kernels.normal(seeds, step, size))


@launches("inputs._batch")
@pytest.mark.parametrize("side", [(7, 9), (33, 35), (1, 1)])
@pytest.mark.parametrize("rows", [1, 11])
@pytest.mark.parametrize("shared", [True, False])
def test_batches_are_gathered_and_pixels_scaled(shared: bool, rows: int, side: tuple[int, int]) -> None:
    g = torch.Generator().manual_seed(0)
    values = torch.randint(0, 256, (3, 50, *side), generator=g, dtype=torch.uint8)
    values = values[0].expand(3, 50, *side) if shared else values
    index = torch.randint(0, 50, (3, rows), generator=g)
    expected = torch.stack([values[run][index[run]] for run in range(3)]).float() / 255
    on_gpu = values[0].to(DEVICE).expand(3, 50, *side) if shared else values.to(DEVICE)
    labels = torch.arange(150).view(3, 50)
    x, y = kernels.batch(on_gpu, labels.to(DEVICE), index.to(DEVICE))
    torch.testing.assert_close(x.cpu(), expected)
    assert torch.equal(y.cpu(), labels.gather(1, index))
    none = torch.zeros((), dtype=torch.int64, device=DEVICE).expand(3, 50)
    assert torch.equal(kernels.batch(on_gpu, none, index.to(DEVICE))[1], none[:, :rows])


LARGE = pytest.param((784, 100, 100, 10), marks=pytest.mark.skipif(INTERPRETED, reason=f"{SLOW}: 784-100-100-10"))
UNITS = pytest.mark.parametrize("units", [(13, 7, 10, 3), (40, 20, 16, 8, 5), LARGE])
SIZES = pytest.mark.parametrize(
    ("runs", "draws", "count"),
    [
        (1, 1, 1),
        (1, 1, 5),
        (3, 2, 70),
        pytest.param(2, 10, 256, marks=pytest.mark.skipif(INTERPRETED, reason=f"{SLOW}: 256 examples")),
    ],
)


def network(units: tuple[int, ...], bias: bool = True) -> Network:
    layers: list[nn.Module] = [nn.Flatten()]
    for width, out in pairwise(units[:-1]):
        layers += [nn.Linear(width, out, bias=bias), nn.ReLU()]
    return Network(nn.Sequential(*layers), units[-2], Categorical())


def examples(units: tuple[int, ...], runs: int, count: int, heads: tuple[str, ...] = ("all",)) -> Data:
    g, found = torch.Generator().manual_seed(0), None
    for number, head in enumerate(heads):
        x, y = torch.rand(count, units[0], generator=g), torch.randint(0, units[-1], (count,), generator=g)
        part = dataset(x, y, f"t{number}", head, runs)
        found = part if found is None else concat(found, part)
    assert found is not None
    return found


def compare(
    model: Model, heads: dict[str, int], data: Data, estimator: Estimator, draws: int, climbs: Climbs = "log_var"
) -> None:
    """The bound of 50 examples and its gradient, and the likelihood's at points: by kernels and as torch has them."""
    runs, g = data.runs, torch.Generator().manual_seed(1)
    prior = model.prior(heads)
    drawn = prior.log_var.isfinite()

    def belief() -> MeanField:
        mean, log_var = 0.2 * torch.randn(2, runs, prior.layout.size, generator=g)
        return MeanField(prior.layout, mean, torch.where(drawn, log_var - 3, prior.log_var))

    previous, q = belief(), belief()
    with by_kernels():
        ours = Elbo(model, previous.to(DEVICE), draws, estimator, climbs)
        point = LogLikelihood(model, prior.layout, draws)
        there = data.to(DEVICE)
        tape = torch.randn(runs, ours.noise(there), generator=g)
        z = torch.randn(runs, point.noise(there), generator=g)
        assert ours.bound(there).engine.name.endswith("/triton")  # type: ignore[attr-defined]
        at = tuple(part.to(DEVICE) for part in ours.parameters(q.to(DEVICE)))
        found = [
            ours.gradient(at, there, 50, tape.to(DEVICE)),
            point.gradient((q.mean.to(DEVICE),), there, 50, z.to(DEVICE)),
        ]
    torchs = Elbo(model, previous, draws, estimator, climbs)
    each = torchs.noise(data) // draws  # on a GPU each draw's noise ends with some that is not used
    plain = tape.view(runs, draws, -1)[..., :each].flatten(1)
    known = [by_autograd(torchs, torchs.parameters(q), data, 50, plain)]
    known.append(by_autograd(LogLikelihood(model, prior.layout, draws), (q.mean,), data, 50, z))
    for step, other in zip(found, known, strict=True):
        torch.testing.assert_close(step.value.cpu(), other.value, rtol=1e-4, atol=1e-3)
        scaled([part.cpu() for part in step.gradients], other.gradients, rtol=1e-3, atol=2e-5)


@launches(
    "draws._draw", "draws._gather", "draws._copy", "layers._activate", "layers._activate_gradient", "readout._drawn"
)
@UNITS
@SIZES
def test_the_bound_by_drawn_weights_is_torchs(units: tuple[int, ...], runs: int, draws: int, count: int) -> None:
    compare(network(units), {"all": units[-1]}, examples(units, runs, count), "weights", draws)


@launches("draws._add", "layers._moments", "layers._spread", "layers._spread_gradient", "readout._local")
@UNITS
@SIZES
def test_the_bound_by_drawn_units_is_torchs(units: tuple[int, ...], runs: int, draws: int, count: int) -> None:
    compare(network(units), {"all": units[-1]}, examples(units, runs, count), "local", draws)


@pytest.mark.parametrize("climbs", CLIMBS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("units", [(13, 3), (13, 7, 3), (9, 20, 300, 3), (9, 5, 70)], ids=str)
def test_networks_of_no_hidden_layer_one_and_wide_ones_are_torchs(
    units: tuple[int, ...], estimator: Estimator, climbs: Climbs
) -> None:
    """Too wide, or with too many classes, for a readout in one kernel."""
    compare(network(units), {"all": units[-1]}, examples(units, 2, 17), estimator, 3, climbs)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("what", ["tanh", "no bias", "two heads", "numbers"])
def test_other_functions_heads_and_likelihoods_are_torchs(what: str, estimator: Estimator) -> None:
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5), nn.ReLU(), nn.GELU())
    model = {"tanh": Network(trunk, 5, Categorical()), "no bias": network((6, 7, 5, 3), bias=False)}.get(
        what, network((6, 7, 5, 3))
    )
    data = examples((6, 3), 2, 9, ("all", "other") if what == "two heads" else ("all",))
    if what == "numbers":
        model = Network(mlp(6, [7]), 7, Normal(0.7))
        data = data._replace(y=torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(2)))
    compare(model, dict.fromkeys(data.heads, 3), data, estimator, 3)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", ["paper", "relu last", "two heads"])
def test_the_bound_of_a_vae_is_torchs(name: str, estimator: Estimator) -> None:
    """Several heads in a batch take the general engine."""
    model = small_vae()
    if name == "relu last":
        parts = (nn.Sequential(nn.Flatten(), nn.Linear(16, 6)), nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
        model = Vae(*parts, nn.Sequential(nn.Linear(4, 16), nn.ReLU()), 3)
    data = shapes(5, 0, "a", 2) if name != "two heads" else concat(shapes(5, 0, "a", 2), shapes(4, 1, "b", 2))
    compare(model, dict.fromkeys(data.heads, 16), data, estimator, 3, "log_sd")


class AnyModule(nn.Module):
    """A chain in code that no trace can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 7), nn.Linear(7, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x.reshape(len(x), -1)).relu()).relu()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_general_engine_on_drawn_weights_is_torchs(estimator: Estimator) -> None:
    compare(Network(AnyModule(), 5, Categorical()), {"all": 3}, examples((6, 3), 2, 9), estimator, 3)


@pytest.mark.parametrize("draws", [1, 4, 7])
@pytest.mark.parametrize("what", ["network", "general", "vae", "vae, two heads"])
def test_noise_that_kernels_make_themselves_is_the_same_forward_and_back(what: str, draws: int) -> None:
    """The noise is had as draws of mean 0 and variance 1, and what stands beside them is of its own."""
    model, data = {
        "network": (network((6, 7, 5, 3)), examples((6, 3), 2, 9)),
        "general": (Network(AnyModule(), 5, Categorical()), examples((6, 3), 2, 9)),
        "vae": (small_vae(), shapes(5, 0, "a", 2)),
        "vae, two heads": (small_vae(), concat(shapes(5, 0, "a", 2), shapes(4, 1, "b", 2))),
    }[what]
    prior = model.prior(dict.fromkeys(data.heads, 16 if model.latent else 3)).expand(2)
    key = Key(torch.tensor([5, 2**40], device=DEVICE), torch.tensor(3, device=DEVICE))
    with by_kernels():
        elbo = Elbo(model, whole(prior.to(DEVICE)), draws, "weights", "log_sd")
        assert elbo.seeded(data.to(DEVICE))
        g, size = torch.Generator().manual_seed(0), elbo.fit.spread.size
        at = tuple(0.3 * torch.randn(part.shape, generator=g) for part in elbo.parameters(prior))
        ours = elbo.gradient(tuple(part.to(DEVICE) for part in at), data.to(DEVICE), 50, key)
    lines, _, memory = draws_kernel.table(((0, size),), 2 * draws, key.seeds.device)
    theta, zero = torch.empty(memory, device=DEVICE), torch.zeros(2, size, device=DEVICE)
    draws_kernel.draw(theta, zero, zero, tuple(key), 0, lines, draws, 1)
    stride = draws_kernel.aligned(size)
    noise = theta.as_strided((2, draws, size), (draws * stride, stride, 1)).cpu()
    assert abs(noise.mean()) < 6 / noise.numel() ** 0.5
    assert noise.std().item() == pytest.approx(1, abs=6 / noise.numel() ** 0.5)
    beside = key.for_latent(draws * data.size * model.latent).view(2, draws, data.size * model.latent).cpu()
    assert not set(noise.flatten().tolist()) & set(beside.flatten().tolist())
    torchs = by_autograd(
        Elbo(model, prior, draws, "weights", "log_sd"), at, data, 50, torch.cat([noise, beside], -1).flatten(1)
    )
    torch.testing.assert_close(ours.value.cpu(), torchs.value, rtol=1e-4, atol=1e-3)
    scaled([part.cpu() for part in ours.gradients], torchs.gradients, rtol=1e-3, atol=1e-4)


@GPU_ONLY
@pytest.mark.parametrize("estimator", [*ESTIMATORS, None], ids=str)
@pytest.mark.parametrize("units", [(784, 100, 100, 10), (40, 20, 16, 8, 5)])
def test_a_fit_of_recorded_steps_with_branches_ends_where_one_in_line_does(
    estimator: Estimator | None, units: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that reads memory after it was handed out again, or is not waited for, would end elsewhere."""
    model = Network(mlp(units[0], units[1:-1]), units[-2], Categorical())
    g = torch.Generator(DEVICE).manual_seed(0)
    prior = model.prior({"all": units[-1]}).to(DEVICE).expand(3)
    start = tuple(torch.randn(prior.mean.shape, generator=g, device=DEVICE) * 0.1 - shift for shift in (0, 5))
    x = torch.randint(0, 256, (650, units[0]), generator=g, device=DEVICE, dtype=torch.uint8)
    data = dataset(x, torch.randint(0, units[-1], (650,), generator=g, device=DEVICE), runs=3)
    settings = Ascent(4, 16, schedule="cosine")

    def ends() -> tuple[torch.Tensor, ...]:
        if estimator is None:
            return ascend(LogLikelihood(model, prior.layout), start[:1], data, settings, Rng((0, 1, 2)))
        return ascend(Elbo(model, prior, 4, estimator), start, data, settings, Rng((0, 1, 2)))

    recorded = ends()
    monkeypatch.setattr("vcl.fitting.loop.make_step", Eager)
    for ours, plain in zip(recorded, ends(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-4)


@launches("parameters._count", "parameters._adam")
@pytest.mark.parametrize("size", [1, 1024, 1301])
def test_steps_of_adam_are_torchs(size: int) -> None:
    def values(device: str) -> list[torch.Tensor]:
        g = torch.Generator().manual_seed(8)
        parameters = tuple(torch.randn(3, size, generator=g).to(device) for _ in range(2))
        adam = make_adam(parameters, 1e-2)
        for step in range(4):
            adam.rate(1e-2 / (step + 1))
            adam.step(tuple(torch.randn(3, size, generator=g).to(device) for _ in range(2)))
        return list(parameters)

    both(values, rtol=1e-5, atol=1e-6)


def test_every_kernel_is_launched_by_some_test_above() -> None:
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    assert set(every_kernel()) == {kernel for test in tests for kernel in getattr(test, "kernels", ())}
