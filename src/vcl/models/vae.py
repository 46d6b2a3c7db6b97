"""Variational auto-encoders whose decoder has a posterior (the paper's section 4).

    z^(n) ~ N(0, I),   x^(n) ~ p(x | z^(n), theta),   q(z | x) = N(z; mu(x), diag sd(x)^2) by the encoder

    L^(n)(theta) = E_{q(z | x^(n))} log p(x^(n) | z, theta) - KL( q(z | x^(n)) || p(z) )  <=  log p(x^(n) | theta)

The decoder maps z to an intermediate h (``lower``) and h to pixels (``upper``). All tasks share one part; the other is
private to each task: z -> h in architecture (i), h -> x in architecture (ii). If both are private, each task has a VAE
of its own, to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vcl.beliefs.layout import HEAD, Layout, Params, head_of
from vcl.beliefs.mean_field import MeanField, standard_normal
from vcl.data import Data
from vcl.engines.recurrent import recurrent_layers
from vcl.engines.structure import Latent, Opaque, Structure, chain_from, chain_of, flat_chain, is_chain, names_in
from vcl.errors import VclError, unknown
from vcl.models.base import Heads, Role, no_latent, spread
from vcl.models.network import TRUNK
from vcl.models.pixels import BernoulliPixels, Pixels
from vcl.models.sound import refuse_unsound
from vcl.ops.rows import as_input, own_input

Private = Literal["lower", "upper", "both"]
PRIVATES: tuple[Private, ...] = ("lower", "upper", "both")

ENCODER, DECODER, UPPER = "encoder", "decoder", "upper"
"""The parts of a task: its encoder, its part of the decoder, and the upper part where the lower is its own too."""


@final
class Vae:
    """p(x | z, theta), theta = {theta^S, theta^H_h}, and encoders, whose parameters are points.

    ``encoder`` maps inputs [N, ...] to ``latent`` means, then ``latent`` log deviations per example; ``lower`` maps z
    [N, latent] to h, and ``upper`` maps h to the output for each pixel [N, ...]. They may be any modules; only their
    structure is used, not their parameter values. The shared part of the decoder is theta^S, with prior
    N(0, prior_var I). Each task's part of the decoder is drawn with its own variance but has no KL, as in the authors'
    runs; ``head_kl`` gives it the prior too. A head's size is its number of pixels.

    Each task has its own encoder, as in the paper. ``shared_encoder`` uses one for all tasks; no KL holds it to the
    past, so it follows the last task, and importance sampling for older tasks has a poorer proposal.
    """

    def __init__(
        self,
        encoder: nn.Module,
        lower: nn.Module,
        upper: nn.Module,
        latent: int,
        pixels: Pixels | None = None,
        private: Private = "lower",
        shared_encoder: bool = False,
        head_kl: bool = False,
        prior_var: float = 1.0,
    ) -> None:
        for module in (encoder, lower, upper):
            refuse_unsound(module)
            if recurrent_layers(module):
                kind = type(recurrent_layers(module)[0]).__name__
                raise VclError(f"{kind} is not supported in a VAE; write the recurrence with Linear layers instead.")
        if latent < 1:
            raise VclError(f"latent is {latent}; give at least 1 latent variable.")
        if prior_var <= 0:
            raise VclError(f"prior_var is {prior_var}; a variance must be above 0.")
        if private not in PRIVATES:
            raise unknown("private part of the decoder", private, PRIVATES)
        self.encoder, self.lower, self.upper = encoder, lower, upper
        self.latent = latent
        self.pixels: Pixels = BernoulliPixels() if pixels is None else pixels
        self.private, self.shared_encoder, self.head_kl, self.prior_var = private, shared_encoder, head_kl, prior_var
        self.layers = flat_chain(encoder) if is_chain(lower) and is_chain(upper) else []
        # The name of each decoder part among a task's own; None if all tasks share it.
        self._lower = None if private == "upper" else DECODER
        self._upper = {"lower": None, "upper": DECODER, "both": UPPER}[private]

    def layout(self, heads: Heads) -> Layout:
        """The shared decoder part, the encoder if it is shared, then each task's decoder part and encoder."""
        parts = {self._lower: self.lower, self._upper: self.upper}
        shared = () if None not in parts else parts[None].named_parameters()
        shapes = {TRUNK + name: tuple(value.shape) for name, value in shared}
        if self.shared_encoder:
            shapes |= {f"{ENCODER}.{name}": tuple(value.shape) for name, value in self.encoder.named_parameters()}
        for head in heads:
            own = {part: module for part, module in parts.items() if part is not None}
            own |= {} if self.shared_encoder else {ENCODER: self.encoder}
            for part, module in own.items():
                for name, value in module.named_parameters():
                    shapes[_head_name(head, part, name)] = tuple(value.shape)
        return Layout(tuple(shapes), tuple(shapes.values()))

    def structure(self, heads: tuple[str, ...]) -> Structure:
        """An encoder and a decoder if all parts are chains of layers and there is one head, else ``Opaque()``."""
        if not self.layers or len(heads) != 1:
            return Opaque()
        (head,) = heads

        def of_head(part: str) -> Callable[[str], str]:
            return lambda name: _head_name(head, part, name)

        encoder = chain_from(self.layers, f"{ENCODER}.".__add__ if self.shared_encoder else of_head(ENCODER))
        first, second = (TRUNK.__add__ if part is None else of_head(part) for part in (self._lower, self._upper))
        decoder = (*chain_from(chain_of(self.lower), first), *chain_from(chain_of(self.upper), second))
        known = names_in(encoder) and names_in(decoder)
        return Latent(encoder, decoder, self.latent, self.pixels) if known else Opaque()

    def role(self, name: str) -> Role:
        """theta^S is random, encoders are points, and a task's decoder part is free (``head_kl``: random)."""
        if name.startswith(TRUNK):
            return "random"
        if name.startswith(f"{ENCODER}.") or name.rpartition(".")[2].startswith(f"{ENCODER}:"):
            return "point"
        return "random" if self.head_kl else "free"

    def prior(self, heads: Heads) -> MeanField:
        """N(0, prior_var I), and variance 0 for the encoders."""
        prior = standard_normal(self.layout(heads), self.prior_var)
        drawn = spread(self, prior.layout)
        return prior._replace(log_var=prior.layout.pad(prior.layout.cut(prior.log_var, drawn), drawn, -inf))

    def log_lik(self, params: Params, data: Data, noise: Tensor | None = None) -> Tensor:
        """log p(x | z, theta) - KL(q(z | x) || p(z)) [..., N] at z = mu(x) + sd(x) noise: L^(n) for one draw of z.

        Its average over ``noise`` [..., N, latent] is the bound; the KL is in closed form.
        """
        if noise is None:
            raise VclError(
                "a VAE's bound needs noise for its latent variables; give standard normals [..., N, latent]."
            )

        def answer(head: str) -> Tensor:
            mean, log_sd = self.encode(params, data.x, head)
            # KL = 1/2 sum_i mu_i^2 + sd_i^2 - 1 - log sd_i^2
            divergence = 0.5 * (mean.square() + (2 * log_sd).exp() - 1 - 2 * log_sd).sum(-1)
            return self._log_prob(params, mean + log_sd.exp() * noise, data, head) - divergence

        return _by_head(data, answer)

    def log_weight(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """log p(x | z, theta) p(z) / q(z | x) at z = mu(x) + sd(x) noise; E_q of its exponential is p(x | theta)."""

        def answer(head: str) -> Tensor:
            mean, log_sd = self.encode(params, data.x, head)
            z = mean + log_sd.exp() * noise
            # log p(z) - log q(z | x) = sum_i 1/2 noise_i^2 - 1/2 z_i^2 + log sd_i: the constants cancel
            ratio = (0.5 * (noise.square() - z.square()) + log_sd).sum(-1)
            return self._log_prob(params, z, data, head) + ratio

        return _by_head(data, answer)

    def encode(self, params: Params, x: Tensor, head: str) -> tuple[Tensor, Tensor]:
        """mu(x) and log sd(x), each [N, latent]."""
        if self.shared_encoder:
            values = _with_prefix(params, f"{ENCODER}.")
        else:
            values = _head_params(params, head, ENCODER, self.encoder)
        mean, log_sd = functional_call(self.encoder, values, own_input(x)).chunk(2, dim=-1)
        return mean, log_sd

    def decode(self, params: Params, z: Tensor, head: str) -> Tensor:
        """The output for each pixel [..., P], for z [..., latent]."""

        def values(part: str | None, module: nn.Module) -> dict[str, Tensor]:
            return _with_prefix(params, TRUNK) if part is None else _head_params(params, head, part, module)

        h = functional_call(self.lower, values(self._lower, self.lower), z.reshape(-1, self.latent))
        output: Tensor = functional_call(self.upper, values(self._upper, self.upper), h)
        return output.reshape(*z.shape[:-1], -1)

    def generate(self, params: Params, z: Tensor, head: str) -> Tensor:
        """E[x | z, theta] [..., P], for z [..., latent]."""
        return self.pixels.mean(self.decode(params, z, head))

    def predict(self, params: Params, x: Tensor, head: str) -> Tensor:
        """The reconstruction E[x | z = mu(x), theta] [N, P]."""
        return self.generate(params, self.encode(params, x, head)[0], head)

    def log_evidence(self, mean: Params, var: Params, data: Data) -> Tensor:
        """Raises VclError: it has no closed form."""
        raise no_latent(self, "the evidence in closed form")

    def sample(self, params: Params, data: Data, noise: Tensor) -> Tensor:
        """Raises VclError: there are no labels; :meth:`generate` makes images."""
        raise VclError("a VAE has no labels to draw; use the curvature 'empirical', and generate for images.")

    def check(self, data: Data, heads: Heads) -> None:
        """Raise VclError unless pixels are valid, match the head's size, and the modules fit together."""
        for position, source in enumerate(data.sources):
            what = f"task {source.task!r}"
            if source.head not in heads:
                raise VclError(
                    f"{what} names the head {source.head!r}, which is not among {list(heads)}; give its number of "
                    f"pixels, as in Task(heads={{{source.head!r}: 784}})."
                )
            found = data.x[0, 0].numel() if data.size else heads[source.head]
            if found != heads[source.head]:
                raise VclError(
                    f"{what}: its images have {found} pixels but the head {source.head!r} has {heads[source.head]}; "
                    "make them equal."
                )
            shared = data.x[:1] if data.x.stride(0) == 0 else data.x
            of_task = data.source[: shared.shape[0]] == position
            self.pixels.check(shared if len(data.sources) == 1 else shared[of_task], what)
        if data.size:
            self._check_modules(data.x[0, :1], heads[data.sources[0].head])

    def _check_modules(self, x: Tensor, pixels: int) -> None:
        dtype = as_input(x).dtype
        params = {
            name: torch.zeros(shape, dtype=dtype, device=x.device)
            for name, shape in zip(*self.layout({"a": pixels}), strict=True)
        }
        with torch.no_grad():
            try:
                codes = torch.cat(self.encode(params, x, "a"), dim=-1)
            except (RuntimeError, ValueError) as error:
                raise VclError(
                    f"the encoder does not take inputs of shape {tuple(x.shape[1:])} and dtype {x.dtype}: {error}"
                ) from error
            if codes.shape != (1, 2 * self.latent):
                raise VclError(
                    f"the encoder gives {tuple(codes.shape[1:])} values per example; it must give {2 * self.latent}: "
                    f"{self.latent} means and as many log deviations."
                )
            try:
                output = self.decode(params, codes[:, : self.latent], "a")
            except RuntimeError as error:
                raise VclError(f"the decoder does not take {self.latent} latent variables: {error}") from error
        if output.shape != (1, pixels):
            raise VclError(
                f"the decoder gives {output.shape[-1]} pixels but the images have {pixels}; make them equal."
            )

    def _log_prob(self, params: Params, z: Tensor, data: Data, head: str) -> Tensor:
        images = as_input(data.x).flatten(data.source.dim())
        return self.pixels.log_prob(self.decode(params, z, head), images)


def mlp_vae(
    pixels: int = 784,
    latent: int = 50,
    features: int = 500,
    hidden: int = 500,
    likelihood: Pixels | None = None,
    private: Private = "lower",
    shared_encoder: bool = False,
    head_kl: bool = False,
    prior_var: float = 1.0,
) -> Vae:
    """The paper's VAE: encoder 784-500-500-500-(50 + 50), z -> h 50-500-500, h -> x 500-500-784, with ReLU."""
    for name, size in (("pixels", pixels), ("latent", latent), ("features", features), ("hidden", hidden)):
        if size < 1:
            raise VclError(f"{name} is {size}; give at least 1.")
    encoder = nn.Sequential(nn.Flatten(), *_layers([pixels, hidden, hidden, hidden, 2 * latent]))
    lower = nn.Sequential(*_layers([latent, hidden, features]), nn.ReLU())
    upper = nn.Sequential(*_layers([features, hidden, pixels]))
    return Vae(encoder, lower, upper, latent, likelihood, private, shared_encoder, head_kl, prior_var)


def _layers(sizes: Sequence[int]) -> list[nn.Module]:
    """Linear layers with ReLU between."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


def _head_name(head: str, part: str, name: str) -> str:
    """The name of a parameter of one task. No dot follows the head's name, because the last dot ends it."""
    return f"{HEAD}{head}.{part}:{name.replace('.', ':')}"


def _head_params(params: Params, head: str, part: str, module: nn.Module) -> dict[str, Tensor]:
    """A task's parameters of one part, under the module's names."""
    found = _with_prefix(params, _head_name(head, part, ""))
    if not found and any(True for _ in module.parameters()):
        met = [known for known in dict.fromkeys(map(head_of, params)) if known is not None]
        raise VclError(f"no task has added a head {head!r} yet; learn one, or use one of the known heads: {met}.")
    return {name.replace(":", "."): value for name, value in found.items()}


def _with_prefix(params: Params, prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in params.items() if name.startswith(prefix)}


def _by_head(data: Data, answer: Callable[[str], Tensor]) -> Tensor:
    """``answer`` [..., N] of each example's head; all examples pass through every head, each keeps its own result."""
    answers = {head: answer(head) for head in data.heads}
    total = answers[data.sources[0].head]
    for position, source in enumerate(data.sources[1:], start=1):
        total = torch.where(data.source == position, answers[source.head], total)
    return total
