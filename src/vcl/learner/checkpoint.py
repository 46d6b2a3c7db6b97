"""Saves a State as bytes (safetensors, never pickle) and loads it on any machine."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vcl.beliefs.belief import Belief
from vcl.beliefs.layout import Layout
from vcl.beliefs.registry import FAMILIES, name_of
from vcl.data import Data, Source
from vcl.errors import LaterFormatError, VclError
from vcl.models.fingerprint import Fingerprint
from vcl.recursion import SetAside, State

FAULTS = (
    SafetensorError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
)  # fmt: skip
"""What reading a damaged state may raise; torch's own are RuntimeErrors."""

EXTRA = "coreset.extra."
PRECISIONS = ("float64", "float32", "float16", "bfloat16")
FORMAT = 2
"""Format 1 named beliefs by class, format 2 by the names of :mod:`vcl.beliefs.registry`."""

MOST_UNITS = 2**16
"""The most outputs of a head that is not there any more, in the fingerprint of a network."""

MOST_INPUTS = 2**24
"""The most values of one input, in the fingerprint of a network."""

CLASSES = {
    "Gaussian": "mean-field", "MeanField": "mean-field", "FullGaussian": "full", "Point": "point",
    "Quadratic": "quadratic",
}  # fmt: skip
"""The family names of format 1."""


class UnregisteredError(ValueError):
    """The file is intact, but contains a belief of an unregistered family."""


def to_bytes(state: State[Any]) -> bytes:
    """The whole state as bytes."""
    if not isinstance(state, State):
        raise VclError(f"a {type(state).__name__} was given; give a State, such as the last one that learn gave.")
    return save(packed(state))


def packed(state: State[Any]) -> dict[str, Tensor]:
    """The whole state as named tensors, copied to the CPU.

    A belief that several heads share (a joint q_t) is stored once.
    """
    beliefs: list[Any] = [state.propagated]
    places = {}
    for head, belief in state.predictive.items():
        if not any(belief is known for known in beliefs):
            beliefs.append(belief)
        places[head] = next(place for place, known in enumerate(beliefs) if belief is known)
    names = [name_of(belief) for belief in beliefs]
    tensors: dict[str, Tensor] = {}
    for place, belief in enumerate(beliefs):
        tensors.update({f"belief.{place}.{name}": value for name, value in belief.tensors().items()})
    if state.coreset is not None:
        tensors.update({f"coreset.{field}": getattr(state.coreset, field) for field in ("x", "y", "source")})
        tensors.update({f"{EXTRA}{name}": values for name, values in state.coreset.extra.items()})
    about = {
        "format": FORMAT,
        "t": state.t,
        "heads": dict(state.heads),
        "beliefs": [{"family": family, "layout": belief.layout} for family, belief in zip(names, beliefs, strict=True)],
        "predictive": places,
        "sources": None if state.coreset is None else state.coreset.sources,
        **({"set_aside": state.set_aside} if state.set_aside else {}),
        **({"fingerprint": _without_default(state.fingerprint)} if state.fingerprint else {}),
    }
    tensors["about"] = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}


def from_bytes(content: bytes, device: torch.device | str = "cpu") -> State[Any]:
    """The state that :func:`to_bytes` wrote, on ``device``; VclError if the bytes are invalid."""
    if not isinstance(content, bytes | bytearray | memoryview):
        raise VclError(
            f"a {type(content).__name__} was given; give the bytes of a saved state, such as Path(name).read_bytes()."
        )
    try:
        return unpacked(bytes(content), device)
    except UnregisteredError as error:
        raise VclError(f"this state cannot be loaded: {error}.") from error
    except ValueError as error:
        raise VclError(f"this is not a saved vcl state, or it is damaged ({error}); save it again.") from error


def unpacked(content: bytes, device: torch.device | str = "cpu") -> State[Any]:
    """Like :func:`from_bytes`, but raises ValueError, for callers that name the file in their own message.

    A state of a later format raises LaterFormatError.

    Checks that no tensor is missing or unexpected, and that the coreset has valid shapes and dtypes and finite numbers.
    Every family checks its own tensors. It also reads files of format 1.
    """
    try:
        tensors = load(content)
        about = json.loads(bytes(_pop(tensors, "about").numpy()))
        made = about["format"]
        if type(made) is int and made > FORMAT:
            raise LaterFormatError("this state", made, FORMAT)
        known = type(made) is int and made >= 1
        _require(known, f"its format is {made!r}, and this version reads 1 to {FORMAT}")
        return _state(about, {name: value.to(device) for name, value in tensors.items()})
    except UnregisteredError:
        raise
    except KeyError as error:
        raise ValueError(f"{error.args[0]!r} is missing or unknown") from error
    except FAULTS as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _state(about: dict[str, Any], tensors: dict[str, Tensor]) -> State[Any]:
    """The state from a description and tensors; every tensor must be used."""
    old = about["format"] == 1
    entries = [(CLASSES[each["kind"]] if old else each["family"], each["layout"]) for each in about["beliefs"]]
    beliefs = [_belief(f"belief.{place}.", *entry, tensors) for place, entry in enumerate(entries)]
    runs = beliefs[0].mean.shape[0]
    coreset = None if about["sources"] is None else _coreset(about["sources"], tensors)
    t, heads, places = about["t"], about["heads"], about["predictive"]
    _require(not tensors, f"{next(iter(tensors), '')} is too much")
    _require(type(t) is int and t >= 0, f"t is {t}")
    _require(isinstance(heads, dict) and all(type(size) is int and size > 0 for size in heads.values()), "heads")
    _require(set(places) == (set(heads) if t else set()), "predictive names other heads than were met")
    _require(all(type(place) is int and 0 <= place < len(beliefs) for place in places.values()), "predictive")
    _require(all(belief.mean.shape[0] == runs for belief in beliefs), "beliefs are of different numbers of runs")
    _require(coreset is None or coreset.runs == runs, "the coreset is of another number of runs")
    set_aside = _set_aside(about.get("set_aside", []), runs)
    known = _fingerprint(about["fingerprint"], heads) if "fingerprint" in about else None
    predictive = {head: beliefs[place] for head, place in places.items()}
    return State(t, heads, beliefs[0], predictive, coreset, set_aside, known)


