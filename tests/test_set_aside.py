"""A run that leaves the finite numbers is set aside and told of; the others end at the bits that they would have."""

import warnings
from typing import Any

import pytest
import torch

from made import blob_tasks, blobs, shapes, small_network, small_vae
from vcl.coresets import Nothing, RandomK
from vcl.data import Data, concat
from vcl.errors import NonFiniteError, VclError
from vcl.fitting.loop import Ascent, Progress
from vcl.fitting.natural_gradient import NaturalGradient
from vcl.learner.checkpoint import from_bytes, to_bytes
from vcl.learner.generative import GenerativeLearner, generative_vcl
from vcl.ops.rng import Rng
from vcl.projections import (
    ElasticWeightConsolidation,
    KroneckerLaplace,
    KroneckerVariational,
    MomentMatching,
    SequentialMonteCarlo,
    VariationalKL,
)
from vcl.recursion import Method, State, Task, describe_set_aside, initial, learn, set_runs_aside

SEEDS = (3, 8, 21)
FEW = Ascent(3, 16, 0.01)
VI = VariationalKL(FEW, 2, "local")


def heard(progress: Progress) -> None:
    """A report that somebody listens to."""


def spoiled(task: Task, run: int) -> Task:
    """The task with inputs that no arithmetic survives, for one run."""
    x = task.train.x.clone()
    x[run] = 1e38
    return task._replace(train=task.train._replace(x=x))


def end_of(tasks: list[Task], method: Method[Any], seeds: tuple[int, ...]) -> State[Any]:
    model = small_network()
    return list(learn(initial(model, method, len(seeds)), tasks, model, method, Rng(seeds), heard))[-1]


@pytest.mark.parametrize("predictive", ["joint", "per-head"])
def test_the_others_end_at_the_bits_that_they_have_without_it(predictive: Any) -> None:
    method = Method(VI, RandomK(8), VI, predictive)
    tasks = blob_tasks(3, runs=3)
    state = end_of([tasks[0], spoiled(tasks[1], 1), tasks[2]], method, SEEDS)
    assert state.alive == (0, 2)
    assert state.runs_begun == 3
    (gone,) = state.set_aside
    assert gone[:4] == (1, 8, None, 2)
    assert gone.reason.startswith("variational fit is not finite at its start, so the learning rate is not the cause")
    assert describe_set_aside(state).startswith(
        "1 of 3 runs set aside: seed 8 in task 2: variational fit is not finite at its start"
    )
    alone = end_of(blob_tasks(3, runs=2), method, (3, 21))
    beliefs = [(state.propagated, alone.propagated)]
    beliefs += [(state.predictive[head], alone.predictive[head]) for head in ("h0", "h1", "h2")]
    for one, other in beliefs:
        assert all(torch.equal(a, b) for a, b in zip(one[1:], other[1:], strict=True))
    assert torch.equal(state.coreset.x, alone.coreset.x)
    assert alone.set_aside == ()


def test_runs_leave_one_by_one_and_the_error_is_raised_when_none_is_left() -> None:
    tasks = blob_tasks(4, runs=3)
    method = Method(VI, RandomK(8))
    state = end_of([tasks[0], spoiled(tasks[1], 1), spoiled(tasks[2], 0)], method, SEEDS)
    assert state.alive == (2,)
    assert [(each.run, each.seed, each.task) for each in state.set_aside] == [(1, 8, 2), (0, 3, 3)]
    assert describe_set_aside(state, 1).startswith("1 of 3 runs set aside: seed 3 in task 3: ")
    assert describe_set_aside(state).startswith("2 of 3 runs set aside: seed 8 in task 2: ")
    model = small_network()
    with pytest.raises(NonFiniteError, match=r"^task 4 \(t3\): variational fit is not finite .*\(seed 21\)"):
        list(learn(state, [spoiled(tasks[3], 2)], model, method, Rng(SEEDS), heard))


