"""The numbers that a fit holds at once, besides beliefs and data. They depend on the engine that computes it.

    climb    the parameters, their gradient and the optimiser's moments; for a point also its start and last gradient
    source   what is drawn: noise of all runs (Triton kernels generate theirs), weights and their gradients
    walk     the outputs of every layer, and the gradients of the backward pass

In torch the layered engine processes one run at a time, so source and walk count one run. In Triton and in the general
engine they count all runs.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field_torch import SMALL
from vcl.engines.structure import Fork, Latent, Opaque
from vcl.fitting.kronecker_curvature import KroneckerCurvature
from vcl.models.base import roles
from vcl.ops.layer_weights import Block

PENALTY = 6
"""Values per parameter of a quadratic penalty: centre, precision, weight, start, and temporaries of its gradient."""

FACTORS = 16
"""Copies of a layer's A and G at once: old, new, of this task and of its last round, with eigenvectors in double."""

GENERAL = 4
"""Values per unit and row that torch keeps in the general engine, which differentiates a whole pass."""


class Rows(NamedTuple):
    """Draws and examples in a walk, and the operations that compute it."""

    draws: int
    examples: int
    triton: bool
    local: bool


def fit_values(project: Any, model: Any, heads: dict[str, int], triton: bool, runs: int, examples: int) -> int:
    """The peak count of numbers in a fit to ``examples`` examples of these heads, by an iterative projection."""
    layout = model.layout(heads)
    held, spread, points = roles(model, layout)
    structure, estimator = model.structure(tuple(heads)), getattr(project, "estimator", None)
    draws = getattr(project, "draws", 1) if model.latent or estimator is not None else 1
    batch = min(project.ascent.batch or examples, examples)
    shared = set(points.names) if estimator is not None else set(layout.names)
    rows = Rows(draws, batch, triton, estimator == "local")
    if isinstance(structure, Opaque):
        units = draws * sum(shape[0] for shape in layout.shapes if len(shape) > 1)
        at_once, walk = runs, GENERAL * batch * units
    else:
        at_once = runs if triton else 1
        # The last batch of an epoch may be smaller, and has its own memory.
        walks = (walk_values(structure, layout, shared, rows._replace(examples=n)) for n in (batch, examples % batch))
        walk = sum(walks)
    if estimator is None:
        climb = layout.size * (6 + (PENALTY if hasattr(project, "lam") else 0))
        source, noise = layout.size, 0
    else:
        climbed = 2 * spread.size + points.size
        # Natural gradients keep one mean gradient and its noise for each mean; Adam keeps two moments of every value.
        kept = 3 if getattr(project, "natural", None) else 4
        climb = (kept + (project.ascent.average > 0)) * climbed + (held.size if held.size <= SMALL else 0)
        source, noise = _source(rows, spread, points, isinstance(structure, Opaque))
        if held != layout:  # the KL covers a part: one copy of that of q_{t-1}, and one of q's per step
            climb += 2 * held.size + points.size
            source += 0 if triton else 8 * held.size
    noise += draws * batch * model.latent
    total: int = runs * (climb + noise + factor_values(project, layout)) + at_once * (source + walk)
    return total


def factor_values(project: Any, layout: Layout) -> int:
    """Values of the Kronecker factors of every layer and their eigenvectors; 0 for other projections."""
    curvature = getattr(getattr(project, "laplace", project), "curvature", None)
    if not isinstance(curvature, KroneckerCurvature):
        return 0
    sizes = ((shape[0], prod(shape[1:]) + 1) for shape in layout.shapes if len(shape) > 1)
    return FACTORS * sum(out**2 + width**2 for out, width in sizes if max(out, width) <= curvature.most)


def _source(rows: Rows, spread: Layout, points: Layout, general: bool) -> tuple[int, int]:
    """Weights of the active runs with their gradients, and the noise of every run."""
    matrices = [shape for shape in spread.shapes if len(shape) == 2]
    if rows.local:
        units = rows.draws * rows.examples * sum(shape[0] for shape in matrices)
        return (6 if rows.triton or general else 3) * spread.size + points.size, units
    # Two copies per draw: weights, and gradients until they are summed. In the general engine torch adds a third.
    copies = (2 if rows.draws > 1 or rows.triton else 1) + general
    kept = points.size if rows.triton else 2 * spread.size + points.size
    return copies * rows.draws * spread.size + kept, 0 if rows.triton else rows.draws * spread.size


def walk_values(structure: Fork | Latent, layout: Layout, shared: set[str], rows: Rows) -> int:
    """Values in one run's forward and backward pass; draws share the weights named in ``shared``."""
    if not rows.examples:
        return 0
    walk, every = _Walk(dict(zip(*layout, strict=True)), shared, rows), rows.draws * rows.examples
    if isinstance(structure, Latent):
        encoder, decoder = ([step for step in chain if isinstance(step, Block)] for chain in structure[:2])
        total = walk.chain(encoder, True, False) + walk.chain(decoder, False, True)
        return total + every * (3 * structure.latent + 3 * walk.shapes[decoder[-1].weight][0]) + walk.inputs
    trunk, heads = [step for step in structure.trunk if isinstance(step, Block)], list(structure.heads.values())
    total = walk.chain(trunk, True, False)
    together = all(block.weight in shared for block in trunk)
    for head in heads:
        total += walk.layer(head, together, bool(trunk)) + 3 * every * walk.shapes[head.weight][0]
    if len(heads) > 1:  # gradients of several heads are summed
        total += 2 * every * walk.shapes[heads[0].weight][1]
    return total + walk.inputs


class _Walk:
    """Counts values in layers. Draws share inputs up to the first layer whose weights they do not share."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], shared: set[str], rows: Rows) -> None:
        self.shapes, self.shared, self.rows, self.inputs = shapes, shared, rows, 0

    def chain(self, blocks: list[Block], shared_input: bool, below: bool) -> int:
        """Values of all layers of a chain."""
        total = 0
        for block in blocks:
            total += self.layer(block, shared_input, below)
            shared_input, below = shared_input and block.weight in self.shared, True
        return total

    def layer(self, block: Block, shared_input: bool, below: bool) -> int:
        """Values of one layer: outputs, inputs if their squares are kept, and the gradients of both."""
        (draws, examples, triton, local), (out, width) = self.rows, self.shapes[block.weight]
        if not self.inputs:
            self.inputs = examples * width
        every, shared_weight = draws * examples, block.weight in self.shared
        rows = examples if shared_input else every
        if local and not shared_weight:
            moments = 4 * rows * out + (2 * every * out if shared_input and not triton else 0)
            return moments + 2 * rows * width * (2 if below else 1)
        made = (examples if shared_input and shared_weight else every) * out
        wide = triton and shared_input and not shared_weight and draws > 1
        return made * (3 if wide else 1) + (rows * width if below else 0)
