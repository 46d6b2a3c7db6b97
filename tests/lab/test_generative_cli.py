"""Generative experiments from the command line: runs, samples of a finished run, grids, sweeps and mistakes."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from lab_made import alone, call, fault, files_under, known, part_folder, shown_rows, without_checksums
from matplotlib.image import imread
from safetensors.torch import load

from vcl.lab import cli
from vcl.lab.generative.quality import LIKELIHOOD, UNCERTAINTY
from vcl.lab.methods.generators import GENERATIVE_METHODS
from vcl.lab.results import final_score, methods
from vcl.lab.show import choose
from vcl.lab.sweep import WARNINGS
from vcl.learner.checkpoint import from_bytes

NAMES = ["vcl", "naive", "ewc", "si", "lp", "vcl-random"]
FIGURES = [f"generators-{metric}.{kind}" for metric in ("log-likelihood", "uncertainty") for kind in ("png", "svg")]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def smoke(rest: str) -> str:
    return f"run generative-digits --preset smoke --device cpu {rest}"


GROUP = "generative-digits"
PART = ["objective.csv", "part.json", "pictures.safetensors", "predictive.safetensors", "rows.csv"]


def files_of(name: str) -> list[str]:
    return [f"samples-{name}.png", f"samples-{name}.svg"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of one run of every method, and what it printed."""
    base = tmp_path_factory.mktemp("story")
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = alone(base, monkeypatch)
        result = call(smoke(f"--method {','.join(NAMES)} --out out"))
    assert result.exit_code == 0, result.exception
    assert names(base) == ["here"]
    return folder / "out", result.output


@pytest.fixture
def out(story: tuple[Path, str], here: Path) -> Path:
    """A copy of that run in the folder where the test works."""
    shutil.copytree(story[0], here / "out")
    return here / "out"


def files_in_part(method: str) -> list[str]:
    return ["fits.csv", *PART] if method.startswith("vcl") else PART


# A run.


def test_a_run_leaves_rows_table_figures_samples_and_generators(story: tuple[Path, str]) -> None:
    out, said = story
    assert names(out) == [GROUP, "parts", "table.md"]
    assert names(out / GROUP) == sorted(["rows.csv", *FIGURES, *(file for name in NAMES for file in files_of(name))])
    assert len(names(out / "parts")) == 1 + len(NAMES)
    assert names(part_folder(out, "classifier")) == ["classifier.safetensors", "part.json"]
    for name in NAMES:
        assert names(part_folder(out, f"{GROUP}-{name}")) == files_in_part(name)
    rows = shown_rows(out, GROUP)
    assert Counter((row.method, row.metric) for row in rows) == {
        (name, metric): 2 * 3 for name in NAMES for metric in (LIKELIHOOD, UNCERTAINTY)
    }
    assert methods(rows) == NAMES
    # 64 log 1/2 = -44.4 is a generator that knows nothing; two steps teach hardly more.
    assert all(-60 < row.value < -35 for row in rows if row.metric == LIKELIHOOD)
    assert all(0 < row.value < 20.8 for row in rows if row.metric == UNCERTAINTY), "-log 1e-9 = 20.7"

    table = (out / "table.md").read_text()
    assert table.startswith("# generative-digits, preset smoke, after 2 tasks\n")
    assert [name for name in NAMES if table.count(f"\n| {name} | ") != 1] == []
    assert "\n| method | log-likelihood | when just learned | uncertainty |\n" in table
    assert "by importance sampling" in table

    assert "vcl: task 2 of 2 (1) in " in said
    assert ", mean test log-likelihood so far -4" in said
    assert " nats" in said
    assert f"figure out/{GROUP}/generators-log-likelihood.png" in said
    (told,) = {line for line in said.splitlines() if line.startswith("classifier: ")}
    assert " % on the test set, SHA-256 " in told
    assert table.endswith(f"\n{told}\n"), "it belongs with the numbers"
    for name in NAMES:
        assert known(out, f"{GROUP}-{name}")["notes"] == [told]


