"""What every product, quotient and power keeps, for Gaussians of any layout and number of runs."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from generated import RUNS, SEEDS, few, layouts, seeded
from vcl.beliefs.algebra import power, product, quotient
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField

EXPONENTS = st.floats(0.1, 3.0)


def gaussian(family: str, layout: Layout, runs: int, seed: int) -> Any:
    g = seeded(seed)
    mean, log_var = torch.randn(2, runs, layout.size, generator=g, dtype=torch.float64)
    if family == "mean-field":
        return MeanField(layout, mean, log_var)
    root = torch.randn(runs, layout.size, layout.size, generator=g, dtype=torch.float64) / layout.size**0.5
    return FullGaussian(layout, mean, root @ root.mT + torch.diag_embed(log_var.exp()))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two beliefs, or their factors, over one layout for as many runs."""
    layout, runs, family, factors = (
        draw(layouts()),
        draw(RUNS),
        draw(st.sampled_from(["mean-field", "full"])),
        draw(st.booleans()),
    )
    found = [gaussian(family, layout, runs, draw(SEEDS)) for _ in range(2)]
    one, two = (q.factor() if factors else q for q in found)
    return one, two


def alike(a: Any, b: Any) -> bool:
    return type(a) is type(b) and all(
        torch.allclose(x, y, rtol=1e-8, atol=1e-8) for x, y in zip(a[1:], b[1:], strict=True)
    )


@few(60)
@given(pairs())
def test_a_product_divided_is_what_it_was(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assert alike(quotient(product(a, b), b), a)


@few(60)
@given(pairs())
def test_products_commute(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assert alike(product(a, b), product(b, a))


@few(60)
@given(pairs(), EXPONENTS, EXPONENTS)
def test_powers_add_and_multiply(pair: tuple[Any, Any], s: float, t: float) -> None:
    a, b = pair
    assert alike(product(power(a, s), power(a, t)), power(a, s + t))
    assert alike(power(power(a, s), t), power(a, s * t))
    assert alike(power(product(a, b), s), product(power(a, s), power(b, s)))


@few(60)
@given(pairs(), SEEDS)
def test_log_densities_add_up_to_a_constant(pair: tuple[Any, Any], seed: int) -> None:
    a, b = (q.factor() if isinstance(q, MeanField | FullGaussian) else q for q in pair)
    theta = torch.randn(len(a.centre), 3, a.layout.size, generator=seeded(seed), dtype=torch.float64)
    gaps = product(a, b).pull(theta) - a.pull(theta) - b.pull(theta)
    assert torch.allclose(gaps, gaps[:, :1].expand_as(gaps), atol=1e-7)


@few(40)
@given(pairs())
def test_runs_never_meet(pair: tuple[Any, Any]) -> None:
    a, b = pair
    whole = product(a, b)
    for run in range(len(a[1])):
        alone = product(*(type(q)(q.layout, *(part[run : run + 1] for part in q[1:])) for q in pair))
        assert all(torch.allclose(x[run], y[0], rtol=1e-12) for x, y in zip(whole[1:], alone[1:], strict=True))
