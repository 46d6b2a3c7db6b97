"""SIGKILL at random instants of every kind of work, several in a row; then the same work again, to its end.

What is left must be what an undisturbed run leaves, byte for byte, and no finished task may be learned again.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random

from killing import OPERATIONS, Killed, kill, kill_at, killed, summary
from outcome import Outcome, Result
from runs import Undisturbed, Work, line_of, run, undisturbed
from updates import learn

KILLS = 4
"""At least so many of each work."""
IN_A_ROW = 3
MOST_TRIALS = 20
OPERATION_KILLS = 60
SAVE = "--save-every 0"
"""A save after every step."""

SPLIT = ("vcl-random", "vcl-restart-random", "random-only", "kcenter-only", "vcl-kron-random", "ewc-kron", "si", "map")
"""Methods that are tried on tasks with heads of their own; the others share one."""
SWEEP = line_of("ewc,si", more=SAVE).replace("run", "sweep", 1) + " --grid lambda=1,10 --validation 0.2"
LEARNERS = ("structured", "mean-field", "laplace", "generative", "regression")


def works(short: bool) -> Iterator[tuple[str, Mapping[str, Work]]]:
    """What is killed, by the row of the table that it counts in."""
    if short:
        yield "vcl run", {"vcl-random": line_of("vcl-random", "split-digits", SAVE)}
        return
    from vcl.lab.registry import methods

    yield (
        "vcl run, networks",
        {
            method: line_of(method, "split-digits" if method in SPLIT else "permuted-digits", SAVE)
            for method in methods("networks")
        },
    )
    yield (
        "vcl run, generators",
        {method: line_of(method, "generative-digits", SAVE) for method in methods("generators")}
        | {"vcl, class-incremental": line_of("vcl", "class-incremental-digits", SAVE)},
    )
    yield "vcl run, several methods", {"mle, vcl-natural, lp": line_of("mle,vcl-natural,lp", more=SAVE)}
    yield "vcl sweep", {"ewc, si": SWEEP}
    yield "vcl run --launcher processes", {"vcl, si": line_of("vcl,si", more=f"{SAVE} --launcher processes --jobs 2")}
    yield "learner.update", {method: partial(learn, method) for method in LEARNERS}


def trials(short: bool, seed: int, folder: Path) -> Iterator[Outcome]:
    """Kills of all works, and kills before single changes of files."""
    rng = Random(seed)
    for row, of_row in works(short):
        fault, done = f"SIGKILL at random instants: {row}", list[Killed]()
        for name, work in of_row.items():
            for outcome, of_trial in random_kills(fault, name, work, folder / f"{row}, {name}", rng, short):
                done.append(of_trial)
                yield outcome
        yield Outcome(fault, Result.SURVIVED, f"{len(of_row)} kinds ({', '.join(of_row)}): {summary(done)}", 0)
    yield from operation_kills(line_of("vcl-random", "split-digits", SAVE), folder / "operations", rng, short)


def random_kills(
    fault: str, name: str, work: Work, folder: Path, rng: Random, short: bool
) -> Iterator[tuple[Outcome, Killed]]:
    """Trials of one work, until there were enough kills."""
    wanted, kills, trial = undisturbed(work, folder / "whole"), 0, 0
    while kills < (1 if short else KILLS):
        trial += 1
        if trial > MOST_TRIALS:
            raise RuntimeError(f"{name} always ends before it is killed")
        place = folder / f"{trial}"
        most, strike = 2 if short else IN_A_ROW, partial(kill_one, rng) if "launcher" in fault else kill
        of_trial = killed(work, wanted.worked, place, rng, most, strike)
        kills += of_trial.kills
        yield judged(fault, f"{name}, trial {trial}, {of_trial.kills} kills", of_trial, wanted, place), of_trial


def kill_one(rng: Random, pid: int) -> None:
    """Kill a process or one of those that it has started."""
    started = Path(f"/proc/{pid}/task/{pid}/children")
    kill(rng.choice([pid, *map(int, started.read_text().split())] if started.exists() else [pid]))


def judged(fault: str, note: str, of_trial: Killed, wanted: Undisturbed, folder: Path) -> Outcome:
    """One outcome for all kills of a trial; how it was is told where something is lost."""
    outcome = wanted.judged(fault, of_trial.end, folder, note)
    again = of_trial.lost(wanted)
    if outcome.result is not Result.LOST and again:
        outcome = Outcome(fault, Result.LOST, f"{note}: {again}")
    return outcome if outcome.result is Result.LOST else outcome._replace(note="", times=of_trial.kills)


def operation_kills(line: str, folder: Path, rng: Random, short: bool) -> Iterator[Outcome]:
    """Kills before a change of a file: its opening, flush, renaming or removal; spread over all of a run's."""
    fault = "SIGKILL before a change of a file"
    wanted = undisturbed(line, folder / "whole")
    run(line, folder / "counted", partial(kill_at, 0), drawn=False)
    count = int((folder / "counted" / OPERATIONS).read_text())
    tries, done = min(count, 1 if short else OPERATION_KILLS), 0
    for trial in range(tries):
        number = 1 + rng.randrange(trial * count // tries, (trial + 1) * count // tries)
        place = folder / f"{number}"
        first = run(line, place, partial(kill_at, number), drawn=False)
        if first.code != -signal.SIGKILL:  # some files are written by time, so that there may be fewer changes
            continue
        done += 1
        end = run(line, place, drawn=False)
        of_trial = Killed(1, (first.said, end.said), end)
        yield judged(fault, f"change {number} of {count}", of_trial, wanted, place)
    yield Outcome(fault, Result.SURVIVED, f"{done} of the {count} changes of a run of vcl-random", 0)
