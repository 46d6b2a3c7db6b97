"""Every method on a VAE: what is held, what is free, what is a point, and how the noise is used."""

from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor

from made import shape_tasks, shapes, small_vae
from vcl.beliefs.layout import Layout, Params, head_of
from vcl.beliefs.mean_field import MeanField, kl, standard_normal
from vcl.coresets import Nothing, RandomK
from vcl.data import Data
from vcl.engines.bound import GeneralBound
from vcl.engines.general import General
from vcl.engines.structure import Opaque, Structure
from vcl.errors import VclError
from vcl.fitting.curvature import Curvature
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.models.base import Heads, Role, held
from vcl.ops.noise import draw_noise
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import (
    ElasticWeightConsolidation,
    LaplacePropagation,
    MaximumAPosteriori,
    MaximumLikelihood,
    SynapticIntelligence,
    Target,
    VariationalKL,
)
from vcl.projections.base import small_random
from vcl.projections.point import LogLikelihood
from vcl.projections.vi import Elbo
from vcl.recursion import Method, State, initial, learn

FEW = Ascent(2, 16, 0.01)
VI = VariationalKL(FEW, 2, "weights", "reset", exp(-8), ml_start=False, init="glorot", climbs="log_sd")
PHI = Curvature(samples=10, draws=2)
METHODS: dict[str, Any] = {
    "vcl": VI,
    "vcl local": replace(VI, estimator="local"),
    "vcl continue": replace(VI, start="continue", climbs="log_var"),
    "mle": MaximumLikelihood(FEW, init="glorot", draws=2),
    "map": MaximumAPosteriori(FEW, init="glorot", draws=2),
    "ewc": ElasticWeightConsolidation(FEW, 1.0, PHI, init="glorot", draws=2),
    "lp": LaplacePropagation(FEW, 1.0, replace(PHI, importance=True), init="glorot", draws=2),
    "si": SynapticIntelligence(FEW, 1.0, 1e-6, init="glorot", draws=2),
}
HEADS = {"t0": 16, "t1": 16, "t2": 16}


def states(project: Any, seeds: tuple[int, ...] = (0, 1), rule: Any = None, **settings: Any) -> list[State[Any]]:
    model = small_vae(**settings)
    method: Method[Any] = Method(project, rule or Nothing(), project, "per-head")
    tasks = shape_tasks(3, len(seeds))
    return list(learn(initial(model, method, len(seeds)), tasks, model, method, Rng(seeds)))


@pytest.mark.parametrize("project", METHODS.values(), ids=METHODS)
class TestEveryMethod:
    @pytest.mark.parametrize("private", ["lower", "upper", "both"])
    def test_encoders_and_heads_of_other_tasks_are_bitwise_unchanged(self, project: Any, private: str) -> None:
        one, two, three = (state.propagated for state in states(project, private=private))
        for before, after, head in ((one, two, "t1"), (two, three, "t2")):
            for field in range(1, len(before)):
                old, new = before.layout.split(before[field]), after.layout.split(after[field])
                for name in before.layout.names:
                    # What no task touched, and what has no variance or precision, is the same; the rest has moved.
                    if head_of(name) is not None:
                        assert torch.equal(old[name], new[name]), name
            moved = [name for name in after.layout.names if head_of(name) == head]
            assert len(moved) > 10
            means, fresh = after.layout.split(after.mean), before.layout.split(before.mean)
            assert all(means[name].any() for name in moved)
            assert all(not torch.equal(means[name], fresh[name]) for name in fresh if name.startswith("trunk."))

    def test_nothing_is_nan_and_points_stay_points(self, project: Any) -> None:
        model = small_vae()
        q = states(project)[-1].propagated
        assert not any(part.isnan().any() for part in q[1:])
        assert q.mean.isfinite().all()
        noise = torch.randn(2, 3, q.layout.size, generator=torch.Generator().manual_seed(0))
        drawn = q.layout.split(q.draw(noise))
        for name, mean in q.layout.split(q.mean).items():
            if model.role(name) == "point":
                assert torch.equal(drawn[name], mean.unsqueeze(1).expand_as(drawn[name])), name

    def test_only_parameters_with_a_posterior_are_held(self, project: Any) -> None:
        model = small_vae()
        q = states(project)[-1].propagated
        for name in q.layout.names:
            if "precision" in q._fields:
                assert bool(q.layout.split(q.precision)[name].any()) == (model.role(name) == "random"), name
            elif isinstance(q, MeanField) and isinstance(project, LaplacePropagation):
                finite = q.layout.split(q.log_var)[name].isfinite()
                assert bool(finite.all()) == (model.role(name) == "random")
            elif isinstance(q, MeanField):
                finite = q.layout.split(q.log_var)[name].isfinite()
                assert bool(finite.all()) == (model.role(name) != "point")

    def test_stacked_runs_are_the_runs_alone(self, project: Any) -> None:
        stack = states(project, (3, 8, 21))[-1].propagated
        for run, seed in enumerate((3, 8, 21)):
            alone = states(project, (seed,))[-1].propagated
            for together, single in zip(stack[1:], alone[1:], strict=True):
                assert torch.allclose(together[run], single[0], rtol=1e-3, atol=1e-4)
        assert not torch.allclose(stack.mean[0], stack.mean[1], atol=1e-2)

    def test_a_coreset_speaks_in_what_is_asked_and_never_in_what_is_propagated(self, project: Any) -> None:
        last = states(project, rule=RandomK(8))[-1]
        names = last.predictive["t0"].layout.names
        assert {head_of(name) for name in names} == {None, "t0"}
        assert not torch.equal(last.predictive["t0"].mean, last.propagated.restrict(last.predictive["t0"].layout).mean)

    def test_it_is_saved_and_loaded_bit_for_bit(self, project: Any) -> None:
        last = states(project)[-1]
        again = from_bytes(to_bytes(last))
        assert again.propagated.layout == last.propagated.layout
        assert all(torch.equal(a, b) for a, b in zip(again.propagated[1:], last.propagated[1:], strict=True))


