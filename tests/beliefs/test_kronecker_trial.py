"""A throw-away family through every seam: a weight that is independent in rotated coordinates, W = M + Q_G Z Q_A^T.

Z has independent entries of variances V, and Q_A and Q_G are fixed within a fit. It is here to show that a family of
another kind needs a file of its own, one rule for its layers and one entry in a table, and no change of an engine. See
docs/decisions/0003-kronecker-trial.md for what it taught.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from vcl.beliefs.belief import Roles
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.mean_field_fit import MeanFieldFit
from vcl.beliefs.mean_field_torch import DrawnTorch, LocalTorch
from vcl.data import Data, dataset
from vcl.engines.bound import DrawnBound, LayeredBound
from vcl.engines.general import General
from vcl.engines.suppliers import SUPPLIERS
from vcl.fitting.step import by_autograd
from vcl.models import Network
from vcl.models.likelihoods import Categorical
from vcl.ops import layers_torch
from vcl.ops.layers import Linear, Sizes
from vcl.projections.vi import Elbo

Rotations = dict[str, tuple[Tensor, Tensor]]
"""Q_A [in, in] and Q_G [out, out] of a weight."""


class Kronecker(NamedTuple):
    """mean [R, D] as it is, and log_var [R, D] of the rotated coordinates."""

    layout: Layout
    mean: Tensor
    log_var: Tensor
    rotations: Rotations

    def turned(self, theta: Tensor, back: bool = False) -> Tensor:
        """theta [..., D] in rotated coordinates Q_G^T W Q_A, or back from them."""
        parts = self.layout.split(theta)
        for name, (A, G) in self.rotations.items():
            parts[name] = G @ parts[name] @ A.mT if back else G.mT @ parts[name] @ A
        return self.layout.join(parts, lead=theta.dim() - 1)

    def start(self, mean: Tensor, wide: Collection[str], var: float) -> Kronecker:
        plain = MeanField(self.layout, mean, self.log_var).start(mean, wide, var)
        return self._replace(mean=mean, log_var=plain.log_var)

    def bind(self, roles: Roles, climbs: str) -> KroneckerFit:
        return KroneckerFit(self, roles, climbs)


class KroneckerFit:
    """Mean field in rotated coordinates: everything but the rotation is that family's."""

    def __init__(self, previous: Kronecker, roles: Roles, climbs: str) -> None:
        self.q = previous
        self.plain = MeanFieldFit(
            MeanField(previous.layout, previous.turned(previous.mean), previous.log_var), roles, climbs
        )
        self.rules = dict.fromkeys(previous.rotations, "rotated")
        self.points, self.spread, self.noise = self.plain.points, self.plain.spread, self.plain.noise

    def parameters(self, q: Kronecker) -> tuple[Tensor, ...]:
        return self.plain.parameters(MeanField(q.layout, q.turned(q.mean), q.log_var))

    def belief(self, parameters: tuple[Tensor, ...]) -> Kronecker:
        turned = self.plain.belief(parameters)
        return self.q._replace(mean=self.q.turned(turned.mean, back=True), log_var=turned.log_var)

    def draw(self, parameters: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        return self.q.turned(self.plain.draw(parameters, noise), back=True)

    def kl(self, parameters: tuple[Tensor, ...]) -> Tensor:
        return self.plain.kl(parameters)


class Supplier:
    """A mean-field supplier that also knows the rotations."""

    SEEDED = False

    def __init__(self, fit: KroneckerFit, draws: int, parameters: tuple[Tensor, ...]) -> None:
        self.inner = self.KIND(fit.plain, draws, parameters)  # type: ignore[attr-defined]
        self.rotations = fit.q.rotations

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @classmethod
    def noise_of(cls, fit: KroneckerFit, examples: int, layers: list[tuple[int, ...]]) -> int:
        return cls.KIND.noise_of(fit, examples, layers)  # type: ignore[attr-defined, no-any-return]


class DrawnSupplier(Supplier):
    KIND, RULE = DrawnTorch, "given"


class LocalSupplier(Supplier):
    KIND, RULE = LocalTorch, "local"


class Rotated:
    """A layer between two rotations: a = Q_G ( inner( Q_A^T h ) )."""

    INNER, NOISY = "given", False

    def __init__(self, of: Linear, sizes: Sizes, like: Tensor, above: Any = None) -> None:
        self.of = of
        self.inner = layers_torch.RULES[self.INNER](of._replace(relu=False), sizes, like)

    def up(self, h: Tensor, weights: Any) -> Tensor:
        self.A, self.G = weights.rotations[self.of.block.weight]
        a = self.inner.up(h @ self.A, weights) @ self.G.mT
        self.a = a.relu() if self.of.relu else a
        return self.a

    def down(self, g: Tensor, weights: Any) -> Tensor | None:
        g = torch.where(self.a > 0, g, 0) if self.of.relu else g
        back = self.inner.down(g @ self.G, weights)
        return None if back is None else back @ self.A.mT


class RotatedLocal(Rotated):
    INNER, NOISY = "local", True


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """One rule and one entry for each estimator: all that the package must be told."""
    local = request.getfixturevalue("estimator") == "local"
    monkeypatch.setitem(layers_torch.RULES, "rotated", RotatedLocal if local else Rotated)
    monkeypatch.setitem(SUPPLIERS, (KroneckerFit, "weights", "layered/torch"), DrawnSupplier)
    monkeypatch.setitem(SUPPLIERS, (KroneckerFit, "local", "layered/torch"), LocalSupplier)


def problem(draws: int, estimator: str) -> tuple[Elbo, Kronecker, Data, torch.Generator]:
    g = torch.Generator().manual_seed(0)
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 4, bias=False), nn.Tanh())
    model = Network(trunk, 4, Categorical())
    layout = model.prior({"h": 3}).layout
    rotations = {}
    for name, shape in zip(*layout, strict=True):
        if name.startswith("trunk."):  # heads are diagonal, by choice
            out, width = shape
            rotations[name] = tuple(
                torch.linalg.qr(torch.randn(n, n, generator=g, dtype=torch.float64))[0] for n in (width, out)
            )
    previous, q = (
        Kronecker(layout, *torch.randn(2, 2, layout.size, generator=g, dtype=torch.float64), rotations)  # type: ignore[arg-type]
        for _ in range(2)
    )
    x = torch.randn(7, 6, generator=g, dtype=torch.float64)
    data = dataset(x, torch.randint(0, 3, (7,), generator=g), head="h", runs=2)
    return Elbo(model, previous, draws, estimator), q, data, g  # type: ignore[arg-type]


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("estimator", ["weights"])
@pytest.mark.usefixtures("registered")
def test_the_layered_engine_has_the_gradient_of_theta_drawn_whole(estimator: str, draws: int) -> None:
    elbo, q, data, g = problem(draws, estimator)
    at = elbo.parameters(q)
    noise = torch.randn(2, elbo.noise(data), generator=g, dtype=torch.float64)
    assert isinstance(elbo.bound(data), LayeredBound)
    ours, torchs = elbo.gradient(at, data, 50, noise), by_autograd(elbo, at, data, 50, noise)
    assert torch.allclose(ours.value, torchs.value, rtol=1e-10)
    for mine, other in zip(ours.gradients, torchs.gradients, strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-10)
    plain = DrawnBound(General(elbo.model, elbo.layout), elbo.fit, draws, 0).gradient(at, data, 50, noise)
    assert torch.allclose(plain[0], torchs.value, rtol=1e-10)


