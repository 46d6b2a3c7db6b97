r"""Appendix F: how long a linear model remembers random patterns that it sees one at a time.

Patterns x_t have entries +-1/sqrt(D) and outcomes y_t = +-1, independent and uniform. Only x_bar_t = y_t x_t matters:
the response to pattern k at time t is r_k(t) = y_k m_t^T x_k = x_bar_k^T m_t. The pattern is recalled if r_k(t) > 0.
The mean of r_k over random patterns is the signal, its standard deviation the noise. The prior has mean 0 and precision
p_0 = 1/v_0. The methods:

    online VI, online Laplace   precision p_t = p_0 + t/D around the last mean; without a prior this is equation S4 of
                                Kirkpatrick et al. (2017)
    EWC, own anchors            a penalty for each pattern at its own solution, as in the paper's section 5; their sum
                                is one quadratic of the same precision p_t, but around the centre of all solutions
    gradient descent            the precision stays p_0 (p_0 = 0 fits each new pattern exactly)

All of them fit a pattern with step b_t from a centre C, and then move the centre with step g_t:

    m_t = C_{t-1} + b_t x_bar_t (1 - x_bar_t^T C_{t-1}),   C_t = C_{t-1} + g_t x_bar_t (1 - x_bar_t^T C_{t-1})

    online             b_t = g_t = 1 / (1 + p_{t-1}) = 1/c_t,  c_t = 1 + 1/v_0 + (t - 1)/D, so C_t = m_t
    gradient descent   b_t = g_t = 1 / (1 + p_0)
    EWC, own anchors   b_t = 1 / (1 + p_{t-1}), the penalised fit; its anchor m_t adds precision 1/D, so that
                       C_t = C_{t-1} + (m_t - C_{t-1}) / (D p_t), and g_t = b_t / (D p_t)

The theory is exact for every D. Let A = E[x_bar_k^T C], B = E[(x_bar_k^T C)^2], Q = E[|C|^2] before a new pattern x
with step g. x is independent of C and x_bar_k, E[x x^T] = I/D, odd moments vanish, and since all x_d^2 = 1/D,
E[(x_bar_k^T x)^2 (x^T C)^2] = ( |C|^2 (1 - 2/D) + 2 (x_bar_k^T C)^2 ) / D^2. So after the step

    A' = A (1 - g/D)
    B' = B (1 - 2 g/D + 2 g^2/D^2) + g^2 ( 1/D + (1 - 2/D) Q/D^2 )
    Q' = Q (1 - 2 g/D + g^2/D) + g^2

If x is pattern k itself (before it, x_bar_k^T C has mean 0 and variance Q/D), A' = g and B' = (1 - g)^2 Q/D + g^2.
The signal is A and the noise sqrt(B - A^2), where the last step is b instead of g.

For the online rule the factors telescope, 1 - 1/(D c_t) = c_{t-1}/c_t, and **the signal of every pattern seen so far is
1/c_t, whatever its age**: none is forgotten before another, and 1/v_0 acts like D/v_0 patterns before the first.
Patterns fade because of noise. Without a prior and for t << D, a pattern is fitted when seen and each later one adds
1/D to the variance, so the ratio is near sqrt(D/age), a power law. For t >> D the variance tends to 1/c_t and the ratio
to 1/sqrt(c_t), again a power law. For gradient descent at p_0 = 0 the signal is (1 - 1/D)^age and the variance tends to
1: recent patterns are clear and old ones are lost. With own anchors and no prior the centre moves by about 1/t, so the
first few patterns remain and later ones leave no trace. A prior of precision 1 outweighs each anchor's 1/D, so that
only the last pattern is known. (In the online rule the prior's precision moves with the mean and does no harm.)
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.beliefs.quadratic import Quadratic
from vcl.lab.experiments.experiment import Preset
from vcl.lab.results import Summary, summarise
from vcl.lab.threads import one_thread
from vcl.ops.rng import Rng
from vcl.projections.online_linear import laplace_update, unit_norm_update

VI, LAPLACE, EWC, DESCENT = "online VI", "online Laplace", "EWC, own anchors", "gradient descent"
COLUMNS = ("kind", "method", "prior", "first", "seed", "age", "signal", "noise", "snr", "recalled")

SETTINGS: dict[Preset, dict[str, Any]] = {
    "paper": {
        "dimensions": 1000,  # as in Kirkpatrick et al.
        "firsts": [1, 2001],  # follow early and late patterns as they age
        "followed": 50,  # patterns to follow from each of these on
        "oldest": [3000, 1000],
        "ages": 16,
        "priors": [0.0, 1.0],
        "streams": 10,  # independent sequences of patterns, averaged within a seed
        "seeds": 10,
    },
    "quick": {
        "dimensions": 200,
        "firsts": [1, 401],
        "followed": 20,
        "oldest": [600, 200],
        "ages": 14,
        "priors": [0.0, 1.0],
        "streams": 20,
        "seeds": 5,
    },
    "smoke": {
        "dimensions": 50,
        "firsts": [1, 101],
        "followed": 5,
        "oldest": [150, 50],
        "ages": 8,
        "priors": [0.0, 1.0],
        "streams": 10,
        "seeds": 2,
    },
}


class Learner(Protocol):
    """An update rule for m_t."""

    @property
    def mean(self) -> Tensor:
        """m_t [R, D]."""
        ...

    def see(self, x_bar: Tensor, t: int) -> Self:
        """The rule after the t-th pattern (t = 1, 2, ...), x_bar [R, D]."""
        ...


class OnlineVI(NamedTuple):
    """Appendix F's closed form."""

    mean: Tensor
    prior: float

    def see(self, x_bar: Tensor, t: int) -> OnlineVI:
        """m_t = [I - x_bar x_bar^T / c_t] m_{t-1} + x_bar / c_t."""
        return self._replace(mean=unit_norm_update(self.mean, x_bar, t, self.prior))


