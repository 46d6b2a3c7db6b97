"""The source files that a plugin's numbers follow from, and a digest of them.

Of a package these are all of its Python files. Of a file (``--plugin``) they are the file, and what it imports from its
own folder or from the package that it lies in, and what that imports from there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

PREFIX = "vcl_plugin_"
"""How the modules of plugin files are named."""


def module_of(value: Any) -> str:
    """The module that defines a function, a class or an object's class; nothing if that is not known."""
    while isinstance(value, partial):
        value = value.func
    return str(getattr(value, "__module__", None) or "")


def digest_of(modules: Iterable[str]) -> str | None:
    """A digest of the files of modules, those of vcl and of Python itself left out; None where nothing is left."""
    others = {module for module in modules if module.partition(".")[0] not in {"vcl", *sys.stdlib_module_names}}
    files = {file for module in others for file in files_of(module) if file.is_file()}
    found = sorted(sha256(file.read_bytes()).hexdigest() for file in files)  # where they lie does not count
    return sha256("".join(found).encode()).hexdigest()[:16] if found else None


def files_of(module: str) -> set[Path]:
    """The files of a loaded module: of its top-level package, or itself with what it imports from its folder."""
    top, file = sys.modules.get(module.partition(".")[0]), getattr(sys.modules.get(module), "__file__", None)
    package = [path for place in getattr(top, "__path__", ()) for path in Path(place).rglob("*.py")]
    if package or not file:
        return set(package)
    return _with_imports(Path(file)) if module.startswith(PREFIX) else {Path(file)}


def _with_imports(file: Path) -> set[Path]:
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found, todo = set[Path](), [file]
    while todo:
        path = todo.pop().resolve()
        if path not in found:
            found.add(path)
            todo += [each for each in _imported(path, {file.parent, root}) if each.is_file()]
    return found


def _imported(file: Path, roots: set[Path]) -> Iterator[Path]:
    """Where the modules that a file names in its imports would lie below these folders."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):  # it is not what was imported, or loading has said so
        return
    for node in nodes:
        match node:
            case ast.Import(names=names):
                named, places = [alias.name for alias in names], roots
            case ast.ImportFrom(module=module, names=names, level=level):
                start = [module] if module else []
                named = [".".join([*start, alias.name]) for alias in names]
                places = {file.parents[level - 1]} if 0 < level <= len(file.parents) else roots
            case _:
                continue
        for name in named:
            parts = name.split(".")
            for place in (root.joinpath(*parts[:n]) for root in places for n in range(1, len(parts) + 1)):
                if parts[0] != "vcl" or places is not roots:
                    yield from (place.with_name(f"{place.name}.py"), place / "__init__.py")
