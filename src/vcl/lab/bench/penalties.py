"""Training steps under the penalty of earlier tasks: EWC's diagonal beside Kronecker factors, on the standard work."""

from __future__ import annotations

import torch

from vcl.beliefs.blocks import block_shape
from vcl.beliefs.factors import DiagonalFactor
from vcl.beliefs.kronecker import Factors, Kronecker
from vcl.beliefs.kronecker_factor import KroneckerFactor
from vcl.beliefs.kronecker_fit import InBasis
from vcl.beliefs.layout import Layout
from vcl.fitting.step import Objective, make_step
from vcl.lab.bench.timing import Job
from vcl.lab.bench.work import BATCH, EXAMPLES, SIZES, Standard, belief, network
from vcl.ops.layer_weights import Block
from vcl.ops.rng import Rng
from vcl.ops.rotations import eigen
from vcl.projections.quadratic import Penalised
from vcl.projections.vi import Elbo

DIAGONAL, FACTORS, VARIATIONAL = "EWC", "lp-kron", "vcl-kron"


def steps(work: Standard, runs: int) -> dict[str, Job]:
    """One step each of EWC, of lp-kron and of the variational fit of vcl-kron (local, one draw)."""
    model = network()
    q = belief(model, runs, work.device)
    penalty = DiagonalFactor(q.layout, q.mean, torch.ones_like(q.mean))
    learned = kronecker(model.prior({"all": SIZES[3]}).layout, q.mean)
    pairs = {block: (factors.A, factors.G) for block, factors in learned.blocks.items()}
    elbo = Elbo(model, InBasis(learned, learned.blocks), 1, "local")
    return {
        DIAGONAL: _step(work, Penalised(model, q.layout, penalty), (q.mean,), runs),
        FACTORS: _step(work, Penalised(model, q.layout, KroneckerFactor(penalty, pairs)), (q.mean,), runs),
        VARIATIONAL: _step(work, elbo, elbo.parameters(learned), runs),
    }


def kronecker(layout: Layout, mean: torch.Tensor) -> Kronecker:
    """A belief with random factors for every layer."""
    g = torch.Generator().manual_seed(3)
    blocks: dict[Block, Factors] = {}
    shapes = dict(zip(*layout, strict=True))
    for weight in (name for name in shapes if name.endswith("weight")):
        block = Block(weight, weight.removesuffix("weight") + "bias")
        out, width = block_shape(block, shapes)
        A, G = (_positive(n, len(mean), g).to(mean) for n in (width, out))
        blocks[block] = Factors(A, G, mean.new_full((len(mean),), 1e4), eigen(A)[1], eigen(G)[1])
    return Kronecker(layout, mean, torch.full_like(mean, -6.0), blocks)


def _positive(n: int, runs: int, g: torch.Generator) -> torch.Tensor:
    root = torch.randn(n, n, generator=g) / n**0.5
    matrix: torch.Tensor = root @ root.mT
    return matrix.expand(runs, n, n)


def _step(work: Standard, objective: Objective, start: tuple[torch.Tensor, ...], runs: int) -> Job:
    parameters = tuple(part.clone() for part in start)
    take = make_step(objective, parameters, work.data(runs), 1e-3, Rng(tuple(range(runs))))
    index = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(2))[:BATCH].to(work.device)
    together = index.expand(runs, -1).contiguous()
    return lambda: take(together)
