"""The Kronecker-factored Gaussian: each layer's weight is independent in rotated coordinates.

    W = M + Q_G Z Q_A^T,   Z_ij ~ N(0, V_ij) independent

W [out, in + 1] is a layer's weight with its bias as the last column. Q_A and Q_G are the eigenvectors of the layer's
factors: A of its inputs and G of the gradients of its outputs. With eigenvalues a_j, g_i and a prior N(0, 1/delta),

    precision A (x) G + delta I   is exactly   V_ij = 1 / (g_i a_j + delta).

Without factors a parameter is independent as it is: V is its variance. Thus the prior is a member of this family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from vcl.beliefs.blocks import block_shape, joined, put_back
from vcl.beliefs.kronecker_factor import RotatedFactor
from vcl.beliefs.layout import Layout, Params
from vcl.beliefs.mean_field import MeanField, faded_variances, like_draws
from vcl.beliefs.stored import VECTOR, checked
from vcl.errors import VclError
from vcl.ops.layer_weights import Block
from vcl.ops.rotations import grouped, sandwich


class Factors(NamedTuple):
    """A layer's factors and their eigenvectors for R runs; n = in + 1 (in without a bias) and m = out.

    A [R, n, n] is the mean over ``rows`` [R] rows of h h^T, G [R, m, m] the sum over rows of g g^T.
    """

    A: Tensor
    G: Tensor
    rows: Tensor
    Q_A: Tensor
    Q_G: Tensor


Blocks = Mapping[Block, Factors]


class Kronecker(NamedTuple):
    """q(theta) for R runs: mean [R, D] of theta, log variances [R, D] of Z, and the factors of each layer.

    Z takes the places of its layer's weight and bias in the flat vector.
    """

    layout: Layout
    mean: Tensor
    log_var: Tensor
    blocks: Blocks

    @classmethod
    def from_prior(cls, prior: MeanField) -> Kronecker:
        """The prior, whose parameters are independent."""
        return cls(prior.layout, prior.mean, prior.log_var, {})

    def expand(self, runs: int) -> Kronecker:
        """The same one-run distribution for ``runs`` runs."""
        return self._mapped(lambda part: part.expand(runs, *part.shape[1:]))

    def to(self, where: torch.device | torch.dtype | str) -> Kronecker:
        """Move to another device or dtype."""
        return self._mapped(lambda part: part.to(where))

    def select(self, runs: Tensor) -> Kronecker:
        """The selected runs."""
        return self._mapped(lambda part: part[runs])

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Kronecker:
        blocks = {block: Factors(*map(change, factors)) for block, factors in self.blocks.items()}
        return Kronecker(self.layout, change(self.mean), change(self.log_var), blocks)

    def grow(self, prior: MeanField) -> Kronecker:
        """The belief with new parameters at the prior, independent of the old ones.

        A layer's new outputs have no information yet: G gets rows and columns of 0, Q_G those of the identity, and A
        stays. Their Z has the prior's variance 1/delta in any rotation of the inputs.
        """
        grown = self.layout.extend(prior.layout)
        if grown == self.layout:
            return self
        mean = self.layout.append(self.mean, prior.layout, prior.mean)
        log_var = self.layout.append(self.log_var, prior.layout, prior.log_var)
        shapes, variances = dict(zip(*grown, strict=True)), prior.layout.split(prior.log_var)
        blocks = dict(self.blocks)
        for block, factors in self.blocks.items():
            more = shapes[block.weight][0] - factors.G.shape[-1]
            if more:
                require_one_variance(block, variances)
                G, Q_G = _padded(factors.G, more, 0.0), _padded(factors.Q_G, more, 1.0)
                blocks[block] = factors._replace(G=G, Q_G=Q_G)
        return Kronecker(grown, mean, log_var, blocks)

    def restrict(self, part: Layout) -> Kronecker:
        """The marginal over ``part``, which must have all or nothing of a layer with factors."""
        known = set(part.names)
        for block in self.blocks:
            if len(known.intersection(block.names)) not in (0, len(block.names)):
                raise VclError(
                    f"{block.weight!r} and its bias have common factors, and only one of them was asked for; take both "
                    "or neither."
                )
        blocks = {block: factors for block, factors in self.blocks.items() if block.weight in known}
        pick = self.layout.pick
        return Kronecker(part, pick(self.mean, part), pick(self.log_var, part), blocks)

    def merge(self, part: Kronecker) -> Kronecker:
        """The belief with the parameters of ``part`` replaced; the others keep their bits."""
        kept = {block: factors for block, factors in self.blocks.items() if block.weight not in part.layout.names}
        mean = self.layout.put(self.mean, part.layout, part.mean)
        log_var = self.layout.put(self.log_var, part.layout, part.log_var)
        return Kronecker(self.layout, mean, log_var, {**kept, **part.blocks})

    def draw(self, noise: Tensor) -> Tensor:
        """theta = mean + Q_G (sqrt(V) Q_G^T noise Q_A) Q_A^T; axes of draws go between the run and the parameter axis.

        The noise is that of theta, so a draw depends neither on the signs of eigenvectors nor on their choice where V
        is the same, both of which follow from rounding.
        """
        z = like_draws((0.5 * self.log_var).exp(), noise) * rotated(self.layout, self.blocks, noise)
        return like_draws(self.mean, noise) + unrotated(self.layout, self.blocks, z)

    def factor(self) -> RotatedFactor:
        """1/2 sum_ij (Q_G^T (W - M) Q_A)_ij^2 / V_ij. Points (variance 0) have no density and are not penalised."""
        precision = torch.where(self.log_var == -torch.inf, 0, (-self.log_var).exp())
        turns = {block: (factors.Q_A, factors.Q_G) for block, factors in self.blocks.items()}
        return RotatedFactor(self.layout, self.mean, precision, turns)

    def faded(self, prior: MeanField, share: float) -> Kronecker:
        """q^(1-share) prior^share, normalised: :func:`vcl.beliefs.fading.fade`. VclError unless V stays independent.

        In rotated coordinates the precision is (1-share) / V + share delta. Where 1 / V = g a + delta, that is
        G <- (1-share) G, as of so much less data: rows get the same factor.
        """
        variances = prior.layout.split(prior.log_var)
        for block in self.blocks:
            require_one_variance(block, variances)
        log_var, weight = faded_variances(self.log_var, prior.log_var, share)
        if share == 1:
            return Kronecker(self.layout, torch.lerp(self.mean, prior.mean, weight), log_var, {})
        pull = weight * rotated(self.layout, self.blocks, prior.mean - self.mean)
        blocks = {
            block: factors._replace(G=(1 - share) * factors.G, rows=(1 - share) * factors.rows)
            for block, factors in self.blocks.items()
        }
        return Kronecker(self.layout, self.mean + unrotated(self.layout, self.blocks, pull), log_var, blocks)

    def tensors(self) -> dict[str, Tensor]:
        """mean, log_var and each layer's factors; a layer is named by the places of its parameters in the layout."""
        found = {"mean": self.mean, "log_var": self.log_var}
        for block, factors in self.blocks.items():
            places = "+".join(str(self.layout.names.index(name)) for name in block.names)
            found |= {f"{places}:{name}": value for name, value in factors._asdict().items()}
        return found

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> Kronecker:
        """The inverse of :meth:`tensors`, checked."""
        plain = {name: value for name, value in tensors.items() if ":" not in name}
        mean, log_var = checked(layout, plain, {"mean": VECTOR, "log_var": VECTOR}, points=["log_var"])
        rest: dict[str, dict[str, Tensor]] = {}
        for name in tensors.keys() - plain.keys():
            places, _, what = name.partition(":")
            rest.setdefault(places, {})[what] = tensors[name]
        shapes = dict(zip(*layout, strict=True))
        blocks: dict[Block, Factors] = {}
        for places in sorted(rest, key=lambda places: (len(places), places)):
            block = _block_at(layout, places)
            blocks[block] = _checked_factors(places, rest[places], block_shape(block, shapes), mean)
        return cls(layout, mean, log_var, blocks)


