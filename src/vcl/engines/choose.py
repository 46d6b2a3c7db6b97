"""Chooses the engine and the bound; no other module does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vcl.beliefs.kronecker_fit import KroneckerFit
from vcl.beliefs.layout import Layout
from vcl.engines.bound import Bound, DrawnBound, GeneralBound, LayeredBound
from vcl.engines.general import General
from vcl.engines.layered import Layered
from vcl.engines.rotated_bound import RotatedBound
from vcl.engines.structure import Fork, Opaque
from vcl.engines.suppliers import SUPPLIERS
from vcl.engines.usage import ESTIMATORS, Estimator
from vcl.errors import unknown
from vcl.ops import kernels

Engine = General | Layered


def choose(model: Any, layout: Layout, heads: tuple[str, ...], like: Tensor) -> Engine:
    """The engine for a model on batches of these heads, with parameters of ``like``'s device and dtype.

    Layered if the model's structure is known and covers all of ``layout``; otherwise general.
    """
    leaves = "triton" if kernels.usable(like) else "torch"
    structure, general = model.structure(heads), General(model, layout, f"general/{leaves}")
    known = not isinstance(structure, Opaque) and set(structure.names) == set(layout.names)
    if not known or like.dtype not in (torch.float32, torch.float64):
        return general
    return Layered(structure, layout, general, f"layered/{leaves}")


def _is_fork(engine: Engine) -> bool:
    return isinstance(engine, Layered) and isinstance(engine.structure, Fork)


def choose_bound(engine: Engine, fit: Any, estimator: Estimator, draws: int, latent: int) -> Bound:
    """The bound for a family: by the engine's rules for it, or by draws of theta.

    The bound's name gives the engine, and the reason if it is a fallback.
    """
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    if isinstance(engine, Layered) and (type(fit), estimator, engine.name) in SUPPLIERS:
        return LayeredBound(engine, fit, estimator, draws, latent)
    if isinstance(fit, KroneckerFit) and estimator == "local" and not latent and _is_fork(engine):
        return RotatedBound(engine, fit, draws)  # type: ignore[arg-type]
    general = engine.general if isinstance(engine, Layered) else engine
    why = "" if general is engine else f" (no rules for {type(fit).__name__} by {estimator} in {engine.name})"
    if (type(fit), estimator, general.name) in SUPPLIERS:
        return GeneralBound(general, fit, estimator, draws, latent, why)
    if (type(fit), "weights", general.name) in SUPPLIERS:
        return GeneralBound(general, fit, "weights", draws, latent, f"{why} (no {estimator} there: weights are drawn)")
    return DrawnBound(engine, fit, draws, latent)
