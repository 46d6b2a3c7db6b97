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
from typing import Any

import pytest
import torch
from torch import nn

from kernel_ways import (
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
from vcl.beliefs.mean_field import KlTo, MeanField, standard_normal
from vcl.data import Data, concat, dataset
from vcl.engines.chain import linear
from vcl.engines.draws import draw_params
from vcl.engines.forward import ESTIMATORS, Estimator
from vcl.engines.perceptron import fused
from vcl.fitting.adam import make_adam
from vcl.fitting.loop import Ascent, ascend
from vcl.fitting.step import Eager, Step, by_autograd
from vcl.models import Network, mlp
from vcl.models.base import held
from vcl.models.likelihoods import Categorical
from vcl.ops import kernels
from vcl.ops.encoding import draw_latent
from vcl.ops.kernels import inputs, perceptron_weights
from vcl.ops.noise import Key
from vcl.ops.pixels import BernoulliPixels
from vcl.ops.rng import Rng
from vcl.projections.point import LogLikelihood
from vcl.projections.quadratic import Penalised
from vcl.projections.si import add_path
from vcl.projections.vi import Elbo

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="kernels need CUDA and Triton, or make test-kernels")

GPU_ONLY = pytest.mark.skipif(INTERPRETED, reason="NOT COVERED by Triton's interpreter: CUDA graphs and streams")
SLOW = "left to a GPU, since the interpreter needs minutes"


