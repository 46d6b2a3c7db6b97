"""`vcl report`: the page of folders of results has the numbers of their rows."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_made import alone, call, done, fault, without_checksums

from vcl.lab.report import objectives
from vcl.lab.report.objectives import Budget
from vcl.lab.results import read_confidences, read_csv, read_measures, read_objectives
from vcl.pages import is_page

RESULTS = Path(__file__).parents[2] / "results"
SMOKE = "--preset smoke --device cpu --out out"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two methods, a grid of lambdas, other settings and generators."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        here = alone(tmp_path_factory.mktemp("story"), monkeypatch)
        for line in (
            f"run split-digits --method vcl,mle {SMOKE}",
            f"run split-digits --method ewc --grid lambda=1,10 {SMOKE}",
            f"run split-digits --method vcl --set epochs=3 {SMOKE}",
            f"run generative-digits --method vcl {SMOKE}",
        ):
            done(line)
    return here / "out"


@pytest.fixture
def out(story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return Path(shutil.copytree(story, alone(tmp_path, monkeypatch) / "out"))


def data_of(path: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(stored: Any) -> Any:
    return np.frombuffer(b64decode(stored["data"]), f"<f{stored['size']}")


def rows_of(group: Any) -> dict[tuple[str, int, int, int, str], float]:
    """Every row of a comparison on a page."""
    found = {}
    for line in group["lines"]:
        for metric, stored in line["values"].items():
            values = unpacked(stored).reshape(len(line["seeds"]), -1)
            for place, seed in enumerate(line["seeds"]):
                pairs = [(after, on) for after in range(1, line["tasks"] + 1) for on in range(1, after + 1)]
                for (after, on), value in zip(pairs, values[place].tolist(), strict=True):
                    found[line["label"], seed, after, on, metric] = value
    return found


def test_a_page_has_every_row_of_the_folder(out: Path) -> None:
    assert "out/report.html" in done("report out")
    groups = {group["name"]: group for group in data_of(out / "report.html")["groups"]}
    assert sorted(groups) == ["generative-digits", "split-digits"]
    done("show out")
    for name, group in groups.items():
        wanted = {row[:5]: row.value for row in read_csv(out / name / "rows.csv")}
        assert rows_of(group) == wanted


def test_lines_lambdas_fits_and_settings(out: Path) -> None:
    done("report out")
    group = next(each for each in data_of(out / "report.html")["groups"] if each["name"] == "split-digits")
    lines = {line["label"]: line for line in group["lines"]}
    assert list(lines) == ["vcl", "mle", "ewc lambda=1", "ewc lambda=10", "vcl epochs=3"]
    assert (lines["ewc lambda=10"]["part"], lines["ewc lambda=10"]["lam"]) == ("ewc", 10.0)
    assert dict(lines["vcl epochs=3"]["settings"])["epochs"] == "3"
    assert dict(lines["vcl epochs=3"]["settings"])["changed"] == "epochs=3"
    made = lines["vcl"]["made"][0]
    assert made["engine"].startswith("layered")
    assert made["folder"].startswith("parts/split-digits-vcl-")
    objective = read_objectives(out / made["folder"] / "objective.csv")
    shown = {
        (seed, fit["task"], fit["fit"], epoch): value
        for fit in lines["vcl"]["objective"]
        for seed, values in zip(
            lines["vcl"]["seeds"],
            unpacked(fit["values"]).reshape(-1, len(fit["epochs"])),
            strict=True,
        )
        for epoch, value in zip(fit["epochs"], values.tolist(), strict=True)
    }  # fmt: skip
    assert shown == {(one.seed, one.task, one.fit, one.epoch): one.value for one in objective}
    measured = {
        (seed, fit["task"], fit["fit"], name): value
        for fit in lines["vcl"]["fits"]
        for name, values in fit["measures"].items()
        for seed, value in zip(lines["vcl"]["seeds"], values, strict=True)
    }
    rows = read_measures(out / made["folder"] / "fits.csv")
    assert measured == {(one.seed, one.task, one.fit, one.measure): one.value for one in rows}


def test_reliability_is_the_sum_of_the_confidences_of_all_tasks(out: Path) -> None:
    done("report out")
    line = line_of(out, "vcl")
    rows = read_confidences(out / line["made"][0]["folder"] / "calibration.csv")
    for when, wanted in (
        ("end", [each for each in rows if each.after == line["tasks"]]),
        ("learned", [each for each in rows if each.after == each.on]),
    ):
        found = unpacked(line["reliability"][when]).reshape(len(line["seeds"]), 10, 3)
        sums = np.zeros_like(found)
        for each in wanted:
            sums[line["seeds"].index(each.seed), each.bin - 1] += (
                each.examples,
                each.right,
                each.examples * each.confidence,
            )
        assert np.allclose(found, sums)
        assert found.sum() > 0


def test_a_folder_of_an_earlier_version_without_confidences_has_a_page(out: Path) -> None:
    without_checksums(out)
    for path in out.glob("parts/*/calibration.csv"):
        path.unlink()
    done("report out")
    assert line_of(out, "vcl")["reliability"] == {}


def line_of(out: Path, label: str) -> Any:
    """A line of the page's first group."""
    group = next(each for each in data_of(out / "report.html")["groups"] if each["name"] == "split-digits")
    return next(each for each in group["lines"] if each["label"] == label)


