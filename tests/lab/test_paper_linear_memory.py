"""Appendix F: the memory of a linear model, its simulation against its theory, and the figure."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from torch import Tensor

from vcl.lab.experiments.experiment import PRESETS
from vcl.lab.figures import linear_memory as figure
from vcl.lab.paper import linear_memory as memory
from vcl.lab.paper.linear_memory import DESCENT, EWC, LAPLACE, VI
from vcl.ops.rng import Rng
from vcl.projections.online_linear import variational_update

METHODS = (VI, LAPLACE, EWC, DESCENT)
CPU = torch.device("cpu")


def patterns(count: int, D: int, runs: int = 3) -> list[Tensor]:
    """Some x_bar [runs, D]."""
    return [memory.draw(Rng((5,)).at(t), runs, D) for t in range(1, count + 1)]


def means(method: str, prior: float, shown: list[Tensor]) -> list[Tensor]:
    """m_1, m_2, ... of a method."""
    learner = memory.learners(prior, *shown[0].shape)[method]
    found = []
    for t, x_bar in enumerate(shown, start=1):
        learner = learner.see(x_bar, t)
        found.append(learner.mean)
    return found


def expected(method: str, prior: float, D: int, first: int, followed: int, ages: list[int]) -> tuple[Tensor, Tensor]:
    b, g = memory.steps(method, D, first + followed + max(ages), prior)
    return memory.theory(b, g, D, first, followed, ages)


# The learners.


@pytest.mark.parametrize("prior", [0.0, 1.0, 0.25])
def test_online_vi_and_online_laplace_are_the_same(prior: float) -> None:
    shown = patterns(150, D=20)
    for one, two in zip(means(VI, prior, shown), means(LAPLACE, prior, shown), strict=True):
        assert torch.allclose(one, two, rtol=0, atol=1e-12)


def test_they_are_the_projection_by_variational_kl_in_its_matrix_form() -> None:
    shown = patterns(60, D=12)
    mean, precision = torch.zeros_like(shown[0]), torch.ones_like(shown[0])
    for x_bar, ours in zip(shown, means(VI, 1.0, shown), strict=True):
        mean, precision = variational_update(mean, precision, x_bar, torch.ones(len(x_bar)).double())
        assert torch.allclose(ours, mean, rtol=0, atol=1e-12)


def test_without_the_prior_they_are_equation_s4() -> None:
    """Kirkpatrick et al. (2017): w <- [I - x x^T / (1 + n/D)] w + x / (1 + n/D), n patterns having been seen."""
    D = 15
    shown = patterns(80, D, runs=1)
    s4 = torch.zeros(D).double()
    for n, (x_bar, vi, laplace) in enumerate(
        zip(shown, means(VI, 0.0, shown), means(LAPLACE, 0.0, shown), strict=True)
    ):
        x = x_bar[0]
        s4 = (torch.eye(D).double() - torch.outer(x, x) / (1 + n / D)) @ s4 + x / (1 + n / D)
        assert torch.allclose(vi[0], s4, rtol=0, atol=1e-12)
        assert torch.allclose(laplace[0], s4, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", [VI, LAPLACE])
def test_the_prior_counts_as_d_over_v0_patterns_met_before(method: str) -> None:
    """So the first mean is half of that without it, and the signal falls short by c_t(0) / c_t(1) at any time."""
    D, shown = 10, patterns(40, D=10)
    with_prior, without = means(method, 1.0, shown), means(method, 0.0, shown)
    assert torch.allclose(with_prior[0], without[0] / 2, rtol=0, atol=1e-12)
    learner = memory.learners(0.0, *shown[0].shape)[VI]
    for t, (x_bar, ours) in enumerate(zip(shown, with_prior, strict=True), start=1):
        learner = learner.see(x_bar, D + t)  # without a prior, but D patterns later
        assert torch.allclose(learner.mean, ours, rtol=0, atol=1e-12)
    ages = [1, 5, 30]
    ratio = expected(method, 1.0, D, 3, 2, ages)[0] / expected(method, 0.0, D, 3, 2, ages)[0]
    for row, age in enumerate(ages):
        for place, number in enumerate((3, 4)):
            before = (number + age - 1) / D
            assert float(ratio[row, place]) == pytest.approx((1 + before) / (2 + before), rel=1e-12)


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_own_anchors_minimise_the_sum_of_all_penalties(prior: float) -> None:
    """1/2 (1 - w^T x)^2 + 1/2 p_0 |w|^2 + 1/2 sum_s (w - m_s)^T diag(x_s^2) (w - m_s), solved as it is written."""
    D = 8
    shown = patterns(30, D, runs=1)
    ours = means(EWC, prior, shown)
    for t, x_bar in enumerate(shown):
        if prior == 0 and t == 0:
            assert torch.equal(ours[0], x_bar)
            continue
        x, anchors = x_bar[0], zip(shown[:t], ours[:t], strict=True)
        right = x + sum((s[0].square() * m[0] for s, m in anchors), torch.zeros(D).double())
        left = torch.outer(x, x) + torch.diag(prior + sum((s[0].square() for s in shown[:t]), torch.zeros(D).double()))
        assert torch.allclose(ours[t][0], torch.linalg.solve(left, right), rtol=0, atol=1e-12)
    online = means(LAPLACE, prior, shown)
    assert (ours[-1] - online[-1]).norm() > 0.3 * online[-1].norm(), "the anchors matter"


def test_gradient_descent_fits_the_last_pattern_and_nothing_else_is_gathered() -> None:
    shown = patterns(50, D=10)
    for x_bar, mean in zip(shown, means(DESCENT, 0.0, shown), strict=True):
        assert torch.allclose((x_bar * mean).sum(-1), torch.ones(3).double(), rtol=0, atol=1e-12)
    halfway = means(DESCENT, 1.0, shown)
    left = 1 - (shown[-1] * halfway[-2]).sum(-1)
    assert torch.allclose(1 - (shown[-1] * halfway[-1]).sum(-1), left / 2, rtol=0, atol=1e-12)


# The theory.


@pytest.mark.parametrize("prior", [0.0, 1.0])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("D", "count"), [(2, 5), (3, 3)])
def test_the_theory_is_exact_over_all_sequences_of_patterns(method: str, prior: float, D: int, count: int) -> None:
    """Every sequence there is, as a run of its own: 4^5 = 1024 or 8^3 = 512."""
    vectors = torch.tensor(list(product((-1.0, 1.0), repeat=D)), dtype=torch.float64) / sqrt(D)
    sequences = torch.tensor(list(product(range(2**D), repeat=count)))
    shown = [vectors[sequences[:, t]] for t in range(count)]
    found = means(method, prior, shown)
    for number in range(1, count):
        for age in range(1, count - number + 1):
            responses = (shown[number - 1] * found[number + age - 1]).sum(-1)
            signal, variance = expected(method, prior, D, number, 1, [age])
            assert float(signal) == pytest.approx(float(responses.mean()), abs=1e-12)
            assert float(variance) == pytest.approx(float(responses.var(correction=0)), abs=1e-12)
            assert float(variance) > 0


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_online_every_pattern_has_the_same_signal_whatever_its_age(prior: float) -> None:
    D, ages = 30, [1, 10, 50]
    for first in (1, 40):
        signal, _ = expected(VI, prior, D, first, 4, ages)
        for row, age in enumerate(ages):
            for place in range(4):
                c = 1 + prior + (first + place + age - 1) / D
                assert float(signal[row, place]) == pytest.approx(1 / c, rel=1e-12)


def test_without_a_prior_the_ratio_falls_by_a_power_law_at_both_ends() -> None:
    D, ages = 10**6, [1, 10, 100, 1000]
    signal, variance = expected(VI, 0.0, D, 1, 3, ages)
    for row, age in enumerate(ages):
        assert signal[row] / variance[row].sqrt() == pytest.approx(torch.full((3,), sqrt(D / age)).double(), rel=0.01)
    signal, variance = expected(VI, 0.0, 10, 1, 1, [5000])
    assert float(signal / variance.sqrt()) == pytest.approx(sqrt(10 / 5010), rel=0.02)


def test_gradient_descent_forgets_exponentially() -> None:
    signal, variance = expected(DESCENT, 0.0, 50, 1, 2, [1, 100, 1000])
    for row, age in enumerate([1, 100, 1000]):
        assert float(signal[row, 1]) == pytest.approx((1 - 1 / 50) ** age, rel=1e-12)
    assert float(variance[2, 0]) == pytest.approx(1, rel=0.01)


# The simulation.

TESTED: dict[str, Any] = {
    "dimensions": 30,
    "firsts": [1, 41],
    "followed": 4,
    "oldest": [70, 30],
    "ages": 7,
    "priors": [0.0, 1.0],
    "streams": 25,
    "seeds": 40,
}


@pytest.fixture(scope="module")
def table() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(memory.compute(TESTED, CPU))))


def deviations(rows: list[dict[str, str]], value: str, power: int) -> dict[tuple[str, ...], float]:
    """How many standard errors over seeds the simulation is from the theory, for each kind of row."""
    by_place: dict[tuple[str, ...], tuple[list[float], list[float]]] = {}
    for row in rows:
        place = tuple(row[key] for key in ("method", "prior", "first", "age"))
        by_place.setdefault(place, ([], []))[row["kind"] == "theory"].append(float(row[value]) ** power)
    found = {}
    for place, (drawn, theory) in by_place.items():
        values = torch.tensor(drawn, dtype=torch.float64)
        assert (len(drawn), len(theory)) == (TESTED["seeds"], 1)
        found[place] = float((values.mean() - theory[0]) / (values.std() / len(drawn) ** 0.5))
    return found


@pytest.mark.parametrize(("value", "power"), [("signal", 1), ("noise", 2)])
def test_the_simulation_agrees_with_the_theory_within_its_error(
    table: list[dict[str, str]], value: str, power: int
) -> None:
    """Signal and variance are estimated without bias, so they differ from the theory by chance alone."""
    off = torch.tensor(list(deviations(table, value, power).values()))
    assert len(off) == 4 * 2 * (7 + 7)
    assert float(off.abs().max()) < 4
    assert float(off.square().mean()) < 1.5, "1 on average, were they all independent"


def test_the_comparison_would_notice_the_papers_t_over_d(table: list[dict[str, str]]) -> None:
    """c_t = 1 + 1/v_0 + t/D, as printed, is the right theory for a prior that is heavier by 1/D."""
    D = TESTED["dimensions"]
    wrong = [dict(row) for row in table if (row["method"], row["prior"], row["first"]) == (VI, "0", "1")]
    for row in wrong:
        if row["kind"] == "theory":
            row["signal"] = str(float(expected(VI, 1 / D, D, 1, TESTED["followed"], [int(row["age"])])[0].mean()))
    assert max(deviations(wrong, "signal", 1).values()) > 6


def test_the_share_recalled_is_near_that_of_a_normal_response(table: list[dict[str, str]]) -> None:
    shares: dict[tuple[str, ...], tuple[list[float], list[float]]] = {}
    for row in table:
        place = tuple(row[key] for key in ("method", "prior", "first", "age"))
        shares.setdefault(place, ([], []))[row["kind"] == "theory"].append(float(row["recalled"]))
    for place, (drawn, (theory,)) in shares.items():
        assert sum(drawn) / len(drawn) == pytest.approx(theory, abs=0.02), place
    assert shares[DESCENT, "0", "1", "1"][1][0] > 0.99
    assert shares[EWC, "1", "41", "30"][1][0] < 0.55, "own anchors under a prior: only the last pattern is known"


def test_the_table_has_every_seed_and_the_theory_and_is_the_same_every_time() -> None:
    settings = memory.SETTINGS["smoke"]
    text = memory.compute(settings, CPU)
    assert text == memory.compute(settings, CPU)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == memory.COLUMNS
    ages = memory.all_ages(settings)
    assert (ages[0][0], ages[0][-1], ages[1][-1]) == (1, 150, 50)
    every = [(row["kind"], row["method"], row["prior"], row["first"], row["seed"], row["age"]) for row in rows]
    wanted = {
        (kind, method, prior, str(first), seed, str(age))
        for kind, seeds in (("simulation", "01"), ("theory", ("",)))
        for seed in seeds
        for method in METHODS
        for prior in ("0", "1")
        for first, group in zip(settings["firsts"], ages, strict=True)
        for age in group
    }
    assert set(every) == wanted
    assert len(every) == len(wanted)
    for row in rows:
        assert float(row["snr"]) == pytest.approx(float(row["signal"]) / float(row["noise"]), rel=1e-4)


def test_a_seed_sees_the_same_patterns_alone() -> None:
    settings = memory.SETTINGS["smoke"]
    both, alone = (
        [
            row
            for row in csv.DictReader(io.StringIO(memory.compute({**settings, "seeds": n}, CPU)))
            if row["seed"] == "0"
        ]
        for n in (2, 1)
    )
    assert both == alone


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with memory.one_thread():
            within = torch.get_num_threads()
        assert (within, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


def test_presets_fit_their_patterns() -> None:
    for preset in PRESETS:
        settings = memory.SETTINGS[preset]
        assert settings["firsts"][1] > 2 * settings["dimensions"], "late: after twice as many as there are dimensions"
        for first, oldest in zip(settings["firsts"], settings["oldest"], strict=True):
            assert memory.last(settings) >= first + settings["followed"] - 1 + oldest


# Numbers and figure, from rows made by hand.


def row(kind: str, method: str, prior: str, first: str, seed: str, age: str, *values: float) -> dict[str, str]:
    return dict(zip(memory.COLUMNS, (kind, method, prior, first, seed, age, *map(str, values)), strict=True))


MADE = [
    row("simulation", "a", "0", "1", "0", "1", 0.9, 0.1, 9.0, 1.0),
    row("simulation", "a", "0", "1", "0", "10", 0.5, 0.5, 1.0, 0.8),
    row("simulation", "a", "0", "1", "1", "1", 0.7, 0.1, 7.0, 0.9),
    row("simulation", "a", "0", "1", "1", "10", 0.6, 0.2, 3.0, 0.6),
    row("theory", "a", "0", "1", "", "1", 0.8, 0.1, 8.0, 0.95),
    row("theory", "a", "0", "1", "", "10", 0.5, 0.25, 2.0, 0.7),
    row("simulation", "b", "0", "1", "0", "1", 0.2, 0.1, 2.0, 1.0),
    row("simulation", "b", "0", "1", "1", "1", 0.2, 0.1, 2.0, 1.0),
    row("theory", "b", "0", "1", "", "1", 0.2, 0.1, 2.0, 1.0),
    row("simulation", "a", "1", "7", "0", "3", 0.2, 0.1, 2.0, 0.75),
    row("theory", "a", "1", "7", "", "3", 0.3, 0.1, 3.0, 0.8),
]


def test_the_numbers_by_hand() -> None:
    found = memory.measures(MADE)
    ratio = found["a, no prior: signal to noise, pattern 1 and on at age 10"]
    assert (ratio.mean, ratio.error, ratio.seeds) == pytest.approx((2, 1, 2))
    recalled = found["a, no prior: recalled, pattern 1 and on at age 10"]
    assert (recalled.mean, recalled.error) == pytest.approx((70, 10))
    # Seed 0: (0.1 + 0) / 2, seed 1: (-0.1 + 0.1) / 2, in %.
    gap = found["a, no prior: signal less theory"]
    assert (gap.mean, gap.error, gap.seeds) == pytest.approx((2.5, 2.5, 2))
    alone = found["a, prior 1: signal less theory"]
    assert (alone.mean, alone.seeds) == pytest.approx((-10, 1))
    assert len(found) == 9
    assert memory.by_seed(MADE)["a, no prior: recalled, pattern 1 and on at age 10"] == {0: 80, 1: 60}


def test_theory_is_a_line_and_the_simulation_marks_with_bars() -> None:
    drawn = figure.picture(MADE)
    first, second, *_ = drawn.axes
    assert [axes.get_title() for axes in (first, second)] == ["prior ignored, 1/v₀ = 0", "with the prior, 1/v₀ = 1"]
    assert first.get_xscale() == first.get_yscale() == "log"
    np.testing.assert_allclose(first.lines[0].get_xydata(), [(1, 8), (10, 2)])
    marks, _, (bars,) = first.containers[0]
    np.testing.assert_allclose(marks.get_xydata(), [(1, 8), (10, 2)])
    np.testing.assert_allclose(bars.get_segments(), [[(1, 7), (1, 9)], [(10, 1), (10, 3)]])
    assert marks.get_color() == first.lines[0].get_color()
    other, _, (none,) = first.containers[1]
    assert (other.get_color(), other.get_marker()) != (marks.get_color(), marks.get_marker())
    np.testing.assert_allclose(none.get_segments(), [[(1, 2), (1, 2)]])
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["a", "b", "signal = noise"]


def test_a_panel_for_each_prior_and_each_group_of_patterns() -> None:
    drawn = figure.picture(MADE)
    assert len(drawn.axes) == 4
    assert "patterns from number 7 on" in drawn.axes[2].get_ylabel()
    assert "the first patterns" in drawn.axes[0].get_ylabel()
    np.testing.assert_allclose(drawn.axes[3].lines[0].get_xydata(), [(3, 3)])


def test_the_picture_is_a_picture(tmp_path: Path) -> None:
    made = figure.draw(MADE, tmp_path / "linear-memory")
    assert made == [tmp_path / "linear-memory.png", tmp_path / "linear-memory.svg"]
    pixels = imread(made[0])
    assert pixels.shape[:2] == (1140, 1360)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20, "more than a blank page"
    assert ET.parse(made[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
