"""What is said when a command is stopped by Ctrl-C or SIGTERM: what is kept, and how to continue."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from vcl.errors import NonFiniteError, OutOfMemoryError, VclError
from vcl.ops.out_of_memory import TASK, told_of_memory

INTERRUPTED = 130
"""The exit code after Ctrl-C, set by typer."""

TERMINATED = 143
"""The exit code after SIGTERM."""

STOPPED = "stopped."
LESS = "Less is taken by --set batch=N, --set draws=N, --set predict_draws=N, --seeds N, --jobs N and --runs-per-job N."
NOTHING = "stopped before anything was finished; nothing is kept."


@final
class Stopped(SystemExit):
    """The end of a command that was stopped; ``told`` says what is kept."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(code)
        self.told = told


@contextmanager
def continued_in(out: Path, shown: str | None = None) -> Iterator[None]:
    """Turn a stop within into one that names the folder of the results and the command that continues."""
    try:
        with told_of_memory("the command", TASK):
            yield
    except KeyboardInterrupt:
        raise Stopped(INTERRUPTED, kept(out, shown)) from None
    except (NonFiniteError, OutOfMemoryError) as error:
        raise with_kept(error, out) from error
    except SystemExit as stop:
        if stop.code != TERMINATED:
            raise
        raise Stopped(TERMINATED, kept(out, shown)) from None


def with_kept(error: VclError, out: Path) -> VclError:
    """An error that ended a command in the middle of its work, with what it leaves in its folder."""
    there, again = any(out.glob("parts/*/part.json")), with_out(shlex.join(["vcl", *sys.argv[1:]]), out)
    if not isinstance(error, OutOfMemoryError):
        return NonFiniteError(f"{error} The tasks finished before are kept in {out}." if there else str(error))
    kept = f" What is finished is kept in {out}, and `{again}` goes on from there where more memory is free." * there
    return OutOfMemoryError(f"{error} {LESS}{kept}")


def kept(out: Path, shown: str | None = None) -> str:
    """One sentence on what a stopped command leaves in its folder."""
    if not (out / "parts").is_dir():
        return NOTHING
    command, where = with_out(shlex.join(["vcl", *sys.argv[1:]]), out), shown or out
    return f"stopped; what is done is kept in {where}, and `{command}` goes on from there."


def with_out(command: str, out: Path) -> str:
    """A command with the folder of its results."""
    return command if " --out" in command else f"{command} --out {shlex.quote(str(out))}"
