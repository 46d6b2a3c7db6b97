"""What every learner for own data does: read an update, take one step of the recursion, keep what it needs.

    q_t(theta) = proj( q_{t-1}(theta) p(D_t | theta) ),   D_t the data of one update

A learner holds one value, :class:`vcl.learner.knowledge.Knowledge`. An update makes a new one and puts it in the place
of the old one at its end, so an update that fails or is interrupted changes nothing.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from vcl import __version__
from vcl.beliefs.fading import fade
from vcl.errors import VclError, unknown
from vcl.learner import folder, places, stored
from vcl.learner.as_it_was import as_it_was
from vcl.learner.draft import Draft, read
from vcl.learner.forgetting import without
from vcl.learner.given import device_of, refuse_empty_tensors, require_whole
from vcl.learner.input_kind import Inputs
from vcl.learner.inputs import examples, rows
from vcl.learner.knowledge import Knowledge, TaskRecord, digest_of
from vcl.learner.misfits import saying_what_fits, saying_which_tokens
from vcl.learner.prepared import Prepared
from vcl.learner.progress import Bar, say
from vcl.learner.record import Update, Watch, recorded
from vcl.learner.saving import EVERY, Saver, as_folder
from vcl.learner.settings import Settings
from vcl.learner.sites import sites_after
from vcl.learner.update_identity import identity_of
from vcl.learner.warned import warn_user
from vcl.learner.way import Net, Part, Step
from vcl.learner.ways import way_of
from vcl.models.fingerprint import fingerprint
from vcl.models.likelihoods import Likelihood
from vcl.models.vae import Vae
from vcl.ops.rng import Rng
from vcl.recursion import Method, State, initial, learn

if TYPE_CHECKING:
    from vcl.learner.report import Judged


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
        refuse_empty_tensors(net)
        settings.check()
        require_whole("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0, " (quiet)")
        self.net: Net = net
        self.settings, self.verbose = settings, verbose
        self.device = device_of(device)
        self._known: Knowledge | None = None
        self._prepared: Prepared | None = None

    # What the two kinds of learner differ in.

    @abstractmethod
    def _read(self, y: Any, count: int) -> np.ndarray:
        """Targets as an array of ``count`` rows, checked."""

    @abstractmethod
    def _outputs(self, y: np.ndarray, known: Any, part: Part) -> tuple[Any, Tensor, int]:
        """What the head's outputs mean, the targets as the model takes them, and the size of the head."""

    def _caution(self, y: np.ndarray, before: Any) -> str:
        """What to say of targets that a head with ``before`` outputs will learn badly; "" if nothing."""
        return ""

    @abstractmethod
    def _likelihood(self) -> Likelihood:
        """p(y | f) with the noise 1, where there is one: what the network is recognised by."""

    @abstractmethod
    def _fit(self, prepared: Prepared, step: Step, method: Method[Any], rng: Rng, watch: Watch) -> Fitted:
        """One step of the recursion."""

    @abstractmethod
    def _stored_outputs(self, outputs: Any) -> Any:
        """What a head's outputs mean, as JSON takes it."""

    @abstractmethod
    def _loaded_outputs(self, given: Any) -> Any:
        """The inverse of :meth:`_stored_outputs`."""

    @abstractmethod
    def _check_extra(self, extra: Mapping[str, Any]) -> None:
        """Raise VclError or ValueError unless saved settings of this kind of learner are valid."""

    @abstractmethod
    def _check_outputs(self, known: Knowledge) -> None:
        """Raise ValueError unless the saved heads have as many outputs as meanings."""

    @abstractmethod
    def _judged(self, x: Any, y: Any, task: str | None) -> Judged:
        """Predictions of the examples x, the most uncertain first, for a page; ``y`` may be None."""

    # Learning.

    # Tensors that are made within inference_mode are of no use to a later fit.
    @torch.inference_mode(False)
    def update(
        self,
        x: Any,
        y: Any = None,
        task: str | None = None,
        *,
        forget: float = 0.0,
        revisit: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        save_every: float = EVERY,
    ) -> Self:
        """Learn from the examples x with labels or targets y: q_t = proj( q_{t-1} p(D_t | theta) ).

        ``x`` may be an array, a tensor, a DataFrame, or a Dataset or DataLoader of pairs. ``task`` names the data; by
        default a named task has a head of its own and data without a name shares one. ``forget`` fades what was known
        before: q_{t-1} becomes q_{t-1}^(1 - forget) p^forget. ``revisit=True`` allows a task, or data, that was learned
        before.

        With ``checkpoint`` the update saves where it stands in that folder every ``save_every`` seconds, and on Ctrl-C.
        The same update of the same learner, after an interrupt or in another process, goes on from there and ends as
        it would have, on a CPU bit for bit. The files are removed at its end.
        """
        begun, known = monotonic(), self._known
        if isinstance(forget, bool) or not isinstance(forget, int | float) or not 0 <= forget < 1:
            raise VclError(f"forget is {forget!r}; give a share of the past from 0 (none) to below 1.")
        given = examples(x, y, None if known is None else known.table, warn_user, known is None)
        if not len(given.x):
            raise VclError("the data is empty; give at least one example.")
        targets = self._read(given.y, len(given.x))
        place = places.place_of(task, self.settings, known)
        found = read(given, known, self.net, self.settings)
        digest = digest_of(found.x, targets)
        if not revisit:
            places.refuse_again(place, digest, known)
        with saying_what_fits(self.net, found.inputs.shape, found.table):
            prepared = self._prepared or Prepared(self._part_for(found.x[:1], found.inputs))
        before = None if known is None else known.outputs.get(place.head)
        outputs, values, units = self._outputs(targets, before, prepared.part)
        caution = "" if before is None else self._caution(targets, before)
        if caution:
            warn_user(caution)
        draft = Draft(place.task, place.head, found, values, outputs, units, digest, forget)
        bar = Bar(self.verbose > 0)
        try:
            with as_it_was(checkpoint), saying_which_tokens(self.net, found.x):
                if checkpoint is None:
                    learned = self._learned(prepared, draft, Watch(bar), begun)
                else:
                    saver = Saver(as_folder(checkpoint), save_every, warn_user)
                    with saver.saving():
                        journal = saver.begin(identity_of(self.net, known, self.settings, draft))
                        learned = self._learned(prepared, draft, Watch(bar, journal), begun)
                    saver.files.drop()
        finally:
            bar.end()
        self._prepared, self._known = prepared, learned
        say(learned.history[-1].line(), self.verbose)
        return self

    def _learned(self, prepared: Prepared, draft: Draft, watch: Watch, begun: float) -> Knowledge:
        """The knowledge after the update."""
        known, settings, examples = self._known, self.settings, len(draft.read.x)
        if draft.read.note:
            watch.notes[draft.read.note] = None
        method = way_of(settings.method).method(settings.shape, settings.effort, examples, settings.memory)
        model = prepared.model(self._likelihood())
        before: State[Any] = initial(model, method, 1, self.device) if known is None else known.state
        if draft.forget:
            before = before._replace(propagated=fade(before.propagated, model.prior(before.heads), draft.forget))
        x = prepared.part.inputs(draft.read.x.to(self.device), before.propagated.mean)
        noise = None if known is None else known.noise
        y = draft.y.to(self.device)
        step = Step(before, draft.name, draft.head, x, y, draft.units, draft.outputs, noise, draft.forget)
        state, noise = self._fit(prepared, step, method, Rng(settings.seed), watch)
        tasks: Mapping[str, TaskRecord] = {} if known is None else known.tasks
        old = tasks.get(draft.name, TaskRecord(draft.head, 0, 0))
        sites = {} if known is None else known.sites
        if settings.forgettable:
            sites = sites_after(sites, draft.name, before.propagated, state, model, draft.forget)
        if not way_of(settings.method).tells:
            watch.begin()
        update = recorded(step, state, examples, watch, monotonic() - begun, model)
        return Knowledge(
            state, draft.read.inputs, {**({} if known is None else known.outputs), draft.head: draft.outputs},
            {**tasks, draft.name: TaskRecord(draft.head, old.examples + examples, old.updates + 1)},
            draft.read.scaling, draft.read.table, noise, sites,
            {**({} if known is None else known.seen), draft.digest: draft.name},
            (*(() if known is None else known.history), update),
        )  # fmt: skip

    def _step(
        self, prepared: Prepared, likelihood: Likelihood, step: Step, method: Method[Any], rng: Rng, watch: Watch
    ) -> State[Any]:
        """Algorithm 1 for one task."""
        task = way_of(self.settings.method).task(step)
        # The likelihood, and so what the model answers, changes with the noise: the network is recognised without it.
        before, known = step.before._replace(fingerprint=None), step.before.fingerprint
        watch.begin()
        (state,) = learn(before, [task], prepared.model(likelihood), method, rng, watch)
        if known is None:
            plain = prepared.model(self._likelihood())
            known = fingerprint(plain, task.train, state.heads, state.propagated.mean)
        return state._replace(fingerprint=known)

    @torch.inference_mode(False)
    def forget(self, task: str) -> Self:
        """Take what a task's data contributed out of the belief: q / (q_t / q_{t-1}), by the algebra of beliefs.

        Only for ``method="mean-field"`` with ``forgettable=True``; other families have no quotient. It is exact for
        the belief, which is itself an approximation: what later tasks learned with the help of this one stays. So do
        the scaling of inputs, and the learned noise of a head that other tasks share. A parameter whose precision
        would not stay positive goes back to the prior, with a warning.
        """
        known = self._knows()
        if task not in known.tasks:
            raise unknown("task", str(task), known.tasks)
        if task not in known.sites:
            raise VclError(
                f"what {task!r} contributed was not kept; make the learner with method='mean-field' and "
                "forgettable=True, which keeps two numbers for each parameter and task."
            )
        self._known = without(known, task, self._model().prior(known.state.heads))
        return self

    # What is known.

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks learned so far; updates without a name are numbered."""
        return () if self._known is None else tuple(self._known.tasks)

    @property
    def history(self) -> tuple[Update, ...]:
        """What each update did."""
        return () if self._known is None else self._known.history

    def summary(self) -> str:
        """What the learner is and what it has learned, as text."""
        known = self._knows()
        q, note = known.state.propagated, self._part().note
        kind = f"{self.KIND}, method {self.settings.method}, on {q.mean.device}"
        first = f"{kind}: {q.layout.size:,} parameters with a posterior{f' ({note})' if note else ''}"
        return "\n".join((first, *known.lines()))

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
            shown.append(report.examples(self._judged(x, y, task), report.array_of(x)))
        title = f"{about[:1].upper()}{about[1:]}."
        report.write(path, report.page_of(self.KIND, title, known, shown, __version__))

    def _knows(self) -> Knowledge:
        if self._known is None:
            raise VclError("nothing has been learned yet; call update(x, y) first.")
        return self._known

    def _part_for(self, example: Tensor, inputs: Inputs) -> Part:
        settings = self.settings
        return way_of(settings.method).part(self.net, example, inputs, settings.shape, settings.seed)

    def _part(self) -> Part:
        assert self._prepared is not None
        return self._prepared.part

    def _model(self, likelihood: Likelihood | None = None) -> Any:
        """The network with a likelihood."""
        assert self._prepared is not None
        return self._prepared.model(self._likelihood() if likelihood is None else likelihood)

    def _head_of(self, task: str | None) -> str:
        """The head that a task is predicted with."""
        return places.head_of(task, self._knows())

    def _rows(self, x: Any, draws: int = 1) -> Tensor:
        """Inputs to predict for, by so many draws, as the network takes them, on the device: [1, N, ...]."""
        known = self._knows()
        require_whole("draws", draws, 1)
        found = rows(x, known.table, warn_user)
        if not len(found):
            raise VclError("x has no examples; give at least one.")
        known.inputs.check(found, self.net)
        mean = known.state.propagated.mean
        with saying_which_tokens(self.net, found):
            return self._part().inputs(known.inputs.tensor(found, known.scaling).to(mean.device), mean).unsqueeze(0)

    def _rng(self, *purpose: object) -> Rng:
        return Rng(self.settings.seed).at("learner", *purpose)

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

    @classmethod
    @torch.inference_mode(False)
    def load(
        cls, path: str | os.PathLike[str], net: Any = None, device: torch.device | str = "auto", verbose: int = 1
    ) -> Self:
        """The learner that :meth:`save` wrote, which goes on as the saved one would; give the same network."""
        content = folder.read(path, cls.KIND)
        learner = cls(net, device=device, verbose=verbose)  # type: ignore[call-arg]
        with stored.damage(path):
            learner.settings = Settings.from_described(content.about["settings"])
            learner._check_extra(learner.settings.extra)
            known, prior = stored.knowledge(content, learner._loaded_outputs, learner.device)
            learner._check_outputs(known)
            frozen = dict(content.about["frozen"])
        with saying_what_fits(net, known.inputs.shape, known.table):
            part = learner._part_for(stored.example(known.inputs, known.scaling), known.inputs)
        stored.check_frozen(frozen, part.digests(), path)
        prepared = Prepared(part, prior)
        stored.check_network(known.state, prepared.model(learner._likelihood()), path)
        learner._prepared, learner._known = prepared, known
        return learner
