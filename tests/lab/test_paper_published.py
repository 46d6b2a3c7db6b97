"""What is published follows from the tables beside it."""

import importlib.util
import json
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from vcl.lab.paper.item import StreamItem, measure
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.table import read_lines
from vcl.lab.results import methods, read_csv

ROOT = Path(__file__).parents[2]


def script(name: str = "paper") -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"results_{name}", ROOT / "results" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_document_is_what_the_tables_make_of_it() -> None:
    assert (ROOT / "docs" / "reproduction.md").read_text() == script().document()


def test_the_table_is_what_the_published_rows_make_of_it() -> None:
    folder = ROOT / "results" / "paper"
    lines = {(line.item, line.what): line for line in read_lines(folder / "table.csv")}
    seen = 0
    for item in ITEMS:
        if isinstance(item, StreamItem) and (folder / item.name).is_dir():
            rows = read_csv(folder / item.name / "rows.csv")
            for name, measured in product(methods(rows), [each for each in item.measures if each.listed]):
                mine = [row for row in rows if row.method == name and row.metric == measured.metric]
                last, learned = max(row.after for row in mine), measured.suffix == " when learned"
                by_seed: dict[int, list[float]] = {}
                for row in mine:
                    if row.after == (row.on if learned else last):
                        by_seed.setdefault(row.seed, []).append(measured.scale * row.value)
                means = [sum(values) / len(values) for values in by_seed.values()]
                line = lines[item.name, name + measured.suffix]
                assert abs(float(line.ours) - sum(means) / len(means)) < 0.006
                assert line.seeds == len(means)
                if len({row.after for row in rows}) == last:
                    assert measure(rows, name, measured) == pytest.approx(dict(zip(by_seed, means, strict=True)))
                seen += 1
    assert seen > 20


def test_the_comparison_with_the_run_made_again_is_what_both_tables_make_of_it() -> None:
    again = script("again")
    assert (ROOT / "results" / "paper-again" / "compared.csv").read_text() == again.to_csv(again.compared())


@pytest.mark.parametrize("folder", ["paper", "paper-again"])
def test_every_part_names_its_command_machine_versions_and_time(folder: str) -> None:
    for part in json.loads((ROOT / "results" / folder / "parts.json").read_text()):
        assert part["finished"]
        assert part["command"].startswith("vcl paper ")
        assert part["seconds"] > 0
        assert part["device"]
        assert part["torch"]
        assert part["description"]["version"]
