"""Set-up for all tests; what they are made of is in made.py and oracles.py."""

import os
import signal
import sys
from pathlib import Path

import pytest

# Tests run side by side, one worker a core: more threads than that only wait for each other. Set before torch looks.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell ignores SIGINT for what it starts in the background, and so would every process that a test starts and stops.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent))  # so that test files in sub-folders can import made and oracles


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud which tests did not run for want of a program, such as a browser."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    reasons = {str(each[2]).removeprefix("Skipped: ") for each in skipped if isinstance(each, tuple)}
    for reason in sorted(reason for reason in reasons if reason.startswith("NOT RUN")):
        terminalreporter.write_line(reason, yellow=True)