def test_the_settings_of_a_run_are_written_down(story: tuple[Path, str]) -> None:
    for name in NAMES:
        about = known(story[0], f"{GROUP}-{name}")
        assert about["experiment"] == "generative-digits"
        assert about["shape"] == [8, 8]
        assert about["method"] == name
        assert [seed for _, seed in about["runs"]] == [0, 1]
        network = about["description"]["network"]
        assert (network["latent"], network["hidden"], network["private"]) == (3, 8, "lower")
        assert about["dataset"] == "digits"
        assert about["seconds"] >= 0
        assert about["finished"] is True
        assert about["started"] <= about["written"]


def test_figures_are_pictures(story: tuple[Path, str]) -> None:
    pictures = [path for path in (story[0] / GROUP).iterdir() if path.suffix == ".png"]
    assert len(pictures) == 2 + len(NAMES)
    for path in pictures:
        assert len(np.unique(imread(path)[..., 0])) > 20, path.name


@pytest.mark.parametrize("name", NAMES)
def test_samples_and_generators_can_be_read_again(story: tuple[Path, str], name: str) -> None:
    folder = part_folder(story[0], f"{GROUP}-{name}")
    tensors = load((folder / "pictures.safetensors").read_bytes())
    assert {key: (value.dtype, tuple(value.shape)) for key, value in tensors.items()} == {
        f"{t}": (torch.uint8, (2, t, 10, 8, 8)) for t in (1, 2)
    }
    state = from_bytes((folder / "predictive.safetensors").read_bytes())
    assert list(state.predictive) == ["0", "1"]
    assert state.propagated.mean.shape[0] == 1


def test_the_same_command_gives_the_same_files(story: tuple[Path, str], here: Path) -> None:
    assert call(smoke("--method vcl-random,si --out again")).exit_code == 0
    ours, theirs = shown_rows(here / "again", GROUP), shown_rows(story[0], GROUP)
    assert ours == [row for name in ("vcl-random", "si") for row in theirs if row.method == name]
    for name in ("vcl-random", "si"):
        for file in files_of(name):
            assert (here / "again" / GROUP / file).read_bytes() == (story[0] / GROUP / file).read_bytes(), file
        one, other = (part_folder(out, f"{GROUP}-{name}") for out in (here / "again", story[0]))
        assert one.name == other.name
        for file in set(files_in_part(name)) - {"part.json"}:
            assert (one / file).read_bytes() == (other / file).read_bytes(), file


@pytest.mark.parametrize(
    "changes",
    ["binarised=yes ll_drawn=4 private=upper", "encoder=shared head_kl=yes order=1,0 fisher_bound=importance"],
)
def test_what_the_paper_leaves_open_is_a_setting(here: Path, changes: str) -> None:
    given = " ".join(f"--set {change}" for change in changes.split())
    assert call(smoke(f"--method vcl,ewc {given} --out out")).exit_code == 0
    rows = shown_rows(here / "out", GROUP)
    assert len(rows) == 2 * 2 * 3 * (3 if "ll_drawn" in changes else 2)
    assert ("| weights drawn |" in (here / "out" / "table.md").read_text()) == ("ll_drawn" in changes)
    task = 1 if "order" in changes else 0
    for name in ("vcl", "ewc"):
        result = call(f"sample out --task {task} --method {name} --count 4 --out {name}.png")
        assert result.output == f"4 images of task {task} by {name}, after 2 tasks, in {name}.png.\n"


def test_one_task_and_one_seed_are_enough(here: Path) -> None:
    result = call(smoke("--method vcl --seeds 1 --set tasks=1 --out out"))
    assert result.exit_code == 0, result.exception
    assert len(shown_rows(here / "out", GROUP)) == 2
    assert "±" not in (here / "out" / "table.md").read_text().split("\nMean ±")[0]


def test_the_classifier_is_a_part_of_the_results(here: Path, tmp_path: Path) -> None:
    assert call(smoke("--method naive --out out")).exit_code == 0
    about = known(here / "out", "classifier")
    assert (about["finished"], about["description"]["hidden"], about["description"]["epochs"]) == (True, 16, 1)
    assert not (tmp_path / "xdg").exists(), "nothing is left in the user's cache"
    before = files_under(part_folder(here / "out", "classifier"))
    assert call(smoke("--method vcl --out out")).exit_code == 0
    assert files_under(part_folder(here / "out", "classifier")) == before


# Samples of a finished run.


