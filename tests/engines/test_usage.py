"""The forward pass under q: local reparameterisation must have the very moments of drawn weights."""

from collections.abc import Callable
from math import prod

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from vcl.beliefs.layout import Layout, Params
from vcl.data import dataset
from vcl.engines.general import General, _over_draws
from vcl.engines.usage import ESTIMATORS, Usage, _among, evaluate, find_usage
from vcl.errors import VclError
from vcl.models import Network, mlp
from vcl.models.likelihoods import Categorical

EXAMPLES = 5


def of(module: nn.Module, x: Tensor) -> tuple[Callable[[dict[str, Tensor]], Tensor], dict[str, Tensor]]:
    params = {name: value.detach() for name, value in module.named_parameters()}
    return lambda p: functional_call(module, dict(p), x), params


def layout(params: dict[str, Tensor]) -> Layout:
    return Layout(tuple(params), tuple(tuple(value.shape) for value in params.values()))


def draws(
    module: nn.Module, x: Tensor, estimator: str, count: int, seed: int = 0, var: float = 0.3
) -> tuple[Usage, Tensor]:
    """``count`` draws of the module's output for one run: [count, N, ...]."""
    function, params = of(module, x)
    usage = find_usage(function, params, x.shape[0], estimator)
    names = layout(params)
    mean = names.join(params)[None]
    noise = torch.randn(1, count, usage.noise, generator=torch.Generator().manual_seed(seed), dtype=mean.dtype)
    variances = names.split(torch.full_like(mean, var))
    one = over_draws(usage, module, names.split(mean), variances, noise, x[None])
    return usage, one[0]


def over_draws(usage: Usage, module: nn.Module, mean: Params, var: Params, noise: Tensor, x: Tensor) -> Tensor:
    def one(mean: Params, var: Params, noise: Tensor, points: Params, x: Tensor) -> Tensor:
        return evaluate(usage, lambda p: functional_call(module, dict(p), x), mean, var, noise)

    return _over_draws(one, mean, var, noise, {}, (x,), ())


def seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for value in module.parameters():
        value.data = torch.randn(value.shape, generator=generator, dtype=torch.float64) * 0.5
    return module.double()


