"""Where commands print."""

from __future__ import annotations

from rich.console import Console


def make_console() -> Console:
    """Words are printed as they are: brackets, as a path may have them, are no markup, and colons no pictures."""
    return Console(markup=False, emoji=False)
