"""Single changes of a source file, each of which some test should notice.

A mutant is one piece of text replaced by another. Python is read by ``ast``, whose nodes know where they stand, so that
the rest of the file stays as it is; TOML by its lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

OPPOSITE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is not": "is", "is": "is not",
            "not in": "in", "in": "not in"}  # fmt: skip
OTHER = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.Pow: ("**", "*"),
         ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//")}  # fmt: skip
TOML_VALUE = re.compile(rb"^(?P<key>[\w-]+) = (?P<value>true|false|-?[\d_]+(?:\.\d+)?(?:[eE][+-]?\d+)?)[ \t]*$", re.M)


class Mutant(NamedTuple):
    """The bytes ``start`` to ``end`` of ``file`` replaced by ``new``."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    kind: str
    context: str
    """The line on which it begins, without its margins."""

    def applied(self, source: bytes) -> bytes:
        """The changed file."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    @property
    def change(self) -> str:
        """``old -> new`` in one line."""
        return f"{' '.join(self.old.split())} -> {' '.join(self.new.split())}"


def mutants(file: str, source: bytes) -> list[Mutant]:
    """All of them, in the order of the file."""
    found = _toml(file, source) if file.endswith(".toml") else _python(file, source)
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.new))


def _make(file: str, source: bytes, start: int, end: int, new: str, kind: str) -> Mutant:
    line = source.count(b"\n", 0, start)
    context = source.split(b"\n")[line].decode().strip()
    return Mutant(file, line + 1, start, end, source[start:end].decode(), new, kind, context)


def _toml(file: str, source: bytes) -> Iterator[Mutant]:
    for match in TOML_VALUE.finditer(source):
        text = match["value"].decode()
        new = {"true": "false", "false": "true"}.get(text) or _number(float(text) if "." in text else int(text))
        yield _make(file, source, *match.span("value"), new, f"number {match['key'].decode()}")


def _number(value: float) -> str:
    """Twice as much; one more where that is a small whole number; one instead of nothing."""
    if value == 0:
        return "1" if isinstance(value, int) else "1.0"
    return str(value + 1 if isinstance(value, int) and abs(value) < 10 else 2 * value)


def _python(file: str, source: bytes) -> Iterator[Mutant]:
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)

    def begin(node: ast.AST) -> int:
        return starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def end(node: ast.AST) -> int:
        return starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def whole(node: ast.AST, new: str, kind: str) -> Mutant:
        return _make(file, source, begin(node), end(node), new, kind)

    def between(left: ast.AST, right: ast.AST, old: str, new: str, kind: str) -> Iterator[Mutant]:
        """The operator that stands between two operands, beside brackets."""
        word = r"\s+".join(old.split()) if old[0].isalpha() else re.escape(old)
        match = re.search((rf"\b{word}\b" if old[0].isalpha() else word).encode(), source[end(left) : begin(right)])
        if match:
            yield _make(file, source, end(left) + match.start(), end(left) + match.end(), new, kind)

    def of(node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Constant(value=bool() as value):
                yield whole(node, str(not value), "truth")
            case ast.Constant(value=int() | float() as value):
                yield whole(node, _number(value), "number")
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                old = _symbol(op)
                yield from between(left, right, old, OPPOSITE[old], "comparison")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OTHER:
                yield from between(left, right, *OTHER[type(op)], "arithmetic")
            case ast.BoolOp(op=op, values=[first, second, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from between(first, second, *words, "and, or")
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield whole(node, f"({ast.unparse(operand)})", "sign")
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield whole(test, f"(not ({ast.unparse(test)}))", "condition")
            case ast.Call(func=func, args=args, keywords=keywords):
                for number, keyword in enumerate(keywords):
                    if keyword.arg is not None:
                        kept = keywords[:number] + keywords[number + 1 :]
                        yield whole(node, ast.unparse(ast.Call(func, args, kept)), "dropped argument")
                if len(args) >= 2 and ast.dump(args[0]) != ast.dump(args[1]):
                    yield whole(node, ast.unparse(ast.Call(func, [args[1], args[0], *args[2:]], keywords)), "swap")
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
                yield whole(node, "pass", "removed statement")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield whole(node, "return None", "result")
            case ast.AnnAssign(annotation=kind, value=ast.Constant(value=str() as given) as default):
                options = [c.value for c in ast.walk(kind) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
                if given in options and len(options) > 1:
                    yield whole(default, repr(options[(options.index(given) + 1) % len(options)]), "option")

    def visit(node: ast.AST) -> Iterator[Mutant]:
        yield from of(node)
        for child in _inside(node):
            yield from visit(child)

    return visit(ast.parse(source))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The parts that a run's numbers can depend on: no types, no decorators, no words of errors."""
    skipped: list[ast.AST] = []
    match node:
        case ast.FunctionDef(decorator_list=decorators, returns=returns):
            skipped = [*decorators, *([returns] if returns else [])]
        case ast.ClassDef(decorator_list=decorators):
            skipped = list(decorators)
        case ast.AnnAssign(annotation=annotation):
            skipped = [annotation]
        case ast.arg() | ast.Raise() | ast.JoinedStr() | ast.Assert():
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return
        case ast.UnaryOp(operand=operand):  # -1 becomes 1 already
            skipped = [operand] if isinstance(operand, ast.Constant) else []
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield child


def _symbol(op: ast.cmpop) -> str:
    text = ast.unparse(ast.Compare(ast.Name("a"), [op], [ast.Name("b")]))
    return text[2:-2]
