"""What is published follows from the rows beside it, and a second run is compared with it seed by seed."""

import csv
import importlib.util
import json
import shutil
from collections import Counter
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from vcl.errors import VclError
from vcl.lab.paper import compare
from vcl.lab.paper.item import StreamItem, measure
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.numbers import claims
from vcl.lab.paper.published import copy_rows, items_in, rebuild, rounded, seconds_of
from vcl.lab.paper.table import read_lines, read_seen
from vcl.lab.results import methods, read_csv, to_csv

ROOT = Path(__file__).parents[2]
PAPER, AGAIN = ROOT / "results" / "paper", ROOT / "results" / "paper-again"


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
    folder = PAPER
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


def test_tables_and_claims_are_functions_of_the_published_rows(tmp_path: Path) -> None:
    for item in items_in(PAPER):
        (tmp_path / item.name).mkdir()
        shutil.copyfile(PAPER / item.name / "rows.csv", tmp_path / item.name / "rows.csv")
    rebuild(tmp_path, seconds_of(PAPER))
    for name in ("table.csv", "claims.csv", "table.md"):
        assert (tmp_path / name).read_text() == (PAPER / name).read_text(), name


def test_every_claim_of_the_paper_is_judged_under_its_own_words() -> None:
    seen = {(one.item, one.claim): one for one in read_seen(PAPER / "claims.csv")}
    text = (ROOT / "docs" / "reproduction.md").read_text()
    expected = [claim for item in ITEMS for claim in claims(item.name)]
    assert set(seen) == {(claim.item, claim.text) for claim in expected}
    for claim in expected:
        assert seen[claim.item, claim.text].quote == claim.quote
        assert f"> {claim.quote} ({claim.place})" in text


# Of the published run: how many numbers a group has, and how many are within, better and worse.
COUNTS = {
    "vcl": (7, 6, 0, 1),
    "baselines": (6, 2, 3, 1),
    "other data": (5, 2, 2, 1),
    "third party": (4, 0, 4, 0),
    "repeated": (1, 1, 0, 0),
}


def test_vcls_own_numbers_are_counted_once_and_apart_from_the_rest() -> None:
    module = script()
    lines = [line for line in read_lines(PAPER / "table.csv") if line.paper]
    found = {}
    for group in COUNTS:
        mine = Counter(line.verdict for line in lines if module.group_of(line) == group)
        found[group] = (mine.total(), mine["within"], mine["better"], mine["worse"])
    assert found == COUNTS
    assert sum(counts[0] for counts in COUNTS.values()) == len(lines)
    text = (ROOT / "docs" / "reproduction.md").read_text()
    assert "Of 7 numbers 6 are within their tolerance, 0 better and 1 worse." in text
    assert "Of 6 numbers 2 are within their tolerance, 3 end above the paper's number and 1 below." in text


README_ROWS = {
    "Permuted MNIST, 10 tasks: VCL": [("fig2", "vcl")],
    "Permuted MNIST: VCL + random / K-center coreset of 200": [("fig2", "vcl-random"), ("fig2", "vcl-kcenter")],
    "Permuted MNIST: `vcl-restart` without memory / with 200 random points": [
        ("estimators", "vcl-restart"),
        ("estimators", "vcl-restart + random coreset"),
    ],
    "Permuted MNIST: EWC / SI / LP": [("fig2", each) for each in ("ewc lambda=100", "si lambda=0.5", "lp lambda=100")],
    "Split MNIST, 5 tasks: VCL": [("fig4", "vcl")],
    "Split MNIST: VCL + random / K-center coreset of 40": [("fig4", "vcl-random"), ("fig4", "vcl-kcenter")],
    "Split MNIST: EWC / SI / LP": [("fig4", each) for each in ("ewc lambda=10000", "si lambda=1", "lp lambda=100")],
    "Split notMNIST (ours: the small set), 5 tasks: VCL": [("fig5", "vcl")],
    "Split notMNIST: VCL + random / K-center coreset of 40": [("fig5", "vcl-random"), ("fig5", "vcl-kcenter")],
    "Split notMNIST: random / K-center coreset of 40 alone": [("fig5", "random-only"), ("fig5", "kcenter-only")],
    "Split notMNIST: EWC / SI / LP": [("fig5", each) for each in ("ewc lambda=10000", "si lambda=3", "lp lambda=100")],
}
GENERATORS = ("vcl", "si lambda=10", "lp lambda=100", "ewc lambda=10", "naive")
README_GENERATORS = {
    "MNIST: test log-likelihood of all digits (higher is better)": ("generative-mnist", "", 1),
    "MNIST: classifier uncertainty on samples (lower is better)": ("generative-mnist", " uncertainty", 2),
    "notMNIST (small): test log-likelihood": ("generative-notmnist", "", 1),
    "notMNIST (small): classifier uncertainty": ("generative-notmnist", " uncertainty", 2),
}


