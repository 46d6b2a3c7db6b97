"""Every experiment that is listed keeps what the recursion asks of a stream, with nothing to write for a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from vcl.data import Data
from vcl.errors import VclError
from vcl.lab.experiments import EXPERIMENTS, Experiment
from vcl.lab.experiments.experiment import PARTS, PRESETS
from vcl.lab.plan import Plan, make_plan
from vcl.lab.settings import check, values_of
from vcl.lab.streams import Arrays, Stream
from vcl.ops.rng import Rng
from vcl.projections.vi import Elbo
from vcl.recursion import Task


def made_up(side: int) -> Arrays:
    g = torch.Generator().manual_seed(1)
    train, test = (torch.randint(0, 256, (n, side, side), generator=g, dtype=torch.uint8) for n in (300, 100))
    return Arrays(train, torch.arange(300) % 10, test, torch.arange(100) % 10, tuple("0123456789"))


DATA = made_up(8)


def streamed(plan: Plan, data: Arrays, seeds: tuple[int, ...], **settings: Any) -> Stream:
    """The plan's stream with other settings of it; of this data, unless it makes its own."""
    changed = replace(plan, setup=plan.setup.but(plan.setup.own, **settings))
    return changed.stream(None if plan.experiment.makes_data else data, Rng(seeds))


LIMITED = [entry for entry in EXPERIMENTS if "train_limit" in values_of(entry.presets["paper"].stream)]


@pytest.fixture(params=EXPERIMENTS, ids=lambda entry: entry.name)
def entry(request: pytest.FixtureRequest) -> Experiment:
    chosen: Experiment = request.param
    return chosen


@pytest.fixture
def plan(entry: Experiment) -> Plan:
    given = None if entry.dataset or entry.makes_data else "digits"
    return make_plan(entry.name, "vcl", "smoke", None, "cpu", dataset=given)


@pytest.fixture
def stream(plan: Plan) -> Stream:
    return streamed(plan, DATA, plan.seeds)


def parts(task: Task) -> tuple[Data, Data]:
    return task.train, task.test


def test_every_preset_is_there_and_can_be_run(entry: Experiment) -> None:
    assert set(entry.presets) == set(PRESETS)
    for setup in entry.presets.values():
        for part in PARTS:
            check(getattr(setup, part))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_makes_its_stream(entry: Experiment, preset: str) -> None:
    given = None if entry.dataset or entry.makes_data else "digits"
    plan = make_plan(entry.name, "vcl", preset, 1, "cpu", dataset=given)
    made = streamed(plan, DATA, (0,))
    assert made.make(made.size - 1).train.size > 0


def test_as_many_tasks_as_the_settings_say(plan: Plan, stream: Stream) -> None:
    assert stream.size == len(list(stream)) == plan.setup.stream.tasks
    assert len({task.name for task in stream}) == stream.size


def test_every_part_stacks_all_runs_in_one_kind(plan: Plan, stream: Stream) -> None:
    for task in stream:
        for part in parts(task):
            assert part.size > 0
            assert part.x.shape == (len(plan.seeds), part.size, *stream.shape)
            assert part.y.shape == part.source.shape == (len(plan.seeds), part.size)
            own = plan.experiment.makes_data  # real numbers; else images and labels
            kinds = (torch.float32, torch.float32) if own else (torch.uint8, torch.int64)
            assert (part.x.dtype, part.y.dtype) == kinds


def test_all_but_those_that_make_their_data_have_limits() -> None:
    assert [entry for entry in EXPERIMENTS if entry not in LIMITED] == [each for each in EXPERIMENTS if each.makes_data]


@pytest.mark.parametrize("entry", LIMITED, ids=lambda entry: entry.name)
def test_limits_are_kept(plan: Plan) -> None:
    for task in streamed(plan, DATA, plan.seeds, train_limit=7, test_limit=4):
        assert (task.train.size, task.test.size) == (7, 4)


@pytest.mark.parametrize("entry", LIMITED, ids=lambda entry: entry.name)
def test_limits_keep_every_class_and_as_many_of_each_though_the_data_is_sorted_by_class(plan: Plan) -> None:
    data = DATA._replace(train_y=torch.arange(300) // 30, test_y=torch.arange(100) // 10)
    unlimited, limited = (
        list(streamed(plan, data, plan.seeds, train_limit=most, test_limit=most)) for most in (None, 10)
    )
    for whole, few in zip(unlimited, limited, strict=True):
        for all_of_it, part in zip(parts(whole), parts(few), strict=True):
            classes, counts = part.y.unique(return_counts=True)
            assert classes.tolist() == all_of_it.y.unique().tolist()
            assert set(counts.tolist()) == {10 * part.runs // len(classes)}


def test_labels_and_sources_fit_the_heads(plan: Plan, stream: Stream) -> None:
    for task in stream:
        for part in parts(task):
            # Evaluation asks each task's one head about all of its test data.
            (source,) = part.sources
            assert source.task == task.name
            assert source.head in task.heads
            assert int(part.source.min()) == int(part.source.max()) == 0
            if plan.experiment.makes_data:  # real targets, one of each example
                assert task.heads[source.head] == 1
                continue
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
    alone = streamed(plan, DATA, (last,))
    for number in range(stream.size):
        for stacked, single in zip(parts(stream.make(number)), parts(alone.make(number)), strict=True):
            assert torch.equal(stacked.x[-1], single.x[0])
            assert torch.equal(stacked.y[-1], single.y[0])


@pytest.mark.parametrize("side", [8, 28])
def test_the_network_takes_every_task(plan: Plan, side: int) -> None:
    stream = streamed(plan, made_up(side), plan.seeds)
    model = plan.model(stream.shape)
    heads: dict[str, int] = {}
    for task in stream:
        heads |= task.heads
        for part in parts(task):
            model.check(part, heads)
            prior = model.prior(task.heads).expand(len(plan.seeds))
            bound = Elbo(model, prior, draws=1, estimator="weights")
            parameters, noise = bound.parameters(prior), torch.zeros(len(plan.seeds), bound.noise(part))
            assert bound(parameters, part, part.size, noise).isfinite().tolist() == [True] * len(plan.seeds)
            # Convolutions with a stride take a column more or fewer; no network takes half of them.
            width = stream.shape[-1] // 2 if "conv" in plan.experiment.name else stream.shape[-1] - 1
            wrong = part._replace(x=part.x[..., :width])
            told = r"does not take inputs of shape \(0,\)" if plan.experiment.makes_data else f"{side}|{side * side}"
            with pytest.raises(VclError, match=told):
                model.check(wrong, heads)