def test_a_shared_encoder_moves_with_every_task() -> None:
    for project in (VI, METHODS["ewc"]):
        one, two, _ = (state.propagated for state in states(project, shared_encoder=True))
        before, after = one.layout.split(one.mean), two.layout.split(two.mean)
        encoder = [name for name in before if name.startswith("encoder.")]
        assert encoder
        assert all(not torch.equal(before[name], after[name]) for name in encoder)


class TestTheObjective:
    def objective(self, head_kl: bool = False, climbs: Any = "log_var") -> tuple[Any, Elbo, MeanField, MeanField, Data]:
        model, data = small_vae(head_kl=head_kl), shapes(6, 0, "t0", runs=2)
        prior = model.prior({"t0": 16}).expand(2)
        g = torch.Generator().manual_seed(0)
        mean = 0.3 * torch.randn(2, prior.layout.size, generator=g)
        log_var = torch.where(prior.log_var.isfinite(), -2 + 0.1 * torch.randn(mean.shape, generator=g), prior.log_var)
        return model, Elbo(model, prior, 3, "weights", climbs), MeanField(prior.layout, mean, log_var), prior, data

    def fit(self, elbo: Elbo, parameters: tuple[Tensor, ...], data: Data, noise: Tensor) -> Tensor:
        return elbo(parameters, data, data.size, noise) + elbo.fit.kl(parameters)

    def tape(self, elbo: Elbo, data: Data) -> Tensor:
        return draw_noise(elbo.noise(data), Rng((0, 1)).generators(), torch.zeros(1))

    def test_what_is_climbed_is_q_and_back(self) -> None:
        for climbs in ("log_var", "log_sd"):
            _, elbo, q, _, _ = self.objective(climbs=climbs)
            again = elbo.belief(elbo.parameters(q))
            assert torch.equal(again.mean, q.mean)
            assert torch.equal(again.log_var, q.log_var)

    @pytest.mark.parametrize("head_kl", [False, True])
    def test_the_kl_is_on_the_shared_part_and_on_heads_if_asked_for(self, head_kl: bool) -> None:
        model, elbo, q, prior, data = self.objective(head_kl)
        noise = self.tape(elbo, data)
        value = elbo(elbo.parameters(q), data, 12, noise)
        known = held(model, q.layout)
        roles = {head_of(name) for name in known.names}
        assert roles == ({None, "t0"} if head_kl else {None})
        fit = self.fit(elbo, elbo.parameters(q), data, noise) * 2
        assert torch.allclose(value, fit - kl(q.restrict(known), prior.restrict(known)), rtol=1e-5)

    @pytest.mark.parametrize("climbs", ["log_var", "log_sd"])
    def test_free_heads_have_the_fits_gradient_alone_and_points_a_mean_only(self, climbs: Any) -> None:
        model, elbo, q, _, data = self.objective(climbs=climbs)
        noise = self.tape(elbo, data)
        leaves = tuple(part.clone().requires_grad_() for part in elbo.parameters(q))
        assert [part.shape[1] for part in leaves] == [elbo.fit.spread.size, elbo.fit.spread.size, elbo.fit.points.size]
        whole = torch.autograd.grad(elbo(leaves, data, 6, noise).sum(), leaves)
        plain = torch.autograd.grad(self.fit(elbo, leaves, data, noise).sum(), leaves)
        for layout, g, g_fit in zip((elbo.fit.spread, elbo.fit.spread, elbo.fit.points), whole, plain, strict=True):
            assert g.isfinite().all()
            for name in layout.names:
                mine, fits = layout.split(g)[name], layout.split(g_fit)[name]
                assert mine.any(), name
                assert torch.allclose(mine, fits, rtol=1e-4, atol=1e-5) == (model.role(name) != "random"), name

    def test_log_deviations_and_log_variances_are_the_same_objective(self) -> None:
        values = []
        for climbs in ("log_var", "log_sd"):
            _, elbo, q, _, data = self.objective(climbs=climbs)
            values.append(elbo(elbo.parameters(q), data, 6, self.tape(elbo, data)))
        assert torch.allclose(*values)

    def test_local_and_drawn_weights_agree_in_expectation(self) -> None:
        model, _, q, prior, data = self.objective()
        found = {}
        for estimator in ("weights", "local"):
            elbo = Elbo(model, prior, 3000, estimator)  # type: ignore[arg-type]
            noise = draw_noise(elbo.noise(data), Rng((0, 1)).generators(), torch.zeros(1))
            found[estimator] = self.fit(elbo, elbo.parameters(q), data, noise)
        assert torch.allclose(found["weights"], found["local"], atol=2.0)
        assert not torch.equal(found["weights"], found["local"])

    def test_the_encoder_is_computed_once_for_all_draws(self) -> None:
        """Only what is drawn has an axis of draws: the images, which are 16 wide, enter one product a run."""
        model, elbo, q, _, data = self.objective()
        bound = GeneralBound(General(model, q.layout), elbo.fit, "weights", 3, model.latent)
        bound.usage(data)
        seen: list[int] = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if "mm" in func.__name__:
                    seen.extend([args[-2].numel()] if args[-2].shape[-1] == 16 else [])
                return func(*args, **(kwargs or {}))

        noise = self.tape(elbo, data)
        with Watch(), torch.no_grad():
            bound.value(elbo.parameters(q), data, 6, noise)
        assert seen == [2 * 6 * 16]


