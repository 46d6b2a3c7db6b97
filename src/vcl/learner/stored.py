"""A learner's knowledge as JSON and tensors, and back, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vcl.beliefs.layout import Layout
from vcl.errors import VclError
from vcl.fitting.learned_noise import NoiseBelief
from vcl.learner.checkpoint import to_bytes, unpacked
from vcl.learner.folder import Content
from vcl.learner.input_kind import Inputs
from vcl.learner.knowledge import Knowledge, TaskRecord
from vcl.learner.plausible import check
from vcl.learner.record import Update
from vcl.learner.scaling import Scaling
from vcl.learner.sites import Site
from vcl.learner.tables import Table
from vcl.models.base import Model
from vcl.models.fingerprint import check_model
from vcl.recursion import State

SITE, PRIOR, NOISE, SCALING = "site", "prior.", "noise.", "scaling."


def described(known: Knowledge, outputs: Callable[[Any], Any]) -> dict[str, Any]:
    """The part that is JSON."""
    return {
        "inputs": known.inputs._asdict(),
        "outputs": {head: outputs(each) for head, each in known.outputs.items()},
        "tasks": {name: record._asdict() for name, record in known.tasks.items()},
        "table": None if known.table is None else known.table.described(),
        "sites": {
            name: {"names": site.layout.names, "shapes": site.layout.shapes} for name, site in known.sites.items()
        },
        "seen": dict(known.seen),
        "history": [update.described() for update in known.history],
    }


def state_bytes(known: Knowledge) -> bytes:
    """The state of the recursion."""
    return to_bytes(known.state)


def arrays(known: Knowledge, prior: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The other tensors by name."""
    found = {f"{PRIOR}{name}": value for name, value in prior.items()}
    if known.scaling is not None:
        found |= {f"{SCALING}centre": known.scaling.centre, f"{SCALING}width": known.scaling.width}
    for head, noise in (known.noise or {}).items():
        found |= {f"{NOISE}shape.{head}": noise.shape, f"{NOISE}rate.{head}": noise.rate}
    for place, site in enumerate(known.sites.values()):
        found |= {f"{SITE}.{place}.precision": site.precision, f"{SITE}.{place}.shift": site.shift}
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in found.items()}


@contextmanager
def damage(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises VclError where what a folder holds is not what a learner writes."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        said = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise VclError(f"the learner in {path} is damaged ({said}); restore it from a copy.") from error


def knowledge(
    content: Content, outputs: Callable[[Any], Any], device: torch.device
) -> tuple[Knowledge, dict[str, Tensor]]:
    """The knowledge in a folder, and the prior's mean; ValueError and the like if it is damaged."""
    about, saved = content.about, content.arrays
    given = about["inputs"]
    inputs = Inputs(tuple(given["shape"]), given["kind"], given["dtype"], given["grey"])
    scaling = Scaling(saved[f"{SCALING}centre"], saved[f"{SCALING}width"]) if f"{SCALING}centre" in saved else None
    noisy = [name.removeprefix(f"{NOISE}shape.") for name in saved if name.startswith(f"{NOISE}shape.")]
    noise = {head: NoiseBelief(saved[f"{NOISE}shape.{head}"], saved[f"{NOISE}rate.{head}"]) for head in noisy} or None
    sites = {
        name: Site(
            Layout(tuple(layout["names"]), tuple(map(tuple, layout["shapes"]))),
            saved[f"{SITE}.{place}.precision"].to(device),
            saved[f"{SITE}.{place}.shift"].to(device),
        )
        for place, (name, layout) in enumerate(about["sites"].items())
    }
    known = Knowledge(
        unpacked(content.state, device), inputs, {head: outputs(each) for head, each in about["outputs"].items()},
        {name: TaskRecord(**record) for name, record in about["tasks"].items()}, scaling,
        None if about["table"] is None else Table.from_described(about["table"]), noise, sites,
        dict(about["seen"]), tuple(Update.from_described(each) for each in about["history"]),
    )  # fmt: skip
    check(known)
    prior = {name.removeprefix(PRIOR): value for name, value in saved.items() if name.startswith(PRIOR)}
    return known, prior


def example(inputs: Inputs, scaling: Scaling | None) -> Tensor:
    """An example of the inputs as the network takes them, of zeros, to see how it is built."""
    dtype = {"pixels": torch.uint8, "tokens": torch.int64, "numbers": torch.float32}[inputs.kind]
    return inputs.tensor(torch.zeros(1, *inputs.shape, dtype=dtype), scaling)


def check_frozen(saved: Mapping[str, str], here: Mapping[str, str], path: str | os.PathLike[str]) -> None:
    """Raise VclError unless the frozen parameters are those that the learner was saved with."""
    for name in {**saved, **here}:
        if saved.get(name) != here.get(name):
            raise VclError(
                f"the learner in {path} was saved with another network: {name!r}, which has no posterior, has other "
                "values; give the network with the values that it had then (load its weights first)."
            )


def check_network(state: State[Any], model: Model, path: str | os.PathLike[str]) -> None:
    """Raise VclError unless the belief's parameters are the network's; names the first that differs."""
    try:
        check_model(model, state.propagated.layout, state.heads, state.fingerprint, state.propagated.mean)
    except VclError as error:
        raise VclError(f"the learner in {path} was saved with another network: {error}") from error
