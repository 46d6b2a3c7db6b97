"""Checks of single settings: each says what was given and what is accepted."""

from __future__ import annotations

from math import isfinite
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from vcl.errors import VclError


def require_whole(name: str, value: Any, least: int, note: str = "") -> None:
    """Raise VclError unless ``value`` is a whole number from ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise VclError(f"{name} is {value!r}; give a whole number from {least}{note}.")


def require_positive(name: str, value: Any, note: str = "") -> None:
    """Raise VclError unless ``value`` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 and isfinite(value)):
        raise VclError(f"{name} is {value!r}; give a finite number above 0{note}.")


def device_of(device: Any) -> torch.device:
    """The device of a name; "auto" is the GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise VclError(
            f"device is {device!r}, which is not here ({str(error).splitlines()[0]}); give 'auto' or 'cpu'."
        ) from error
    return found


def refuse_empty_tensors(net: Any) -> None:
    """Raise VclError for a network whose parameters have no values: lazy ones, or ones on the device "meta"."""
    if not isinstance(net, nn.Module):
        return
    for name, value in (*net.named_parameters(), *net.named_buffers()):
        if is_lazy(value):
            raise VclError(
                f"{name!r} of the network is lazy and has no size yet; call the network once on an example as it gets "
                "it, as in net(torch.zeros(1, inputs)), or name the sizes of its layers."
            )
        if value.is_meta:
            raise VclError(
                f"{name!r} of the network is on the device 'meta' and has no values; make the network on a real device "
                "(net.to_empty(device='cpu') gives memory, and load_state_dict the values)."
            )


def require_utf8(what: str, text: str) -> None:
    """Raise VclError for a text that no file can keep: half of a pair of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise VclError(
            f"{what} is {text!r}, which has half of a pair of surrogates and is no text that can be saved; decode it "
            "with errors='replace'."
        ) from None
