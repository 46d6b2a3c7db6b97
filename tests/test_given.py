"""What people have at hand: numpy arrays, float64, one seed, a method without a refit, single draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from made import blob_tasks, blobs, small_network, small_vae
from vcl.coresets import Nothing, RandomK
from vcl.data import dataset, unlabelled
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.learner.generative import GenerativeLearner, generative_vcl
from vcl.models import Network
from vcl.models.likelihoods import Categorical
from vcl.ops import devices
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict, predict_draws
from vcl.projections import ElasticWeightConsolidation, MaximumLikelihood, VariationalKL
from vcl.recursion import Method, State, Task, initial, learn

FIT = VariationalKL(Ascent(3, 16, 0.01), draws=2)


def learned(x: object, y: object) -> State[object]:
    train = dataset(x, y, head="h0")  # type: ignore[arg-type]
    model, method = small_network(), Method(FIT, Nothing())
    (state,) = learn(initial(model, method, 1), [Task("t", train, train, {"h0": 2})], model, method, Rng(0))
    return state


def test_numpy_arrays_of_float64_learn_as_tensors_of_float32_do() -> None:
    data = blobs(40, 0, "t", "h0")
    x, y = data.x[0], data.y[0]
    wanted = learned(x, y)
    for given in ((x.double().numpy(), y.numpy()), (x.numpy(), y.numpy().astype(np.int32)), (x.double(), y)):
        found = learned(*given)
        assert torch.equal(found.propagated.mean, wanted.propagated.mean)
        assert found.propagated.mean.dtype == torch.float32


def test_shared_examples_stay_shared_in_another_precision() -> None:
    model, method = small_network(), Method(FIT, RandomK(4))
    train = dataset(torch.randn(30, 6, dtype=torch.float64), torch.arange(30) % 2, head="h0", runs=3)
    (state,) = learn(initial(model, method, 3), [Task("t", train, train, {"h0": 2})], model, method, Rng((0, 1, 2)))
    assert state.coreset is not None
    assert state.coreset.x.dtype == torch.float32


def test_what_is_no_array_of_numbers_is_one_sentence() -> None:
    for bad in (np.array(["a", "b"]), np.array([{}, {}], dtype=object)):
        with pytest.raises(
            VclError, match=r"task 't': x cannot be read as numbers .*; give a numeric array or a tensor"
        ):
            unlabelled(bad, "t")
        with pytest.raises(VclError, match="task 't': y cannot be read as numbers"):
            dataset(np.zeros((2, 3)), bad, "t")


def test_one_seed_may_be_a_number() -> None:
    assert Rng(3) == Rng((3,)) == Rng([3])
    assert Rng(range(2)).seeds == (0, 1)
    assert Rng(np.int64(3).item()).at("a") == Rng((3,), ("a",))
    assert hash(Rng(3)) == hash(Rng((3,)))


def test_a_method_without_a_refit_refits_as_it_projects() -> None:
    assert Method(FIT, RandomK(3)) == Method(FIT, RandomK(3), FIT, "joint")
    other = MaximumLikelihood()
    assert Method(FIT, RandomK(3), other).refit is other


@pytest.fixture(scope="module")
def state() -> State[object]:
    model, method = small_network(), Method(FIT, Nothing())
    (state,) = learn(initial(model, method, 2), blob_tasks(1, runs=2), model, method, Rng((0, 1)))
    return state


def test_single_draws_average_to_the_prediction(state: State[object], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, rng = small_network(), blobs(20, 3, "t", "h0", 2).x, Rng((0, 1))
    each = predict_draws(state.predictive["h0"], model, x, "h0", rng, draws=7)  # type: ignore[arg-type]
    assert each.shape == (2, 7, 20, 2)
    assert torch.allclose(each.sum(-1), torch.ones(2, 7, 20))
    whole = predict(state.predictive["h0"], model, x, "h0", rng, draws=7)  # type: ignore[arg-type]
    assert torch.allclose(each.mean(1), whole, atol=1e-6)
    assert each.std(1).max() > 1e-3, "draws differ"
    # In small blocks of inputs and of draws too: all inputs share a draw.
    monkeypatch.setattr(devices, "CPU", devices.CPU._replace(rows=6))
    monkeypatch.setattr("vcl.predicting.prediction.WEIGHTS_IN_FLIGHT", 2 * 3 * state.propagated.mean.shape[1])  # type: ignore[attr-defined]
    each = predict_draws(state.predictive["h0"], model, x[:, :1].expand(-1, 20, -1), "h0", rng, draws=7)  # type: ignore[arg-type]
    assert each.shape == (2, 7, 20, 2)
    assert torch.allclose(each, each[:, :, :1].expand_as(each), atol=1e-6)
    whole = predict(state.predictive["h0"], model, x[:, :1], "h0", rng, draws=7)  # type: ignore[arg-type]
    assert torch.allclose(each[:, :, :1].mean(1), whole, atol=1e-6)


def test_predictions_take_numpy_arrays_of_float64(state: State[object]) -> None:
    model, x, rng = small_network(), blobs(20, 3, "t", "h0", 2).x, Rng((0, 1))
    wanted = predict(state.predictive["h0"], model, x, "h0", rng, draws=3)  # type: ignore[arg-type]
    found = predict(state.predictive["h0"], model, x.double().numpy(), "h0", rng, draws=3)  # type: ignore[arg-type]
    assert torch.equal(found, wanted)


def test_no_draws_are_refused(state: State[object]) -> None:
    with pytest.raises(VclError, match="draws is 0; give at least 1"):
        predict_draws(state.predictive["h0"], small_network(), torch.zeros(2, 1, 6), "h0", Rng((0, 1)), draws=0)  # type: ignore[arg-type]


def test_a_generative_learner_takes_numpy_arrays_and_names() -> None:
    learner = GenerativeLearner(small_vae(), generative_vcl(Ascent(1, 8, 1e-3)))
    x = np.random.default_rng(0).random((12, 4, 4))
    learner.update(x, task="one")
    assert learner.log_prob(x, "one", draws=2).shape == (1, 12)
    with pytest.raises(VclError, match="task is 3; give its name as a string"):
        learner.update(x, task=3)  # type: ignore[arg-type]


def test_a_coreset_of_half_a_point_is_one_sentence() -> None:
    data = blobs(10, 0, "t", "h0")
    with pytest.raises(VclError, match=r"a coreset of 2\.5 points was asked for; give a whole number"):
        RandomK(2.5)(data.empty(), data, Rng(0))  # type: ignore[arg-type]


def test_inputs_with_a_history_are_taken_as_values() -> None:
    """By :func:`dataset`, made by hand, and to predict."""
    data = blobs(40, 0, "t", "h0")
    x, y = data.x[0], data.y[0]
    wanted, found = learned(x, y), learned(x.clone().requires_grad_(), y)
    assert torch.equal(found.propagated.mean, wanted.propagated.mean)
    model, method = small_network(), Method(FIT, RandomK(4))
    by_hand = data._replace(x=data.x.clone().requires_grad_())
    (state,) = learn(initial(model, method, 1), [Task("t", by_hand, heads={"h0": 2})], model, method, Rng(0))
    assert not state.propagated.mean.requires_grad
    assert state.coreset is not None
    assert not state.coreset.x.requires_grad
    plain = predict(state, model, data.x, "h0", Rng(0), 3)
    for ask in (predict, predict_draws):
        assert not ask(state, model, by_hand.x, "h0", Rng(0), 3).requires_grad
    assert torch.equal(predict(state, model, by_hand.x, "h0", Rng(0), 3), plain)


@pytest.mark.parametrize("shape", [(4, 0), (4, 2, 0)])
def test_inputs_without_values_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(VclError, match=r"task 't': x has shape .*, so an example has no values; give at least one"):
        dataset(torch.zeros(shape), torch.zeros(4), "t")


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(nn.functional.leaky_relu(x.flatten(1), 0.5, inplace=True)))


CHAIN = nn.Sequential(nn.Flatten(), nn.LeakyReLU(0.5, inplace=True), nn.Linear(6, 8))


@pytest.mark.parametrize("trunk", [InPlace(), CHAIN], ids=["any module", "chain"])
def test_a_module_that_works_in_place_leaves_the_data_as_it_is(trunk: nn.Module) -> None:
    model, x = Network(trunk, 8, Categorical()), torch.randn(12, 6)
    kept, method = x.clone(), Method(VariationalKL(Ascent(2, None), 2))
    task = Task("t", dataset(x, torch.arange(12) % 2, head="h"), heads={"h": 2})
    (state,) = learn(initial(model, method, 1), [task], model, method, Rng(0))
    predict(state, model, x[None], "h", Rng(0))
    assert torch.equal(x, kept)


def test_a_trunk_without_parameters_is_learned() -> None:
    model, method = Network(nn.Identity(), 6, Categorical()), Method(VariationalKL(Ascent(2, None), 2))
    task = Task("t", dataset(torch.randn(12, 6), torch.arange(12) % 2, head="h"), heads={"h": 2})
    (state,) = learn(initial(model, method, 1), [task], model, method, Rng(0))
    assert predict(state, model, torch.randn(1, 3, 6), "h", Rng(0)).shape == (1, 3, 2)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Method(VariationalKL, RandomK(3)), "project is <class .*give an instance"),  # type: ignore[arg-type]
        (lambda: Method(VariationalKL(), RandomK), "choose is <class .*give an instance"),  # type: ignore[arg-type]
        (lambda: from_bytes("state.vcl"), "a str was given; give the bytes"),  # type: ignore[arg-type]
        (lambda: to_bytes(small_network().prior({})), "a MeanField was given; give a State"),  # type: ignore[arg-type]
    ],
)
def test_what_is_of_the_wrong_kind_gets_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(VclError, match=sentence):
        make()


def test_a_state_of_another_family_a_single_task_and_other_inputs_get_a_sentence(state: State[object]) -> None:
    model, rng = small_network(), Rng((0, 1))
    task = Task("t", blobs(20, 3, "t", "h0", 2))
    with pytest.raises(VclError, match="holds a belief of the kind MeanField, but ElasticWeightConsolidation carries"):
        next(learn(state, [task], model, Method(ElasticWeightConsolidation()), rng))
    with pytest.raises(VclError, match=r"tasks is the single task 't'; give a list"):
        next(learn(state, task, model, Method(VariationalKL()), rng))  # type: ignore[arg-type]
    with pytest.raises(VclError, match="the network does not take inputs of shape"):
        predict(state, model, task.train.x[..., :-1], "h0", rng)


def test_values_that_an_array_would_not_show_are_refused() -> None:
    x, y = np.ones((4, 2)), np.array([0, 1, 0, 1])
    mask = np.arange(4) == 2
    with pytest.raises(VclError, match=r"task 't': x has masked values in 1 rows, the first at row 2"):
        dataset(np.ma.masked_array(x, np.stack([mask, mask], 1)), y, "t")  # type: ignore[arg-type]
    with pytest.raises(VclError, match=r"task 't': y has masked values in 1 rows"):
        dataset(x, np.ma.masked_array(y, mask), "t")  # type: ignore[arg-type]
    with pytest.raises(VclError, match=r"x is a tensor of the layout sparse_coo; give what to_dense\(\) makes"):
        dataset(torch.eye(4).to_sparse(), torch.from_numpy(y), "t")
    whole = dataset(np.ma.masked_array(x, False), y, "t")  # type: ignore[arg-type]
    assert torch.equal(whole.x[0], torch.ones(4, 2, dtype=torch.float64))
