"""What every learner for own data does: read an update, take one step of the recursion, keep what it needs.

    q_t(theta) = proj( q_{t-1}(theta) p(D_t | theta) ),   D_t the data of one update

A learner holds one value, :class:`vcl.learner.knowledge.Knowledge`. An update makes a new one and puts it in the place
of the old one at its end, so an update that fails or is interrupted changes nothing.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, final
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn

from vcl import __version__
from vcl.beliefs.algebra import quotient
from vcl.beliefs.fading import fade
from vcl.errors import VclError, unknown
from vcl.learner import folder, stored
from vcl.learner.backbone import HEAD, Shape
from vcl.learner.defaults import Effort
from vcl.learner.inputs import Given, examples, rows
from vcl.learner.knowledge import Inputs, Knowledge, TaskRecord, digest_of
from vcl.learner.progress import Bar, say
from vcl.learner.record import Update, Watch, lost
from vcl.learner.scaling import Scaling, Standardize, learned
from vcl.learner.ways import MethodName, Net, Part, Step, way_of
from vcl.models.base import Model
from vcl.models.fingerprint import fingerprint
from vcl.models.likelihoods import Likelihood
from vcl.models.vae import Vae
from vcl.ops.rng import Rng
from vcl.recursion import Method, State, initial, learn

if TYPE_CHECKING:
    from vcl.learner.report import Judged

Heads = Literal["auto", "shared", "per-task"]
HEADS: tuple[Heads, ...] = ("auto", "shared", "per-task")


@dataclass(frozen=True)
class Settings:
    """Everything a learner was made with, but the network."""

    method: MethodName
    shape: Shape
    effort: Effort
    heads: Heads
    memory: int
    standardize: Standardize
    forgettable: bool
    seed: int
    extra: Mapping[str, Any]
    """Settings of one kind of learner."""

    def check(self) -> None:
        """Raise VclError unless every value is valid."""
        self.shape.check()
        self.effort.check()
        way = way_of(self.method)
        if self.heads not in HEADS:
            raise unknown("heads", str(self.heads), HEADS)
        if isinstance(self.memory, bool) or not isinstance(self.memory, int) or self.memory < 0:
            raise VclError(f"memory is {self.memory!r}; give the number of examples to keep of each update, from 0.")
        if self.standardize not in (True, False, "auto"):
            raise VclError(f"standardize is {self.standardize!r}; give True, False or 'auto'.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise VclError(f"seed is {self.seed!r}; give a whole number.")
        if self.forgettable and not way.forgets:
            raise VclError(
                f"forgettable=True needs a family whose quotient is known, and method {self.method!r} has none; give "
                "method='mean-field'."
            )
        if way.shares and self.heads == "per-task":
            raise VclError(f"method {self.method!r} tells all classes apart by itself; leave out heads.")
        if self.shape.head == "own" and self.heads == "per-task":
            raise VclError("head='own' takes the network's last layer as the one shared head; leave out heads.")

    def described(self) -> dict[str, Any]:
        """As JSON takes it."""
        posterior = self.shape.posterior
        shape = {**asdict(self.shape), "posterior": posterior if isinstance(posterior, str) else list(posterior)}
        return {**asdict(self), "shape": shape, "extra": dict(self.extra)}

    @classmethod
    def from_described(cls, given: Mapping[str, Any]) -> Settings:
        """The inverse of :meth:`described`."""
        posterior = given["shape"]["posterior"]
        shape = Shape(**{**given["shape"], "posterior": posterior if isinstance(posterior, str) else tuple(posterior)})
        return cls(**{**given, "shape": shape, "effort": Effort(**given["effort"])})


class Fitted(NamedTuple):
    """What a step of the recursion gave."""

    state: State[Any]
    noise: Any


class ContinualLearner(ABC):
    """The part that classification and regression share."""

    KIND: str

    def __init__(self, net: Any, settings: Settings, device: torch.device | str, verbose: int) -> None:
        if isinstance(net, type):
            raise VclError(f"net is the class {net.__name__}; give an instance, such as {net.__name__}(...).")
        if net is not None and not isinstance(net, nn.Module | Vae):
            raise VclError(f"net is a {type(net).__name__}; give an nn.Module, such as vcl.mlp(inputs, (100, 100)).")
        settings.check()
        self.net: Net = net
        self.settings, self.verbose = settings, verbose
        self.device = _device(device)
        self._known: Knowledge | None = None
        self._prepared: Part | None = None
        self._prior: Mapping[str, Tensor] | None = None
        self._model_with: tuple[Likelihood, Any] | None = None

    # What the two kinds of learner differ in.

    @abstractmethod
    def _read(self, y: Any, count: int) -> np.ndarray:
        """Targets as an array of ``count`` rows, checked."""

    @abstractmethod
    def _outputs(self, y: np.ndarray, known: Any) -> tuple[Any, Tensor, int]:
        """What the head's outputs mean, the targets as the model takes them, and the size of the head."""

    @abstractmethod
    def _likelihood(self) -> Likelihood:
        """p(y | f) with the noise 1, where there is one: what the network is recognised by."""

    @abstractmethod
    def _fit(self, step: Step, method: Method[Any], rng: Rng, watch: Watch) -> Fitted:
        """One step of the recursion."""

    @abstractmethod
    def _stored_outputs(self, outputs: Any) -> Any:
        """What a head's outputs mean, as JSON takes it."""

    @abstractmethod
    def _loaded_outputs(self, given: Any) -> Any:
        """The inverse of :meth:`_stored_outputs`."""

    @abstractmethod
    def _judged(self, x: Any, y: Any, task: str | None) -> Judged:
        """Predictions of the examples x, the most uncertain first, for a page; ``y`` may be None."""

    # Learning.

    def update(
        self, x: Any, y: Any = None, task: str | None = None, *, forget: float = 0.0, revisit: bool = False
    ) -> Self:
        """Learn from the examples x with labels or targets y: q_t = proj( q_{t-1} p(D_t | theta) ).

        ``x`` may be an array, a tensor, a DataFrame, or a Dataset or DataLoader of pairs. ``task`` names the data; by
        default a named task has a head of its own and data without a name shares one. ``forget`` fades what was known
        before: q_{t-1} becomes q_{t-1}^(1 - forget) p^forget. ``revisit=True`` allows a task, or data, that was learned
        before.
        """
        begun = monotonic()
        if not 0 <= forget < 1:
            raise VclError(f"forget is {forget}; give a share of the past from 0 (none) to below 1.")
        given = examples(x, y, None if self._known is None else self._known.table, self._warn)
        if not len(given.x):
            raise VclError("the data is empty; give at least one example.")
        targets = self._read(given.y, len(given.x))
        name, head = self._place(task)
        seen = digest_of(given.x, targets)
        self._refuse_again(name, task is not None, seen, revisit)
        draft = self._draft(given, targets, name, head, forget)
        bar = Bar(self.verbose > 0)
        watch = Watch(bar)
        try:
            known = self._learned(draft, given, seen, watch, begun)
        finally:
            bar.end()
        self._known = known
        say(known.history[-1].line(), self.verbose)
        return self

    def _place(self, task: str | None) -> tuple[str, str]:
        """The name and the head of an update."""
        if task is not None and (not isinstance(task, str) or not task):
            raise VclError(f"task is {task!r}; give its name as a string that is not empty.")
        heads = set() if self._known is None else {record.head for record in self._known.tasks.values()}
        shared = self._shares_one_head(task)
        if heads and shared != (heads == {HEAD}):
            how = "one head for all updates" if heads == {HEAD} else f"heads for the tasks {', '.join(sorted(heads))}"
            want = "without task (or with heads='shared')" if heads == {HEAD} else "with the name of a task"
            raise VclError(f"this learner has {how}; update it {want}.")
        if not shared and task == HEAD:
            raise VclError(f"task is {HEAD!r}, which is the name of the shared head; give the task another name.")
        count = 0 if self._known is None else len(self._known.history)
        name = f"update {count + 1}" if task is None else task
        return name, HEAD if shared else name

    def _shares_one_head(self, task: str | None) -> bool:
        way = way_of(self.settings.method)
        if way.shares or self.settings.shape.head == "own" or self.settings.heads == "shared":
            return True
        if self.settings.heads == "per-task" and task is None:
            raise VclError("every task has a head of its own here; name the task, as in update(x, y, task='june').")
        return task is None

    def _refuse_again(self, name: str, named: bool, seen: str, revisit: bool) -> None:
        if self._known is None or revisit:
            return
        if named and name in self._known.tasks:
            raise VclError(
                f"task {name!r} was learned before; give new data another name, or revisit=True to learn it again on "
                "top of what is known."
            )
        if seen in self._known.seen:
            raise VclError(
                f"this is the data of {self._known.seen[seen]!r}, which would count twice; give new data, or "
                "revisit=True."
            )

    def _draft(self, given: Given, targets: np.ndarray, name: str, head: str, forget: float) -> _Draft:
        """The update as tensors; everything that a user can get wrong is noticed here, before any fit."""
        known = self._known
        if known is None:
            inputs = Inputs.of(given.x, self.net)
            scaling = learned(given.x, self.settings.standardize) if inputs.kind == "numbers" else None
        else:
            known.inputs.check(given.x, self.net)
            inputs, scaling = known.inputs, known.scaling
        x = inputs.tensor(given.x, scaling)
        if known is not None and scaling is not None:
            outside = scaling.outside(x, () if given.table is None else given.table.outputs)
            if outside:
                self._warn(outside)
        if self._prepared is None:
            self._prepared = self._prepare(x[:1], inputs)
        before = None if known is None else known.outputs.get(head)
        outputs, y, units = self._outputs(targets, before)
        return _Draft(name, head, x, y, inputs, scaling, outputs, units, forget)

    def _learned(self, draft: _Draft, given: Given, seen: str, watch: Watch, begun: float) -> Knowledge:
        """The knowledge after the update."""
        known, settings = self._known, self.settings
        method = way_of(settings.method).method(settings.effort, len(draft.x), settings.memory)
        noise = None if known is None else known.noise
        model = self._model()
        rng = Rng(settings.seed)
        before: State[Any] = initial(model, method, 1, self.device) if known is None else known.state
        if draft.forget:
            before = before._replace(propagated=fade(before.propagated, model.prior(before.heads), draft.forget))
        part = self._part()
        x = part.inputs(draft.x.to(self.device), before.propagated.mean)
        step = Step(before, draft.name, draft.head, x, draft.y.to(self.device), draft.units, draft.outputs, noise)
        state, noise = self._fit(step, method, rng, watch)
        tasks = {} if known is None else dict(known.tasks)
        old = tasks.get(draft.name, TaskRecord(draft.head, 0, 0))
        tasks[draft.name] = TaskRecord(draft.head, old.examples + len(draft.x), old.updates + 1)
        sites = {} if known is None else dict(known.sites)
        if settings.forgettable:
            grown = before.propagated.grow(model.prior(state.heads))
            sites[draft.name] = quotient(state.propagated.factor(), grown.factor())
        update = self._record(draft, step, state, watch, monotonic() - begun, model)
        return Knowledge(
            state, draft.inputs, {**({} if known is None else known.outputs), draft.head: draft.outputs}, tasks,
            draft.scaling, given.table if known is None else known.table, noise, sites,
            {**({} if known is None else known.seen), seen: draft.name},
            (*(() if known is None else known.history), update),
        )  # fmt: skip

    def _record(
        self, draft: _Draft, step: Step, state: State[Any], watch: Watch, seconds: float, model: Model
    ) -> Update:
        before, health, last = step.before.propagated, watch.health, watch.last
        after = state.propagated.restrict(before.layout).mean if _same_shapes(before, state.propagated) else None
        past = 0.0 if step.before.t == 0 or after is None else lost(before, after, model.prior(step.before.heads))
        return Update(
            draft.name,
            draft.head,
            len(draft.x),
            seconds,
            watch.epochs,
            float("nan") if last is None else float(last.objective.mean()) / len(draft.x),
            None if health is None else float(health.limited.max()),
            0.0 if health is None else health.reach,
            {} if health is None else {name: float(value.sum()) for name, value in health.kl.items()},
            past,
            tuple(watch.notes),
        )

    def _step(self, step: Step, model: Any, method: Method[Any], rng: Rng, watch: Watch) -> State[Any]:
        """Algorithm 1 for one task."""
        task = way_of(self.settings.method).task(step)
        # The likelihood, and so what the model answers, changes with the noise: the network is recognised without it.
        before = step.before._replace(fingerprint=None)
        (state,) = learn(before, [task], model, method, rng, watch)
        known = step.before.fingerprint or fingerprint(self._model(), task.train, state.heads, state.propagated.mean)
        return state._replace(fingerprint=known)

    # What is known.

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks learned so far; updates without a name are numbered."""
        return () if self._known is None else tuple(self._known.tasks)

    @property
    def history(self) -> tuple[Update, ...]:
        """What each update did."""
        return () if self._known is None else self._known.history

    def _knows(self) -> Knowledge:
        if self._known is None:
            raise VclError("nothing has been learned yet; call update(x, y) first.")
        return self._known

    def _prepare(self, example: Tensor, inputs: Inputs) -> Part:
        settings = self.settings
        return way_of(settings.method).part(self.net, example, inputs, settings.shape, settings.seed)

    def _part(self) -> Part:
        assert self._prepared is not None
        return self._prepared

    def _model(self, likelihood: Likelihood | None = None) -> Any:
        """The network with a likelihood; the last one is kept."""
        wanted = self._likelihood() if likelihood is None else likelihood
        if self._model_with is None or self._model_with[0] != wanted:
            self._model_with = wanted, self._part().model(wanted, self._prior)
        return self._model_with[1]

    def _head_of(self, task: str | None) -> str:
        """The head that a task is predicted with."""
        known = self._knows()
        heads = dict.fromkeys(record.head for record in known.tasks.values())
        if task is None:
            if len(heads) == 1:
                return next(iter(heads))
            raise VclError(
                f"there is a head for each of the tasks {', '.join(heads)}; give one, as in task={next(iter(heads))!r}."
            )
        if task not in known.tasks:
            raise unknown("task", str(task), known.tasks)
        return known.tasks[task].head

    def _rows(self, x: Any) -> Tensor:
        """Inputs to predict for, as the network takes them, on the device."""
        known = self._knows()
        found = rows(x, known.table, self._warn)
        known.inputs.check(found, self.net)
        part, mean = self._part(), known.state.propagated.mean
        if not len(found):
            raise VclError("x has no examples; give at least one.")
        return part.inputs(known.inputs.tensor(found, known.scaling).to(mean.device), mean).unsqueeze(0)

    def _rng(self, *purpose: object) -> Rng:
        return Rng(self.settings.seed).at("learner", *purpose)

    def _warn(self, text: str) -> None:
        warn(text, UserWarning, stacklevel=4)

    def summary(self) -> str:
        """What the learner is and what it has learned, as text."""
        known = self._knows()
        q, part = known.state.propagated, self._part()
        kind = f"{self.KIND}, method {self.settings.method}, on {q.mean.device}"
        lines = [f"{kind}: {q.layout.size:,} parameters with a posterior{f' ({part.note})' if part.note else ''}"]
        lines.append(
            f"inputs {list(known.inputs.shape)} {known.inputs.kind}{'' if known.scaling is None else ', standardised'}"
        )
        lines += [
            f"task {name}: {record.examples} examples, head {record.head}: {known.outputs[record.head]}"
            for name, record in known.tasks.items()
        ]
        if known.state.coreset is not None and known.state.coreset.size:
            lines.append(f"memory: {known.state.coreset.size} examples")
        return "\n".join(lines)

    def report(self, path: str | os.PathLike[str], x: Any = None, y: Any = None, task: str | None = None) -> None:
        """Write one HTML page: tasks, what each update changed, and the posterior of each layer.

        With inputs ``x`` the page shows the most uncertain of them, and with their labels or targets ``y`` how right
        the predictions are. An older page is replaced.
        """
        from vcl.learner import report

        known = self._knows()
        if x is None and y is not None:
            raise VclError("y was given without x; give the inputs too.")
        about = self.summary().splitlines()[0]
        shown = []
        if x is not None:
            pictures = np.asarray(x) if isinstance(x, np.ndarray | Tensor) else None
            shown.append(report.examples(self._judged(x, y, task), pictures))
        title = f"{about[:1].upper()}{about[1:]}."
        report.write(path, report.page_of(self.KIND, title, known, shown, __version__))

    def forget(self, task: str) -> Self:
        """Take what a task's data contributed out of the belief: q / (q_t / q_{t-1}), by the algebra of beliefs.

        Only for ``method="mean-field"`` with ``forgettable=True``; other families have no quotient. It is exact for
        the belief, which is itself an approximation: what later tasks learned with the help of this one stays.
        """
        known = self._knows()
        if task not in known.tasks:
            raise unknown("task", str(task), known.tasks)
        if task not in known.sites:
            raise VclError(
                f"what {task!r} contributed was not kept; make the learner with method='mean-field' and "
                "forgettable=True, which keeps two numbers for each parameter and task."
            )
        site, q = known.sites[task], known.state.propagated
        whole = site._replace(
            layout=q.layout,
            centre=q.layout.pad(site.centre, site.layout),
            precision=q.layout.pad(site.precision, site.layout),
        )
        left = quotient(q, whole)
        coreset = known.state.coreset
        if coreset is not None:
            coreset = coreset.where([source for source in coreset.sources if source.task != task])
        record = known.tasks[task]
        tasks = {name: each for name, each in known.tasks.items() if name != task}
        used = {each.head for each in tasks.values()}
        state = known.state._replace(
            propagated=left, predictive=dict.fromkeys(known.state.predictive, left), coreset=coreset
        )
        outputs = {head: each for head, each in known.outputs.items() if head in used or head == record.head == HEAD}
        self._known = known._replace(
            state=state, tasks=tasks, outputs=outputs,
            sites={name: each for name, each in known.sites.items() if name != task},
            seen={digest: name for digest, name in known.seen.items() if name != task},
        )  # fmt: skip
        return self

    # On disk.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything but the network's code to a folder, atomically; see :mod:`vcl.learner.folder`."""
        known = self._knows()
        about = {
            "kind": self.KIND,
            "vcl": __version__,
            "settings": self.settings.described(),
            "frozen": self._part().digests(),
            **stored.described(known, self._stored_outputs),
        }
        prior = self._part().prior_values(self._model())
        folder.write(path, folder.Content(about, stored.state_bytes(known), stored.arrays(known, prior)))

    def _load(self, content: folder.Content, path: str | os.PathLike[str]) -> Self:
        """Take over what a folder holds, checked against the network."""
        known, prior = stored.knowledge(content, self._loaded_outputs, self.device, path)
        self._prepared = self._prepare(stored.example(known.inputs), known.inputs)
        self._prior = prior or None
        stored.check_frozen(content.about["frozen"], self._prepared.digests(), path)
        stored.check_network(known.state, self._model(), path)
        self._known = known
        return self


@final
class _Draft(NamedTuple):
    """An update as tensors, before the fit."""

    name: str
    head: str
    x: Tensor
    y: Tensor
    inputs: Inputs
    scaling: Scaling | None
    outputs: Any
    units: int
    forget: float


def _same_shapes(before: Any, after: Any) -> bool:
    """Whether the parameters of ``before`` have the same shapes after (a head may have grown)."""
    now = dict(zip(*after.layout, strict=True))
    return all(now.get(name) == shape for name, shape in zip(*before.layout, strict=True))


def _device(device: torch.device | str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise VclError(
            f"device is {device!r}, which is not here ({str(error).splitlines()[0]}); give 'auto' or 'cpu'."
        ) from error
    return found


def settings_with(settings: Settings, **extra: Any) -> Settings:
    """The settings with more of one kind of learner."""
    return replace(settings, extra={**settings.extra, **extra})
