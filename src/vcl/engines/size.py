"""Counts the values that a computation produces, by running it once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def values_made(compute: Callable[[], object], but: Iterable[Tensor] = ()) -> int:
    """The number of values in the results of all operations of ``compute``, including views and intermediates.

    Views of the tensors ``but`` do not count.
    """
    with torch.no_grad(), _Count({value.untyped_storage().data_ptr() for value in but}) as count:
        compute()
    total: int = count.total
    return total


class _Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, but: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.but, self.total = but, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.total += sum(leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, Tensor) and self._counts(leaf))
        return made

    def _counts(self, value: Tensor) -> bool:
        return not self.but or value.untyped_storage().data_ptr() not in self.but
