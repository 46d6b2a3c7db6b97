"""Where commands print."""

from __future__ import annotations

from rich.console import Console


def make_console() -> Console:
    """Words are printed as they are: brackets, as a path may have them, are no markup, and colons no pictures."""
    return Console(markup=False, emoji=False)


def say_on(console: Console, line: str) -> None:
    """Print a line of text as it is."""
    console.print(line, highlight=False, soft_wrap=True)