@pytest.mark.parametrize("estimator", ["local"])
@pytest.mark.usefixtures("registered")
def test_local_reparameterisation_stays_exact_between_rotations(estimator: str) -> None:
    """The expected log-likelihood of many draws is that of many drawn weights."""
    found = []
    for kind in ("weights", "local"):
        elbo, q, data, g = problem(20_000, estimator if kind == "local" else "local")
        at = elbo.parameters(q)
        if kind == "weights":  # theta drawn whole
            bound: Any = DrawnBound(General(elbo.model, elbo.layout), elbo.fit, 20_000, 0)
            noise = torch.randn(2, 20_000 * bound.noise(data), generator=g, dtype=torch.float64)
        else:
            bound = elbo.bound(data)
            assert isinstance(bound, LayeredBound)
            noise = torch.randn(2, elbo.noise(data), generator=g, dtype=torch.float64)
        found.append(bound.gradient(at, data, 7, noise)[0])
    assert torch.allclose(*found, rtol=0.02)


def test_without_entries_the_family_is_drawn_whole() -> None:
    elbo, q, data, g = problem(3, "weights")
    assert isinstance(elbo.bound(data), DrawnBound)
    noise = torch.randn(2, elbo.noise(data), generator=g, dtype=torch.float64)
    ours = elbo.gradient(elbo.parameters(q), data, 50, noise)
    torchs = by_autograd(elbo, elbo.parameters(q), data, 50, noise)
    assert torch.allclose(ours.value, torchs.value, rtol=1e-10)
    again = elbo.belief(elbo.parameters(q))
    assert torch.allclose(again.mean, q.mean)
    assert torch.equal(again.log_var, q.log_var)
