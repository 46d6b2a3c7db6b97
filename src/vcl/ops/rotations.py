"""Matrix products and eigenvectors for R runs, each run as if it were alone.

Matrix products round by the memory and number of what they multiply. On a CPU every run is therefore multiplied by
itself, from memory of its own; on a GPU all runs are multiplied at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

Groups = tuple[Tensor, ...]
"""Matrices [G, n, n] of the groups of runs that are computed at once: one run on a CPU, all runs on a GPU."""


ALIGNED = 64
"""Bytes: the alignment of torch's own memory, and a cache line."""


def grouped(values: Tensor) -> Groups:
    """``values`` [R, ...] by groups, each in memory of the same alignment."""
    if values.device.type != "cpu":
        return (values.contiguous(),)
    if len(values) == 1 and values.is_contiguous() and values.data_ptr() % ALIGNED == 0:
        return (values,)
    return tuple(run.clone(memory_format=torch.contiguous_format) for run in torch.split(values, 1))


def sandwich(left: Groups, W: Tensor, right: Groups) -> Tensor:
    """left W right for W [R, ..., m, n], with left [R, m, m] and right [R, n, n]; axes between are draws."""
    inner = (slice(None),) + (None,) * (W.dim() - 3)
    parts = grouped(W)
    found = [L[inner] @ part @ M[inner] for L, part, M in zip(left, parts, right, strict=True)]
    return found[0] if len(found) == 1 else torch.cat(found)


def eigen(values: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues [R, n] in float64 and eigenvectors [R, n, n] of symmetric matrices, computed in float64.

    Eigenvalues that rounding leaves instead of 0, some of them negative, are set to 0. Any basis of their space would
    do, and rounding would choose it; theirs is that of the eigenvectors of diag(1, ..., 2) within the space.
    """
    found = [torch.linalg.eigh(part.double()) for part in grouped(values)]
    eigenvalues = torch.cat([each.eigenvalues for each in found])
    vectors = torch.cat([each.eigenvectors for each in found])
    n = values.shape[-1]
    least = max(n * torch.finfo(torch.float64).eps, torch.finfo(values.dtype).eps) * eigenvalues[:, -1:].clamp(min=0)
    nothing = eigenvalues <= least
    scale = torch.linspace(1, 2, n, dtype=torch.float64, device=values.device).unsqueeze(1)
    for run, count in enumerate(nothing.sum(1).tolist()):
        if count > 1:
            space = vectors[run, :, :count].contiguous()
            vectors[run, :, :count] = space @ torch.linalg.eigh(space.mT @ (scale * space)).eigenvectors
    return eigenvalues.masked_fill(nothing, 0), vectors.to(values.dtype)
