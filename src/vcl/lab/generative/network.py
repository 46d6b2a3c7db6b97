"""The VAE of the generative experiments and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated, Literal

from vcl.lab.settings import Count, Variance
from vcl.models.vae import Vae, mlp_vae


@dataclass(frozen=True)
class VaeSettings:
    """Settings of a VAE whose decoders share a part."""

    latent: Annotated[Count, "latent variables z"] = 50
    features: Annotated[Count, "units of h, where the shared and the private part of the decoder meet"] = 500
    hidden: Annotated[Count, "units of every hidden layer"] = 500
    private: Annotated[
        Literal["lower", "upper", "both"],
        "private part of the decoder: z to h (the paper's first architecture), h to x, or both: independent VAEs",
    ] = "lower"
    encoder: Annotated[Literal["private", "shared"], "an encoder for each task, or one for all"] = "private"
    head_kl: Annotated[Literal["no", "yes"], "whether the private part of the decoder has a prior too"] = "no"
    prior_var: Annotated[Variance, "variance of the prior of every weight"] = 1.0


def vae(s: VaeSettings, shape: tuple[int, ...]) -> Vae:
    """The paper's VAE for images of this shape."""
    return mlp_vae(
        prod(shape),
        s.latent,
        s.features,
        s.hidden,
        private=s.private,
        shared_encoder=s.encoder == "shared",
        head_kl=s.head_kl == "yes",
        prior_var=s.prior_var,
    )
