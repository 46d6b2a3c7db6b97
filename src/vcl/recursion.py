"""Algorithm 1 of the paper, coreset VCL, for any projection and any coreset rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import torch

from vcl.beliefs.belief import Belief
from vcl.coresets import CoresetRule
from vcl.data import Data, in_precision, labelled
from vcl.errors import NonFiniteError, VclError, unknown
from vcl.fitting.loop import Report, silent
from vcl.models.base import Heads, Model
from vcl.ops.rng import Rng
from vcl.projections.base import Projection, Target

Q = TypeVar("Q", bound=Belief)

Predictive = Literal["joint", "per-head"]
PREDICTIVES: tuple[Predictive, ...] = ("joint", "per-head")


class Task(NamedTuple):
    """D_t, the test data that goes with it, and the heads it speaks to with their sizes."""

    name: str
    train: Data
    test: Data
    heads: Heads


class State(NamedTuple, Generic[Q]):
    """All that continues after task t: q~_t, q_t (by head), C_t, and the heads met so far.

    ``predictive[h]`` is the belief to predict with at head h. It is never propagated.
    """

    t: int
    heads: Heads
    propagated: Q
    predictive: Mapping[str, Q]
    coreset: Data | None


@dataclass(frozen=True, init=False)
class Method(Generic[Q]):
    """A continual learner: a projection, a coreset rule, and how the coreset enters the prediction."""

    project: Projection[Q]
    choose: CoresetRule
    refit: Projection[Q]
    """The projection of the coreset: the same kind, possibly with other epochs or another batch."""
    predictive: Predictive

    def __init__(
        self,
        project: Projection[Q],
        choose: CoresetRule,
        refit: Projection[Q] | None = None,
        predictive: Predictive = "joint",
    ) -> None:
        """``refit`` is ``project`` itself, if left out."""
        made = {"project": project, "choose": choose, "refit": refit or project, "predictive": predictive}
        for name, value in made.items():
            object.__setattr__(self, name, value)


def initial(model: Model, method: Method[Q], runs: int, device: torch.device | str = "cpu") -> State[Q]:
    """C_0 = {}, q~_0 = p."""
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
    """Algorithm 1: one state per task, each from the one before and the task's own data alone.

    Floating-point data is taken in the belief's own precision.
    """
    for task in tasks:
        t, dtype = state.t + 1, state.propagated.mean.dtype
        task = task._replace(train=in_precision(labelled(task.train), dtype))
        _check(state, task, method, rng)
        heads = {**state.heads, **task.heads}
        model.check(task.train, heads)
        prior = model.prior(heads)
        purpose = rng.at("task", t)
        q = state.propagated.grow(prior)  # unseen heads stand at the prior
        # C_t <- update the coreset using C_{t-1} and D_t
        old = task.train.empty() if state.coreset is None else state.coreset
        coreset, rest = method.choose(old, task.train, purpose.at("coreset"))
        with _naming(task, t):
            # q~_t <- proj( q~_{t-1} p(D_t u C_{t-1} \ C_t | theta) )
            q = method.project(Target(q, model, rest, prior), purpose.at("propagate"), report)
            # q_t <- proj( q~_t p(C_t | theta) ), only used for prediction, and not propagation
            predictive = _predictive(method, Target(q, model, coreset, prior), heads, purpose.at("predict"), report)
        state = State(t, heads, q, predictive, coreset)
        yield state


def _predictive(method: Method[Q], target: Target[Q], heads: Heads, rng: Rng, report: Report) -> dict[str, Q]:
    """q_t at each head: one fit of all of C_t, or (appendix B) one fit per head, of that head's points alone."""
    if method.predictive == "joint":
        q = method.refit(target, rng, report)
        return dict.fromkeys(heads, q)
    fits = {}
    for head in heads:
        mine = target.data.where([source for source in target.data.sources if source.head == head])
        fits[head] = method.refit(target._replace(data=mine), rng.at(head), report).restrict(
            target.q.layout.touched([head])
        )
    return fits


def _check(state: State[Q], task: Task, method: Method[Q], rng: Rng) -> None:
    """Raise one clear sentence unless this task can be learned from this state."""
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
        if state.heads.get(head, units) != units:
            raise VclError(
                f"task {task.name!r} gives head {head!r} {units} outputs but it was met with "
                f"{state.heads[head]}; use a new name."
            )


@contextmanager
def _naming(task: Task, t: int) -> Iterator[None]:
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"task {t} ({task.name}): {error}") from error
