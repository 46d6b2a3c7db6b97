"""A regressor that keeps learning: mean, deviation, intervals and draws for numbers and for counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final, get_args

import numpy as np
import torch
from torch import Tensor, nn

from vcl.data import dataset
from vcl.errors import VclError, unknown
from vcl.fitting.learned_noise import NoiseBelief, expected_squares
from vcl.learner.backbone import FEATURE_BYTES, Ending, PriorMean, Shape
from vcl.learner.continual import ContinualLearner, Fitted
from vcl.learner.defaults import REGRESSION_STEPS, Effort
from vcl.learner.export import exported, samples
from vcl.learner.inputs import some_rows
from vcl.learner.knowledge import Knowledge
from vcl.learner.labels import as_numbers
from vcl.learner.misfits import saying_which_tokens
from vcl.learner.plausible import check_units
from vcl.learner.prepared import Prepared
from vcl.learner.record import Watch
from vcl.learner.scaling import Scaling, Standardize, of_targets
from vcl.learner.settings import Heads, Settings
from vcl.learner.warned import warn_user
from vcl.learner.way import Part, Step
from vcl.learner.ways import way_of
from vcl.models.likelihoods import HeteroscedasticNormal, Likelihood, Normal, Poisson
from vcl.models.selection import Posterior
from vcl.ops.rng import Rng
from vcl.predicting.prediction import predict_outputs
from vcl.predicting.uncertainty import intervals, sample_targets, variances
from vcl.recursion import Method

if TYPE_CHECKING:
    from vcl.learner.report import Judged

Family = Literal["normal", "poisson"]
RegressionMethod = Literal["structured", "mean-field", "laplace"]
REGRESSION_METHODS: tuple[RegressionMethod, ...] = get_args(RegressionMethod)
FAMILIES: tuple[Family, ...] = ("normal", "poisson")
Noise = Literal["learned", "heteroscedastic"] | float | Sequence[float]

DRAWS = 100
"""Draws of the weights in a prediction."""

ROUNDS = 2
"""Fits of an update in which the noise is learned: all but the last take a third of the epochs."""

FIRST_NOISE = 0.03
"""The noise that the first fit assumes, in standard deviations of the targets; it weighs as much as one example."""


class Targets(NamedTuple):
    """The targets of a head: their scaling (none for counts), and their number, None for a vector [N]."""

    scaling: Scaling | None
    columns: int | None

    def __str__(self) -> str:
        return "one target" if self.columns is None else f"{self.columns} targets"


class Spread(NamedTuple):
    """Predictive variances [N] or [N, C], in the squared units of the targets: total = aleatoric + epistemic."""

    total: np.ndarray
    aleatoric: np.ndarray
    """The noise, on average over the weights."""
    epistemic: np.ndarray
    """What more data would remove."""


@final
class ContinualRegressor(ContinualLearner):
    """p(y | x, D_{1:t}) of numbers or counts, from any ``nn.Module``, updated by one set of data after another.

    ``noise`` is "learned" (one deviation for each target, a belief of its own that is carried from update to update),
    "heteroscedastic" (a function of the input), or given in the units of the targets. ``likelihood="poisson"`` is for
    counts. All else is as in :class:`vcl.ContinualClassifier`.
    """

    KIND = "regressor"

    def __init__(
        self,
        net: nn.Module,
        *,
        noise: Noise = "learned",
        likelihood: Family = "normal",
        method: RegressionMethod = "structured",
        head: Ending = "new",
        heads: Heads = "auto",
        posterior: Posterior = "all",
        adapters: int | None = None,
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
        if not way_of(method).regresses:
            raise VclError(f"method {method!r} learns classes only; give one of {', '.join(REGRESSION_METHODS)}.")
        shape = Shape(head, posterior, adapters, prior_var, prior_mean, feature_bytes)
        effort = Effort(epochs, batch, lr, draws, REGRESSION_STEPS)
        extra = {"noise": _checked_noise(noise, likelihood), "likelihood": likelihood}
        settings = Settings(method, shape, effort, heads, memory, standardize, forgettable, seed, extra)
        super().__init__(net, settings, device, verbose)

    def _read(self, y: Any, count: int) -> np.ndarray:
        found = as_numbers(y)
        if found.dtype.kind not in "iufb" or found.ndim not in (1, 2) or len(found) != count:
            raise VclError(
                f"y has shape {found.shape} and dtype {found.dtype} for {count} examples; give numbers, [N] or [N, C]."
            )
        found = found.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(found).reshape(count, -1).all(1))
        if len(bad):
            raise VclError(f"y has NaN or infinite values in the rows {some_rows(bad.tolist())}; drop those rows.")
        return found

    def _outputs(self, y: np.ndarray, known: Targets | None, part: Part) -> tuple[Targets, Tensor, int]:
        columns = None if y.ndim == 1 else y.shape[1]
        targets, first = torch.from_numpy(y), known is None
        if known is None:
            known = Targets(None if self.settings.extra["likelihood"] == "poisson" else of_targets(targets), columns)
        if columns != known.columns:
            shape = "[N]" if known.columns is None else f"[N, {known.columns}]"
            raise VclError(f"y has shape {y.shape}, and the first update had {known}, as {shape}; give the same.")
        scaled = targets if known.scaling is None else known.scaling(targets)
        units = self._family(known).units(columns or 1)
        own = part.own_head
        if own is not None and len(own[1]) != units:
            raise VclError(
                f"the last layer of the network has {len(own[1])} outputs, and {known} of this likelihood need {units}"
                "; change the layer, or leave out head='own'."
            )
        if known.scaling is not None and not first:
            _warn_outside(known.scaling, scaled)
        return known, scaled.float(), units

    def _family(self, targets: Targets, noise: NoiseBelief | None = None) -> Normal | HeteroscedasticNormal | Poisson:
        """p(y | f) of scaled targets."""
        extra = self.settings.extra
        if extra["likelihood"] == "poisson":
            return Poisson()
        if extra["noise"] == "heteroscedastic":
            return HeteroscedasticNormal()
        if extra["noise"] == "learned":
            return Normal(FIRST_NOISE if noise is None else noise.of_run(0))
        assert targets.scaling is not None
        given = torch.as_tensor(extra["noise"], dtype=torch.float64).reshape(-1)
        width = targets.scaling.width.reshape(-1)
        if len(given) not in (1, len(width)):
            raise VclError(f"noise has {len(given)} values for {targets}; give one, or one for each.")
        return Normal(tuple((given / width).tolist()))

    def _likelihood(self) -> Likelihood:
        if self.settings.extra["likelihood"] == "poisson":
            return Poisson()
        return HeteroscedasticNormal() if self.settings.extra["noise"] == "heteroscedastic" else Normal()

    def _fit(self, prepared: Prepared, step: Step, method: Method[Any], rng: Rng, watch: Watch) -> Fitted:
        noises = {head: _faded(noise, step.forget) for head, noise in (step.noise or {}).items()}
        before = noises.get(step.head, NoiseBelief.prior(step.outputs.columns or 1, noise=FIRST_NOISE))
        if self.settings.extra["likelihood"] == "poisson" or self.settings.extra["noise"] != "learned":
            return Fitted(self._step(prepared, self._family(step.outputs), step, method, rng, watch), step.noise)
        # Coordinate ascent on q(theta) q(tau): a fit given the noise, then the noise given the fit.
        now, data = before, dataset(step.x, step.y, step.task, step.head)
        effort, settings, examples = self.settings.effort, self.settings, len(step.y)
        brief = replace(effort, epochs=max(1, effort.ascent(examples).epochs // 3))
        quick = way_of(settings.method).method(settings.shape, brief, examples, settings.memory)
        state = step.before
        for number in range(1, ROUNDS + 1):
            likelihood = self._family(step.outputs, now)
            state = self._step(prepared, likelihood, step, method if number == ROUNDS else quick, rng, watch)
            model = prepared.model(likelihood)
            squares = expected_squares(state.propagated, model, data, rng.at("noise", number))
            now = before.update(squares, examples)
        return Fitted(state, {**noises, step.head: now})

    def _stored_outputs(self, outputs: Targets) -> dict[str, Any]:
        scaling = outputs.scaling
        values = None if scaling is None else [scaling.centre.tolist(), scaling.width.tolist()]
        return {"scaling": values, "columns": outputs.columns}

    def _loaded_outputs(self, given: Mapping[str, Any]) -> Targets:
        values = given["scaling"]
        tensors = None if values is None else Scaling(*(torch.tensor(each, dtype=torch.float64) for each in values))
        columns = given["columns"]
        wanted = () if columns is None else (columns,)
        if tensors is not None and not (
            tensors.centre.shape == tensors.width.shape == wanted
            and bool(tensors.centre.isfinite().all() & tensors.width.isfinite().all() & (tensors.width > 0).all())
        ):
            raise ValueError("the scaling of targets")
        return Targets(tensors, columns)

    def _check_extra(self, extra: Mapping[str, Any]) -> None:
        noise = _checked_noise(extra["noise"], extra["likelihood"])
        if noise != extra["noise"] or self.settings.method not in REGRESSION_METHODS:
            raise ValueError("noise or method")

    def _check_outputs(self, known: Knowledge) -> None:
        counts = self.settings.extra["likelihood"] == "poisson"
        if any((targets.scaling is None) != counts for targets in known.outputs.values()):
            raise ValueError("the scaling of targets")
        columns = {head: targets.columns or 1 for head, targets in known.outputs.items()}
        check_units(
            known.state.heads, {head: self._family(known.outputs[head]).units(size) for head, size in columns.items()}
        )
        noises = known.noise or {}
        if any(noise.shape.shape[1] != columns.get(head) for head, noise in noises.items()):
            raise ValueError("the noise of a head")

    # Predictions.

    def predict(
        self, x: Any, task: str | None = None, return_std: bool = False, draws: int = DRAWS
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The predictive mean [N] or [N, C]; with ``return_std`` the predictive standard deviation too."""
        head, outputs, likelihood = self._outputs_of(x, task, draws)
        found = variances(likelihood, outputs)
        mean = self._in_units(found.mean[0], head)
        return (mean, np.sqrt(self._squared(found.total[0], head))) if return_std else mean

    def uncertainty(self, x: Any, task: str | None = None, draws: int = DRAWS) -> Spread:
        """The variance of the prediction of each example and its parts."""
        head, outputs, likelihood = self._outputs_of(x, task, draws)
        found = variances(likelihood, outputs)
        return Spread(*(self._squared(part[0], head) for part in (found.total, found.aleatoric, found.epistemic)))

    def intervals(
        self, x: Any, level: float = 0.9, task: str | None = None, draws: int = DRAWS
    ) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper bounds of the central interval that holds y with probability ``level``."""
        head, outputs, likelihood = self._outputs_of(x, task, draws)
        lower, upper = intervals(likelihood, outputs, level)
        return self._in_units(lower[0], head), self._in_units(upper[0], head)

    def predict_draws(self, x: Any, task: str | None = None, draws: int = DRAWS) -> np.ndarray:
        """Draws of y from its predictive distribution: [S, N] or [S, N, C]."""
        head, outputs, likelihood = self._outputs_of(x, task, draws)
        return self._in_units(sample_targets(likelihood, outputs, self._rng("targets"))[0], head)

    def _outputs_of(self, x: Any, task: str | None, draws: int) -> tuple[str, Tensor, Any]:
        head, rows, known = self._head_of(task), self._rows(x, draws), self._knows()
        noise = (known.noise or {}).get(head)
        likelihood = self._family(known.outputs[head], noise)
        belief = known.state.predictive[head]
        with saying_which_tokens(self.net, rows):
            found = predict_outputs(belief, self._model(likelihood), rows, head, self._rng("predict"), draws)
        return head, found.cpu(), likelihood

    def _in_units(self, values: Tensor, head: str) -> np.ndarray:
        """Scaled values [..., C] in the units of the targets, [...] for targets [N]."""
        targets: Targets = self._knows().outputs[head]
        values = values.double()
        if targets.columns is None:
            values = values.squeeze(-1)
        return (values if targets.scaling is None else targets.scaling.inverse(values)).numpy()

    def _squared(self, values: Tensor, head: str) -> np.ndarray:
        """Scaled variances [..., C] in the squared units of the targets."""
        targets: Targets = self._knows().outputs[head]
        values = values.double()
        if targets.columns is None:
            values = values.squeeze(-1)
        return (values if targets.scaling is None else values * targets.scaling.width.square()).numpy()

    def _judged(self, x: Any, y: Any, task: str | None) -> Judged:
        from vcl.learner.report import MOST, Judged
        from vcl.pages.sections import cell

        mean, spread = np.asarray(self.predict(x, task)), self.uncertainty(x, task)
        known = None if y is None else self._read(y, len(mean))
        if known is not None and known.shape != mean.shape:
            raise VclError(f"y has shape {known.shape}, and the predictions {mean.shape}; give one target for each.")
        total, inner = (np.sqrt(each).reshape(len(mean), -1).max(1) for each in (spread.total, spread.epistemic))
        order = np.argsort(-total, kind="stable")
        columns = ("predicted", *(() if known is None else ("target",)), "deviation", "of which epistemic")
        rows = [
            [
                _numbers(mean[at]), *(() if known is None else (_numbers(known[at]),)),
                cell(float(total[at]), f"{total[at]:.4g}"), cell(float(inner[at]), f"{inner[at]:.4g}"),
            ]
            for at in order[:MOST]
        ]  # fmt: skip
        told: list[tuple[str, object]] = [("examples", len(mean))]
        if known is not None:
            lower, upper = self.intervals(x, 0.9, task)
            told.append(("root mean squared error", f"{np.sqrt(np.square(known - mean).mean()):.4g}"))
            told.append(("within the 90 % interval", f"{100 * ((lower <= known) & (known <= upper)).mean():.1f} %"))
        return Judged(order, columns, rows, tuple(told))

    # What it is.

    def export(self, task: str | None = None) -> nn.Module:
        """A plain module from inputs to outputs at the posterior's mean: the mean of y in its units.

        Of a Poisson likelihood it gives log rates, of heteroscedastic noise means and log deviations of scaled targets.
        """
        head = self._head_of(task)
        return exported(self._knows(), self._part(), head, self._rescaling(head))

    def sample_posterior(self, n: int, task: str | None = None) -> list[dict[str, Tensor]]:
        """``n`` draws of the weights, as state dicts of the module that :meth:`export` gives."""
        head = self._head_of(task)
        return samples(self._knows(), self._part(), head, self._rescaling(head), n, self._rng("sample"))

    def _rescaling(self, head: str) -> Scaling | None:
        plain = self.settings.extra["noise"] != "heteroscedastic"
        scaling: Scaling | None = self._knows().outputs[head].scaling
        return scaling if plain else None


def _numbers(value: np.ndarray) -> Any:
    """A number, or several as text."""
    return float(value) if value.ndim == 0 else ", ".join(f"{each:.4g}" for each in value)


def _faded(noise: NoiseBelief, share: float) -> NoiseBelief:
    """What was known of the noise, faded as the weights are."""
    prior = NoiseBelief.prior(noise.shape.shape[1], noise=FIRST_NOISE)
    return noise.fade(prior, share) if share else noise


def _warn_outside(scaling: Scaling, scaled: Tensor) -> None:
    """Warn of scaled targets [N] or [N, C] far outside of the head's first ones: a fit hardly gets there."""
    columns = Scaling(scaling.centre.reshape(-1), scaling.width.reshape(-1))
    names = ("the targets",) if scaled.dim() == 1 else tuple(f"target {place}" for place in range(scaled.shape[1]))
    outside = columns.outside(scaled.reshape(len(scaled), -1), names)
    if outside:
        warn_user(f"{outside}; targets are scaled as then, so learn these as a task or with a learner of their own")


def _checked_noise(noise: Noise, likelihood: Family) -> Any:
    """The noise as a word, a number or a list; VclError for anything else."""
    if likelihood not in FAMILIES:
        raise unknown("likelihood", str(likelihood), FAMILIES)
    if likelihood == "poisson" and not (isinstance(noise, str) and noise == "learned"):
        raise VclError(f"noise is {noise!r}, and a Poisson likelihood has no noise of its own; leave it out.")
    if isinstance(noise, str):
        if noise not in ("learned", "heteroscedastic"):
            raise VclError(f"noise is {noise!r}; give 'learned', 'heteroscedastic', or deviations in units of y.")
        return noise
    values: list[Any] = list(noise) if isinstance(noise, Sequence | np.ndarray) else [noise]
    fine = (isinstance(each, int | float) and not isinstance(each, bool) and 0 < each < inf for each in values)
    if not values or not all(fine):
        raise VclError(
            f"noise is {noise!r}; give 'learned', 'heteroscedastic', or deviations in units of y, finite and above 0."
        )
    return [float(each) for each in values]
