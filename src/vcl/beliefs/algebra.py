"""Gaussians as an algebra: product, quotient and power, exact in natural parameters, for R runs at once.

With precision L and mean m, natural parameters are L and L m. They add in a product, subtract in a quotient, and are
multiplied in a power:

    q_a q_b^s :  L = L_a + s L_b,   m = m_a + s L^{-1} L_b (m_b - m_a),   s = 1 or -1;        q^e :  e L,  m

Constants are dropped, so a resulting belief is normalised. Beliefs and factors may be mixed. The result is a belief,
whose precision must be positive, except for a product of factors and a quotient whose numerator is a factor.

A point (variance 0) keeps its value in any product or quotient. Two points must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf, isfinite
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.beliefs.factors import DiagonalFactor, FullFactor
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.errors import VclError, unknown

Gaussian = MeanField | FullGaussian | DiagonalFactor | FullFactor
G = TypeVar("G", MeanField, FullGaussian, DiagonalFactor, FullFactor)


@overload
def product(a: MeanField, b: MeanField | DiagonalFactor) -> MeanField: ...
@overload
def product(a: FullGaussian, b: Gaussian) -> FullGaussian: ...
@overload
def product(a: DiagonalFactor, b: DiagonalFactor) -> DiagonalFactor: ...
@overload
def product(a: FullFactor, b: FullFactor | DiagonalFactor) -> FullFactor: ...
@overload
def product(a: Gaussian, b: Gaussian) -> Gaussian: ...
def product(a: Gaussian, b: Gaussian) -> Gaussian:
    """a(theta) b(theta), run by run. A factor b is one task's contribution: q_t = q_{t-1} site_t."""
    if isinstance(b, MeanField | FullGaussian) and not isinstance(a, MeanField | FullGaussian):
        a, b = b, a
    return _joined("product", a, b, 1)


@overload
def quotient(a: MeanField, b: MeanField | DiagonalFactor) -> MeanField: ...
@overload
def quotient(a: FullGaussian, b: Gaussian) -> FullGaussian: ...
@overload
def quotient(a: DiagonalFactor, b: MeanField | DiagonalFactor) -> DiagonalFactor: ...
@overload
def quotient(a: FullFactor, b: Gaussian) -> FullFactor: ...
@overload
def quotient(a: Gaussian, b: Gaussian) -> Gaussian: ...
def quotient(a: Gaussian, b: Gaussian) -> Gaussian:
    """a(theta) / b(theta), run by run: removes b's contribution from a.

    q_t / q_{t-1} is the contribution of task t. It may be improper, so use factors: quotient(q.factor(), p.factor()).
    """
    return _joined("quotient", a, b, -1)


def power(a: G, exponent: float | tuple[float, ...] | Tensor) -> G:
    """a(theta)^exponent (tempering), with one exponent for all runs or one per run [R]; a belief needs it above 0."""
    _known("power", a)
    layout, centre, spread = a
    exponent = torch.tensor(exponent) if isinstance(exponent, tuple) else exponent
    if isinstance(exponent, Tensor) and exponent.shape != centre.shape[:1]:
        raise VclError(
            f"the exponent has shape {tuple(exponent.shape)} for {len(centre)} runs; give one number or one for each."
        )
    proper = isinstance(a, MeanField | FullGaussian)
    for value in exponent.tolist() if isinstance(exponent, Tensor) else (exponent,):
        if not isfinite(value) or (proper and value <= 0):
            raise VclError(
                f"the exponent is {value:g}; a belief takes one above 0, and a factor (belief.factor()) any number."
            )
    e = torch.as_tensor(exponent, dtype=centre.dtype, device=centre.device).reshape(-1, *(1,) * (spread.dim() - 1))
    return type(a)(layout, centre, spread - e.log() if isinstance(a, MeanField) else spread * e)


# Pairs of Gaussians.


def _joined(what: str, a: Gaussian, b: Gaussian, sign: int) -> Gaussian:
    """a b^sign."""
    _known(what, a, b)
    _same_place(what, a, b)
    if isinstance(a, MeanField) and a.mean.dtype != torch.float64:  # a precision may overflow float32
        wide = type(b)(b.layout, *(part.double() for part in b[1:]))
        return _joined(what, a.to(torch.float64), wide, sign).to(a.mean.dtype)  # type: ignore[union-attr]
    if isinstance(a, MeanField | FullGaussian):
        belief = True
    else:
        belief, b = False, b.factor() if isinstance(b, MeanField | FullGaussian) else b
    runs = max(len(a[1]), len(b[1]))
    left, right = ((x[1].expand(runs, -1), _precision(x)) for x in (a, b))
    if left[1].dim() == right[1].dim() == 2:
        mean, precision = _diagonal(what, a.layout, *left, *right, sign, belief)
        return MeanField(a.layout, mean, -precision.log()) if belief else DiagonalFactor(a.layout, mean, precision)
    mean, precision = _full(what, a.layout, left[0], _matrix(*left), right[0], _matrix(*right), sign, belief)
    return (FullGaussian if belief else FullFactor)(a.layout, mean, precision)


