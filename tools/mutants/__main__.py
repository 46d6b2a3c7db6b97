"""Mutation testing: change one thing in a copy of the tree, run the tests that should notice, and count.

    make mutants                                  the known mutants, then the sample: at most 20 minutes on two cores
    python tools/mutants --known                  the known ones alone
    python tools/mutants --file 'src/vcl/lab/*'   a sample from some files

plan.toml says which files, how many mutants of each group, and which tests; known.toml has mutants that once survived
the whole suite and are always tried; accepted.toml has survivors that are let live, each with a reason. The sample
follows from the seed and from each mutant's own line, so that an edit elsewhere leaves it as it is.

Why not mutmut or cosmic-ray: mutmut 3 changes function bodies only, so no preset, no default of a dataclass and no
numbers.toml; cosmic-ray runs one test command for every mutant, drops and swaps no arguments, and knows no TOML.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

from plan import ROOT, files_of, known, load, sampled
from trial import Verdict, baselines, copies, try_all


def summary(verdicts: Sequence[Verdict]) -> str:
    """A table of groups and files, and every survivor."""
    outcomes = ("killed", "timeout", "survived", "accepted")
    lines = [f"| group | file | {' | '.join(outcomes)} | score |", "| --- | --- " + "| ---: " * 5 + "|"]
    by: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for each in verdicts:
        for place in ((each.group, each.mutant.file), (each.group, "all"), ("all", "all")):
            by[place][each.outcome] += 1
    for (group, file), count in sorted(by.items()):
        numbers = " | ".join(str(count[outcome]) for outcome in outcomes)
        lines.append(f"| {group} | {file} | {numbers} | {score(count)} |")
    for outcome in ("survived", "accepted", "not tried"):
        found = [each.mutant for each in verdicts if each.outcome == outcome]
        if found:
            lines += ["", f"{outcome}:"]
            lines += [f"- {m.file}:{m.line} ({m.kind}) `{m.change}` in `{m.context}`" for m in found]
    return "\n".join(lines) + "\n"


def score(count: Counter[str]) -> str:
    """The share of the mutants, those accepted left out, that some test noticed."""
    dead = count["killed"] + count["timeout"]
    tried = dead + count["survived"]
    return f"{dead}/{tried} = {100 * dead / tried:.1f} %" if tried else "-"


def main() -> int:
    """0 if every mutant was tried, and is dead or accepted."""
    parser = argparse.ArgumentParser(description="mutation testing of vcl")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--known", action="store_true", help="the known mutants alone")
    parser.add_argument("--file", help="a sample from the files of this pattern alone")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout of vcl")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants.md")
    parser.add_argument("--list", action="store_true", help="show what would be tried")
    asked = parser.parse_args()

    began = time.monotonic()
    tree, plan = asked.tree.resolve(), load("plan.toml")
    names = files_of(tree)
    jobs = [] if asked.file else list(known(tree, plan, names))
    if not asked.known:
        jobs += sampled(tree, plan, names, asked.seed, asked.file)
    if asked.list:
        for job in jobs:
            print(f"{job.group}: {job.mutant.file}:{job.mutant.line} {job.mutant.kind}: {job.mutant.change}")
        return 0
    # What every child needs, imported once: they are forks of this process.
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import torch  # noqa: F401

    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="vcl-mutants-") as scratch:
        trees = copies(tree, names, Path(scratch), asked.workers)
        seconds = baselines(trees, jobs)
        print(f"{len(jobs)} mutants; the tests pass without any, {len(seconds)} lists of them", flush=True)
        limits = {tests: 3 * taken + 20 for tests, taken in seconds.items()}
        for each in try_all(tree, trees, jobs, limits, began + 60 * asked.minutes):
            verdicts.append(each)
            m = each.mutant
            print(f"{each.outcome:9} {each.seconds:5.1f} s  {m.file}:{m.line}  {m.change}", flush=True)
    text = summary(verdicts)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text, encoding="utf-8")
    print(f"\n{text}\n{(time.monotonic() - began) / 60:.1f} minutes; this table is in {asked.out}")
    return int(any(each.outcome in ("survived", "not tried") for each in verdicts))


if __name__ == "__main__":
    sys.exit(main())
