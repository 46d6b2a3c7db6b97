"""How far a variational fit got: whether its variances could go where the data asks, and what q is made of.

    limited   the share of log variances that moved at least 0.9 of what the steps allow: they show the start, not data;
              of natural gradients, those that grew so far
    kl        KL(q || q_{t-1}) of each tensor of parameters, in nats
    sd        the mean posterior standard deviation of each tensor of parameters
    pruned    the share of units of each weight whose every incoming weight has |mu| < sigma: they carry no signal

Adam moves a log variance by at most the sum of its learning rates. A natural-gradient step has a limit only for growth.
In the coordinates of a Kronecker-factored Gaussian units have no meaning, so none are pruned there; its KL is that of
each layer, bias included. Its standard deviations are those of the weights themselves, not of these coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.kronecker_fit import KroneckerFit
from vcl.beliefs.layout import Rows, with_rows
from vcl.beliefs.mean_field import KlTo, MeanField
from vcl.beliefs.mean_field_fit import MeanFieldFit

NEARLY = 0.9
"""The share of the farthest distance from which on a log variance counts as limited."""

MANY = 0.1
"""The share of limited log variances from which on a fit is warned about."""

PIECE = 2**14
"""The values looked at together: the fit's own memory is still held then."""

LIMITED = "limited"
"""The name of that share among the measures."""


@final
class Health(NamedTuple):
    """How far a fit got, one value per run [R]."""

    limited: Tensor
    kl: Mapping[str, Tensor]
    pruned: Mapping[str, Tensor]
    sd: Mapping[str, Tensor]
    reach: float
    """The farthest that the steps can move a log variance, or, with ``growth``, make it grow."""
    growth: bool = False
    """Whether only growth has a limit, as in fits by natural gradients."""

    def rows(self) -> dict[str, Tensor]:
        """All of it by name, each [R]."""
        kls = {f"kl {name}": value for name, value in self.kl.items()}
        sds = {f"sd {name}": value for name, value in self.sd.items()}
        return {LIMITED: self.limited, **kls, **{f"pruned {name}": value for name, value in self.pruned.items()}, **sds}

    def warning(self) -> str:
        """One sentence if the variances were still moving in some run, else nothing."""
        most = float(self.limited.max())
        return still_moving(most, self.reach, self.growth) if most >= MANY else ""


def still_moving(share: float, reach: float, growth: bool = False) -> str:
    """What to say of a fit whose variances could not go where the data asks."""
    moved = "grew" if growth else "moved"
    advice = "take more steps" if growth else "take more steps or a higher rate, or fit by natural gradients"
    return (
        f"{share:.0%} of the log variances {moved} as far as the steps allow ({reach:.3g}), so they show where the fit "
        f"started and not the data; {advice}"
    )


def _far(moved: Tensor, reach: float, growth: bool) -> Tensor:
    """Which log variances moved nearly as far as the steps allow."""
    return (moved if growth else moved.abs()) >= NEARLY * reach


@torch.no_grad()
def health_of(
    fit: MeanFieldFit,
    parameters: tuple[Tensor, ...],
    previous: MeanField,
    wide: Rows,
    var: float,
    reach: float,
    growth: bool = False,
) -> Health:
    """Of a fit that started at the variances of ``previous``, or at ``var`` in the rows ``wide``."""
    layout, runs, held = fit.spread, len(parameters[0]), set(fit.held.names)
    old = (previous.layout.cut(part, layout) for part in (previous.mean, previous.log_var))
    means, logs, p_means, p_logs = (layout.split(part) for part in (*parameters[:2], *old))
    far, kls, pruned, sds = torch.zeros_like(parameters[0][:, 0]), {}, {}, {}
    for name, shape in zip(*layout, strict=True):
        units = shape[0] if len(shape) > 1 else 1
        begun = p_logs[name]
        if wide.get(name):  # a head's new outputs; whole tensors need no copy
            begun = with_rows(begun, wide[name], torch.full_like(begun, log(var)))
        each = tuple(
            part.reshape(runs, units, -1) for part in (means[name], logs[name], p_means[name], p_logs[name], begun)
        )
        kls[name], pruned[name], sds[name] = far.new_zeros(3, runs)
        some = max(1, min(PIECE, KlTo.PIECE) // max(1, runs * each[0].shape[2]))
        for first in range(0, units, some):  # a few units at a time, to save memory
            mean, log_var, p_mean, p_log_var, before = (part[:, first : first + some] for part in each)
            log_var = fit.log_var(log_var)
            moved = log_var - (log(var) if wide.get(name) == 0 else before)
            far += _far(moved, reach, growth).sum((1, 2))
            sd = (0.5 * log_var).exp_()
            pruned[name] += (mean.abs() < sd).all(2).sum(1) / units
            sds[name] += sd.sum((1, 2)) / each[0][0].numel()
            del moved, sd  # before the KL takes memory of its own
            p = MeanField(layout, p_mean.flatten(1), p_log_var.flatten(1))
            kls[name] += KlTo(p)(mean.flatten(1), log_var.flatten(1)) if name in held else 0
    weights = {name for name, shape in zip(*layout, strict=True) if len(shape) > 1}
    return Health(
        far / max(layout.size, 1),
        {name: value for name, value in kls.items() if name in held},
        {name: value for name, value in pruned.items() if name in weights},
        {name: value for name, value in sds.items() if name in held},
        reach,
        growth,
    )


@torch.no_grad()
def health_in_basis(
    fit: KroneckerFit, parameters: tuple[Tensor, ...], start: tuple[Tensor, ...], reach: float, growth: bool = False
) -> Health:
    """Of the fit of a Kronecker-factored Gaussian that started at the parameters ``start``."""
    moved = fit.log_var(parameters[1]) - fit.log_var(start[1])
    limited = _far(moved, reach, growth).to(moved.dtype).mean(1)
    return Health(limited, fit.kl_by_tensor(parameters), {}, fit.sd_by_tensor(parameters), reach, growth)
