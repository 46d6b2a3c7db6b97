"""Compares the speed of two source trees: alternating processes on the same machine in the same hour.

    python benchmarks/compare.py OLD NEW [--device cuda] [--rounds 5] [--only PATTERN] [--json OUT]

OLD and NEW are folders that contain the package `vcl`, such as the `src` of two checkouts. Each round runs this
checkout's `compare_worker.py` once with each tree. Times are minima over all calls of all rounds. The ratio is that of
the minima; the range next to it is over the ratios of single rounds. `spread` is a tree's slowest round over its
fastest: how much the machine varies. Compare a tree with itself to see which differences are noise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

WORKER = Path(__file__).with_name("compare_worker.py")


class Line(NamedTuple):
    """One job of both trees: milliseconds, their ratio, the range of ratios over rounds, and each tree's own spread."""

    job: str
    old: float
    new: float
    ratio: float
    low: float
    high: float
    spread: float


def tree_at(path: Path) -> Path:
    """The folder for PYTHONPATH: this one, or its `src`."""
    for folder in (path, path / "src"):
        if (folder / "vcl" / "__init__.py").is_file():
            return folder.resolve()
    raise SystemExit(f"{path} holds no package vcl; give the src folder of a checkout.")


def run(tree: Path, options: list[str]) -> dict[str, Any]:
    """The worker's measurements of this tree."""
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run([sys.executable, str(WORKER), *options], env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"the worker failed with {tree} (exit status {done.returncode}).")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if Path(found["tree"]) != tree:
        raise SystemExit(f"the worker imported vcl from {found['tree']} instead of {tree}.")
    return found


def lines(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[Line]:
    """The jobs that ran in every round with both trees; a round has the jobs of the old and of the new tree."""
    found = []
    for job in rounds[0][0]:
        if any("least_ms" not in side.get(job, {}) for each in rounds for side in each):
            continue
        old, new = ([each[side][job]["least_ms"] for each in rounds] for side in (0, 1))
        ratios = [after / before for before, after in zip(old, new, strict=True)]
        spread = max(max(times) / min(times) for times in (old, new))
        found.append(Line(job, min(old), min(new), min(new) / min(old), min(ratios), max(ratios), spread))
    return found


def failures(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """One sentence for each job and tree that failed."""
    found = {}
    for each in rounds:
        for tree, side in zip(("old", "new"), each, strict=True):
            for job, timing in side.items():
                if "error" in timing:
                    found[f"{job} failed in the {tree} tree: {timing['error']}"] = None
    return list(found)


def table(found: list[Line]) -> str:
    """The lines as a text table."""
    width = max((len(line.job) for line in found), default=3)
    text = [f"{'job':<{width}}{'old ms':>11}{'new ms':>11}{'new/old':>9}{'rounds':>19}{'spread':>9}"]
    for line in found:
        between = f"{line.low:.3f} to {line.high:.3f}"
        text.append(
            f"{line.job:<{width}}{line.old:>11.4f}{line.new:>11.4f}{line.ratio:>9.3f}{between:>19}{line.spread:>9.2f}"
        )
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the tree to compare with")
    parser.add_argument("new", type=Path, help="the tree in question")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="a regular expression: jobs whose names it is found in")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of timed calls of each job in a process")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--matmul", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that every job runs")
    parser.add_argument("--json", type=Path, help="a file for the numbers of every round")
    given = parser.parse_args()
    if given.rounds < 1:
        raise SystemExit(f"--rounds is {given.rounds}; give at least 1.")
    trees = tree_at(given.old), tree_at(given.new)
    options = ["--device", given.device, "--only", given.only, "--budget", str(given.budget), "--matmul", given.matmul]
    options += ["--threads", str(given.threads)] if given.threads is not None else []
    options += ["--quick"] if given.quick else []
    rounds: list[tuple[dict[str, Any], dict[str, Any]]] = []
    about: dict[str, Any] = {}
    for number in range(1, given.rounds + 1):
        sides = []
        for name, tree in zip(("old", "new"), trees, strict=True):
            began = perf_counter()
            found = run(tree, options)
            about = {"torch": found["torch"], "device": found["device"], "matmul": given.matmul}
            sides.append(found["jobs"])
            took = perf_counter() - began
            print(f"round {number} of {given.rounds}, {name}: {took:.0f} s", file=sys.stderr, flush=True)
        rounds.append((sides[0], sides[1]))
    if not rounds[0][0]:
        raise SystemExit(f"--only is {given.only}, which no job's name holds.")
    found_lines, failed = lines(rounds), failures(rounds)
    print(f"torch {about['torch']}, {about['device']}, {about['matmul']}, {given.rounds} rounds")
    print(table(found_lines))
    for sentence in failed:
        print(sentence)
    if given.json is not None:
        whole = {
            **about,
            "lines": [line._asdict() for line in found_lines],
            "rounds": [{"old": old, "new": new} for old, new in rounds],
            "failures": failed,
        }
        given.json.write_text(json.dumps(whole, indent=1) + "\n")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
