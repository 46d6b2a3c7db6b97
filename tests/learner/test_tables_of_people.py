"""Tables with named columns, of any library: what a column is follows from the first update and then stays."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from own_data import classifier, regressor, same, small_net, tensors
from vcl.errors import VclError
from vcl.learner import ContinualClassifier
from vcl.learner.tables import MOST, Table


class Column:
    """A column as DataFrames have it: it is an array when asked."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def to_numpy(self) -> np.ndarray:
        plain = np.array(self.values, dtype=object)
        kinds = {type(value) for value in self.values}
        return plain.astype(float) if kinds <= {int, float} else plain


class Frame:
    """A table that has no more than every DataFrame has."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.held, self.columns = columns, list(columns)

    def __getitem__(self, name: str) -> Column:
        return Column(self.held[name])

    def __len__(self) -> int:
        return len(next(iter(self.held.values()), []))


ROWS = 24
Y = np.arange(ROWS) % 2


def held(seed: int = 0, **changed: list[Any]) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    return {
        "age": rng.normal(40, 10, ROWS).tolist(),
        "city": rng.choice(["Rome", "Oslo", "Lima"], ROWS).tolist(),
        "member": (rng.random(ROWS) > 0.5).tolist(),
        **changed,
    }


def learner(**settings: Any) -> ContinualClassifier:
    return classifier(small_net(width=5), **settings)


LIBRARIES = [name for name in ("pandas", "polars") if find_spec(name)]


class TestAnyTable:
    def test_a_mapping_and_a_frame_are_the_same_and_the_order_of_columns_does_not_matter(self) -> None:
        one = learner().update(held(), Y)
        assert one._knows().table.outputs == ("age", "city=Lima", "city=Oslo", "city=Rome", "member")
        two = learner().update(Frame(held()), Column(Y.tolist()))
        assert same(tensors(two), tensors(one))
        turned = dict(reversed(held(1).items()))
        assert np.array_equal(one.predict_proba(Frame(turned)), two.predict_proba(held(1)))
        for each, given in ((one, held(1)), (two, Frame(turned))):
            each.update(given, 1 - Y)
        assert same(tensors(two), tensors(one))

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_libraries_that_are_here(self, library: str) -> None:
        frame = __import__(library).DataFrame(held())
        assert same(tensors(learner().update(frame, Y)), tensors(learner().update(held(), Y)))

    @pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
    def test_tables_of_pyarrow(self) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        one, frame = learner().update(held(), Y), pyarrow.table(held())
        assert same(tensors(learner().update(frame, pyarrow.chunked_array([Y]))), tensors(one))
        coded = frame.set_column(1, "city", frame["city"].dictionary_encode())
        assert np.array_equal(one.predict_proba(coded), one.predict_proba(held()))
        gaps = held(age=[None, *held()["age"][1:]])
        assert same(
            tensors(classifier(small_net(width=6)).update(pyarrow.table(gaps), Y)),
            tensors(classifier(small_net(width=6)).update(gaps, Y)),
        )

    def test_rows_that_are_not_in_memory_are_refused(self) -> None:
        class LazyFrame:
            columns = ("age",)

            def __getitem__(self, name: str) -> None:
                raise TypeError("LazyFrame is not subscriptable")

        with pytest.raises(VclError, match=r"x is a LazyFrame, whose rows are not in memory; give .* x.collect\(\)"):
            learner().update(LazyFrame(), Y)

    def test_columns_may_be_arrays_and_tensors_and_have_numbers_as_names(self) -> None:
        x = np.random.default_rng(0).normal(size=(ROWS, 2))
        one = classifier(small_net(width=2)).update({0: x[:, 0], 1: torch.from_numpy(x[:, 1])}, Y)
        assert one._knows().table.names == ("0", "1")
        assert np.allclose(one.predict_proba({1: x[:, 1], 0: x[:, 0]}), one.predict_proba({"0": x[:, 0], "1": x[:, 1]}))

    def test_it_is_saved_with_its_columns(self, tmp_path: Path) -> None:
        one = learner().update(held(), Y)
        one.save(tmp_path)
        two = ContinualClassifier.load(tmp_path, small_net(width=5), device="cpu")
        assert np.array_equal(two.predict_proba(held(2)), one.predict_proba(held(2)))

    def test_a_regressor_takes_a_column_of_targets(self) -> None:
        found = regressor(small_net(width=5)).update(Frame(held()), Column(held()["age"])).predict(Frame(held(1)))
        assert found.shape == (ROWS,)


@pytest.mark.skipif(find_spec("pandas") is None, reason="needs pandas")
class TestPandas:
    """Columns of pandas' own kinds."""

    def test_nullable_and_categorical_columns_are_what_they_say(self) -> None:
        pandas = pytest.importorskip("pandas")
        every, gone = np.arange(ROWS), [row % 5 == 0 for row in range(ROWS)]
        frame = pandas.DataFrame({
            "count": pandas.array(every, dtype="Int64").copy(),
            "share": pandas.array(every / 7, dtype="Float64"),
            "member": pandas.array(every % 2 == 0, dtype="boolean"),
            "city": pandas.array(np.array(["Oslo", "Rome"])[every % 2], dtype="string"),
            "level": pandas.Categorical(every % 3),
            "size": pandas.Categorical(np.array(["L", "S"])[every % 2], categories=["S", "M", "L"]),
        })  # fmt: skip
        frame.loc[gone, ["count", "member", "city", "level"]] = pandas.NA
        found = Table.of(frame)
        assert found.outputs == (
            "count", "count missing", "share", "member", "member missing", "city=Oslo", "city=Rome", "city=missing",
            "level=0", "level=1", "level=2", "level=missing", "size=L", "size=S",
        )  # fmt: skip
        numbers = found.numbers(frame).numpy()
        assert np.array_equal(numbers[:, 1], np.array(gone, dtype=float))
        assert numbers[gone, 0] == pytest.approx(every[~np.array(gone)].mean())
        kept = ~np.array(gone)
        assert np.array_equal(numbers[kept, 0], every[kept])
        assert np.array_equal(numbers[kept][:, 8:11], np.eye(3)[every[kept] % 3])
        plain = frame.assign(level=np.where(gone, np.nan, every % 3), size=frame["size"].astype(str))
        assert np.array_equal(found.numbers(plain).numpy(), numbers)
        assert np.array_equal(found.numbers(frame[kept]).numpy(), numbers[kept])
        learner = classifier(small_net(width=14)).update(frame, Y)
        assert learner.predict_proba(frame[::-1]).shape == (ROWS, 2)

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            (lambda pandas: pandas.date_range("2024-01-01", periods=ROWS), "has dtype datetime64"),
            (lambda pandas: pandas.date_range("2024-01-01", periods=ROWS, tz="UTC"), "has dates, such as 2024-01-01"),
            (lambda pandas: pandas.timedelta_range("1 days", periods=ROWS), "has dtype timedelta64"),
            (lambda pandas: [[1, 2]] * ROWS, "has lists or records"),
            (lambda pandas: pandas.Categorical([None] * ROWS), "has no values; drop it"),
        ],
    )
    def test_columns_that_cannot_be(self, values: Any, words: str) -> None:
        pandas = pytest.importorskip("pandas")
        with pytest.raises(VclError, match=f"^column 'a' {words}"):
            Table.of(pandas.DataFrame({"a": values(pandas)}))

    def test_labels_of_its_kinds(self) -> None:
        pandas = pytest.importorskip("pandas")
        x, words = np.random.default_rng(0).normal(size=(ROWS, 4)), np.array(["no", "yes"])[Y]
        for labels in (pandas.Categorical(words), pandas.Series(words, dtype="string"), pandas.DataFrame({"y": words})):
            assert classifier().update(x, labels).classes() == ("no", "yes")
        assert classifier().update(x, pandas.array(Y, dtype="Int64")).classes() == (0, 1)
        assert classifier().update(x, pandas.array(Y == 1, dtype="boolean")).classes() == (False, True)
        with pytest.raises(VclError, match="y has no label in the rows 1, 3, 5"):
            classifier().update(x, pandas.Series(Y, dtype="Int64").mask(Y == 1))


