"""Every experiment that is listed keeps what the recursion asks of a stream, with nothing to write for a new one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from vcl.data import Data
from vcl.errors import VclError
from vcl.lab.experiments import EXPERIMENTS, Experiment
from vcl.lab.plan import Plan, make_plan
from vcl.lab.settings import PRESETS, check
from vcl.lab.streams import Arrays, Stream
from vcl.ops.rng import Rng
from vcl.projections.vi import Elbo
from vcl.recursion import Task


def made_up(side: int) -> Arrays:
    g = torch.Generator().manual_seed(1)
    train, test = (torch.randint(0, 256, (n, side, side), generator=g, dtype=torch.uint8) for n in (300, 100))
    return Arrays(train, torch.arange(300) % 10, test, torch.arange(100) % 10, tuple("0123456789"))


DATA = made_up(8)


@pytest.fixture(params=EXPERIMENTS, ids=lambda entry: entry.name)
def entry(request: pytest.FixtureRequest) -> Experiment:
    chosen: Experiment = request.param
    return chosen


@pytest.fixture
def plan(entry: Experiment) -> Plan:
    return make_plan(entry.name, "vcl", "smoke", None, "cpu")


@pytest.fixture
def stream(plan: Plan) -> Stream:
    return plan.experiment.stream(DATA, plan.settings, Rng(plan.seeds))


def parts(task: Task) -> tuple[Data, Data]:
    return task.train, task.test


def test_every_preset_is_there_and_can_be_run(entry: Experiment) -> None:
    assert set(entry.presets) == set(PRESETS)
    for settings in entry.presets.values():
        check(settings)


def test_as_many_tasks_as_the_settings_say(plan: Plan, stream: Stream) -> None:
    assert stream.size == len(list(stream)) == plan.settings.tasks
    assert len({task.name for task in stream}) == stream.size


def test_every_part_stacks_all_runs_in_one_kind(plan: Plan, stream: Stream) -> None:
    for task in stream:
        for part in parts(task):
            assert part.size > 0
            assert part.x.shape == (len(plan.seeds), part.size, *stream.shape)
            assert part.y.shape == part.source.shape == (len(plan.seeds), part.size)
            assert (part.x.dtype, part.y.dtype) == (torch.uint8, torch.int64)


def test_limits_are_kept(plan: Plan) -> None:
    limited = replace(plan.settings, train_limit=7, test_limit=4)
    for task in plan.experiment.stream(DATA, limited, Rng(plan.seeds)):
        assert (task.train.size, task.test.size) == (7, 4)


def test_limits_keep_every_class_and_as_many_of_each_though_the_data_is_sorted_by_class(plan: Plan) -> None:
    data = DATA._replace(train_y=torch.arange(300) // 30, test_y=torch.arange(100) // 10)
    unlimited, limited = (
        list(plan.experiment.stream(data, replace(plan.settings, train_limit=most, test_limit=most), Rng(plan.seeds)))
        for most in (None, 10)
    )
    for whole, few in zip(unlimited, limited, strict=True):
        for all_of_it, part in zip(parts(whole), parts(few), strict=True):
            classes, counts = part.y.unique(return_counts=True)
            assert classes.tolist() == all_of_it.y.unique().tolist()
            assert set(counts.tolist()) == {10 * part.runs // len(classes)}


def test_labels_and_sources_fit_the_heads(stream: Stream) -> None:
    for task in stream:
        for part in parts(task):
            # Evaluation asks each task's one head about all of its test data.
            (source,) = part.sources
            assert source.task == task.name
            assert source.head in task.heads
            assert int(part.source.min()) == int(part.source.max()) == 0
            assert int(part.y.min()) >= 0
            assert int(part.y.max()) < task.heads[source.head]
        assert task.train.sources == task.test.sources


def test_making_a_task_twice_gives_the_same(stream: Stream) -> None:
    for number in range(stream.size):
        for first, again in zip(parts(stream.make(number)), parts(stream.make(number)), strict=True):
            assert torch.equal(first.x, again.x)
            assert torch.equal(first.y, again.y)


def test_a_seed_gets_the_same_tasks_alone_and_in_a_stack(plan: Plan, stream: Stream) -> None:
    last = plan.seeds[-1]
    alone = plan.experiment.stream(DATA, plan.settings, Rng((last,)))
    for number in range(stream.size):
        for stacked, single in zip(parts(stream.make(number)), parts(alone.make(number)), strict=True):
            assert torch.equal(stacked.x[-1], single.x[0])
            assert torch.equal(stacked.y[-1], single.y[0])


@pytest.mark.parametrize("side", [8, 28])
def test_the_network_takes_every_task(plan: Plan, side: int) -> None:
    stream = plan.experiment.stream(made_up(side), plan.settings, Rng(plan.seeds))
    model = plan.experiment.kind.model(plan.settings, stream.shape)
    heads: dict[str, int] = {}
    for task in stream:
        heads |= task.heads
        for part in parts(task):
            model.check(part, heads)
            prior = model.prior(task.heads).expand(len(plan.seeds))
            bound = Elbo(model, prior, draws=1, estimator="weights")
            parameters, noise = bound.parameters(prior), torch.zeros(len(plan.seeds), bound.noise(part))
            assert bound(parameters, part, part.size, noise).isfinite().tolist() == [True] * len(plan.seeds)
            with pytest.raises(VclError, match=f"{side}|{side * side}"):
                model.check(part._replace(x=part.x[..., :-1]), heads)
