import pytest
import torch

from made import blobs
from vcl.data import WHOLE, Data, Source, as_labels, concat, dataset, labelled, ready, unlabelled
from vcl.errors import VclError
from vcl.ops.rows import as_input


def test_runs_share_their_examples_until_they_differ() -> None:
    data = dataset(torch.zeros(10, 3), torch.zeros(10, dtype=torch.int64), runs=5)
    assert data.x.stride(0) == 0
    assert data.runs == 5
    assert data.size == 10


def test_dividing_gives_the_chosen_and_the_others_in_order() -> None:
    x = torch.arange(12.0).view(6, 2)
    data = dataset(x, torch.arange(6), runs=2)
    chosen, others = data.divide(torch.tensor([[4, 1], [0, 5]]))
    assert chosen.y.tolist() == [[4, 1], [0, 5]]
    assert others.y.tolist() == [[0, 2, 3, 5], [1, 2, 3, 4]]
    assert torch.equal(others.x[1], x[1:5])


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ([[0, 0], [1, 2]], "2 of 6 examples are chosen, some of them twice in one run; give different positions."),
        ([[0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 5]], "some of them twice in one run"),
        ([[0], [6]], "examples are chosen at 0 to 6, but there are 6, counted from 0; choose among these."),
        ([[-1], [1]], "examples are chosen at -1 to 1, but there are 6"),
        ([[0, 1]], r"an index of shape \(1, 2\) and dtype torch.int64; give one row of positions .* each of 2 runs"),
        ([0, 1], r"an index of shape \(2,\)"),
        ([[0.0], [1.0]], "dtype torch.float32"),
        ([[True], [False]], "dtype torch.bool"),
    ],
)
def test_what_does_not_choose_different_examples_of_every_run_is_refused(index: list[object], words: str) -> None:
    data = dataset(torch.zeros(6, 2), torch.arange(6), runs=2)
    with pytest.raises(VclError, match=words):
        data.divide(torch.tensor(index))


def test_joined_examples_keep_their_sources() -> None:
    both = concat(blobs(4, 0, "t0", "h0", runs=2), blobs(3, 1, "t1", "h1", runs=2))
    assert both.sources == (Source("t0", "h0"), Source("t1", "h1"))
    assert both.source.tolist() == [[0] * 4 + [1] * 3] * 2
    assert both.heads == ("h0", "h1")
    again = concat(both, blobs(2, 0, "t0", "h0", runs=2))
    assert again.source[0].tolist() == [0] * 4 + [1] * 3 + [0] * 2
    only = again.where([Source("t1", "h1")])
    assert only.sources == (Source("t1", "h1"),)
    assert only.size == 3
    assert not only.source.any()


def test_sources_left_without_examples_are_forgotten() -> None:
    both = concat(blobs(4, 0, "t0", "h0"), blobs(3, 1, "t1", "h1"))
    assert both.take(torch.tensor([[5, 6]])).heads == ("h1",)


def test_pixels_are_scaled_and_other_numbers_are_not() -> None:
    assert as_input(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])
    assert as_input(torch.tensor([-3.0, 700.0])).tolist() == [-3.0, 700.0]


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (torch.zeros(3), torch.zeros(3), "give examples as rows"),
        (torch.zeros(3, 2), torch.zeros(4), "3 inputs but labels of shape (4,)"),
        (torch.tensor([[1.0, float("nan")]]), torch.zeros(1), "x holds 1 NaN or infinite values"),
        (torch.zeros(1, 2), torch.tensor([float("inf")]), "y holds 1 NaN or infinite values"),
        (torch.zeros(1, 2, dtype=torch.complex64), torch.zeros(1), "dtype torch.complex64"),
    ],
)
def test_arrays_that_cannot_be_learned_from_are_refused(x: torch.Tensor, y: torch.Tensor, words: str) -> None:
    with pytest.raises(VclError) as error:
        dataset(x, y, "mine")
    assert words in str(error.value)
    assert "task 'mine'" in str(error.value)


