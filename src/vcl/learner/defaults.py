"""Settings that follow from the size of the data, so that none has to be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from vcl.fitting.loop import Ascent
from vcl.learner.given import require_positive, require_whole

STEPS = 1000
"""The steps of a classifier's fit, about."""

REGRESSION_STEPS = 2500
"""Those of a regressor's: 1000 left test errors of a sine and of Friedman's function 13 % larger, taken for noise."""

LEAST_EPOCHS, MOST_EPOCHS = 5, 150
SMALLEST_BATCH, LARGEST_BATCH = 16, 256
BATCHES = 30
"""An epoch has about this many steps, within the limits of a batch."""

REACH = 3.0
"""A learning rate times the number of steps, within the limits of a rate: a fit of fewer steps takes longer ones."""

SMALLEST_RATE, LARGEST_RATE = 3e-3, 1e-2


@dataclass(frozen=True)
class Effort:
    """How long and how a fit runs; what is None follows from the number of examples."""

    epochs: int | None = None
    batch: int | None = None
    lr: float | None = None
    draws: int | None = None
    steps: int = STEPS
    """About how many steps a fit takes where ``epochs`` is None."""

    def check(self) -> None:
        """Raise VclError unless every given value is valid."""
        for name in ("epochs", "batch", "draws"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1, ", or None for the default")
        if self.lr is not None:
            require_positive("lr", self.lr, ", or None for the default")
        require_whole("steps", self.steps, 1)

    def ascent(self, examples: int) -> Ascent:
        """About ``steps`` steps: batches of a thirtieth of the data, from 16 to 256 examples, and 5 to 150 epochs.

        The most epochs grow with ``steps``.
        """
        part = 2 ** round(log2(max(1.0, examples / BATCHES)))
        batch = self.batch or min(examples, max(SMALLEST_BATCH, min(LARGEST_BATCH, part)))
        steps = -(-examples // batch)
        most = MOST_EPOCHS * self.steps // STEPS
        epochs = self.epochs or max(LEAST_EPOCHS, min(most, -(-self.steps // steps)))
        rate = max(SMALLEST_RATE, min(LARGEST_RATE, REACH / (epochs * steps)))
        return Ascent(epochs, batch, self.lr or rate, "cosine")
