"""Algorithm 1 of the paper, coreset VCL, for any projection and any coreset rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, Literal, NamedTuple, TypeVar
from warnings import warn

import torch

from vcl.beliefs.belief import Belief
from vcl.coresets import CoresetRule, Nothing
from vcl.data import Data, in_precision, labelled
from vcl.errors import NonFiniteError, VclError, unknown
from vcl.fitting.loop import Report, silent
from vcl.models.base import Heads, Model
from vcl.models.fingerprint import Fingerprint, check_model, fingerprint
from vcl.ops.out_of_memory import TASK, told_of_memory
from vcl.ops.rng import Rng
from vcl.projections.base import FitsCoresets, Projection, Target, lambda_of, select_runs

Q = TypeVar("Q", bound=Belief)

Predictive = Literal["joint", "per-head"]
PREDICTIVES: tuple[Predictive, ...] = ("joint", "per-head")


class Task(NamedTuple):
    """D_t, optional test data, and the heads it uses with their sizes.

    Learning never reads test data. Heads of earlier tasks need not be named again; a larger size adds outputs to one.
    """

    name: str
    train: Data
    test: Data | None = None
    heads: Heads = MappingProxyType({})


def require_test_data(task: Task) -> Data:
    """The task's test data; VclError if there is none."""
    if task.test is None:
        raise VclError(f"task {task.name!r} has no test data to be evaluated on; give some, as in Task(test=...).")
    return task.test


class SetAside(NamedTuple):
    """A run that became non-finite and was removed from the stack. Runs are independent, so the others continue."""

    run: int
    """Its position among the initial runs of the stream."""
    seed: int
    lam: float | None
    """Its lambda, where the method has one."""
    task: int
    reason: str

    def __str__(self) -> str:
        lam = "" if self.lam is None else f" (lambda {self.lam:g})"
        return f"seed {self.seed}{lam} in task {self.task}: {self.reason}"


class State(NamedTuple, Generic[Q]):
    """Everything that learning continues from after task t: q~_t, q_t (by head), C_t, and the heads met so far.

    ``predictive[h]`` is the belief that head h predicts with. It is never propagated. All beliefs and data are those of
    the remaining runs, :attr:`alive`; ``set_aside`` lists the others.
    """

    t: int
    heads: Heads
    propagated: Q
    predictive: Mapping[str, Q]
    coreset: Data | None
    set_aside: tuple[SetAside, ...] = ()
    fingerprint: Fingerprint | None = None
    """Identifies the network from the first task on; any other network is refused."""

    @property
    def runs_begun(self) -> int:
        """The number of initial runs of the stream."""
        return self.propagated.mean.shape[0] + len(self.set_aside)

    @property
    def alive(self) -> tuple[int, ...]:
        """The positions of the remaining runs among the initial ones."""
        gone = {each.run for each in self.set_aside}
        return tuple(run for run in range(self.runs_begun) if run not in gone)

    def select(self, runs: Sequence[int]) -> State[Q]:
        """The selected runs, by position among the remaining ones; ``set_aside`` stays as it is."""
        kept = torch.tensor(runs, device=self.propagated.mean.device)
        beliefs = {id(belief): belief for belief in (self.propagated, *self.predictive.values())}
        chosen = {key: belief.select(kept) for key, belief in beliefs.items()}  # a belief that heads share stays shared
        return self._replace(
            propagated=chosen[id(self.propagated)],
            predictive={head: chosen[id(belief)] for head, belief in self.predictive.items()},
            coreset=None if self.coreset is None else self.coreset.select(runs),
        )