def _without_default(known: Fingerprint) -> dict[str, Any]:
    """As earlier versions wrote it, unless there is more to say."""
    return {name: value for name, value in known._asdict().items() if name != "fixed" or value}


def _fingerprint(given: dict[str, Any], heads: dict[str, int]) -> Fingerprint:
    found = Fingerprint(**{**given, "shape": tuple(given["shape"]), "values": tuple(given["values"])})
    # A head may have grown since, or been forgotten.
    most = heads.get(found.head, MOST_UNITS)
    fine = type(found.units) is int and 0 < found.units <= most and type(found.whole) is bool
    fine = fine and prod(found.shape) <= MOST_INPUTS
    fine = (
        fine
        and isinstance(found.head, str)
        and all(type(size) is int and size >= 0 for size in found.shape)
        and found.dtype in PRECISIONS
    )
    _require(fine and all(type(value) is float for value in found.values), "the fingerprint of its network")
    return found


def _set_aside(given: list[list[Any]], runs: int) -> tuple[SetAside, ...]:
    found = tuple(SetAside(*each) for each in given)
    for run, seed, lam, task, reason in found:
        _require(type(run) is type(seed) is type(task) is int, "a run that was set aside")
        _require(isinstance(reason, str) and (lam is None or type(lam) in (int, float)), "a run that was set aside")
    _require({each.run for each in found} <= set(range(runs + len(found))), "runs that were set aside")
    _require(len({each.run for each in found}) == len(found), "runs that were set aside")
    return found


def _belief(start: str, family: str, parameters: list[Any], tensors: dict[str, Tensor]) -> Belief:
    """The belief of a family from the tensors whose names start with ``start``, which are removed from ``tensors``."""
    names, shapes = parameters
    layout = Layout(tuple(names), tuple(tuple(shape) for shape in shapes))
    _require(
        len(set(names)) == len(names) == len(shapes) and all(isinstance(name, str) for name in names),
        "names of parameters",
    )
    _require(all(type(size) is int and size >= 0 for shape in layout.shapes for size in shape), "shapes of parameters")
    mine = {name.removeprefix(start): tensors.pop(name) for name in list(tensors) if name.startswith(start)}
    if family not in FAMILIES:
        raise UnregisteredError(
            f"it holds a belief of the family {family!r}, which is not registered here (known: "
            f"{', '.join(FAMILIES)}): call vcl.beliefs.registry.register before you load it"
        )
    try:
        return FAMILIES[family].from_tensors(layout, mine)
    except VclError as error:
        raise ValueError(f"{start}{error}") from error


def _coreset(given: list[list[str]], tensors: dict[str, Tensor]) -> Data:
    x, y, source = (_pop(tensors, f"coreset.{field}") for field in ("x", "y", "source"))
    sources = tuple(Source(*each) for each in given)
    _require(all(isinstance(word, str) for each in sources for word in each), "sources of the coreset")
    _require(x.dim() > 2 and x.shape[:2] == y.shape[:2] == source.shape, "shapes of the coreset")
    _require(source.dtype == torch.int64, f"coreset.source has dtype {source.dtype}")
    _require(bool(((source >= 0) & (source < len(sources))).all()), "coreset.source is out of range")
    extra = {name.removeprefix(EXTRA): tensors.pop(name) for name in list(tensors) if name.startswith(EXTRA)}
    _require(all(value.shape[:2] == source.shape for value in extra.values()), "shapes of the coreset")
    for name, value in {"x": x, "y": y, **extra}.items():
        _require(
            not value.is_complex() and bool(value.isfinite().all()), f"coreset.{name} holds numbers that are not finite"
        )
    return Data(x, y, source, sources, extra)


def _pop(tensors: dict[str, Tensor], name: str) -> Tensor:
    _require(name in tensors, f"{name} is missing")
    return tensors.pop(name)


def _require(fine: bool, fault: str) -> None:
    if not fine:
        raise ValueError(fault)
