"""Runs of vcl in processes of their own, which can be killed, and whether what they leave is what was wanted.

    wanted = undisturbed(LINE, folder / "whole")
    child = start(LINE, folder / "trial")                   # or genuine(…): a new Python, which takes seconds
    child.signal(SIGKILL)
    end = run(LINE, folder / "trial")
    yield wanted.judged("SIGKILL", end, folder / "trial")

Children are forked from a process that has imported torch and vcl already, and call what ``python -m vcl`` calls. A
line of words, or a function with its arguments, is what they do. ``first`` is called in the child before: it limits
the size of files, changes the clock, or ends the process at its n-th file operation. Everything is computed in the
working folder ``FOLDER/``, with results in ``FOLDER/out``, so that no path differs between two trials.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, final

from outcome import Outcome, Result

OUT = "out"
"""The folder of results, within a trial's."""
SAID = "said.txt"
LIMIT = 300.0
"""Seconds after which a process is taken to hang."""
TIMES = ("asked", "started", "written", "seconds", "command", "check")
"""What part.json says that differs between two runs that are the same; its own checksum follows from these."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["vcl", "vcl.lab.cli", "vcl.lab.session", "vcl.lab.sweep", "vcl.lab.estimate", "vcl.lab.loading",
     "vcl.lab.launching.choose", "vcl.lab.figures.style", "sklearn.datasets", "matplotlib.pyplot"]
)  # fmt: skip

SMALL = "--preset smoke --seeds 2 --device cpu --set tasks=2 --set hidden=4 --out out"
NETWORKS = "--set train_limit=40 --set test_limit=10"
VAES = "--set train_limit=30 --set latent=2 --set features=4"
GENERATORS = f"{VAES} --set ll_draws=2 --set images=4 --set classifier_hidden=8"
STEPS = "--set epochs=3 --set batch=8"
OWN = {
    "adf": "--set filter_batch=4", "smc": "--set particles=40",
    "random-only": "--set coreset=5 --set coreset_epochs=6", "kcenter-only": "--set coreset=5 --set coreset_epochs=6",
}  # fmt: skip
"""Instead of epochs and batches, where a method has none."""


def line_of(method: str, experiment: str = "permuted-digits", more: str = "") -> str:
    """The command of a tiny run of one or more methods: two tasks, two seeds, several steps and epochs."""
    kinds = {"generative": GENERATORS, "class-incremental": f"{VAES} --set z_draws=2"}
    kind = next((words for start, words in kinds.items() if experiment.startswith(start)), NETWORKS)
    return " ".join(f"run {experiment} --method {method} {SMALL} {kind} {OWN.get(method, STEPS)} {more}".split())


class Ended(NamedTuple):
    """How a process ended."""

    code: int | None
    """Its exit status, negative for a signal; None where it hung and was killed."""
    said: str
    """What it wrote, to both streams."""
    seconds: float

    @property
    def last(self) -> str:
        """The last line that it wrote."""
        return (self.said.strip().splitlines() or ["nothing"])[-1]

    @property
    def wrong(self) -> str:
        """What no fault may lead to, in one line; nothing if it was not seen."""
        if self.code is None:
            return f"it hung; last said: {self.last}"
        if "Traceback (most recent call last)" in self.said:
            return f"a traceback: {self.last}"
        return ""


@final
class Child:
    """A process at work in a folder."""

    def __init__(self, folder: Path, process: BaseProcess | subprocess.Popen[bytes]) -> None:
        self.folder, self.process, self.began = folder, process, monotonic()
        assert process.pid is not None
        self.pid = process.pid

    @property
    def code(self) -> int | None:
        """Its exit status; None while it lives."""
        return self.process.poll() if isinstance(self.process, subprocess.Popen) else self.process.exitcode

    def signal(self, number: int) -> bool:
        """Send a signal; False if it had ended."""
        if self.code is not None:
            return False
        os.kill(self.pid, number)
        return True

    @property
    def worked(self) -> float:
        """Seconds that the processor gave it, which other work on the machine does not stretch; 0 once it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0 if Path("/proc/self/stat").exists() else monotonic() - self.began
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait(self, limit: float = LIMIT) -> Ended:
        """How it ended, after at most so many seconds."""
        if isinstance(self.process, subprocess.Popen):
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired:
                return self._killed()
        else:
            self.process.join(limit)
            if self.process.exitcode is None:
                return self._killed()
        return Ended(self.code, self.said(), monotonic() - self.began)

    def said(self) -> str:
        """What it wrote so far."""
        return (self.folder / SAID).read_text(errors="replace")

    def _killed(self) -> Ended:
        self.process.kill()
        self.process.wait() if isinstance(self.process, subprocess.Popen) else self.process.join()
        return Ended(None, self.said(), monotonic() - self.began)


