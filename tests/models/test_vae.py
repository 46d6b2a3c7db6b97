"""The VAE: which parameters are whose, its bound, and what it refuses."""

from math import log, pi
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from made import shapes, small_vae
from vcl.beliefs.layout import head_of
from vcl.beliefs.mean_field import MeanField
from vcl.data import Data, concat, unlabelled
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.models import LatentModel, Vae, mlp_vae
from vcl.models.base import held, spread
from vcl.models.pixels import BernoulliPixels, NormalPixels, binarised
from vcl.ops.rng import Rng
from vcl.projections import Exact, MomentMatching, SequentialMonteCarlo, Target, VariationalKL

HEADS = {"a": 16, "b": 16}


def params_of(model: Vae, seed: int = 0) -> dict[str, Tensor]:
    layout = model.layout(HEADS)
    return layout.split(0.3 * torch.randn(layout.size, generator=torch.Generator().manual_seed(seed)))


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def one_run(data: Data) -> Data:
    return Data(data.x[0], data.y[0], data.source[0], data.sources)


def images(n: int = 5, head: str = "a") -> Data:
    return one_run(shapes(n, 0, head))


class TestParameters:
    def test_the_two_architectures_differ_in_exactly_which_part_is_shared(self) -> None:
        one, two = small_vae("lower"), small_vae("upper")
        lower = {tuple(value.shape) for value in one.lower.parameters()}
        upper = {tuple(value.shape) for value in one.upper.parameters()}
        for model, shared, own in ((one, upper, lower), (two, lower, upper)):
            layout = model.layout(HEADS)
            decoder = {name: shape for name, shape in zip(*layout, strict=True) if "encoder" not in name}
            assert {shape for name, shape in decoder.items() if head_of(name) is None} == shared
            for head in HEADS:
                assert {shape for name, shape in decoder.items() if head_of(name) == head} == own
        encoders = [
            {name: shape for name, shape in zip(*model.layout(HEADS), strict=True) if "encoder" in name}
            for model in (one, two)
        ]
        assert encoders[0] == encoders[1]

    def test_with_both_parts_private_the_generators_share_nothing(self) -> None:
        model, one = small_vae("both"), small_vae("lower")
        layout = model.layout(HEADS)
        assert {head_of(name) for name in layout.names} == set(HEADS)
        assert model.layout({}).size == 0
        assert layout.size == 2 * one.layout({"a": 16}).size, "each is as large as the VAE of one task"
        assert not held(model, layout).names
        assert held(small_vae("both", head_kl=True), layout) == spread(model, layout)
        # Given the same weights, it decodes as a VAE whose upper part is shared.
        params = params_of(one)
        own = {
            name.replace("trunk.", f"heads.{head}.upper:", 1)
            .replace("upper:0.", "upper:0:")
            .replace("upper:2.", "upper:2:"): value
            for head in HEADS
            for name, value in params.items()
            if name.startswith("trunk.")
        }
        own |= {name: value for name, value in params.items() if not name.startswith("trunk.")}
        assert set(own) == set(layout.names)
        z = normals(4, 3)
        for head in HEADS:
            assert torch.equal(model.decode(own, z, head), one.decode(params, z, head))

    def test_roles(self) -> None:
        model = small_vae()
        for name in model.layout(HEADS).names:
            expected = "random" if name.startswith("trunk.") else "point" if "encoder" in name else "free"
            assert model.role(name) == expected
        assert small_vae(head_kl=True).role("heads.a.decoder:0:weight") == "random"
        assert small_vae(head_kl=True).role("heads.a.encoder:1:weight") == "point"

    def test_a_shared_encoder_belongs_to_no_head(self) -> None:
        model = small_vae(shared_encoder=True)
        encoder = [name for name in model.layout(HEADS).names if "encoder" in name]
        assert encoder
        assert all(head_of(name) is None and model.role(name) == "point" for name in encoder)

    def test_heads_may_have_dots_in_their_names(self) -> None:
        layout = small_vae().layout({"0.5": 16})
        assert {head_of(name) for name in layout.names} == {None, "0.5"}

    def test_points_have_variance_zero_in_the_prior_and_nothing_is_nan(self) -> None:
        model = small_vae()
        prior = model.prior(HEADS)
        for name, value in prior.layout.split(prior.log_var).items():
            assert (value == (-torch.inf if "encoder" in name else 0)).all()
        assert torch.equal(prior.draw(normals(1, 4, prior.layout.size)).isnan().any(), torch.tensor(False))
        grown = model.prior({}).grow(prior)
        assert torch.equal(grown.log_var, prior.log_var)
        assert held(model, prior.layout).names == tuple(n for n in prior.layout.names if n.startswith("trunk."))
        assert len(spread(model, prior.layout).names) == len(held(model, prior.layout).names) * 3

    def test_the_papers_sizes(self) -> None:
        layout = mlp_vae().layout({"0": 784})
        sizes = dict.fromkeys(("random", "free", "point"), 0)
        for name, size in zip(layout.names, layout.sizes, strict=True):
            sizes[small_vae().role(name)] += size
        assert sizes["random"] == 500 * 500 + 500 + 500 * 784 + 784
        assert sizes["free"] == 50 * 500 + 500 + 500 * 500 + 500
        assert sizes["point"] == 784 * 500 + 500 + 2 * (500 * 500 + 500) + 500 * 100 + 100


