"""Fading: a belief that forgets a share of what data has said, towards the prior.

    fade(q, p, s)  =  q^(1-s) p^s / Z :    precision L = (1-s) L_q + s L_p,    mean m_q + s L^{-1} L_p (m_p - m_q)

It minimises (1-s) KL(. || q) + s KL(. || p). A point (variance 0) stays: no prior moves it.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeVar, runtime_checkable

from vcl.beliefs.belief import Belief
from vcl.beliefs.mean_field import MeanField
from vcl.errors import VclError


@runtime_checkable
class Fading(Belief, Protocol):
    """A family in which q^(1-s) p^s is known in closed form."""

    def faded(self, prior: MeanField, share: float) -> Self:
        """q^(1-share) prior^share, for a share above 0 and a prior over the same parameters; see :func:`fade`."""
        ...


B = TypeVar("B", bound=Belief)


def fade(belief: B, prior: MeanField, share: float) -> B:
    """belief^(1-share) prior^share, normalised, run by run. Share 0 is the belief itself, and 1 the prior.

    ``prior`` is the model's, for one run or as many as the belief has. What stands at the prior keeps its bits.
    """
    if not isinstance(belief, Fading):
        raise VclError(
            f"fading a {type(belief).__name__} is not known in closed form; carry a Gaussian: MeanField, FullGaussian "
            "or Kronecker."
        )
    if not 0 <= share <= 1:
        raise VclError(f"share is {share}; give the prior's share, from 0 (nothing fades) to 1 (the prior).")
    if belief.layout != prior.layout:
        raise VclError(
            "the belief and the prior are over different parameters; grow the belief by that prior, or take the prior "
            "of the belief's heads."
        )
    runs = len(belief.mean)
    if len(prior.mean) not in (1, runs):
        raise VclError(f"the belief has {runs} runs and the prior {len(prior.mean)}; give a prior of one run.")
    given = prior.expand(runs).to(belief.mean.device).to(belief.mean.dtype)
    return belief if share == 0 else belief.faded(given, share)
