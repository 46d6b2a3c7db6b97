"""Figures of generators: their metrics task by task, and grids of what they draw, from hand-made rows and images."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from lab_made import triangle_rows
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import imread
from torch import Tensor

from vcl.lab.figures import generator_metrics, sample_grid
from vcl.lab.figures.generator_metrics import MEASURES
from vcl.lab.results import Row

LIKELIHOOD, UNCERTAINTY = MEASURES
PNG, SVG = "generators-{}.png", "generators-{}.svg"


def level(method: str, ends: dict[int, float], tasks: int = 3, metric: str = LIKELIHOOD.metric) -> list[Row]:
    """Every seed is equally good on all tasks at all times."""
    return triangle_rows(method, {seed: [[end] * (n + 1) for n in range(tasks)] for seed, end in ends.items()}, metric)


TWO = triangle_rows(
    "vcl",
    {0: [[-20.0], [-22.0, -30.0], [-24.0, -32.0, -40.0]], 1: [[-24.0], [-26.0, -34.0], [-28.0, -36.0, -44.0]]},
    LIKELIHOOD.metric,
)
"""Three tasks; the second seed is 4 nats worse throughout, so that the mean is 2 below the first and its error 2."""


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def points(axes: Axes, name: str) -> list[tuple[float, float]]:
    """The points of one method's line that are there."""
    (line,) = [line for line in axes.lines if line.get_label() == name]
    return [(x, pytest.approx(y)) for x, y in np.asarray(line.get_xydata()).tolist() if y == y]


def bands(axes: Axes) -> list[PolyCollection]:
    return [each for each in axes.collections if isinstance(each, PolyCollection)]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


# Metrics: the panels.


def test_there_is_a_panel_for_each_task_and_one_for_their_average() -> None:
    figure = generator_metrics.picture(TWO, "a title", LIKELIHOOD)
    assert [axes.get_title() for axes in panels(figure)] == ["task 1", "task 2", "task 3", "average"]
    assert figure.get_supylabel() == "test log-likelihood (nats)"
    assert figure.get_suptitle() == "a title"
    other = generator_metrics.picture(level("vcl", {0: 0.5}, metric=UNCERTAINTY.metric), "a title", UNCERTAINTY)
    assert other.get_supylabel() == "classifier uncertainty (nats)"


def test_tasks_may_have_names() -> None:
    figure = generator_metrics.picture(TWO, "a title", LIKELIHOOD, ["zero", "one", "two"])
    assert [axes.get_title() for axes in panels(figure)] == ["zero", "one", "two", "average"]


def test_each_task_starts_where_it_is_learned() -> None:
    first, second, third, average = panels(generator_metrics.picture(TWO, "title", LIKELIHOOD))
    assert points(first, "vcl") == [(1, -22), (2, -24), (3, -26)]
    assert points(second, "vcl") == [(2, -32), (3, -34)]
    assert points(third, "vcl") == [(3, -42)]
    assert points(average, "vcl") == [(1, -22), (2, -28), (3, -34)]


@pytest.mark.parametrize(("tasks", "shape"), [(1, (1, 2)), (3, (1, 4)), (5, (2, 4)), (10, (3, 4))])
def test_panels_stand_in_rows_of_four_and_none_is_empty(tasks: int, shape: tuple[int, int]) -> None:
    figure = generator_metrics.picture(level("vcl", {0: -20.0}, tasks), "title", LIKELIHOOD)
    assert len(figure.axes) == shape[0] * shape[1]
    assert len(panels(figure)) == tasks + 1
    assert all(len(axes.lines) == 1 for axes in panels(figure))
    assert panels(figure)[-1].get_title() == "average"
    below = [axes.get_xlabel() == "tasks learned" for axes in panels(figure)]
    assert below == [number + shape[1] > tasks for number in range(tasks + 1)], "where nothing stands below"
    assert all(axes.get_xlim()[0] < 1 <= tasks < axes.get_xlim()[1] for axes in panels(figure))


def test_every_method_has_a_line_in_every_panel_and_one_entry_in_the_legend() -> None:
    rows = [*TWO, *level("ewc lambda=10", {0: -30.0, 1: -31.0}), *level("naive", {0: -60.0})]
    figure = generator_metrics.picture(rows, "title", LIKELIHOOD)
    wanted = ["vcl", "ewc λ=10", "naive"]
    for axes in panels(figure):
        assert [line.get_label() for line in axes.lines] == wanted
    assert legend_of(figure) == wanted
    looks = [[(line.get_color(), line.get_marker()) for line in axes.lines] for axes in panels(figure)]
    assert all(each == looks[0] for each in looks), "a method looks the same everywhere"
    assert len(set(looks[0])) == 3