@dataclass(frozen=True, init=False)
class Method(Generic[Q]):
    """A continual learner: a projection, a coreset rule, and how the coreset enters the prediction."""

    project: Projection[Q]
    choose: CoresetRule
    refit: Projection[Q]
    """The projection that fits the coreset: the same kind as ``project``, possibly with other epochs or batch size."""
    predictive: Predictive

    def __init__(
        self,
        project: Projection[Q],
        choose: CoresetRule | None = None,
        refit: Projection[Q] | None = None,
        predictive: Predictive = "joint",
    ) -> None:
        """By default ``choose`` is :class:`vcl.coresets.Nothing` (no coreset) and ``refit`` is ``project`` or its
        ``for_coresets()``."""
        if refit is None and not isinstance(project, type):
            refit = project.for_coresets() if isinstance(project, FitsCoresets) else project
        rule: CoresetRule = Nothing() if choose is None else choose
        for what, given in (("project", project), ("choose", rule), ("refit", refit or project)):
            if isinstance(given, type) or given is None:
                raise VclError(f"{what} is {given!r}; give an instance, such as VariationalKL() or RandomK(200).")
        made = {"project": project, "choose": rule, "refit": refit or project, "predictive": predictive}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def select(self, runs: Sequence[int], of: int) -> Method[Q]:
        """The method for the selected runs out of ``of``; settings with one value per run, such as lambda, follow."""
        project, refit = (select_runs(each, runs, of) for each in (self.project, self.refit))
        return Method(project, self.choose, refit, self.predictive)


def initial(model: Model, method: Method[Q], runs: int, device: torch.device | str = "cpu") -> State[Q]:
    """The state before the first task: C_0 = {}, q~_0 = p."""
    prior = model.prior({}).to(device).expand(runs)
    return State(0, {}, method.project.initial(prior), {}, None)


def learn(
    state: State[Q],
    tasks: Iterable[Task],
    model: Model,
    method: Method[Q],
    rng: Rng,
    report: Report = silent,
) -> Iterator[State[Q]]:
    """Algorithm 1: yields one state per task, computed from the previous state and the task's data alone.

    Floating-point data is converted to the belief's dtype. A run that becomes non-finite is set aside: the task is
    learned again without it, and ``state.set_aside`` records it (without ``report`` there is also a warning). The other
    runs change by rounding at most; for chains of layers on a CPU they keep their bits. If no run remains, the error is
    raised. Tasks, method and seeds may still be those of all initial runs.
    """
    if isinstance(tasks, Task):
        raise VclError(f"tasks is the single task {tasks.name!r}; give a list of tasks, such as [task].")
    check_model(model, state.propagated.layout, state.heads, state.fingerprint, state.propagated.mean)
    for task in tasks:
        task = task._replace(train=in_precision(labelled(task.train), state.propagated.mean.dtype))
        t, known = state.t + 1, len(state.set_aside)
        while state.t < t:
            try:
                with _naming_task(task, t):
                    state = _learn(state, task, model, method, rng, report)
            except NonFiniteError as error:
                state = set_runs_aside(state, error, t, method, rng)
        if len(state.set_aside) > known and report is silent:
            warn(describe_set_aside(state, known), RuntimeWarning, stacklevel=2)
        yield state


def _learn(state: State[Q], task: Task, model: Model, method: Method[Q], rng: Rng, report: Report) -> State[Q]:
    """The state after one task, for the remaining runs."""
    t, heads = state.t + 1, {**state.heads, **task.heads}
    method, rng = _of_those_left(state, method, rng)
    if state.set_aside and task.train.runs == state.runs_begun:
        task = task._replace(train=task.train.select(state.alive))
    _check(state, task, model, method, rng)
    model.check(task.train, heads)
    prior = model.prior(heads)
    _check_family(state.propagated, method.project.initial(prior), method)
    purpose = rng.at("task", t)
    q = state.propagated.grow(prior)  # unseen heads and outputs start at the prior
    # C_t <- update the coreset using C_{t-1} and D_t
    old = task.train.empty() if state.coreset is None else state.coreset
    coreset, rest = method.choose(old, task.train, purpose.at("coreset"))
    # q~_t <- proj( q~_{t-1} p(D_t u C_{t-1} \ C_t | theta) )
    q = method.project(Target(q, model, rest, prior, state.coreset), purpose.at("propagate"), report)
    _check_returned(q, state.propagated, method.project)
    # q_t <- proj( q~_t p(C_t | theta) ), only used for prediction, and not propagation
    target = Target(q, model, coreset, prior, coreset)
    predictive = _predictive(method, target, heads, purpose.at("predict"), report)
    known = state.fingerprint
    if known is None and task.train.sources:
        known = fingerprint(model, task.train, heads, q.mean)
    return State(t, heads, q, predictive, coreset, state.set_aside, known)


