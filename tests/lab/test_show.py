"""`vcl show`: the tables and figures of a folder again, from its parts or its published rows alone."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import time
from types import ModuleType
from typing import Any

import pytest
from lab_made import alone, among_digits, call, done, fault, files_under, part_folder, shown_rows, without_checksums

from vcl.lab.claim import claimed
from vcl.lab.experiments.digits import SPLIT_DIGITS
from vcl.lab.folder import ABANDONED
from vcl.lab.parts import gathered, same_part
from vcl.lab.registry import FILES
from vcl.lab.results import final, methods, read_csv
from vcl.lab.store import Stack
from vcl.lab.tables import markdown

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of several groups: a sweep, another stream, other settings, generators and a regression."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        here = alone(tmp_path_factory.mktemp("story"), monkeypatch)
        smoke = "--preset smoke --device cpu --out out"
        for line in (
            f"run split-digits --method vcl,mle {smoke}",
            f"sweep split-digits --method ewc --grid lambda=1,10 {smoke}",
            f"run split-digits --method vcl --set epochs=3 {smoke}",
            f"run split-digits --method vcl --set tasks=3 {smoke}",
            f"run generative-digits --method vcl,naive {smoke}",
            f"run sine --method vcl {smoke}",
        ):
            done(line)
    return here / "out"


@pytest.fixture
def out(story: Path, here: Path) -> Path:
    shutil.copytree(story, here / "out")
    return here / "out"


# Folders of parts.


def test_what_a_killed_process_left_beside_figures_is_removed_when_it_is_old(here: Path) -> None:
    done("run split-digits --method mle --preset smoke --device cpu --out out")
    for place in (here / "out", here / "out" / "split-digits"):
        for name, age in ((".table.md.abcd.tmp", 2 * ABANDONED), (".a.png.efgh.tmp", 0.0), ("mine.tmp", 2 * ABANDONED)):
            (place / name).write_text("half")
            os.utime(place / name, (time() - age, time() - age))
    done("show out")
    left = sorted(path.name for path in (here / "out").rglob("*.tmp"))
    assert left == [".a.png.efgh.tmp", ".a.png.efgh.tmp", "mine.tmp", "mine.tmp"]


def test_the_same_tables_and_figures_come_from_the_parts_alone(out: Path) -> None:
    before = files_under(out)
    groups = [path.name for path in out.iterdir() if path.is_dir() and path.name != "parts"]
    assert sorted(groups) == [
        "generative-digits", "sine", "split-digits", "split-digits-2", "split-digits-validation"
    ]  # fmt: skip
    for name in groups:
        shutil.rmtree(out / name)
    (out / "table.md").unlink()
    assert {name.partition("/")[0] for name in files_under(out)} == {"parts"}
    said = done("show out")
    after = files_under(out)
    assert sorted(after) == sorted(before)
    assert [name for name in before if after[name] != before[name]] == []
    assert all(f"figure out/{name}/" in said for name in groups)
    # And where everything is there already.
    done("show out")
    assert files_under(out) == before


def test_what_a_table_says_is_what_the_rows_say(out: Path) -> None:
    rows, table = shown_rows(out), (out / "table.md").read_text()
    assert methods(rows) == ["vcl", "mle", "ewc lambda=10", "vcl epochs=3"] or methods(rows) == [
        "vcl", "mle", "ewc lambda=1", "vcl epochs=3"
    ]  # fmt: skip
    for name in methods(rows):
        mean = final(rows, name)["average accuracy"].mean
        assert table.count(f"\n| {name} | {100 * mean:.2f} ± ") >= 1
    parts = [read_csv(path / "rows.csv") for path in out.glob("parts/split-digits-*")]
    assert sum(len(part) for part in parts) == sum(
        len(shown_rows(out, group)) for group in ("split-digits", "split-digits-2", "split-digits-validation")
    )
    sections = table.split("\n# ")
    assert len(sections) == 5
    assert sum(section.count("\n- vcl") for section in sections) == 5, "one line for each part on what made it"


def test_what_is_said_of_a_line_has_its_label_and_values_as_they_were_read(out: Path) -> None:
    without_checksums(out)
    plain, other = sorted(
        (json.loads(p.read_text())["changes"], p) for p in (out / "parts").glob("split-digits-vcl-*/part.json")
    )[:2]
    assert other[0] == ["epochs=3"]
    for (_, path), said in ((plain, "vcl: 2 of 2 fits"), (other, "1 of 2 fits")):  # older parts name the method
        about = json.loads(path.read_text())
        path.write_text(
            json.dumps(about | {"still_moving": said, "changes": ["epochs=0_3 "] if path == other[1] else []})
        )
    done("show out")
    text = (out / "table.md").read_text()
    assert "\nvcl: 2 of 2 fits\n" in text
    assert "\nvcl epochs=3: 1 of 2 fits\n" in text
    assert "| vcl epochs=3 |" in text


@pytest.mark.parametrize(("number", "advice"), [(errno.EROFS, "copy the folder"), (errno.ENOSPC, "copy the folder")])
def test_a_folder_in_which_nothing_can_be_written_is_shown(
    out: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("vcl.lab.folder._write", refuse)
    result = call("show out")
    assert result.exit_code == 1
    assert "vcl epochs=3" in result.output
    assert "sine, preset smoke" in result.output
    said = str(result.exception)
    assert said.startswith("cannot write to out/")
    assert f"({os.strerror(number)}); the tables above were not saved: {advice}" in said


def test_a_cell_of_a_table_is_one_line() -> None:
    assert markdown([("a|b\nc", "1")], ("x", "y")).splitlines()[-1] == r"| a\|b c | 1 |"


def test_a_dataset_that_was_altered_is_in_no_title(out: Path) -> None:
    for path in without_checksums(out / "parts").glob("split-digits-*/part.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset": "mnist"}))
    done("show out")
    assert "-on-mnist" not in (out / "table.md").read_text()


def test_the_folder_may_be_anywhere_and_needs_no_data(out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "elsewhere [1]")
    said = done(f"show '{tmp_path / 'elsewhere [1]'}'")
    assert "elsewhere [1]" in said
    assert files_under(tmp_path / "elsewhere [1]") == files_under(out)


def test_what_is_not_finished_is_left_out_and_named(out: Path) -> None:
    path = without_checksums(part_folder(out, "split-digits-mle")) / "part.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"finished": False, "tasks": about["tasks"][:1]}))
    said = done("show out")
    line = f"mle: 1 tasks are finished; `{about['command']} --out out` continues it."
    assert line in said
    assert line in (out / "table.md").read_text()
    assert "mle" not in methods(shown_rows(out))
    with claimed(path.parent):
        assert "mle: 1 tasks are finished; another process computes it now.\n" in done("show out")
    path.write_text(json.dumps(about | {"finished": False, "command": "vcl run --out=there"}))
    assert "; `vcl run --out=there` continues it.\n" in done("show out")


@pytest.mark.parametrize("why", ["another default", "a setting that is gone", "runs that are there", "another version"])
def test_what_no_command_continues_can_be_deleted(here: Path, why: str) -> None:
    done("run split-digits --method mle --preset smoke --device cpu --set hidden=4 --seeds 1 --out out")
    folder = without_checksums(part_folder(Path("out"), "split-digits-mle"))
    path = folder / "part.json"
    about = json.loads(path.read_text()) | {"finished": False}
    if why == "runs that are there":
        shutil.copytree(folder, folder.with_name("split-digits-mle-000000000000"))
    elif why == "a setting that is gone":
        about["changes"].append("breadth=3")
    elif why == "another default":
        about["description"]["method"]["settings"]["init_sd"] = 0.123
    else:
        about["description"]["experiment"]["version"] = 0
    path.write_text(json.dumps(about))
    said = done("show out")
    assert "continues it." not in said
    assert (f"mle: 2 tasks are finished; no command continues it any more; {folder} can be deleted.\n") in said
    shutil.rmtree(folder)
    assert call("show out").exit_code == (0 if why == "runs that are there" else 1)


def test_a_part_of_older_code_and_more_runs_of_it_are_one_line(here: Path) -> None:
    """As if `average` and `order` had not been there when the first seed was computed."""
    smoke = "run split-digits --method vcl --preset smoke --device cpu --set hidden=4 --out out --seeds"
    done(f"{smoke} 1")
    path = without_checksums(part_folder(here / "out", "split-digits-vcl")) / "part.json"
    about = json.loads(path.read_text())
    del (
        about["defaults"],
        about["description"]["method"]["settings"]["average"],
        about["description"]["stream"]["order"],
    )
    path.write_text(json.dumps(about))
    done(f"{smoke} 2")
    assert len(list((here / "out" / "parts").iterdir())) == 2, "the store took the first seed for one of this part"
    rows = shown_rows(here / "out")
    assert (methods(rows), {row.seed for row in rows}) == (["vcl"], {0, 1})
    assert not (here / "out" / "split-digits-2").exists()
    done("predict out --task 0/1 --out both.csv")
    assert {line.partition(",")[0] for line in Path("both.csv").read_text().splitlines()} == {"seed", "0", "1"}


def test_a_line_with_other_settings_than_its_neighbours_says_so(here: Path) -> None:
    smoke = "run split-digits --device cpu --set hidden=4 --seeds 1 --out"
    for out, lines, names in (
        ("shared", ["vcl,ewc --preset smoke --set epochs=1 --set vcl.draws=1"], ["vcl", "ewc"]),
        ("one", ["vcl,ewc --preset smoke --set vcl.epochs=1"], ["vcl epochs=1", "ewc"]),
        ("apart", ["vcl --preset smoke --set epochs=1", "ewc --preset smoke"], ["vcl epochs=1", "ewc"]),
        ("own", ["vcl --preset smoke --set vcl.epochs=1", "ewc --preset smoke --set epochs=1"], ["vcl", "ewc"]),
        ("unused", ["vcl,ewc --preset smoke --set draws=1", "mle --preset smoke"], ["vcl draws=1", "ewc", "mle"]),
        ("equal", ["vcl --preset smoke --set epochs=2", "ewc --preset smoke"], ["vcl", "ewc"]),
        ("stream", ["vcl --preset smoke --set tasks=3", "ewc --preset smoke --set stream.tasks=3"], ["vcl", "ewc"]),
    ):
        for line in lines:
            done(f"{smoke} {out} --method {line}")
        assert methods(shown_rows(here / out)) == names, out


def test_titles_of_one_experiment_say_how_their_streams_differ(here: Path) -> None:
    smoke = "run split-digits --method mle --preset smoke --device cpu --set hidden=4 --seeds 1 --out out"
    for change in ("", "train_limit=50", "order=1,0", "tasks=3", "train_limit=50 --set order=1,0"):
        done(f"{smoke} --set {change}" if change else smoke)

    def titles() -> list[str]:
        return [line for line in (here / "out" / "table.md").read_text().splitlines() if line.startswith("# ")]

    start = "# split-digits, preset smoke"
    assert titles() == [
        f"{start}, after 2 tasks",
        f"{start}, train_limit=50, after 2 tasks",
        f"{start}, order=1,0, after 2 tasks",
        f"{start}, after 3 tasks",
        f"{start}, order=1,0, train_limit=50, after 2 tasks",
    ]
    # Other data, and a difference that no setting names.
    parts = without_checksums(here / "out" / "parts")
    first = min(parts.iterdir(), key=lambda path: json.loads((path / "part.json").read_text())["asked"])
    for name, change in (("0", {"data": "0123456789abcdef"}), ("1", {"stream": None})):
        other = shutil.copytree(first, parts / f"split-digits-mle-{name * 12}") / "part.json"
        about = json.loads(other.read_text())
        other.write_text(json.dumps(about | {"description": about["description"] | change}))
    done("show out")
    assert any(", data 012345, after 2 tasks" in title for title in titles())
    assert len(set(titles())) == len(titles()) == 7


def test_where_presets_differ_each_line_names_its_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = " ".join(f"--set {each}" for each in ("tasks=5", "train_limit=50", "test_limit=50", "epochs=1"))
    for preset, method in (("smoke", "vcl"), ("quick", "vcl,mle")):
        done(f"run split-digits --device cpu --method {method} --preset {preset} --seeds 1 {same} --out out")
    names = methods(shown_rows(here / "out"))
    assert names == ["vcl (smoke)", "vcl (quick)", "mle (quick)"]
    known = SPLIT_DIGITS._replace(paper={"vcl": 12.3})
    monkeypatch.setattr("vcl.lab.show.experiments", lambda: {"split-digits": known})
    monkeypatch.setattr("vcl.lab.store.experiments", lambda: {"split-digits": known})
    done("show out")
    table = (here / "out" / "table.md").read_text().splitlines()
    assert ["12.3" in line for line in table if line.startswith(("| vcl", "| mle"))] == [True, True, False]

    # The paper's numbers are of its own stream.
    for number, (change, told) in enumerate({"heads=shared": "heads=shared, after 5", "tasks=2": "after 2"}.items()):
        line = f"run split-digits --preset quick --method vcl --seeds 1 --device cpu {same} --set {change}"
        done(f"{line} --out other{number}")
        table = (here / f"other{number}" / "table.md").read_text()
        title = f"# split-digits, preset quick, {told} tasks"
        assert table.replace(" test_limit=50, train_limit=50,", "").startswith(title)
        assert "| vcl |" in table
        assert "12.3" not in table


def test_the_newest_stack_decides_which_are_of_one_part() -> None:
    """As in the store, where today's default decides: here it was 1 for a while, and then 2."""

    def stack(name: str, about: dict[str, int], *defaults: str) -> Stack:
        return Stack(Path(name), {"description": {"method": about}, "defaults": list(defaults)})

    oldest, middle = stack("a", {}), stack("b", {"rate": 1}, "method.rate")
    newest, other = stack("c", {"rate": 2}, "method.rate"), stack("d", {"rate": 3})
    assert gathered([oldest, middle], same_part) == [[oldest, middle]]
    assert gathered([oldest, middle, newest], same_part) == [[oldest, newest], [middle]]
    assert gathered([oldest, other], same_part) == [[oldest], [other]]
    odd = stack("e", {"rate": float("nan")})  # type: ignore[dict-item]
    assert gathered([odd, odd._replace(folder=Path("f"))], same_part) == [[odd], [odd._replace(folder=Path("f"))]]


