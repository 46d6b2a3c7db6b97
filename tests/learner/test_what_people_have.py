"""Inputs and labels as people have them, and all that cannot be learned from, each with one clear sentence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from own_data import classes_of, classifier, numbers, regressor, same, small_net, targets_of, tensors
from vcl.errors import VclError

X = numbers(40)
Y = classes_of(X)


class TestArrays:
    @pytest.mark.parametrize(
        "x",
        [
            X.astype(object),
            X.tolist(),
            tuple(map(tuple, X.tolist())),
            torch.from_numpy(X),
            torch.from_numpy(X).requires_grad_(),
            list(torch.from_numpy(X)),
            X[::-1][::-1],
            np.asfortranarray(X),
            X.astype(">f8"),
        ],
        ids=["objects", "lists", "tuples", "tensor", "grad", "tensors", "reversed", "fortran", "big-endian"],
    )
    def test_the_same_numbers_in_any_container_are_the_same_data(self, x: Any) -> None:
        learner = classifier().update(X, Y)
        with pytest.raises(VclError, match=r"would count twice"):
            learner.update(x, Y)
        assert np.allclose(learner.predict_proba(x), learner.predict_proba(X), atol=1e-5)

    def test_arrays_that_cannot_be_written_to_are_read_without_a_warning(self) -> None:
        x = X.copy()
        x.setflags(write=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learner = classifier().update(x, Y)
        assert same(tensors(learner), tensors(classifier().update(X, Y)))

    @pytest.mark.parametrize(
        "dtype", [np.int8, np.uint8, np.uint16, np.uint32, np.int64, np.float16, np.longdouble, torch.bfloat16, bool]
    )
    def test_numbers_of_any_dtype_are_scaled_alike(self, dtype: Any) -> None:
        whole = np.round(20 + 5 * X) if dtype is not bool else X > 0
        x = torch.from_numpy(whole).to(dtype) if isinstance(dtype, torch.dtype) else whole.astype(dtype)
        learner = classifier().update(x, Y)
        assert learner._knows().inputs.kind == "numbers"
        assert np.allclose(
            learner.predict_proba(x), classifier().update(whole.astype(float), Y).predict_proba(whole * 1.0)
        )

    def test_a_column_far_from_zero_keeps_its_digits(self) -> None:
        x = X + np.array([1e9, 0, 0, 0])
        far, near = (classifier(method="mean-field").update(each, Y).predict_proba(each) for each in (x, X))
        assert np.allclose(far, near, atol=1e-4)

    @pytest.mark.parametrize("standardize", ["auto", False])
    def test_uint8_images_are_pixels_and_bool_images_are_0_and_1(self, standardize: Any) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (20, 4, 4), dtype=np.uint8)
        learner = classifier(small_net(width=16), standardize=standardize).update(pixels, Y[:20])
        assert learner._knows().inputs.kind == "pixels"
        asked = classifier(small_net(width=16), standardize=standardize).update(pixels / 255, Y[:20])
        assert np.allclose(learner.predict_proba(pixels), asked.predict_proba(pixels / 255), atol=1e-5)
        with pytest.raises(
            VclError, match=r"dtype float64, which is read as numbers, and the first update had uint8, pixels"
        ):
            learner.predict(pixels / 255)
        bits = classifier(small_net(width=16)).update(pixels > 99, Y[:20])
        ones = classifier(small_net(width=16)).update((pixels > 99) * 1.0, Y[:20])
        assert np.array_equal(bits.predict_proba(pixels > 99), ones.predict_proba((pixels > 99) * 1.0))

    def test_whole_numbers_of_64_bits_without_a_sign_are_numbers(self) -> None:
        whole = np.random.default_rng(0).integers(0, 2**64, (40, 4), dtype=np.uint64)
        for x in (whole, whole // 2**60):
            found, wanted = (classifier().update(each, Y).predict_proba(each) for each in (x, x.astype(float)))
            assert np.array_equal(found, wanted)

    def test_one_example_and_one_row_are_enough(self) -> None:
        learner = classifier().update(X[:1], Y[:1]).update(X[1:2], 1 - Y[:1])
        assert learner.predict_proba(X).shape == (40, 2)
        assert np.isfinite(regressor().update(X[:1], [3.0]).predict(X)).all()


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, at: int) -> tuple[np.ndarray, str]:
        return X[at], "ab"[Y[at]]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return iter(zip(X, Y.tolist(), strict=True))


class TestDatasetsAndLoaders:
    def data(self) -> TensorDataset:
        return TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))

    def test_a_dataset_or_a_loader_is_its_arrays(self) -> None:
        known = tensors(classifier().update(X, Y))
        for source in (self.data(), DataLoader(self.data(), batch_size=7), DataLoader(Stream(), batch_size=9)):
            assert same(tensors(classifier().update(source)), known)
        words = classifier().update(Pairs())
        assert words.classes() == ("a", "b")
        assert np.array_equal(words.predict_proba(X), classifier().update(X, Y).predict_proba(X))

    def test_a_loader_that_shuffles_differently_each_epoch_is_read_once_and_known_again(self) -> None:
        loader = DataLoader(self.data(), batch_size=8, shuffle=True)
        first, second = (torch.cat([x for x, _ in loader]) for _ in range(2))
        assert not torch.equal(first, second)
        learner = classifier().update(loader)
        assert learner.history[0].examples == 40
        with pytest.raises(VclError, match=r"the data of 'update 1', which would count twice"):
            learner.update(loader)
        x, y = learner._knows().state.t, learner.predict_proba(X)
        assert x == 1
        assert np.allclose(y.sum(1), 1)

    @pytest.mark.parametrize(
        ("source", "y", "words"),
        [
            (
                lambda: TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
                Y,
                "which has its own labels, and y was given too; leave y out",
            ),
            (lambda: TensorDataset(torch.from_numpy(X)), None, "a batch is a list of 1 parts; give pairs"),
            (lambda: DataLoader(TensorDataset(torch.zeros(0, 4), torch.zeros(0))), None, "the data is empty"),
            (lambda: Stream(), None, "the Dataset has no length; wrap it in a DataLoader"),
            (lambda: [(X[0], 1)], None, "y is missing; give one label"),
        ],
    )
    def test_what_is_not_pairs_is_refused(self, source: Any, y: Any, words: str) -> None:
        with pytest.raises(VclError, match=words):
            classifier().update(source(), y)

    def test_predictions_take_arrays(self) -> None:
        with pytest.raises(VclError, match=r"x is a TensorDataset; to predict, give an array or a tensor"):
            classifier().update(X, Y).predict(self.data())


class TestLabels:
    @pytest.mark.parametrize(
        ("y", "classes"),
        [
            (Y, (0, 1)),
            (Y.astype(np.uint8), (0, 1)),
            (Y - 7, (-7, -6)),
            (np.where(Y, 2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1)),
            (np.where(Y, 2**63 - 1, 0).astype(np.uint64), (0, 2**63 - 1)),
            (np.where(Y, 2.0**53 - 1, 0), (0, 2**53 - 1)),
            (Y.astype(float), (0, 1)),
            (Y == 1, (False, True)),
            (np.array(["no", "yes"])[Y], ("no", "yes")),
            (np.array(["no", "yes"], dtype=object)[Y], ("no", "yes")),
            (np.array([b"no", b"yes"])[Y], ("no", "yes")),
            (Y.tolist(), (0, 1)),
            (Y[:, None], (0, 1)),
            (torch.from_numpy(Y), (0, 1)),
            (torch.from_numpy(Y).bfloat16(), (0, 1)),
            ([("b", "a")[y] for y in Y], ("a", "b")),
        ],
    )
    def test_labels_of_any_kind_come_back_as_they_were(self, y: Any, classes: tuple[Any, ...]) -> None:
        learner = classifier().update(X, y)
        assert learner.classes() == classes
        assert all(type(a) is type(b) for a, b in zip(learner.classes(), classes, strict=True))
        found = learner.predict(X)
        assert found.dtype == np.array(classes).dtype
        assert set(found.tolist()) <= set(classes)
        assert np.array_equal(found, np.array(classes)[learner.predict_proba(X).argmax(1)])

    def test_heads_with_labels_of_several_kinds_keep_them(self) -> None:
        learner = classifier().update(X, Y, task="a").update(X + 1, np.array(["no", "yes"])[Y], task="b")
        assert learner.classes() == (0, 1, "no", "yes")
        assert set(learner.predict(X).tolist()) <= {0, 1, "no", "yes"}

    @pytest.mark.parametrize(
        ("y", "words"),
        [
            (Y[:5], r"y has shape \(5,\) for 40 examples; give one label for each"),
            (
                np.eye(2)[Y],
                r"y has shape \(40, 2\) with a single 1 in each row.*; give the labels themselves, as in y.argmax\(1\)",
            ),
            (X, r"y has shape \(40, 4\) for 40 examples; give one label for each"),
            (Y + 0.5, "y is 1.5 at row .*, which names no class; .* use ContinualRegressor"),
            (np.where(Y, np.nan, 0), r"y has no label in the rows .* and \d+ more; drop those"),
            (np.array(["a", None], dtype=object)[Y], "y has no label in the rows"),
            (np.ma.masked_array(Y, np.arange(40) > 37), "y has masked values in 2 rows, the first at row 38"),
            (np.array(["a", 3], dtype=object)[Y], r"the labels are of several kinds \(strings, whole numbers\)"),
            (["a", 3] * 20, r"the labels are of several kinds \(strings, whole numbers\)"),
            ([[1], [2, 3]] * 20, "y has entries of different lengths"),
            (np.array(["2020-01-01"] * 40, dtype="datetime64[D]"), "the labels have dtype datetime64"),
            (Y + 1j, "the labels have dtype complex128; give strings, whole numbers or bools"),
            (3, r"y has shape \(\) for 40 examples"),
            (np.where(Y, 1e20, 3e20), r"y is [13]e\+20 at row .*dtype float64 .*; give such labels as strings"),
            (np.where(Y, 2.0**53, 0), r"y is 9007199254740992.0 at row \d+, where whole numbers of dtype float64"),
            (np.where(Y, 2**24, 0).astype(np.float32), r"y is 16777216.0 at row \d+, .* dtype float32"),
            ([2**63 + 1, 5] * 20, r"y is 9\.22.*e\+18 at row 0"),
            ([2**70, 5] * 20, r"y is 1180591620717411303424 at row 0, .* dtype object"),
            (np.array([5, 2**63 + 1] * 20, dtype=np.uint64), r"y is 9223372036854775809 at row 1, .* dtype uint64"),
            (np.array([5, -(2**63) - 1] * 20, dtype=object), r"y is -9223372036854775809 at row 1"),
        ],
    )
    def test_what_names_no_classes_is_refused(self, y: Any, words: str) -> None:
        learner = classifier()
        with pytest.raises(VclError, match=words):
            learner.update(X, y)
        assert learner.tasks == ()
        assert same(tensors(learner.update(X, Y)), tensors(classifier().update(X, Y)))

    def test_the_missing_value_of_pandas_is_missing(self) -> None:
        class Missing:
            """As pandas.NA: it has no truth value, also where it is compared."""

            def __ne__(self, other: object) -> Any:
                return self

            def __eq__(self, other: object) -> Any:
                return self

            __hash__ = None  # type: ignore[assignment]

            def __bool__(self) -> bool:
                raise TypeError("boolean value of NA is ambiguous")

            def __repr__(self) -> str:
                return "<NA>"

        y = np.array([Missing(), *["a", "b"] * 19, "a"], dtype=object)
        with pytest.raises(VclError, match=r"y has no label in the rows 0; drop"):
            classifier().update(X, y)

    def test_labels_of_another_kind_later_and_labels_of_fixed_classes(self) -> None:
        learner = classifier().update(X, Y)
        with pytest.raises(VclError, match=r"of several kinds \(strings, whole numbers\); .* one kind for all updates"):
            learner.update(X + 1, np.array(["no", "yes"])[Y])
        fixed = classifier(classes=["yes", "no", "maybe"]).update(X, np.array(["no", "yes"])[Y])
        assert fixed.classes() == ("yes", "no", "maybe")
        assert fixed.predict_proba(X).shape == (40, 3)
        with pytest.raises(
            VclError, match=r"y: 'never' is not among the classes 'yes', 'no', 'maybe'; these are fixed"
        ):
            fixed.update(X + 1, np.array(["no", "never"])[Y])


class TestTargets:
    @pytest.mark.parametrize(
        ("y", "words"),
        [
            (Y[:5], r"y has shape \(5,\) and dtype int64 for 40 examples; give numbers"),
            (["a"] * 40, "dtype <U1 for 40 examples; give numbers"),
            (np.where(Y, np.inf, 0), "y has NaN or infinite values in the rows .*; drop those rows"),
            (np.array([None, 2.0], dtype=object)[Y], "y has NaN or infinite values in the rows"),
            (np.zeros((40, 2, 2)), r"y has shape \(40, 2, 2\)"),
            ([[1], [2, 3]] * 20, "y has entries of different lengths"),
        ],
    )
    def test_what_is_no_number_is_refused(self, y: Any, words: str) -> None:
        with pytest.raises(VclError, match=words):
            regressor().update(X, y)

    def test_another_number_of_targets_later_is_refused(self) -> None:
        y = targets_of(X)
        for first, then, words in (
            (np.stack([y, y], 1), y, r"had 2 targets, as \[N, 2\]"),
            (y, y[:, None], r"had one target, as \[N\]"),
        ):
            with pytest.raises(VclError, match=words):
                regressor().update(X, first).update(X + 1, then)
        with pytest.raises(VclError, match=r"noise has 2 values for one target; give one, or one for each"):
            regressor(noise=[0.1, 0.2]).update(X, y)

    def test_counts_are_whole_numbers_from_0_on(self) -> None:
        for y in (Y - 1, Y + 0.5):
            with pytest.raises(VclError, match=r"a Poisson likelihood takes counts, whole numbers from 0 on"):
                regressor(likelihood="poisson").update(X, y)
        assert (regressor(likelihood="poisson").update(X, Y.astype(float)).predict(X) >= 0).all()

    def test_whole_numbers_and_bools_are_numbers(self) -> None:
        assert np.allclose(regressor().update(X, Y).predict(X), regressor().update(X, Y == 1).predict(X))
        assert np.allclose(regressor().update(X, Y).predict(X), regressor().update(X, Y.astype(object)).predict(X))