class TestWhatIsMissing:
    def test_bools_beside_missing_values_are_numbers(self) -> None:
        found = Table.of(Frame(held(member=[True, False, None, *[True] * (ROWS - 3)])))
        assert found.outputs[-2:] == ("member", "member missing")
        assert found.numbers(held(member=[False, True, None, *[True] * (ROWS - 3)]))[:3, -1].tolist() == [0, 0, 1]

    def test_masked_numbers_are_missing(self) -> None:
        given = held()
        hidden = np.ma.masked_array(given["age"], np.arange(ROWS) == 5)
        nothing = [None if place == 5 else age for place, age in enumerate(given["age"])]
        found, wanted = (Table.of(table := {**given, "age": age}).numbers(table) for age in (hidden, nothing))
        assert torch.equal(found, wanted)
        assert found.shape[1] == Table.of(given).numbers(given).shape[1] + 1

    def test_numbers_missing_from_the_start_have_a_column_that_says_so(self) -> None:
        ages = [None, float("nan"), "", "NA", *held()["age"][4:]]
        found = Table.of(Frame(held(age=ages)))
        assert found.outputs[:2] == ("age", "age missing")
        numbers = found.numbers(held(age=ages))
        assert numbers[:5, 1].tolist() == [1, 1, 1, 1, 0]
        assert torch.allclose(numbers[:4, 0], torch.tensor(np.mean(ages[4:]), dtype=torch.float64))

    def test_numbers_missing_later_become_the_first_mean_with_a_warning(self) -> None:
        one = learner().update(held(), Y)
        ages = [None, *held(1)["age"][1:]]
        with pytest.warns(
            UserWarning, match=r"column 'age' has 1 missing values and had none before; .* mean, \d+\.\d+"
        ) as seen:
            one.update(held(1, age=ages), Y)
        assert seen[0].filename == __file__
        with pytest.warns(UserWarning, match=r"column 'age' has 1 missing values"):
            one.predict(held(1, age=ages))

    def test_categories_that_are_new_or_missing_later_count_as_none_with_a_warning(self) -> None:
        one = learner().update(held(), Y)
        cities = ["Bern", "Bern", None, *held(1)["city"][3:]]
        with pytest.warns(
            UserWarning,
            match=r"column 'city' has values that the first update had not: 'Bern' \(2\), 'missing' \(1\); they count",
        ):
            found = one._rows(held(1, city=cities))
        raw = one._knows().table.numbers(held(1, city=cities))
        assert raw[:3, 1:4].tolist() == [[0, 0, 0]] * 3
        assert found.shape == (1, ROWS, 5)

    def test_a_category_may_be_missing_from_the_start(self) -> None:
        found = Table.of(held(city=[None, *held()["city"][1:]]))
        assert found.outputs[1:5] == ("city=Lima", "city=Oslo", "city=Rome", "city=missing")