class Probe:
    """log p = scale w + z, or w z, with one weight w and one z an example: how noise is used can be read off."""

    latent = 1

    def structure(self, heads: tuple[str, ...]) -> Structure:
        return Opaque()

    def __init__(self, product: bool) -> None:
        self.product = product

    def role(self, name: str) -> Role:
        return "random"

    def prior(self, heads: Heads) -> MeanField:
        return standard_normal(Layout(("w",), ((1,),)))

    def log_lik(self, params: Params, data: Data, noise: Tensor | None = None) -> Tensor:
        assert noise is not None
        return params["w"] * noise[..., 0] if self.product else 0.5 * params["w"] + noise[..., 0]


class TestNoise:
    RUNS, S, B = 20_000, 4, 3

    def values(self, product: bool) -> Tensor:
        """The objective's Monte Carlo part in very many runs at w ~ N(0, 1)."""
        model = Probe(product)
        data = shapes(self.B, 0, "a", runs=self.RUNS)
        prior = model.prior({}).expand(self.RUNS)
        elbo = Elbo(model, prior, self.S, "weights")  # type: ignore[arg-type]
        assert elbo.noise(data) == self.S * (1 + self.B)
        noise = torch.randn(self.RUNS, elbo.noise(data), generator=torch.Generator().manual_seed(0))
        at = elbo.parameters(prior)
        return elbo(at, data, self.B, noise) + elbo.fit.kl(at)

    def test_draws_are_independent_across_draws_and_examples(self) -> None:
        """Var = (0.25 B^2 + B) / S: theta is shared by the batch and nothing else is."""
        expected = (0.25 * self.B**2 + self.B) / self.S
        assert self.values(product=False).var().item() == pytest.approx(expected, rel=0.05)

    def test_theta_and_z_are_independent_of_each_other(self) -> None:
        found = self.values(product=True)
        assert found.mean().item() == pytest.approx(0, abs=0.05)
        assert found.var().item() == pytest.approx(self.B / self.S, rel=0.06)

    def test_points_draw_z_alone(self) -> None:
        model, data = Probe(False), shapes(self.B, 0, "a", runs=self.RUNS)
        objective = LogLikelihood(model, Layout(("w",), ((1,),)), self.S)  # type: ignore[arg-type]
        assert objective.noise(data) == self.S * self.B
        noise = torch.randn(self.RUNS, self.S * self.B, generator=torch.Generator().manual_seed(0))
        found = objective((torch.ones(self.RUNS, 1),), data, self.B, noise)
        assert found.mean().item() == pytest.approx(0.5 * self.B, abs=0.05)
        assert found.var().item() == pytest.approx(self.B / self.S, rel=0.05)


