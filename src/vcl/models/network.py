"""Any ``nn.Module`` as the shared part of a network, with linear heads that tasks add."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from numbers import Integral
from types import MappingProxyType
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from vcl.beliefs.layout import HEAD, Layout, Params
from vcl.beliefs.mean_field import MeanField, standard_normal
from vcl.data import Data
from vcl.engines.attention import plain_attention
from vcl.engines.moment_propagation import linear, through
from vcl.engines.recurrent import plain_recurrence, recurrent_layers
from vcl.engines.structure import Fork, Opaque, Structure, chain_from, chain_of, flat_chain
from vcl.engines.usage import check_many
from vcl.errors import VclError
from vcl.models.base import Heads, Role
from vcl.models.fixed import Fixed, digest
from vcl.models.likelihoods import HasLabelPoints, Likelihood
from vcl.models.sound import refuse_unsound
from vcl.models.starts import HeadStart, Values, check_fits, start_values
from vcl.ops.layer_weights import Block
from vcl.ops.rows import as_input, own_input

TRUNK = "trunk."


@final
class Network:
    """f_theta(x) = head_h( trunk(x) ), theta = {theta^S, theta^H_h}, with prior N(0, prior_var I).

    ``trunk`` maps inputs [N, ...] to ``features`` values per example. Only its structure is used, not its parameter
    values, unless the following ask for them. Chains of layers are detected once (:mod:`vcl.engines.structure`) and use
    the layered engine. In a single-head network all tasks name the same head.

    ``frozen`` names parameters of the trunk that have no posterior and no place in the layout: they keep the values
    that the module has now, in a private copy. The general engine then computes the trunk; see
    :func:`vcl.models.prefix.split_prefix` for features that are computed once, and
    :func:`vcl.models.selection.select_posterior` for the names.

    ``start="module"`` starts every fit of what no data has informed at the module's values, and ``prior_mean="module"``
    makes them the prior's mean too, N(values, prior_var I). Both also take tensors by the layout's names, such as the
    ``start_values`` and ``prior_values`` of another network. ``head_start`` has weight and bias of heads that start
    there; without it heads start at random, with prior mean 0.
    """

    def __init__(
        self,
        trunk: nn.Module,
        features: int,
        likelihood: Likelihood,
        prior_var: float = 1.0,
        frozen: Collection[str] = (),
        start: Values | None = None,
        prior_mean: Values | None = None,
        head_start: HeadStart = MappingProxyType({}),
    ) -> None:
        refuse_unsound(trunk, frozen)
        if prior_var <= 0:
            raise VclError(f"prior_var is {prior_var}; a variance must be above 0.")
        self.features = features
        self.likelihood = likelihood
        self.prior_var = prior_var
        self.frozen = frozenset(frozen)
        self.fixed = Fixed(trunk, frozen) if self.frozen else None
        self.trunk = trunk if self.fixed is None else self.fixed.module
        known = {TRUNK + name: value for name, value in trunk.named_parameters() if name not in self.frozen}
        anywhere = start_values(prior_mean, known, {} if prior_mean is None else head_start, features, "prior_mean")
        self.prior_values: Params = anywhere
        """The prior's mean by the layout's names; 0 elsewhere."""
        self.start_values: Params = {**anywhere, **start_values(start, known, head_start, features, "start")}
        """Where fits start, by the layout's names; at random elsewhere."""
        self.known_digest = ""
        self.recurrent = recurrent_layers(self.trunk)
        flat = [] if self.frozen else flat_chain(trunk)
        self.layers = flat or chain_of(self.trunk)
        self.chain = chain_from(flat, TRUNK.__add__) if flat else None

    @property
    def latent(self) -> int:
        """0: no latent variables."""
        return 0

    def role(self, name: str) -> Role:
        """Every parameter has a posterior."""
        return "random"

    def structure(self, heads: tuple[str, ...]) -> Structure:
        """A fork of trunk and heads if the trunk is a chain of layers, all with a posterior; else ``Opaque()``."""
        if self.chain is None:
            return Opaque()
        blocks = {head: Block(f"{HEAD}{head}.weight", f"{HEAD}{head}.bias") for head in heads}
        return Fork(self.chain, blocks, self.likelihood)

    def layout(self, heads: Heads) -> Layout:
        """The trunk's parameters without frozen ones (tied ones once), then each head's weight and bias."""
        shapes = {TRUNK + name: tuple(value.shape) for name, value in self._trunk_parameters()}
        for head, units in heads.items():
            shapes[f"{HEAD}{head}.weight"] = (units, self.features)
            shapes[f"{HEAD}{head}.bias"] = (units,)
        return Layout(tuple(shapes), tuple(shapes.values()))

    def prior(self, heads: Heads) -> MeanField:
        """N(0, prior_var I), or around ``prior_values``."""
        layout = self.layout(heads)
        prior = standard_normal(layout, self.prior_var)
        check_fits(self.start_values, dict(zip(*layout, strict=True)))
        if not self.prior_values:
            return prior
        means = layout.split(prior.mean)
        for name, value in self.prior_values.items():
            if name in layout.names:  # outputs that a head has got since have the mean 0
                own = value.unsqueeze(0)
                means[name] = torch.cat([own, means[name][:, len(value) :]], 1) if value.dim() else own
        return prior._replace(mean=layout.join(means, lead=1))

    def digest(self) -> str:
        """A checksum of the values that are not in the layout: frozen ones and the prior's mean; "" if none."""
        values = {} if self.fixed is None else {f"frozen {name}": value for name, value in self.fixed.values.items()}
        values |= {f"mean {name}": value for name, value in self.prior_values.items()}
        if values and not self.known_digest:
            # Given values may come in any order.
            self.known_digest = digest(dict(sorted(values.items())))
        return self.known_digest

    def fixed_values(self, like: Tensor) -> Params:
        """Frozen values and buffers of the trunk as a fit uses them, on the device and in the dtype of ``like``."""
        return {} if self.fixed is None else self.fixed.at(like)

    def log_lik(self, params: Params, data: Data, noise: Tensor | None = None) -> Tensor:
        """log p(y | theta, x), each example by its own head."""
        features = self._features(params, data.x)

        def answer(head: str) -> Tensor:
            return self.likelihood.log_prob(self._head(params, features, head), _labels(data, head))

        return _by_head(data, answer)

    def log_evidence(self, mean: Params, var: Params, data: Data) -> Tensor:
        """The evidence at the output's moments (:mod:`vcl.engines.moment_propagation`), by each example's head."""
        like = next(iter(mean.values()))
        fixed = self.fixed_values(like)
        features, spread = through(self.layers, _trunk(mean), _trunk(var), as_input(data.x), fixed)

        def answer(head: str) -> Tensor:
            weight, bias = zip(_head_params(mean, head), _head_params(var, head), strict=True)
            return self.likelihood.log_evidence(*linear(features, spread, weight, bias), _labels(data, head))

        return _by_head(data, answer)

    def sample(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """y ~ p(y | theta, x), each example by its own head."""
        features = self._features(params, data.x)
        return _by_head(data, lambda head: self.likelihood.sample(self._head(params, features, head), noise))

    def label_points(self, params: Params, data: Data) -> tuple[Tensor, Tensor]:
        """Labels [K, N, ...] and weights [K, N] whose weighted sum of g g^T is E_{y ~ p(y | theta, x)} g g^T.

        g is the gradient of log p(y | theta, x) in the outputs. Heads with fewer points have points of weight 0.
        """
        if not isinstance(self.likelihood, HasLabelPoints):
            raise VclError(
                f"the likelihood {type(self.likelihood).__name__} has no label_points(output), which labels='exact' "
                "needs; give it that method, or use labels='true', which draws them."
            )
        features = self._features(params, data.x)
        found = {head: self.likelihood.label_points(self._head(params, features, head)) for head in data.heads}
        most = max(len(weights) for _, weights in found.values())
        found = {head: (_filled(labels, most), _filled(weights, most)) for head, (labels, weights) in found.items()}
        turned = [_by_head(data, lambda head, part=part: found[head][part].transpose(0, 1)) for part in (0, 1)]  # type: ignore[misc]
        return turned[0].transpose(0, 1), turned[1].transpose(0, 1)

    def predict(self, params: Params, x: Tensor, head: str) -> Tensor:
        """The likelihood's moments at head ``head``."""
        return self.likelihood.expectation(self.outputs(params, x, head))

    def outputs(self, params: Params, x: Tensor, head: str) -> Tensor:
        """f_theta(x) [N, units] at head ``head``."""
        return self._head(params, self._features(params, x), head)

    def check(self, data: Data, heads: Heads) -> None:
        """Labels must fit their heads, and the trunk must take the inputs."""
        for position, source in enumerate(data.sources):
            if source.head not in heads:
                raise VclError(
                    f"task {source.task!r} names the head {source.head!r}, which is not among {list(heads)}; give its "
                    f"size, as in Task(heads={{{source.head!r}: 10}})."
                )
            y = data.y if len(data.sources) == 1 else data.y[data.source == position][None]
            self.likelihood.check(y, heads[source.head], f"task {source.task!r}")
        if data.size:
            self._check_input(data.x[0, :1])

    def _check_input(self, x: Tensor) -> None:
        like = x if x.is_floating_point() else torch.zeros((), device=x.device)
        params = {name: self._zeros(value, x) for name, value in self._trunk_parameters()}
        try:
            with torch.no_grad():
                shape = tuple(self._trunk_of(params, x, like).shape)
        except RuntimeError as error:
            raise VclError(
                f"the network does not take inputs of shape {tuple(x.shape[1:])} and dtype {x.dtype}: {error}"
            ) from error
        if shape != (1, self.features):
            raise VclError(f"the trunk gives {shape[1:]} values per example but features={self.features} was given.")
        if self.chain is None:
            check_many(lambda params: self._trunk_of(params, x, like), params)

    def _zeros(self, value: Tensor, x: Tensor) -> Tensor:
        dtype = x.dtype if self.frozen and x.is_floating_point() else value.dtype
        return torch.zeros(value.shape, dtype=dtype, device=x.device)

    def _trunk_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The trunk's parameters with a posterior, by their own names."""
        return [(name, value) for name, value in self.trunk.named_parameters() if name not in self.frozen]

    def _features(self, params: Params, x: Tensor) -> Tensor:
        return self._trunk_of(_trunk(params), x, next(iter(params.values())))

    def _trunk_of(self, params: Params, x: Tensor, like: Tensor) -> Tensor:
        """The trunk's features with these parameters; frozen values are taken in the dtype of ``like``."""
        with plain_attention() if self.chain is None else nullcontext(), plain_recurrence(self.recurrent):
            features: Tensor = functional_call(self.trunk, {**self.fixed_values(like), **params}, own_input(x))
        return features

    def _head(self, params: Params, features: Tensor, head: str) -> Tensor:
        return F.linear(features, *_head_params(params, head))


def mlp(inputs: int, hidden: Sequence[int]) -> nn.Module:
    """The paper's trunk: fully connected layers with ReLU, over flattened inputs."""
    given: object = hidden
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise VclError(f"hidden is {hidden!r}; give a list of widths, such as ({hidden if _width(hidden) else 100},).")
    sizes = [inputs, *hidden]
    if not all(map(_width, sizes)):
        raise VclError(
            f"mlp is given {inputs!r} inputs and the widths {tuple(sizes[1:])!r}; give whole numbers from 1, as in "
            "vcl.mlp(784, (100, 100))."
        )
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


def _width(value: object) -> bool:
    """Whether this is a number of inputs or units."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) > 0


def _trunk(params: Params) -> dict[str, Tensor]:
    """The trunk's parameters, under its own names."""
    return {name[len(TRUNK) :]: value for name, value in params.items() if name.startswith(TRUNK)}


def _head_params(params: Params, head: str) -> tuple[Tensor, Tensor]:
    """A head's weight and bias."""
    if f"{HEAD}{head}.weight" not in params:
        raise VclError(f"no task has added a head {head!r} yet; learn one, or use a head of a learned task.")
    return params[f"{HEAD}{head}.weight"], params[f"{HEAD}{head}.bias"]


def _by_head(data: Data, answer: Callable[[str], Tensor]) -> Tensor:
    """``answer`` [N, ...] of each example's head.

    Heads are small compared with the trunk: all examples pass through every head, and each keeps its own result.
    """
    answers = {head: answer(head) for head in data.heads}
    total = answers[data.sources[0].head]
    for position, source in enumerate(data.sources[1:], start=1):
        mine = (data.source == position).view(-1, *(1,) * (total.dim() - 1))
        total = torch.where(mine, answers[source.head], total)
    return total


def _labels(data: Data, head: str) -> Tensor:
    """The labels for ``head``; labels of other heads, which may be out of its range, are set to 0."""
    if len(data.heads) == 1 or data.y.is_floating_point():
        return data.y
    mine = [data.source == position for position, source in enumerate(data.sources) if source.head == head]
    return data.y.where(torch.stack(mine).any(0).view(-1, *(1,) * (data.y.dim() - 1)), 0)


def _filled(values: Tensor, count: int) -> Tensor:
    """``values`` [K, ...] with zeros up to ``count`` points."""
    return torch.cat([values, values.new_zeros(count - len(values), *values.shape[1:])])
