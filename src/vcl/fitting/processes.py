"""One fit over several processes: each takes a share of every batch, and the gradients are summed.

With B_p of a batch's B examples in process p, and L_p what it finds on them alone,

    L_p = N/B_p sum_{n in B_p} log p(y^(n) | theta, x^(n)) - penalty(theta),      L = sum_p (B_p / B) L_p

holds for every sum over examples minus a penalty, whatever the family, and so for the gradients. All processes hold the
same data and the same random numbers, so they take the same examples, the same draws and the same step. Curvature is a
sum over examples too. Outside :func:`sharing` nothing is summed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import final

import torch
from torch import Tensor
from torch import distributed as dist

from vcl.data import Data
from vcl.errors import VclError


@final
@dataclass(frozen=True)
class Group:
    """The processes that share a fit: this one's number, and how many there are."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether nothing is shared."""
        return self.size == 1

    def rows(self, count: int) -> slice:
        """This process's share of ``count`` examples; it may be empty."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def share(self, count: int) -> tuple[slice, float]:
        """The examples of a batch to work on, at least one, and their weight B_p / B; 0 without an own share."""
        rows = self.rows(count)
        own = rows.stop - rows.start
        return (rows, own / count) if own else (slice(0, 1), 0.0)

    def mean(self, weight: float, values: Sequence[Tensor]) -> list[Tensor]:
        """sum_p weight_p values_p of tensors [R, ...], by one exchange."""
        flat = torch.cat([value.reshape(len(value), -1) for value in values], dim=1).mul_(weight)
        self.add(flat)
        parts = torch.split(flat, [value[0].numel() for value in values], dim=1)
        return [part.view(value.shape) for part, value in zip(parts, values, strict=True)]

    def add(self, *values: Tensor) -> None:
        """Replace tensors by their sums over processes."""
        for value in () if self.alone else values:
            whole = value.contiguous()
            try:
                dist.all_reduce(whole)
            except RuntimeError as error:
                raise _lost(error) from error
            if whole is not value:
                value.copy_(whole)

    def agree(self, what: str, device: torch.device, **parts: int) -> None:
        """Raise VclError, in every process, unless each part has the same number in all processes."""
        if self.alone:
            return
        mine = torch.tensor(list(parts.values()), dtype=torch.int64, device=device)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            dist.all_gather(found, mine)
        except RuntimeError as error:
            raise _lost(error) from error
        for rank, theirs in enumerate(found):
            differ = [name for name, same in zip(parts, (theirs == found[0]).tolist(), strict=True) if not same]
            if differ:
                raise VclError(
                    f"process {rank} of {self.size} has other {' and '.join(differ)} than process 0 in the {what} that "
                    "they share; give all processes the same command, data and seeds."
                )


ALONE = Group()
_now = ALONE


def current() -> Group:
    """The processes that share the fits of this one."""
    return _now


@contextmanager
def sharing() -> Iterator[Group]:
    """Within, every fit is shared by the processes that torchrun started; without torchrun, nothing changes.

    Gradients are summed by gloo on a CPU and by nccl on GPUs, one for each process of a machine. A program that has
    called ``torch.distributed.init_process_group`` itself shares by that group. Fit in one thread.
    """
    global _now
    begun = not dist.is_available() or not (dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) > 1)
    if begun or not _now.alone:
        yield _now
        return
    own = not dist.is_initialized()
    if own:
        _begin()
    _now = Group(dist.get_rank(), dist.get_world_size())
    try:
        yield _now
    finally:
        _now = ALONE
        if own:
            dist.destroy_process_group()


def _begin() -> None:
    """Join the processes that torchrun started, each with a GPU of its own where there are GPUs."""
    place = int(os.environ.get("LOCAL_RANK", "0"))
    if place < torch.cuda.device_count():
        torch.cuda.set_device(place)
    # Named, because without a name torch 2.11 makes nccl alone where there are GPUs, which cannot sum tensors of a CPU.
    both = dist.is_gloo_available() and dist.is_nccl_available() and torch.cuda.is_available()
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if both else None)
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise VclError(
            f"this process cannot join the others ({why}); start all of them by torchrun, without vcl's own jobs."
        ) from error


def _lost(error: RuntimeError) -> VclError:
    if "Duplicate GPU" in str(error):
        return VclError(
            "two processes of this machine use one GPU, and nccl needs one for each; start torchrun with as many "
            "processes as there are GPUs, or fit on the CPU."
        )
    why = str(error).splitlines()[0]
    return VclError(f"the exchange with the other processes failed ({why}); see what ended them, and start again.")


def digest(*parts: object) -> int:
    """A number for values that have a fixed text."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=7).digest())


def digest_of(tensors: Sequence[Tensor]) -> int:
    """A number for the bits of tensors and their order, exact on every device."""
    found = []
    for value in tensors:
        # Runs that share examples have a stride of 0.
        bits = (value[:1] if value.dim() and value.stride(0) == 0 else value).contiguous().view(torch.uint8).flatten()
        whole = bits[: len(bits) // 4 * 4].view(torch.int32)
        place = torch.arange(len(whole), dtype=torch.int32, device=value.device)
        found += [int((whole * (2 * place + 1)).sum(dtype=torch.int64)), bits[len(whole) * 4 :].tolist()]
    return digest([tuple(value.shape) for value in tensors], found)


def agree_on(
    group: Group, what: str, settings: object, seeds: object, data: Data, start: tuple[Tensor, ...], steps: int
) -> None:
    """Raise VclError, in every process, unless all are about to take the same steps."""
    if group.alone:
        return
    parts: Mapping[str, int] = {
        "settings": digest(what, settings),
        "seeds": digest(seeds),
        "data": digest_of((data.x, data.y, data.source)),
        "start values": digest_of(start),
        "saved steps": steps,
    }
    group.agree(what, start[0].device, **parts)


def own_pieces(parts: Sequence[Tensor], size: int) -> Iterator[tuple[Tensor, ...]]:
    """This process's share of examples [R, N, ...], ``size`` of them at a time."""
    rows = current().rows(parts[0].shape[1])
    if rows.stop > rows.start:
        yield from zip(*(torch.split(part[:, rows], size, dim=1) for part in parts), strict=True)
