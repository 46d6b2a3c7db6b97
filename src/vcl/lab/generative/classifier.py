"""The classifier that judges generated images: trained once per dataset and kept in the store.

It has three hidden layers with dropout, like the authors'. Numbers from different classifiers are not comparable, so
results are stored with the classifier's checksum.
"""

from __future__ import annotations

import json
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional as F

from vcl.lab.arithmetic import matrix_products
from vcl.lab.datasets.checksum import sha256
from vcl.lab.evaluation import PreparationContext
from vcl.lab.streams import Arrays
from vcl.learner.checkpoint import FAULTS
from vcl.ops.rng import Rng
from vcl.ops.rows import as_input

FORMAT = 1
LAYERS, DROPOUT, RATE, BATCH = 3, 0.2, 1e-3, 256
CONSTANTS = {"format": FORMAT, "layers": LAYERS, "dropout": DROPOUT, "rate": RATE, "batch": BATCH}
MAKING = Lock()


class Training(NamedTuple):
    """Settings of its training."""

    hidden: int = 1000
    epochs: int = 20


class Classifier(NamedTuple):
    """log p(class | image), its accuracy on the test set, and the SHA-256 of its weights."""

    weights: tuple[Tensor, ...]
    accuracy: float
    checksum: str

    def log_probs(self, images: Tensor) -> Tensor:
        """log p(class | image) [..., classes] of images [..., pixels] with pixels from 0 to 1."""
        return F.log_softmax(_forward(self.weights, images), dim=-1)

    def to(self, device: torch.device | str) -> Classifier:
        """The same classifier on another device."""
        return self._replace(weights=tuple(weight.to(device) for weight in self.weights))


def trained(data: Arrays, how: Training, device: torch.device, rng: Rng | None = None) -> Classifier:
    """Train on all classes of the training set at once, by Adam, with dropout after every hidden layer."""
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


def classifier(context: PreparationContext, how: Training) -> Classifier:
    """The classifier of a dataset, read from the store or trained now."""
    about = {"data": context.digest, **how._asdict(), **CONSTANTS, "device": context.device.type}

    def make() -> bytes:
        with matrix_products("float32"):  # in any case: all methods share one classifier
            found = trained(context.data, how, context.device)
        text = torch.frombuffer(bytearray(json.dumps(_about(found)).encode()), dtype=torch.uint8)
        return save({**_named(found.weights), "about": text})

    with MAKING:  # of several methods at once, the first trains it and the others read it
        found: Classifier = context.once("classifier", about, make, read)
    context.say(f"classifier: {100 * found.accuracy:.2f} % on the test set, SHA-256 {found.checksum[:16]}…")
    return found.to(context.device)


def read(content: bytes) -> Classifier:
    """The classifier in a file. Raises ValueError if the file is damaged."""
    try:
        tensors = load(content)
        about = json.loads(bytes(tensors.pop("about").numpy()))
        weights = tuple(tensors[name] for name in sorted(tensors, key=int))
        found = Classifier(weights, about["accuracy"], about["checksum"])
        whole = about == _about(found) and sha256(save(_named(weights))) == found.checksum
    except FAULTS as error:
        raise ValueError(f"it holds no classifier: {error}") from error
    if not whole:
        raise ValueError("its checksum is wrong")
    return found


def _about(found: Classifier) -> dict[str, Any]:
    """The file's metadata about the weights, with a checksum of the metadata itself."""
    told = {"format": FORMAT, "accuracy": found.accuracy, "checksum": found.checksum}
    return {**told, "seal": sha256(json.dumps(told).encode())}


def _named(weights: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {str(place): weight.contiguous() for place, weight in enumerate(weights)}


def _initial(sizes: list[int], rng: Rng) -> list[Tensor]:
    """Weights (He's uniform initialisation) and biases (zero), alternating."""
    (generator,) = rng.at("start").generators()
    made: list[Tensor] = []
    for width, out in pairwise(sizes):
        bound = (6 / width) ** 0.5
        made += [torch.empty(out, width).uniform_(-bound, bound, generator=generator), torch.zeros(out)]
    return made


def _forward(weights: list[Tensor] | tuple[Tensor, ...], x: Tensor, masks: torch.Generator | None = None) -> Tensor:
    """Logits; with dropout if a generator for the masks is given."""
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
