"""What a finished part is kept for: predictions of its networks, images of its generators."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vcl.beliefs.point import Point
from vcl.errors import VclError, unknown
from vcl.lab import npy
from vcl.lab.datasets.entry import Say
from vcl.lab.experiments.experiment import Experiment
from vcl.lab.holding_out import hold_out
from vcl.lab.identity import digest_of_made
from vcl.lab.loading import load_named
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.part import Loaded
from vcl.lab.parts import compared, gathered, labels, same_part
from vcl.lab.reading import reading, require, same_layout
from vcl.lab.settings import read_values, settings_in, values_of
from vcl.lab.store import PART, PREDICTIVE, Stack, Store
from vcl.lab.sums import check_seal, owner
from vcl.learner.bounded import read_bounded
from vcl.learner.checkpoint import unpacked
from vcl.models.base import spread
from vcl.models.likelihoods.base import HasMoments, mean_and_variance
from vcl.ops.rng import Rng
from vcl.predicting.generation import generate
from vcl.predicting.prediction import predict
from vcl.recursion import State

MOST_IMAGES = 10_000
MOST_INPUTS = 10**9
"""Values of one input, beyond which no file can be right."""
MOST_BYTES = 2**32
"""The most bytes of inputs that are read."""

AGAIN = "delete its folder and run it again"
OTHER = "it is of another network than part.json says"
S = TypeVar("S")


class Saved(NamedTuple):
    """A finished stack with its network and state."""

    stack: Stack
    experiment: Experiment
    entry: MethodEntry
    model: Any
    state: State[Any]
    shape: tuple[int, ...]

    @property
    def tasks(self) -> list[str]:
        """The names of its tasks."""
        return [name for name, _ in self.stack.known["tasks"]]


class Predictions(NamedTuple):
    """``probabilities`` [R, N, C], or ``mean`` and ``sd``; seeds [R]; labels [N] where all runs share them."""

    seeds: tuple[int, ...]
    arrays: dict[str, NDArray[Any]]
    labels: NDArray[Any] | None
    lambdas: tuple[float, ...] = ()
    """Of each run, where the method has one."""


def joined(several: Sequence[Predictions]) -> Predictions:
    """The predictions of several stacks of one part; a run that two processes have computed is there once."""
    first = several[0]
    seeds = [seed for each in several for seed in each.seeds]
    lambdas = [lam for each in several for lam in each.lambdas]
    runs = list(zip(seeds, lambdas or seeds, strict=True))
    kept = [place for place, run in enumerate(runs) if run not in runs[:place]]
    arrays = {name: np.concatenate([each.arrays[name] for each in several])[kept] for name in first.arrays}
    known = [each.labels for each in several if each.labels is not None]
    same = len(known) == len(several) and all(np.array_equal(each, known[0]) for each in known)
    return Predictions(
        tuple(seeds[place] for place in kept), arrays, first.labels if same else None,
        tuple(lambdas[place] for place in kept if lambdas),
    )  # fmt: skip


def find(folder: Path, name: str | None, task: str = "", experiment: str | None = None) -> list[Stack]:
    """The finished stacks of one part in a folder of results, or the stack of a part's own folder.

    ``name`` is a method, or the label that a table has for one of its parts. Where parts of several experiments have
    it, those of ``experiment`` are taken, or those that have the task.
    """
    if (folder / "part.json").is_file():
        whole = folder.resolve()  # a name alone has no parents
        stacks = [each for each in Store(whole.parents[1], torch.device("cpu"), "").stacks() if each.folder == whole]
    else:
        stacks = Store(folder, torch.device("cpu"), "").stacks()
    finished = [stack for stack in stacks if stack.finished]
    finished = [stack for stack in finished if stack.known.get("validation") is None] or finished
    if not finished:
        raise VclError(f"{folder} holds no finished part; give a folder that `vcl run` made, and finish it there.")
    if experiment is not None:
        there = [str(stack.known["experiment"]) for stack in finished]
        if experiment not in there:
            raise unknown("experiment", experiment, dict.fromkeys(there))
        finished = [stack for stack in finished if stack.known["experiment"] == experiment]
    having = [stack for stack in finished if task in [known for known, _ in stack.known["tasks"]]]
    finished = having or finished
    shown = {folder: label for group in gathered(stacks, compared) for folder, label in labels(group).items()}
    names = list(dict.fromkeys(stack.known["method"] for stack in finished))
    wanted = name or names[0]
    mine = [stack for stack in finished if name is not None and shown[stack.folder] == wanted]
    mine = mine or [stack for stack in finished if stack.known["method"] == wanted]
    if not mine:
        raise unknown("method", wanted, list(dict.fromkeys([*names, *(shown[stack.folder] for stack in finished)])))
    if len(gathered(mine, same_part)) > 1:
        listed = ", ".join(f"{shown[stack.folder]!r} of {stack.name} in {stack.folder}" for stack in mine)
        also = "--experiment, " if len({stack.known["experiment"] for stack in mine}) > 1 else ""
        raise VclError(
            f"{folder} holds several parts of {wanted}; give {also}the label or the folder of one: {listed}."
        )
    return mine


def read(folder: Path, name: str | None, task: str = "", experiment: str | None = None) -> Saved:
    """The first finished stack of a part, all that is read of it checked."""
    return read_stack(find(folder, name, task, experiment)[0])


def read_stack(stack: Stack) -> Saved:
    """A finished stack, all that is read of it checked."""
    known, path = stack.known, stack.folder / PREDICTIVE
    chosen = stack.experiment()
    entry = stack.entry()
    with reading(stack.folder / PART, AGAIN):
        network = settings_from(stack, type(chosen.presets["paper"].network), "network")
        shape, sides = known["shape"], 2 if chosen.models == "generators" else 1
        require(isinstance(shape, list) and all(type(side) is int and side > 0 for side in shape), f"shape is {shape}")
        require(len(shape) >= sides, f"shape is {shape}")
        require(prod(shape) <= MOST_INPUTS, f"shape is {shape}")
        with torch.device("meta"):  # shapes alone
            model = chosen.model(network, tuple(shape))
    with reading(path, AGAIN):
        content = read_bounded(path)
        check_seal(content, owner(known))
        state = unpacked(content)
        if chosen.models == "generators":
            check_decoders(state, model, tuple(shape))
        else:
            check_networks(state, model, stack)
    return Saved(stack, chosen, entry, chosen.model(network, tuple(shape)), state, tuple(shape))


def settings_from(stack: Stack, kind: type[S], *keys: str) -> S:
    """Within :func:`reading`: the settings of a class that a stack's description has under these keys."""
    stored: Any = stack.known["description"]
    for each in keys:
        stored = stored[each]
    unknown_names = stored.keys() - settings_in(kind).keys()
    require(not unknown_names, f"{sorted(unknown_names)} are no settings of this version")
    return read_values(kind, stored)