def test_a_single_task() -> None:
    figure = generator_metrics.picture(level("vcl", {0: -20.0, 1: -22.0}, 1), "title", LIKELIHOOD)
    figure.draw_without_rendering()
    first, average = panels(figure)
    assert points(first, "vcl") == points(average, "vcl") == [(1, -21)]


# Metrics: bands.


def test_bands_are_one_standard_error_over_seeds() -> None:
    first, second, third, average = panels(generator_metrics.picture(TWO, "title", LIKELIHOOD))
    for axes, task, mean in ((first, 1, -22), (first, 3, -26), (second, 2, -32), (average, 3, -34)):
        (band,) = bands(axes)
        heights = {round(float(y), 6) for x, y in band.get_paths()[0].vertices if x == task}
        assert heights == {mean - 2, mean + 2}
    (bar,) = third.collections  # a band of one task would have no width
    assert isinstance(bar, LineCollection)
    np.testing.assert_allclose(bar.get_segments()[0], [(3, -44), (3, -40)])


def test_one_seed_has_no_band() -> None:
    rows = [row for row in TWO if row.seed == 0]
    for axes in panels(generator_metrics.picture(rows, "title", LIKELIHOOD)):
        assert bands(axes) == []
        for bar in axes.collections:
            assert isinstance(bar, LineCollection)
            heights = [height for segment in bar.get_segments() for height in np.ravel(segment)[1::2]]
            assert not np.isfinite(heights).any()


# Metrics: limits.


@pytest.mark.parametrize(("measure", "sign"), [(LIKELIHOOD, 1), (UNCERTAINTY, -1)], ids=["up", "down"])
def test_who_forgets_all_does_not_flatten_the_rest(measure: generator_metrics.Measure, sign: int) -> None:
    ends = {"vcl": -20.0, "naive": -90.0, "ewc": -22.0}
    rows = [row for name, end in ends.items() for row in level(name, {0: sign * end}, metric=measure.metric)]
    for axes in panels(generator_metrics.picture(rows, "title", measure)):
        # The best two of three, with a twentieth of their distance as room on either side.
        assert axes.get_ylim() == pytest.approx((-22.1, -19.9) if sign > 0 else (19.9, 22.1))
        assert len(axes.lines) == 3, "it is drawn all the same"


def test_who_is_not_far_behind_is_shown_too() -> None:
    """The best two of three reach from -22.1 to -19.9; twice as wide is 4.4."""
    for end, shown in ((-23.9, (-24.095, -19.805)), (-24.1, (-22.1, -19.9))):
        rows = [*level("vcl", {0: -20.0}), *level("si", {0: -22.0}), *level("lp", {0: end})]
        for axes in panels(generator_metrics.picture(rows, "title", LIKELIHOOD)):
            assert axes.get_ylim() == pytest.approx(shown)


def test_who_is_best_at_the_end_is_shown_from_its_start() -> None:
    falls = {0: [[-10.0], [-50.0, -10.0], [-90.0, -50.0, -10.0]]}
    keeps = {0: [[-30.0], [-31.0, -30.0], [-32.0, -31.0, -30.0]]}
    rows = [*triangle_rows("naive", falls, LIKELIHOOD.metric), *triangle_rows("vcl", keeps, LIKELIHOOD.metric)]
    rows += triangle_rows("si", keeps, LIKELIHOOD.metric)
    first, second, third, _ = panels(generator_metrics.picture(rows, "title", LIKELIHOOD))
    assert first.get_ylim() == pytest.approx((-32.1, -29.9))
    assert second.get_ylim() == pytest.approx((-31.1, -29.9))
    # On the last task naive is the best, so it is one of the two that are shown.
    assert third.get_ylim() == pytest.approx((-31, -9))


def test_one_or_two_methods_are_shown_whole() -> None:
    (axes, *_) = panels(generator_metrics.picture(TWO, "title", LIKELIHOOD))
    assert axes.get_ylim() == pytest.approx((-28.4, -19.6)), "from -28 to -20 with the band, and room"
    rows = [*level("vcl", {0: -20.0}), *level("naive", {0: -90.0})]
    (axes, *_) = panels(generator_metrics.picture(rows, "title", LIKELIHOOD))
    assert axes.get_ylim() == pytest.approx((-93.5, -16.5))


