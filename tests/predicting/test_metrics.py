from collections.abc import Callable

import pytest
import torch

from vcl.data import WHOLE
from vcl.errors import VclError
from vcl.predicting.metrics import (
    accuracy,
    average_accuracy,
    backward_transfer,
    brier,
    calibration_error,
    forgetting,
    log_predictive,
    reliability,
)

Measure = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

NAN = float("nan")
# After task 1: 0.9. After task 2: 0.7 on the first, 0.8 on the second. After task 3: 0.75, 0.6, 1.0.
A = torch.tensor([[0.9, NAN, NAN], [0.7, 0.8, NAN], [0.75, 0.6, 1.0]], dtype=torch.float64)


def test_average_is_over_the_tasks_so_far() -> None:
    assert average_accuracy(A).tolist() == pytest.approx([0.9, 0.75, 2.35 / 3])


def test_forgetting_is_from_the_best_and_backward_transfer_from_when_it_was_learned() -> None:
    better = A.clone()
    better[1, 0] = 0.95
    assert forgetting(better).item() == pytest.approx(((0.95 - 0.75) + (0.8 - 0.6)) / 2)
    assert backward_transfer(better).item() == pytest.approx(((0.75 - 0.9) + (0.6 - 0.8)) / 2)


def test_trap_accuracy_matrix_transposed() -> None:
    """Rows are 'after task i', columns 'on task j': the transposed matrix gives other numbers."""
    assert forgetting(A).item() == pytest.approx(0.175)
    assert average_accuracy(A)[-1] != pytest.approx(average_accuracy(A.T)[-1].item())
    assert backward_transfer(A).item() == pytest.approx(-0.175)


def test_runs_stand_in_front_and_one_task_forgets_nothing() -> None:
    stacked = torch.stack([A, A - 0.1])
    assert average_accuracy(stacked)[:, -1].tolist() == pytest.approx([2.35 / 3, 2.35 / 3 - 0.1])
    assert forgetting(stacked).tolist() == pytest.approx([0.175, 0.175])
    assert forgetting(A[:1, :1]).item() == 0
    assert backward_transfer(A[:1, :1]).item() == 0


def test_measures_of_probabilities_by_hand() -> None:
    p = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.9, 0.1]], dtype=torch.float64)
    y = torch.tensor([0, 0, 0])
    assert accuracy(p, y).item() == pytest.approx(2 / 3)
    assert log_predictive(p, y).item() == pytest.approx(torch.tensor([0.8, 0.4, 0.9]).log().mean().item())
    assert brier(p, y).item() == pytest.approx((2 * 0.04 + 2 * 0.36 + 2 * 0.01) / 3)
    # Ten bins: 0.8 alone (right), 0.6 alone (wrong), 0.9 alone (right).
    assert calibration_error(p, y, bins=10).item() == pytest.approx((0.2 + 0.6 + 0.1) / 3)
    # One bin: accuracy 2/3 against mean confidence 2.3 / 3.
    assert calibration_error(p, y, bins=1).item() == pytest.approx(abs(2 / 3 - 2.3 / 3))


def test_a_calibrated_coin_has_no_calibration_error_and_an_impossible_label_a_finite_score() -> None:
    p = torch.tensor([[0.5, 0.5]] * 4)
    assert calibration_error(p, torch.tensor([0, 1, 0, 1])).item() == pytest.approx(0)
    assert log_predictive(torch.tensor([[1.0, 0.0]]), torch.tensor([1])).item() == pytest.approx(-69.08, abs=0.01)


def test_bins_of_confidence_count_examples_and_those_that_are_right() -> None:
    p = torch.tensor([[0.85, 0.15], [0.2, 0.8], [0.45, 0.55], [1.0, 0.0]], dtype=torch.float64)
    found = reliability(p, torch.tensor([0, 0, 1, 0]))
    assert found.shape == (10, 3)
    assert found[7].tolist() == pytest.approx([1, 0, 0.8])  # bin b holds (b / 10, (b + 1) / 10]
    assert found[8].tolist() == pytest.approx([1, 1, 0.85])
    assert found[[5, 9]].tolist() == [[1, 1, pytest.approx(0.55)], [1, 1, 1]]
    gaps = (found[:, 1] - found[:, 2]).abs().sum() / 4
    assert gaps.item() == pytest.approx(calibration_error(p, torch.tensor([0, 0, 1, 0]), bins=10).item())


MEASURES = (accuracy, log_predictive, brier, calibration_error)


@pytest.mark.parametrize("measure", MEASURES)
def test_labels_of_every_integer_dtype_and_of_shared_runs_give_the_same_numbers(measure: Measure) -> None:
    g = torch.Generator().manual_seed(0)
    p, y = torch.rand(3, 8, 4, generator=g).softmax(-1), torch.randint(0, 4, (3, 8), generator=g)
    expected = measure(p, y)
    assert expected.shape == (3,)
    for dtype in WHOLE:
        assert torch.equal(measure(p, y.to(dtype)), expected)
        assert torch.equal(measure(p, y.to(dtype)[..., None]), expected)
    assert torch.equal(measure(p, y[0]), measure(p, y[0].expand(3, 8)))
    assert measure(p[0], y[0, :, None]).item() == pytest.approx(expected[0].item())


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.zeros(3, 8), "have dtype torch.float32"),
        (torch.zeros(3, 8, dtype=torch.bool), "have dtype torch.bool"),
        (torch.zeros(3, 7, dtype=torch.int64), r"of shape \(3, 7\) do not match probabilities of shape \(3, 8, 4\)"),
        (torch.zeros(8, 1, dtype=torch.int64), r"of shape \(8, 1\) do not match"),
        (torch.zeros(3, 8, 2, dtype=torch.int64), r"have shape \(3, 8, 2\)"),
        (torch.zeros((), dtype=torch.int64), r"of shape \(\) do not match"),
    ],
)
def test_labels_that_do_not_go_with_the_probabilities_are_refused(
    measure: Measure, y: torch.Tensor, words: str
) -> None:
    with pytest.raises(VclError, match=words):
        measure(torch.full((3, 8, 4), 0.25), y)


def test_a_task_without_test_data_counts_in_no_mean() -> None:
    nan = float("nan")
    A = torch.tensor([[0.9, nan, nan], [0.7, nan, nan], [0.6, nan, 0.8]], dtype=torch.float64)
    assert float(average_accuracy(A)[-1]) == pytest.approx(0.7)
    assert float(forgetting(A)) == pytest.approx(0.3)
    assert float(backward_transfer(A)) == pytest.approx(-0.3)
