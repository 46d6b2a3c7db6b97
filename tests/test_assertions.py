"""Every test asserts something: a test that only runs code cannot see a wrong number."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKS = ("pytest.raises", "pytest.warns", "pytest.fail", "torch.testing.assert_", "np.testing.assert_")


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def asserting(source: str, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names in ``source`` of all functions that assert: themselves, or by calling one that does."""
    while True:
        found = known | {function.name for function in functions(source) if asserts(function, known)}
        if found == known:
            return known
        known = found


def asserts(function: ast.AST, known: frozenset[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.startswith(CHECKS) or called.removeprefix("self.") in known:
                return True
    return False


def silent(source: str, helpers: frozenset[str] = frozenset()) -> list[str]:
    """The names of the tests in ``source`` that assert nothing; ``helpers`` are other files' functions that do."""
    known = asserting(source, helpers)
    return [
        function.name
        for function in functions(source)
        if function.name.startswith("test_") and function.name not in known
    ]


def test_every_test_asserts_something() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(HERE.rglob("*.py"))}
    made = [asserting(source) for path, source in sources.items() if not path.name.startswith("test_")]
    helpers = frozenset[str]().union(*made)
    assert {str(path): found for path, source in sources.items() if (found := silent(source, helpers))} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_a():\n    work()", ["test_a"]),
        ("def test_a():\n    assert work()", []),
        ("def test_a():\n    with pytest.raises(ValueError):\n        work()", []),
        ("def test_a():\n    helper()\ndef helper():\n    assert 1", []),
        ("def test_a():\n    helper()\ndef helper():\n    inner()\ndef inner():\n    assert 1", []),
        ("class TestIt:\n    def test_a(self):\n        self.helper()\n    def helper(self):\n        assert 1", []),
        ("class TestIt:\n    def test_a(self):\n        work()", ["test_a"]),
        ("def helper():\n    work()\ndef test_a():\n    helper()\ndef test_b():\n    assert 1", ["test_a"]),
    ],
)
def test_a_test_that_asserts_nothing_is_found(source: str, found: list[str]) -> None:
    assert silent(source) == found
