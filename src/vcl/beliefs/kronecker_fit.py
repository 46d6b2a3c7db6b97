"""The variational fit of a Kronecker-factored Gaussian, in a basis that is fixed for the fit.

    W = Q_G (Mbar + Z) Q_A^T,   Z_ij ~ N(0, V_ij)

In the rotated coordinates Q_G^T W Q_A the family is mean field, with a layer's bias as one more input. Only the KL
differs, because q_{t-1} has a basis of its own. With P_ij = 1 / V_ij of q_{t-1} and B_G = P_G^T Q_G, B_A = P_A^T Q_A
for its eigenvectors P_G, P_A,

    KL(q || q_{t-1}) = 1/2 [ sum_ij E_ij V_ij - log V_ij - log P_ij - 1 + P_ij (B_G Delta B_A^T)_ij^2 ]

where Delta is the distance of the means in q's coordinates and E = (B_G^2)^T P (B_A^2), squares taken entry by entry,
is the diagonal of q_{t-1}'s precision in q's basis.
"""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from vcl.beliefs.belief import Roles
from vcl.beliefs.blocks import block_shape, joined, put_back
from vcl.beliefs.kronecker import Blocks, Kronecker, unrotated
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import like_draws
from vcl.errors import VclError, unknown
from vcl.ops.layer_weights import Block
from vcl.ops.rotations import grouped, sandwich

CLIMBS = ("log_var", "log_sd")
Parameters = tuple[Tensor, ...]


class InBasis(NamedTuple):
    """q_{t-1} and the basis in which a fit that starts from it describes q."""

    previous: Kronecker
    basis: Blocks

    @property
    def layout(self) -> Layout:
        """That of theta."""
        return self.previous.layout

    @property
    def mean(self) -> Tensor:
        """That of q_{t-1}."""
        return self.previous.mean

    def bind(self, roles: Roles, climbs: str) -> KroneckerFit:
        """The fit."""
        return KroneckerFit(self.previous, self.basis, roles, climbs)


class _Turn(NamedTuple):
    """The rotations of a group of runs from q's coordinates to those of q_{t-1}, and the precision there."""

    B_G: Tensor
    B_A: Tensor
    P: Tensor