@pytest.fixture(autouse=True)
def launched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold each test to the kernels that it says it launches."""
    seen: set[str] = set()
    kind = type(kernels.layers._local)
    run = kind.run

    def recorded(self: Any, *given: Any, **named: Any) -> Any:
        seen.add(name_of(self))
        return run(self, *given, **named)

    monkeypatch.setattr(kind, "run", recorded)
    yield
    assert set(getattr(request.function, "kernels", ())) <= seen


LAYOUT = Layout(("w", "b", "heads.a.weight"), ((37, 61), (61,), (3, 1000)))
EVEN = Layout(("w", "b", "heads.a.weight"), ((36, 60), (60,), (3, 1000)))
"""Whose tensors all stand on 16 bytes."""


def whole(q: MeanField) -> MeanField:
    """The same in memory of its own, as kernels need it."""
    return MeanField(q.layout, q.mean.contiguous(), q.log_var.contiguous())


def bound_step(elbo: Elbo, at: tuple[torch.Tensor, ...], data: Data, noise: torch.Tensor | Key) -> Step:
    """The bound of 1,000 examples and its gradient, by kernels: on a GPU the way is found, else it is told."""
    with by_kernels():
        if not INTERPRETED:
            return elbo.gradient(at, data, 1000, noise)
        net = elbo.perceptrons.on(at[0], data, fused.suits)
        assert net is not None
        return elbo.by_kernels(net, at, data, 1000, noise)


def made(runs: int, draws: int, layout: Layout = LAYOUT) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(1)
    mean, log_var = torch.randn(runs, layout.size, generator=g), torch.randn(runs, layout.size, generator=g)
    return mean, log_var, torch.randn(runs, draws, layout.size, generator=g)


@launches("parameters._draw", "parameters._draw_gradient")
@pytest.mark.parametrize("layout", [LAYOUT, EVEN], ids=["odd", "even"])
@pytest.mark.parametrize("behind", [0, 12, 13])
@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (3, 1), (2, 7), (2, 4)])
def test_draws_and_their_gradients_are_those_of_torch(runs: int, draws: int, behind: int, layout: Layout) -> None:
    def gradients(device: str) -> tuple[torch.Tensor, ...]:
        mean, log_var, noise = (part.to(device) for part in made(runs, draws, layout))
        if behind:  # on the tape stands the noise of latent variables
            noise = torch.cat([noise, noise[..., :behind]], dim=-1)[..., : layout.size]
        mean, log_var = mean.requires_grad_(), log_var.requires_grad_()
        drawn = draw_params(layout, mean, log_var.exp(), noise, draws)
        value = sum((values.sin() * values.cos().cumsum(1)).sum() for values in drawn.values())
        assert isinstance(value, torch.Tensor)
        found = torch.autograd.grad(value, (mean, log_var))
        return tuple(part.detach().cpu() for part in (*drawn.values(), *found))

    both(gradients, rtol=1e-4, atol=1e-4)


@launches("parameters._take_kl")
@pytest.mark.parametrize("layout", [LAYOUT, EVEN], ids=["odd", "even"])
@pytest.mark.parametrize("shared", [True, False])
def test_kl_and_its_gradient_are_those_of_torch(shared: bool, layout: Layout) -> None:
    def values(device: str) -> tuple[torch.Tensor, ...]:
        mean, log_var, noise = (part.to(device) for part in made(4, 2, layout))
        other = MeanField(layout, noise[:, 0], noise[:, 1])
        p = whole(standard_normal(layout, 0.5).to(device)).expand(4) if shared else other
        taken = [torch.ones(4, layout.size + 4, device=device)[:, 4:] for _ in range(2)]
        return tuple(part.cpu() for part in (KlTo(p).taken_from(mean, log_var, *taken), *taken))

    both(values, rtol=1e-5, atol=1e-4)


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
        add_path(omega, before, theta, g, DiagonalFactor(Layout(("w",), ((width,),)), centre, precision))
        return omega.cpu(), before.cpu()

    both(values, rtol=1e-5, atol=1e-5)


@launches("layers._local", "layers._local_gradient")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (3, 1), (2, 5)])
def test_local_layers_are_those_of_torch(runs: int, draws: int, biased: bool) -> None:
    """Two layers: the first with rows that all draws share, the second with each draw's own."""
    model = Network(nn.Sequential(nn.Flatten(), nn.Linear(13, 7, bias=biased), nn.ReLU()), 7, Categorical())
    prior = model.prior({"all": 3}).expand(runs)
    g = torch.Generator().manual_seed(2)
    start = 0.3 * torch.randn(prior.mean.shape, generator=g), torch.randn(prior.mean.shape, generator=g) - 3
    data = dataset(torch.rand(11, 13, generator=g), torch.randint(0, 3, (11,), generator=g), runs=runs)
    elbo = Elbo(model, prior, draws, "local")
    noise = torch.randn(runs, elbo.noise(data), generator=g)

    def values(device: str) -> list[torch.Tensor]:
        here = Elbo(model, prior.to(device), draws, "local")
        parameters = tuple(part.to(device).requires_grad_() for part in start)
        value = here(parameters, data.to(device), 50, noise.to(device))
        return [part.detach().cpu() for part in (value, *torch.autograd.grad(value.sum(), parameters))]

    both(values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("relu", "biased"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize(("rows", "out"), [(1, 1), (50, 36), (130, 33), (3, 132)])
@pytest.mark.parametrize("own", [True, False])
def test_stacked_layers_are_those_of_torch(own: bool, rows: int, out: int, relu: bool, biased: bool) -> None:
    g = torch.Generator().manual_seed(4)
    lead = (2, 3) if own else (2,)
    made = [torch.randn(shape, generator=g) for shape in ((2, 3, rows, 7), (*lead, out, 7), (*lead, out))]

    def values(device: str) -> list[torch.Tensor]:
        x, W, b = (part.to(device).requires_grad_() for part in made)
        # The bias is a part of wider rows, as in a flat vector.
        bias = torch.cat([b, b.sin()], dim=-1)[..., :out] if not own else b
        a = linear(x, W, bias if biased else None, relu)
        found = torch.autograd.grad((a * a.cos()).sum(), (x, W, b) if biased else (x, W))
        return [part.detach().cpu() for part in (a, *found)]

    both(values, rtol=1e-4, atol=1e-3)


@launches("layers._bernoulli", "layers._bernoulli_gradient")
@pytest.mark.parametrize("width", [16, 37])
@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (3, 4)])
def test_pixels_are_scored_as_by_torch(runs: int, draws: int, width: int) -> None:
    g = torch.Generator().manual_seed(5)
    output, x = 3 * torch.randn(runs, draws, 5, width, generator=g), torch.rand(runs, 1, 5, width, generator=g)
    output[0, 0, 0, :4] = torch.tensor([-200.0, 200.0, 12.0, -12.0])

    def values(device: str) -> list[torch.Tensor]:
        logits = output.to(device).requires_grad_()
        value = BernoulliPixels().log_prob(logits, x.to(device))
        found = torch.autograd.grad(value.sin().sum(), logits)
        return [part.detach().cpu() for part in (value, *found)]

    both(values, rtol=1e-4, atol=1e-4)