def test_a_paper_folder_is_shown_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = among_digits(tmp_path, monkeypatch)
    done("paper lambda-split toy2d --preset smoke --device cpu --out out")
    before = files_under(here / "out")
    for name in ("lambda-split/lambda-split.png", "lambda-split/lambda-split.svg", "toy2d/toy2d.png"):
        (here / "out" / name).unlink()
    said = done("show out")
    after = files_under(here / "out")
    assert sorted(after) == sorted(before)
    assert [name for name in before if after[name] != before[name]] == []
    assert "lambda-split: figure out/lambda-split/lambda-split.png" in said


# Published folders.


def test_a_published_run_of_an_earlier_version(here: Path) -> None:
    """One file of rows beside one of settings."""
    shutil.copytree(RESULTS / "split-mnist" / "single-head", here / "old")
    before = files_under(here / "old")
    for name in list(before):
        if name not in ("rows.csv", "run.json"):
            (here / "old" / name).unlink()
    said = done("show old")
    after = files_under(here / "old")
    assert {"table.md", "average-accuracy.png", "average-accuracy.svg"} < after.keys()
    assert {name: after[name] for name in ("rows.csv", "run.json")} == {
        name: before[name] for name in ("rows.csv", "run.json")
    }

    def numbers(table: bytes) -> list[str]:
        return [line for line in table.decode().splitlines() if line.startswith("| ")]

    assert numbers(after["table.md"]) == numbers(before["table.md"])
    assert "figure old/average-accuracy.png" in said


