"""The suppliers of an engine's weights, by family, estimator and engine; new entries may be added."""

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
"""From (a family's fit, an estimator, an engine) to the class that supplies weights and takes gradients."""

UNITS = {"layered/torch": 1, "general/torch": 1, "layered/triton": 16, "general/triton": 16}
"""The alignment of an engine's noise, in values: kernels read four at once, and 64-byte lines are best."""


def supplier_for(fit: Any, estimator: str, engine: str) -> Any:
    """The entry of the table."""
    return SUPPLIERS[type(fit), estimator, engine]
