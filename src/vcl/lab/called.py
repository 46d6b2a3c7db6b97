"""Calls functions that a plugin gives, so that a wrong signature is told by the plugin's name."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from vcl.errors import VclError


def called(what: str, function: Callable[..., Any], *given: Any) -> Any:
    """What the function returns. Raises VclError if it does not take this many values."""
    try:
        known = signature(function)
    except (TypeError, ValueError):  # some functions of C do not say what they take
        return function(*given)
    try:
        known.bind(*given)
    except TypeError as error:
        raise VclError(f"{what} is given {len(given)} values, which it does not take ({error}); mend it.") from error
    return function(*given)