@final
class KroneckerFit:
    """Optimises rotated means and log variances (or log deviations), each [R, D]."""

    def __init__(self, previous: Kronecker, basis: Blocks, roles: Roles, climbs: str = "log_var") -> None:
        if climbs not in CLIMBS:
            raise unknown("climbs", climbs, CLIMBS)
        loose = [name for name in previous.layout.names if name not in roles.held.names]
        if loose:
            raise VclError(
                f"a Kronecker-factored Gaussian needs a posterior over every parameter, but {loose[0]!r} is a point or "
                "free; give that model a mean-field belief."
            )
        lost = [block.weight for block in previous.blocks if block not in basis]
        if lost:
            raise VclError(f"the belief has factors of {lost[0]!r}, but the basis of the fit has none; give it one.")
        self.theta, self.basis = previous.layout, basis
        self.layout = self.held = self.spread = rotated_layout(previous.layout, basis)
        self.points = Layout((), ())
        self.scale = 1 if climbs == "log_var" else 2
        """log V = scale * log, where log is the optimised parameter."""
        self.rotations = {block.weight: (f.Q_A.contiguous(), f.Q_G.contiguous()) for block, f in basis.items()}
        """Q_A [R, n, n] and Q_G [R, m, m], by weight name."""
        self.mean = self._rotated(previous.mean)
        precision = (-previous.log_var).exp()
        effective, own = previous.layout.split(precision), previous.layout.split(precision)
        self.turns: dict[str, list[_Turn]] = {}
        """For layers whose q_{t-1} is not isotropic, by weight name: one entry for each group of runs."""
        for block in basis:
            P = joined(own, block, 1)
            if block in previous.blocks or bool((P[:, :1, :1] != P).any()):
                turns = self._turns(previous, block, P)
                self.turns[block.weight] = turns
                put_back(effective, block, torch.cat([t.B_G.square().mT @ t.P @ t.B_A.square() for t in turns]))
        self.effective = self._in_rotated_layout(effective)
        """E [R, D]."""
        self.log_det = previous.log_var.sum(1)
        own = self.layout.split(self._in_rotated_layout(previous.layout.split(previous.log_var)))
        self.log_dets = {name: part.flatten(1).sum(1) for name, part in own.items()}

    def _turns(self, previous: Kronecker, block: Block, P: Tensor) -> list[_Turn]:
        Q_A, Q_G = (grouped(part) for part in self.rotations[block.weight])
        factors = previous.blocks.get(block)
        if factors is not None:
            Q_A = tuple(old.mT @ new for old, new in zip(grouped(factors.Q_A), Q_A, strict=True))
            Q_G = tuple(old.mT @ new for old, new in zip(grouped(factors.Q_G), Q_G, strict=True))
        return [_Turn(*each) for each in zip(Q_G, Q_A, grouped(P), strict=True)]

    @property
    def noise(self) -> int:
        """One standard normal per parameter."""
        return self.theta.size

    def parameters(self, q: Kronecker) -> Parameters:
        """The optimised parameters at q, which has this fit's basis."""
        log_var = self._in_rotated_layout(q.layout.split(q.log_var))
        return self._rotated(q.mean), (log_var if self.scale == 1 else log_var / self.scale).contiguous()

    def belief(self, parameters: Parameters) -> Kronecker:
        """The inverse of :meth:`parameters`."""
        mean, log = parameters
        theta = unrotated(self.theta, self.basis, self._in_theta(mean))
        return Kronecker(self.theta, theta, self._in_theta(self.log_var(log)), self.basis)

    def log_var(self, log: Tensor) -> Tensor:
        """log V, from the optimised log."""
        return log if self.scale == 1 else self.scale * log

    def draw(self, parameters: Parameters, noise: Tensor) -> Tensor:
        """theta = Q_G (Mbar + sqrt(V) Q_G^T noise Q_A) Q_A^T: [R, S, D], as :meth:`Kronecker.draw` does."""
        mean, log = parameters
        z = like_draws(mean, noise) + like_draws((0.5 * self.log_var(log)).exp(), noise) * self._rotated(noise)
        return unrotated(self.theta, self.basis, self._in_theta(z))

    def kl(self, parameters: Parameters) -> Tensor:
        """KL(q || q_{t-1}) of each run [R]."""
        return torch.stack([*self.kl_by_tensor(parameters).values()]).sum(0)

    def kl_by_tensor(self, parameters: Parameters) -> dict[str, Tensor]:
        """The parts of :meth:`kl`, each [R]: of every layer with a basis, by its weight's name, and of each tensor."""
        mean, log = parameters
        split, log_var, shift = self.layout.split, self.log_var(log), mean - self.mean
        traces, shifts, effective = split(self.effective * log_var.exp() - log_var), split(shift), split(self.effective)
        found = {}
        for name, each in traces.items():
            part, turns = shifts[name], self.turns.get(name)
            if turns is None:
                pull = effective[name] * part
            else:
                pieces = torch.split(part, len(turns[0].P))
                pull = torch.cat([_pull(turn, piece) for turn, piece in zip(turns, pieces, strict=True)])
            twice = (each + pull * part).flatten(1).sum(1) + self.log_dets[name] - each[0].numel()
            found[name] = 0.5 * twice
        return found

    def sd_by_tensor(self, parameters: Parameters) -> dict[str, Tensor]:
        """The mean over each tensor of theta of sqrt(Var[W]), Var[W] = (Q_G^2) V (Q_A^2)^T entry by entry, each [R]."""
        params = self.theta.split(self._in_theta(self.log_var(parameters[1]).exp()))
        for block, f in self.basis.items():
            V = joined(params, block, 1)
            put_back(params, block, sandwich(grouped(f.Q_G.square()), V, grouped(f.Q_A.square().mT)))
        return {name: var.sqrt().flatten(1).mean(1) for name, var in params.items()}

    def subtract_kl(
        self, mean: Tensor, log_var: Tensor, g_mean: Tensor, g_log_var: Tensor, var: Tensor | None, runs: slice
    ) -> Tensor:
        """KL of ``runs``; subtracts its gradient from g_mean and g_log_var in place; all [G, D]."""
        effective = self.effective[runs]
        weighted = effective * (log_var.exp() if var is None else var)
        g_log_var.sub_(weighted - 1, alpha=0.5)
        shift = mean - self.mean[runs]
        pull = effective * shift
        pulls, shifts = self.layout.split(pull), self.layout.split(shift)
        for name, turns in self.turns.items():
            group = len(turns[0].P)
            for at in range(0, len(mean), group):
                some = slice(at, at + group)
                turn = turns[(runs.start + at) // group]
                pulls[name][some].copy_(_pull(turn, shifts[name][some].contiguous()))
        g_mean.sub_(pull)
        total = (weighted - log_var).sum(1) + self.log_det[runs] - self.theta.size
        return 0.5 * (total + (pull * shift).sum(1))

    def _rotated(self, theta: Tensor) -> Tensor:
        """theta [R, ..., D] in rotated coordinates Q_G^T W Q_A."""
        params, lead = self.theta.split(theta), theta.dim() - 1
        for block, f in self.basis.items():
            put_back(params, block, sandwich(grouped(f.Q_G.mT), joined(params, block, lead), grouped(f.Q_A)))
        return self._in_rotated_layout(params, lead)

    def _in_rotated_layout(self, params: dict[str, Tensor], lead: int = 1) -> Tensor:
        """Values by theta's names, with each layer's weight and bias as one matrix: [R, ..., D]."""
        whole = {block.weight: joined(params, block, lead) for block in self.basis}
        return self.layout.join({**params, **whole}, lead=lead).contiguous()

    def _in_theta(self, values: Tensor) -> Tensor:
        """Values [R, ..., D] of the rotated layout, at the places of theta's layout."""
        lead = values.dim() - 1
        params = self.layout.split(values)
        shapes = dict(zip(*self.theta, strict=True))
        for block in self.basis:
            W = params[block.weight]
            if block.bias is not None:
                W, params[block.bias] = W[..., :-1], W[..., -1]
            params[block.weight] = W.reshape(*values.shape[:-1], *shapes[block.weight])
        return self.theta.join(params, lead=lead)


def rotated_layout(layout: Layout, basis: Blocks) -> Layout:
    """theta's layout with each layer of ``basis`` as one matrix [out, in + 1], under its weight's name."""
    shapes = dict(zip(*layout, strict=True))
    for block in basis:
        matrix = block_shape(block, shapes)
        shapes[block.weight] = matrix
        if block.bias is not None:
            del shapes[block.bias]
    return Layout(tuple(shapes), tuple(shapes.values()))


def _pull(turn: _Turn, shift: Tensor) -> Tensor:
    """B_G^T (P (B_G Delta B_A^T)) B_A: q_{t-1}'s precision times the distance of the means, in q's coordinates."""
    B_G, B_A, P = turn
    return B_G.mT @ (P * (B_G @ shift @ B_A.mT)) @ B_A
