"""L(q) of a Kronecker-factored Gaussian by local reparameterisation, layer by layer.

    a = Q_G ( Mbar x' + sqrt(V x'^2) Q_G^T eps ),   x' = Q_A^T [x, 1]

W = Q_G (Mbar + Z) Q_A^T with independent Z, so a is Gaussian with the covariance Q_G diag(V x'^2) Q_G^T: exact, with
noise for units instead of weights. The signs of eigenvectors do not matter. A layer without factors has
a = M x + b + sqrt(V x^2 + v) eps. All draws share the first layer's products. Runs are computed together on a GPU and
one by one on a CPU.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from vcl.beliefs.kronecker_fit import KroneckerFit
from vcl.data import Data, as_labels, weight_of_each
from vcl.engines.bound import Parameters, split_noise
from vcl.engines.general import Gradient, differentiate
from vcl.engines.layered import Layered
from vcl.engines.structure import Chain, Fork, blocks_of
from vcl.engines.walk import runs_of
from vcl.ops.layer_weights import Block
from vcl.ops.layers import TINY
from vcl.ops.noise import Key
from vcl.ops.rows import as_input


@final
class RotatedBound:
    """L(q) for a fork of chains; torch differentiates the layers, and the KL has an explicit gradient."""

    seeded, unit = False, 1

    def __init__(self, engine: Layered, fit: KroneckerFit, draws: int) -> None:
        assert isinstance(engine.structure, Fork)
        self.structure: Fork = engine.structure
        self.fit, self.draws, self.shapes = fit, draws, engine.shapes
        self.name = f"{engine.name.partition('/')[0]}/torch, rotated"

    def noise(self, batch: Data) -> int:
        """One per unit and example of every linear layer."""
        return batch.size * sum(self.widths(batch))

    def widths(self, batch: Data) -> tuple[int, ...]:
        """Of every linear layer."""
        return tuple(self.shapes[block.weight][0] for block in blocks_of(self.structure, batch.heads))

    def value(self, parameters: Parameters, batch: Data, total: int, noise: Tensor) -> Tensor:
        """L(q) of each run [R], differentiable by torch."""
        mean, log = parameters
        groups = self._groups(len(mean))
        found = [self._fitted(mean[runs], log[runs], runs_of(batch, runs), noise[runs], runs) for runs in groups]
        share = weight_of_each(batch.size, total) / self.draws
        return share * torch.cat(found) - self.fit.kl(parameters)

    def gradient(self, parameters: Parameters, batch: Data, total: int, noise: Tensor | Key) -> Gradient:
        """L(q) of each run and its gradient in the means and logs."""
        assert isinstance(noise, Tensor)
        share = weight_of_each(batch.size, total) / self.draws
        values, means, logs = [], [], []
        for runs in self._groups(len(noise)):
            part, some = runs_of(batch, runs), noise[runs]

            def fitted(mean: Tensor, log: Tensor, part: Data = part, some: Tensor = some, runs: slice = runs) -> Tensor:
                return share * self._fitted(mean, log, part, some, runs)

            mean, log = (values[runs].contiguous() for values in parameters)
            value, (g_mean, g_log) = differentiate(fitted, (mean, log))
            g_log = g_log / self.fit.scale
            value = value - self.fit.subtract_kl(mean, self.fit.log_var(log), g_mean, g_log, None, runs)
            values.append(value)
            means.append(g_mean)
            logs.append(g_log * self.fit.scale)
        return torch.cat(values), (torch.cat(means), torch.cat(logs))

    def _groups(self, runs: int) -> list[slice]:
        if self.fit.mean.device.type != "cpu":
            return [slice(0, runs)]
        return [slice(run, run + 1) for run in range(runs)]

    def _fitted(self, mean: Tensor, log: Tensor, batch: Data, noise: Tensor, runs: slice) -> Tensor:
        """sum_n sum_s log p(y^(n) | theta_s, x^(n)) of each run [G]."""
        means, variances = self.fit.layout.split(mean), self.fit.layout.split(self.fit.log_var(log).exp())
        tape, _ = split_noise(noise, self.draws, -1, batch.size, 0)
        walk = _Walk(self.fit, means, variances, tape, batch.size, runs)  # type: ignore[arg-type]
        x = as_input(batch.x) if not batch.x.is_floating_point() else batch.x.to(mean)
        h = walk.chain(self.structure.trunk, x.to(mean.dtype).flatten(2).unsqueeze(1))
        y = batch.y if batch.y.is_floating_point() else as_labels(batch.y, 2)
        total: Any = 0
        for head in batch.heads:
            output = walk.linear(self.structure.heads[head], h)
            total = total + self._scored(output, y, batch, head)
        return total  # type: ignore[no-any-return]

    def _scored(self, output: Tensor, y: Tensor, batch: Data, head: str) -> Tensor:
        """sum over draws and the head's examples of log p(y | output), for outputs [G, S, B, C]: [G]."""
        runs, draws, examples = output.shape[:3]
        labels, mine = y, None
        if len(batch.heads) > 1:
            places = [at for at, source in enumerate(batch.sources) if source.head == head]
            mine = torch.stack([batch.source == at for at in places]).any(0)
            labels = y if y.is_floating_point() else y.where(mine, 0)
        each = labels.unsqueeze(1).expand(runs, draws, *labels.shape[1:])
        flat = each.reshape(runs * draws * examples, *labels.shape[2:])
        found: Tensor = self.structure.likelihood.log_prob(output.reshape(-1, output.shape[-1]), flat)
        found = found.view(runs, draws, examples)
        return (found if mine is None else found * mine.unsqueeze(1).to(found.dtype)).sum((1, 2))


