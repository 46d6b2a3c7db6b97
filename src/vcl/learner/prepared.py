"""A network prepared for the inputs of the first update, with the last model that was made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from vcl.learner.way import Part
from vcl.models.likelihoods import Likelihood


@final
class Prepared:
    """A prepared network and, of a loaded learner, the mean of the prior that it was saved with."""

    def __init__(self, part: Part, prior: Mapping[str, Tensor] | None = None) -> None:
        self.part, self.prior = part, prior or None
        self._last: tuple[Likelihood, Any] | None = None

    @torch.inference_mode(False)
    def model(self, likelihood: Likelihood) -> Any:
        """The model with a likelihood; the last one is kept."""
        if self._last is None or self._last[0] != likelihood:
            self._last = likelihood, self.part.model(likelihood, self.prior)
        return self._last[1]
