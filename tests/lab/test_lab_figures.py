from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from lab_made import graded, one_seed, triangle_rows, two_seeds
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread

from vcl.lab.figures import average_accuracy, lambda_grid, per_task, style
from vcl.lab.results import Row


def per_task_picture(rows: Sequence[Row], title: str, paper: Mapping[str, float]) -> Figure:
    return per_task.picture(rows, title, paper, ["task 1", "task 2"])


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []

    def catch(figure: Figure, path: Path) -> list[Path]:
        figures.append(figure)
        return []

    for module in (average_accuracy, lambda_grid):
        monkeypatch.setattr(module, "save", catch)
    return figures


def axes_of(rows: list[Row], paper: dict[str, float], caught: list[Figure]) -> Axes:
    average_accuracy.draw(rows, "title", paper, Path("unused"))
    (axes,) = caught[-1].axes
    return axes


def test_lines_are_the_average_accuracies_by_hand(caught: list[Figure]) -> None:
    rows = [*two_seeds("vcl"), *triangle_rows("mle", {0: [[1.0], [0.5, 0.7]]})]
    first, second = axes_of(rows, {}, caught).lines
    assert (first.get_label(), second.get_label()) == ("vcl", "mle")
    # After 1: (0.9 + 0.5) / 2; after 2: (0.75 + 0.7) / 2; after 3: (2/3 + 0.7) / 2.
    np.testing.assert_allclose(first.get_xydata(), [(1, 70), (2, 72.5), (3, 100 * (2 / 3 + 0.7) / 2)])
    np.testing.assert_allclose(second.get_xydata(), [(1, 100), (2, 60)])
    assert first.get_color() != second.get_color()
    assert first.get_marker() != second.get_marker()


def test_the_band_is_one_standard_error_and_needs_two_seeds(caught: list[Figure]) -> None:
    (band,) = axes_of([*two_seeds("vcl"), *one_seed("mle")], {}, caught).collections
    corners = band.get_paths()[0].vertices
    # After 1 the seeds have 90 and 50: mean 70, standard error 20.
    at_one = sorted({round(float(y), 6) for x, y in corners if x == 1})
    assert at_one == [50.0, 90.0]


def test_dashes_stand_only_where_the_paper_has_a_number(caught: list[Figure]) -> None:
    axes = axes_of([*two_seeds("vcl"), *two_seeds("mle")], {"vcl": 93.0, "batch-vi": 50.0}, caught)
    dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert [set(line.get_ydata()) for line in dashed] == [{93.0}]
    assert dashed[0].get_color() == axes.lines[0].get_color()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["vcl", "mle", "paper, last task"]


