"""Attention by plain tensor operations, which torch can differentiate and batch over draws of the weights.

torch has faster forms, but not for this: under vmap, its fused CUDA kernels refuse some shapes ("LSE is not correctly
aligned") and its CPU kernels run one draw after another. The fused inference path that ``.eval()`` enables in
`nn.TransformerEncoderLayer` has no derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


class _Users:
    """Counts the threads inside :func:`plain_attention`, because torch's switch is global to the process."""

    def __init__(self) -> None:
        self.lock, self.count, self.before = Lock(), 0, True


_USERS = _Users()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Disables fused attention inside the context. The earlier setting is restored when the last user leaves."""
    users = _USERS
    with users.lock:
        if users.count == 0:
            users.before = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        users.count += 1
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        with users.lock:
            users.count -= 1
            if users.count == 0:
                torch.backends.mha.set_fastpath_enabled(users.before)