def _block_at(layout: Layout, places: str) -> Block:
    given, known = places.split("+"), len(layout.names)
    if len(given) > 2 or not all(place.isdigit() and int(place) < known for place in given):
        raise VclError(f"{places} names no layer")
    names = [layout.names[int(place)] for place in given]
    return Block(names[0], names[1] if len(names) == 2 else None)


def _checked_factors(places: str, given: Mapping[str, Tensor], shape: tuple[int, int], mean: Tensor) -> Factors:
    (m, n), runs = shape, len(mean)
    wanted = {"A": (runs, n, n), "G": (runs, m, m), "rows": (runs,), "Q_A": (runs, n, n), "Q_G": (runs, m, m)}
    for name in wanted.keys() | given.keys():
        if name not in given or name not in wanted:
            raise VclError(f"{places}:{name} is {'missing' if name in wanted else 'too much'}")
        value = given[name]
        if tuple(value.shape) != wanted[name] or value.dtype != mean.dtype:
            raise VclError(f"{places}:{name} has shape {tuple(value.shape)} and dtype {value.dtype}")
        if not bool(value.isfinite().all()):
            raise VclError(f"{places}:{name} holds numbers that are not finite")
    return Factors(*(given[name] for name in Factors._fields))


def _padded(values: Tensor, more: int, diagonal: float) -> Tensor:
    """``values`` [R, m, m] with ``more`` rows and columns of 0, and ``diagonal`` on their diagonal."""
    found = torch.nn.functional.pad(values, (0, more, 0, more))
    found.diagonal(dim1=-2, dim2=-1)[:, -more:] = diagonal
    return found


def require_one_variance(block: Block, log_vars: Params) -> None:
    """Raise VclError unless the prior has one variance within each run for all parameters of a layer with factors."""
    values = joined(log_vars, block, 1).flatten(1)
    if bool((values != values[:, :1]).any()):
        raise VclError(
            f"the layer of {block.weight!r} has Kronecker factors, and the prior gives its parameters different "
            "variances, which are not known in rotated coordinates; give the layer one prior variance."
        )


def rotated(layout: Layout, blocks: Blocks, theta: Tensor) -> Tensor:
    """Q_G^T W Q_A of every layer, for theta [R, ..., D]: the inverse of :func:`unrotated`."""
    if not blocks:
        return theta
    params, lead = layout.split(theta), theta.dim() - 1
    for block, factors in blocks.items():
        W = joined(params, block, lead)
        put_back(params, block, sandwich(grouped(factors.Q_G.mT), W, grouped(factors.Q_A)))
    return layout.join(params, lead=lead)


def unrotated(layout: Layout, blocks: Blocks, z: Tensor) -> Tensor:
    """Q_G Z Q_A^T of every layer, for z [R, ..., D]."""
    if not blocks:
        return z
    params, lead = layout.split(z), z.dim() - 1
    for block, factors in blocks.items():
        Z = joined(params, block, lead)
        put_back(params, block, sandwich(grouped(factors.Q_G), Z, grouped(factors.Q_A.mT)))
    return layout.join(params, lead=lead)
