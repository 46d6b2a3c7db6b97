"""A bar on a terminal while a fit runs, with the time left."""

from __future__ import annotations

import sys
from time import monotonic
from typing import final

from vcl.fitting.loop import Progress

WIDTH = 24
EVERY = 0.1
"""Seconds between two drawings."""


@final
class Bar:
    """Draws the progress of each fit on standard error, if that is a terminal."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown and sys.stderr.isatty()
        self.begun, self.drawn, self.what = monotonic(), 0.0, ""

    def __call__(self, progress: Progress) -> None:
        """Draw the bar, not too often."""
        if not self.shown or progress.note:
            return
        now = monotonic()
        if progress.what != self.what or progress.epoch == 1:
            self.begun, self.what = now, progress.what
        done = progress.epoch / progress.epochs
        if now - self.drawn < EVERY and done < 1:
            return
        self.drawn = now
        left = (now - self.begun) * (1 - done) / done if progress.epoch > 1 else 0.0
        filled = round(WIDTH * done)
        bar = "#" * filled + "." * (WIDTH - filled)
        sys.stderr.write(f"\r{progress.what:28.28} [{bar}] {progress.epoch}/{progress.epochs} {left:5.0f} s left ")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self.shown and self.drawn:
            sys.stderr.write("\r" + " " * 78 + "\r")
            sys.stderr.flush()


def say(text: str, verbose: int) -> None:
    """Write a line on standard error, unless the learner is quiet."""
    if verbose:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