def _predictive(method: Method[Q], target: Target[Q], heads: Heads, rng: Rng, report: Report) -> dict[str, Q]:
    """q_t for each head: one fit to all of C_t, or (appendix B) one fit per head to that head's points."""
    if method.predictive == "joint":
        q = method.refit(target, rng, report)
        _check_returned(q, target.q, method.refit)
        return dict.fromkeys(heads, q)
    fits = {}
    for head in heads:
        points = target.data.where([source for source in target.data.sources if source.head == head])
        fits[head] = method.refit(target._replace(data=points), rng.at(head), report).restrict(
            target.q.layout.touched([head])
        )
    return fits


def set_runs_aside(state: State[Q], error: NonFiniteError, t: int, method: Method[Q], rng: Rng) -> State[Q]:
    """The state without the runs that ``error`` names as non-finite in task t. Raises the error if none would remain.

    Method and seeds may be those of all initial runs.
    """
    method, rng = _of_those_left(state, method, rng)
    alive = state.alive
    left = [run for run in range(len(alive)) if run not in error.runs]
    if not error.runs or not left:
        raise error
    gone = tuple(
        SetAside(alive[run], rng.seeds[run], lambda_of(method.project, run), t, error.reason) for run in error.runs
    )
    return state.select(left)._replace(set_aside=(*state.set_aside, *gone))


def describe_set_aside(state: State[Q], known: int = 0) -> str:
    """Which runs were set aside, and why, in one line, without the first ``known`` (already reported)."""
    new = state.set_aside[known:]
    return f"{len(new)} of {state.runs_begun} runs set aside: {'; '.join(map(str, new))}"


def _of_those_left(state: State[Q], method: Method[Q], rng: Rng) -> tuple[Method[Q], Rng]:
    """Method and seeds of the remaining runs, from those of all initial runs."""
    if not state.set_aside:
        return method, rng
    alive, runs_begun = state.alive, state.runs_begun
    return method.select(alive, runs_begun), rng.select(alive) if len(rng.seeds) == runs_begun else rng


def _check_family(held: object, carried: object, method: Method[Q]) -> None:
    """Raise VclError if the state and the projection have different kinds of belief."""
    if type(held) is not type(carried):
        raise VclError(
            f"the state holds a belief of the kind {type(held).__name__}, but {type(method.project).__name__} carries "
            f"{type(carried).__name__}; continue with the projection that the state was learned with, or start again "
            "with initial(model, method, runs)."
        )


def _check_returned(found: object, before: object, project: object) -> None:
    """Raise VclError unless a projection has returned a belief of the kind that it was given."""
    if type(found) is not type(before):
        raise VclError(
            f"{type(project).__name__} returned {type(found).__name__}; return the new belief, a "
            f"{type(before).__name__}."
        )


def _check(state: State[Q], task: Task, model: Model, method: Method[Q], rng: Rng) -> None:
    """Raise VclError unless this task can be learned from this state."""
    if method.predictive not in PREDICTIVES:
        raise unknown("predictive", method.predictive, PREDICTIVES)
    mean, x = state.propagated.mean, task.train.x
    if not mean.shape[0] == task.train.runs == len(rng.seeds):
        raise VclError(
            f"the state has {mean.shape[0]} runs, task {task.name!r} has data for {task.train.runs} and there are "
            f"{len(rng.seeds)} seeds; give all three the same number of runs."
        )
    if mean.device != x.device:
        raise VclError(f"the state is on {mean.device} but task {task.name!r} is on {x.device}; move one of them.")
    for head, units in task.heads.items():
        known = state.heads.get(head, units)
        if units < known:
            raise VclError(
                f"task {task.name!r} gives head {head!r} {units} outputs but it has {known}; a head may only get more "
                "of them: give its size or a larger one, or use a new name."
            )
        # A size that changes no parameter is not a number of outputs that could grow.
        if units > known and model.prior({head: units}).layout == model.prior({head: known}).layout:
            raise VclError(
                f"task {task.name!r} gives head {head!r} the size {units} but it has {known}, and the heads of a "
                f"{type(model).__name__} do not grow; use a new name."
            )


@contextmanager
def _naming_task(task: Task, t: int) -> Iterator[None]:
    where = f"task {t} ({task.name})"
    try:
        with told_of_memory("the work beside its fits", TASK, where):
            yield
    except NonFiniteError as error:
        raise NonFiniteError(f"{where}: {error}", error.runs, error.reason) from error