class TestTablesThatCannotBe:
    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            (
                {"job": ["cook"] * ROWS},
                "the table comes with the new 'job'; give the columns of the first update: age, city, member",
            ),
            (
                {"age": ["old"] * ROWS},
                "column 'age' is 'old' in row 0, and its values were numbers in the first update",
            ),
            ({"age": [float("inf")] * ROWS}, "column 'age' is infinite in row 0"),
            ({"age": [1.0]}, "the columns have different lengths"),
        ],
    )
    def test_later(self, changed: dict[str, Any], words: str) -> None:
        one = learner().update(held(), Y)
        known = one._known
        for ask in (one.predict, lambda x: one.update(x, Y)):
            with pytest.raises(VclError, match=words):
                ask(held(1, **changed))
        assert one._known is known

    def test_columns_that_are_gone(self) -> None:
        one = learner().update(held(), Y)
        short = {name: values for name, values in held(1).items() if name != "city"}
        with pytest.raises(VclError, match=r"the table comes without 'city'; give the columns of the first update"):
            one.update(short, Y)
        with pytest.raises(VclError, match=r"without 'city' and with the new 'town'"):
            one.update({**short, "town": held(1)["city"]}, Y)

    def test_an_array_after_a_table(self) -> None:
        one = learner().update(held(), Y)
        for ask in (one.predict, lambda x: one.update(x, Y)):
            with pytest.raises(
                VclError,
                match=r"x is an array of shape \[N, 5\], .*; give a table with the columns age, city, member",
            ):
                ask(np.zeros((ROWS, 5)))

    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ({"a": []}, "the data is empty"),
            ({}, "the table has no columns"),
            ({"a": [None] * ROWS}, "column 'a' has no values; drop it"),
            ({"a": [float("inf")] * ROWS}, "column 'a' is infinite in row 0"),
            ({"a": np.zeros((ROWS, 2))}, r"column 'a' has shape \(24, 2\); give one value for each row"),
            ({"a": [1.0] * ROWS, "b": [1.0]}, "the columns have different lengths"),
            ({"a": [1.0] * ROWS, 1: [1.0] * ROWS, "1": [1.0] * ROWS}, "the column '1' twice"),
            (
                {"a": [f"id {row}" for row in range(MOST + 1)]},
                f"has {MOST + 1} different texts, and at most {MOST} categories are taken",
            ),
        ],
    )
    def test_first(self, columns: Any, words: str) -> None:
        with pytest.raises(VclError, match=words):
            classifier().update(columns, Y)