def test_a_lambda_goes_with_its_run_and_is_told() -> None:
    """Each run has its own; the one out of range is set aside once there is a past."""
    tasks = blob_tasks(3, runs=3)
    state = end_of(tasks, Method(ElasticWeightConsolidation(FEW, (1.0, 3e38, 5.0)), Nothing()), SEEDS)
    (gone,) = state.set_aside
    assert gone[:3] == (1, 8, 3e38)
    assert gone.task in (2, 3)
    assert describe_set_aside(state).startswith(f"1 of 3 runs set aside: seed 8 (lambda 3e+38) in task {gone.task}: ")
    alone = end_of(blob_tasks(3, runs=2), Method(ElasticWeightConsolidation(FEW, (1.0, 5.0)), Nothing()), (3, 21))
    assert all(torch.equal(a, b) for a, b in zip(state.propagated[1:], alone.propagated[1:], strict=True))
    one = end_of(tasks[:1], Method(ElasticWeightConsolidation(FEW, 7.0), Nothing()), SEEDS)
    one = set_runs_aside(
        one, NonFiniteError("x", [2]), 1, Method(ElasticWeightConsolidation(FEW, 7.0), Nothing()), Rng(SEEDS)
    )
    assert one.set_aside[0].lam == 7.0


@pytest.mark.parametrize(
    "project",
    [
        lambda lam: KroneckerLaplace(FEW, lam),
        lambda lam: KroneckerVariational(KroneckerLaplace(FEW, lam), FEW),
        lambda lam: KroneckerVariational(KroneckerLaplace(FEW, lam), FEW, natural=NaturalGradient()),
    ],
    ids=["lp-kron", "vcl-kron", "vcl-kron-natural"],
)
def test_one_lambda_of_factors_that_diverges_is_lost_and_not_the_stack(project: Any) -> None:
    """The others end at the bits that they have without it."""
    state = end_of(blob_tasks(3, runs=3), Method(project((1.0, 3e38, 5.0)), Nothing()), SEEDS)
    (gone,) = state.set_aside
    assert gone[:3] == (1, 8, 3e38)
    assert gone.task in (2, 3)
    assert describe_set_aside(state).startswith("1 of 3 runs set aside: seed 8 (lambda 3e+38) in task ")
    alone = end_of(blob_tasks(3, runs=2), Method(project((1.0, 5.0)), Nothing()), (3, 21))
    for name, value in alone.propagated.tensors().items():
        assert torch.equal(state.propagated.tensors()[name], value), name


def test_settings_of_each_run_other_than_lambda_are_selected_by_the_projection_itself() -> None:
    class Own:
        def __init__(self, runs: tuple[int, ...]) -> None:
            self.runs = runs

        def select(self, runs: tuple[int, ...]) -> "Own":
            return Own(tuple(self.runs[run] for run in runs))

    method: Any = Method(Own((5, 6, 7)), RandomK(2)).select((0, 2), 3)  # type: ignore[arg-type]
    assert method.project.runs == method.refit.runs == (5, 7)
    plain = ElasticWeightConsolidation(FEW, (1.0, 2.0))
    assert Method(plain, RandomK(2)).select((0, 2), 3).project is plain, "these are of the runs that are left already"


@pytest.mark.parametrize(
    "project", [MomentMatching(3), SequentialMonteCarlo(30, moves=1, leapfrog=3)], ids=["adf", "smc"]
)
def test_projections_without_a_climb_say_which_run_it_was(project: Any) -> None:
    tasks = blob_tasks(2, runs=3)
    state = end_of([tasks[0], spoiled(tasks[1], 1)], Method(project, RandomK(8)), SEEDS)
    assert [(each.run, each.task) for each in state.set_aside] == [(1, 2)]