@pytest.mark.parametrize("folder", ["paper", "paper-again"])
def test_the_published_results_of_the_paper(here: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    shutil.copytree(RESULTS / folder, here / "paper")
    before = files_under(here / "paper")
    if folder == "paper":  # its figures are made and, for they are many, not turned into pixels; the others' are
        monkeypatch.setattr("vcl.lab.figures.style._rendered", lambda *_, **__: b"")
    done("show paper")
    after = files_under(here / "paper")
    assert before.keys() <= after.keys()
    for name in before:
        if name.endswith((".csv", ".json", ".toml", ".md")):
            assert after[name] == before[name], name
    if folder == "paper":  # results/paper.py over what `vcl show` went over
        made = script("paper.py")
        monkeypatch.setattr(made, "FOLDER", here / "paper")
        monkeypatch.setattr(made, "DOCUMENT", here / "reproduction.md")
        monkeypatch.setattr(sys, "argv", ["paper.py"])
        made.main()
        assert (here / "reproduction.md").read_text() == (ROOT / "docs" / "reproduction.md").read_text()


def script(name: str) -> ModuleType:
    """A script of the results folder."""
    spec = spec_from_file_location(f"results_{Path(name).stem}", RESULTS / name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_two_protocols_follow_from_their_rows(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """results/make.py on a copy of the rows alone."""
    made = script("make.py")
    for name in made.TITLES:
        shutil.copytree(RESULTS / name, here / name)
        for file in ("table.md", "tuning.md"):
            (here / name / file).unlink()
    monkeypatch.setattr(made, "HERE", here)
    made.main()
    for name in made.TITLES:
        for file in ("table.md", "tuning.md"):
            assert (here / name / file).read_text() == (RESULTS / name / file).read_text()


def test_a_run_of_today_can_be_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of this version beside those of the version that made the published ones."""
    made, here = script("paper.py"), among_digits(tmp_path, monkeypatch)
    done("paper lambda-split toy2d --preset smoke --device cpu --out mine")
    shutil.copytree(RESULTS / "paper", here / "paper")
    (here / "paper" / "parts.json").unlink()
    monkeypatch.setattr(made, "FOLDER", here / "paper")
    made.publish(here / "mine")
    parts = json.loads((here / "paper" / "parts.json").read_text())
    assert len(parts) == len(list((here / "mine" / "parts").iterdir()))
    assert all(part["finished"] for part in parts)
    assert f"{len(parts)} parts of vcl " in made.made_by()
    old = read_csv(here / "mine" / "lambda-split" / "rows.csv")
    new = read_csv(here / "paper" / "lambda-split" / "rows.csv")
    assert {row.method for row in old} == {row.method for row in new}
    assert made.document().startswith("# Reproduction: the paper's numbers and ours")


# What is wrong.


def test_no_folder_and_an_empty_one(here: Path) -> None:
    assert fault("show nowhere") == "nowhere is no folder; give one that `vcl run`, `vcl sweep` or `vcl paper` made."
    (here / "file").write_text("precious")
    assert fault("show file").startswith("file is no folder; ")
    (here / "empty").mkdir()
    said = "empty holds no results; give a folder that `vcl run`, `vcl sweep` or `vcl paper` made."
    assert fault("show empty") == said
    (here / "empty" / "parts").mkdir()
    assert fault("show empty") == said
    assert files_under(here) == {"file": b"precious"}


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"experiment": "split-mnis"}', '{"experiment": 3}'])
def test_rows_without_what_made_them(here: Path, content: str | None) -> None:
    (here / "old").mkdir()
    shutil.copy(RESULTS / "split-mnist" / "single-head" / "rows.csv", here / "old")
    if content is not None:
        (here / "old" / "run.json").write_text(content)
    said = fault("show old")
    assert said.startswith("old/run.json cannot be read (")
    assert said.endswith("; give a folder that `vcl run` made.")
    assert "\n" not in said


def test_old_rows_that_lack_a_metric(here: Path) -> None:
    shutil.copytree(RESULTS / "split-mnist" / "single-head", here / "old")
    without(here / "old" / "rows.csv", "accuracy")
    done("show old")
    assert "nan" not in (here / "old" / "table.md").read_text()


def test_old_rows_that_are_damaged(here: Path) -> None:
    shutil.copytree(RESULTS / "split-mnist" / "single-head", here / "old")
    (here / "old" / "rows.csv").write_text("method,seed\n")
    assert fault("show old").startswith("old/rows.csv holds no vcl rows (")


PLUGIN = """
from vcl.lab.experiments.digits import SPLIT_DIGITS
EXPERIMENT = SPLIT_DIGITS._replace(name="split-mine")
"""


def test_an_experiment_of_a_plugin_that_is_missing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mine.py").write_text(PLUGIN)
    with monkeypatch.context() as patch:
        patch.setattr("vcl.lab.registry.FILES", dict(FILES))
        done("run split-mine --method mle --preset smoke --device cpu --plugin mine.py --out out")
        table = (here / "out" / "table.md").read_text()
        assert table.startswith("# split-mine, preset smoke")
    part = part_folder(Path("out"), "split-mine-mle")
    result = call("show out")
    assert result.exit_code == 1
    assert str(result.exception).startswith("out holds no results of an experiment that is known here; give --plugin")
    left_out = (
        f"{part} is of the experiment split-mine, which is not known here, and is left out; give the file that defines "
        "it with --plugin."
    )
    assert left_out in result.output
    assert fault("predict out --task 0/1") == (
        f"{part / 'part.json'} is of the experiment 'split-mine', which is not known here; give the file that defines "
        "it with --plugin."
    )
    # What is known is shown.
    done("run split-digits --method mle --preset smoke --device cpu --out both")
    shutil.copytree(part, here / "both" / "parts" / part.name)
    said = done("show both")
    assert left_out.replace("out/", "both/", 1) in said
    assert (here / "both" / "table.md").read_text().startswith("# split-digits, preset smoke")
    with monkeypatch.context() as patch:
        patch.setattr("vcl.lab.registry.FILES", dict(FILES))
        done("show out --plugin mine.py")
    assert (here / "out" / "table.md").read_text() == table


METHOD = """
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.registry import method
MLE = method("mle")
MINE = MethodEntry("mine", "mine", MLE.settings, lambda s: MLE.build(s))
"""


def test_an_unfinished_part_of_a_plugin_that_was_edited(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcl.lab.registry.FILES", {})
    (here / "mine.py").write_text(METHOD)
    done("run split-digits --method mine --preset smoke --device cpu --seeds 1 --plugin mine.py --out out")
    folder = without_checksums(part_folder(Path("out"), "split-digits-mine"))
    about = json.loads((folder / "part.json").read_text()) | {"finished": False, "command": "vcl again"}
    (folder / "part.json").write_text(json.dumps(about))

    def shown(line: str, edit: str) -> str:
        monkeypatch.setattr("vcl.lab.registry.FILES", {})
        (here / "mine.py").write_text(METHOD + edit)
        return done(line).splitlines()[-1]

    begun = "mine: 2 tasks are finished; "
    assert shown("show out --plugin mine.py", "") == f"{begun}`vcl again --out out` continues it."
    assert shown("show out --plugin mine.py", "MORE = 1") == (
        f"{begun}no command continues it any more; {folder} can be deleted."
    )
    assert shown("show out", "") == f"{begun}its method is not known here; give the file that defines it with --plugin."


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("part.json", "{"),
        ("part.json", "{}"),
        ("part.json", ""),
        ("rows.csv", ""),
        ("rows.csv", "method,seed,after,on,metric,value\n"),
        ("rows.csv", "method,seed,after,on,metric,value\nmle,0,1,1,accuracy,high\n"),
    ],
)
def test_a_damaged_part_is_one_sentence_that_names_it(out: Path, name: str, content: str) -> None:
    path = part_folder(Path("out"), "split-digits-mle") / name
    path.write_text(content)
    before = files_under(out)
    said = fault("show out")
    assert said.startswith(f"{path} cannot be read (")
    assert said.endswith("; delete its folder to compute it anew.")
    assert "\n" not in said
    assert files_under(out) == before
    shutil.rmtree(path.parent)
    done("show out")
    assert "mle" not in methods(shown_rows(out))


@pytest.mark.parametrize(
    ("change", "fault_of"),
    [
        ({"runs": [[None, 10**30]]}, "a seed of its runs has more than 64 bits"),
        ({"runs": [[10**400, 0]]}, "a lambda of its runs is no number from 0 to 1e+12"),
        ({"command": "\ud800"}, "'utf-8' codec can't encode character"),
        ({"preset": "x"}, "preset is 'x'"),
        ({"runs": None}, "runs is None"),
        ("runs", "'runs' is missing"),
        ("all", "No such file or directory"),
    ],
)
def test_a_record_that_cannot_be_is_named(out: Path, change: dict[str, Any] | str, fault_of: str) -> None:
    path = without_checksums(part_folder(Path("out"), "split-digits-mle")) / "part.json"
    about = json.loads(path.read_text())
    if change == "all":
        path.unlink()
    elif isinstance(change, str):
        path.write_text(json.dumps({key: value for key, value in about.items() if key != change}))
    else:
        path.write_text(json.dumps(about | change))
    for line in ("show out", "run split-digits --method mle --preset smoke --device cpu --out out"):
        said = fault(line)
        assert said.startswith(f"{path} cannot be read ({fault_of}")
        assert said.endswith("; delete its folder to compute it anew.")


KINDS = {
    "split-digits-mle": ("accuracy", "log predictive", "calibration error", "Brier score"),
    "generative-digits-vcl": ("log likelihood", "classifier uncertainty"),
    "sine-vcl": ("log predictive", "RMSE", "90 % coverage"),
}


def without(path: Path, *metrics: str) -> None:
    """Leave the rows of some metrics out of a file."""
    lines = path.read_text().splitlines()
    kept = [line for line in lines if line.split(",")[4] not in metrics]
    assert len(kept) < len(lines)
    path.write_text("\n".join(kept) + "\n")


@pytest.mark.parametrize(("stem", "metric"), [(stem, each) for stem, metrics in KINDS.items() for each in metrics])
def test_rows_that_lack_a_metric_are_refused(story: Path, here: Path, stem: str, metric: str) -> None:
    folder = shutil.copytree(part_folder(story, stem), here / "out" / "parts" / part_folder(story, stem).name)
    path = without_checksums(folder).relative_to(here) / "rows.csv"
    without(path, metric)
    said = f"{path} cannot be read (all values of {metric} are missing); delete its folder to compute it anew."
    assert fault("show out") == said


@pytest.mark.parametrize("stem", KINDS)
def test_a_part_of_an_older_version_that_lacks_metrics_is_shown_without_them(
    story: Path, here: Path, stem: str
) -> None:
    folder = shutil.copytree(part_folder(story, stem), here / "out" / "parts" / part_folder(story, stem).name)
    path, rows = without_checksums(folder) / "part.json", (folder / "rows.csv").read_text()
    about = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in about.items() if key not in ("metrics", "defaults")}))
    done("show out")
    for lacking in (KINDS[stem][:1], KINDS[stem][:-1], KINDS[stem][1:]):
        (folder / "rows.csv").write_text(rows)
        without(folder / "rows.csv", *lacking)
        done("show out")
        assert "nan" not in (here / "out" / "table.md").read_text()


def test_rows_that_are_gone(out: Path) -> None:
    path = part_folder(Path("out"), "split-digits-mle") / "rows.csv"
    path.unlink()
    said = fault("show out")
    assert said.startswith(f"{path} cannot be read (")
    assert said.endswith("; delete its folder to compute it anew.")


def test_pictures_that_are_gone(out: Path) -> None:
    path = part_folder(Path("out"), "generative-digits-vcl") / "pictures.safetensors"
    path.unlink()
    assert fault("show out") == (
        f"{path} cannot be read (No such file or directory); delete its folder to compute it anew."
    )
