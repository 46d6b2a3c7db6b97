"""A failed allocation becomes a sentence: what was computed, how much was asked for, and what takes less."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vcl.errors import OutOfMemoryError
from vcl.ops.out_of_memory import FIT, is_out_of_memory, told_of_memory

CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4000000000 bytes. Error code 12 (Cannot allocate memory)"
)
CUDA = (
    "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 139.72 GiB of which 2 GiB is free."
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(CPU), "memory ran out in the fit, which asked for 3.7 GiB more; "),
        (torch.OutOfMemoryError(CUDA), "the GPU's memory ran out in the fit, which asked for 20.5 GiB more; "),
        (RuntimeError("CUDA error: out of memory"), "the GPU's memory ran out in the fit; "),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), "the GPU's memory ran "),
        (MemoryError("Unable to allocate 800. MiB for an array"), "memory ran out in the fit, which asked for 800.0 "),
        (MemoryError("Unable to allocate 12 bytes"), "memory ran out in the fit, which asked for 12 bytes more; "),
        (MemoryError(), "memory ran out in the fit; take a smaller batch"),
        (RuntimeError("std::bad_alloc"), "memory ran out in the fit; "),
        (OSError(12, "Cannot allocate memory"), "memory ran out in the fit; "),
        (ImportError("libx.so: failed to map segment from shared object"), "memory ran out in the fit; "),
    ],
)
def test_every_kind_of_failed_allocation_is_told(error: Exception, said: str) -> None:
    with pytest.raises(OutOfMemoryError) as caught, told_of_memory("the fit", FIT):
        raise error
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith(f"; {FIT}.")
    assert caught.value.__cause__ is error


def test_real_ones_of_torch_and_numpy_are_known() -> None:
    for ask in (lambda: torch.empty(2**50), lambda: np.empty(2**60, dtype=np.uint8)):
        with pytest.raises(OutOfMemoryError, match=r"asked for \d+\.\d [PE]iB more"), told_of_memory("it", "less"):
            ask()


def test_other_errors_pass() -> None:
    for error in (RuntimeError("shapes differ"), ValueError("out of memory"), OSError("out of memory")):
        assert not is_out_of_memory(error)
        with pytest.raises(type(error)) as caught, told_of_memory("the fit", FIT):
            raise error
        assert caught.value is error


def test_the_innermost_names_what_was_computed_and_those_around_it_the_place() -> None:
    @told_of_memory("a prediction", "predict for fewer")
    def predict() -> None:
        raise MemoryError

    with (
        pytest.raises(OutOfMemoryError, match=r"^task 2 \(b\): memory ran out in a prediction; predict for fewer\.$"),
        told_of_memory("it", "less", "task 2 (b)"),
        told_of_memory("the update", "less"),
    ):
        predict()
    with (
        pytest.raises(OutOfMemoryError, match=r"^task 2 \(b\): memory ran out in it; less\.$"),
        told_of_memory("it", "less", "task 2 (b)"),
    ):
        raise MemoryError