@launches("layers._encode", "layers._encode_gradient")
@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (2, 5), (3, 20)])
def test_latent_variables_and_their_kl_are_those_of_torch(runs: int, draws: int) -> None:
    g = torch.Generator().manual_seed(6)
    made = 0.3 * torch.randn(runs, 1, 7, 6, generator=g)
    tape = torch.randn(runs, draws, 11 + 7 * 3, generator=g)  # behind the noise of the weights

    def values(device: str) -> list[torch.Tensor]:
        codes = made.to(device).requires_grad_()
        z, divergence = draw_latent(codes, tape.to(device)[..., 11:].view(runs, draws, 7, 3))
        found = torch.autograd.grad((z * z.cos()).sum() + (divergence * divergence.cos()).sum(), codes)
        return [part.detach().cpu() for part in (z, divergence, *found)]

    both(values, rtol=1e-4, atol=1e-4)


@launches("layers._activate", "layers._activate_gradient", "layers._encode", "layers._bernoulli")
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "points"])
def test_the_whole_bound_of_a_vae_is_that_of_torch(drawn: bool, heads: int) -> None:
    data = shapes(5, 0, "a", runs=3) if heads == 1 else concat(shapes(5, 0, "a", 3), shapes(4, 1, "b", 3))
    model, g = small_vae(), torch.Generator().manual_seed(7)
    prior = model.prior(dict.fromkeys(data.heads, 16)).expand(3)

    def values(device: str) -> list[torch.Tensor]:
        there = prior.to(device)
        noughts = torch.zeros(3, prior.layout.size, device=device)
        penalty = DiagonalFactor(there.layout, noughts, noughts + 1).on(held(model, there.layout))
        points = Penalised(model, there.layout, penalty, 4)
        objective = Elbo(model, there, 4, "weights", "log_sd") if drawn else points
        start = objective.parameters(there) if isinstance(objective, Elbo) else (there.mean,)
        at = tuple(0.3 * torch.randn(part.shape, generator=g.manual_seed(7)) for part in start)
        each = objective.noise(data.to(device)) // 4  # on a GPU each draw's ends with some that is not used
        noise = torch.randn(3, 4, 4096, generator=g)[..., :each].flatten(1)
        step = objective.gradient(tuple(part.to(device) for part in at), data.to(device), 50, noise.to(device))
        return [part.cpu() for part in (step.value, *step.gradients)]

    both(values, rtol=1e-3, atol=1e-3)


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
    ("runs", "draws", "examples"),
    [
        (1, 1, 1),
        (1, 1, 5),
        (3, 2, 70),
        pytest.param(2, 10, 256, marks=pytest.mark.skipif(INTERPRETED, reason=f"{SLOW}: 256 examples")),
    ],
)


@launches(
    "perceptron_weights.draw",
    "perceptron_weights.gather",
    "perceptron_weights.rectify",
    "perceptron_weights.head",
    "perceptron_weights.mask",
    "perceptron.value",
)
@UNITS
@SIZES
def test_the_fused_gradient_of_drawn_weights_is_torchs(
    units: tuple[int, ...], runs: int, draws: int, examples: int
) -> None:
    compare_fused("weights", units, runs, draws, examples)


@launches(
    "perceptron_local.moments",
    "perceptron_local.spread",
    "perceptron_local.head_local",
    "perceptron_local.back_local",
    "perceptron_local.add",
    "perceptron.value",
)
@UNITS
@SIZES
def test_the_fused_gradient_by_local_reparameterisation_is_torchs(
    units: tuple[int, ...], runs: int, draws: int, examples: int
) -> None:
    compare_fused("local", units, runs, draws, examples)


