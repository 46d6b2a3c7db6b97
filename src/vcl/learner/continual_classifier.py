"""A classifier that keeps learning: own network, own data, calibrated uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from vcl.errors import VclError
from vcl.learner.backbone import FEATURE_BYTES, HEAD, Ending, PriorMean, Shape
from vcl.learner.continual import ContinualLearner, Fitted
from vcl.learner.defaults import Effort
from vcl.learner.export import exported, samples
from vcl.learner.generators import Generative
from vcl.learner.knowledge import Knowledge
from vcl.learner.labels import Classes, Label, as_array, fixed_classes, labels, plain
from vcl.learner.misfits import saying_which_tokens
from vcl.learner.plausible import check_units
from vcl.learner.prepared import Prepared
from vcl.learner.record import Watch
from vcl.learner.scaling import Standardize
from vcl.learner.settings import Heads, Settings
from vcl.learner.warned import warn_user
from vcl.learner.way import Part, Step
from vcl.learner.ways import MethodName, way_of
from vcl.models.likelihoods import Categorical
from vcl.models.selection import Posterior
from vcl.models.vae import Vae
from vcl.ops.rng import Rng
from vcl.predicting.generative_classifier import score
from vcl.predicting.uncertainty import decompose
from vcl.recursion import Method

if TYPE_CHECKING:
    from vcl.learner.report import Judged

DRAWS = 50
"""Draws of the weights in a prediction."""


class Uncertainty(NamedTuple):
    """How unsure the classifier is of each example [N], in nats: total = aleatoric + epistemic."""

    total: np.ndarray
    """The entropy of the prediction."""
    aleatoric: np.ndarray
    """What more data would not remove: classes that overlap."""
    epistemic: np.ndarray
    """What more data would remove: the mutual information of label and weights."""


@final
class ContinualClassifier(ContinualLearner):
    """p(y | x, D_{1:t}) from any ``nn.Module``, updated by one set of data after another.

    ``net`` gives features, over which heads are added; with ``head="own"`` its last layer is the one shared head. Its
    values are where the first fit starts, so it may be trained; it is not changed. ``posterior`` says which parameters
    have a posterior ("all", "head", or names and patterns); the others are frozen, and what they give is computed once
    an update, in memory up to ``feature_bytes`` and beyond that in a temporary file. ``adapters=8`` freezes the network
    and adds low-rank adapters of that rank to its linear layers.

    Updates with a name (``task=``) have a head of their own, others share one. ``heads="shared"`` gives named tasks one
    head too. A class that is new grows its head, unless ``classes`` fixes them. All else has defaults from the data.
    """

    KIND = "classifier"

    def __init__(
        self,
        net: nn.Module | Vae | None = None,
        *,
        method: MethodName = "structured",
        head: Ending = "new",
        heads: Heads = "auto",
        posterior: Posterior = "all",
        adapters: int | None = None,
        classes: Sequence[Label] | None = None,
        memory: int = 0,
        prior_var: float = 1.0,
        prior_mean: PriorMean = "zero",
        epochs: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        draws: int | None = None,
        standardize: Standardize = "auto",
        feature_bytes: int = FEATURE_BYTES,
        forgettable: bool = False,
        device: torch.device | str = "auto",
        seed: int = 0,
        verbose: int = 1,
    ) -> None:
        shape = Shape(head, posterior, adapters, prior_var, prior_mean, feature_bytes)
        effort, extra = Effort(epochs, batch, lr, draws), {"classes": fixed_classes(classes)}
        settings = Settings(method, shape, effort, heads, memory, standardize, forgettable, seed, extra)
        super().__init__(net, settings, device, verbose)
        self._said = False
        """Whether the user knows that heads are chosen by their entropy."""

    def _read(self, y: Any, count: int) -> np.ndarray:
        return labels(y, count)

    def _outputs(self, y: np.ndarray, known: Classes | None, part: Part) -> tuple[Classes, Tensor, int]:
        fixed, own = self.settings.extra["classes"], part.own_head
        if own is not None and fixed is not None and len(fixed) != len(own[1]):
            raise VclError(
                f"the last layer of the network has {len(own[1])} outputs, and {len(fixed)} classes are given; name "
                "one class for each output, in their order, or leave out head='own'."
            )
        first = known is None
        if known is None:
            known = Classes(()) if fixed is None else Classes(tuple(fixed))
        if fixed is None:
            known = known.grown(y)
        if own is not None and fixed is None:
            known = self._own_classes(known, len(own[1]), first)
        return known, known.positions(y, "y"), len(known.labels)

    def _own_classes(self, known: Classes, units: int, first: bool) -> Classes:
        """The classes of a network's own last layer: its outputs are the classes 0, 1, ... unless they are named.

        Others are new classes only after the first update; there they rather count from 1.
        """
        if all(isinstance(label, int) and not isinstance(label, bool) for label in known.labels):
            rest = [label for label in known.labels if not 0 <= int(label) < units]
            if first and rest:
                raise VclError(
                    f"the last layer of the network has {units} outputs, which are the classes 0 to {units - 1}, and "
                    f"there are the labels {rest[:8]}; relabel them, or say which output is which, as in classes=[...] "
                    f"with {units} labels in their order."
                )
            return Classes((*range(units), *rest))
        raise VclError(
            f"the last layer of the network has {units} outputs, and the labels are {known.array().tolist()[:8]}; say "
            f"which output is which, as in classes=[...] with {units} labels in their order."
        )

    def _caution(self, y: np.ndarray, before: Classes) -> str:
        known = set(before.labels)
        keeps = way_of(self.settings.method).shares or self.settings.memory
        if keeps or not known or any(label in known for label in plain(np.unique(y))):
            return ""
        return (
            f"all classes of this update are new, and no example of the {before} that this head knows is among them "
            "or kept: it will forget those. Keep some (memory=200), give tasks heads of their own (task='...'), or "
            "learn class by class with method='generative'"
        )

    def _likelihood(self) -> Categorical:
        return Categorical()

    def _fit(self, prepared: Prepared, step: Step, method: Method[Any], rng: Rng, watch: Watch) -> Fitted:
        if step.head != HEAD and len(step.outputs.labels) == 1:
            warn_user(
                f"the head of {step.head!r} has a single class, {step.outputs.labels[0]!r}, of which it is always "
                "certain, so it is left out where the task is inferred; to tell tasks of one class apart use "
                "heads='shared'"
            )
        return Fitted(self._step(prepared, self._likelihood(), step, method, rng, watch), None)

    def _stored_outputs(self, outputs: Classes) -> list[Label]:
        return list(outputs.labels)

    def _loaded_outputs(self, given: list[Label]) -> Classes:
        if len(set(given)) != len(given):
            raise ValueError("a class is named twice")
        if not isinstance(given, list) or any(type(label) not in (str, int, bool) for label in given):
            raise ValueError("classes are strings, whole numbers or bools")
        labels(given, len(given))
        return Classes(tuple(given))

    def _check_extra(self, extra: Mapping[str, Any]) -> None:
        fixed_classes(extra["classes"])

    def _check_outputs(self, known: Knowledge) -> None:
        sizes = {head: len(classes.labels) for head, classes in known.outputs.items()}
        if not way_of(self.settings.method).shares:
            check_units(known.state.heads, sizes)
        elif not set(known.state.heads) <= {str(place) for place in range(sizes[HEAD])}:
            raise ValueError("there are generators of classes without a name")

    # Predictions.

    def classes(self, task: str | None = None) -> tuple[Label, ...]:
        """The classes in the order of the columns of :meth:`predict_proba`: of a task's head, or of all heads."""
        known = self._knows()
        heads = known.heads if task is None else (self._head_of(task),)
        return tuple(dict.fromkeys(label for head in heads for label in known.outputs[head].labels))

    def predict_proba(self, x: Any, task: str | None = None, draws: int = DRAWS) -> np.ndarray:
        """p(y | x) [N, C], averaged over draws of the weights; the columns are :meth:`classes`.

        With heads of their own for several tasks and no ``task``, each example gets the head that is surest of it (see
        :meth:`infer_task`), and its probabilities have 0 for the classes of other heads.
        """
        rows, heads = self._rows(x, draws), self._saying(self._heads(task))
        each = [self._proba(rows, head, draws) for head in heads]
        best, every, outputs = _surest(each), self.classes(task), self._knows().outputs
        found = np.zeros((len(best), len(every)))
        for place, (head, p) in enumerate(zip(heads, each, strict=True)):
            columns = [every.index(label) for label in outputs[head].labels]
            mine = best == place
            found[np.ix_(mine, columns)] = p[mine]
        return found

    def predict(self, x: Any, task: str | None = None, draws: int = DRAWS) -> np.ndarray:
        """The most probable label of each example [N], as it was given in updates."""
        best = self.predict_proba(x, task, draws).argmax(1)
        found: np.ndarray = as_array(self.classes(task))[best]
        return found

    def infer_task(self, x: Any, draws: int = DRAWS) -> np.ndarray:
        """The task whose head is surest of each example [N]: the one of the smallest predictive entropy."""
        rows, heads = self._rows(x, draws), self._heads(None)
        if HEAD in heads:
            raise VclError("all updates share one head, which does not tell tasks apart; use a head for each task.")
        found: np.ndarray = np.array(heads)[_surest([self._proba(rows, head, draws) for head in heads])]
        return found

    def uncertainty(self, x: Any, task: str | None = None, draws: int = DRAWS) -> Uncertainty:
        """How unsure the prediction of each example is, and why; inputs from no known task have large values.

        Without ``task``, each example gets the head that is surest of it, as in :meth:`predict_proba`.
        """
        rows, heads = self._rows(x, draws), self._saying(self._heads(task))
        best = _surest([self._proba(rows, head, draws) for head in heads]) if len(heads) > 1 else None
        parts = [decompose(torch.from_numpy(self._drawn(rows, head, draws)).unsqueeze(0)) for head in heads]
        each = np.stack([np.stack([value[0].numpy() for value in part]) for part in parts])  # [heads, 3, N]
        chosen = each[0] if best is None else np.take_along_axis(each, best[None, None], 0)[0]
        return Uncertainty(*chosen)

    def predict_draws(self, x: Any, task: str | None = None, draws: int = DRAWS) -> np.ndarray:
        """p(y | x, theta_s) of each draw of the weights [S, N, C]; :meth:`predict_proba` is about their mean."""
        return self._drawn(self._rows(x, draws), self._head_of(task), draws)

    def log_evidence(self, x: Any) -> np.ndarray:
        """log p(x) of each example [N], low for inputs of no known class; only for ``method="generative"``."""
        way, rows, known = way_of(self.settings.method), self._rows(x), self._knows()
        if not isinstance(way, Generative):
            raise VclError(
                f"method {self.settings.method!r} has no model of the inputs; use method='generative', or the "
                "epistemic part of uncertainty(x)."
            )
        return score(way.log_evidence(known.state, self._model(), rows, self._rng("predict"))).cpu().numpy()

    def _heads(self, task: str | None) -> tuple[str, ...]:
        """The heads that a prediction chooses from: of several, those of at least two classes.

        A head of one class is certain of any input, so its entropy says nothing of the task.
        """
        known = self._knows()
        if task is not None or len(known.heads) < 2:
            return (self._head_of(task),)
        telling = tuple(head for head in known.heads if len(known.outputs[head].labels) > 1)
        if not telling:
            raise VclError(
                f"the heads of the tasks {', '.join(known.heads)} have a single class each, of which they are always "
                "certain, so no task can be inferred; name the task, or begin with heads='shared'."
            )
        return telling

    def _saying(self, heads: tuple[str, ...]) -> tuple[str, ...]:
        """The same heads; says once that the surest of several answers."""
        if len(heads) > 1 and not self._said:
            self._said = True
            warn_user(
                f"no task was given: of the heads of {', '.join(heads)}, the one that is surest of an example answers, "
                "which is a guess where their classes look alike; give task=... where you know it"
            )
        return heads

    def _proba(self, rows: Tensor, head: str, draws: int) -> np.ndarray:
        with saying_which_tokens(self.net, rows):
            found = way_of(self.settings.method).mean(*self._asked(rows, head, draws))
        return found.double().cpu().numpy()

    def _drawn(self, rows: Tensor, head: str, draws: int) -> np.ndarray:
        with saying_which_tokens(self.net, rows):
            found = way_of(self.settings.method).each(*self._asked(rows, head, draws))
        return found.double().cpu().numpy()

    def _asked(self, rows: Tensor, head: str, draws: int) -> tuple[Any, Any, Tensor, str, int, Rng, int]:
        known = self._knows()
        units = len(known.outputs[head].labels)
        return known.state, self._model(), rows, head, units, self._rng("predict"), draws

    def _judged(self, x: Any, y: Any, task: str | None) -> Judged:
        from vcl.learner.report import MOST, Judged
        from vcl.pages.sections import cell

        p, unsure, classes = self.predict_proba(x, task), self.uncertainty(x, task), self.classes(task)
        order, guess = np.argsort(-unsure.total, kind="stable"), as_array(classes)[p.argmax(1)]
        known = None if y is None else labels(y, len(p))
        columns = ("predicted", *(() if known is None else ("label",)), "confidence", "total", "epistemic")
        rows = [
            [
                str(guess[at]), *(() if known is None else (str(known[at]),)),
                cell(float(p[at].max()), f"{p[at].max():.3f}"),
                cell(float(unsure.total[at]), f"{unsure.total[at]:.3f}"),
                cell(float(unsure.epistemic[at]), f"{unsure.epistemic[at]:.3f}"),
            ]
            for at in order[:MOST]
        ]  # fmt: skip
        if known is None:
            return Judged(order, columns, rows, (("examples", len(p)),))
        right = guess == known
        told = (("examples", len(p)), ("accuracy", f"{100 * right.mean():.1f} %"))
        return Judged(order, columns, rows, told, p.max(1), right)

    # What it is.

    def export(self, task: str | None = None) -> nn.Module:
        """A plain module from inputs to logits at the posterior's mean, for ``torch.export`` and the like."""
        return exported(self._knows(), self._part(), self._head_of(task), None)

    def sample_posterior(self, n: int, task: str | None = None) -> list[dict[str, Tensor]]:
        """``n`` draws of the weights, as state dicts of the module that :meth:`export` gives."""
        return samples(self._knows(), self._part(), self._head_of(task), None, n, self._rng("sample"))


def _surest(each: list[np.ndarray]) -> np.ndarray:
    """Of the predictions of several heads [N, C], the place of the surest one for each example [N]."""
    found: np.ndarray = np.argmin([_entropy(p) for p in each], axis=0)
    return found


def _entropy(p: np.ndarray) -> np.ndarray:
    """H(p) of each row, as a share of that of as many classes that are alike."""
    entropy = -(p * np.log(np.clip(p, 1e-30, None))).sum(1)
    return np.asarray(entropy / np.log(max(2, p.shape[1])))
