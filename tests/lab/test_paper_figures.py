from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lab_made import graded, one_seed, triangle_rows, two_seeds
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D

from vcl.errors import VclError
from vcl.lab.figures import average_accuracy, coreset_sizes, per_task, variants
from vcl.lab.results import Row, label, shown, split_label

TASKS = ["task 1 (0/1)", "task 2 (2/3)", "task 3 (4/5)"]


def solid(axes: Axes) -> list[Line2D]:
    """The lines of methods, without the paper's."""
    return [line for line in axes.lines if not str(line.get_label()).startswith("_")]


def dashed(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_linestyle() == "--"]


def legend_of(owner: Axes | Figure) -> list[str]:
    legend = owner.legends[0] if isinstance(owner, Figure) else owner.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def band_at(axes: Axes, position: int, task: int) -> list[float]:
    corners = axes.collections[position].get_paths()[0].vertices
    return sorted({round(float(y), 6) for x, y in corners if x == task})


def level(method: str, ends: dict[int, float], tasks: int = 3) -> list[Row]:
    """Every seed is equally good on all tasks at all times."""
    return triangle_rows(method, {seed: [[end] * (n + 1) for n in range(tasks)] for seed, end in ends.items()})


# Labels.


def test_labels_of_another_key_come_apart_again() -> None:
    assert label("vcl-random", 2500, "coreset") == "vcl-random coreset=2500"
    assert split_label("vcl-random coreset=2500", "coreset") == ("vcl-random", 2500.0)
    assert split_label("vcl-random coreset=2500 (local)", "coreset") == ("vcl-random (local)", 2500.0)
    assert split_label("vcl-random coreset=2500") == ("vcl-random coreset=2500", None)
    assert split_label("ewc lambda=1e+06 (single)") == ("ewc (single)", 1e6)


def test_lambda_is_shown_as_a_letter() -> None:
    assert [shown(name) for name in ("ewc lambda=100", "vcl coreset=4")] == ["ewc λ=100", "vcl coreset=4"]


# All of them.

SIZED = [
    *level("vcl", {0: 0.88, 1: 0.92}),
    *level("random-only coreset=200", {0: 0.70, 1: 0.74}),
    *level("vcl-random coreset=1000", {0: 0.93, 1: 0.95}),
    *level("vcl-random coreset=200", {0: 0.91, 1: 0.93}),
    *level("random-only coreset=1000", {0: 0.80, 1: 0.90}),
]
PAPER = {"vcl": 90.0, "vcl-random coreset=200": 93.0, "vcl-random coreset=1000": 95.5}

DRAW: dict[str, Callable[[list[Row], Path], list[Path]]] = {
    "average": lambda rows, path: average_accuracy.draw(rows, "a title", PAPER, path),
    "per task": lambda rows, path: per_task.draw(rows, "a title", PAPER, path, TASKS),
    "sizes": lambda rows, path: coreset_sizes.draw(rows, "a title", PAPER, path),
    "variants": lambda rows, path: variants.draw(rows, "a title", PAPER, path, {"a group": ["vcl", "nobody"]}),
}

ODD = {
    "one seed": [row for row in SIZED if row.seed == 0],
    "one method": [row for row in SIZED if row.method == "vcl"],
    "one task": [row for row in SIZED if row.after == 1],
    "unfinished": [row for row in SIZED if row.after < 3 or (row.seed == 0 and row.method == "vcl")],
    "nothing": [],
}


