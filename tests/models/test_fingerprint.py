"""A state knows the network that it was learned with, and refuses another one with the first difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from made import blob_tasks, linear_tasks, shapes, small_vae
from vcl.coresets import RandomK
from vcl.data import dataset
from vcl.errors import NonFiniteError, VclError
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.learner.generative import GenerativeLearner, generative_vcl
from vcl.models import LinearGaussian, Network, Vae
from vcl.models.fingerprint import Fingerprint, check_model, fingerprint
from vcl.models.likelihoods import Categorical, Likelihood, Probit
from vcl.ops.rng import Rng
from vcl.predicting.generation import generate, log_marginal
from vcl.predicting.prediction import predict, predict_draws
from vcl.projections import Exact, VariationalKL
from vcl.recursion import Method, State, Task, initial, learn, set_runs_aside

METHOD: Method[Any] = Method(VariationalKL(Ascent(2, 16, 0.01), 2, "local"), RandomK(5))


class Between(nn.Module):
    """Two layers with a function between, which leaves no trace among the parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor], units: int = 8) -> None:
        super().__init__()
        self.function, self.one, self.two = function, nn.Linear(6, units), nn.Linear(units, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.two(self.function(self.one(x))))


def network(function: Callable[[Tensor], Tensor] = torch.relu, units: int = 8) -> Network:
    return Network(Between(function, units), 8, Categorical())


def learned(model: Any, tasks: list[Task] | None = None) -> State[Any]:
    return list(learn(initial(model, METHOD, 2), tasks or blob_tasks(2, runs=2), model, METHOD, Rng((0, 1))))[-1]