def compare_fused(estimator: Estimator, units: tuple[int, ...], runs: int, draws: int, examples: int) -> None:
    model = Network(mlp(units[0], units[1:-1]), units[-2], Categorical())
    prior = whole(model.prior({"all": units[-1]}).to(DEVICE)).expand(runs)
    g = torch.Generator(DEVICE).manual_seed(0)
    at = tuple(torch.randn(prior.mean.shape, generator=g, device=DEVICE) * 0.1 - shift for shift in (0, 5))
    x = torch.rand(examples, units[0], generator=g, device=DEVICE)
    y = torch.randint(0, units[-1], (examples,), generator=g, device=DEVICE)
    data = dataset(x, y, runs=runs)
    elbo = Elbo(model, prior, draws, estimator)
    noise = torch.randn(runs, elbo.noise(data), generator=g, device=DEVICE)
    ours, torchs = bound_step(elbo, at, data, noise), by_autograd(elbo, at, data, 1000, noise)
    torch.testing.assert_close(ours.value, torchs.value, rtol=1e-5, atol=1e-3)
    scaled(ours.gradients, torchs.gradients, rtol=1e-4, atol=1e-5)


@launches(
    "perceptron_weights.draw",
    "perceptron_weights.gather",
    "perceptron_weights.rectify",
    "perceptron_weights.head",
    "perceptron_weights.mask",
    "perceptron.value",
)
@pytest.mark.parametrize("units", [(13, 7, 10, 3), LARGE])
@pytest.mark.parametrize(("runs", "draws"), [(1, 1), (2, 10), (3, 4)])
def test_noise_that_kernels_make_themselves_is_the_same_forward_and_back(
    units: tuple[int, ...], runs: int, draws: int
) -> None:
    """The noise is had as what weights of mean 0 and variance 1 are drawn as; torch's gradient with it is ours."""
    model = Network(mlp(units[0], units[1:-1]), units[-2], Categorical())
    prior = whole(model.prior({"all": units[-1]}).to(DEVICE)).expand(runs)
    g = torch.Generator(DEVICE).manual_seed(0)
    at = tuple(torch.randn(prior.mean.shape, generator=g, device=DEVICE) * 0.1 - shift for shift in (0, 5))
    y = torch.randint(0, units[-1], (40,), generator=g, device=DEVICE)
    data = dataset(torch.rand(40, units[0], generator=g, device=DEVICE), y, runs=runs)
    key = Key(torch.arange(7, 7 + runs, device=DEVICE), torch.tensor(3, device=DEVICE))
    size, first = prior.layout.size, units[0] * units[1]
    pieces = [torch.empty(runs, draws, part, device=DEVICE) for part in (first, size - first)]
    zero, blocks = torch.zeros(runs, size, device=DEVICE), -(-size // 1024)
    perceptron_weights.draw[(runs * blocks,)](
        *pieces, zero, zero, *key, size, first, size - first, 0, blocks, draws, SEEDED=True, BLOCK=1024
    )
    noise = torch.cat(pieces, -1)
    assert abs(noise.mean()) < 6 / noise.numel() ** 0.5
    assert noise.std().item() == pytest.approx(1, abs=6 / noise.numel() ** 0.5)
    elbo = Elbo(model, prior, draws, "weights")
    with by_kernels():
        assert elbo.seeded(data)
    padded = torch.nn.functional.pad(noise, (0, elbo.noise(data) // draws - size)).flatten(1)
    ours, torchs = bound_step(elbo, at, data, key), by_autograd(elbo, at, data, 1000, padded)
    torch.testing.assert_close(ours.value, torchs.value, rtol=1e-5, atol=1e-3)
    scaled(ours.gradients, torchs.gradients, rtol=1e-4, atol=1e-5)


@launches("parameters._draw", "parameters._draw_gradient")
@pytest.mark.parametrize("draws", [1, 4, 7])
@pytest.mark.parametrize("what", ["vae", "vae, two heads", "wide network"])
def test_parameters_drawn_from_a_key_have_the_same_noise_forward_and_back(
    what: str, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is had as draws of mean 0 and variance 1, and what stands beside them is of its own."""
    model, data = {
        "vae": (small_vae(), shapes(5, 0, "a", 2)),
        "vae, two heads": (small_vae(), concat(shapes(5, 0, "a", 2), shapes(4, 1, "b", 2))),
        "wide network": (
            Network(mlp(9, [130, 130]), 130, Categorical()),
            dataset(torch.rand(8, 9), torch.arange(8) % 3, runs=2),
        ),
    }[what]
    data = data.to(DEVICE)
    prior = whole(model.prior(dict.fromkeys(data.heads, 3 if what == "wide network" else 16)).to(DEVICE)).expand(2)
    elbo = Elbo(model, prior, draws, "weights", "log_sd")
    if INTERPRETED:  # on the CPU a plain network would be differentiated by hand
        monkeypatch.setattr(elbo, "perceptron", lambda mean, batch: None)
    with by_kernels():
        assert elbo.seeded(data)
    g, size = torch.Generator(DEVICE).manual_seed(0), elbo.spread.size
    at = tuple(0.3 * torch.randn(part.shape, generator=g, device=DEVICE) for part in elbo.parameters(prior))
    key = Key(torch.tensor([5, 2**40], device=DEVICE), torch.tensor(3, device=DEVICE))
    zero, one = torch.zeros(2, size, device=DEVICE), torch.ones(2, size, device=DEVICE)
    noise = kernels.draw(zero, one, tuple(key), draws, (size,)).view(2, draws, size)
    beside = key.beside(draws * data.size * model.latent).view(2, draws, data.size * model.latent)
    assert not set(noise.flatten().tolist()) & set(beside.flatten().tolist())
    over = elbo.noise(data) // draws - size - beside.shape[-1]
    tape = torch.nn.functional.pad(torch.cat([noise, beside], -1), (0, over)).flatten(1)
    with by_kernels():
        ours = elbo.gradient(at, data, 50, key)
    torchs = by_autograd(elbo, at, data, 50, tape)
    torch.testing.assert_close(ours.value, torchs.value, rtol=1e-4, atol=1e-3)
    scaled(ours.gradients, torchs.gradients, rtol=1e-3, atol=1e-4)


@launches("perceptron_weights.rectify", "perceptron_weights.head", "perceptron_weights.mask")
@UNITS
@pytest.mark.parametrize(("runs", "examples"), [(1, 1), (1, 5), (3, 70), (10, 256)])
def test_the_fused_gradient_at_a_point_is_torchs(units: tuple[int, ...], runs: int, examples: int) -> None:
    model = Network(mlp(units[0], units[1:-1]), units[-2], Categorical())
    g = torch.Generator(DEVICE).manual_seed(0)
    log_lik = LogLikelihood(model, model.prior({"all": units[-1]}).layout)
    at = (torch.randn(runs, log_lik.layout.size, generator=g, device=DEVICE) * 0.1,)
    y = torch.randint(0, units[-1], (examples,), generator=g, device=DEVICE)
    data = dataset(torch.rand(examples, units[0], generator=g, device=DEVICE), y, runs=runs)
    nothing = torch.empty(runs, 0, device=DEVICE)
    with by_kernels():
        net = log_lik.perceptrons.on(at[0], data, fused.suits)
        assert net is not None
        ours = log_lik.gradient(at, data, 1000, nothing)
        if INTERPRETED:  # the way that a GPU finds by itself
            value, g_theta = fused.point_gradient(net, log_lik.layout, at[0], data, 1000)
            ours = Step(value, (g_theta,))
    torchs = by_autograd(log_lik, at, data, 1000, nothing)
    torch.testing.assert_close(ours.value, torchs.value, rtol=1e-5, atol=1e-3)
    scaled(ours.gradients, torchs.gradients, rtol=1e-4, atol=1e-5)


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
