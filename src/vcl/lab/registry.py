"""Experiments, methods and datasets by name: those of vcl, of installed packages, and of files that a user gives.

A package offers them by entry points of the groups ``vcl.experiments``, ``vcl.methods`` and ``vcl.datasets``; each is
an entry or a sequence of entries. Of a file (``--plugin my_method.py``), every entry that it defines is taken.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vcl.errors import VclError, unknown
from vcl.lab.datasets import DATASETS
from vcl.lab.datasets.entry import DatasetEntry
from vcl.lab.experiments import EXPERIMENTS, Experiment
from vcl.lab.experiments.experiment import PARTS, PRESETS
from vcl.lab.methods.entry import MODELS, MethodEntry, Models
from vcl.lab.methods.generators import GENERATIVE_METHODS
from vcl.lab.methods.networks import METHODS
from vcl.lab.settings import settings_in
from vcl.lab.sources import PREFIX, digest_of, module_of

E = TypeVar("E", MethodEntry, Experiment, DatasetEntry)


class Offered(NamedTuple):
    """An entry of a plugin, where it is from in words, and a digest of the plugin's files as they were loaded."""

    entry: Any
    where: str
    code: str | None


class Plugins(NamedTuple):
    """What installed packages offer, and what is wrong with those that could not be loaded."""

    entries: list[Offered]
    faults: list[str]


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESERVED = ("stream", "network", "prediction", "run", "parts", "table.md")
"""Names of sections of settings, and of files in a folder of results."""

FILES: dict[Path, list[Offered]] = {}
"""The entries of the files that were loaded."""


def load_file(path: Path) -> None:
    """Load a plugin file, once; raise one clear sentence if it cannot be loaded or offers nothing."""
    path = path.resolve()
    if path in FILES:
        return
    name = f"{PREFIX}{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    if not path.exists():
        raise VclError(f"--plugin is {path}, which does not exist; give a Python file that defines a MethodEntry.")
    spec = spec_from_file_location(name, path) if path.is_file() and path.suffix == ".py" else None
    if spec is None or spec.loader is None:
        raise VclError(
            f"--plugin is {path}, which is no Python file; give one that defines a MethodEntry or Experiment."
        )
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the file raises is its author's to fix
        del sys.modules[name]
        raise VclError(f"--plugin {path} cannot be loaded ({type(error).__name__}: {error}); fix it.") from error
    known = {id(each) for each in (*METHODS, *GENERATIVE_METHODS, *EXPERIMENTS, *DATASETS)}
    found = [each for each in _entries(vars(module).values()) if id(each) not in known]
    if not found:
        raise VclError(
            f"--plugin {path} defines no MethodEntry, Experiment or DatasetEntry; give one at its top level."
        )
    taken = _by_name()
    for each in found:
        if wrong := _wrong_with(each):
            raise VclError(f"--plugin {path} {wrong}")
        if taken.setdefault(_key(each), (each, str(path)))[0] is not each:
            raise VclError(_taken(str(path), each.name, taken[_key(each)][1]))
    FILES[path] = [Offered(each, str(path), _code(each, name)) for each in found]


def experiments() -> dict[str, Experiment]:
    """All experiments by name."""
    return _named(EXPERIMENTS, Experiment, lambda each: True)


def methods(models: Models) -> dict[str, MethodEntry]:
    """All methods for networks or for generators, by name."""
    own = METHODS if models == "networks" else GENERATIVE_METHODS
    return _named(own, MethodEntry, lambda each: each.models == models)


def datasets() -> dict[str, DatasetEntry]:
    """All datasets by name."""
    return _named(DATASETS, DatasetEntry, lambda each: True)


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    return _get("experiment", name, experiments())


def method(name: str, models: Models = "networks") -> MethodEntry:
    """The method of this name."""
    return _get("method", name, methods(models))


def dataset(name: str) -> DatasetEntry:
    """The dataset of this name."""
    return _get("dataset", name, datasets())


def code_of(entry: Any) -> str | None:
    """A digest of the files that a plugin's entry is made of, so that its results are computed again when they change.

    None for entries of vcl itself, which have versions.
    """
    if any(entry is own for own in (*METHODS, *GENERATIVE_METHODS, *EXPERIMENTS)):
        return None
    known = (each.code for each in _offered() if each.entry is entry)
    return next(known, None) or _code(entry)


