"""What is said when a command is stopped by Ctrl-C or SIGTERM: what is kept, and how to continue."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

INTERRUPTED = 130
"""The exit code after Ctrl-C, set by typer."""

TERMINATED = 143
"""The exit code after SIGTERM."""

STOPPED = "stopped."
NOTHING = "stopped before anything was finished; nothing is kept."


@final
class Stopped(SystemExit):
    """The end of a command that was stopped; ``told`` says what is kept."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(code)
        self.told = told


@contextmanager
def continued_in(out: Path) -> Iterator[None]:
    """Turn a stop within into one that names the folder of the results and the command that continues."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(INTERRUPTED, kept(out)) from None
    except SystemExit as stop:
        if stop.code != TERMINATED:
            raise
        raise Stopped(TERMINATED, kept(out)) from None


def kept(out: Path) -> str:
    """One sentence on what a stopped command leaves in its folder."""
    if not (out / "parts").is_dir():
        return NOTHING
    command = with_out(shlex.join(["vcl", *sys.argv[1:]]), out)
    return f"stopped; what is done is kept in {out}, and `{command}` goes on from there."


def with_out(command: str, out: Path) -> str:
    """A command with the folder of its results."""
    return command if " --out" in command else f"{command} --out {shlex.quote(str(out))}"
