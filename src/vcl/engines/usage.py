"""A forward pass under q(theta) instead of one theta: by local reparameterisation or by drawn weights.

The network stays a plain ``nn.Module``. Before a fit, one recorded pass shows how each parameter is used. A parameter
that is used once, by a linear layer with one row per example, allows *local reparameterisation*: with a = x W^T + b
and theta ~ q,

    a_j ~ N( sum_i x_i mu_ji + mu_bj,  sum_i x_i^2 sigma_ji^2 + sigma_bj^2 ),  independent over j and examples,

exactly, so noise is drawn for a instead of W, independently for each example. All other uses (convolutions, linear
layers over a sequence, tied weights, attention, embeddings, masks) have correlated outputs, which this would lose:
there theta = mu + sigma * noise is drawn once for the whole batch. No parameter silently uses its mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vcl.beliefs.layout import Params
from vcl.errors import VclError, unknown
from vcl.ops.layers import TINY

Estimator = Literal["local", "weights"]
ESTIMATORS: tuple[Estimator, ...] = ("local", "weights")

Function = Callable[[Params], Tensor]
"""A function of one theta: log-likelihoods of a batch, or outputs."""


class Usage(NamedTuple):
    """How each parameter is treated, and the number of standard normals per draw.

    ``widths`` are the units of the layers that draw units, in the order of their calls.
    """

    drawn: tuple[str, ...]
    local: tuple[str, ...]
    noise: int
    widths: tuple[int, ...]


def find_usage(
    function: Function,
    params: Params,
    examples: int,
    estimator: Estimator,
    points: Collection[str] = (),
    with_more: Function | None = None,
) -> Usage:
    """Runs ``function`` once on one run's parameters, and decides how to treat each.

    ``points`` are parameters without variance, which are never drawn. ``with_more`` is the function for one more
    example: a layer whose rows are examples then has one more row, while a layer with as many rows by chance has not.
    """
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    recorder = _Recorder(params, examples)
    with torch.no_grad(), recorder:
        function(params)
    check_many(function, params)
    unused = [name for name in params if not recorder.uses[name]]
    if unused:
        raise VclError(
            f"the model never uses its parameter {unused[0]!r}, so no data can inform it; remove it from the module."
        )
    random = [name for name in params if name not in points]
    by_example = {name for name in random if estimator == "local" and recorder.uses[name] == ["linear"]}
    if by_example and with_more is not None:
        again = _Recorder(params, examples + 1)
        with torch.no_grad(), again:
            with_more(params)
        by_example &= {name for name in random if again.uses[name] == ["linear"]}
    local = [name for name in random if name in by_example]
    drawn = [name for name in random if name not in local]
    units = [size for weight, size in recorder.outputs if weight in local]
    # A bias may be local only where its weight is: otherwise its layer is an ordinary linear layer.
    orphans = [bias for weight, bias in recorder.pairs if bias in local and weight not in local]
    drawn, local = drawn + orphans, [name for name in local if name not in orphans]
    noise = sum(units) + sum(params[name].numel() for name in drawn)
    return Usage(tuple(drawn), tuple(local), noise, tuple(size // examples for size in units))


def check_many(function: Function, params: Params) -> None:
    """Raise VclError unless ``function`` works under vmap over draws and draws no random numbers itself."""
    if not params:  # nothing is drawn
        return
    try:
        with torch.no_grad():
            torch.vmap(function, randomness="error")({name: value.unsqueeze(0) for name, value in params.items()})
    except RuntimeError as error:
        why, what = "cannot be called for many draws of its parameters at once", "write it with tensor operations alone"
        if "random" in str(error):
            why, what = "draws random numbers besides those of its parameters", "remove them"
        raise VclError(f"the model {why}; {what}. (torch: {str(error).splitlines()[0]})") from error


def evaluate(usage: Usage, function: Function, mean: Params, var: Params, noise: Tensor) -> Tensor:
    """``function`` under one draw of theta ~ N(mean, var), given its standard normal ``noise`` [K]."""
    tape = _Tape(noise)
    params = dict(mean)
    for name in usage.drawn:
        params[name] = mean[name] + var[name].sqrt() * tape.take(mean[name].shape)
    if not usage.local:
        return function(params)
    with _Local({name: var[name] for name in usage.local}, params, tape):
        return function(params)


class _Tape:
    """Returns consecutive pieces of one flat noise vector."""

    def __init__(self, noise: Tensor) -> None:
        self.noise, self.position = noise, 0

    def take(self, shape: torch.Size) -> Tensor:
        start, self.position = self.position, self.position + prod(shape)
        return self.noise[start : self.position].view(shape)


class _Recorder(TorchFunctionMode):
    """Records how each parameter is used: by a linear layer with one row per example, or otherwise."""

    def __init__(self, params: Params, examples: int) -> None:
        self.names = {id(value): name for name, value in params.items()}
        self.uses: dict[str, list[str]] = {name: [] for name in params}
        self.outputs: list[tuple[str, int]] = []
        self.pairs: list[tuple[str, str]] = []
        self.examples = examples

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        _refuse(func, args, kwargs)
        result = func(*args, **kwargs)
        found = [id(value) for value in values_in((args, kwargs)) if id(value) in self.names]
        if not found or not any(isinstance(value, Tensor) for value in values_in(result)):
            return result  # such as a query for a shape or dtype
        linear: set[int] = set()
        if func is F.linear:
            x, weight, bias = _linear_arguments(*args, **kwargs)
            if x.dim() == 2 and x.shape[0] == self.examples and id(x) not in self.names:
                linear = {id(weight), id(bias)}
            if id(weight) in self.names:
                self.outputs.append((self.names[id(weight)], result.numel()))
            if id(bias) in self.names:
                self.pairs.append((self.names.get(id(weight), ""), self.names[id(bias)]))
        for value in found:
            self.uses[self.names[value]].append("linear" if value in linear else "other")
        return result


class _Local(TorchFunctionMode):
    """Replaces linear calls with local weights by a draw of their output."""

    def __init__(self, var: Params, params: Params, tape: _Tape) -> None:
        # Paired by identity: ``params`` holds the objects that the module passes to its operations.
        self.var = {id(params[name]): (params[name], value) for name, value in var.items()}
        self.tape = tape
        self.used: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            x, weight, bias = _linear_arguments(*args, **kwargs)
            if id(weight) in self.var:
                return self._draw(x, weight, bias)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and _among((args, kwargs), self.var):
            raise VclError(
                f"a weight under local reparameterisation was also used by {getattr(func, '__name__', func)}, which a "
                "recorded pass did not show; use the estimator 'weights' for modules whose path depends on the data."
            )
        return result

    def _draw(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if id(weight) in self.used:
            raise VclError(
                "a weight was used twice under local reparameterisation, which would treat it as two independent "
                "weights; use the estimator 'weights' for this module."
            )
        self.used.add(id(weight))
        bias_var = self.var[id(bias)][1] if id(bias) in self.var else None
        noise = self.tape.take(torch.Size((x.shape[0], weight.shape[0])))
        mean = F.linear(x, weight, bias)
        var = F.linear(x.square(), self.var[id(weight)][1], bias_var)
        return torch.addcmul(mean, (var + TINY).sqrt(), noise)


def _refuse(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise VclError for a normalisation by the statistics of a batch; by fixed statistics each example is alone."""
    training = TRAINING.get(func)
    if training is not None and training(*args, **kwargs):
        raise VclError(
            "batch normalisation ties the examples of a batch together and keeps running statistics that no "
            "posterior covers; use LayerNorm or GroupNorm instead, or freeze the whole layer and call .eval() on it."
        )


def _training_of(input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
                    bias: Any = None, training: bool = False, *_: Any, **__: Any) -> bool:  # fmt: skip
    return training


TRAINING: dict[Any, Callable[..., bool]] = {
    F.batch_norm: _training_of,
    torch.batch_norm: lambda input, weight, bias, mean, var, training, *_, **__: training,
}
"""Whether a call of batch normalisation uses the statistics of its batch."""


def _linear_arguments(
    input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    return input, weight, bias


def _among(values: Iterable[Any], known: Collection[int]) -> bool:
    """Whether ``values``, including nested ones, contain an object with a known id; called for every operation."""
    for value in values:
        held = value if isinstance(value, tuple | list) else value.values() if isinstance(value, Mapping) else ()
        if id(value) in known or (held and _among(held, known)):
            return True
    return False


def values_in(value: Any) -> Iterator[Any]:
    """Every value within nested tuples, lists and mappings."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from values_in(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from values_in(part)
    else:
        yield value
