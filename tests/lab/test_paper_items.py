"""Every item of `vcl paper` through the command line at the smoke preset, with the 8x8 digits for all datasets."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import among_digits, call, fault, files_under

from vcl.lab import learning, loading
from vcl.lab.claim import claimed
from vcl.lab.datasets import MissingData, load
from vcl.lab.paper.item import Context, StreamItem
from vcl.lab.paper.items import ITEMS, item
from vcl.lab.paper.numbers import claims, numbers
from vcl.lab.paper.ordering import adversarial
from vcl.lab.paper.table import read_seen
from vcl.lab.results import matrix, methods, read_csv
from vcl.lab.runner import FinishedTask, run_method
from vcl.predicting.metrics import average_accuracy

SMOKE = "--preset smoke --device cpu"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return among_digits(tmp_path, monkeypatch)


def lines(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", [entry.name for entry in ITEMS])
def test_every_item_makes_its_rows_its_figure_and_its_lines(name: str, here: Path) -> None:
    result = call(f"paper {name} {SMOKE} --out out")
    assert result.exit_code == 0, result.output
    out = here / "out"
    for kind in ("png", "svg"):
        assert (out / name / f"{name}.{kind}").stat().st_size > 5000
    mine = [line for line in lines(out) if line["item"] == name]
    assert mine
    if isinstance(item(name), StreamItem):
        # The table's arithmetic against the rows beside the figure.
        rows = read_csv(out / name / "rows.csv")
        measures = item(name).measures
        shown = [(method + each.suffix, method, each) for method in methods(rows) for each in measures if each.listed]
        assert [line["what"] for line in mine] == [what for what, *_ in shown]
        for line, (_, method, measured) in zip(mine, shown, strict=True):
            values = matrix(rows, method, measured.metric)
            learned = torch.stack([values[:, task, task] for task in range(values.shape[1])], 1).mean(1)
            ends = learned if measured.suffix == " when learned" else average_accuracy(values)[:, -1]
            ends = measured.scale * ends
            assert float(line["ours"]) == pytest.approx(ends.mean().item(), abs=0.006)
            assert float(line["error"]) == pytest.approx((ends.std() / len(ends) ** 0.5).item(), abs=0.006)
            assert int(line["seeds"]) == len(ends) == 2
    text = (out / "table.md").read_text()
    assert "Preset smoke: not the paper's settings" in text
    assert all(f"| {name} | {line['what']} |" in text for line in mine)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    learned: list[str] = []

    def watched(*args: Any) -> Iterator[FinishedTask]:
        for done in run_method(*args):
            learned.append(done.method)
            yield done

    monkeypatch.setattr(learning, "run_method", watched)
    return learned


def test_a_second_call_recomputes_nothing_and_items_share_their_parts(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = counting(monkeypatch)
    assert call(f"paper fig2 {SMOKE} --out out").exit_code == 0
    first = list(learned)
    assert set(first) == {"vcl", "vcl-random", "vcl-kcenter", "random-only", "kcenter-only", "ewc", "si", "lp"}
    before = (here / "out" / "table.csv").read_bytes()
    assert call(f"paper fig2 {SMOKE} --out out").exit_code == 0
    assert learned == first
    assert (here / "out" / "table.csv").read_bytes() == before
    # The grids of the appendix are those that figure 2 chose its best from.
    assert call(f"paper lambda-permuted {SMOKE} --out out").exit_code == 0
    assert learned == first
    assert {line["item"] for line in lines(here / "out")} == {"fig2", "lambda-permuted"}
    assert {one.item for one in read_seen(here / "out" / "claims.csv")} == {"fig2", "lambda-permuted"}
    assert "Last added to by `vcl" in (here / "out" / "table.md").read_text()


def test_more_seeds_are_more_runs_of_the_same_parts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = counting(monkeypatch)
    assert call(f"paper lambda-permuted {SMOKE} --out out").exit_code == 0
    count, before = len(learned), files_under(here / "out" / "parts")
    assert call(f"paper lambda-permuted {SMOKE} --out out --seeds 3").exit_code == 0
    assert len(learned) == 2 * count
    after = files_under(here / "out" / "parts")
    assert before.items() <= after.items(), "what was there is not computed again"
    seeds = [
        sorted({run[1] for run in json.loads(after[name])["runs"]}) for name in after if name.endswith("part.json")
    ]
    assert sorted(seeds) == [[0, 1]] * 3 + [[2]] * 3
    assert {line["seeds"] for line in lines(here / "out")} == {"3"}


def test_a_setting_of_the_users_own_computes_anew_what_it_touches(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = counting(monkeypatch)
    assert call(f"paper lambda-permuted {SMOKE} --out out").exit_code == 0
    count = len(learned)
    assert call(f"paper lambda-permuted {SMOKE} --out out --set damping=0.7").exit_code == 0
    assert set(learned[count:]) == {"si"}
    count = len(learned)
    assert call(f"paper lambda-permuted {SMOKE} --out out --set ewc.lr=0.7").exit_code == 0
    assert set(learned[count:]) == {"ewc"}
    assert "takes a whole number" in fault(f"paper lambda-permuted {SMOKE} --out out --set epochs=many")
    for given, said in (
        ("dampin=1", "unknown setting 'dampin'; accepted: "),
        ("coreset=1", "setting coreset changes nothing for ewc, si, lp on cpu; leave it out. What can be set here: "),
        ("vcl.lr=1", "setting lr changes nothing for ewc, si, lp on cpu; leave it out. What can be set here: "),
        ("ewc.damping=1", "unknown setting 'damping'; accepted: "),
    ):
        assert fault(f"paper lambda-permuted {SMOKE} --out out --set {given}").startswith(said)


def test_an_item_without_its_data_is_left_out_and_named_and_the_others_are_made(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = load("digits")

    def some(name: str, *_: object, **__: object) -> Any:
        if name == "notmnist":
            raise MissingData("notmnist is nowhere; put it there.")
        return digits._replace(name=name)

    monkeypatch.setattr(loading, "read_dataset", some)
    message = fault(f"paper lambda-notmnist lambda-permuted {SMOKE} --out out")
    assert "lambda-notmnist could not be run: notmnist is nowhere; put it there." in message
    assert {line["item"] for line in lines(here / "out")} == {"lambda-permuted"}


def test_a_table_of_another_version_is_refused_before_any_work(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "claims.csv").write_text("item,claim,difference,error,seeds,verdict,place\n")
    message = fault(f"paper lambda-permuted {SMOKE} --out out")
    assert "claims.csv has the columns item, claim, difference" in " ".join(message.split())
    assert [path.name for path in (here / "out").iterdir()] == ["claims.csv"]


def test_the_list_names_every_item_and_where_it_is_in_the_paper(here: Path) -> None:
    output = call("paper list").output
    assert all(entry.name in output for entry in ITEMS)
    assert "figure 2" in output
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("fig9", "unknown item 'fig9'"),
        ("fig2 --preset fast", "unknown preset 'fast'"),
        ("fig2 --seeds 0", "--seeds is 0; give at least 1"),
        ("fig2 --device tpu", "unknown device 'tpu'"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(words: str, sentence: str, here: Path) -> None:
    assert sentence in fault(f"paper {words}")
    assert list(here.iterdir()) == []


def test_every_number_and_claim_of_the_paper_is_of_something_that_its_item_runs() -> None:
    """At the paper preset: a misspelt label would otherwise never be compared."""
    from vcl.lab.part import Loaded
    from vcl.lab.streams import arrays

    made = arrays(load("digits"))
    context = Context("paper", lambda name: Loaded(made, "digits", made.digest()))
    for entry in ITEMS:
        if not isinstance(entry, StreamItem):
            continue
        labels = {
            (request.label or request.method) + measured.suffix
            for request in entry.requests(context)
            for measured in entry.measures
        }
        for method in numbers(entry.name):
            assert method in labels, (entry.name, method)
        for claim in claims(entry.name):
            for name in {name for pair in claim.pairs for name in pair}:
                assert name.partition(" lambda=")[0] in labels, (entry.name, name)


def test_the_adversarial_order_goes_to_the_farthest_task_left() -> None:
    means = torch.tensor([[0.0], [1.0], [10.0], [4.0]])
    assert adversarial(means) == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("item", "change"),
    [
        ("fig3", "coreset=7"),
        ("lambda-split", "heads=multi"),
        ("estimators", "init_var=1e-3"),
        ("ordering", "order=1,0"),
    ],
)
def test_a_setting_that_an_item_compares_values_of_is_refused(here: Path, item: str, change: str) -> None:
    key = change.partition("=")[0]
    message = fault(f"paper {item} {SMOKE} --out out --set {change}")
    assert message.startswith(f"--set {key}=… was given, but {item} compares values of that setting")
    assert not (here / "out").exists()


def test_a_folder_of_another_preset_or_of_another_process_is_refused(here: Path) -> None:
    assert call(f"paper toy2d {SMOKE} --out out").exit_code == 0
    before = (here / "out" / "table.md").read_text()
    message = fault("paper toy2d --preset quick --seeds 2 --device cpu --out out")
    assert message == "out holds results of another preset than quick; give --out another folder."
    with claimed(here / "out"):
        assert fault(f"paper toy2d {SMOKE} --out out").startswith("another vcl is at work in out")
    assert call(f"paper toy2d {SMOKE} --out out").exit_code == 0
    assert (here / "out" / "table.md").read_text() == before
