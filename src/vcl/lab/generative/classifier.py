"""The classifier that judges generated images: trained here once per dataset, and kept in the cache.

A plain network of three hidden layers with dropout, as the authors' was. How good it is on the test set is part of what
it is; numbers by different classifiers do not compare, so its checksum is told with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional as F

from vcl.errors import VclError
from vcl.lab.arithmetic import matrix_products
from vcl.lab.datasets.checksum import sha256
from vcl.lab.folder import write_atomic_bytes
from vcl.lab.streams import Arrays
from vcl.ops.rng import Rng
from vcl.ops.rows import as_input

FORMAT = 1
LAYERS, DROPOUT, RATE, BATCH = 3, 0.2, 1e-3, 256
MAKING = Lock()


class Training(NamedTuple):
    """How it is trained."""

    hidden: int = 1000
    epochs: int = 20


class Classifier(NamedTuple):
    """log p(class | image), its accuracy on the test set, and the SHA-256 of its weights."""

    weights: tuple[Tensor, ...]
    accuracy: float
    checksum: str

    def log_probs(self, images: Tensor) -> Tensor:
        """Of images [..., pixels], each pixel from 0 to 1: [..., classes]."""
        return F.log_softmax(_forward(self.weights, images), dim=-1)

    def to(self, device: torch.device | str) -> Classifier:
        """On another device."""
        return self._replace(weights=tuple(weight.to(device) for weight in self.weights))


def trained(data: Arrays, how: Training, device: torch.device, rng: Rng | None = None) -> Classifier:
    """Learn the whole training set, all classes at once: Adam, with dropout after every hidden layer."""
    rng = rng or Rng((0,)).at("classifier")
    pixels, classes = data.train_x[0].numel(), len(data.classes)
    sizes = [pixels, *(how.hidden,) * LAYERS, classes]
    weights = [part.to(device).requires_grad_() for part in _initial(sizes, rng)]
    adam = torch.optim.Adam(weights, RATE)
    (order,), (masks,) = rng.at("order").generators(device), rng.at("dropout").generators(device)
    x, y = data.train_x.to(device).flatten(1), data.train_y.to(device)
    for _ in range(how.epochs):
        for index in torch.randperm(len(x), generator=order, device=device).split(BATCH):  # type: ignore[no-untyped-call]
            adam.zero_grad()
            logits = _forward(weights, as_input(x[index]), masks)
            F.cross_entropy(logits, y[index]).backward()  # type: ignore[no-untyped-call]
            adam.step()
    final = tuple(part.detach().cpu() for part in weights)
    return Classifier(final, _accuracy(final, data), sha256(save(_named(final))))


def classifier(
    data: Arrays, digest: str, how: Training, device: torch.device, cache: Path, say: Callable[[str], None]
) -> Classifier:
    """The one of these data: from the cache if it is there and whole, else trained and kept."""
    with MAKING:  # of several methods at once the first trains it and the others read it
        found = _made(data, cache / f"classifier-{digest}-{how.hidden}-{how.epochs}.safetensors", how, device)
    say(f"classifier: {100 * found.accuracy:.2f} % on the test set, SHA-256 {found.checksum[:16]}…")
    return found.to(device)


def _made(data: Arrays, path: Path, how: Training, device: torch.device) -> Classifier:
    found = _read(path)
    if found is None:
        cache = path.parent
        with matrix_products("float32"):  # whatever the methods beside it do: there is one classifier for all
            found = trained(data, how, device)
        text = torch.frombuffer(bytearray(json.dumps(_about(found)).encode()), dtype=torch.uint8)
        try:
            cache.mkdir(parents=True, exist_ok=True)
            write_atomic_bytes(path, save({**_named(found.weights), "about": text}))
        except (OSError, VclError) as error:
            reason = getattr(error, "strerror", None) or getattr(error.__cause__, "strerror", None)
            raise VclError(
                f"cannot keep the classifier in {cache} ({reason}); let XDG_CACHE_HOME name a folder that you may "
                "write."
            ) from error
    return found


def _read(path: Path) -> Classifier | None:
    """What the file holds; None if there is none, or if it is damaged, which its checksum shows: it is made anew."""
    try:
        tensors = load(path.read_bytes())
        about = json.loads(bytes(tensors.pop("about").numpy()))
        weights = tuple(tensors[name] for name in sorted(tensors, key=int))
        found = Classifier(weights, about["accuracy"], about["checksum"])
        whole = about == _about(found) and sha256(save(_named(weights))) == found.checksum
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None
    return found if whole else None


def _about(found: Classifier) -> dict[str, Any]:
    """What the file says of the weights, sealed by a checksum of its own."""
    told = {"format": FORMAT, "accuracy": found.accuracy, "checksum": found.checksum}
    return {**told, "seal": sha256(json.dumps(told).encode())}


def _named(weights: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {str(place): weight.contiguous() for place, weight in enumerate(weights)}


def _initial(sizes: list[int], rng: Rng) -> list[Tensor]:
    """Weights and biases in turn; He's uniform weights, zero biases."""
    (generator,) = rng.at("start").generators()
    made: list[Tensor] = []
    for width, out in pairwise(sizes):
        bound = (6 / width) ** 0.5
        made += [torch.empty(out, width).uniform_(-bound, bound, generator=generator), torch.zeros(out)]
    return made


def _forward(weights: list[Tensor] | tuple[Tensor, ...], x: Tensor, masks: torch.Generator | None = None) -> Tensor:
    """Logits; with a generator for masks, under dropout."""
    pairs = list(zip(weights[::2], weights[1::2], strict=True))
    for weight, bias in pairs[:-1]:
        x = F.relu(F.linear(x, weight, bias))
        if masks is not None:
            kept = torch.rand(x.shape, generator=masks, device=x.device) >= DROPOUT
            x = x * kept / (1 - DROPOUT)
    return F.linear(x, *pairs[-1])


@torch.no_grad()
def _accuracy(weights: tuple[Tensor, ...], data: Arrays) -> float:
    found = _forward(weights, as_input(data.test_x.cpu()).flatten(1)).argmax(-1)
    return float((found == data.test_y.cpu()).double().mean())
