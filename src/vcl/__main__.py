"""The command `vcl`, and `python -m vcl`. The extra `vcl[lab]` brings it; without that, one sentence says so."""

from __future__ import annotations

import signal
import sys

LAB = frozenset({"typer", "rich", "sklearn", "matplotlib", "PIL", "pooch"})
"""The modules of the distributions that the extra `lab` adds."""


def main() -> None:
    """Run the command line; where a module of the extra is missing, end with a sentence and exit code 1."""
    try:
        from vcl.lab.cli import main as command_line

        command_line()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in LAB:  # a fault, and none that an installation mends
            raise
        sys.exit(f"vcl: the command line needs vcl[lab]: pip install 'vcl[lab]' (the module {missing} is missing)")
    except KeyboardInterrupt:  # before the command line is there
        sys.stderr.write("vcl: stopped before anything was begun.\n")
        sys.exit(128 + signal.SIGINT)
    finally:
        # While the interpreter shuts down, a handler in Python would end in a traceback.
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)


if __name__ == "__main__":
    main()