def check_decoders(state: State[Any], model: Any, shape: tuple[int, ...]) -> None:
    """Within :func:`reading`: that these are the decoders of one run, of this network."""
    require(len(shape) == 2, f"images of {len(shape)} sides cannot be drawn")
    require(set(state.heads.values()) <= {prod(shape)}, f"its images are not of {' x '.join(map(str, shape))} pixels")
    wanted = spread(model, model.layout(state.heads))
    for belief in (state.propagated, *state.predictive.values()):
        require(belief.mean.shape[0] == 1, f"it is of {belief.mean.shape[0]} runs, not of one")
        require(belief.mean.dtype == torch.float32, f"its weights are {belief.mean.dtype}")
        require(same_layout(belief.layout, wanted), OTHER)


def check_networks(state: State[Any], model: Any, stack: Stack) -> None:
    """Within :func:`reading`: that these are the networks of the stack's runs, after all of its tasks."""
    wanted, alive = model.layout(state.heads), [stack.runs[run] for run in state.alive if run < len(stack.runs)]
    require(state.runs_begun == len(stack.runs), f"it is of {state.runs_begun} runs, not {len(stack.runs)}")
    require(tuple(alive) == stack.alive, "it is of other runs than part.json says")
    require(state.t == len(stack.known["tasks"]), f"it is of {state.t} tasks, not {len(stack.known['tasks'])}")
    for head, belief in state.predictive.items():
        fits = same_layout(belief.layout, wanted) or same_layout(belief.layout, wanted.touched([head]))
        require(fits, OTHER)
        require(belief.mean.shape[0] == len(alive), f"head {head!r} is of {belief.mean.shape[0]} runs")
        require(belief.mean.dtype == torch.float32, f"its weights are {belief.mean.dtype}")


