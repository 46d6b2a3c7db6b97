"""The recursion against exact answers: with the exact projection nothing may be lost, whatever the coreset rule."""

from itertools import pairwise

import pytest
import torch

from made import blob_tasks, blobs, linear_data, linear_tasks, small_network
from oracles import linear_posterior
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.mean_field import MeanField
from vcl.coresets import Budget, CoresetRule, Everything, KCenter, Nothing, Only, RandomK
from vcl.data import WHOLE, concat, dataset
from vcl.errors import NonFiniteError, VclError
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.models import LinearGaussian, Network
from vcl.models.likelihoods import Categorical, Likelihood, Probit
from vcl.ops.rng import Rng
from vcl.predicting.metrics import accuracy
from vcl.predicting.prediction import predict
from vcl.projections import Exact, MomentMatching, VariationalKL
from vcl.projections.base import Projection, Target
from vcl.recursion import Method, State, Task, initial, learn, require_test_data

MODEL = LinearGaussian(inputs=4, noise=0.5, prior_var=2.0)
LOSSLESS = [Nothing(), Everything(), RandomK(3), KCenter(3), Budget(7)]
QUICK = VariationalKL(Ascent(5, None, 0.01), draws=2, estimator="local")
LONGER = VariationalKL(Ascent(30, None, 0.1), draws=2, estimator="local")


def exact(rule: CoresetRule) -> Method[FullGaussian]:
    return Method(Exact(), rule, Exact())


def start(rule: CoresetRule, runs: int = 1) -> State[FullGaussian]:
    first = initial(MODEL, exact(rule), runs)
    return first._replace(
        propagated=first.propagated._replace(
            mean=first.propagated.mean.double(), precision=first.propagated.precision.double()
        )
    )