METHODS = "docs/choosing.md"
"""Where the numbers of the generators are, the claims and what repeated runs say."""


def test_the_tables_of_the_documents_are_the_published_numbers() -> None:
    lines = {(line.item, line.what): line for line in read_lines(PAPER / "table.csv")}
    texts = [(ROOT / name).read_text() for name in ("README.md", METHODS)]
    rows = [row.strip("| ").split(" | ") for text in texts for row in text.splitlines() if "±" in row]
    cells = {row[0]: row[1:] for row in rows if len(row) > 1}

    def agree(cell: str, key: tuple[str, str], digits: int) -> None:
        mean, error = cell.strip("*").split(" ± ")
        half = 0.5001 * 10**-digits + 0.005  # the table itself has two digits
        assert abs(float(mean) - float(lines[key].ours)) <= half, key
        assert abs(float(error) - float(lines[key].error)) <= half, key

    for name, keys in README_ROWS.items():
        for cell, key in zip(cells[name][1].split(" / "), keys, strict=True):
            agree(cell, key, 1)
    for name, (item, suffix, digits) in README_GENERATORS.items():
        for cell, method in zip(cells[name][1:], GENERATORS, strict=True):
            agree(cell, (item, method + suffix), digits)


def test_the_table_beside_ewc_and_si_has_the_published_numbers() -> None:
    lines = {(line.item, line.what): line for line in read_lines(PAPER / "table.csv")}
    text = (ROOT / METHODS).read_text()
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if "±" in row]
    cells = {row[0]: row[1:] for row in rows}
    streams = {
        "Permuted MNIST, ten tasks": ("fig2", "ewc lambda=100", "si lambda=0.5", "lp lambda=100"),
        "Split MNIST, five tasks": ("fig4", "ewc lambda=10000", "si lambda=1", "lp lambda=100"),
        "Split notMNIST (small), five tasks": ("fig5", "ewc lambda=10000", "si lambda=3", "lp lambda=100"),
    }
    for stream, (item, *tuned) in streams.items():
        found = [lines[item, what] for what in ("vcl", "vcl-random", *tuned)]
        assert cells[stream][:5] == [f"{float(one.ours):.1f} ± {float(one.error):.1f}" for one in found]
    kron = (ROOT / "README.md").read_text() + text  # held against its rows elsewhere
    for stream in streams:
        assert f"{cells[stream][5].strip('*')}" in kron.replace(f"| {' | '.join(cells[stream])} |", "")


def test_the_claims_are_counted_as_they_are_judged() -> None:
    found = Counter(one.verdict for one in read_seen(PAPER / "claims.csv"))
    words = " ".join((ROOT / METHODS).read_text().split())
    assert (
        f"Of {found.total()} claims of the paper, {found['true']} are true here, {found['false']} false and "
        f"{found['undecided']} undecided" in words
    )


def test_the_spread_of_repeated_runs_is_the_same_in_every_document() -> None:
    said = "88.3 ± 0.6, 88.6 ± 0.4 and 87.9 ± 0.8"
    for name in (METHODS, "docs/reproduction.md"):
        assert said in " ".join((ROOT / name).read_text().split()), name
    for name in ("README.md", METHODS, "docs/reproduction.md", "docs/differences.md"):
        assert "88.9 ±" not in (ROOT / name).read_text(), name