@cache
def installed() -> Plugins:
    """The entries of installed packages."""
    found = Plugins([], [])
    taken = {_key(each): (each, "vcl") for each in (*METHODS, *GENERATIVE_METHODS, *EXPERIMENTS, *DATASETS)}
    for group in ("vcl.experiments", "vcl.methods", "vcl.datasets"):
        for point in entry_points(group=group):
            where = f"{point.name} of {point.dist.name if point.dist else 'a package'}"
            try:
                loaded = point.load()
            except (Exception, SystemExit) as error:  # one broken package must not stop the others
                found.faults.append(f"the plugin {where} cannot be loaded ({type(error).__name__}: {error}).")
                continue
            entries = _entries(loaded if isinstance(loaded, list | tuple) and not hasattr(loaded, "name") else [loaded])
            if not entries:
                found.faults.append(f"the plugin {where} is no MethodEntry, Experiment or DatasetEntry.")
            for each in entries:
                if wrong := _wrong_with(each):
                    found.faults.append(f"the plugin {where} {wrong}")
                    continue
                first, owner = taken.setdefault(_key(each), (each, where))
                if first is each:
                    found.entries.append(Offered(each, where, _code(each, point.module)))
                else:
                    found.faults.append(_taken(where, each.name, owner))
    return found


def _entries(values: Iterable[Any]) -> list[Any]:
    return [each for each in values if isinstance(each, MethodEntry | Experiment | DatasetEntry)]


def _wrong_with(entry: Any) -> str:
    """What is wrong with a plugin's entry, if anything."""
    if not isinstance(entry.name, str) or NAME.fullmatch(entry.name) is None or entry.name in RESERVED:
        return (
            f"names {entry.name!r}; give a name of letters, digits, dots and dashes, not one of {', '.join(RESERVED)}."
        )
    try:
        for kind in _settings_of(entry):
            settings_in(kind)
        if isinstance(entry, MethodEntry | Experiment) and entry.models not in MODELS:
            return f"offers {entry.name}, but its models is {entry.models!r}; give one of {', '.join(MODELS)}."
        if isinstance(entry, MethodEntry) and (more := entry.values.keys() - settings_in(entry.settings).keys()):
            return f"offers {entry.name}, but its values name {', '.join(sorted(more))}, which its settings lack."
        _made_of(entry)
    except VclError as error:
        return f"offers {entry.name}, but {error}"
    except Exception as error:  # whatever its fields raise is its author's to fix
        return f"offers {entry.name}, which cannot be read ({type(error).__name__}: {error}); fix it."
    return ""


def _settings_of(entry: Any) -> Iterable[type]:
    if isinstance(entry, MethodEntry):
        yield entry.settings
    if isinstance(entry, Experiment):
        for preset in PRESETS:
            yield from (type(getattr(entry.presets[preset], part)) for part in PARTS)


def _key(entry: Any) -> tuple[str, ...]:
    """No two entries have the same: methods for networks and for generators may share a name."""
    models = (entry.models,) if isinstance(entry, MethodEntry) else ()
    return type(entry).__name__, *models, entry.name


def _taken(where: str, name: str, owner: str) -> str:
    return f"{where} names {name}, which {owner} has already; give it another name."


def _code(entry: Any, *modules: str) -> str | None:
    """A digest of modules, and of those that define what makes an entry's numbers."""
    return digest_of([*modules, *map(module_of, _made_of(entry))])


def _made_of(entry: Any) -> tuple[Any, ...]:
    """What makes an entry's numbers; a dataset's count by their content."""
    if isinstance(entry, MethodEntry):
        return entry.build, entry.settings
    if isinstance(entry, Experiment):
        how = entry.evaluation
        return entry.stream, entry.model, how.evaluate, how.prepare, how.depends_on, how.samples, how.keep
    return ()


def _offered() -> Iterable[Offered]:
    return (*installed().entries, *(each for file in FILES.values() for each in file))


def _by_name() -> dict[tuple[str, ...], tuple[Any, str]]:
    """Every entry, with where it is from."""
    own = {_key(each): (each, "vcl") for each in (*METHODS, *GENERATIVE_METHODS, *EXPERIMENTS, *DATASETS)}
    return own | {_key(each.entry): (each.entry, each.where) for each in _offered()}


def _named(own: Sequence[E], kind: type[E], chosen: Callable[[E], bool]) -> dict[str, E]:
    found = {each.name: each for each in own}
    for each in _offered():
        if isinstance(each.entry, kind) and chosen(each.entry):
            found[each.entry.name] = each.entry
    return found


def _get(what: str, name: str, known: dict[str, E]) -> E:
    if name not in known:
        error = unknown(what, name, list(known))
        raise VclError(" ".join([str(error), *installed().faults])) if installed().faults else error
    return known[name]