def test_mixed_dtypes_cannot_be_joined() -> None:
    a = blobs(4, 0, "t0", "h0")
    b = dataset(torch.zeros(4, 6, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(VclError, match="same dtype and shape"):
        concat(a, b)


def test_examples_without_labels() -> None:
    data = unlabelled(torch.rand(5, 4, 4), "zeros", "0", runs=3)
    assert (data.runs, data.size, data.heads) == (3, 5, ("0",))
    assert not data.y.any()
    with pytest.raises(VclError, match="give examples as rows"):
        unlabelled(torch.rand(5))


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("shape", [(4,), (4, 1)], ids=str)
def test_labels_of_every_integer_dtype_become_int64_one_an_example(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    y = torch.tensor([0, 1, 1, 0]).view(shape).to(dtype)
    data = dataset(torch.rand(4, 2), y, runs=3)
    assert data.y.dtype == torch.int64
    assert data.y.tolist() == [[0, 1, 1, 0]] * 3
    assert data.y.stride(0) == 0
    by_hand = labelled(Data(data.x, y.expand(3, *shape), data.source, data.sources))
    assert by_hand.y.dtype == torch.int64
    assert by_hand.y.tolist() == data.y.tolist()
    assert by_hand.y.stride(0) == 0, "runs go on sharing their labels"
    apart = labelled(Data(data.x, torch.stack([y, y, y]), data.source, data.sources))
    assert torch.equal(apart.y, data.y)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_targets_of_a_regression_stay_as_they_are(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    y = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    data = dataset(torch.rand(4, 2), y, runs=2)
    assert data.y.dtype == dtype
    assert torch.equal(data.y, y.expand(2, *shape))
    assert torch.equal(labelled(data).y, data.y)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (
            torch.tensor([0.0, 1.0]),
            "have dtype torch.float32; give whole numbers of an integer dtype, such as y.long()",
        ),
        (torch.tensor([False, True]), "have dtype torch.bool"),
        (torch.tensor([[0, 1], [1, 0]]), r"have shape \(2, 2\); give one whole number per example"),
        (torch.tensor([[[0]], [[1]]]), r"have shape \(2, 1, 1\)"),
    ],
)
def test_what_is_no_label_is_refused(y: torch.Tensor, words: str) -> None:
    with pytest.raises(VclError, match=f"^the labels {words}"):
        as_labels(y, 1)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([False, True]), "y has dtype torch.bool; give integers or floating-point numbers"),
        (torch.tensor([0, 2**64 - 1], dtype=torch.uint64), r"y holds whole numbers from 2\^63 on; relabel"),
    ],
)
def test_labels_that_mean_no_class_are_refused(y: torch.Tensor, words: str) -> None:
    with pytest.raises(VclError, match=f"task 'mine': {words}"):
        dataset(torch.zeros(2, 3), y, "mine")


def test_inputs_are_made_ready_once_for_runs_that_share_them() -> None:
    x = torch.randint(0, 256, (5, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    shared = dataset(x, torch.zeros(5, dtype=torch.int64), runs=4)
    apart = shared._replace(x=shared.x.contiguous())
    for data in (shared, apart, dataset(x, torch.zeros(5, dtype=torch.int64)), shared.empty()):
        assert torch.equal(ready(data).x, data.x.float() / 255)
    assert ready(shared).x.stride(0) == shared.to("cpu").x.stride(0) == 0


def test_runs_with_different_numbers_of_a_sources_examples_are_refused() -> None:
    a, b = Source("a", "h"), Source("b", "h")
    data = Data(torch.zeros(2, 3, 1), torch.zeros(2, 3), torch.tensor([[0, 0, 1], [0, 1, 1]]), (a, b))
    with pytest.raises(VclError, match=r"different numbers of these examples \(\[2, 1\]\); stack equal ones"):
        data.where([a])
    assert data.where([a, b]).size == 3
