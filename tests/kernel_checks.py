"""Both ways of everything that has a kernel: by the kernel, and by torch.

On a CUDA device the kernels run there and torch on the CPU. Where TRITON_INTERPRET=1 is set (``make test-kernels``),
Triton's interpreter runs them on the CPU instead: every load, store and mask is done, by NumPy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

import vcl
from vcl.ops import kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
POSSIBLE = kernels.triton is not None and (INTERPRETED or torch.cuda.is_available())
MODULES = ("draws", "inputs", "layers", "parameters", "readout", "scores")

T = TypeVar("T", bound=Callable[..., Any])


@contextmanager
def by_kernels() -> Iterator[None]:
    """Within it kernels are used; under the interpreter that is for tensors on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if INTERPRETED:
            patch.setattr(kernels, "usable", lambda values, dtype=torch.float32: values.dtype == dtype)
        yield


def both(values: Callable[[str], Sequence[Tensor]], rtol: float, atol: float) -> None:
    """Assert that what ``values`` gives on a device by kernels is what it gives by torch, on the CPU."""
    with by_kernels():
        ours = [part.detach().cpu() for part in values(DEVICE)]
    for mine, plain in zip(ours, values("cpu"), strict=True):
        torch.testing.assert_close(mine, plain.detach(), rtol=rtol, atol=atol)


def scaled(ours: Sequence[Tensor], torchs: Sequence[Tensor], rtol: float, atol: float) -> None:
    """Assert that gradients are the same in parts of their largest value."""
    for mine, other in zip(ours, torchs, strict=True):
        scale = other.abs().max()
        torch.testing.assert_close(mine / scale, other / scale, rtol=rtol, atol=atol)


def launches(*names: str) -> Callable[[T], T]:
    """Say which kernels a test launches, each as module.name; the fixture in test_kernels.py holds it to that."""

    def named(test: T) -> T:
        test.kernels = names  # type: ignore[attr-defined]
        return test

    return named


def every_kernel() -> dict[str, Any]:
    """All functions of :mod:`vcl.ops.kernels` that Triton compiles and that some line of the package launches."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(vcl.__file__).parent.rglob("*.py"))
    found = {}
    for module in MODULES:
        for name, value in vars(import_module(f"vcl.ops.kernels.{module}")).items():
            mine = getattr(getattr(value, "fn", None), "__module__", "") == f"vcl.ops.kernels.{module}"
            if mine and re.search(rf"\b{name}\[", text):
                found[f"{module}.{name}"] = value
    return found


def name_of(kernel: Any) -> str:
    """module.name."""
    return f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__}"
