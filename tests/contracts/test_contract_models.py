"""What every model keeps, just by being listed here."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from made import blobs, linear_data, shapes, small_vae
from vcl.data import Data, concat, dataset
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.models import LinearGaussian, Model, Network, mlp, select_posterior, with_adapters
from vcl.models.likelihoods import Categorical, HeteroscedasticNormal, Normal, Poisson
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict
from vcl.projections import Target, VariationalKL


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(1, 3, 2), nn.GroupNorm(1, 3), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.conv(x.view(-1, 1, 2, 3))).relu().mean((2, 3)))


class RowsOfAnImage(nn.Module):
    """A linear layer on each row of an image, flattened only afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.view(-1, 2, 3))


class Case(NamedTuple):
    model: Model
    data: Data
    heads: dict[str, int]
    scale: float = 1.0
    """Of the parameters that tests take: outputs of a logarithm should not be in the tens."""


def regression(width: int) -> Data:
    g = torch.Generator().manual_seed(0)
    return dataset(torch.randn(12, 6, generator=g), torch.randn(12, width, generator=g), "t0", "h0", 2)


def counted(width: int) -> Data:
    data = regression(width)
    return data._replace(y=(2 * data.y.abs()).floor())


def two_heads() -> Data:
    return concat(blobs(8, 0, "t0", "h0", runs=2), blobs(6, 1, "t1", "h1", runs=2, classes=3))


def with_frozen() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU())


CASES = {
    "linear": Case(LinearGaussian(4), linear_data(12, 0, "t0", runs=2), {"all": 1}),
    "classifier": Case(Network(mlp(6, [5]), 5, Categorical()), blobs(12, 0, "t0", "h0", runs=2), {"h0": 2}),
    "two heads": Case(Network(mlp(6, [5]), 5, Categorical()), two_heads(), {"h0": 2, "h1": 3}),
    "convolution": Case(Network(Convolutional(), 4, Categorical()), blobs(12, 0, "t0", "h0", runs=2), {"h0": 2}),
    "rows of an image": Case(Network(RowsOfAnImage(), 4, Categorical()), blobs(12, 0, "t0", "h0", runs=2), {"h0": 2}),
    "images": Case(
        Network(nn.Sequential(nn.Linear(4, 2), nn.Flatten()), 8, Categorical()),
        dataset(torch.rand(12, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2, "t0", "h0", 2),
        {"h0": 2},
    ),
    "regressor": Case(Network(mlp(6, [5]), 5, Normal(0.3)), regression(2), {"h0": 2}),
    "frozen first layer": Case(
        Network(with_frozen(), 4, Categorical(), frozen=("1.weight", "1.bias")),
        blobs(12, 0, "t0", "h0", runs=2),
        {"h0": 2},
    ),
    "frozen last layer, trained start": Case(
        Network(with_frozen(), 4, Categorical(), frozen=("3.weight",), start="module", prior_mean="module"),
        two_heads(),
        {"h0": 2, "h1": 3},
    ),
    "frozen batch norm": Case(
        Network(
            nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)).eval(), 4, Normal(0.3), frozen=("0.weight", "0.bias")
        ),
        regression(2),
        {"h0": 2},
    ),
    "head alone": Case(
        Network(Convolutional(), 4, Categorical(), frozen=dict(Convolutional().named_parameters())),
        blobs(12, 0, "t0", "h0", runs=2),
        {"h0": 2},
    ),
    "adapters": Case(
        Network(
            adapted := with_adapters(with_frozen(), 2, "*"),
            4,
            Categorical(),
            start="module",
            frozen=select_posterior(adapted, "trainable").frozen,
        ),
        blobs(12, 0, "t0", "h0", runs=2),
        {"h0": 2},
    ),
    "noise of each target": Case(Network(mlp(6, [5]), 5, Normal((0.3, 2.0))), regression(2), {"h0": 2}),
    "predicted noise": Case(Network(mlp(6, [5]), 5, HeteroscedasticNormal()), regression(2), {"h0": 4}, 0.3),
    "counts": Case(Network(mlp(6, [5]), 5, Poisson()), counted(2), {"h0": 2}, 0.3),
    "logistic": Case(Network(nn.Flatten(), 6, Categorical()), blobs(12, 0, "t0", "h0", runs=2), {"h0": 2}),
}

GENERATIVE = {
    "vae": Case(small_vae(), shapes(12, 0, "t0", runs=2), {"t0": 16}),
    "vae, h -> x private": Case(small_vae("upper", head_kl=True), shapes(12, 0, "t0", runs=2), {"t0": 16}),
    "vae, nothing shared": Case(small_vae("both"), shapes(12, 0, "t0", runs=2), {"t0": 16}),
    "vae, one encoder": Case(
        small_vae(shared_encoder=True),
        concat(shapes(7, 0, "t0", runs=2), shapes(5, 1, "t1", runs=2)),
        {"t0": 16, "t1": 16},
    ),
}
EVERY = CASES | GENERATIVE