def _diagonal(
    what: str, layout: Layout, m_a: Tensor, L_a: Tensor, m_b: Tensor, L_b: Tensor, sign: int, belief: bool
) -> tuple[Tensor, Tensor]:
    """Mean and precision [R, D] of a b^sign. Only beliefs have points; their precision is infinite."""
    points = L_a.isinf() | (L_b.isinf() if sign > 0 else False)
    disagree = L_a.isinf() & L_b.isinf() & (m_a != m_b)
    if bool(disagree.any()):
        at = _where(disagree, layout)
        raise VclError(f"the {what} has no value at {at}, where both are points, but different ones; make them equal.")
    L = torch.where(points, inf, L_a + sign * L_b)
    shift = L_b * (m_b - m_a)
    if belief:
        bad = ~(L > 0) | (L.isinf() & ~points)
        if bool(bad.any()):
            raise _not_positive(what, _where(bad, layout), f"precision {float(L[bad][0]):g}")
    elif bool((left := (L == 0) & (shift != 0)).any()):
        raise _only_linear(what, _where(left, layout))
    mean = m_a + sign * torch.where(points | (L == 0), 0, shift / L)
    return torch.where(points & ~L_a.isinf(), m_b, mean), L


def _full(
    what: str, layout: Layout, m_a: Tensor, L_a: Tensor, m_b: Tensor, L_b: Tensor, sign: int, belief: bool
) -> tuple[Tensor, Tensor]:
    """Mean [R, D] and precision [R, D, D] of a b^sign."""
    L = L_a + sign * L_b
    shift = L_b @ (m_b - m_a).unsqueeze(-1)
    if belief:
        root, info = torch.linalg.cholesky_ex(L)
        if bool(info.any()):
            run = int(info.nonzero()[0, 0])
            at = f"{layout.coordinate(int(info[run]) - 1)} in run {run}"
            raise _not_positive(what, at, "a precision matrix that is not positive definite")
        return m_a + sign * torch.cholesky_solve(shift, root).squeeze(-1), L
    # Directions with precision 0, up to rounding, have no centre and need none.
    eps = torch.finfo(L.dtype).eps
    size = torch.linalg.matrix_norm(L_a, 2) + torch.linalg.matrix_norm(L_b, 2)
    moved = torch.linalg.pinv(L, atol=4 * layout.size * eps * size, hermitian=True) @ shift
    left = (L @ moved - shift).abs().amax((1, 2)) > eps**0.5 * shift.abs().amax((1, 2))
    if bool(left.any()):
        raise _only_linear(what, f"some direction of run {int(left.nonzero()[0, 0])}")
    return m_a + sign * moved.squeeze(-1), L


def _precision(a: Gaussian) -> Tensor:
    """The precision [R, D] or [R, D, D]; infinite at points."""
    return (-a.log_var).exp() if isinstance(a, MeanField) else a.precision


def _matrix(mean: Tensor, precision: Tensor) -> Tensor:
    """The precision as a matrix for as many runs as ``mean`` has."""
    if precision.dim() == 2 and bool(precision.isinf().any()):
        raise VclError(
            "a belief with points cannot be combined with a full Gaussian, which has none; restrict both to the rest."
        )
    matrix = torch.diag_embed(precision) if precision.dim() == 2 else precision
    return matrix.expand(len(mean), -1, -1)


def _known(what: str, *given: object) -> None:
    for each in given:
        if not isinstance(each, Gaussian):
            raise VclError(
                f"the {what} of a {type(each).__name__} is not known in closed form; give MeanField, FullGaussian or "
                "their factors, or use combine with a rule for that family."
            )


def _same_place(what: str, a: Gaussian, b: Gaussian) -> None:
    """Raise VclError unless both are over the same parameters, runs and device."""
    if a.layout != b.layout:
        pairs = zip(a.layout.names, b.layout.names, strict=False)
        only = next((f"{x!r} in one is {y!r} in the other" for x, y in pairs if x != y), "shapes or numbers differ")
        raise VclError(f"the {what} needs two of the same layout, but {only}; use grow or restrict to make them alike.")
    runs = len(a[1]), len(b[1])
    if runs[0] != runs[1] and 1 not in runs:
        raise VclError(f"the {what} needs as many runs on both sides or one on one, not {runs[0]} and {runs[1]}.")
    if a[1].device != b[1].device:
        raise VclError(f"the {what} is of one on {a[1].device} and one on {b[1].device}; move one of them.")


