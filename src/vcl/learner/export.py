"""The learned network as a plain module: scaling, trunk, head, and the scaling of targets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from copy import deepcopy
from typing import final

from torch import Tensor, nn

from vcl.beliefs.layout import HEAD as PREFIX
from vcl.errors import VclError
from vcl.learner.backbone import Backbone
from vcl.learner.knowledge import Knowledge
from vcl.learner.scaling import Scaling
from vcl.learner.way import Part
from vcl.models.network import TRUNK
from vcl.ops.noise import draw_noise
from vcl.ops.rng import Rng


@final
class Standardized(nn.Module):
    """(x - centre) / width."""

    centre: Tensor
    width: Tensor

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        self.register_buffer("centre", scaling.centre.double())
        self.register_buffer("width", scaling.width.double())

    def forward(self, x: Tensor) -> Tensor:
        """In float32."""
        return ((x.double() - self.centre) / self.width).float()


@final
class Numbers(nn.Module):
    """Numbers of any dtype as float32."""

    def forward(self, x: Tensor) -> Tensor:
        """x in float32."""
        return x.float()


@final
class Pixels(nn.Module):
    """uint8 pixels from 0 to 1."""

    def forward(self, x: Tensor) -> Tensor:
        """x / 255."""
        return x.float() / 255


@final
class Rescaled(nn.Module):
    """centre + width f."""

    centre: Tensor
    width: Tensor

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        self.register_buffer("centre", scaling.centre.float())
        self.register_buffer("width", scaling.width.float())

    def forward(self, f: Tensor) -> Tensor:
        """In the units of the targets."""
        return self.centre + self.width * f


def exported(known: Knowledge, part: Part, head: str, targets: Scaling | None) -> nn.Module:
    """An ``nn.Sequential`` with copies of the user's modules, at the posterior's mean."""
    if not isinstance(part, Backbone):
        raise VclError("a classifier of generators is no single module; use predict_proba, or save the learner.")
    q = known.state.predictive[head]
    params = {name: value[0] for name, value in q.layout.split(q.mean).items()}
    weight = params[f"{PREFIX}{head}.weight"]
    steps: OrderedDict[str, nn.Module] = OrderedDict()
    if known.scaling is not None:
        steps["standardized"] = Standardized(known.scaling)
    elif known.inputs.kind == "pixels":
        steps["pixels"] = Pixels()
    elif known.inputs.kind == "numbers":
        steps["numbers"] = Numbers()
    if part.prefix is not None:
        steps["frozen"] = deepcopy(part.prefix.fixed.module)
    steps["trunk"] = deepcopy(part.trunk)
    # Without torch's own start, which draws from its global generator.
    sizes = weight.shape[1], weight.shape[0]
    steps["head"] = nn.utils.skip_init(nn.Linear, *sizes)  # type: ignore[no-untyped-call]
    if targets is not None:
        steps["rescaled"] = Rescaled(targets)
    module = nn.Sequential(steps).eval()
    module.load_state_dict({**module.state_dict(), **_values(params, head)})
    return module.requires_grad_(False)


def samples(
    known: Knowledge, part: Part, head: str, targets: Scaling | None, count: int, rng: Rng
) -> list[dict[str, Tensor]]:
    """State dicts of :func:`exported` with drawn weights."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise VclError(f"n is {count!r}; give the number of draws, from 1.")
    module = exported(known, part, head, targets)
    plain, tied = module.state_dict(), _tied(module)
    q = known.state.predictive[head]
    q = q.restrict(q.layout.touched([head]))
    noise = draw_noise(count * q.layout.size, rng.generators(q.mean.device), q.mean)
    drawn = q.draw(noise.view(1, count, -1))[0]
    found = []
    for theta in drawn:
        values = _values(q.layout.split(theta), head)
        again = {name: values[first] for name, first in tied.items() if first in values}
        found.append({**plain, **values, **again})
    return found


def _tied(module: nn.Module) -> dict[str, str]:
    """The first name of each parameter that has several, by the others: the belief knows it by the first."""
    first: dict[int, str] = {}
    names = ((name, first.setdefault(id(each), name)) for name, each in module.named_parameters(remove_duplicate=False))
    return {name: one for name, one in names if name != one}


def _values(params: Mapping[str, Tensor], head: str) -> dict[str, Tensor]:
    """Parameters of the trunk and one head by their names in the exported module."""
    trunk = {f"trunk.{name.removeprefix(TRUNK)}": value for name, value in params.items() if name.startswith(TRUNK)}
    ends = {f"head.{part}": params[f"{PREFIX}{head}.{part}"] for part in ("weight", "bias")}
    return {name: value.detach().cpu().clone() for name, value in {**trunk, **ends}.items()}
