"""SIGTERM and SIGINT at random instants, once and twice; and a second process that wants the same part.

A process that is stopped ends with a status that is not 0 and one line that says how to go on; the same command then
ends as if nothing had happened, byte for byte.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from time import monotonic, sleep

from killing import until
from outcome import Outcome, Result
from runs import LIMIT, OUT, Child, Ended, Undisturbed, differing, genuine, kept, line_of, run, start, undisturbed

SAVE = "--save-every 0"
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
TIMES = 8
"""Trials of each kind."""
MOST_LATE = 30
GENUINE = 2
"""Of these, with an interpreter of their own."""
STOPPED = re.compile(
    r"^vcl: stopped(; what is done is kept in \S+, and `.*` goes on from there\.| before anything was .*|\.)$"
)
NOTHING = "nothing is kept"
TAKEN = "another vcl is at work in"

KINDS: dict[str, tuple[signal.Signals, ...]] = {
    "SIGTERM": (signal.SIGTERM,),
    "SIGINT": (signal.SIGINT,),
    "SIGTERM twice": (signal.SIGTERM, signal.SIGTERM),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
}


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """Signals, and two processes at once."""
    # A shell ignores SIGINT for what it runs in the background, and each new process inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = Random(seed)
    line = line_of("vcl-random", "split-digits", SAVE)
    wanted = undisturbed(line, folder / "whole")
    kinds = {"SIGINT": KINDS["SIGINT"]} if short else KINDS
    for fault, numbers in kinds.items():
        for trial in range(1 if short else TIMES):
            own = not short and trial < GENUINE
            yield signalled(fault, numbers, line, wanted, folder / f"{fault} {trial}", rng, genuine if own else forked)
    yield taken(line, wanted, folder / "taken")
    if not short:
        yield from beside(folder / "beside")


def forked(line: str, folder: Path) -> Child:
    """A forked child."""
    return start(line, folder, drawn=False)


def signalled(
    fault: str, numbers: tuple[signal.Signals, ...], line: str, wanted: Undisturbed, folder: Path, rng: Random,
    begin: Callable[[str, Path], Child],
) -> Outcome:  # fmt: skip
    """Send signals at a random instant after the first line was said, and go on."""
    child, end, late = begin(line, folder), None, 0
    while end is None:
        said(child)
        until(child, child.worked + rng.uniform(0, wanted.worked))
        for place, number in enumerate(numbers):
            sleep(rng.uniform(0, 0.05) if place else 0)
            child.signal(number)
        end = child.wait()
        if end.code == 0:  # it had ended, or almost; the trial begins again
            late += 1
            if late > MOST_LATE:
                raise RuntimeError(f"{fault} does not end a process, or always comes late")
            child, end = begin(line, folder / f"late {late}"), None
    place = folder / f"late {late}" if late else folder
    wrong = end.wrong or badly_stopped(end, numbers[0], place)
    if wrong:
        return Outcome(fault, Result.LOST, wrong)
    again = run(line, place, drawn=False)
    outcome = wanted.judged(fault, again, place, f"stopped with {end.last!r}")
    return outcome if outcome.result is Result.LOST else outcome._replace(note="")


def said(child: Child) -> None:
    """Wait for the first line of a process."""
    while child.code is None and not child.said() and monotonic() - child.began < LIMIT:
        sleep(0.005)


def badly_stopped(end: Ended, number: signal.Signals, folder: Path) -> str:
    """What is wrong with how a process stopped; nothing if its status and its last line are as they should be."""
    if end.code not in (STATUS[number], -number):
        return f"the status is {end.code}: {end.last}"
    if not STOPPED.match(end.last):
        return f"it did not say how to go on: {end.last}"
    if NOTHING in end.last and (folder / OUT).exists():
        return f"it said that nothing is kept, and {OUT} is there"
    return ""


def taken(line: str, wanted: Undisturbed, folder: Path) -> Outcome:
    """A second process is refused while the first lives, even stopped, and takes over when it is dead."""
    fault = "a second process on the same part"
    first = start(line, folder, drawn=False)
    while first.code is None and not list(folder.rglob("part.json")):
        sleep(0.005)
    first.signal(signal.SIGSTOP)
    second = run(line.replace("--out out", f"--out {folder / OUT}"), folder / "second", drawn=False)
    first.signal(signal.SIGKILL)
    first.wait()
    if second.code != 1 or TAKEN not in second.last or second.wrong:
        return Outcome(fault, Result.LOST, f"it ended with {second.code}: {second.last}")
    third = run(line, folder, drawn=False)
    return wanted.judged(fault, third, folder, "refused while the first lived; took over when it was dead")


def beside(folder: Path) -> Iterator[Outcome]:
    """Two processes on different parts of one folder: each finishes its own."""
    fault = "two processes on different parts of one folder"
    lines = [line_of(method, more=SAVE) for method in ("si", "ewc")]
    for line in lines:
        end = run(line, folder / "whole", drawn=False)
        if end.code:
            raise RuntimeError(end.said)
    wanted = {name: data for name, data in kept(folder / "whole" / OUT).items() if name.startswith("parts/")}
    children = [
        start(line.replace("--out out", f"--out {folder / 'both'}"), folder / str(place), drawn=False)
        for place, line in enumerate(lines)
    ]
    ends = [child.wait() for child in children]
    wrong = "; ".join(each.wrong or (f"ended with {each.code}: {each.last}" if each.code else "") for each in ends)
    found = {name: data for name, data in kept(folder / "both").items() if name.startswith("parts/")}
    wrong = wrong.strip("; ") or differing(found, wanted)
    yield Outcome(fault, Result.LOST if wrong else Result.SURVIVED, wrong, 1)
