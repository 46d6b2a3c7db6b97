"""What to do where a network does not take the inputs that it is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from vcl.errors import InputError
from vcl.learner.tables import Table, became


@contextmanager
def saying_what_fits(net: object, shape: tuple[int, ...], table: Table | None) -> Iterator[None]:
    """Where a network does not take examples of this shape, the error also says what would fit."""
    try:
        yield
    except InputError as error:
        advice = what_fits(net, shape) if table is None else became(table)
        if not advice:
            raise
        raise InputError(f"{str(error).rstrip('.')}; {advice}") from error


def what_fits(net: object, shape: tuple[int, ...]) -> str:
    """What to do about examples of this shape, by the network's first layer; empty if there is nothing to say."""
    if not isinstance(net, nn.Module):
        return ""
    first = next((part for part in net.modules() if isinstance(part, nn.Linear | nn.Conv2d)), None)
    if isinstance(first, nn.Conv2d):
        return _for_images(first.in_channels, shape)
    if not isinstance(first, nn.Linear) or not shape or shape[-1] == first.in_features:
        return ""
    told = f"the network's first layer takes {first.in_features} values"
    if len(shape) > 1:
        return f"{told}; begin with nn.Flatten(), or give rows of that many."
    return f"{told}, and an example has {shape[0]}; begin with nn.Linear({shape[0]}, ...)."


def _for_images(channels: int, shape: tuple[int, ...]) -> str:
    """What to do about examples of this shape before a two-dimensional convolution."""
    told = f"its nn.Conv2d takes x as [N, {channels}, height, width]"
    if len(shape) == 2 and channels == 1:
        return f"{told}; give x[:, None]."
    if len(shape) == 3 and shape[-1] == channels != shape[0]:
        return f"{told}; bring the channels to the front, as in x.permute(0, 3, 1, 2) or np.moveaxis(x, -1, 1)."
    return f"{told}."


@contextmanager
def saying_which_tokens(net: object, x: Tensor) -> Iterator[None]:
    """Where an ``nn.Embedding`` has no row for a token of x, a sentence in place of torch's error."""
    try:
        yield
    except IndexError as error:
        parts = list(net.modules()) if isinstance(net, nn.Module) else []
        rows = [part.num_embeddings for part in parts if isinstance(part, nn.Embedding)]
        if not rows or x.is_floating_point() or (int(x.min()) >= 0 and int(x.max()) < min(rows)):
            raise
        raise InputError(
            f"x has tokens from {int(x.min())} to {int(x.max())}, and the network's nn.Embedding has {min(rows)} rows, "
            f"for 0 to {min(rows) - 1}; give tokens that it has a row for."
        ) from error
