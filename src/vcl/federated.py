"""Partitioned variational inference (Ashman et al., 2022): one posterior from clients whose data stays where it is.

    q(theta) = p(theta) prod_k t_k(theta) / Z

t_k stands for the likelihood of client k's data. In a round, client k divides its old factor out of q, learns from its
own data, and sends its new factor:

    q_k  =  proj( (q / t_k) p(D_k | theta) )          t_k  <-  t_k (q_k / q)^damping

The product adds natural parameters, so a round sends two numbers per parameter each way for mean-field Gaussians. Where
proj is exact, one round without damping gives the exact posterior, and further rounds leave it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, final, runtime_checkable

import torch

from vcl.beliefs.full import FullGaussian
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.natural import Natural
from vcl.data import Data, in_precision, labelled
from vcl.errors import VclError
from vcl.fitting.loop import Report, silent
from vcl.models.base import Heads, Model
from vcl.ops.rng import Rng
from vcl.projections.base import Projection, Target

Q = TypeVar("Q", MeanField, FullGaussian)


@runtime_checkable
class BeginsAt(Protocol):
    """A projection whose fit can begin at another belief than the one that it multiplies with the likelihood."""

    def begin_at(self, begin: Any, target: Target[Any], rng: Rng, report: Report = silent) -> Any:
        """The tractable approximation of ``target``, by a fit that begins at ``begin``."""
        ...


class Shared(NamedTuple, Generic[Q]):
    """What a federation knows after some rounds: q, the prior, and the factor of each client."""

    rounds: int
    heads: Heads
    prior: Q
    belief: Q
    factors: tuple[Natural, ...]


@final
@dataclass(frozen=True)
class PartitionedVI(Generic[Q]):
    """Rounds of :meth:`answer` over clients, each with its own data.

    ``project`` is exact, variational or Laplace; its beliefs are mean-field or full Gaussians. ``damping`` is the share
    of a new factor in the step from the old one. With ``in_turn`` each client sees what those before it in the round
    have sent; otherwise all work at once, and many clients that differ need a ``damping`` below 1.
    """

    project: Projection[Q]
    damping: float = 1.0
    in_turn: bool = False

    def check(self) -> None:
        """Raise VclError unless these settings are valid."""
        if not 0 < self.damping <= 1:
            raise VclError(f"damping is {self.damping}; give a share above 0 and up to 1 (the new factor alone).")

    def initial(
        self, model: Model, heads: Heads, clients: int, runs: int = 1, device: torch.device | str = "cpu"
    ) -> Shared[Q]:
        """Before the first round: q = p, and every factor is 1."""
        self.check()
        if clients < 1:
            raise VclError(f"there are {clients} clients; give at least 1.")
        prior = self.project.initial(model.prior(heads).to(device).expand(runs))
        nothing = Natural.of(prior).to_power(0)
        return Shared(0, heads, prior, prior, (nothing,) * clients)

    def answer(
        self,
        q: Q,
        factor: Natural,
        data: Data,
        model: Model,
        heads: Heads,
        rng: Rng,
        report: Report = silent,
        who: str = "this client",
    ) -> Natural:
        """What one client computes where its data is: its new factor, from q and its old factor."""
        self.check()
        data = in_precision(labelled(data), q.mean.dtype)
        if not len(q.mean) == data.runs == len(rng.seeds):
            raise VclError(
                f"{who} has data for {data.runs} runs, q has {len(q.mean)} and there are {len(rng.seeds)} seeds; give "
                "all three the same number of runs."
            )
        model.check(data, heads)
        ours = Natural.of(q)
        without = ours.times(factor, -1).belief(q, f"q without the factor of {who}", self._advice())
        target = Target(without, model, data, model.prior(heads).to(q.mean.device))
        if isinstance(self.project, BeginsAt) and bool((factor.precision != 0).any()):
            found = self.project.begin_at(q, target, rng, report)
        else:
            found = self.project(target, rng, report)
        return factor.times(Natural.of(found).times(ours, -1), self.damping)

    def round(
        self, state: Shared[Q], clients: Sequence[Data], model: Model, rng: Rng, report: Report = silent
    ) -> Shared[Q]:
        """One round over the data of all clients, in their order.

        In the first round all clients draw alike, so that networks begin at one point; later ones draw apart.
        """
        if len(clients) != len(state.factors):
            raise VclError(
                f"there is data of {len(clients)} clients, but {len(state.factors)} take part; give as many."
            )
        number, factors, q = state.rounds + 1, list(state.factors), state.belief
        for k, data in enumerate(clients):
            at = rng.at("round", number) if number == 1 else rng.at("round", number, "client", k)
            factors[k] = self.answer(q, factors[k], data, model, state.heads, at, report, f"client {k}")
            if self.in_turn:
                q = self.together(state.prior, factors)
        return state._replace(rounds=number, belief=self.together(state.prior, factors), factors=tuple(factors))

    def together(self, prior: Q, factors: Sequence[Natural]) -> Q:
        """q = p prod_k t_k / Z: what the server computes."""
        product = reduce(Natural.times, factors, Natural.of(prior))
        return product.belief(prior, "the product of prior and factors", self._advice())

    def _advice(self) -> str:
        lower = f"lower the damping (now {self.damping:g})"
        return lower if self.in_turn else f"{lower}, or let clients answer in turn"
