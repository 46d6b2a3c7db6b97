"""CSV files as columns of texts. Nothing is guessed that could be wrong without a word.

encoding     UTF-8, with or without a byte order mark
header       required: one name for each column, no name empty or twice
delimiter    the only one of , ; tab and | that the header has (tab in a .tsv); with several, --delimiter says which
quotes       "a, b" is one field, "" in it is a quote; spaces before a field are dropped
numbers      as 1234.5: decimal commas and separated thousands are refused
rows         as many fields as the header; empty lines are skipped
size         at most 256 MiB and 65,536 columns, because every field is kept in memory until the table is numbers
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from vcl.errors import VclError
from vcl.lab.model.columns import MOST_COLUMNS, Columns, first_twice
from vcl.learner.tables import MISSING

if TYPE_CHECKING:
    from _csv import Reader

MOST_BYTES = 2**28
"""The most bytes of a CSV file that is read."""

MOST_LINE = 2**24
"""The most characters of a line."""

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}

OTHER_NUMBER = re.compile(
    r"""[+-]?(
        (?=.*\d)[\d.,]*,[\d.,]*           # 1,5 and 1,234 and 1.234,56
        | \d{1,3}([ '’\u00a0\u202f]\d{3})+([.,]\d*)?  # 1 234 and 1'234.5
    )(e[+-]?\d+)?""",
    re.VERBOSE | re.IGNORECASE,
)
"""Numbers as people write them, and as no number is read."""

LONG = 64
"""Texts of so many characters are no numbers."""


def read(path: Path, delimiter: str | None) -> Columns:
    """The columns of a file, each an array of texts [N]; VclError with the line of what is wrong."""
    if path.stat().st_size > MOST_BYTES:
        raise VclError(
            f"{path} has {path.stat().st_size / 2**20:,.0f} MiB, and CSV files of at most {MOST_BYTES >> 20} MiB are "
            "read; split it into several updates, or give an npz or Parquet file."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            used = _delimiter(path, file, delimiter)
            rows = csv.reader(_bounded(path, file), delimiter=used, strict=True, skipinitialspace=True)
            return _columns(path, rows)
    except UnicodeDecodeError as error:
        raise VclError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8.") from error


def _bounded(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a file; VclError at one that is too long."""
    while line := file.readline(MOST_LINE + 1):
        if len(line) > MOST_LINE:
            raise VclError(
                f"{path} has a line of more than {MOST_LINE:,} characters; check that it is CSV, or give an npz file."
            )
        yield line


def _columns(path: Path, rows: Reader) -> Columns:
    names: list[str] | None = None
    found: list[list[str]] = []
    known: dict[str, str] = {}
    for line, row in _lines(path, rows):
        if not row:
            continue
        if names is None:
            names = _names(path, row)
            found = [[] for _ in names]
            continue
        if len(row) != len(names):
            raise VclError(
                f"{path}, line {line}, has {len(row)} fields, and the header has {len(names)}; mend that line, or say "
                "with --delimiter what stands between fields."
            )
        for column, text in zip(found, row, strict=True):
            column.append(known.setdefault(text, text))
    if names is None:
        raise VclError(f"{path} is empty; give a CSV file with a header and rows.")
    if not found[0]:
        raise VclError(f"{path} has a header and no rows; give at least one row.")
    columns = {name: np.array(column, dtype=object) for name, column in zip(names, found, strict=True)}
    _refuse_other_numbers(path, columns)
    return columns


def _lines(path: Path, rows: Reader) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their last line, from 1."""
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise VclError(f"{path}, line {rows.line_num}, is no CSV ({error}); mend that line.") from error


def _names(path: Path, header: list[str]) -> list[str]:
    if len(header) > MOST_COLUMNS:
        raise VclError(
            f"{path} has {len(header):,} columns, and at most {MOST_COLUMNS:,} are read; give an npz file with an "
            "array x."
        )
    names = [name.strip() for name in header]
    if "" in names:
        raise VclError(
            f"column {names.index('') + 1} of {path} has no name; name it, or leave it out (pandas writes its row "
            "numbers so: to_csv(..., index=False))."
        )
    if twice := first_twice(names):
        raise VclError(f"{path} has the column {twice!r} twice; give each column a name of its own.")
    if all(map(_is_number, names)) and names != [str(place) for place in range(len(names))]:
        raise VclError(
            f"the first line of {path} has only numbers ({', '.join(names[:4])}, ...); put the columns' names there."
        )
    return names


def _delimiter(path: Path, file: TextIO, given: str | None) -> str:
    """The given delimiter, or the only one that the header has; the file is at its start again."""
    if given is None and path.suffix.lower() == ".tsv":
        return "\t"
    if given is not None:
        found = {"tab": "\t", "\\t": "\t"}.get(given, given)
        if len(found) != 1 or found in '"\r\n ':
            raise VclError(f"--delimiter is {given!r}; give one character, such as ';', or tab.")
        return found
    # A quoted name may hold any of them.
    header = re.sub(r'"[^"]*"', "", next((line for line in _bounded(path, file) if line.strip()), ""))
    file.seek(0)
    there = [each for each in DELIMITERS if each in header]
    if len(there) > 1:
        raise VclError(
            f"the header of {path} has several delimiters ({', '.join(DELIMITERS[each] for each in there)}); say which "
            f"one stands between fields, as in --delimiter '{there[0]}'."
        )
    return there[0] if there else ","


def _refuse_other_numbers(path: Path, columns: Columns) -> None:
    """Numbers such as 1,5 and 1,234 would become categories. Columns are numbers if half of their values are."""
    for name, values in columns.items():
        there = dict.fromkeys(text.strip() for text in values if text.strip().lower() not in MISSING)
        other = [text for text in there if len(text) < LONG and OTHER_NUMBER.fullmatch(text)]
        if other and 2 * (len(other) + sum(map(_is_number, there))) >= len(there):
            raise VclError(
                f"column {name!r} of {path} has decimal commas or separated thousands ({other[0]}); write numbers as "
                "1234.5 (and codes with a letter, such as c1,5)."
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