def log_lik(model: Model, params: dict[str, Tensor], data: Data, first: int = 0) -> Tensor:
    """With the same noise for an example wherever it stands, if the model takes any."""
    if not model.latent:
        return model.log_lik(params, data)
    noise = torch.randn(50, model.latent, generator=torch.Generator().manual_seed(0))
    return model.log_lik(params, data, noise[first : first + data.x.shape[0]])


def params_of(case: Case, seed: int = 0) -> dict[str, Tensor]:
    layout = case.model.prior(case.heads).layout
    values = torch.randn(layout.size, generator=torch.Generator().manual_seed(seed), dtype=case.data.x.dtype)
    return layout.split(case.scale * values)


def first_run(data: Data) -> Data:
    return Data(data.x[0], data.y[0], data.source[0], data.sources)


@pytest.mark.parametrize("case", EVERY.values(), ids=EVERY)
class TestEveryModel:
    def test_the_prior_has_one_run_and_grows_by_heads_at_the_end(self, case: Case) -> None:
        prior = case.model.prior(case.heads)
        assert prior.mean.shape == prior.log_var.shape == (1, prior.layout.size)
        more = case.model.prior({**case.heads, "later": 2})
        assert more.layout.names[: len(prior.layout.names)] == prior.layout.names

    def test_log_likelihoods_are_one_per_example_never_averaged(self, case: Case) -> None:
        params, data = params_of(case), first_run(case.data)
        whole = log_lik(case.model, params, data)
        assert whole.shape == (data.x.shape[0],)
        one_by_one = [
            log_lik(
                case.model,
                params,
                Data(data.x[n : n + 1], data.y[n : n + 1], data.source[n : n + 1], data.sources),
                n,
            )
            for n in range(data.x.shape[0])
        ]
        assert torch.allclose(whole, torch.cat(one_by_one), rtol=1e-4, atol=1e-5)

    def test_the_model_keeps_no_state(self, case: Case) -> None:
        data = first_run(case.data)
        a, _, c = (log_lik(case.model, params_of(case, seed), data) for seed in (0, 1, 0))
        assert torch.equal(a, c)

    def test_every_parameter_has_a_role_and_points_have_no_variance(self, case: Case) -> None:
        prior = case.model.prior({**case.heads, "later": 2})
        for name, log_var in prior.layout.split(prior.log_var).items():
            assert case.model.role(name) in ("random", "free", "point")
            assert bool(log_var.isfinite().all()) == (case.model.role(name) != "point")

    def test_good_data_is_accepted_and_the_model_can_be_fitted_and_asked(self, case: Case) -> None:
        model, data, heads, _ = case
        model.check(data, heads)
        prior = model.prior(heads)
        project = VariationalKL(Ascent(2, 5, 0.01), 2, "local")
        q = project(Target(prior.expand(2).to(data.x.dtype), model, data, prior), Rng((0, 1)))
        moments = predict(q, model, data.x, data.heads[0], Rng((0, 1)), draws=3)
        assert moments.shape[:2] == data.x.shape[:2]
        assert moments.isfinite().all()


CHAINS = {
    name: CASES[name]
    for name in (
        "linear",
        "classifier",
        "two heads",
        "regressor",
        "logistic",
        "frozen first layer",
        "frozen batch norm",
        "noise of each target",
        "predicted noise",
        "counts",
    )
}


@pytest.mark.parametrize("case", CHAINS.values(), ids=CHAINS)
def test_the_evidence_is_the_likelihood_where_the_parameters_are_certain(case: Case) -> None:
    params, data = params_of(case), first_run(case.data)
    certain = {name: torch.full_like(value, 1e-12) for name, value in params.items()}
    evidence = case.model.log_evidence(params, certain, data)
    if case.model is CASES["two heads"].model:
        evidence, params_lik = evidence[:8], case.model.log_lik(params, data)[:8]  # three classes are approximated
        assert torch.allclose(evidence, params_lik, atol=1e-4)
    else:
        assert torch.allclose(evidence, case.model.log_lik(params, data), rtol=1e-4, atol=1e-4)
    wide = case.model.log_evidence(params, {name: torch.ones_like(value) for name, value in params.items()}, data)
    assert not torch.allclose(wide[:8], evidence[:8], atol=1e-2)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_drawn_labels_have_the_models_own_distribution(case: Case) -> None:
    params, one = params_of(case), first_run(case.data)
    many, n = 4000, one.x.shape[0]
    wide = Data(*(part.repeat_interleave(many, 0) for part in (one.x, one.y, one.source)), one.sources)
    noise = torch.randn(wide.y.shape, generator=torch.Generator().manual_seed(3), dtype=one.x.dtype)
    drawn = case.model.sample(params, wide, noise)
    assert drawn.shape == wide.y.shape
    assert drawn.dtype == wide.y.dtype
    for row in range(n):
        head = one.sources[int(one.source[row])].head
        moments = case.model.predict(params, one.x[row : row + 1], head)[0]
        mine = drawn[row * many : (row + 1) * many]
        if mine.is_floating_point():
            got = torch.cat([mine.view(many, -1).mean(0), mine.view(many, -1).square().mean(0)])
            assert torch.allclose(got, moments, rtol=0.1, atol=0.1)
        else:
            assert torch.allclose(torch.bincount(mine, minlength=len(moments)) / many, moments, atol=0.04)