# Metrics: rows that are missing.


def test_other_metrics_are_not_in_the_picture() -> None:
    rows = [*TWO, *level("ewc", {0: 0.5}, metric=UNCERTAINTY.metric), *level("mle", {0: 0.9}, metric="accuracy")]
    assert legend_of(generator_metrics.picture(rows, "title", LIKELIHOOD)) == ["vcl"]
    assert legend_of(generator_metrics.picture(rows, "title", UNCERTAINTY)) == ["ewc"]


def test_seeds_that_are_behind_do_not_take_the_others_with_them() -> None:
    rows = [row for row in TWO if row.seed == 0 or row.after < 3]
    first, _, third, average = panels(generator_metrics.picture(rows, "title", LIKELIHOOD))
    assert points(first, "vcl") == [(1, -22), (2, -24), (3, -24)], "after 3 there is seed 0 alone"
    assert points(third, "vcl") == [(3, -40)]
    assert points(average, "vcl")[-1] == (3, -32)


@pytest.mark.parametrize("measure", MEASURES, ids=["up", "down"])
def test_a_method_that_is_behind_is_drawn_as_far_as_it_is(measure: generator_metrics.Measure) -> None:
    sign = 1 if measure.up else -1
    rows = [
        *level("vcl", {0: sign * -20.0}, metric=measure.metric),
        *level("ewc", {0: sign * -22.0}, metric=measure.metric),
        *level("lp", {0: sign * -50.0}, 1, metric=measure.metric),
    ]
    figure = generator_metrics.picture(rows, "title", measure)
    figure.draw_without_rendering()  # lays it out; a warning is an error
    first, second, third, average = panels(figure)
    for axes in (first, average):
        assert points(axes, "vcl") == [(n, sign * -20) for n in (1, 2, 3)]
        assert points(axes, "lp") == [(1, sign * -50)]
    for axes in (second, third):
        assert [name for name in ("vcl", "ewc") if not points(axes, name)] == []
        assert all(np.isnan(line.get_ydata()).all() for line in axes.lines if line.get_label() == "lp")
        low, high = sorted((sign * -22, sign * -20))
        assert axes.get_ylim() == pytest.approx((low - 0.1, high + 0.1)), "the two that are there"
    assert legend_of(figure) == ["vcl", "ewc", "lp"]


def test_no_rows_make_no_figure(tmp_path: Path) -> None:
    rows = level("mle", {0: 0.9}, metric="accuracy")
    assert generator_metrics.draw([], "title", tmp_path / "g") == []
    assert generator_metrics.draw(rows, "title", tmp_path / "g") == []
    assert list(tmp_path.iterdir()) == []


# Metrics: files.


def test_there_is_a_png_and_an_svg_of_each_metric_that_there_is(tmp_path: Path) -> None:
    rows = [*TWO, *level("vcl", {0: 0.5, 1: 0.6}, metric=UNCERTAINTY.metric)]
    made = generator_metrics.draw(rows, "a title", tmp_path / "generators")
    assert [path.name for path in made] == [
        form.format(name) for name in ("log-likelihood", "uncertainty") for form in (PNG, SVG)
    ]
    assert sorted(tmp_path.iterdir()) == sorted(made)
    for path in made[::2]:
        assert imread(path).shape[1] == 1400, "7 inches at 200 dots an inch"
    for path in made[1::2]:
        assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    (tmp_path / "one").mkdir()
    only = generator_metrics.draw(TWO, "a title", tmp_path / "one" / "generators")
    assert [path.name for path in only] == [PNG.format("log-likelihood"), SVG.format("log-likelihood")]