class OnlineLaplace(NamedTuple):
    """The mode and the diagonal of the curvature; patterns need not have unit length."""

    mean: Tensor
    precision: Tensor

    def see(self, x_bar: Tensor, t: int) -> OnlineLaplace:
        """m_t = argmax log N(1; w^T x_bar, 1) + log q_{t-1}(w)."""
        return OnlineLaplace(_mode(self.mean, self.precision, x_bar, t), self.precision + x_bar.square())


class OwnAnchors(NamedTuple):
    """EWC: 1/2 p_0 |w|^2 + 1/2 sum_s (w - m_s)^T diag(x_s^2) (w - m_s), as one quadratic."""

    past: Quadratic

    @property
    def mean(self) -> Tensor:
        """m_t."""
        return self.past.mean

    def see(self, x_bar: Tensor, t: int) -> OwnAnchors:
        """m_t = argmin 1/2 (1 - w^T x_bar)^2 + the penalties so far; then the penalty at m_t is added."""
        mean = _mode(self.past.centre, self.past.precision, x_bar, t)
        return OwnAnchors(self.past._replace(mean=mean).add(mean, x_bar.square()))


class GradientDescent(NamedTuple):
    """One gradient step on each pattern's squared error; at rate 1 it reaches the minimum."""

    mean: Tensor
    rate: float

    def see(self, x_bar: Tensor, t: int) -> GradientDescent:
        """m_t = m_{t-1} + rate x_bar (1 - x_bar^T m_{t-1})."""
        error = 1 - (x_bar * self.mean).sum(-1, keepdim=True)
        return self._replace(mean=self.mean + self.rate * error * x_bar)


def _mode(centre: Tensor, precision: Tensor, x_bar: Tensor, t: int) -> Tensor:
    """argmin_w 1/2 (1 - w^T x_bar)^2 + 1/2 (w - centre)^T diag(precision) (w - centre)."""
    if t == 1 and not bool(precision.any()):
        return x_bar  # the limit of a flat prior: the shortest w that fits
    return laplace_update(centre, precision, x_bar, x_bar.new_ones(x_bar.shape[:-1]))[0]


def learners(prior: float, runs: int, dimensions: int, device: torch.device | str = "cpu") -> dict[str, Learner]:
    """All rules by name before the first pattern: m_0 = 0, prior precision ``prior`` = 1/v_0."""
    zero = torch.zeros(runs, dimensions, dtype=torch.float64, device=device)
    precision = zero + prior
    return {
        VI: OnlineVI(zero, prior),
        LAPLACE: OnlineLaplace(zero, precision),
        EWC: OwnAnchors(Quadratic(Layout(("w",), ((dimensions,),)), zero, zero, precision)),
        DESCENT: GradientDescent(zero, 1 / (1 + prior)),
    }