def everything(tasks: list[Task]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([task.train.x[0] for task in tasks]), torch.cat([task.train.y[0] for task in tasks])


def last(states: object) -> State:  # type: ignore[type-arg]
    return list(states)[-1]  # type: ignore[call-overload]


def test_one_task_gives_the_textbook_posterior() -> None:
    tasks = linear_tasks([30])
    state = last(learn(start(Nothing()), tasks, MODEL, exact(Nothing()), Rng((0,))))
    mean, precision = linear_posterior(*everything(tasks), noise=0.5, prior_var=2.0)
    assert torch.allclose(state.propagated.mean[0], mean, rtol=1e-10)
    assert torch.allclose(state.propagated.precision[0], precision, rtol=1e-10)


@pytest.mark.parametrize("rule", LOSSLESS, ids=lambda rule: type(rule).__name__)
def test_every_rule_that_drops_nothing_ends_at_the_batch_posterior(rule: CoresetRule) -> None:
    tasks = linear_tasks([20, 12, 17, 9], runs=2)
    mean, precision = linear_posterior(*everything(tasks), noise=0.5, prior_var=2.0)
    state = last(learn(start(rule, 2), tasks, MODEL, exact(rule), Rng((0, 1))))
    for run in range(2):
        assert torch.allclose(state.predictive["all"].mean[run], mean, rtol=1e-8)
        assert torch.allclose(state.predictive["all"].precision[run], precision, rtol=1e-8)


def test_a_stream_of_single_examples_ends_at_the_batch_posterior() -> None:
    whole = linear_data(15, seed=3)
    tasks = [
        Task(str(n), dataset(whole.x[0, n : n + 1], whole.y[0, n : n + 1], str(n)), whole, {"all": 1})
        for n in range(15)
    ]
    state = last(learn(start(Nothing()), tasks, MODEL, exact(Nothing()), Rng((0,))))
    mean, precision = linear_posterior(whole.x[0], whole.y[0], noise=0.5, prior_var=2.0)
    assert state.t == 15
    assert torch.allclose(state.propagated.mean[0], mean, rtol=1e-9)
    assert torch.allclose(state.propagated.precision[0], precision, rtol=1e-9)


def test_the_propagated_posterior_is_that_of_all_data_outside_the_coreset() -> None:
    tasks = linear_tasks([20, 12, 17])
    for state in learn(start(RandomK(4)), tasks, MODEL, exact(RandomK(4)), Rng((0,))):
        seen = tasks[: state.t]
        X, y = everything(seen)
        inside = (X[:, None] == state.coreset.x[0][None]).all(-1).any(1)
        assert int(inside.sum()) == 4 * state.t
        mean, precision = linear_posterior(X[~inside], y[~inside], noise=0.5, prior_var=2.0)
        assert torch.allclose(state.propagated.mean[0], mean, rtol=1e-8)
        assert torch.allclose(state.propagated.precision[0], precision, rtol=1e-8)


def test_a_coreset_alone_leaves_the_propagated_posterior_at_the_prior() -> None:
    rule = Only(RandomK(5))
    states = list(learn(start(rule), linear_tasks([20, 12]), MODEL, exact(rule), Rng((0,))))
    assert torch.equal(states[-1].propagated.precision[0], torch.eye(4, dtype=torch.float64) / 2)
    X, y = states[-1].coreset.x[0], states[-1].coreset.y[0]
    mean, _ = linear_posterior(X, y, noise=0.5, prior_var=2.0)
    assert torch.allclose(states[-1].predictive["all"].mean[0], mean, rtol=1e-8)


def test_trap_the_coreset_trained_posterior_is_never_propagated_but_used_to_predict() -> None:
    tasks = linear_tasks([20, 12])
    one, two = learn(start(KCenter(5)), tasks, MODEL, exact(KCenter(5)), Rng((0,)))
    assert not torch.equal(one.predictive["all"].mean, one.propagated.mean)
    # Task 2 again, from a state whose predictive posterior was replaced by nonsense: q~ must not notice.
    spoiled = one._replace(predictive={"all": one.propagated._replace(mean=one.propagated.mean + 1e6)})
    again = last(learn(spoiled, tasks[1:], MODEL, exact(KCenter(5)), Rng((0,))))
    assert torch.equal(again.propagated.mean, two.propagated.mean)
    assert torch.equal(again.predictive["all"].mean, two.predictive["all"].mean)


def test_trap_old_heads_drift_although_no_data_of_their_task_is_seen() -> None:
    """A head that a task's data does not touch is bitwise as it was, whatever Adam makes of zero gradients."""
    model, tasks = small_network(), blob_tasks(3, runs=2)
    method = Method(QUICK, RandomK(5), QUICK, "joint")
    states = list(learn(initial(model, method, 2), tasks, model, method, Rng((0, 1))))
    for before, after in pairwise(states):
        layout = before.propagated.layout
        for field in ("mean", "log_var"):
            new = after.propagated.layout.split(getattr(after.propagated, field))
            for name, old in layout.split(getattr(before.propagated, field)).items():
                assert torch.equal(old, new[name]) == name.startswith("heads."), name


def test_trap_unseen_heads_not_at_the_prior() -> None:
    """A head enters at N(0, 1) when its task comes, and what was learned before does not move."""
    model, tasks = small_network(), blob_tasks(1, runs=2)
    method = Method(QUICK, Nothing(), QUICK)
    (state,) = learn(initial(model, method, 2), tasks, model, method, Rng((0, 1)))
    grown = state.propagated.grow(model.prior({"h0": 2, "h9": 2}))
    means, log_vars = (grown.layout.split(part) for part in (grown.mean, grown.log_var))
    heads = [name for name in grown.layout.names if name.startswith("heads.h9.")]
    assert heads
    assert not any(means[name].any() or log_vars[name].any() for name in heads), "mean 0, log variance 0"
    assert torch.equal(grown.layout.pick(grown.mean, state.propagated.layout), state.propagated.mean)


def test_per_head_predictive_posteriors_use_that_heads_points_alone() -> None:
    model, tasks = small_network(), blob_tasks(2, runs=2)
    method = Method(QUICK, RandomK(5), QUICK, "per-head")
    state = last(learn(initial(model, method, 2), tasks, model, method, Rng((0, 1))))
    assert set(state.predictive) == {"h0", "h1"}
    for head in ("h0", "h1"):
        part = state.propagated.layout.touched([head])
        assert state.predictive[head].layout == part
        mine = state.coreset.where([source for source in state.coreset.sources if source.head == head])
        assert mine.size == 5
        target = Target(state.propagated, model, mine, model.prior(state.heads))
        fit = QUICK(target, Rng((0, 1)).at("task", 2, "predict", head)).restrict(part)
        assert torch.equal(fit.mean, state.predictive[head].mean)


def test_without_coreset_points_prediction_uses_the_propagated_posterior_itself() -> None:
    model, tasks = small_network(), blob_tasks(1)
    method = Method(QUICK, Nothing(), QUICK, "joint")
    state = last(learn(initial(model, method, 1), tasks, model, method, Rng((0,))))
    assert state.predictive["h0"] is state.propagated


def test_batch_vi_is_one_fit_of_all_data_from_the_prior() -> None:
    """Mixed heads in one coreset: the joint fit is the projection of prior times the likelihood of D_1 and D_2."""
    model, tasks = small_network(), blob_tasks(2)
    method = Method(QUICK, Everything(), QUICK, "joint")
    state = last(learn(initial(model, method, 1), tasks, model, method, Rng((0,))))
    heads = {"h0": 2, "h1": 2}
    prior = model.prior(heads)
    both = concat(tasks[0].train, tasks[1].train)
    fit = QUICK(Target(prior.expand(1), model, both, prior), Rng((0,)).at("task", 2, "predict"))
    assert torch.equal(state.predictive["h1"].mean, fit.mean)
    assert isinstance(state.propagated, MeanField)
    assert torch.equal(state.propagated.mean, prior.mean)


def test_resuming_from_any_state_equals_the_straight_run() -> None:
    model, tasks = small_network(), blob_tasks(3, runs=2)
    method = Method(QUICK, Budget(9), QUICK, "per-head")
    straight = list(learn(initial(model, method, 2), tasks, model, method, Rng((3, 4))))
    resumed = last(learn(straight[0], tasks[1:], model, method, Rng((3, 4))))
    assert torch.equal(resumed.propagated.mean, straight[-1].propagated.mean)
    assert torch.equal(resumed.propagated.log_var, straight[-1].propagated.log_var)
    assert torch.equal(resumed.coreset.x, straight[-1].coreset.x)


def test_a_head_cannot_shrink_and_labels_must_fit() -> None:
    model, (task,) = small_network(), blob_tasks(1)
    method = Method(QUICK, Nothing(), QUICK)
    state = last(learn(initial(model, method, 1), [task], model, method, Rng((0,))))
    with pytest.raises(VclError, match=r"gives head 'h0' 1 outputs but it has 2; a head may only get more of them"):
        last(learn(state, [task._replace(heads={"h0": 1})], model, method, Rng((0,))))
    with pytest.raises(VclError, match="labels run from 0 to 1 but its head has 1 classes"):
        last(learn(initial(model, method, 1), [task._replace(heads={"h0": 1})], model, method, Rng((0,))))
    bad = task._replace(train=dataset(torch.zeros(4, 5), torch.zeros(4, dtype=torch.int64), "t", "h0"))
    with pytest.raises(VclError, match="does not take inputs of shape"):
        last(learn(initial(model, method, 1), [bad], model, method, Rng((0,))))


def test_training_that_turns_non_finite_names_the_task() -> None:
    model, tasks = small_network(), blob_tasks(1)
    wild = VariationalKL(Ascent(20, None, 1e30), draws=1, estimator="local", ml_start=False)
    method = Method(wild, Nothing(), wild)
    with pytest.raises(NonFiniteError, match=r"task 1 \(t0\): variational fit became non-finite in epoch \d+ of 20"):
        last(learn(initial(model, method, 1), tasks, model, method, Rng((0,))))


def test_numbers_of_runs_that_differ_and_unknown_predictives_are_refused() -> None:
    model, (task,) = small_network(), blob_tasks(1, runs=2)
    method = Method(QUICK, Nothing(), QUICK)
    with pytest.raises(VclError, match=r"the state has 1 runs, task 't0' has data for 2 and there are 3 seeds"):
        last(learn(initial(model, method, 1), [task], model, method, Rng((0, 1, 2))))
    odd = Method(QUICK, Nothing(), QUICK, "per head")  # type: ignore[arg-type]
    with pytest.raises(VclError, match="did you mean 'per-head'"):
        last(learn(initial(model, odd, 2), [task], model, odd, Rng((0, 1))))


@pytest.mark.parametrize("shape", [(2, 60), (2, 60, 1)], ids=str)
@pytest.mark.parametrize(("likelihood", "outputs"), [(Categorical(), 2), (Probit(), 1)], ids=str)
@pytest.mark.parametrize("project", [LONGER, MomentMatching()], ids=lambda project: type(project).__name__)
def test_examples_made_by_hand_may_have_labels_of_any_integer_dtype(
    project: Projection[MeanField], likelihood: Likelihood, outputs: int, shape: tuple[int, ...]
) -> None:
    """uint8 labels would wrap in 2 y - 1, and [N, 1] would be broadcast against [N]."""
    model, data = Network(torch.nn.Flatten(), 6, likelihood), blobs(60, 0, "t", "h", runs=2)
    method = Method(project, RandomK(5), project)
    plain, *others = (
        last(
            learn(
                initial(model, method, 2),
                [Task("t", data._replace(y=y), data.empty(), {"h": outputs})],
                model,
                method,
                Rng((0, 1)),
            )
        )
        for y in (data.y, *(data.y.to(dtype).reshape(shape) for dtype in WHOLE))
    )
    for other in others:
        assert torch.equal(other.propagated.mean, plain.propagated.mean)
        assert torch.equal(other.coreset.y, plain.coreset.y)
    probabilities = predict(plain.predictive["h"], model, data.x, "h", Rng((0, 1)), 20)
    assert accuracy(probabilities, data.y).min() > 0.8


def test_targets_of_one_column_are_the_targets() -> None:
    """[N, 1] would be broadcast against [N]."""
    (task,) = linear_tasks([20])
    column = task._replace(train=task.train._replace(y=task.train.y.unsqueeze(-1)))
    states = [last(learn(start(Nothing()), [one], MODEL, exact(Nothing()), Rng((0,)))) for one in (task, column)]
    assert torch.equal(states[0].propagated.mean, states[1].propagated.mean)


def test_a_projection_is_shown_the_memory_and_further_columns_go_with_the_points() -> None:
    """C_{t-1} beside the target of q~_t and C_t beside that of q_t; the likelihood is of the data alone."""
    seen: list[tuple[int, int | None]] = []

    class Watching:
        def initial(self, prior: MeanField) -> MeanField:
            return prior

        def __call__(self, target: Target[MeanField], rng: Rng, *_: object) -> MeanField:
            memory = target.memory
            seen.append((target.data.size, None if memory is None else memory.size))
            if memory is not None:
                assert torch.equal(memory.extra["old"], memory.x[..., :2] + 1)
            return target.q

    tasks = blob_tasks(3, runs=2)
    tasks = [task._replace(train=task.train._replace(extra={"old": task.train.x[..., :2] + 1})) for task in tasks]
    model, method = small_network(), Method(Watching(), RandomK(5))
    state = last(learn(initial(model, method, 2), tasks, model, method, Rng((0, 1))))
    assert seen == [(35, None), (5, 5), (35, 5), (10, 10), (35, 10), (15, 15)]
    again = from_bytes(to_bytes(state))
    assert torch.equal(again.coreset.extra["old"], again.coreset.x[..., :2] + 1)
    assert again.coreset.size == 15


def test_a_task_needs_no_test_data_and_names_a_head_once() -> None:
    model, tasks = small_network(), blob_tasks(2, runs=2, single_head=True)
    method = Method(QUICK, RandomK(5))
    bare = [Task("t0", tasks[0].train, heads={"all": 2}), Task("t1", tasks[1].train)]
    one, two = (last(learn(initial(model, method, 2), given, model, method, Rng((0, 1)))) for given in (tasks, bare))
    assert torch.equal(one.propagated.mean, two.propagated.mean)
    assert two.heads == {"all": 2}
    assert require_test_data(tasks[0]) is tasks[0].test
    with pytest.raises(VclError, match=r"^task 't1' has no test data to be evaluated on; give some, as in Task\(test="):
        require_test_data(bare[1])
    with pytest.raises(VclError, match=r"names the head 'all', which is not among \[\]; give its size, as in Task"):
        last(learn(initial(model, method, 2), bare[1:], model, method, Rng((0, 1))))