class TestTheBound:
    def test_it_is_the_formula_written_out(self) -> None:
        model, data, params, noise = small_vae(), images(), params_of(small_vae()), normals(5, 3)
        found = model.log_lik(params, data, noise)
        for n in range(5):
            h = data.x[n].flatten()
            for layer in (1, 3, 5):
                h = F.linear(
                    h, params[f"heads.a.encoder:{layer}:weight"], params[f"heads.a.encoder:{layer}:bias"]
                ).relu()
            out = F.linear(h, params["heads.a.encoder:7:weight"], params["heads.a.encoder:7:bias"])
            q = torch.distributions.Normal(out[:3], out[3:].exp())
            z = q.mean + q.stddev * noise[n]
            h = z
            for layer in (0, 2):
                h = F.linear(
                    h, params[f"heads.a.decoder:{layer}:weight"], params[f"heads.a.decoder:{layer}:bias"]
                ).relu()
            h = F.linear(h, params["trunk.0.weight"], params["trunk.0.bias"]).relu()
            p = F.linear(h, params["trunk.2.weight"], params["trunk.2.bias"]).sigmoid()
            x = data.x[n].flatten()
            fit = (x * p.log() + (1 - x) * (1 - p).log()).sum()
            normal = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
            assert found[n].item() == pytest.approx(
                (fit - torch.distributions.kl_divergence(q, normal).sum()).item(), rel=1e-5
            )
            weight = fit + normal.log_prob(z).sum() - q.log_prob(z).sum()
            assert model.log_weight(params, data, noise)[n].item() == pytest.approx(weight.item(), rel=1e-5)

    @pytest.mark.parametrize("private", ["lower", "upper"])
    def test_many_draws_at_once_are_each_draw_alone(self, private: str) -> None:
        model, data, noise = small_vae(private), images(), normals(4, 5, 3)
        params = params_of(model)
        for function in (model.log_lik, model.log_weight):
            whole = function(params, data, noise)
            assert whole.shape == (4, 5)
            assert torch.allclose(whole, torch.stack([function(params, data, part) for part in noise]), atol=1e-5)

    def test_each_example_is_answered_by_its_own_task(self) -> None:
        model, noise = small_vae(), normals(2, 9, 3)
        params = params_of(model)
        mixed = one_run(concat(shapes(4, 0, "a"), shapes(5, 1, "b")))
        both = model.log_lik(params, mixed, noise)
        for position, (head, rows) in enumerate((("a", slice(0, 4)), ("b", slice(4, 9)))):
            alone = Data(mixed.x[rows], mixed.y[rows], mixed.source[rows] * 0, (mixed.sources[position],))
            assert alone.heads == (head,)
            assert torch.allclose(both[:, rows], model.log_lik(params, alone, noise[:, rows]), atol=1e-5)

    def test_bytes_are_pixels_over_255(self) -> None:
        model, data, noise = small_vae(), images(), normals(5, 3)
        grey = (data.x * 255).round()
        same = [model.log_lik(params_of(model), data._replace(x=x), noise) for x in (grey.to(torch.uint8), grey / 255)]
        assert torch.allclose(*same)

    def test_without_noise_it_says_what_it_needs(self) -> None:
        with pytest.raises(VclError, match="needs noise for its latent variables"):
            small_vae().log_lik(params_of(small_vae()), images())

    def test_the_vae_is_a_latent_model(self) -> None:
        assert isinstance(small_vae(), LatentModel)


