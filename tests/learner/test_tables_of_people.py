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


class TestWhatIsMissing:
    def test_bools_beside_missing_values_are_numbers(self) -> None:
        found = Table.of(Frame(held(member=[True, False, None, *[True] * (ROWS - 3)])))
        assert found.outputs[-2:] == ("member", "member missing")
        assert found.numbers(held(member=[False, True, None, *[True] * (ROWS - 3)]))[:3, -1].tolist() == [0, 0, 1]

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