def test_a_comma_in_a_name_survives_shortening(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('method,seed,value\n"EWC, own anchors",3,0.123456789\n')
    (tmp_path / "short.csv").write_text(rounded(tmp_path / "rows.csv"))
    with (tmp_path / "short.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["method", "seed", "value"], ["EWC, own anchors", "3", "0.123457"]]


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """A second run of three items: VCL two points better in every seed, LP noisier, the others as published."""
    folder = tmp_path / "run"
    for name in ("fig2", "lambda-permuted", "toy2d"):
        (folder / name).mkdir(parents=True)
        shutil.copyfile(PAPER / name / "rows.csv", folder / name / "rows.csv")
    for name in ("fig2", "lambda-permuted"):
        moved = []
        for row in read_csv(folder / name / "rows.csv"):
            by = {"vcl": 0.02 + 1e-4 * row.seed, "lp lambda=100": 0.01 * (-1) ** row.seed}.get(row.method, 0.0)
            moved.append(row._replace(value=row.value + by))
        moved.append(moved[0]._replace(method="mle"))
        (folder / name / "rows.csv").write_text(to_csv([row for row in moved if row.method != "vcl-kcenter"]))
    lines = (PAPER / "table.csv").read_text() + "fig2,mle,,1,,1,,2.0,\nlambda-permuted,mle,,1,,1,,2.0,\n"
    (folder / "table.csv").write_text(lines)
    part = {"finished": True, "seconds": 1.0}
    for number, finished in enumerate((True, False)):
        (folder / "parts" / str(number)).mkdir(parents=True)
        (folder / "parts" / str(number) / "part.json").write_text(json.dumps(part | {"finished": finished}))
    return folder


def test_a_second_run_is_kept_with_its_rows_and_compared_seed_by_seed(second: Path, tmp_path: Path) -> None:
    again, after = script("again"), tmp_path / "again"
    again.keep(second, PAPER, after)
    said = again.report(PAPER, after)
    assert sorted(path.name for path in after.iterdir()) == [
        "claims.csv", "compared.csv", "fig2", "lambda-permuted", "parts.json", "table.csv", "table.md", "toy2d",
    ]  # fmt: skip
    assert len(json.loads((after / "parts.json").read_text())) == 1
    with (after / "compared.csv").open(newline="") as file:
        lines = {(row["item"], row["what"]): row for row in csv.DictReader(file)}
    # Two independent errors of 0.56 would leave 2.05 points undecided; pairs by seed do not.
    vcl = lines["fig2", "vcl"]
    assert (vcl["before"], vcl["after"], vcl["difference"], vcl["seeds"]) == ("88.29", "90.33", "2.045", "10")
    assert float(vcl["error"]) == pytest.approx(0.00957, abs=0.001)
    assert float(vcl["p"]) == 0
    lp = lines["fig2", "lp lambda=100"]
    assert (lp["difference"], lp["error"], lp["t"], lp["p"]) == ("0.000", "0.333", "0.00", "1.0000")
    assert ("lambda-permuted", "lp lambda=100") not in lines, "one number, compared once"
    assert lines["toy2d", "vcl: task 1 after task 1"]["difference"] == "0.000"
    assert f"{len(lines)} numbers were compared seed by seed" in said
    assert "Of the other 2, 1 differ at the 5% level; 0.1 are expected by chance" in said
    assert "Only one of the runs has: fig2, vcl-kcenter; fig2, mle; lambda-permuted, mle." in said
    assert "fig2, VCL outperforms SI by a large margin: undecided, then true." in said


def test_the_same_run_has_no_differences(tmp_path: Path) -> None:
    shutil.copytree(PAPER / "fig4", tmp_path / "fig4")
    lines, missing = compare.compare(PAPER, tmp_path)
    assert len(lines) == 9
    assert missing == []
    assert compare.summary(lines, missing) == (
        "9 numbers were compared seed by seed by a paired t test. 9 are the same in every seed."
    )


def test_what_holds_no_rows_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    again, after = script("again"), tmp_path / "again"
    after.mkdir()
    (after / "kept").touch()
    with pytest.raises(VclError, match="holds no rows"):
        again.keep(tmp_path / "nowhere", PAPER, after)
    with pytest.raises(VclError, match="holds no rows"):
        again.report(PAPER, after)
    with pytest.raises(VclError, match="holds no rows"):
        copy_rows(tmp_path / "nowhere", after)
    assert (after / "kept").exists()


def test_the_comparison_with_the_run_made_again_is_what_both_runs_rows_make_of_it() -> None:
    assert any(items_in(AGAIN))
    again = script("again")
    before = (AGAIN / "compared.csv").read_text()
    assert before == again.write(compare.compare(PAPER, AGAIN)[0])


@pytest.mark.parametrize("folder", ["paper", "paper-again"])
def test_every_part_names_its_command_machine_versions_and_time(folder: str) -> None:
    for part in json.loads((ROOT / "results" / folder / "parts.json").read_text()):
        assert part["finished"]
        assert part["command"].startswith("vcl paper ")
        assert part["seconds"] > 0
        assert part["device"]
        assert part["builds"]
        assert all(build["vcl"] and build["torch"] for build in part["builds"])