class TestCurvature:
    @pytest.mark.parametrize("importance", [False, True], ids=["bound", "importance"])
    @pytest.mark.parametrize("head_kl", [False, True])
    def test_phi_is_a_loop_over_examples(self, importance: bool, head_kl: bool) -> None:
        model, data, rng, K = small_vae(head_kl=head_kl), shapes(7, 0, "t0", runs=2), Rng((0, 1)), 3
        layout = model.layout({"t0": 16})
        theta = 0.3 * torch.randn(2, layout.size, generator=torch.Generator().manual_seed(0))
        phi = Curvature(draws=K, importance=importance)(model, layout, theta, data, rng)
        noise = draw_noise(7 * K * 3, rng.at("latent").generators(), theta).view(2, 7, K, 3)
        for r in range(2):
            total = torch.zeros(layout.size)
            for n in range(7):
                leaf = theta[r].clone().requires_grad_()
                one = Data(data.x[r, n : n + 1], data.y[r, n : n + 1], data.source[r, n : n + 1], data.sources)
                function = model.log_weight if importance else model.log_lik
                each = torch.stack([function(layout.split(leaf), one, noise[r, n, k : k + 1])[0] for k in range(K)])
                bound = each.exp().mean().log() if importance else each.mean()
                total += torch.autograd.grad(bound, leaf)[0].square()
            for name, expected in layout.split(total).items():
                found = layout.split(phi[r])[name]
                if model.role(name) == "random":
                    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6), name
                else:
                    assert not found.any()

    def test_one_batch_speaks_for_the_whole_task(self) -> None:
        model, data = small_vae(), shapes(40, 0, "t0")
        layout = model.layout({"t0": 16})
        theta = 0.3 * torch.randn(1, layout.size, generator=torch.Generator().manual_seed(0))
        whole, part = (
            Curvature(samples=samples, draws=200)(model, layout, theta, data, Rng((0,))).sum() for samples in (None, 20)
        )
        assert part.item() == pytest.approx(whole.item(), rel=0.4)

    @pytest.mark.parametrize("kind", ["true", "hessian"])
    def test_other_kinds_are_refused(self, kind: Any) -> None:
        model = small_vae()
        layout = model.layout({"t0": 16})
        with pytest.raises(VclError, match=f"the curvature is '{kind}', but Vae has latent variables"):
            Curvature(kind)(model, layout, torch.zeros(1, layout.size), shapes(3, 0, "t0"), Rng((0,)))


class TestTheStart:
    def target(self) -> tuple[Target[MeanField], MeanField]:
        model = small_vae()
        prior = model.prior(HEADS)
        q = VI(Target(prior.expand(2), model, shapes(32, 0, "t0", runs=2), prior), Rng((0, 1)))
        return Target(q, model, shapes(32, 1, "t1", runs=2), prior), q

    def test_reset_keeps_means_and_sets_deviations_back(self) -> None:
        target, q = self.target()
        part = q.restrict(q.layout.touched(["t1"]))
        first = VI.first(part, target, Rng((0, 1)), lambda progress: None)
        means, log_vars = part.layout.split(first.mean), part.layout.split(first.log_var)
        for name, before in part.layout.split(part.mean).items():
            if name.startswith("trunk."):
                assert torch.equal(means[name], before)
                assert not torch.allclose(part.layout.split(part.log_var)[name], torch.tensor(-8.0))
            if target.model.role(name) == "point":
                assert (log_vars[name] == -torch.inf).all()
            else:
                assert torch.allclose(log_vars[name], torch.tensor(-8.0))
        kept = replace(VI, start="continue").first(part, target, Rng((0, 1)), lambda progress: None)
        trunk = part.layout.touched([])
        assert torch.equal(part.layout.pick(kept.log_var, trunk), part.layout.pick(part.log_var, trunk))

    def test_fresh_means_are_glorot_uniform_and_biases_zero(self) -> None:
        layout = Layout(("a.weight", "a.bias", "norm.weight", "old.weight"), ((40, 60), (40,), (7,), (2, 2)))
        names = ["a.weight", "a.bias", "norm.weight"]
        found = layout.split(
            small_random(layout, dict.fromkeys(names, 0), torch.full((2, layout.size), 9.0), 0.1, Rng((0, 1)), "glorot")
        )
        reach = (6 / 100) ** 0.5
        assert found["a.weight"].abs().max() <= reach
        assert found["a.weight"].std().item() == pytest.approx(reach / 3**0.5, rel=0.03)
        assert not torch.equal(*found["a.weight"])
        assert not found["a.bias"].any()
        assert (found["norm.weight"] == 1).all()
        assert (found["old.weight"] == 9).all()

    def test_words_that_are_not_known(self) -> None:
        target, _ = self.target()
        for project, words in (
            (replace(VI, init="zeros"), "unknown init 'zeros'"),
            (replace(VI, climbs="sd"), "unknown climbs 'sd'"),
            (replace(VI, start="rest"), "unknown start 'rest': did you mean 'reset'"),
            (replace(VI, draws=0), "draws is 0; give at least 1"),
        ):
            with pytest.raises(VclError, match=words):
                project(target, Rng((0, 1)))

    @pytest.mark.parametrize("name", ["mle", "map", "ewc", "lp", "si"])
    def test_zero_draws_of_z_are_refused(self, name: str) -> None:
        model = small_vae()
        prior = model.prior({"t0": 16})
        project = replace(METHODS[name], draws=0)
        with pytest.raises(VclError, match="draws is 0; give at least 1"):
            project(Target(project.initial(prior), model, shapes(4, 0, "t0"), prior), Rng((0,)))
        with pytest.raises(VclError, match="number of draws of the latent variables is 0"):
            Curvature(draws=0).check()