def steps(method: str, dimensions: int, patterns: int, prior: float) -> tuple[Tensor, Tensor]:
    """b_t and g_t of a rule, for t = 1 to ``patterns``."""
    before = prior + torch.arange(patterns, dtype=torch.float64) / dimensions  # p_{t-1}
    if method == DESCENT:
        before = torch.full_like(before, prior)
    b = 1 / (1 + before)
    return b, b / (dimensions * before + 1) if method == EWC else b


class Moments(NamedTuple):
    """A and B [K] of the patterns followed, and Q of the centre."""

    A: Tensor
    B: Tensor
    Q: Tensor

    def after(self, g: Tensor, new: Tensor, D: int) -> Moments:
        """The moments after one more pattern with step g; ``new`` [K] marks it, if it is followed."""
        A, B, Q = self
        faded = B * (1 - 2 * g / D + 2 * (g / D) ** 2) + g**2 * (1 / D + (1 - 2 / D) * Q / D**2)
        return Moments(
            torch.where(new, g, A * (1 - g / D)),
            torch.where(new, (1 - g) ** 2 * Q / D + g**2, faded),
            Q * (1 - 2 * g / D + g**2 / D) + g**2,
        )


def theory(b: Tensor, g: Tensor, D: int, first: int, followed: int, ages: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Exact mean and variance [ages, K] of the responses to patterns first, ..., first + K - 1 at these ages."""
    numbers = torch.arange(first, first + followed)
    zero = torch.zeros(followed, dtype=torch.float64)
    centre = Moments(zero, zero, zero[0])
    signal, variance = torch.zeros(2, len(ages), followed, dtype=torch.float64)
    for t in range(1, first + followed + max(ages)):
        new = numbers == t
        now = centre.after(b[t - 1], new, D)
        for row, age in enumerate(ages):
            if first <= t - age < first + followed:
                place = t - age - first
                signal[row, place] = now.A[place]
                variance[row, place] = now.B[place] - now.A[place] ** 2
        centre = centre.after(g[t - 1], new, D)
    return signal, variance


def simulate(settings: Mapping[str, Any], device: torch.device) -> dict[tuple[float, str, int], Tensor]:
    """The responses [ages, K, seeds, streams] by prior, method and number of the first pattern followed."""
    D, K, streams, seeds = (settings[name] for name in ("dimensions", "followed", "streams", "seeds"))
    rng = Rng(tuple(range(seeds))).at("patterns")
    groups = dict(zip(settings["firsts"], all_ages(settings), strict=True))
    rules: dict[tuple[float, str], Learner] = {
        (prior, name): learner
        for prior in settings["priors"]
        for name, learner in learners(prior, seeds * streams, D, device).items()
    }
    responses = {
        (*rule, first): torch.zeros(len(ages), K, seeds * streams, dtype=torch.float64, device=device)
        for rule in rules
        for first, ages in groups.items()
    }
    met: dict[int, Tensor] = {}
    for t in range(1, last(settings) + 1):
        x_bar = draw(rng.at(t), streams, D).to(device)
        if any(first <= t < first + K for first in groups):
            met[t] = x_bar
        for rule, learner in rules.items():
            rules[rule] = learner.see(x_bar, t)
        for first, ages in groups.items():
            for row, age in enumerate(ages):
                if first <= t - age < first + K:
                    for rule, learner in rules.items():
                        responses[(*rule, first)][row, t - age - first] = (met[t - age] * learner.mean).sum(-1)
    return {key: values.view(-1, K, seeds, streams).cpu() for key, values in responses.items()}


def draw(rng: Rng, streams: int, dimensions: int) -> Tensor:
    """One x_bar for each seed and stream [R, D]; for random signs, y x has the same distribution as x."""
    coins = rng.per_run(lambda g: torch.randint(0, 2, (streams, dimensions), generator=g, dtype=torch.int8))
    return (2 * coins.flatten(0, 1).double() - 1) / sqrt(dimensions)


def all_ages(settings: Mapping[str, Any]) -> list[list[int]]:
    """The ages at which each group is evaluated: from 1 to the oldest, evenly on a logarithmic scale."""
    count = settings["ages"]
    return [sorted({round(oldest ** (i / (count - 1))) for i in range(count)}) for oldest in settings["oldest"]]


def last(settings: Mapping[str, Any]) -> int:
    """The number of patterns in a stream."""
    ends = zip(settings["firsts"], settings["oldest"], strict=True)
    return int(max(first + oldest for first, oldest in ends) + settings["followed"] - 1)


def compute(settings: Mapping[str, Any], device: torch.device) -> str:
    """CSV with a row per method, prior, group of patterns and age, for every seed and for the theory (no seed)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    ages_of = dict(zip(settings["firsts"], all_ages(settings), strict=True))
    with one_thread():
        responses = simulate(settings, device)
    for (prior, method, first), r in responses.items():
        ages, name = ages_of[first], (method, f"{prior:g}", first)
        # The variance is over the streams of a seed, per pattern, and then averaged over patterns: with own anchors
        # signals differ between patterns, which is not noise.
        signal, noise, recalled = r.mean((1, 3)), r.var(3).mean(1).sqrt(), (r > 0).double().mean((1, 3))
        for seed in range(settings["seeds"]):
            for row, age in enumerate(ages):
                s, n = signal[row, seed], noise[row, seed]
                values = s, n, s / n, recalled[row, seed]
                writer.writerow(("simulation", *name, seed, age, *(f"{float(value):.6g}" for value in values)))
        b, g = steps(method, settings["dimensions"], last(settings), prior)
        mean, variance = theory(b, g, settings["dimensions"], first, settings["followed"], ages)
        # A response is a sum of many small terms, so it is recalled with probability near Phi(mean / deviation).
        right = torch.special.ndtr(mean / variance.sqrt()).mean(1)
        for row, age in enumerate(ages):
            expected, spread = mean[row].mean(), variance[row].mean().sqrt()
            values = expected, spread, expected / spread, right[row]
            writer.writerow(("theory", *name, "", age, *(f"{float(value):.6g}" for value in values)))
    return out.getvalue()


def measures(rows: Sequence[Mapping[str, str]]) -> dict[str, Summary]:
    """The numbers of :func:`by_seed`, summarised."""
    values = {name: list(seeds.values()) for name, seeds in by_seed(rows).items()}
    return {name: summarise(torch.tensor(each, dtype=torch.float64)) for name, each in values.items()}


def by_seed(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[int, float]]:
    """For each method and prior, by seed: the values at the oldest age, and the gap between simulation and theory.

    "recalled" is in %. "signal less theory" is averaged over all ages and groups, in % of the outcome 1.
    """
    found: dict[str, dict[int, float]] = {}
    for method, prior in dict.fromkeys((row["method"], row["prior"]) for row in rows):
        mine = [row for row in rows if (row["method"], row["prior"]) == (method, prior)]
        drawn = [row for row in mine if row["kind"] == "simulation"]
        expected = {(row["first"], row["age"]): float(row["signal"]) for row in mine if row["kind"] == "theory"}
        what = f"{method}, {'no prior' if float(prior) == 0 else f'prior {prior}'}"
        for first in dict.fromkeys(row["first"] for row in drawn):
            oldest = max(int(row["age"]) for row in drawn if row["first"] == first)
            last_rows = [row for row in drawn if (row["first"], int(row["age"])) == (first, oldest)]
            where = f"pattern {first} and on at age {oldest}"
            found[f"{what}: signal to noise, {where}"] = {int(row["seed"]): float(row["snr"]) for row in last_rows}
            found[f"{what}: recalled, {where}"] = {int(row["seed"]): 100 * float(row["recalled"]) for row in last_rows}
        gaps: dict[int, list[float]] = {}
        for row in drawn:
            gap = float(row["signal"]) - expected[row["first"], row["age"]]
            gaps.setdefault(int(row["seed"]), []).append(100 * gap)
        found[f"{what}: signal less theory"] = {seed: sum(each) / len(each) for seed, each in gaps.items()}
    return found