def images(saved: Saved, task: str, count: int, seed: int) -> Tensor:
    """``count`` images of one task's generator [count, ...], weights and z drawn; a seed gives the same images."""
    if saved.experiment.models != "generators":
        raise VclError(f"{saved.experiment.name} has no generators; give a run of a generative experiment.")
    if task not in saved.state.predictive:
        raise unknown("task", task, list(saved.state.predictive))
    if count < 1:
        raise VclError(f"--count is {count}; give at least 1.")
    if count > MOST_IMAGES:
        raise VclError(f"--count is {count}; give at most {MOST_IMAGES:,}, which is what one picture can show.")
    drawn = generate(saved.state.predictive[task], saved.model, task, count, Rng((seed,)).at("sample"))[0]
    return drawn.view(count, *saved.shape)


def predictions(saved: Saved, task: str, inputs: Path | None, data: Path | None, say: Say) -> Predictions:
    """What every run predicts for a task: for inputs from a file, or for the task's test data."""
    if saved.experiment.models == "generators":
        raise VclError(
            f"{saved.experiment.name} keeps decoders alone, and predictions need the encoders too; `vcl sample` "
            "draws from them."
        )
    if task not in saved.tasks:
        raise unknown("task", task, saved.tasks)
    heads = saved.state.heads
    runs = [saved.stack.runs[run] for run in saved.state.alive]
    rng = Rng(tuple(run.seed for run in saved.stack.runs)).select(saved.state.alive)
    if inputs is None:
        test = _stream(saved, data, say).make(saved.tasks.index(task)).test
        if test is None:
            raise VclError(f"task {task!r} has no test data; give --inputs.")
        test = test.select(saved.state.alive)
        x, head, shown = test.x, test.sources[0].head, test.y[0].numpy()
        same = bool((test.y == test.y[:1]).all())
    else:
        array = read_inputs(inputs, saved.shape, pixels=saved.stack.known["dataset"] is not None)
        head = task if task in heads else next(iter(heads)) if len(heads) == 1 else _head(saved, task, data, say)
        x, shown, same = array.expand(len(runs), *array.shape), None, False
    belief = saved.state.predictive[head]
    with reading(saved.stack.folder / PART, AGAIN):
        kind = type(saved.experiment.presets["paper"].prediction)
        prediction = values_of(settings_from(saved.stack, kind, "prediction", "settings"))
    found = predict(
        belief if saved.entry.draws else Point(belief.layout, belief.mean),
        saved.model,
        x,
        head,
        rng.at("evaluate", saved.state.t, saved.tasks.index(task) + 1),
        prediction.get("predict_draws", 100) if saved.entry.draws else 1,
        prediction.get("predict_estimator", "weights"),
    )
    arrays = arrays_of(found, saved.model.likelihood)
    lambdas = tuple(run.lam for run in runs if run.lam is not None)
    return Predictions(tuple(run.seed for run in runs), arrays, shown if same else None, lambdas)


def arrays_of(found: Tensor, likelihood: Any) -> dict[str, NDArray[Any]]:
    """What a likelihood expects [R, N, ...]: mean and deviation of numbers, or probabilities of classes."""
    if not isinstance(likelihood, HasMoments):
        return {"probabilities": found.numpy()}
    mean, var = mean_and_variance(found)
    return {"mean": mean.numpy(), "sd": var.clamp_min(0).sqrt().numpy()}


def _head(saved: Saved, task: str, data: Path | None, say: Say) -> str:
    """The head of a task that has not the task's name."""
    sources = _stream(saved, data, say).make(saved.tasks.index(task)).train.sources
    return str(sources[0].head)


