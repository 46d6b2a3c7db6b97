"""The tool behind ``make mutants``: its changes are changes, and its lists fit the tree as it is."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "mutants"
sys.path.insert(0, str(TOOL))

import plan  # noqa: E402
from mutations import mutants  # noqa: E402

NAMES = sorted(
    str(path.relative_to(plan.ROOT)) for part in ("src", "tests") for path in (plan.ROOT / part).rglob("*.*")
)
PLAN = plan.load("plan.toml")


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("rate = 1e-3", ["rate = 0.002"]),
        ("count = 3", ["count = 4"]),
        ("count = 40", ["count = 80"]),
        ("way = -1", ["way = (1)"]),
        ("flag = True", ["flag = False"]),
        ("a = b < c", ["a = b <= c"]),
        ("a = (b) is not (c)", ["a = (b) is (c)"]),
        ("a = b * (c + d)", ["a = b / (c + d)", "a = b * (c - d)"]),
        ("a = b and c or d", ["a = b or c or d", "a = b and c and d"]),
        ("if not a:\n    b()", ["if (not (not a)):\n    b()", "if (a):\n    b()", "if not a:\n    pass"]),
        ("a = f(b, c, d=e)", ["a = f(b, c)", "a = f(c, b, d=e)"]),
        ("def f(a: int = 0) -> float:\n    return g(a)", ["def f(a: int = 1) -> float:\n    return g(a)",
                                                         "def f(a: int = 0) -> float:\n    return None"]),
        ("raise ValueError(f'{2 + 2}')", ["pass"]),
        ("class A:\n    way: Literal['x', 'y'] = 'x'", ["class A:\n    way: Literal['x', 'y'] = 'y'"]),
        ("total += 1", ["pass", "total += 2"]),
        ('"""Words, 3 of them."""\nX: Literal[1, 2]', []),
    ],
)  # fmt: skip
def test_python_is_changed_in_one_place(source: str, changed: list[str]) -> None:
    found = [mutant.applied(source.encode()).decode() for mutant in mutants("a.py", source.encode())]
    assert sorted(found) == sorted(changed)


def test_numbers_of_toml_are_changed() -> None:
    source = b'[[number]]\nvalue = 90.0\nname = "7"\nless = true\ncount = 2\n'
    changes = [mutant.change for mutant in mutants("a.toml", source)]
    assert changes == ["90.0 -> 180.0", "true -> false", "2 -> 3"]


def test_every_mutant_of_the_package_can_be_read_and_is_another() -> None:
    for file in {file for files in plan.mutated(PLAN, NAMES).values() for file in files if file.endswith(".py")}:
        source = (plan.ROOT / file).read_bytes()
        for mutant in mutants(file, source)[::40]:
            assert ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source)), mutant


def test_every_file_of_the_plan_has_tests_and_every_pattern_finds_some() -> None:
    for files in plan.mutated(PLAN, NAMES).values():
        assert files
        assert all(plan.tests_of(file, PLAN, NAMES) for file in files)
    patterns = [pattern for entry in PLAN["tests"] for pattern in (*entry["of"], *entry["are"])]
    assert [pattern for pattern in patterns if not any(plan.matches(name, [pattern]) for name in NAMES)] == []


def test_known_mutants_stand_once_in_their_files() -> None:
    jobs = list(plan.known(plan.ROOT, PLAN, NAMES))
    assert len(jobs) == len(plan.load("known.toml")["mutant"]) >= 9
    for job in jobs:
        source = (plan.ROOT / job.mutant.file).read_bytes()
        assert job.mutant.applied(source) != source


def test_accepted_survivors_are_mutants_of_today_and_have_a_reason() -> None:
    for (file, line, change), reason in plan.accepted().items():
        source = (plan.ROOT / file).read_bytes()
        assert (file, line, change) in {plan.key(mutant) for mutant in mutants(file, source)}
        assert len(reason) > 20


def test_the_sample_follows_from_the_seed() -> None:
    drawn = [[plan.key(job.mutant) for job in plan.sampled(plan.ROOT, PLAN, NAMES, seed, None)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == sum(group["sample"] for group in PLAN["group"])