def test_the_same_seed_draws_the_same_picture(here: Path, out: Path) -> None:
    for file, rest in (("a", ""), ("b", ""), ("c", "--seed 1"), ("d", "--task 1"), ("e", "--method naive")):
        result = call(f"sample out --task 0 --count 9 {rest} --out {file}.png")
        assert result.exit_code == 0, result.exception
    a, b, *others = ((here / f"{file}.png").read_bytes() for file in "abcde")
    assert a.startswith(PNG)
    assert a == b
    assert all(other != a for other in others)


@pytest.mark.parametrize(
    ("count", "height", "width"), [(9, 3, 3), (1, 1, 1), (2, 1, 2), (5, 2, 3), (7, 3, 3), (64, 8, 8)]
)
def test_images_stand_in_a_square(here: Path, out: Path, count: int, height: int, width: int) -> None:
    result = call(f"sample out --task 1 --count {count} --out grid.png")
    assert result.output == f"{count} images of task 1 by vcl, after 2 tasks, in grid.png.\n"
    pixels = imread(here / "grid.png")
    # Each has 8 x 8 pixels and a gap of one, each of them four times as large.
    assert pixels.shape[:2] == (height * 9 * 4, width * 9 * 4)
    # A generator that has learned little is grey all over; paper is white.
    ink = pixels[2::36, 2::36, 0] < 1
    assert ink.flatten().tolist() == [place < count for place in range(height * width)]


def test_64_images_to_samples_png_where_nothing_else_is_said(here: Path, out: Path) -> None:
    assert call("sample out --task 0").exit_code == 0
    assert imread(here / "samples.png").shape[:2] == (8 * 36, 8 * 36)


def test_a_picture_is_never_written_over(here: Path, out: Path) -> None:
    assert call("sample out --task 0 --count 4 --out grid.PNG").exit_code == 0
    first = (here / "grid.PNG").read_bytes()
    said = fault("sample out --task 1 --count 4 --out grid.PNG")
    assert said == "--out is grid.PNG, which exists; give a new name, or delete it first."
    assert (here / "grid.PNG").read_bytes() == first


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("--task zero", "unknown task 'zero'; accepted: 0, 1."),
        ("--task 7", "unknown task '7'; accepted: 0, 1."),
        ("--task 0 --count 0", "--count is 0; give at least 1."),
        ("--task 0 --count -3", "--count is -3; give at least 1."),
        ("--task 0 --out grid.jpg", "--out is grid.jpg; give a name that ends in .png."),
        ("--task 0 --method vlc", "unknown method 'vlc': did you mean 'vcl'?"),
        ("--task 0 --method mle", "unknown method 'mle'; accepted: "),
        ("--task 0 --out nowhere/grid.png", "--out is nowhere/grid.png, but nowhere is not a folder; give a file in a"),
        ("--task 0 --out out", "--out is out, which is a folder; give a file, such as out/samples.png."),
    ],
)
def test_a_mistake_in_asking_for_samples_is_one_sentence(here: Path, out: Path, rest: str, message: str) -> None:
    said = fault(f"sample out {rest}")
    assert said.startswith(message)
    assert "\n" not in said
    assert names(here) == ["out"]


def test_no_task_is_a_usage_error(here: Path, out: Path) -> None:
    assert call("sample out").exit_code == 2
    assert call("sample --task 0").exit_code == 2


@pytest.mark.parametrize("content", [None, "no JSON", "{}", "[]"])
def test_a_folder_that_is_no_run(here: Path, content: str | None) -> None:
    (here / "out" / "parts" / "mine-0123456789ab").mkdir(parents=True)
    if content is None:
        assert fault("sample out --task 0").startswith("out holds no finished part; give a folder that `vcl run` made")
    else:
        path = Path("out", "parts", "mine-0123456789ab", "part.json")
        path.write_text(content)
        said = fault("sample out --task 0")
        assert said.startswith(f"{path} cannot be read (")
        assert said.endswith("; delete its folder to compute it anew.")
    assert names(here) == ["out"]


def test_no_folder_at_all(here: Path) -> None:
    assert fault("sample nowhere --task 0").startswith("nowhere holds no finished part; give a folder that `vcl run`")


