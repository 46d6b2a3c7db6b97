"""Which mutants are tried, and by which tests: plan.toml, known.toml and accepted.toml, read."""

from __future__ import annotations

import fnmatch
import hashlib
import re
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mutations import Mutant, mutants

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


class Job(NamedTuple):
    """A mutant, the group it counts in, and the tests that should notice."""

    mutant: Mutant
    group: str
    tests: tuple[str, ...]


def load(name: str) -> dict[str, Any]:
    """A file of this folder."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def files_of(tree: Path) -> list[str]:
    """What git knows or would add, by paths from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout.split("\n")
    return sorted({name for name in names if name and (tree / name).is_file()})


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a path is one of these (``*`` takes slashes too)."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def mutated(plan: dict[str, Any], names: Sequence[str]) -> dict[str, list[str]]:
    """The files of each group."""
    return {
        group["name"]: [n for n in names if matches(n, group["files"]) and not matches(n, group.get("but", []))]
        for group in plan["group"]
    }


def tests_of(file: str, plan: dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """The tests for a file, by the first entry that names it, in the order given there."""
    for entry in plan["tests"]:
        if matches(file, entry["of"]):
            found = [name for pattern in entry["are"] for name in names if matches(name, [pattern])]
            return tuple(dict.fromkeys(found))
    raise SystemExit(f"plan.toml names no tests for {file}")


def sampled(tree: Path, plan: dict[str, Any], names: Sequence[str], seed: int, only: str | None) -> Iterator[Job]:
    """Of each group as many mutants as it says, spread over its files in proportion to the root of their number."""
    wanted = {group["name"]: group["sample"] for group in plan["group"]}
    for group, files in mutated(plan, names).items():
        ranked: list[tuple[float, str, Mutant]] = []
        for file in files:
            if only is None or matches(file, [only]):
                mine = sorted(mutants(file, (tree / file).read_bytes()), key=lambda mutant: _rank(seed, mutant))
                # The k-th of n comes at (k + u) / sqrt(n): small files are not passed over, long ones not exhausted.
                shift = int(hashlib.sha256(f"{seed}|{file}".encode()).hexdigest()[:8], 16) / 16**8
                ranked += [((k + shift) / len(mine) ** 0.5, file, mutant) for k, mutant in enumerate(mine)]
        for _, file, mutant in sorted(ranked, key=lambda entry: entry[:2])[: wanted[group]]:
            yield Job(mutant, group, tests_of(file, plan, names))


def _rank(seed: int, mutant: Mutant) -> str:
    """A number that depends on the seed and on what is changed, not on where in the file it stands."""
    return hashlib.sha256(f"{seed}|{mutant.file}|{mutant.context}|{mutant.change}".encode()).hexdigest()


def known(tree: Path, plan: dict[str, Any], names: Sequence[str]) -> Iterator[Job]:
    """Mutants that once survived every test: what the one group of ``at`` matches becomes ``new``."""
    for entry in load("known.toml")["mutant"]:
        source = (tree / entry["file"]).read_bytes()
        found = list(re.finditer(entry["at"].encode(), source))
        if len(found) != 1:
            raise SystemExit(f"known.toml: {entry['file']} has {len(found)} times {entry['at']!r}, not once")
        start, end = found[0].span(1)
        line = source.count(b"\n", 0, start)
        old, context = source[start:end].decode(), source.split(b"\n")[line].decode().strip()
        made = Mutant(entry["file"], line + 1, start, end, old, entry["new"], entry["name"], context)
        yield Job(made, "known", tests_of(entry["file"], plan, names))


def accepted() -> dict[tuple[str, str, str], str]:
    """The reasons of survivors that are let live, by (file, line, change)."""
    entries = load("accepted.toml").get("survivor", [])
    return {(entry["file"], entry["line"], entry["change"]): entry["reason"] for entry in entries}


def key(mutant: Mutant) -> tuple[str, str, str]:
    """As :func:`accepted` names it."""
    return mutant.file, mutant.context, mutant.change