def test_the_same_rows_make_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        generator_metrics.draw(TWO, "a title", tmp_path / folder / "g")
        sample_grid.draw(steps(), list("012"), "a title", tmp_path / folder / "s")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["g-log-likelihood.png", "g-log-likelihood.svg", "s.png", "s.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


# Grids of images.


def steps(tasks: int = 3, height: int = 4, width: int = 5) -> list[Tensor]:
    """After task t + 1 there are t + 1 images; each is one grey all over, 10 times the time and once the task."""
    return [
        torch.stack([torch.full((height, width), 10 * (t + 1) + on + 1, dtype=torch.uint8) for on in range(t + 1)])
        for t in range(tasks)
    ]


def test_canvas_has_a_row_for_each_time_and_a_column_for_each_generator() -> None:
    page = sample_grid.canvas(steps(), 3)
    assert (page.dtype, tuple(page.shape)) == (torch.uint8, (3 * 5, 3 * 6))
    wanted = np.zeros((15, 18), dtype=np.uint8)
    for t in range(3):
        for on in range(t + 1):
            wanted[5 * t : 5 * t + 4, 6 * on : 6 * on + 5] = 10 * (t + 1) + on + 1
    np.testing.assert_array_equal(page.numpy(), wanted)


def test_canvas_keeps_images_upright() -> None:
    image = torch.arange(20, dtype=torch.uint8).view(1, 4, 5)
    assert torch.equal(sample_grid.canvas([image], 1)[:4, :5], image[0])


def test_the_gap_may_be_wider_or_none() -> None:
    assert tuple(sample_grid.canvas(steps(), 3, gap=0).shape) == (12, 15)
    wide = sample_grid.canvas(steps(), 4, gap=3)
    assert tuple(wide.shape) == (3 * 7, 4 * 8)
    assert wide[14:18, 8:13].unique().tolist() == [32], "the third time, the second generator"
    assert int(wide[:, 24:].sum()) == 0


def test_a_grid_names_generators_above_and_times_beside() -> None:
    figure = sample_grid.picture(steps(), ["zero", "one", "two"], "a title")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["zero", "one", "two"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]
    (image,) = axes.images
    np.testing.assert_array_equal(np.asarray(image.get_array()), sample_grid.canvas(steps(), 3).numpy())
    assert image.get_clim() == (0, 255), "the same grey means the same in every figure"
    assert image.get_cmap().name == "gray_r", "ink is dark"
    # A label stands within the image that it names, whose pixels have their centres at whole numbers.
    for place, tick in enumerate(axes.get_xticks()):
        assert 6 * place <= tick <= 6 * place + 5
    for place, tick in enumerate(axes.get_yticks()):
        assert 5 * place <= tick <= 5 * place + 4
    assert figure.get_suptitle() == "a title"


@pytest.mark.parametrize(("times", "tasks"), [(1, 1), (2, 5), (10, 10)])
def test_a_grid_may_be_small_unfinished_or_large(times: int, tasks: int, tmp_path: Path) -> None:
    made = sample_grid.draw(steps(times), [str(n) for n in range(tasks)], "a title", tmp_path / "grid")
    assert made == [tmp_path / "grid.png", tmp_path / "grid.svg"]
    assert imread(made[0]).shape[0] == pytest.approx(200 * (0.8 + 0.45 * times), abs=1)
    assert ET.parse(made[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_images_are_written_pixel_by_pixel_as_dark_ink_on_white(tmp_path: Path) -> None:
    images = torch.rand(5, 4, 6, generator=torch.Generator().manual_seed(0))
    (tmp_path / "grid.png").write_bytes(sample_grid.png(images))
    pixels = np.rint(255 * imread(tmp_path / "grid.png")).astype(int)
    assert pixels.shape == (2 * 5 * 4, 3 * 7 * 4, 4), "five images in two rows of three"
    assert (pixels[..., 3] == 255).all()
    assert (pixels[..., 0] == pixels[..., 1]).all()
    assert (pixels[..., 0] == pixels[..., 2]).all()
    grey = pixels[::4, ::4, 0]
    np.testing.assert_array_equal(pixels[..., 0], grey.repeat(4, 0).repeat(4, 1))
    wanted = np.full((10, 21), 255)
    for place, image in enumerate(images):
        top, left = 5 * (place // 3), 7 * (place % 3)
        wanted[top : top + 4, left : left + 6] = 255 - np.rint(255 * image.numpy())
    assert np.abs(grey - wanted).max() <= 1


@pytest.mark.parametrize(("value", "grey"), [(0.0, 255), (1.0, 0), (-0.5, 255), (1.5, 0)])
def test_pixels_beyond_black_and_white_are_black_and_white(tmp_path: Path, value: float, grey: int) -> None:
    (tmp_path / "grid.png").write_bytes(sample_grid.png(torch.full((1, 2, 2), value)))
    pixels = np.rint(255 * imread(tmp_path / "grid.png")).astype(int)
    assert set(pixels[:8, :8, 0].flatten()) == {grey}