def _stream(saved: Saved, folder: Path | None, say: Say) -> Any:
    """The stream that the part learned, made from the same data."""
    known, about = saved.stack.known, saved.stack.known["description"]
    data: Loaded = load_named(known["dataset"], folder, say)
    if known.get("validation") is not None and data.arrays is not None:
        rest = hold_out(data.arrays, float(known["validation"]))
        data = Loaded(rest, data.origin, rest.digest())
    with reading(saved.stack.folder / PART, AGAIN):
        settings = settings_from(saved.stack, type(saved.experiment.presets["paper"].stream), "stream")
    if (data.digest or digest_of_made(saved.experiment, settings)) != about["data"]:
        raise VclError(
            f"{known['dataset'] or saved.experiment.name} here is not the data that {saved.stack.folder.name} was "
            f"computed with; give {'that with --data, or ' if known['dataset'] else ''}your own inputs with --inputs."
        )
    return saved.experiment.made_stream(data.arrays, settings, Rng(tuple(run.seed for run in saved.stack.runs)))


def read_inputs(path: Path, shape: tuple[int, ...], pixels: bool = False) -> Tensor:
    """Inputs [N, ...] of this shape from an npy file, or the first array of an npz file.

    Datasets hold uint8 ``pixels``, which the network sees from 0 to 1: integers are taken as such pixels, and numbers
    of another scale are refused.
    """
    try:
        if npy.is_npz(path):
            names = npy.names_in(path, MOST_BYTES)
            (array,) = npy.read_npz(path, MOST_BYTES, ["x" if "x" in names else names[0]]).values()
        else:
            array = npy.read_npy(path, MOST_BYTES)
    except npy.DAMAGED as error:
        said = str(error).partition("\n")[0][:200]
        raise VclError(
            f"--inputs {path} cannot be read ({said}); give an npy file, or an npz with an array x."
        ) from error
    if array.dtype.kind not in "uif" or array.shape[1:] != shape or not len(array):
        wanted = ", ".join(("N", *map(str, shape)))
        raise VclError(f"--inputs {path} holds {array.dtype} {array.shape}; give numbers of shape ({wanted}).")
    with np.errstate(over="ignore"):  # what is too large is infinite, and told below
        found = torch.from_numpy(np.ascontiguousarray(array, np.uint8 if array.dtype == np.uint8 else np.float32))
    if not bool(found.isfinite().all()):
        raise VclError(f"--inputs {path} holds numbers that are not finite; give finite ones.")
    most = 255 if array.dtype.kind in "ui" else 1
    if pixels and bool(((array < 0) | (array > most)).any()):
        raise VclError(
            f"--inputs {path} holds numbers from {array.min()} to {array.max()}; the network learned pixels: give "
            "integers from 0 to 255, or floats from 0 to 1."
        )
    if pixels and array.dtype.kind in "ui":
        return torch.from_numpy(np.ascontiguousarray(array, np.uint8))
    return found


def as_npz(found: Predictions) -> bytes:
    """Predictions as an npz file."""
    memory = io.BytesIO()
    more = {} if found.labels is None else {"labels": found.labels}
    more |= {"lambdas": np.array(found.lambdas)} if found.lambdas else {}
    np.savez(memory, allow_pickle=False, seeds=np.array(found.seeds), **found.arrays, **more)
    return memory.getvalue()


def as_csv(found: Predictions) -> bytes:
    """Predictions as CSV: one line for each seed and example."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [f"{name}_{place}" for name, array in found.arrays.items() for place in range(array.shape[-1])]
    lam = ("lambda",) if found.lambdas else ()
    writer.writerow(["seed", *lam, "example", *(() if found.labels is None else ("label",)), *names])
    for run, seed in enumerate(found.seeds):
        for example in range(next(iter(found.arrays.values())).shape[1]):
            label: Sequence[Any] = () if found.labels is None else (found.labels[example],)
            values = [value for array in found.arrays.values() for value in array[run, example].tolist()]
            writer.writerow([seed, *found.lambdas[run : run + 1], example, *label, *values])
    return out.getvalue().encode()
