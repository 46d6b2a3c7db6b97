"""scikit-learn estimators over the learners: ``VCLClassifier`` and ``VCLRegressor``. They need ``vcl[lab]``.

``fit`` forgets everything and learns the data; ``partial_fit`` goes on from what is known:

    q_t(theta) = proj( q_{t-1}(theta) p(D_t | theta) ),   D_t the data of one call

An estimator is pickled, by joblib or by ``pickle``, as its parameters and the learner's tensors, as any scikit-learn
estimator is; vcl itself reads no pickle. To keep a model, ``estimator.learner_.save(folder)`` writes safetensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Self, final

import numpy as np
import torch
from torch import nn

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"vcl.sklearn needs vcl[lab]: pip install 'vcl[lab]' (the module {error.name} is missing)", name=error.name
    ) from error

from vcl.learner import ContinualClassifier, ContinualRegressor
from vcl.learner.continual_classifier import Uncertainty
from vcl.learner.continual_regressor import Noise, Spread
from vcl.models.network import mlp

NetOrFactory = nn.Module | Callable[[int], nn.Module] | None
"""A network, a function from the number of inputs to one, or None for one of fully connected layers."""

SEEDS = 2**31 - 1


class _Estimator(BaseEstimator, ABC):  # type: ignore[misc]
    """What both estimators share: parameters, networks, seeds and calls of a learner."""

    learner_: Any

    def __init__(
        self,
        hidden: Sequence[int] | None = (100, 100),
        *,
        net: NetOrFactory = None,
        method: str = "structured",
        epochs: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        memory: int = 0,
        prior_var: float = 1.0,
        standardize: bool | str = "auto",
        forget: float = 0.0,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.net = net
        self.method = method
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.memory = memory
        self.prior_var = prior_var
        self.standardize = standardize
        self.forget = forget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def _learner(self, net: nn.Module | None, **settings: Any) -> Any:
        """A learner that has learned nothing."""

    def _new(self, **more: Any) -> Any:
        """A learner for ``n_features_in_`` inputs, with the parameters' values."""
        seed = int(check_random_state(self.random_state).randint(SEEDS))
        return self._learner(
            self._network(seed), method=self.method, epochs=self.epochs, batch=self.batch, lr=self.lr,
            memory=self.memory, prior_var=self.prior_var, standardize=self.standardize, device=self.device, seed=seed,
            verbose=self.verbose, **more,
        )  # fmt: skip

    def _network(self, seed: int) -> nn.Module | None:
        inputs: int = self.n_features_in_
        if self.net is None and self.hidden is None:
            return None
        if isinstance(self.net, nn.Module):
            return deepcopy(self.net)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return mlp(inputs, () if self.hidden is None else self.hidden) if self.net is None else self.net(inputs)

    @contextmanager
    def _unchanged_by_failure(self) -> Iterator[None]:
        """Everything that was fitted as it was, where a fit fails."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _read(self, x: Any) -> np.ndarray:
        """Inputs [N, F] to predict for, checked against those of the fit."""
        check_is_fitted(self, "learner_")
        found: np.ndarray = validate_data(self, x, reset=False, dtype=[np.float64, np.float32])
        return found


@final
class VCLClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier that keeps learning, by :class:`vcl.ContinualClassifier` with one head.

    ``hidden`` are the widths of a network of fully connected layers; ``net`` is another one, or a function from the
    number of inputs to one, whose features the head takes (``hidden=None`` for ``method="generative"``, which makes its
    own). ``forget`` is the share of the past that fades at each
    ``partial_fit``. What is None follows from the size of the data. The columns of probabilities are ``classes_``,
    which is sorted; a class that is new in a later ``partial_fit`` is added to it.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the labels y [N] of X [N, F], and nothing else."""
        with self._unchanged_by_failure():
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
            check_classification_targets(y)
            labels = np.unique(y)
            if len(labels) < 2:
                raise ValueError(
                    f"VCLClassifier needs samples of at least 2 classes, and y has one class, {labels[0]!r}."
                )
            return self._update(self._new(), np.empty(0, dtype=y.dtype), X, y, labels, 0.0)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn y [N] of X [N, F] on top of what is known.

        ``classes`` in the first call fixes the classes, some of which may come later; without it new ones are added.
        """
        with self._unchanged_by_failure():
            first = not hasattr(self, "learner_")
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=first)
            check_classification_targets(y)
            given = y if classes is None else np.asarray(classes)
            _refuse_other_kinds(given if first else self._labels, y, given)
            if not first:
                more = np.union1d(np.unique(y), given)
                return self._update(self.learner_, self._labels, X, y, more, self.forget)
            if classes is None:
                return self._update(self._new(), np.empty(0, dtype=y.dtype), X, y, np.unique(y), 0.0)
            fixed = np.unique(given)
            return self._update(self._new(classes=list(range(len(fixed)))), fixed, X, y, np.unique(y), 0.0)

    def _update(
        self,
        learner: ContinualClassifier,
        known: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        more: np.ndarray,
        share: float,
    ) -> Self:
        """Labels are learned as whole numbers in the order in which they came, so any sort of label can be used."""
        new = np.setdiff1d(more, known)
        if len(new) and learner.settings.extra["classes"] is not None:
            raise ValueError(
                f"the labels {new.tolist()} are not among the classes that the first partial_fit was given, "
                f"{known.tolist()}; relabel or drop those examples."
            )
        every = np.concatenate([known, new]) if len(known) else new
        place = {label: at for at, label in enumerate(every.tolist())}
        # Data may come twice: that is scikit-learn's contract.
        learner.update(X, np.array([place[label] for label in y.tolist()]), forget=share, revisit=True)
        self.learner_, self._labels, self.classes_ = learner, every, np.sort(every)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(y | x) [N, C], averaged over draws of the weights; the columns are ``classes_``."""
        x = self._read(X)
        learned = np.array(self.learner_.classes())
        found = np.zeros((len(x), len(self._labels)))
        found[:, learned] = self.learner_.predict_proba(x)[:, : len(learned)]
        found /= found.sum(1, keepdims=True)
        ordered: np.ndarray = found[:, np.argsort(self._labels)]
        return ordered

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each example [N]."""
        p = self.predict_proba(X)
        best: np.ndarray = self.classes_[p.argmax(1)]
        return best

    def uncertainty(self, X: Any) -> Uncertainty:
        """How unsure the prediction of each example is, and why: total = aleatoric + epistemic, in nats."""
        x = self._read(X)
        found: Uncertainty = self.learner_.uncertainty(x)
        return found

    def _learner(self, net: nn.Module | None, **settings: Any) -> ContinualClassifier:
        return ContinualClassifier(net, heads="shared", **settings)


@final
class VCLRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A regressor that keeps learning, by :class:`vcl.ContinualRegressor` with one head.

    ``noise`` is "learned", "heteroscedastic", or a standard deviation of the targets; ``likelihood`` is "normal" or
    "poisson". All else is as in :class:`VCLClassifier`.
    """

    def __init__(
        self,
        hidden: Sequence[int] | None = (100, 100),
        *,
        noise: Noise = "learned",
        likelihood: str = "normal",
        net: NetOrFactory = None,
        method: str = "structured",
        epochs: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        memory: int = 0,
        prior_var: float = 1.0,
        standardize: bool | str = "auto",
        forget: float = 0.0,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            hidden, net=net, method=method, epochs=epochs, batch=batch, lr=lr, memory=memory, prior_var=prior_var,
            standardize=standardize, forget=forget, device=device, random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.noise = noise
        self.likelihood = likelihood

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the targets y [N] or [N, C] of X [N, F], and nothing else."""
        with self._unchanged_by_failure():
            X, y = self._pairs(X, y, True)
            self.learner_ = self._new().update(X, y)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn y [N] or [N, C] of X [N, F] on top of what is known."""
        first = not hasattr(self, "learner_")
        with self._unchanged_by_failure():
            X, y = self._pairs(X, y, first)
            learner = self._new() if first else self.learner_
            # Data may come twice: that is scikit-learn's contract.
            self.learner_ = learner.update(X, y, forget=0.0 if first else self.forget, revisit=True)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive mean [N] or [N, C]; with ``return_std`` the predictive standard deviation too."""
        x = self._read(X)
        return self.learner_.predict(x, return_std=return_std)

    def intervals(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The bounds of the central interval that holds y with probability ``level``."""
        x = self._read(X)
        found: tuple[np.ndarray, np.ndarray] = self.learner_.intervals(x, level)
        return found

    def uncertainty(self, X: Any) -> Spread:
        """The variance of the prediction of each example, and its parts."""
        x = self._read(X)
        found: Spread = self.learner_.uncertainty(x)
        return found

    def _pairs(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        _refuse_texts(y)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=reset, multi_output=True, y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)

    def _learner(self, net: nn.Module | None, **settings: Any) -> ContinualRegressor:
        return ContinualRegressor(net, noise=self.noise, likelihood=self.likelihood, heads="shared", **settings)  # type: ignore[arg-type]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _refuse_other_kinds(known: np.ndarray, *given: np.ndarray) -> None:
    """numpy would turn 0 beside "a" into "0", and True beside 2 into 1."""
    for labels in given:
        kinds = [_kind(known), _kind(labels)]
        if len(known) and len(labels) and kinds[0] != kinds[1]:
            new, old = labels[:1].tolist()[0], known[:1].tolist()[0]
            raise ValueError(
                f"the labels are {kinds[1]}, such as {new!r}, and the classes are {kinds[0]}, such as {old!r}; "
                "give labels of one kind."
            )


def _kind(labels: np.ndarray) -> str:
    """What labels are; an array of objects by its first, as scikit-learn takes only one kind in it."""
    kind = np.asarray(labels[:1].tolist()).dtype.kind if labels.dtype == object else labels.dtype.kind
    return {"U": "strings", "S": "bytes", "b": "bools"}.get(kind, "numbers")


def _refuse_texts(y: Any) -> None:
    """Raise ValueError if a target is a text that is no number."""
    values = np.asarray(y)
    for each in values.ravel().tolist() if values.dtype.kind in "UO" else []:
        if isinstance(each, str):
            try:
                float(each)
            except ValueError:
                raise ValueError(
                    f"y has the text {each!r}, and VCLRegressor learns numbers; give numbers, or use VCLClassifier."
                ) from None