OTHERS: dict[str, tuple[Callable[[], Network], str]] = {
    "tanh": (lambda: network(torch.tanh), r"but its output for a fixed input is \S+ instead of"),
    "leaky": (lambda: network(lambda x: torch.nn.functional.leaky_relu(x, 0.001)), "but its output for a fixed input"),
    "wider": (lambda: network(units=9), r"its parameter 'trunk\.one\.weight' has shape \(9, 6\) instead of \(8, 6\)"),
    "flatten": (
        lambda: Network(nn.Sequential(nn.Flatten(), Between(torch.relu)), 8, Categorical()),
        r"it has no parameter 'trunk\.one\.weight' \(8, 6\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_network_is_refused_with_the_first_difference(name: str) -> None:
    make, fault = OTHERS[name]
    state, tasks, rng = learned(network()), blob_tasks(3, runs=2), Rng((0, 1))
    x = tasks[0].train.x
    wanted = rf"^this is not the network that the state was learned with: .*{fault}.*; give the model that"
    for ask in (
        lambda: predict(state, make(), x, "h0", rng),
        lambda: predict_draws(state, make(), x, "h0", rng),
        lambda: list(learn(state, tasks[2:], make(), METHOD, rng)),
        lambda: predict(from_bytes(to_bytes(state)), make(), x, "h0", rng),
    ):
        with pytest.raises(VclError, match=wanted):
            ask()


def test_a_parameter_more_is_told_and_a_state_that_has_learned_nothing_knows_its_parameters() -> None:
    class More(Between):
        def __init__(self) -> None:
            super().__init__(torch.relu)
            self.extra = nn.Parameter(torch.zeros(3))

    other = Network(More(), 8, Categorical())
    with pytest.raises(VclError, match=r"it has a new parameter 'trunk\.extra' \(3,\);"):
        predict(learned(network()), other, torch.zeros(2, 1, 6), "h0", Rng((0, 1)))
    with pytest.raises(VclError, match=r"'trunk\.extra'"):
        list(learn(initial(network(), METHOD, 2), blob_tasks(1, runs=2), other, METHOD, Rng((0, 1))))


def test_the_same_network_made_again_is_taken_and_a_state_predicts_as_its_belief_does() -> None:
    state, x, rng = learned(network()), blob_tasks(1, runs=2)[0].train.x, Rng((0, 1))
    torch.manual_seed(5)  # its own parameter values play no part
    again = network()
    for ask in (predict, predict_draws):
        one, two = ask(state, again, x, "h1", rng, 5), ask(state.predictive["h1"], network(), x, "h1", rng, 5)
        assert torch.equal(one, two)
    with pytest.raises(VclError, match=r"no task has added a head 'h7' yet.*: \['h0', 'h1'\]"):
        predict(state, again, x, "h7", rng)
    assert predict(from_bytes(to_bytes(state)), again, x, "h0", rng).shape == (2, 40, 2)


def test_a_state_with_fewer_runs_than_it_began_with_predicts_for_those_left() -> None:
    state, x, rng = learned(network()), blob_tasks(1, runs=2)[0].train.x, Rng((0, 1))
    left = set_runs_aside(state, NonFiniteError("x", [0]), 2, METHOD, rng)
    wanted = predict(state.predictive["h0"].select(torch.tensor([1])), network(), x[:1], "h0", Rng(1), 5)
    assert torch.equal(predict(left, network(), x, "h0", rng, 5), wanted)
    assert torch.equal(predict(left, network(), x[1:], "h0", Rng(1), 5), wanted)


def test_another_likelihood_is_another_network() -> None:
    def made(likelihood: Likelihood) -> Network:
        return Network(nn.Linear(6, 8), 8, likelihood)

    task = Task("t", blob_tasks(1, runs=2)[0].train, heads={"h0": 1})
    method: Method[Any] = Method(VariationalKL(Ascent(1, None, 0.01)), RandomK(5))
    (state,) = learn(initial(made(Probit()), method, 2), [task], made(Probit()), method, Rng((0, 1)))
    with pytest.raises(VclError, match="this is not the network that the state was learned with"):
        predict(state, made(Categorical()), task.train.x, "h0", Rng((0, 1)))


def test_the_fingerprint_is_small_and_does_not_depend_on_precision_or_the_data() -> None:
    data = blob_tasks(1)[0].train
    model, heads = network(), {"h0": 2}
    one = fingerprint(model, data, heads, torch.zeros(1))
    two = fingerprint(model, data._replace(x=data.x.double() + 9), heads, torch.zeros(1, dtype=torch.float64))
    assert one == two
    assert one.dtype == "float64"
    assert one.shape == (6,)
    assert len(one.values) == 4
    wide = fingerprint(model, data, {"h0": 500}, torch.zeros(1))
    assert len(wide.values) == 32


def test_answers_may_differ_by_rounding_and_by_no_more() -> None:
    model, data = network(), blob_tasks(1)[0].train
    layout = model.layout({"h0": 2})
    known = fingerprint(model, data, {"h0": 2}, torch.zeros(1))
    near = known._replace(values=tuple(value * (1 + 1e-8) for value in known.values))
    check_model(model, layout, {"h0": 2}, near, torch.zeros(1))
    far = known._replace(values=(known.values[0] + 1e-4, *known.values[1:]))
    with pytest.raises(VclError, match="but its output for a fixed input is"):
        check_model(model, layout, {"h0": 2}, far, torch.zeros(1))
    with pytest.raises(VclError, match="it has 4 outputs for a fixed input instead of 1"):
        check_model(model, layout, {"h0": 2}, known._replace(values=known.values[:1]), torch.zeros(1))
    coarse = known._replace(dtype="float32", values=tuple(value * (1 + 1e-3) for value in known.values))
    check_model(model, layout, {"h0": 2}, coarse, torch.zeros(1))
    odd = known._replace(values=(float("nan"),) * 4)
    with pytest.raises(VclError, match="instead of nan"):
        check_model(model, layout, {"h0": 2}, odd, torch.zeros(1))


def test_tokens_and_modules_of_one_precision_have_one_too() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.embed(x).mean(1)

    class Single(nn.Module):
        """That works in float32 alone."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)
            self.register_buffer("scale", torch.ones(6, 6))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x @ self.scale)

    y = torch.arange(8) % 2
    tokens = dataset(torch.randint(0, 3, (8, 5)), y, "t", "h")
    made = fingerprint(Network(Tokens(), 4, Categorical()), tokens, {"h": 2}, torch.zeros(1))
    assert made.whole
    assert len(made.values) == 4
    floats = dataset(torch.rand(8, 6), y, "t", "h")
    made = fingerprint(Network(Single(), 4, Categorical()), floats, {"h": 2}, torch.zeros(1))
    assert (made.dtype, len(made.values)) == ("float32", 4)

    class Never(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            if len(x) != 8:
                raise ValueError("eight examples, please")
            return self.layer(x)

    made = fingerprint(Network(Never(), 4, Categorical()), floats, {"h": 2}, torch.zeros(1))
    assert made == Fingerprint("h", 2, (6,), False, "float32", ()), "nothing is known but the parameters"
    model = Network(Never(), 4, Categorical())
    check_model(model, model.layout({"h": 2}), {"h": 2}, made, torch.zeros(1))


def test_where_float64_cannot_be_had_the_answers_are_compared_coarsely(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on devices that have no float64."""
    state, x, rng = learned(network()), blob_tasks(1, runs=2)[0].train.x, Rng((0, 1))
    assert state.fingerprint is not None
    assert state.fingerprint.dtype == "float64"
    real = Network.predict

    def single(self: Network, params: Any, x: Tensor, head: str) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError("there is no float64 here")
        return real(self, params, x, head)

    monkeypatch.setattr(Network, "predict", single)
    assert predict(state, network(), x, "h0", rng, 3).shape == (2, 40, 2)
    with pytest.raises(VclError, match="but its output for a fixed input is"):
        predict(state, network(torch.tanh), x, "h0", rng, 3)


def test_a_linear_model_and_pixels_have_one() -> None:
    model, method = LinearGaussian(4, 0.5), Method(Exact(), RandomK(3))
    *_, state = learn(initial(model, method, 1), linear_tasks([9, 9]), model, method, Rng(0))
    assert state.fingerprint is not None
    with pytest.raises(VclError, match="but its output for a fixed input is"):
        predict(state, LinearGaussian(4, 0.7), torch.zeros(1, 2, 4), "all", Rng(0))
    bare = [task._replace(heads={}) for task in linear_tasks([9])]  # a model without heads needs none
    (state,) = learn(initial(model, method, 1), bare, model, method, Rng(0))
    assert from_bytes(to_bytes(state._replace(predictive={}, t=0))).fingerprint == state.fingerprint
    pixels = dataset(torch.randint(0, 256, (8, 6), dtype=torch.uint8), torch.arange(8) % 2, "t", "h0")
    made = fingerprint(network(), pixels, {"h0": 2}, torch.zeros(1))
    assert made == fingerprint(network(), blob_tasks(1)[0].train, {"h0": 2}, torch.zeros(1))


def vae(function: nn.Module) -> Vae:
    base = small_vae()
    upper = nn.Sequential(nn.Linear(6, 5), function, nn.Linear(5, 16))
    return Vae(base.encoder, base.lower, upper, 3)


def test_a_saved_generator_is_loaded_with_its_own_network_alone(tmp_path: Path) -> None:
    path = tmp_path / "learner"
    learner = GenerativeLearner(vae(nn.ReLU()), generative_vcl(Ascent(1, 16, 1e-3), 1), (0, 1))
    learner.update(shapes(16, 0, "a").x[0], "a")
    learner.save(path)
    assert torch.equal(GenerativeLearner.load(path, vae(nn.ReLU())).sample("a", 2), learner.sample("a", 2))
    with pytest.raises(VclError, match=r"learner was saved with another model: .* but its output for a fixed input is"):
        GenerativeLearner.load(path, vae(nn.Tanh()))
    state, x = learner.state, shapes(5, 0, "a", runs=2).x
    assert log_marginal(state, vae(nn.ReLU()), x, "a", Rng((0, 1)), 5).shape == (2, 5)
    assert generate(state, vae(nn.ReLU()), "a", 3, Rng((0, 1))).shape == (2, 3, 16)
    for ask in (
        lambda: log_marginal(state, vae(nn.Tanh()), x, "a", Rng((0, 1)), 5),
        lambda: generate(state, vae(nn.Tanh()), "a", 3, Rng((0, 1))),
    ):
        with pytest.raises(VclError, match="not the network that the state was learned with"):
            ask()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_state_learned_on_one_device_is_known_on_the_other() -> None:
    trunk = nn.Sequential(nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten())
    model = Network(trunk, 8 * 26 * 26, Categorical())
    task = Task("t", dataset(torch.rand(32, 28, 28), torch.arange(32) % 2, "t", "h"), heads={"h": 2})
    (state,) = learn(initial(model, METHOD, 1), [task], model, METHOD, Rng(0))
    there = from_bytes(to_bytes(state), "cuda")
    assert predict(there, model, task.train.x, "h", Rng(0), 3).shape == (1, 32, 2)