@final
class _Walk:
    """One pass; every linear layer takes the next piece of the noise [G, S, K]."""

    def __init__(
        self, fit: KroneckerFit, means: dict[str, Tensor], variances: dict[str, Tensor], tape: Tensor, examples: int,
        runs: slice,
    ) -> None:  # fmt: skip
        self.fit, self.means, self.variances = fit, means, variances
        self.tape, self.examples, self.runs, self.at = tape, examples, runs, 0

    def chain(self, chain: Chain, h: Tensor) -> Tensor:
        """The outputs [G, S, B, out] of a chain for rows h [G, S, B, in]; a shared S is 1."""
        for step in chain:
            h = self.linear(step, h) if isinstance(step, Block) else step(h)
        return h

    def linear(self, block: Block, h: Tensor) -> Tensor:
        """a [G, S, B, out]."""
        M, V = self.means[block.weight], self.variances[block.weight]
        size, out = self.examples, M.shape[1]
        eps = self.tape[..., self.at : self.at + size * out].view(*self.tape.shape[:2], size, out)
        self.at += size * out
        turns = self.fit.rotations.get(block.weight)
        if turns is None:
            m, d = _products(h, M), _products(h.square(), V)
            if block.bias is not None:
                b, v = (part[block.bias][:, None, None] for part in (self.means, self.variances))
                m, d = m + b, d + v
            return torch.addcmul(m, (d + TINY).sqrt(), eps)
        Q_A, Q_G = (turn[self.runs] for turn in turns)
        if block.bias is not None:
            h = torch.cat([h, h.new_ones(*h.shape[:3], 1)], 3)
        seen = _products(h, Q_A.mT)
        deviation = (_products(seen.square(), V) + TINY).sqrt()
        return _products(torch.addcmul(_products(seen, M), deviation, _products(eps, Q_G.mT)), Q_G)


def _products(h: Tensor, W: Tensor) -> Tensor:
    """h W^T for rows h [G, S, B, in] and matrices W [G, out, in]."""
    runs, draws, examples, _ = h.shape
    return torch.bmm(h.reshape(runs, draws * examples, -1), W.mT).view(runs, draws, examples, -1)