X = torch.randn(EXAMPLES, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_one_local_layer_has_exactly_the_moments_of_drawn_weights() -> None:
    module = seeded(nn.Linear(4, 3))
    usage, out = draws(module, X, "local", 100_000)
    assert usage.local == ("weight", "bias")
    assert usage.noise == EXAMPLES * 3
    assert torch.allclose(out.mean(0), F.linear(X, module.weight, module.bias), atol=0.02)
    assert torch.allclose(out.var(0), (0.3 * (X**2).sum(-1) + 0.3)[:, None].expand(-1, 3), rtol=0.03)


def test_local_gives_each_example_its_own_noise_and_weights_share_theirs() -> None:
    module, twice = seeded(nn.Linear(4, 3)), X[:1].expand(2, 4)
    _, local = draws(module, twice, "local", 50)
    usage, shared = draws(module, twice, "weights", 50)
    assert usage.drawn == ("weight", "bias")
    assert usage.noise == 15
    assert torch.equal(shared[:, 0], shared[:, 1])
    assert not torch.equal(local[:, 0], local[:, 1])


def test_draws_differ_and_follow_from_the_noise_alone() -> None:
    module = seeded(mlp(4, [6]))
    for estimator in ESTIMATORS:
        a, b, c = (draws(module, X, estimator, 2, seed)[1] for seed in (0, 0, 1))
        assert torch.equal(a, b)
        assert not torch.equal(a[0], a[1])
        assert not torch.equal(a, c)


def test_both_estimators_agree_on_the_per_example_distribution_of_a_deep_network() -> None:
    module = seeded(nn.Sequential(mlp(4, [6, 5]), nn.Linear(5, 2)))
    _, local = draws(module, X, "local", 200_000, var=0.1)
    _, shared = draws(module, X, "weights", 200_000, var=0.1)
    assert torch.allclose(local.mean(0), shared.mean(0), atol=0.05)
    assert torch.allclose(local.var(0), shared.var(0), rtol=0.05)


@pytest.mark.parametrize("runs", [1, 2])
def test_first_layer_moments_are_computed_once_for_all_draws(runs: int) -> None:
    """The matrix products on the raw inputs must not grow with the number of draws."""
    module = seeded(mlp(4, [6]))
    function, params = of(module, X)
    usage = find_usage(function, params, EXAMPLES, "local")
    names, seen = layout(params), []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func in (torch.ops.aten.bmm.default, torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
                seen.append([tuple(a.shape) for a in args if isinstance(a, Tensor)])
            return func(*args, **(kwargs or {}))

    mean, x = names.join(params).expand(runs, -1), X.expand(runs, *X.shape)
    with Watch():
        noise = torch.randn(runs, 7, usage.noise, dtype=mean.dtype)
        over_draws(usage, module, names.split(mean), names.split(mean**2), noise, x)
    assert len(seen) == 2
    for shapes in seen:
        (rows,) = [shape for shape in shapes if shape[-2:] == (EXAMPLES, 4)]
        assert prod(rows[:-2]) == runs


def test_gradients_of_the_local_estimator_are_those_of_its_formula() -> None:
    module = seeded(nn.Linear(4, 3))
    function, params = of(module, X)
    usage = find_usage(function, params, EXAMPLES, "local")
    noise = torch.randn(usage.noise, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def through_the_mode(*values: Tensor) -> Tensor:
        mean, var = dict(zip(params, values[:2], strict=True)), dict(zip(params, values[2:], strict=True))
        return evaluate(usage, function, mean, var, noise)

    inputs = [value.clone().requires_grad_() for value in (*params.values(), *(p**2 + 0.1 for p in params.values()))]
    assert torch.autograd.gradcheck(through_the_mode, tuple(inputs))


def test_a_dead_input_without_bias_has_finite_gradients() -> None:
    module = seeded(nn.Linear(4, 3, bias=False))
    function, params = of(module, torch.zeros(EXAMPLES, 4, dtype=torch.float64))
    usage = find_usage(function, params, EXAMPLES, "local")
    var = params["weight"].square().requires_grad_()
    out = evaluate(usage, function, params, {"weight": var}, torch.ones(usage.noise, dtype=torch.float64))
    assert torch.autograd.grad(out.sum(), var)[0].isfinite().all()


class Pooled(nn.Module):
    """A convolution whose output is averaged over the image: positions share the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3))


class OverSequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[:, None].expand(-1, 6, -1)).mean(1)


class Flattened(OverSequence):
    def forward(self, x: Tensor) -> Tensor:
        rows = x[:, None].expand(-1, 6, -1).reshape(-1, 4)
        return self.layer(rows).view(-1, 6, 2).mean(1)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (Pooled(), torch.randn(EXAMPLES, 1, 6, 6, dtype=torch.float64)),
        (OverSequence(), X),
        (Flattened(), X),
    ],
    ids=["convolution", "sequence", "flattened sequence"],
)
def test_layers_that_share_weights_within_an_example_draw_them(module: nn.Module, x: Tensor) -> None:
    """Local reparameterisation would lose the correlation: a pooled output would get a fraction of its variance."""
    usage, out = draws(seeded(module), x, "local", 60_000)
    assert not usage.local
    _, reference = draws(seeded(module), x, "weights", 60_000, seed=1)
    assert torch.allclose(out.var(0), reference.var(0), rtol=0.05)


class Tied(nn.Module):
    """The same weight forwards, as a linear layer, and backwards, transposed."""

    def __init__(self, linear_first: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.linear_first = linear_first

    def forward(self, x: Tensor) -> Tensor:
        if self.linear_first:
            return F.linear(F.linear(x, self.weight).tanh(), self.weight.T)
        return F.linear((x @ self.weight).tanh(), self.weight)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).tanh())


@pytest.mark.parametrize("module", [Tied(True), Tied(False), Twice()], ids=["linear first", "transpose first", "twice"])
def test_tied_weights_are_drawn_once_and_used_everywhere(module: nn.Module) -> None:
    module = seeded(module)
    usage, out = draws(module, X, "local", 3)
    assert not usage.local
    _, same = draws(module, X, "weights", 3)
    assert torch.equal(out, same)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.norm(self.first(x)).relu())


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend = nn.Linear(2, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.view(-1, 2, 2))
        return self.attend(tokens, tokens, tokens, need_weights=False)[0].mean(1)


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.table(x[:, 0].abs().long()))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's fused attention on the CPU, under vmap
@pytest.mark.parametrize("module", [Residual(), Attention(), Embedded()], ids=lambda module: type(module).__name__)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_residual_attention_and_embedding_networks_work(module: nn.Module, estimator: str) -> None:
    module = seeded(module)
    usage, out = draws(module, X, estimator, 4)
    assert set(usage.local) | set(usage.drawn) == dict(module.named_parameters()).keys()
    assert out.isfinite().all()
    assert not torch.equal(out[0], out[1])


def test_only_the_linear_layers_of_a_residual_network_are_local() -> None:
    usage, _ = draws(seeded(Residual()), X, "local", 1)
    assert set(usage.local) == {"first.weight", "first.bias", "second.weight", "second.bias"}
    assert set(usage.drawn) == {"norm.weight", "norm.bias"}


def test_batch_normalisation_is_refused_inside_the_pass() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.batch_norm(self.layer(x), None, None, training=True)

    with pytest.raises(VclError, match="LayerNorm or GroupNorm"):
        draws(seeded(Functional()), X, "local", 1)


def test_a_parameter_that_is_never_used_is_refused() -> None:
    module = nn.Linear(4, 3)
    module.extra = nn.Parameter(torch.zeros(2))
    with pytest.raises(VclError, match="never uses its parameter 'extra'"):
        draws(seeded(module), X, "local", 1)


def test_a_module_whose_path_changes_after_the_recorded_pass_is_refused() -> None:
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 4), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.layer(x) if self.calls == 1 else self.layer(self.layer(x))

    with pytest.raises(VclError, match="used twice under local reparameterisation"):
        draws(seeded(Moody()), X, "local", 1)

    class Peeking(Moody):
        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.layer(x) if self.calls == 1 else self.layer(x) + self.layer.weight.sum()

    with pytest.raises(VclError, match="which a recorded pass did not show"):
        draws(seeded(Peeking()), X, "local", 1)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("count", [1, 2])
def test_stray_randomness_is_an_error(estimator: str, count: int) -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.randn_like(x[:, :3])

    class Dropping(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(super().forward(x))

    for module in (Noisy(4, 3), Dropping(4, 3)):
        with pytest.raises(VclError, match=r"draws random numbers besides those of its parameters; remove them"):
            draws(seeded(module), X, estimator, count)


def test_a_path_that_depends_on_numbers_is_an_error() -> None:
    class Peeking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y if y.sum().item() > 0 else -y

    with pytest.raises(VclError, match=r"cannot be called for many draws .*; write it with tensor operations alone"):
        draws(seeded(Peeking(4, 3)), X, "weights", 1)


def test_a_weight_within_a_list_or_a_dictionary_is_noticed_too() -> None:
    class Hiding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 4), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            y: Tensor = self.layer(x)
            return torch.cat([y, y @ torch.stack([self.layer.weight])[0]], 1)[:, :4] if self.calls > 2 else y

    with pytest.raises(VclError, match="was also used by stack"):
        draws(seeded(Hiding()), X, "local", 1)
    assert _among([1, {"a": [X]}], {id(X)})
    assert not _among([1, {"a": [X]}, X.clone()], {id(X) + 1})


def test_unknown_estimators_are_refused_with_a_suggestion() -> None:
    with pytest.raises(VclError, match="did you mean 'local'"):
        draws(seeded(nn.Linear(4, 3)), X, "locl", 1)


class Table(nn.Module):
    """A layer over a table of its own that all examples share."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.register_buffer("table", torch.ones(rows, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :4] @ torch.relu(self.layer(self.table)).mean(0).unsqueeze(1)


@pytest.mark.parametrize("size", [4, 5])
def test_rows_that_are_as_many_as_examples_by_chance_are_not_local(size: int) -> None:
    model = Network(Table(5), 1, Categorical())
    data = dataset(torch.randn(size, 6), torch.zeros(size, dtype=torch.int64), head="h")
    layout = model.prior({"h": 2}).layout
    usage = General(model, layout).find_usage(data, torch.zeros(layout.size), "local", ())
    assert usage.local == ("heads.h.weight", "heads.h.bias")
