"""Data files of `vcl model`: what is read, and what is refused with the line or column that is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcl.errors import VclError
from vcl.lab.model import csv_table, files
from vcl.lab.model.columns import Arrays


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(tmp_path: Path, content: str | bytes, delimiter: str | None = None, name: str = "t.csv") -> dict[str, Any]:
    found = files.read(write(tmp_path / name, content), delimiter)
    assert isinstance(found, dict)
    return {column: values.tolist() for column, values in found.items()}


def refused(tmp_path: Path, content: str | bytes, delimiter: str | None = None, name: str = "t.csv") -> str:
    with pytest.raises(VclError) as caught:
        files.read(write(tmp_path / name, content), delimiter)
    return str(caught.value)


def test_quotes_marks_blank_lines_and_line_ends(tmp_path: Path) -> None:
    text = '\ufeffname, size\r\n"a, ""b""", 1\r\n\r\n"two\nlines",\r\n'
    assert table(tmp_path, text) == {"name": ['a, "b"', "two\nlines"], "size": ["1", ""]}


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_only_one_of_the_header(tmp_path: Path, mark: str) -> None:
    assert table(tmp_path, f'a{mark}"b,;c"\n1{mark}2\n') == {"a": ["1"], "b,;c": ["2"]}


def test_one_column_needs_no_delimiter(tmp_path: Path) -> None:
    assert table(tmp_path, "a\n1\n2\n") == {"a": ["1", "2"]}


def test_several_delimiters_in_the_header_are_asked_about(tmp_path: Path) -> None:
    text = "a;b,c\n1;2\n"
    assert "several delimiters (comma, semicolon)" in refused(tmp_path, text)
    assert table(tmp_path, text, ";") == {"a": ["1"], "b,c": ["2"]}
    assert table(tmp_path, "a,b\tc\n1\t2\n", "tab") == {"a,b": ["1"], "c": ["2"]}
    assert table(tmp_path, "a,b\tc\n1\t2\n", name="t.tsv") == {"a,b": ["1"], "c": ["2"]}
    assert "--delimiter is 'ab'; give one character" in refused(tmp_path, text, "ab")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a,b\n", "has a header and no rows"),
        ("a,b\n1,2\n\n1,2,3\n", "line 4, has 3 fields, and the header has 2"),
        ('a,b\n"x\ny",2\n1\n', "line 4, has 1 fields"),
        ('a,b\n1,"2\n', "line 2, is no CSV (unexpected end of data)"),
        ('a,b\n1,"2"3\n', "line 2, is no CSV"),
        (",a\n0,1\n", "column 1 of"),
        ("a,b,a\n1,2,3\n", "has the column 'a' twice"),
        ("5.1,3.5,1.4\n4.9,3.0,1.4\n", "has only numbers"),
        ("a;b\n1,5;2\n", "decimal commas or separated thousands (1,5)"),
        ("a;b\n1;2\n1,5;2\nNA;2\nmany;2\n", "separated thousands (1,5)"),
        ('a,b\n1,"1,234"\n1,999\n', "column 'b' of"),
        ('a,b\n1,"-1.234,5"\n', "separated thousands (-1.234,5)"),
        ("a,b\n1,1 234 567.5\n", "separated thousands (1 234 567.5)"),
        ("a,b\n1,1'234\n", "separated thousands (1'234)"),
        (b"\xff\xfea\x00", "is not UTF-8"),
        ("a,b\n1," + "x" * 200_000 + "\n", "field larger than field limit"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_texts_with_commas_are_texts(tmp_path: Path) -> None:
    held = ["Rome, 1,5", "a", "b", ",", "1,5"]
    assert table(tmp_path, "a;b\n" + "".join(f"{each};1\n" for each in held))["a"] == held


def test_column_names_may_be_whole_numbers_from_0(tmp_path: Path) -> None:
    assert table(tmp_path, "0,1\n5,6\n") == {"0": ["5"], "1": ["6"]}


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "MOST_BYTES", 2**20)
    monkeypatch.setattr(files, "MOST_BYTES", 2**20)
    assert "at most 1 MiB are read" in refused(tmp_path, "a\n" + "1\n" * 2**20)
    np.savez_compressed(tmp_path / "big.npz", x=np.zeros((2**18, 1)))
    with pytest.raises(VclError, match="of data, and at most"):
        files.read(tmp_path / "big.npz")


def test_arrays_are_named_x_and_y(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", x=np.ones((3, 2)), y=np.array(["a", "b", "a"]))
    found = files.read(tmp_path / "both.npz")
    assert isinstance(found, Arrays)
    assert found.x.shape == (3, 2)
    assert found.y is not None
    assert found.y.tolist() == ["a", "b", "a"]
    np.savez(tmp_path / "one.npz", x=np.ones((3, 2)))
    only = files.read(tmp_path / "one.npz")
    assert isinstance(only, Arrays)
    assert only.y is None


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": np.ones(2)}, "has the arrays a; name the inputs x"),
        ({"x": np.ones(2), "y": np.ones(2), "w": np.ones(2)}, "has the arrays w, x, y"),
        ({"x": np.ones((2, 1)), "y": np.ones(3)}, "x has shape (2, 1) and y has (3,)"),
        ({"x": np.array([{}, {}], dtype=object)}, "which only pickle could read"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(VclError) as caught:
        files.read(tmp_path / "t.npz")
    assert said in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "is no npz file, or it is damaged" in refused(tmp_path, "words", name="t.npz")
    assert "give a file that ends in .csv, .tsv, .npz, .parquet" in refused(tmp_path, "words", name="t.xlsx")
    assert "--delimiter is for CSV files" in refused(tmp_path, "words", ";", name="t.npz")
    with pytest.raises(VclError, match="is no file"):
        files.read(tmp_path / "nowhere.csv")


def test_parquet_without_pyarrow_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    said = refused(tmp_path, "PAR1", name="t.parquet")
    assert said.endswith(
        "is a Parquet file, and reading it needs pyarrow: pip install 'vcl[parquet]', or use CSV or npz."
    )


def test_parquet_with_pyarrow(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [1, None], "b": ["x", None]}), tmp_path / "t.parquet")
    found = files.read(tmp_path / "t.parquet")
    assert isinstance(found, dict)
    assert np.isnan(found["a"][1])
    assert found["b"].tolist() == ["x", None]
    assert "is no Parquet file" in refused(tmp_path, "words", name="bad.parquet")