@pytest.mark.parametrize("name", ["convolution", "rows of an image", "images"])
def test_a_network_without_a_rule_for_its_moments_is_refused_with_a_sentence(name: str) -> None:
    case = CASES[name]
    params = params_of(case)
    with pytest.raises(VclError, match="moment propagation takes"):
        case.model.log_evidence(
            params, {key: torch.ones_like(value) for key, value in params.items()}, first_run(case.data)
        )


def test_each_example_is_answered_by_its_own_head() -> None:
    """Mixed heads of different sizes against each head alone, where labels of one are out of range for the other."""
    model, data, heads, _ = CASES["two heads"]
    params, mixed = params_of(CASES["two heads"]), first_run(data)
    for number, head in enumerate(("h0", "h1")):
        rows = mixed.source == number
        alone = Data(mixed.x[rows], mixed.y[rows], torch.zeros_like(mixed.source[rows]), (mixed.sources[number],))
        assert alone.heads == (head,)
        assert torch.allclose(model.log_lik(params, mixed)[rows], model.log_lik(params, alone), atol=1e-6)
    assert heads["h1"] == 3


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.BatchNorm1d(5), "keeps running statistics"),
        (nn.InstanceNorm1d(5, track_running_stats=True), "keeps running statistics"),
        (nn.GRU(5, 5, 2, dropout=0.1), "adds its own noise"),
        (nn.Dropout(0.5), "adds its own noise"),
    ],
    ids=["batch norm", "instance norm", "GRU", "dropout"],
)
def test_layers_that_cannot_be_treated_soundly_are_refused(layer: nn.Module, words: str) -> None:
    with pytest.raises(VclError, match=words):
        Network(nn.Sequential(nn.Linear(6, 5), layer), 5, Categorical())


class Dropping(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x))


class Peeking(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if y.sum().item() > 0 else y.relu()


@pytest.mark.parametrize(
    ("trunk", "words"),
    [
        (Dropping(6, 5), "draws random numbers besides those of its parameters"),
        (Peeking(6, 5), "cannot be called for many draws"),
    ],
    ids=["dropout", "a path by numbers"],
)
def test_code_that_cannot_be_treated_soundly_is_refused_before_any_work(trunk: nn.Module, words: str) -> None:
    with pytest.raises(VclError, match=words):
        Network(trunk, 5, Categorical()).check(blobs(4, 0, "t", "h0"), {"h0": 2})


def test_dropout_in_evaluation_mode_is_accepted() -> None:
    """It then does nothing: every number is that of the same network without it."""
    linear, data = nn.Linear(6, 5), blobs(4, 0, "t", "h0")
    plain, dropped = (
        Network(module, 5, Categorical()) for module in (linear, nn.Sequential(linear, nn.Dropout(0.5)).eval())
    )
    prior = plain.prior({"h0": 2})
    assert dropped.prior({"h0": 2}).layout.size == prior.layout.size
    one = Data(data.x[0], data.y[0], data.source[0], data.sources)
    theta = torch.randn(prior.layout.size, generator=torch.Generator().manual_seed(0))
    found, known = (model.log_lik(model.prior({"h0": 2}).layout.split(theta), one) for model in (dropped, plain))
    assert torch.equal(found, known)
    assert known.shape == (4,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Network(mlp(6, [5]), 5, Categorical(), prior_var=0.0), "prior_var is 0.0"),
        (lambda: LinearGaussian(3, noise=0.0), "noise is 0.0"),
        (lambda: CASES["classifier"].model.check(blobs(4, 0, "t", "h9"), {"h0": 2}), "names the head 'h9'"),
        (lambda: CASES["classifier"].model.check(blobs(4, 0, "t", "h0", width=7), {"h0": 2}), "does not take inputs"),
        (
            lambda: Network(mlp(6, [5]), 4, Categorical()).check(blobs(4, 0, "t", "h0"), {"h0": 2}),
            "features=4 was given",
        ),
        (lambda: LinearGaussian(3).check(linear_data(4, 0), {}), "this model takes (3,)"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(make: Any, words: str) -> None:
    with pytest.raises(VclError) as error:
        make()
    assert words in str(error.value)