class TestPixels:
    def test_bernoulli_is_stable_at_any_logit(self) -> None:
        output = torch.tensor([[-1e4, 1e4, 80.0, -80.0]], requires_grad=True)
        value = BernoulliPixels().log_prob(output, torch.tensor([[0.0, 1.0, 1.0, 0.5]]))
        assert value.item() == pytest.approx(-40.0)
        assert torch.autograd.grad(value.sum(), output)[0].isfinite().all()

    def test_bernoulli_by_hand(self) -> None:
        p, x = torch.tensor([0.2, 0.7]), torch.tensor([0.25, 1.0])
        by_hand = 0.25 * log(0.2) + 0.75 * log(0.8) + log(0.7)
        assert BernoulliPixels().log_prob(p.logit(), x).item() == pytest.approx(by_hand)
        assert torch.allclose(BernoulliPixels().mean(p.logit()), p)

    def test_normal_by_hand(self) -> None:
        value = NormalPixels(0.5).log_prob(torch.tensor([1.0, 2.0]), torch.tensor([1.5, 2.0]))
        assert value.item() == pytest.approx(-0.5 - 2 * log(0.5) - log(2 * pi))

    def test_binarised(self) -> None:
        grey = torch.tensor([[0, 100, 128, 255]], dtype=torch.uint8)
        assert binarised(grey).tolist() == [[0, 0, 255, 255]]
        assert binarised(grey / 255).tolist() == [[0.0, 0.0, 1.0, 1.0]]
        assert binarised(torch.tensor([0.499, 0.5])).tolist() == [0.0, 1.0]
        drawn = binarised(torch.full((20_000, 1), 0.3), torch.Generator().manual_seed(0))
        assert drawn.mean().item() == pytest.approx(0.3, abs=0.02)
        assert set(drawn.unique().tolist()) == {0.0, 1.0}