def test_who_gave_no_report_is_warned() -> None:
    tasks, model, method = blob_tasks(1, runs=3), small_network(), Method(VI, RandomK(8))
    with pytest.warns(RuntimeWarning, match="^1 of 3 runs set aside: seed 21 in task 1: "):
        list(learn(initial(model, method, 3), [spoiled(tasks[0], 2)], model, method, Rng(SEEDS)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(end_of([spoiled(tasks[0], 2)], method, SEEDS).set_aside) == 1


def test_what_is_given_may_be_of_all_runs_or_of_those_left_and_no_other_number() -> None:
    tasks, model, method = blob_tasks(2, runs=3), small_network(), Method(VI, RandomK(8))
    state = end_of([spoiled(tasks[0], 0)], method, SEEDS)
    one, two = (
        list(learn(state, [given], model, method, Rng(seeds), heard))[-1].propagated
        for given, seeds in ((tasks[1], SEEDS), (blob_tasks(2, runs=2)[1], SEEDS[1:]))
    )
    assert torch.equal(one.mean, two.mean)
    with pytest.raises(VclError, match=r"the state has 2 runs, task 't1' has data for 2 and there are 4 seeds"):
        list(learn(state, [tasks[1]], model, method, Rng((1, 2, 3, 4)), heard))


def test_an_error_that_names_no_run_is_raised() -> None:
    class Odd:
        def initial(self, prior: Any) -> Any:
            return prior

        def __call__(self, *_: Any) -> Any:
            raise NonFiniteError("something is infinite.")

    method: Any = Method(Odd(), RandomK(8))  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match=r"^task 1 \(t0\): something is infinite\.$"):
        end_of(blob_tasks(1, runs=3), method, SEEDS)


def test_what_was_set_aside_is_saved_and_a_resumed_stream_goes_on_without_it() -> None:
    tasks, model, method = blob_tasks(3, runs=3), small_network(), Method(VI, RandomK(8))
    state = end_of([tasks[0], spoiled(tasks[1], 1)], method, SEEDS)
    again = from_bytes(to_bytes(state))
    assert again.set_aside == state.set_aside
    assert again.alive == (0, 2)
    one, two = (list(learn(each, tasks[2:], model, method, Rng(SEEDS), heard))[-1] for each in (state, again))
    assert torch.equal(one.propagated.mean, two.propagated.mean)


def test_selected_runs_of_data_stay_shared_where_they_were() -> None:
    shared, own = blobs(6, 0, "a", "h", runs=3), blobs(6, 0, "a", "h", runs=3)
    own = own._replace(x=torch.stack([shared.x[0] + run for run in range(3)]))
    both: Data = concat(shared, own)
    for whole in (shared, own, both, shared.empty()):
        part = whole.select((2, 0))
        for field in ("x", "y", "source"):
            assert torch.equal(getattr(part, field), getattr(whole, field)[[2, 0]])
        assert part.sources == whole.sources
    assert shared.select((2, 0)).x.data_ptr() == shared.x.data_ptr()
    assert shared.select((2, 0)).x.stride(0) == 0


def test_a_generator_goes_on_with_the_seeds_that_are_left() -> None:
    learner = GenerativeLearner(small_vae(), generative_vcl(Ascent(2, 16, 1e-3), 2), seeds=SEEDS)
    learner.update(shapes(16, 0, "a").x[0], "a", heard)
    learner.state = set_runs_aside(learner.state, NonFiniteError("x", [1]), 1, learner.method, learner.rng)
    learner.update(shapes(16, 1, "b").x[0], "b", heard)
    assert learner.sample("b", 4).shape == (2, 4, 4, 4)
    assert learner.log_prob(shapes(5, 1, "b").x[0], "b", draws=10).shape == (2, 5)
    whole = GenerativeLearner(small_vae(), generative_vcl(Ascent(2, 16, 1e-3), 2), seeds=(3, 21))
    for task in ("a", "b"):
        whole.update(shapes(16, "ab".index(task), task).x[0], task)
    assert torch.allclose(learner.sample("b", 4), whole.sample("b", 4), atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_the_others_end_where_they_do_without_it() -> None:
    """There an epoch is looked at when the next one is under way, and steps are recorded."""
    method, model = Method(VI, RandomK(8)), small_network()
    tasks = blob_tasks(3, runs=3)
    tasks = [tasks[0], spoiled(tasks[1], 1), tasks[2]]
    ends = []
    for given, seeds in ((tasks, SEEDS), (blob_tasks(3, runs=2), (3, 21))):
        there = [task._replace(train=task.train.to("cuda")) for task in given]
        ends.append(
            list(learn(initial(model, method, len(seeds), "cuda"), there, model, method, Rng(seeds), heard))[-1]
        )
    assert ends[0].alive == (0, 2)
    assert torch.allclose(ends[0].propagated.mean, ends[1].propagated.mean, atol=1e-4)
