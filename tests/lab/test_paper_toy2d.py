"""Appendix D: two tasks of Gaussians in the plane, their table and the figure."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from vcl.errors import VclError
from vcl.lab.experiments.experiment import PRESETS
from vcl.lab.figures import toy2d as figure
from vcl.lab.paper import toy2d
from vcl.ops.rng import Rng

CPU = torch.device("cpu")
SMOKE = toy2d.SETTINGS["smoke"]
TINY: dict[str, Any] = {**SMOKE, "epochs": 3, "grid": 3, "methods": [["vcl", None], ["ewc", 5.0]], "drawn": ["vcl"]}


def table(settings: dict[str, Any]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(toy2d.compute(settings, CPU))))


# The tasks.


def test_the_green_class_stays_and_the_black_one_moves() -> None:
    settings = {**SMOKE, "points": 4000, "green": [0.5, -1.0], "black": [[3.0, 0.0], [0.0, 2.0]], "deviation": 0.5}
    for number, black in ((1, [3.0, 0.0]), (2, [0.0, 2.0])):
        train = toy2d.make_task(number, settings, Rng((0, 1)), CPU).train
        assert train.x.shape == (2, 8000, 2)
        for label, mean in ((0, [0.5, -1.0]), (toy2d.BLACK, black)):
            for run in range(2):
                mine = train.x[run, train.y[run] == label]
                assert len(mine) == 4000
                torch.testing.assert_close(mine.mean(0), torch.tensor(mean), rtol=0, atol=0.04)
                torch.testing.assert_close(mine.std(0), torch.full((2,), 0.5), rtol=0, atol=0.03)


def test_seeds_tasks_and_tests_have_points_of_their_own() -> None:
    one, two = (toy2d.make_task(number, SMOKE, Rng((0, 1)), CPU) for number in (1, 2))
    green = [one.train.x[0, :50], one.train.x[1, :50], two.train.x[0, :50], one.test.x[0, :50]]
    for place, points in enumerate(green):
        assert points.shape == (50, 2)
        assert all(not torch.equal(points, other) for other in green[place + 1 :])
    assert torch.equal(one.train.x[1], toy2d.make_task(1, SMOKE, Rng((1,)), CPU).train.x[0])
    assert (one.heads, two.heads) == ({"task 1": 2}, {"task 2": 2})


def test_the_papers_sizes() -> None:
    paper = toy2d.SETTINGS["paper"]
    assert toy2d.make_task(1, paper, Rng((0,)), CPU).train.size == 200
    assert (paper["hidden"], paper["seeds"]) == (20, 10)
    for preset in PRESETS:
        assert json.loads(json.dumps(toy2d.SETTINGS[preset])) == toy2d.SETTINGS[preset]


# The table.


def test_the_table_has_points_probabilities_and_accuracies() -> None:
    rows = table(TINY)
    assert tuple(rows[0]) == toy2d.COLUMNS
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("point", "probability", "accuracy")}
    assert sum(len(each) for each in kinds.values()) == len(rows)
    places = [("1", "1"), ("2", "1"), ("2", "2")]
    assert sorted((row["method"], row["seed"], row["after"], row["task"]) for row in kinds["accuracy"]) == sorted(
        (method, seed, *place) for method in ("vcl", "ewc lambda=5") for seed in "01" for place in places
    )
    assert [(row["task"], row["value"]) for row in kinds["point"]] == [
        (task, label) for task in "12" for label in "01" for _ in range(100)
    ]
    assert {row["method"] for row in kinds["probability"]} == {"vcl"}, "only what is to be drawn"
    sides = ("-3.0000", "1.5000", "6.0000")
    for after, task in places:
        mine = [row for row in kinds["probability"] if (row["after"], row["task"]) == (after, task)]
        assert [(row["x1"], row["x2"]) for row in mine] == list(product(sides, sides))
        assert all(0 <= float(row["value"]) <= 1 for row in mine)
    assert {row["seed"] for row in kinds["probability"] + kinds["point"]} == {"0"}


def test_the_same_settings_make_the_same_table_and_a_seed_is_the_same_alone() -> None:
    text = toy2d.compute(TINY, CPU)
    assert text == toy2d.compute(TINY, CPU)
    both, alone = ([row for row in table({**TINY, "seeds": n}) if row["seed"] == "0"] for n in (2, 1))
    assert [row["value"] for row in both if row["kind"] == "accuracy"] == [
        row["value"] for row in alone if row["kind"] == "accuracy"
    ]
    for one, two in zip(both, alone, strict=True):
        assert float(one["value"]) == pytest.approx(float(two["value"]), abs=2e-4)


@pytest.fixture(scope="module")
def learned() -> list[dict[str, str]]:
    methods = [["vcl", None], ["ewc", 1e4]]
    return table({**toy2d.SETTINGS["quick"], "seeds": 3, "epochs": 300, "methods": methods, "grid": 10})


def test_vcl_and_ewc_with_a_large_lambda_learn_both_tasks(learned: list[dict[str, str]]) -> None:
    """The best there is, by the distance between the Gaussians, is 98.4 %."""
    found = toy2d.by_seed(learned)
    for name in ("vcl", "ewc lambda=10000"):
        for place in ("task 1 after task 1", "task 1 after task 2", "task 2 after task 2"):
            assert min(found[f"{name}: {place}"].values()) > 95


def test_probabilities_are_those_of_the_black_class(learned: list[dict[str, str]]) -> None:
    """On the grid of steps of 1 the points (0, 0), (3, 0) and (0, 3) are the middles of the classes."""
    planes = [row for row in learned if (row["kind"], row["method"]) == ("probability", "vcl")]
    at = {
        (row["after"], row["task"], round(float(row["x1"])), round(float(row["x2"]))): float(row["value"])
        for row in planes
    }
    for after, task, black in (("1", "1", (3, 0)), ("2", "1", (3, 0)), ("2", "2", (0, 3))):
        assert at[after, task, 0, 0] < 0.2
        assert at[after, task, *black] > 0.8


def test_lambda_reaches_its_method() -> None:
    found = toy2d.by_seed(table({**TINY, "epochs": 40, "methods": [["ewc", 0.0], ["ewc", 1e6], ["mle", None]]}))
    assert found["ewc lambda=0: task 1 after task 2"] == found["mle: task 1 after task 2"]
    held, free = (
        {**TINY, "epochs": 40, "methods": [["ewc", lam]], "drawn": [f"ewc lambda={lam:g}"]} for lam in (1e6, 0.0)
    )
    moved = {}
    for name, settings in (("held", held), ("free", free)):
        planes = [row for row in table(settings) if (row["kind"], row["task"]) == ("probability", "1")]
        before, after = ([float(row["value"]) for row in planes if row["after"] == when] for when in "12")
        moved[name] = sum(abs(one - two) for one, two in zip(before, after, strict=True))
    assert moved["held"] < 0.2 * moved["free"]


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(VclError, match="unknown method 'ecw': did you mean 'ewc'"):
        toy2d.projection("ecw", 1.0, SMOKE)


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with toy2d.one_thread():
            within = torch.get_num_threads()
        assert (within, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


# Numbers and figure, from rows made by hand.


def row(kind: str, *values: object) -> dict[str, str]:
    return dict(zip(toy2d.COLUMNS, (kind, *map(str, values)), strict=True))


MADE = [
    row("point", "", 0, "", 1, 0.5, 0.5, 0),
    row("point", "", 0, "", 1, 1.5, 0.5, 1),
    row("point", "", 0, "", 1, 1.5, 0.7, 1),
    row("point", "", 0, "", 2, 0.25, 0.5, 0),
    row("accuracy", "a", 0, 1, 1, "", "", 1.0),
    row("accuracy", "a", 1, 1, 1, "", "", 0.9),
    row("accuracy", "a", 0, 2, 1, "", "", 0.5),
    row("accuracy", "a", 1, 2, 1, "", "", 0.7),
    row("accuracy", "a", 0, 2, 2, "", "", 0.9),
    row("accuracy", "a", 1, 2, 2, "", "", 0.8),
    row("accuracy", "ewc lambda=1", 0, 2, 2, "", "", 0.75),
    # Along x1 the probability rises from 0 to 1 for a; it is flat for the other method.
    *(
        row("probability", name, 0, after, task, x1, x2, x1 / 2 if name == "a" else 0.25)
        for name in ("a", "ewc lambda=1")
        for after, task in ((1, 1), (2, 1), (2, 2))
        for x1 in range(3)
        for x2 in range(2)
    ),
]


def test_the_numbers_by_hand() -> None:
    found = toy2d.measures(MADE)
    assert found["a: task 1 after task 1"] == pytest.approx((95, 5, 2))
    assert found["a: task 1 after task 2"] == pytest.approx((60, 10, 2))
    # Seed 0: (50 + 90) / 2, seed 1: (70 + 80) / 2.
    assert toy2d.by_seed(MADE)["a: both tasks after task 2"] == pytest.approx({0: 70, 1: 75})
    assert found["a: both tasks after task 2"] == pytest.approx((72.5, 2.5, 2))
    assert found["ewc lambda=1: both tasks after task 2"][::2] == (75, 1)
    assert len(found) == 4 + 2


def test_a_row_of_three_panels_for_each_method() -> None:
    drawn = figure.picture(MADE)
    *panels, bar = drawn.axes
    assert len(panels) == 6
    titles = ["task 1, after task 1", "task 1, after task 2", "task 2, after task 2"]
    assert [axes.get_title() for axes in panels] == [*titles, "", "", ""]
    assert [axes.get_ylabel() for axes in panels] == ["a", "", "", "ewc λ=1", "", ""]
    assert bar.get_ylabel() == "probability of the black class"
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [
        "probability 0.5",
        "green class",
        "black class",
    ]
    below = ["2 seeds: 95.0 %, worst 90.0 %", "2 seeds: 60.0 %, worst 50.0 %", "2 seeds: 85.0 %, worst 80.0 %"]
    assert [axes.get_xlabel() for axes in panels] == [*below, "", "", "75.0 %"]


def test_points_of_the_panels_own_task_and_the_line_of_a_half() -> None:
    panels = figure.picture(MADE).axes
    points = {line.get_label(): line.get_xydata() for line in panels[0].lines if len(line.get_xydata())}
    np.testing.assert_allclose(points["green class"], [(0.5, 0.5)])
    np.testing.assert_allclose(points["black class"], [(1.5, 0.5), (1.5, 0.7)])
    (third,) = (line for line in panels[2].lines if len(line.get_xydata()))
    np.testing.assert_allclose(third.get_xydata(), [(0.25, 0.5)])
    filled, half = panels[0].collections
    np.testing.assert_allclose(filled.levels, np.linspace(0, 1, 11))
    np.testing.assert_allclose(half.levels, [0.5])
    (path,) = half.get_paths()
    np.testing.assert_allclose(path.vertices[:, 0], 1.0)
    assert len(panels[3].collections) == 1, "where nothing reaches a half there is no line"
    assert (panels[0].get_xlim(), panels[0].get_ylim()) == ((0, 2), (0, 1))


def test_the_picture_is_a_picture(tmp_path: Path) -> None:
    made = figure.draw(MADE, tmp_path / "toy2d")
    assert made == [tmp_path / "toy2d.png", tmp_path / "toy2d.svg"]
    pixels = imread(made[0])
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20, "more than a blank page"
    assert ET.parse(made[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_table_without_probabilities_is_refused() -> None:
    with pytest.raises(VclError, match="no rows of kind 'probability'"):
        figure.picture([each for each in MADE if each["kind"] != "probability"])