class TestBadInput:
    @pytest.mark.parametrize(
        ("x", "words"),
        [
            (torch.full((2, 16), 1.5), r"task 't': pixels run from 1\.5 to 1\.5; scale them to 0 to 1"),
            (torch.full((2, 16), -0.1), r"pixels run from -0\.1 to -0\.1"),
            (torch.ones(2, 16, dtype=torch.int64), r"pixels have dtype torch\.int64; give uint8"),
            (torch.ones(2, 9), "images have 9 pixels but the head 't' has 16"),
        ],
        ids=["above", "below", "integers", "size"],
    )
    def test_images_that_do_not_fit(self, x: Tensor, words: str) -> None:
        with pytest.raises(VclError, match=words):
            small_vae().check(unlabelled(x, "t", "t"), {"t": 16})

    def test_a_bad_image_of_a_second_task_or_run_is_found(self) -> None:
        good, bad = unlabelled(torch.ones(2, 16), "t", "t"), unlabelled(torch.full((3, 16), 2.0), "u", "u")
        with pytest.raises(VclError, match="task 'u': pixels run from 2 to 2"):
            small_vae().check(concat(good, bad), {"t": 16, "u": 16})
        none = torch.zeros(2, 2).long()
        second = Data(torch.stack([torch.ones(2, 16), torch.full((2, 16), 7.0)]), none, none, good.sources)
        with pytest.raises(VclError, match="pixels run from 1 to 7"):
            small_vae().check(second, {"t": 16})

    def test_modules_that_do_not_fit(self) -> None:
        data = unlabelled(torch.ones(2, 16), "t", "t")

        def check(encoder: nn.Module, lower: nn.Module, upper: nn.Module) -> None:
            Vae(encoder, lower, upper, 3).check(data, {"t": 16})

        encoder, lower, upper = nn.Linear(16, 6), nn.Linear(3, 4), nn.Linear(4, 16)
        check(encoder, lower, upper)
        with pytest.raises(VclError, match="encoder does not take inputs of shape"):
            check(nn.Linear(9, 6), lower, upper)
        with pytest.raises(VclError, match=r"encoder gives \(5,\) values per example; it must give 6"):
            check(nn.Linear(16, 5), lower, upper)
        with pytest.raises(VclError, match="decoder does not take 3 latent variables"):
            check(encoder, nn.Linear(2, 4), upper)
        with pytest.raises(VclError, match="decoder gives 9 pixels but the images have 16"):
            check(encoder, lower, nn.Linear(4, 9))

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"latent": 0}, "latent is 0; give at least 1"),
            ({"prior_var": 0.0}, "prior_var is 0.0; a variance must be above 0"),
            ({"private": "middle"}, "unknown private part of the decoder 'middle'"),
        ],
    )
    def test_settings(self, settings: dict[str, Any], words: str) -> None:
        with pytest.raises(VclError, match=words):
            mlp_vae(16, **settings)

    def test_unsound_modules_are_refused_wherever_they_stand(self) -> None:
        parts = [nn.Linear(16, 6), nn.Linear(3, 4), nn.Linear(4, 16)]
        for place in range(3):
            bad = [nn.Sequential(part, nn.BatchNorm1d(2)) if place == n else part for n, part in enumerate(parts)]
            with pytest.raises(VclError, match="keeps running statistics"):
                Vae(*bad, 3)

    def test_a_head_never_met_is_named_with_those_that_were(self) -> None:
        with pytest.raises(VclError, match=r"no task has added a head 'c' yet; .*\['a', 'b'\]"):
            small_vae().decode(params_of(small_vae()), normals(2, 3), "c")

    @pytest.mark.parametrize(
        "project", [MomentMatching(), SequentialMonteCarlo(20), Exact()], ids=["mm", "smc", "exact"]
    )
    def test_methods_that_need_the_likelihood_itself_refuse(self, project: Any) -> None:
        model = small_vae()
        prior = model.prior({"a": 16})
        with pytest.raises(VclError, match=r"has 3 latent variables per example|takes linear-Gaussian models only"):
            project(Target(prior, model, shapes(4, 0, "a"), prior), Rng((0,)))
        with pytest.raises(VclError, match="the evidence in closed form needs"):
            model.log_evidence({}, {}, images())
        with pytest.raises(VclError, match="no labels to draw"):
            model.sample({}, images(), normals(5))


class ConvolutionalUpper(nn.Module):
    """From 6 features to a 4 x 4 image by a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(6, 8), nn.ConvTranspose2d(2, 1, 2, stride=2)

    def forward(self, h: Tensor) -> Tensor:
        return self.out(self.first(h).relu().view(-1, 2, 2, 2))


@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_a_convolutional_decoder_works_with_the_same_code(estimator: Any) -> None:
    encoder = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv2d(1, 2, 2), nn.Flatten(), nn.ReLU(), nn.Linear(18, 6))
    model = Vae(encoder, nn.Sequential(nn.Linear(3, 6), nn.ReLU()), ConvolutionalUpper(), 3)
    data, prior = shapes(32, 0, "a", runs=2), model.prior({"a": 16})
    model.check(data, {"a": 16})
    told: list[Any] = []
    project = VariationalKL(Ascent(30, 16, 0.02), 2, estimator, ml_start=False, init="glorot", init_var=1e-4)
    q = project(Target(prior.expand(2), model, data, prior), Rng((0, 1)), told.append)
    assert isinstance(q, MeanField)
    assert q.mean.isfinite().all()
    assert (told[-1].objective > told[0].objective).all()
