"""What supplies an engine with weights: a table by family, estimator and engine, open to new entries."""

from __future__ import annotations

from typing import Any

from vcl.beliefs.mean_field_fit import MeanFieldFit
from vcl.beliefs.mean_field_torch import DrawnTorch, LocalTorch, MomentsTorch
from vcl.beliefs.mean_field_triton import DrawnTriton, LocalTriton, MomentsTriton

SUPPLIERS: dict[tuple[type, str, str], Any] = {
    (MeanFieldFit, "weights", "layered/torch"): DrawnTorch,
    (MeanFieldFit, "local", "layered/torch"): LocalTorch,
    (MeanFieldFit, "weights", "general/torch"): DrawnTorch,
    (MeanFieldFit, "local", "general/torch"): MomentsTorch,
    (MeanFieldFit, "weights", "layered/triton"): DrawnTriton,
    (MeanFieldFit, "local", "layered/triton"): LocalTriton,
    (MeanFieldFit, "weights", "general/triton"): DrawnTriton,
    (MeanFieldFit, "local", "general/triton"): MomentsTriton,
}
"""From (a family's fit, an estimator, an engine) to what hands out weights and takes gradients."""

UNITS = {"layered/torch": 1, "general/torch": 1, "layered/triton": 16, "general/triton": 16}
"""Values that an engine's noise is aligned to: kernels read four at once, and whole lines of 64 bytes at best."""


def supplier_for(fit: Any, estimator: str, engine: str) -> Any:
    """The entry of the table."""
    return SUPPLIERS[type(fit), estimator, engine]
