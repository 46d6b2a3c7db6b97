"""Classification by generators: log p(x | y) of images under the generator of each of ten classes."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch

from vcl.lab.bench import floors
from vcl.lab.bench.shapes import paper_settings
from vcl.lab.bench.timing import Job
from vcl.models import mlp_vae
from vcl.ops.rng import Rng
from vcl.predicting.generative_classifier import class_log_marginals, classify

CLASSES = tuple("0123456789")


class Classification(NamedTuple):
    """A prediction, and the matrix products of its decoders alone."""

    group: str
    job: Job
    floor: Job


def classification(name: str, side: int, images: int, device: torch.device) -> Classification:
    """p(y | x) of ``images`` images by the VAE of an experiment's paper preset."""
    s, pixels = paper_settings(name), side * side
    model = mlp_vae(pixels, s.latent, s.features, s.hidden)
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (1, images, side, side), generator=g, dtype=torch.uint8).to(device)
    prior = model.prior(dict.fromkeys(CLASSES, pixels)).to(device)
    mean = 0.05 * torch.randn(prior.mean.shape, generator=g).to(device)
    q = prior._replace(mean=mean).expand(1)

    def job() -> object:
        return classify(class_log_marginals(q, model, x, CLASSES, Rng((0,)), s.z_draws))

    sizes = (s.latent, s.hidden, s.features, s.hidden, pixels)
    pairs = [
        (torch.randn(1, images * s.z_draws, width, device=device), torch.randn(1, width, out, device=device))
        for width, out in pairwise(sizes)
    ]
    products = floors.multiply(pairs, device)
    group = f"classes of {name}, {images} images x {len(CLASSES)} classes x {s.z_draws} draws"
    return Classification(group, job, lambda: [products() for _ in CLASSES])