def test_log_deviations_move_variances_twice_as_fast() -> None:
    """Adam's first step has the length of the rate, whatever the gradient."""
    model, data = small_vae(), shapes(16, 0, "t0")
    prior = model.prior({"t0": 16})
    moved = {}
    for climbs in ("log_var", "log_sd"):
        project = replace(VI, climbs=climbs, ascent=Ascent(1, None, 0.01))
        q = project(Target(prior, model, data, prior), Rng((0,)))
        moved[climbs] = (q.restrict(held(model, q.layout)).log_var - log(VI.init_var)).abs().median().item()
    assert moved["log_sd"] == pytest.approx(2 * moved["log_var"], rel=0.01)


def test_reconstructions_average_over_what_is_drawn_and_points_are_not() -> None:
    """Both estimators of the prediction; with no variance at all they are the model's own answer."""
    model, data = small_vae(), shapes(6, 0, "t0", runs=2)
    q = VI(Target(model.prior({"t0": 16}).expand(2), model, data, model.prior({"t0": 16})), Rng((0, 1)))
    ways = [predict(q, model, data.x, "t0", Rng((0, 1)), 300, estimator) for estimator in ("weights", "local")]  # type: ignore[arg-type]
    assert torch.allclose(*ways, atol=0.01)
    assert not torch.equal(*ways)
    certain = q._replace(log_var=torch.full_like(q.log_var, -torch.inf))
    plain = torch.stack([model.predict(q.layout.split(q.mean[r]), data.x[r], "t0") for r in range(2)])
    assert torch.allclose(predict(certain, model, data.x, "t0", Rng((0, 1)), 2), plain, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnCuda:
    """Steps are captured there and layers have kernels: the same objectives, and fits that learn."""

    @pytest.mark.parametrize("climbs", ["log_var", "log_sd"])
    def test_the_bound_and_its_gradients_are_those_of_the_cpu(self, climbs: Any) -> None:
        _, elbo, q, prior, data = TestTheObjective().objective(climbs=climbs)
        noise = TestTheObjective().tape(elbo, data)
        found = []
        for device in ("cpu", "cuda"):
            there = Elbo(small_vae(), prior.to(device), 3, "weights", climbs)
            leaves = tuple(part.clone().requires_grad_() for part in there.parameters(q.to(device)))
            value = there(leaves, data.to(device), 12, noise.to(device))
            found.append([value.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(value.sum(), leaves))])
        for ours, plain in zip(*found, strict=True):
            torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("project", METHODS.values(), ids=METHODS)
    def test_every_method_learns_with_captured_steps(self, project: Any) -> None:
        model, data = small_vae(), shapes(32, 0, "t0", runs=2).to("cuda")
        prior, told = model.prior({"t0": 16}).to("cuda"), []
        longer = replace(project, ascent=Ascent(60, 16, 0.01))
        q = longer(Target(longer.initial(prior.expand(2)), model, data, prior), Rng((0, 1)), told.append)
        assert q.mean.is_cuda
        assert q.mean.isfinite().all()
        assert (told[-1].objective > told[0].objective + 20).all()