def test_no_dashes_without_the_paper(caught: list[Figure]) -> None:
    axes = axes_of(two_seeds("vcl"), {"mle": 93.0}, caught)
    assert [line.get_linestyle() for line in axes.lines] == ["-"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["vcl"]


def test_png_and_svg_are_pictures(tmp_path: Path) -> None:
    made = average_accuracy.draw(two_seeds("vcl"), "a title", {"vcl": 93.0}, tmp_path / "average-accuracy")
    assert made == [tmp_path / "average-accuracy.png", tmp_path / "average-accuracy.svg"]
    pixels = imread(made[0])
    assert pixels.shape[:2] == (680, 1000)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20, "more than a blank page"
    assert ET.parse(made[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"


LONG = "lp-kron fisher_samples=10 labels=exact factors=nearest head_factors=diagonal"


@pytest.mark.parametrize(
    "names",
    [("vcl", LONG), ("vcl", "mle", LONG, f"{LONG} curvature=mode {LONG}"), [f"method {n}" for n in range(11)]],
    ids=["two lines", "a label of several lines", "eleven lines"],
)
@pytest.mark.parametrize("figure_of", [average_accuracy.picture, per_task_picture])
def test_long_labels_and_many_lines_leave_room_for_the_axes(
    names: Sequence[str], figure_of: Callable[..., Figure], recwarn: pytest.WarningsRecorder
) -> None:
    rows = [row for n, name in enumerate(names) for row in graded(name, {0: 0.2 if n == 0 else 0.9 - n / 500})]
    title = "permuted-digits-on-fashion-mnist, preset smoke, train_limit=5000, order=1,0, data 123456, after 2 tasks"
    figure = figure_of(rows, title, {})
    figure.canvas.draw()
    assert [each.message for each in recwarn] == []
    whole, place = figure.bbox, figure.transFigure.inverted()
    panels = [axes.get_tightbbox().transformed(place) for axes in figure.axes]
    texts = [axes.title for axes in figure.axes] + [axes._left_title for axes in figure.axes]  # type: ignore[attr-defined]
    boxes = [text.get_window_extent() for text in (*texts, *figure.texts, *figure.legends) if text.get_visible()]
    for box in boxes:
        assert whole.x0 <= box.x0 <= box.x1 <= whole.x1
        assert whole.y0 <= box.y0 <= box.y1 <= whole.y1
    (legend,) = figure.legends
    assert not any(legend.get_window_extent().overlaps(text.get_window_extent()) for text in texts if text.get_text())
    if figure_of is average_accuracy.picture:
        assert all(panel.width > 0.8 for panel in panels)
    assert max(panel.height for panel in panels) * figure.get_figheight() > 1.4


def test_each_position_has_its_own_colour_and_mark() -> None:
    assert len({style.colour(n) for n in range(8)}) == len({style.mark(n) for n in range(8)}) == 8
    assert (style.colour(8), style.mark(8)) == (style.colour(0), style.mark(0))


# Accuracy against lambda.

GRID = [
    *graded("ewc lambda=10", {0: 0.8, 1: 0.9}),
    *graded("ewc lambda=1", {0: 0.5, 1: 0.5}),
    *graded("vcl", {0: 0.95, 1: 0.95}),
    *graded("si lambda=0", {0: 0.3, 1: 0.4}),
    *graded("si lambda=0.5", {0: 0.6, 1: 0.7}),
]


def grid_axes(rows: list[Row], paper: dict[str, float], caught: list[Figure]) -> Axes:
    lambda_grid.draw(rows, "title", paper, Path("unused"))
    (axes,) = caught[-1].axes
    return axes


def test_one_line_a_method_over_its_lambdas_in_order(caught: list[Figure]) -> None:
    axes = grid_axes(GRID, {}, caught)
    ewc, si = axes.containers
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ewc", "si"]
    np.testing.assert_allclose(ewc.lines[0].get_xydata(), [(1, 50), (10, 85)])
    np.testing.assert_allclose(si.lines[0].get_xydata(), [(0, 35), (0.5, 65)])
    assert ewc.lines[0].get_color() != si.lines[0].get_color()
    assert ewc.lines[0].get_marker() != si.lines[0].get_marker()
    assert axes.get_xlabel() == "lambda"
    assert axes.get_title() == "title"


def test_the_bars_are_one_standard_error(caught: list[Figure]) -> None:
    (_, _, (bars,)) = grid_axes(GRID, {}, caught).containers[0]
    # 50 and 50: none. 80 and 90: mean 85, standard error 5.
    np.testing.assert_allclose(bars.get_segments(), [[(1, 50), (1, 50)], [(10, 80), (10, 90)]])


def test_one_seed_has_bars_of_no_length(caught: list[Figure]) -> None:
    rows = [row for row in GRID if row.seed == 0]
    (_, _, (bars,)) = grid_axes(rows, {}, caught).containers[0]
    np.testing.assert_allclose(bars.get_segments(), [[(1, 50), (1, 50)], [(10, 80), (10, 80)]])


def test_lambda_zero_has_a_place_left_of_all_others(caught: list[Figure]) -> None:
    axes = grid_axes(GRID, {}, caught)
    low, high = axes.get_xlim()
    assert low <= 0 < 10 <= high, "within the picture"
    places = axes.transData.transform([(lam, 50) for lam in (0, 0.5, 1, 10)])[:, 0]
    assert (np.diff(places) > 10).all(), "pixels between one and the next"


def test_dashes_of_the_paper_stand_for_the_methods_that_were_tried(caught: list[Figure]) -> None:
    axes = grid_axes(GRID, {"ewc": 84.0, "vcl": 90.0, "lp": 82.0}, caught)
    dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert [set(line.get_ydata()) for line in dashed] == [{84.0}]
    assert dashed[0].get_color() == axes.containers[0].lines[0].get_color()
    labels = {text.get_text() for text in axes.get_legend().get_texts()}
    assert labels == {"ewc", "si", "paper, best lambda"}


@pytest.mark.parametrize("rows", [GRID, [row for row in GRID if row.seed == 0], graded("ewc lambda=0", {0: 0.5})])
def test_the_picture_of_a_grid_is_a_picture(tmp_path: Path, rows: list[Row]) -> None:
    made = lambda_grid.draw(rows, "a title", {"ewc": 84.0}, tmp_path / "lambda")
    assert made == [tmp_path / "lambda.png", tmp_path / "lambda.svg"]
    pixels = imread(made[0])
    assert pixels.shape[:2] == (680, 1000)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20, "more than a blank page"
    assert ET.parse(made[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_groups_of_methods_stand_in_panels_of_their_own() -> None:
    rows = [row for name in ("ewc", "ewc single-head") for lam in (1, 10) for row in two_seeds(f"{name} lambda={lam}")]
    figure = lambda_grid.picture(rows, "title", {}, lambda method: "single" if "single" in method else "multi")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["multi", "single"]
    for axes, name in zip(figure.axes, ("ewc", "ewc single-head"), strict=True):
        (text,) = axes.get_legend().get_texts()
        assert text.get_text() == name
    assert len(lambda_grid.picture(rows, "title", {}).axes) == 1