Work = str | Callable[[], object]
"""The words after ``vcl``, or a function (of a module here, or a ``partial`` of one)."""


def start(work: Work, folder: Path, first: Callable[[], object] | None = None, drawn: bool = True) -> Child:
    """Begin work in a forked child, whose current folder is this one; ``drawn=False`` leaves figures out."""
    _ready()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SAID).write_bytes(b"")
    process = FORKS.Process(target=_child, args=(work, folder, first, drawn), daemon=True)
    process.start()
    return Child(folder, process)


@cache
def _ready() -> None:
    """Wait for the process that is forked: it imports torch first."""
    process = FORKS.Process(target=int, daemon=True)
    process.start()
    process.join()


def genuine(line: str, folder: Path) -> Child:
    """Begin ``python -m vcl LINE`` in a new interpreter, as a shell does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / SAID).open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "vcl", *line.split()], stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=folder
        )
    return Child(folder, process)


def run(
    work: Work, folder: Path, first: Callable[[], object] | None = None, limit: float = LIMIT, drawn: bool = True
) -> Ended:
    """Do work in a forked child, to its end."""
    return start(work, folder, first, drawn).wait(limit)


def _child(work: Work, folder: Path, first: Callable[[], object] | None, drawn: bool) -> None:
    os.chdir(folder)
    said = os.open(SAID, os.O_WRONLY | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    # As at the start of a program; the process that was forked ignores some.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not isinstance(work, str):
        if first is not None:
            first()
        work()
        return
    from vcl.__main__ import main
    from vcl.lab import show

    if not drawn:
        show._draw = _no_figures  # half of the time of a tiny run
    sys.argv = ["vcl", *work.split()]
    if first is not None:
        first()
    main()


def _no_figures(group: object, folder: Path) -> list[Path]:
    return []


def kept(out: Path) -> dict[str, bytes]:
    """All that a folder of results keeps for later, by path; tables and figures are drawn from that.

    What a disturbance leaves in a part, such as a journal or a temporary file, is there too. A temporary file of a
    table or figure is not: it is removed when it is an hour old.
    """
    found: dict[str, bytes] = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        shown = path.suffix in (".png", ".svg", ".md") or (path.suffix == ".tmp" and not name.startswith("parts/"))
        if not path.is_file() or shown:
            continue
        found[name] = path.read_bytes()
        if path.name == "part.json":
            found[name] = about(found[name])
    return found


def about(text: bytes) -> bytes:
    """A part.json without the times and the command; its names in one order."""
    known: dict[str, Any] = json.loads(text)
    return json.dumps({name: value for name, value in known.items() if name not in TIMES}, sort_keys=True).encode()


def differing(found: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> str:
    """The files that differ, in one line; nothing if all are the same, byte for byte."""
    missing, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name])
    pieces = {"missing": missing, "left behind": more, "other bytes": other}
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in pieces.items() if names)


class Undisturbed(NamedTuple):
    """What a run leaves that nothing disturbed."""

    kept: dict[str, bytes]
    worked: float
    """Seconds that the processor gave it."""
    said: str

    def judged(self, fault: str, end: Ended, folder: Path, note: str = "", good: Result = Result.SURVIVED) -> Outcome:
        """The outcome of a trial whose last process should have ended with all that was wanted."""
        wrong = end.wrong or (f"it ended with {end.code}: {end.last}" if end.code else "")
        wrong = wrong or differing(kept(folder / OUT), self.kept)
        return (
            Outcome(fault, Result.LOST, f"{note}{': ' if note else ''}{wrong}") if wrong else Outcome(fault, good, note)
        )


KNOWN: dict[tuple[str, bool], Undisturbed] = {}
"""Of the commands that were run already."""


def undisturbed(work: Work, folder: Path, drawn: bool = False) -> Undisturbed:
    """What work leaves, with results in ``FOLDER/out``; raises RuntimeError if it fails. A command is run once."""
    if isinstance(work, str) and (work, drawn) in KNOWN:
        return KNOWN[work, drawn]
    child, worked = start(work, folder, drawn=drawn), 0.0
    while child.code is None and monotonic() - child.began < LIMIT:
        worked = max(worked, child.worked)
        sleep(0.005)
    end = child.wait(1.0)
    if end.code != 0:
        raise RuntimeError(f"the undisturbed run ended with {end.code}: {end.said}")
    found = kept(folder / OUT)
    if not found:
        raise RuntimeError(f"the undisturbed run left nothing: {end.said}")
    known = Undisturbed(found, worked, end.said)
    if isinstance(work, str):
        KNOWN[work, drawn] = known
    return known