def test_a_run_that_has_no_generators(here: Path) -> None:
    assert call("run split-digits --preset smoke --device cpu --method mle --out out").exit_code == 0
    assert fault("sample out --task 0/1") == "split-digits has no generators; give a run of a generative experiment."


def test_a_run_that_was_not_finished(out: Path) -> None:
    for name in NAMES:
        if name != "si":
            unfinished(out, name)
    assert call("sample out --task 0 --count 1 --out one.png").output.startswith("1 images of task 0 by si, ")
    assert fault("sample out --task 0 --method vcl") == "unknown method 'vcl'; accepted: si."
    unfinished(out, "si")
    assert fault("sample out --task 0") == (
        "out holds no finished part; give a folder that `vcl run` made, and finish it there."
    )


def unfinished(out: Path, name: str) -> None:
    path = without_checksums(part_folder(out, f"{GROUP}-{name}")) / "part.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"finished": False}))


def test_the_folder_of_a_part_is_as_good(here: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = part_folder(Path("out"), f"{GROUP}-naive")
    for file, asked in (("a", "out --method naive"), ("b", str(part)), ("c", str(part.resolve())), ("d", f"{part}/")):
        result = call(f"sample {asked} --task 0 --count 4 --out {file}.png")
        assert result.exit_code == 0, result.exception
        assert result.output == f"4 images of task 0 by naive, after 2 tasks, in {file}.png.\n"
    for file, folder, asked in (("e", part.parent, part.name), ("f", part, ".")):
        monkeypatch.chdir(here / folder)
        assert call(f"sample {asked} --task 0 --count 4 --out {here / file}.png").exit_code == 0
    monkeypatch.chdir(here)
    assert len({(here / f"{file}.png").read_bytes() for file in "abcdef"}) == 1
    assert fault(f"sample {part} --task 0 --method vcl").startswith("unknown method 'vcl'; accepted: naive.")


def test_of_several_parts_of_a_method_one_must_be_named(here: Path) -> None:
    assert call(smoke("--method naive --out out")).exit_code == 0
    assert call(smoke("--method naive --set epochs=2 --out out")).exit_code == 0
    said = fault("sample out --task 0")
    folders = sorted(Path("out", "parts").glob(f"{GROUP}-naive-*"))
    assert said.startswith("out holds several parts of naive; give the label or the folder of one: 'naive' of genera")
    assert all(str(folder) in said for folder in folders)
    for folder in folders:
        assert call(f"sample {folder} --task 0 --count 1 --out {folder.name}.png").exit_code == 0


def test_generators_that_are_damaged(here: Path, out: Path) -> None:
    path = part_folder(Path("out"), f"{GROUP}-vcl") / "predictive.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    said = fault("sample out --task 0")
    assert said.startswith(f"{path} cannot be read (")
    assert said.endswith("; delete its folder and run it again.")
    assert "\n" not in said
    assert names(here) == ["out"]


def test_a_mistake_ends_the_process_with_one_line(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["vcl", *shlex.split("sample out --task 7")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "vcl: unknown task '7'; accepted: 0, 1.\n"


# Grids and sweeps.

APART = "--set epochs=15 --set lr=0.02"
"""Enough training that the lambdas end apart."""


def test_a_grid_is_one_stack_with_a_line_for_each_lambda(here: Path) -> None:
    result = call(smoke(f"--method ewc,vcl --grid lambda=1,10 {APART} --out out"))
    assert result.exit_code == 0, result.exception
    out = here / "out"
    pictures = ["lambda.png", "lambda.svg", *FIGURES]
    drawn = [file for name in ("ewc-lambda=1", "ewc-lambda=10", "vcl") for file in files_of(name)]
    assert names(out / GROUP) == sorted(["rows.csv", *pictures, *drawn])
    rows = shown_rows(out, GROUP)
    assert Counter((row.method, row.seed) for row in rows) == {
        (name, seed): 3 * 2 for name in ("ewc lambda=1", "ewc lambda=10", "vcl") for seed in range(2)
    }
    ends = [final_score(rows, f"ewc lambda={lam}", LIKELIHOOD).mean for lam in (1, 10)]
    assert ends[0] != ends[1]
    last = next(line for line in result.output.splitlines() if line.startswith("ewc: task 2 of 2 (1)"))
    assert last.endswith(f" with ewc lambda={1 if ends[0] > ends[1] else 10}, the best of 2")
    assert call("sample out --task 0 --method ewc --count 1 --out one.png").exit_code == 0


def sweep(rest: str) -> str:
    return f"sweep generative-digits --preset smoke --device cpu --method ewc --grid lambda=1,100 {APART} {rest}"


def test_a_sweep_chooses_by_log_likelihood(here: Path) -> None:
    result = call(sweep("--out out"))
    assert result.exit_code == 0, result.exception
    out = here / "out"
    assert names(out) == [GROUP, f"{GROUP}-validation", "parts", "table.md"]
    assert {"lambda.png", "lambda.svg", *FIGURES} < set(names(out / f"{GROUP}-validation"))
    held = shown_rows(out, f"{GROUP}-validation")
    assert methods(held) == ["ewc lambda=1", "ewc lambda=100"]
    ends = {lam: final_score(held, f"ewc lambda={lam}", LIKELIHOOD) for lam in (1, 100)}
    assert abs(ends[1].mean - ends[100].mean) > 0.05, "nats, so that there is something to choose"
    best = max(ends, key=lambda lam: ends[lam].mean)
    chosen = choose(held, LIKELIHOOD)["ewc"]
    assert (chosen.lam, chosen.edge) == (best, True)
    table = (out / "table.md").read_text()
    for text in (result.output, table):
        assert (
            f"ewc: lambda={best} is best, {ends[best].mean:.2f} nats on held-out training data; it is at the edge of "
            "the grid" in text
        )
    assert WARNINGS["validation"] in result.output
    assert methods(shown_rows(out, GROUP)) == [f"ewc lambda={best}"]
    assert {f"samples-ewc-lambda={best}.png", *FIGURES} < set(names(out / GROUP))
    tested = [path for path in out.glob(f"parts/{GROUP}-*") if '"validation": null' in (path / "part.json").read_text()]
    assert call(f"sample {tested[0]} --task 1 --count 1 --out one.png").exit_code == 0


def test_a_sweep_on_the_test_set_says_so(here: Path) -> None:
    result = call(sweep("--select test --out out"))
    assert result.exit_code == 0, result.exception
    rows = shown_rows(here / "out", GROUP)
    assert methods(rows) == ["ewc lambda=1", "ewc lambda=100"]
    best = max((1, 100), key=lambda lam: final_score(rows, f"ewc lambda={lam}", LIKELIHOOD).mean)
    assert f"ewc: lambda={best} is best, " in (here / "out" / "table.md").read_text()
    assert "on test data, so the number is optimistic" in (here / "out" / "table.md").read_text()
    assert "CHOSEN ON THE TEST SET" in result.output


def test_the_grid_of_the_paper_is_known(here: Path) -> None:
    result = call(smoke("--method ewc,lp,si --grid lambda=paper --dry-run"))
    assert result.exit_code == 0, result.exception
    for name in ("ewc", "lp", "si"):
        assert f"{name}: lambda 1, 10, 100, stacked too\n" in result.output


# What is there, and what can be wrong.


def test_dry_run_shows_the_plan_and_writes_nothing(here: Path, tmp_path: Path) -> None:
    result = call(smoke("--method vcl,naive,vcl-random --dry-run --out out"))
    assert result.exit_code == 0, result.exception
    assert "generative-digits, preset smoke, 2 seeds stacked, on cpu" in result.output
    assert "latent=3, features=8, hidden=8, private=lower" in result.output
    lines = [line.strip("│").split("│") for line in result.output.splitlines() if line.startswith("│")]
    cells = {name.strip(): [cell.strip() for cell in rest] for name, *rest in lines}
    # Two tasks of 60 images in batches of 50, one epoch; the coreset takes 5 of them and one step more each.
    assert {name: rest[0] for name, rest in cells.items()} == {"vcl": "4", "naive": "4", "vcl-random": "6"}
    assert all(rest[1].endswith(" s") and rest[2].endswith(" GB") for rest in cells.values())
    assert names(here) == []
    assert not (tmp_path / "xdg").exists(), "not even a classifier"


def test_list_names_experiments_and_methods() -> None:
    words = call("list").output.split()
    wanted = ["generative-mnist", "generative-notmnist", "generative-digits", *(e.name for e in GENERATIVE_METHODS)]
    assert [name for name in wanted if name not in words] == []
    assert "naive" in words, "which is no method of other experiments"
    assert "sample" in call("--help").output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (smoke("--set latent=0"), "latent is 0; give at least 1."),
        (smoke("--set features=0"), "features is 0; give at least 1."),
        (smoke("--set hidden=0"), "hidden is 0; give at least "),
        (smoke("--set draws=0"), "draws is 0; give at least 1."),
        (smoke("--set ll_draws=0"), "ll_draws is 0; give at least 1."),
        (smoke("--set ll_drawn=-1"), "ll_drawn is -1; give a number of draws from 0 (none) to 1,000,000."),
        (smoke("--set images=0"), "images is 0; give at least 1."),
        (smoke("--method ewc --set fisher_draws=0"), "fisher_draws is 0; give at least 1."),
        (smoke("--set classifier_hidden=0"), "classifier_hidden is 0; give at least 1."),
        (smoke("--set classifier_epochs=0"), "classifier_epochs is 0; give at least 1."),
        (smoke("--set prior_var=0"), "prior_var is 0.0; give a number from 1e-12 to 1e+06."),
        (smoke("--set head_kl=perhaps"), "unknown head_kl 'perhaps'; accepted: no, yes."),
        (smoke("--set private=middle"), "unknown private 'middle'; accepted: both, lower, upper."),
        (smoke("--set encoder=public"), "unknown encoder 'public'; accepted: "),
        (smoke("--set binarised=true"), "unknown binarised 'true'; accepted: no, yes."),
        (smoke("--set hidden=8,8"), "setting hidden takes a whole number, not '8,8'."),
        (smoke("--set order=0,2"), "order is (0, 2); name each of 0,1 once, in the order that you want."),
        (smoke("--set heads=multi"), "unknown setting 'heads': "),
        (smoke("--set tasks=11"), "tasks is 11; "),
        (smoke("--method mle"), "unknown method 'mle'; accepted: "),
        (smoke("--method vcl-kcenter"), "unknown method 'vcl-kcenter'; accepted: ewc, "),
        (
            smoke("--method vcl,naive --grid lambda=1,2"),
            "none of vcl, naive takes a lambda, so there is no grid to try",
        ),
        (smoke("--method vcl-random --set coreset=1000"), "a coreset of 1000 points cannot be taken from a task of 60"),
        ("run generative-digit", "unknown experiment 'generative-digit': did you mean 'generative-digits'?"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(here: Path, line: str, message: str) -> None:
    said = fault(f"{line} --out out")
    assert said.startswith(message)
    assert "\n" not in said
    assert names(here) == []


def test_a_rate_that_is_too_large_is_told_and_leaves_nothing(here: Path) -> None:
    said = fault(smoke("--method naive --set lr=1e30 --out out"))
    assert said.startswith("task 1 (0): ")
    assert "learning rate 1e+30 is probably too large" in said
    assert names(here / "out") == ["parts"], "the classifier, which was made before, is kept"
    assert [name.partition("-")[0] for name in names(here / "out" / "parts")] == ["classifier"]
    assert call(smoke("--method naive --out out")).exit_code == 0


@pytest.mark.parametrize("name", ["mnist", "notmnist"])
def test_missing_data_says_what_to_do_and_leaves_nothing(here: Path, name: str) -> None:
    said = fault(f"run generative-{name} --preset smoke --out out")
    assert said.startswith(f"{name} is in none of ")
    assert said.endswith(" --data or VCL_DATA.")
    assert "\n" not in said
    assert names(here) == []


def test_digits_stand_in_where_data_is_missing(here: Path) -> None:
    result = call("run generative-mnist --preset smoke --device cpu --fallback generative-digits --out out")
    assert result.exit_code == 0, result.exception
    assert "mnist is unavailable, so generative-digits is run instead: " in result.output
    about = known(here / "out", f"{GROUP}-vcl")
    assert (about["experiment"], about["shape"]) == ("generative-digits", [8, 8])
    assert call("sample out --task 1 --count 1").exit_code == 0