def test_generators_have_pictures(out: Path) -> None:
    done("report out")
    group = next(each for each in data_of(out / "report.html")["groups"] if each["name"] == "generative-digits")
    assert [(each["label"], each["columns"]) for each in group["pictures"]] == [("vcl", len(group["tasks"]))]


def test_several_folders_stand_side_by_side(out: Path) -> None:
    shutil.copytree(out, out.parent / "b")
    shutil.rmtree(next((out / "parts").glob("generative-digits-*")))
    done("report out b --out both.html")
    groups = data_of(out.parent / "both.html")["groups"]
    assert next(group["title"] for group in groups) == "split-digits: out, b"
    labels = [line["label"] for line in groups[0]["lines"]]
    assert labels[0] == "vcl (out)"
    assert "vcl (b)" in labels
    assert "ewc (b) lambda=10" in labels
    assert [line["label"] for line in groups[1]["lines"]] == ["vcl (b)"]


def test_published_rows_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = alone(tmp_path, monkeypatch)
    shutil.copytree(RESULTS / "paper", here / "paper")
    done("report paper --out page.html")
    data = data_of(here / "page.html")
    table = data["sections"][0]["blocks"][0]["rows"]
    first = next(row for row in table if row[:2] == ["fig2", "vcl"])
    assert (first[2]["value"], first[3]["text"], first[5]["badge"]) == (90.0, "88.29 ± 0.56", "bad")
    title, label, metric = first[3]["of"]
    group = next(each for each in data["groups"] if each["title"] == title)
    line = next(each for each in group["lines"] if each["label"] == label)
    ends = [
        value
        for (name, _, after, _, what), value in rows_of(group).items()
        if (name, after, what) == ("vcl", 10, metric)
    ]
    assert line["paper"] == 90.0
    assert 100 * np.mean(ends) == pytest.approx(88.29, abs=0.005)


def test_a_hostile_name_is_data(out: Path) -> None:
    bad = "</script><script>alert(1)</script>"
    part = without_checksums(next((out / "parts").glob("split-digits-mle-*"))) / "part.json"
    known = json.loads(part.read_text())
    part.write_text(json.dumps(known | {"notes": [bad], "command": bad}))
    done("report out")
    text = (out / "report.html").read_text()
    assert bad not in text
    assert any(bad in note for group in data_of(out / "report.html")["groups"] for note in group["notes"])


def test_a_page_is_replaced_and_another_file_is_not(out: Path) -> None:
    done("report out --out page.html")
    done("report out --out page.html")
    (out.parent / "mine.html").write_text("mine")
    for line, words in (
        ("report out --out mine.html", "is no page of vcl"),
        ("report out --out page.txt", "ends in .html"),
        ("report out --out nowhere/page.html", "is not a folder"),
        ("report out --out out", "which is a folder"),
        ("report nothing", "is no folder"),
        ("report out out", "given twice"),
    ):
        assert words in fault(line)
    assert (out.parent / "mine.html").read_text() == "mine"
    assert is_page((out.parent / "page.html").read_text()[:4096])


def test_a_folder_without_results_is_refused(out: Path) -> None:
    (out.parent / "empty").mkdir()
    assert "holds no results" in fault("report empty")
    assert not (out.parent / "empty" / "report.html").exists()


def test_many_objectives_are_thinned(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Budget(4).take(range(1, 101)) == [1, 34, 67, 100]
    assert Budget(None).take(range(1, 4)) == [1, 2, 3] == Budget(5).take(range(1, 4))
    monkeypatch.setattr(objectives, "MOST", 1)
    done("run split-digits --method mle --set epochs=30 " + SMOKE)
    done("report out")
    groups = data_of(out / "report.html")["groups"]
    assert max(len(fit["epochs"]) for group in groups for line in group["lines"] for fit in line["objective"]) == 6
    assert all("at most 6 epochs" in group["thinned"] for group in groups)


def test_unfinished_parts_are_named(out: Path) -> None:
    part = without_checksums(next((out / "parts").glob("split-digits-mle-*"))) / "part.json"
    part.write_text(json.dumps(json.loads(part.read_text()) | {"finished": False}))
    done("report out")
    group = next(each for each in data_of(out / "report.html")["groups"] if each["name"] == "split-digits")
    assert len(group["unfinished"]) == 1
    assert "mle" not in [line["label"] for line in group["lines"]]
    assert call("report out").exit_code == 0