def _where(bad: Tensor, layout: Layout) -> str:
    run, position = bad.nonzero()[0].tolist()
    return f"{layout.coordinate(position)} in run {run}"


def _not_positive(what: str, at: str, got: str) -> VclError:
    return VclError(
        f"the {what} would have {got} at {at}, and a belief needs it positive; take the {what} of the factors "
        "(belief.factor()), which may be improper."
    )


def _only_linear(what: str, at: str) -> VclError:
    return VclError(
        f"the {what} has precision 0 but a slope at {at}, and so no centre; divide less, or keep the two factors apart."
    )


# Several beliefs, combined by a rule.

B = TypeVar("B", bound=Belief)
CombineRule = Callable[[Sequence[Any], Any | None], Any]
COMBINE_RULES: dict[str, dict[type, CombineRule]] = {}
"""Functions from beliefs and a prior to one belief, by rule name and family. Other families add their own."""


def rule(name: str, *families: type) -> Callable[[CombineRule], CombineRule]:
    """Registers a function of beliefs and a prior with :func:`combine`, by name, for these families."""

    def add(function: CombineRule) -> CombineRule:
        COMBINE_RULES.setdefault(name, {}).update(dict.fromkeys(families, function))
        return function

    return add


def combine(beliefs: Sequence[B], rule: str = "product", prior: B | None = None) -> B:
    """Combines beliefs of one family into one, by a named rule.

    product    prior prod_k (q_k / prior): multiplies each client's contribution into the ``prior`` they all began at
    geometric  prod_k q_k^{1/K}: the q that minimises sum_k KL(q || q_k); shared information is not counted twice
    mixture    mean and covariance of 1/K sum_k q_k: the q that minimises sum_k KL(q_k || q)
    """
    if not beliefs:
        raise VclError("there are no beliefs to combine; give at least one.")
    if rule not in COMBINE_RULES:
        raise unknown("rule", rule, COMBINE_RULES)
    family = type(beliefs[0])
    if family not in COMBINE_RULES[rule]:
        known = sorted(name for name, families in COMBINE_RULES.items() if family in families)
        has = f"its rules are {', '.join(known)}" if known else "it has no rule: add one with vcl.beliefs.algebra.rule"
        raise VclError(f"the rule {rule!r} does not know the family {family.__name__}; {has}.")
    for other in (*beliefs, *(() if prior is None else (prior,))):
        if type(other) is not family:
            raise VclError(f"{family.__name__} and {type(other).__name__} cannot be combined; give one family.")
    found: B = COMBINE_RULES[rule][family](beliefs, prior)
    return found


@rule("product", MeanField, FullGaussian)
def _product(beliefs: Sequence[Any], prior: Any | None) -> Any:
    if prior is None:
        raise VclError("the rule 'product' divides out the prior that all beliefs share; give prior=.")
    together = reduce(product, beliefs)
    return together if len(beliefs) == 1 else quotient(together, power(prior, len(beliefs) - 1))


@rule("geometric", MeanField, FullGaussian)
def _geometric(beliefs: Sequence[Any], prior: Any | None) -> Any:
    _no_prior("geometric", prior)
    return power(reduce(product, beliefs), 1 / len(beliefs))


@rule("mixture", MeanField)
def _mixture(beliefs: Sequence[MeanField], prior: MeanField | None) -> MeanField:
    _no_prior("mixture", prior)
    means, variances = _stacked([(q, q.mean, q.log_var.exp()) for q in beliefs])
    return MeanField(beliefs[0].layout, means.mean(0), (variances.mean(0) + means.var(0, correction=0)).log())


@rule("mixture", FullGaussian)
def _full_mixture(beliefs: Sequence[FullGaussian], prior: FullGaussian | None) -> FullGaussian:
    _no_prior("mixture", prior)
    means, covariances = _stacked([(q, q.mean, torch.linalg.inv(q.precision)) for q in beliefs])
    shift = means - means.mean(0)
    covariance = (covariances + shift.unsqueeze(-1) * shift.unsqueeze(-2)).mean(0)
    return FullGaussian(beliefs[0].layout, means.mean(0), torch.linalg.inv(covariance))


def _stacked(given: Sequence[tuple[Any, Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Means [K, R, D] and variances or covariances, of beliefs over the same parameters."""
    for q, _, _ in given:
        _same_place("mixture", given[0][0], q)
    means, spreads = zip(*((mean, spread) for _, mean, spread in given), strict=True)
    runs = max(len(mean) for mean in means)
    return torch.stack([mean.expand(runs, -1) for mean in means]), torch.stack(
        [spread.expand(runs, *spread.shape[1:]) for spread in spreads]
    )


def _no_prior(name: str, prior: object | None) -> None:
    if prior is not None:
        raise VclError(f"the rule {name!r} takes no prior; leave it out, or use the rule 'product'.")
