"""What `mlp` takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

from vcl.errors import VclError
from vcl.models.network import mlp


@pytest.mark.parametrize(
    ("inputs", "hidden", "said"),
    [
        (4, 8, r"hidden is 8; give a list of widths, such as \(8,\)"),
        (4, None, r"hidden is None; give a list of widths, such as \(100,\)"),
        (4, "8,8", r"hidden is '8,8'; give a list of widths"),
        (None, (8,), r"mlp is given None inputs and the widths \(8,\); give whole numbers from 1"),
        (4, (8, 0), r"mlp is given 4 inputs and the widths \(8, 0\)"),
        (4, (8.0,), r"widths \(8.0,\)"),
        (0, (True,), "mlp is given 0 inputs"),
    ],
)
def test_other_widths_are_refused_by_a_sentence(inputs: Any, hidden: Any, said: str) -> None:
    with pytest.raises(VclError, match=said):
        mlp(inputs, hidden)


@pytest.mark.parametrize("hidden", [(3, 2), [3, 2], np.array([3, 2])])
def test_widths_of_any_list(hidden: Any) -> None:
    layers = [layer for layer in mlp(5, hidden).children() if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(5, 3), (3, 2)]
