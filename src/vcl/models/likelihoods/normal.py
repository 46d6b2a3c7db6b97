"""Numbers with Gaussian noise of a fixed deviation."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, pi
from typing import Any, final

import torch
from torch import Tensor

from vcl.errors import VclError
from vcl.models.likelihoods.base import check_width, constants, mean_and_variance, refuse_whole


@final
@dataclass(frozen=True)
class Normal:
    """p(y | theta, x) = N(y; f_theta(x), diag noise^2), with targets y [N] or [N, C].

    ``noise`` is a fixed deviation for all targets, or a tuple of one per target.
    """

    noise: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        each: tuple[Any, ...] = self.noise if isinstance(self.noise, tuple) else (self.noise,)
        if not each or not all(isinstance(value, int | float) and 0 < value < inf for value in each):
            raise VclError(
                f"noise is {self.noise}; a deviation must be a finite number above 0, or a tuple of one such number "
                "per target."
            )

    @property
    def whole(self) -> bool:
        """Targets are real numbers."""
        return False

    def units(self, targets: int) -> int:
        """One per target."""
        return targets

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """sum_c -1/2 ((y_c - f_c) / noise_c)^2 - log noise_c - 1/2 log 2 pi."""
        noise = self._noise(output)
        error = (y.reshape(output.shape) - output) / noise
        return (-0.5 * error.square() - _log(noise) - 0.5 * log(2 * pi)).sum(-1)

    def expectation(self, output: Tensor) -> Tensor:
        """E[y] and E[y^2], side by side [N, 2C]; :meth:`moments` turns their average into mean and variance."""
        return torch.cat([output, output.square() + self._noise(output) ** 2], dim=-1)

    def log_evidence(self, mean: Tensor, var: Tensor, y: Tensor) -> Tensor:
        """sum_c log N(y_c; mean_c, var_c + noise_c^2), exactly."""
        total = var + self._noise(mean) ** 2
        error = y.reshape(mean.shape) - mean
        return (-0.5 * error.square() / total - 0.5 * total.log() - 0.5 * log(2 * pi)).sum(-1)

    def sample(self, output: Tensor, noise: Tensor) -> Tensor:
        """f + noise deviation * noise, [N] or [N, C] like the noise."""
        return (output + self._noise(output) * noise.reshape(output.shape)).reshape(noise.shape)

    def label_points(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """f + noise_c e_c for each output c [C, N, C], with weight 1 [C, N]: their gradients are e_c / noise_c."""
        width = output.shape[-1]
        steps = self._noise(output) * torch.eye(width, dtype=output.dtype, device=output.device).unsqueeze(1)
        return output + steps, output.new_ones(width, len(output))

    def moments_of(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """f and noise^2 [..., C]."""
        return output, torch.ones_like(output) * self._noise(output) ** 2

    def cdf(self, output: Tensor, y: Tensor) -> Tensor:
        """Phi((y - f) / noise) [..., C]."""
        below: Tensor = torch.special.ndtr((y - output) / self._noise(output))
        return below

    def check(self, y: Tensor, units: int, what: str) -> None:
        """Targets are floating-point, one value per output."""
        refuse_whole(y, what)
        check_width(y, units, units, what)
        if isinstance(self.noise, tuple) and len(self.noise) != units:
            raise VclError(
                f"{what}: the noise has {len(self.noise)} deviations but the head has {units} outputs; give one "
                "deviation per output, or one number for all."
            )

    @staticmethod
    def moments(prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean and variance from averaged expectations [..., 2C]."""
        return mean_and_variance(prediction)

    def _noise(self, output: Tensor) -> float | Tensor:
        """The deviation of all outputs, or of each [C]."""
        if not isinstance(self.noise, tuple):
            return self.noise
        if len(self.noise) != output.shape[-1]:
            raise VclError(
                f"the noise has {len(self.noise)} deviations but there are {output.shape[-1]} outputs; give one "
                "deviation per output, or one number for all."
            )
        return constants(self.noise, output)


def _log(noise: float | Tensor) -> float | Tensor:
    return noise.log() if isinstance(noise, Tensor) else log(noise)