@pytest.mark.parametrize("name", DRAW)
def test_png_and_svg_are_pictures(name: str, tmp_path: Path) -> None:
    made = DRAW[name](SIZED, tmp_path / "figure")
    assert made == [tmp_path / "figure.png", tmp_path / "figure.svg"]
    pixels = imread(made[0])
    assert 1000 <= pixels.shape[1] <= 1400, "5 to 7 inches at 200 dots an inch"
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20, "more than a blank page"
    assert ET.parse(made[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("odd", ODD)
def test_odd_rows_can_be_drawn(name: str, odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    for module in (average_accuracy, per_task, coreset_sizes, variants):
        monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    DRAW[name](ODD[odd], Path("unused"))
    (figure,) = figures
    figure.draw_without_rendering()  # lays it out; a warning is an error
    shown = [line for axes in figure.axes for line in solid(axes)]
    assert bool(shown) == (odd != "nothing" or name == "variants"), "all that is known is there"
    for axes in figure.axes:
        assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()


# Average accuracy, zoomed.

FALLEN = [*level("vcl", {0: 0.96}), *level("mle", {0: 0.5}), *level("si lambda=1", {0: 0.9, 1: 0.94})]


def test_a_method_that_falls_far_gets_the_others_a_zoomed_panel() -> None:
    figure = average_accuracy.picture(FALLEN, "title", {"vcl": 97.0})
    whole, zoomed = figure.axes
    assert whole.get_title() == "title"
    assert zoomed.get_title("left") == "zoomed to the grey range above; below it: mle"
    low, high = zoomed.get_ylim()
    assert 88 < low < 90 < 97 < high < 99, "si's band from 90 to 94, vcl at 96 and the paper's 97"
    assert whole.get_ylim()[0] < 50 < 97 < whole.get_ylim()[1]
    (grey,) = whole.patches
    assert (grey.get_y(), grey.get_y() + grey.get_height()) == pytest.approx((low, high))
    for axes in (whole, zoomed):
        assert [set(line.get_ydata()) for line in solid(axes)] == [{96.0}, {50.0}, {92.0}]
        assert [set(line.get_ydata()) for line in dashed(axes)] == [{97.0}]


def test_a_legend_beside_the_lines_stands_in_their_order_at_the_end() -> None:
    figure = average_accuracy.picture(FALLEN, "title", {"vcl": 97.0})
    assert legend_of(figure) == ["vcl", "si λ=1", "mle", "paper, last task"]


def test_a_value_of_the_paper_far_below_is_left_to_the_whole_range() -> None:
    figure = average_accuracy.picture([*level("ewc", {0: 0.99}), *level("vcl", {0: 0.97})], "title", {"ewc": 63.1})
    whole, zoomed = figure.axes
    assert zoomed.get_title("left") == "zoomed to the grey range above; below it: ewc (paper)"
    assert whole.get_ylim()[0] < 63.1
    assert 96 < zoomed.get_ylim()[0] < 97 < 99 < zoomed.get_ylim()[1]
    assert legend_of(zoomed) == ["ewc", "vcl", "paper, last task"]


def test_many_that_fall_are_counted() -> None:
    rows = [row for n in range(5) for row in level(f"high{n}", {0: 0.9})]
    rows += [row for n in range(4) for row in level(f"low{n}", {0: 0.5})]
    zoomed = average_accuracy.picture(rows, "title", {}).axes[1]
    assert zoomed.get_title("left").endswith("below it: low0, low1, low2 and 1 more")


def test_methods_that_end_close_together_share_one_panel() -> None:
    rows = [*level("vcl", {0: 0.95}), *level("ewc", {0: 0.90}), *level("lp", {0: 0.76})]
    (axes,) = average_accuracy.picture(rows, "title", {}).axes
    assert axes.get_ylabel() == "average accuracy (%)"


def test_dashes_of_equal_height_stand_side_by_side() -> None:
    rows = [*level("vcl", {0: 0.9}), *level("vcl (local)", {0: 0.9})]
    (axes,) = average_accuracy.picture(rows, "title", {"vcl": 91.0, "vcl (local)": 91.0}).axes
    first, second = dashed(axes)
    assert 3 < max(first.get_xdata()) <= min(second.get_xdata()), "behind the last task"
    assert max(second.get_xdata()) < axes.get_xlim()[1]


def test_seeds_that_are_behind_do_not_take_the_others_with_them() -> None:
    rows = [row for row in two_seeds("vcl") if row.seed == 0 or row.after < 3]
    (axes,) = average_accuracy.picture(rows, "title", {}).axes
    # After 3 there is seed 0 alone: (0.6 + 0.9 + 0.5) / 3.
    np.testing.assert_allclose(solid(axes)[0].get_xydata(), [(1, 70), (2, 72.5), (3, 200 / 3)])
    assert band_at(axes, 0, 1) == [50.0, 90.0]
    assert band_at(axes, 0, 3) == [], "one seed has no standard error"


def test_other_metrics_are_no_accuracy() -> None:
    rows = [*level("vcl", {0: 0.9}), *triangle_rows("vae", {0: [[-80.0]]}, "log likelihood")]
    (axes,) = average_accuracy.picture(rows, "title", {}).axes
    assert [line.get_label() for line in solid(axes)] == ["vcl"]


# Each task.


def panels(rows: list[Row], paper: dict[str, float], tasks: list[str] = TASKS) -> tuple[Figure, list[Axes]]:
    figure = per_task.picture(rows, "title", paper, tasks)
    return figure, figure.axes


def test_each_task_starts_where_it_is_learned() -> None:
    _, (first, second, third, average) = panels(two_seeds("vcl"), {})
    assert [axes.get_title() for axes in (first, second, third, average)] == [*TASKS, "average"]
    # On task 1 the seeds have 90 and 50, then 70 and 80, then 60 and 70, and so on.
    np.testing.assert_allclose(first.lines[0].get_xydata(), [(1, 70), (2, 75), (3, 65)])
    np.testing.assert_allclose(second.lines[0].get_xydata(), [(2, 70), (3, 75)])
    np.testing.assert_allclose(third.lines[0].get_xydata(), [(3, 65)])
    np.testing.assert_allclose(average.lines[0].get_xydata(), [(1, 70), (2, 72.5), (3, 100 * (2 / 3 + 0.7) / 2)])


def test_bands_of_each_task_are_one_standard_error() -> None:
    _, (first, second, third, average) = panels(two_seeds("vcl"), {})
    assert band_at(first, 0, 1) == [50.0, 90.0]
    assert band_at(first, 0, 2) == [70.0, 80.0]
    assert band_at(second, 0, 2) == [60.0, 80.0]
    assert band_at(average, 0, 1) == [50.0, 90.0]
    # The last task has one point, so a bar: 50 and 80.
    np.testing.assert_allclose(third.collections[0].get_segments(), [[(3, 50), (3, 80)]])


def test_one_seed_has_no_bands() -> None:
    _, axes = panels(one_seed("vcl"), {})
    assert [len(each.collections) for each in axes[:2]] == [0, 0]
    np.testing.assert_allclose(axes[0].lines[0].get_xydata(), [(1, 90), (2, 70), (3, 60)])


BEST = [
    *level("vcl", {0: 0.96, 1: 0.98}),
    *level("vcl-random", {0: 0.98}),
    *level("si lambda=1", {0: 0.99}),
    *level("ewc", {0: 0.6}),
]


def test_the_second_row_is_zoomed_to_the_best_and_says_so() -> None:
    _, axes = panels(BEST, {})
    assert len(axes) == 8
    whole, zoomed = axes[:4], axes[4:]
    for each in whole:
        assert each.get_ylim()[0] < 60 < 99 < each.get_ylim()[1]
    for each in zoomed:
        low, high = each.get_ylim()
        assert 95 < low < 96 < 99 < high < 100, "the band of vcl and the line of si"
        assert [float(line.get_ydata()[0]) for line in each.lines] == [97, 98, 99, 60], "none is taken out"
    assert whole[0].get_ylabel() == "accuracy (%)"
    assert zoomed[0].get_ylabel() == "accuracy (%), zoomed\nto the grey range above"
    (grey,) = whole[2].patches
    assert (grey.get_y(), grey.get_y() + grey.get_height()) == pytest.approx(zoomed[0].get_ylim())


def test_the_last_quarter_is_left_out_of_the_zoomed_row_even_where_it_is_not_far() -> None:
    rows = [*level("a", {0: 0.99}), *level("b", {0: 0.98}), *level("c", {0: 0.97}), *level("d", {0: 0.9})]
    _, axes = panels(rows, {})
    low, high = axes[-1].get_ylim()
    assert 96 < low < 97 < 99 < high


def test_two_methods_of_which_one_falls_are_zoomed_too() -> None:
    _, axes = panels([row for row in BEST if row.method in ("vcl", "ewc")], {})
    assert len(axes) == 8
    low, high = axes[-1].get_ylim()
    assert 95 < low < 96 < 98 < high


def test_nothing_to_zoom_to_is_one_row() -> None:
    figure, axes = panels([row for row in BEST if row.method == "vcl"], {"vcl": 97.0})
    assert len(axes) == 4
    assert legend_of(figure) == ["vcl", "paper, last task"]


def test_the_paper_stands_in_the_last_column_only() -> None:
    figure, axes = panels(BEST, {"vcl": 97.5, "ewc": 63.1, "lp": 61.2})
    for number, each in enumerate(axes):
        found = [(float(line.get_ydata()[0]), line.get_color()) for line in dashed(each)]
        colours = [line.get_color() for line in solid(each)]
        assert found == ([(97.5, colours[0]), (63.1, colours[3])] if number in (3, 7) else [])
    assert min(dashed(axes[3])[0].get_xdata()) > 3
    assert max(dashed(axes[3])[0].get_xdata()) <= axes[3].get_xlim()[1]
    assert legend_of(figure) == ["si λ=1", "vcl-random", "vcl", "ewc", "paper, last task"]


def test_the_papers_value_of_a_best_method_is_in_the_zoomed_row() -> None:
    _, axes = panels(BEST, {"vcl": 94.0, "si lambda=1": 60.0})
    assert 93 < axes[-1].get_ylim()[0] < 94


def test_tasks_to_come_have_empty_columns() -> None:
    rows = [row for row in two_seeds("vcl") if row.after < 3]
    _, (first, second, third, average) = panels(rows, {"vcl": 70.0})
    np.testing.assert_allclose(first.lines[0].get_xydata(), [(1, 70), (2, 75)])
    np.testing.assert_allclose(second.lines[0].get_xydata(), [(2, 70)])
    assert len(third.lines[0].get_xdata()) == 0
    assert [text.get_text() for text in third.texts] == ["no rows yet"]
    assert [text.get_text() for text in second.texts] == []
    assert min(dashed(average)[0].get_xdata()) > 3, "the paper's value is for the last task"


def test_more_tasks_than_names_are_refused() -> None:
    with pytest.raises(VclError, match="rows of vcl have 3 tasks, but 2 are named"):
        panels(two_seeds("vcl"), {}, TASKS[:2])


# Sizes of the coreset.


def test_left_are_the_sizes_in_order_and_plain_vcl() -> None:
    left, _ = coreset_sizes.picture(SIZED, "title", {}).axes
    assert legend_of(left) == ["200", "1000", "none (vcl)"]
    assert [set(line.get_ydata()) for line in solid(left)] == [{92.0}, {94.0}, {90.0}]
    assert [band_at(left, n, 2) for n in range(3)] == [[91, 93], [93, 95], [88, 92]]
    assert len({line.get_marker() for line in solid(left)}) == 3


def test_shades_of_one_hue_darken_with_the_size() -> None:
    rows = [row for size in (50, 200, 400, 1000, 5000) for row in level(f"vcl-random coreset={size}", {0: 0.9})]
    left, _ = coreset_sizes.picture(rows, "title", {}).axes
    colours = np.array([to_rgb(line.get_color()) for line in solid(left)])
    assert (np.diff(colours.sum(1)) < -0.15).all(), "each clearly darker than the one before"
    assert (colours.argmax(1) == 2).all(), "all are blue"


def test_right_is_the_end_by_size_on_a_logarithmic_axis() -> None:
    _, right = coreset_sizes.picture(SIZED, "title", {}).axes
    assert right.get_xscale() == "log"
    assert [text.get_text() for text in right.get_xticklabels()] == ["200", "1000"]
    assert legend_of(right) == ["vcl-random", "random-only", "vcl, no coreset"]
    ours, only = right.containers
    np.testing.assert_allclose(ours.lines[0].get_xydata(), [(200, 92), (1000, 94)])
    np.testing.assert_allclose(only.lines[0].get_xydata(), [(200, 72), (1000, 85)])
    np.testing.assert_allclose(only.lines[2][0].get_segments(), [[(200, 70), (200, 74)], [(1000, 80), (1000, 90)]])
    (plain,) = [line for line in right.lines if line.get_label() == "vcl, no coreset"]
    assert set(plain.get_ydata()) == {90.0}
    (band,) = right.patches
    assert (band.get_y(), band.get_height()) == pytest.approx((88, 4)), "88 and 92: 90 and a standard error of 2"


def test_the_papers_sizes_have_dashes_on_both_sides() -> None:
    left, right = coreset_sizes.picture(SIZED, "title", {**PAPER, "vcl-kcenter coreset=200": 93.0}).axes
    assert [set(line.get_ydata()) for line in dashed(left)] == [{93.0}, {95.5}, {90.0}]
    at = {float(line.get_ydata()[0]): line.get_xdata() for line in dashed(right)}
    assert sorted(at) == [90.0, 93.0, 95.5]
    assert at[93.0][0] < 200 < at[93.0][1] < at[95.5][0] < 1000 < at[95.5][1]
    assert legend_of(right)[-1] == "paper"


def test_a_size_that_is_not_at_the_end_is_on_the_left_only() -> None:
    rows = [row for row in SIZED if row.method != "vcl-random coreset=1000" or row.after < 3]
    left, right = coreset_sizes.picture(rows, "title", PAPER).axes
    assert legend_of(left) == ["200", "1000, 2 tasks so far", "none (vcl)"]
    np.testing.assert_allclose(right.containers[0].lines[0].get_xydata(), [(200, 92)])
    assert {95.5} in [set(line.get_ydata()) for line in dashed(right)]


def test_size_zero_is_on_the_left_only() -> None:
    rows = [*level("vcl-random coreset=0", {0: 0.5}), *level("vcl-random coreset=10", {0: 0.6})]
    left, right = coreset_sizes.picture(rows, "title", {"vcl-random coreset=0": 51.0}).axes
    assert legend_of(left) == ["0", "10"]
    np.testing.assert_allclose(right.containers[0].lines[0].get_xydata(), [(10, 60)])
    assert dashed(right) == []


def test_one_seed_has_bars_of_no_length_and_no_bands() -> None:
    left, right = coreset_sizes.picture([row for row in SIZED if row.seed == 0], "title", {}).axes
    assert (len(left.collections), len(right.patches)) == (0, 0)
    np.testing.assert_allclose(right.containers[0].lines[2][0].get_segments(), [[(200, 91)] * 2, [(1000, 93)] * 2])


# Variants.

VARIANTS = [
    *graded("vcl", {0: 0.80, 1: 0.90}),
    *graded("vcl (local)", {0: 0.70, 1: 0.70}),
    *graded("ewc lambda=10", {3: 0.6}),
]


def lines_of(axes: Axes) -> dict[str, float]:
    """The height of each line of text."""
    return {text.get_text(): float(text.get_position()[1]) for text in axes.get_yticklabels()}


def test_each_label_has_a_line_with_its_mean_and_bar() -> None:
    (axes,) = variants.picture(VARIANTS, "title", {}).axes
    assert lines_of(axes) == {"vcl": 0, "vcl (local)": 1, "ewc λ=10": 2}
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first stands at the top"
    np.testing.assert_allclose([each.lines[0].get_xydata()[0] for each in axes.containers], [(85, 0), (70, 1), (60, 2)])
    segments = [each.lines[2][0].get_segments()[0] for each in axes.containers]
    np.testing.assert_allclose(segments, [[(80, 0), (90, 0)], [(70, 1), (70, 1)], [(60, 2), (60, 2)]])
    assert [text.get_text() for text in axes.texts] == ["85.00 ± 5.00", "70.00 ± 0.00", "60.00"]
    assert axes.get_xlabel() == "average accuracy after 2 tasks (%)"


def test_seeds_are_faint_dots_below_the_mean() -> None:
    (axes,) = variants.picture(VARIANTS, "title", {}).axes
    faint = [line for line in axes.lines if line.get_alpha() is not None]
    assert [line.get_xdata().tolist() for line in faint] == [[80, 90], [70, 70], [60]]
    for at, line in enumerate(faint):
        assert all(at < y < at + 0.5 for y in line.get_ydata())


def test_labels_leave_out_the_title_above_and_groups_have_lengths_of_their_own() -> None:
    long = [row._replace(method="Long: vcl") for row in level("vcl", {0: 0.9}, tasks=4)]
    short = [row._replace(method=f"Short: {name}") for name in ("a", "b") for row in level(name, {0: 0.5})]
    late = [row for row in short if row.method == "Short: a" or row.after == 1]
    groups = {"Long": ["Long: vcl"], "Short": ["Short: a", "Short: b"]}
    (axes,) = variants.picture([*long, *late], "title", {}, groups).axes
    assert list(lines_of(axes)) == ["Long", "vcl", "Short", "a", "b (after 1 tasks)"]
    assert axes.get_xlabel() == "average accuracy after the last task (%)"


def test_a_curve_goes_on_over_tasks_without_rows() -> None:
    rows = [Row("vcl", 0, after, on, "accuracy", 1 - after / 10) for after in (1, 3) for on in range(1, after + 1)]
    axes = average_accuracy.picture(rows, "title", {}).axes[0]
    (line,) = [each for each in axes.lines if len(each.get_xdata()) > 1]
    np.testing.assert_allclose(line.get_xydata(), [(1, 90), (3, 70)])


def test_groups_have_titles_and_the_rest_comes_last() -> None:
    groups = {"Weights drawn": ["vcl"], "Local": ["vcl (local)", "vcl-random (local)"]}
    (axes,) = variants.picture(VARIANTS, "title", {}, groups).axes
    texts = list(lines_of(axes))
    bold = [text.get_text() for text in axes.get_yticklabels() if text.get_fontweight() == "bold"]
    assert bold == ["Weights drawn", "Local", "others"]
    local = ["vcl (local)", "vcl-random (local) (no rows yet)"]
    assert texts == ["Weights drawn", "vcl", "Local", *local, "others", "ewc λ=10"]
    np.testing.assert_allclose([each.lines[0].get_ydata()[0] for each in axes.containers], [1, 3, 6])


def test_groups_of_all_labels_leave_no_rest() -> None:
    (axes,) = variants.picture(VARIANTS[:1], "title", {}, {"others": ["vcl"]}).axes
    assert list(lines_of(axes)) == ["others", "vcl"]


def test_the_paper_and_other_values_are_ticks_in_the_legend() -> None:
    references = {"authors' code": {"vcl (local)": 71.5, "vcl": 86.0}, "nobody": {"lp": 1.0}}
    figure = variants.picture(VARIANTS, "title", {"vcl": 90.0, "lp": 82.0}, None, references)
    (axes,) = figure.axes
    ticks = {line.get_label(): line for line in axes.lines if line.get_marker() == "|" and line.get_markersize() > 6}
    assert list(ticks) == legend_of(figure) == ["paper", "authors' code"]
    np.testing.assert_allclose(ticks["paper"].get_xydata(), [(90, 0)])
    np.testing.assert_allclose(ticks["authors' code"].get_xydata(), [(86, 0), (71.5, 1)])
    assert ticks["paper"].get_color() != ticks["authors' code"].get_color()


def test_no_values_to_compare_with_need_no_legend() -> None:
    assert variants.picture(VARIANTS, "title", {"lp": 82.0}).legends == []


def test_a_label_that_is_behind_says_so() -> None:
    rows = [row for row in VARIANTS if row.method != "vcl (local)" or row.after == 1]
    (axes,) = variants.picture(rows, "title", {}).axes
    assert list(lines_of(axes)) == ["vcl", "vcl (local) (after 1 tasks)", "ewc λ=10"]


def test_a_seed_that_is_behind_does_not_count() -> None:
    rows = [row for row in VARIANTS if row.method == "vcl" and (row.seed == 0 or row.after == 1)]
    (axes,) = variants.picture(rows, "title", {}).axes
    np.testing.assert_allclose(axes.containers[0].lines[0].get_xydata(), [(80, 0)])
    assert [text.get_text() for text in axes.texts] == ["80.00"]
