"""Every Python block of the documents runs, and every `vcl` line in their shell blocks parses."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from vcl.lab.cli import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "results/README.md")
] + sorted(path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md"))

SHAPE = re.compile(r"^\s*(\w+) = .*  # \[([\d, ]+)\]")
"""An assignment with the value's shape as a comment; the shape is checked."""


def blocks(text: str, *languages: str) -> list[tuple[int, list[str]]]:
    """The fenced blocks of these languages: the number of each fence (from 0), and the lines below it."""
    found: list[tuple[int, list[str]]] = []
    lines, opened = text.splitlines(), None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number
            continue
        if lines[opened].removeprefix("```").strip() in languages:
            found.append((opened, lines[opened + 1 : number]))
        opened = None
    assert opened is None, "a fence is never closed"
    return found


def script(text: str, chosen: list[tuple[int, list[str]]]) -> str:
    """The blocks as one program, each line on the line of the document, so that a traceback names that."""
    lines = [""] * len(text.splitlines())
    for fence, code in chosen:
        lines[fence + 1 : fence + 1 + len(code)] = code
        shapes = [match.groups() for line in code if (match := SHAPE.match(line))]
        checks = (f"assert tuple({name}.shape) == ({shape},), {name}.shape" for name, shape in shapes)
        lines[fence + 1 + len(code)] = "; ".join(checks)  # replaces the closing fence
    return "\n".join(lines)


def run(text: str, chosen: list[tuple[int, list[str]]], folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Runs the blocks in a new process and folder, because they may register names and write files."""
    program = folder / f"{name}.py"
    program.write_text(script(text, chosen))
    return subprocess.run([sys.executable, program], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_python_block_runs(document: Path, tmp_path: Path) -> None:
    text = document.read_text()
    chosen = blocks(text, "python")
    ended = run(text, chosen, tmp_path, document.name)
    assert ended.returncode == 0, ended.stderr


def test_the_documents_have_code() -> None:
    names = ("README.md", "docs/adding.md", "docs/plugins.md", "docs/regression.md", "docs/backbone.md")
    assert all(blocks((ROOT / name).read_text(), "python") for name in names)


def vcl(folder: Path, line: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "vcl", *shlex.split(line)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_skeletons_are_a_method_and_an_experiment(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "adding.md").read_text()
    (tmp_path / "skeletons.py").write_text(script(text, blocks(text, "python")))
    said = vcl(tmp_path, "run my-experiment --preset smoke --method vcl,decay --plugin skeletons.py --out out")
    assert "decay" in said
    rows = (tmp_path / "out" / "my-experiment" / "rows.csv").read_text()
    assert rows.count("\ndecay,") == rows.count("\nvcl,") == 2 * 3 * 4  # seeds, pairs of tasks, metrics


def test_the_plugins_of_the_lab_run(tmp_path: Path) -> None:
    method, experiment, data = (code for _, code in blocks((ROOT / "docs" / "plugins.md").read_text(), "python"))
    (tmp_path / "my_method.py").write_text("\n".join(method))
    (tmp_path / "my_experiment.py").write_text("\n".join(experiment))
    (tmp_path / "my_data.py").write_text("\n".join(data))
    plugins = "--plugin my_method.py --plugin my_experiment.py"
    said = vcl(tmp_path, f"run clusters --preset smoke --method mle,vcl,vcl-fading {plugins} --out out")
    assert "vcl-fading" in said
    assert "vcl-fading" in vcl(
        tmp_path, "run permuted-digits --preset smoke --method vcl-fading --plugin my_method.py --dry-run"
    )
    vcl(tmp_path, "run split --dataset squares --preset smoke --method mle --plugin my_data.py --out out")
    rows = (tmp_path / "out" / "split-on-squares" / "rows.csv").read_text()
    assert "\nmle," in rows


def test_the_page_of_models_runs_from_its_first_line_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks in their order: Python that makes data, commands, and Python that loads what they made (`py`)."""
    text = (ROOT / "docs" / "model-command.md").read_text()
    monkeypatch.chdir(tmp_path)
    said = ""
    for number, (fence, code) in enumerate(blocks(text, "python", "sh", "py")):
        if text.splitlines()[fence] == "```sh":
            for line in code:
                ended = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
                assert ended.exit_code == 0, ended.exception
                said += ended.output
            continue
        program = run(text, [(fence, code)], tmp_path, f"{number}")
        assert program.returncode == 0, program.stderr
        said += program.stdout
    assert re.search(r"189 rows with a target: accuracy 9[4-9]", said)
    assert "look at the rows" in said
    assert (tmp_path / "predictions.csv").read_text().startswith("label,p_benign,p_malignant,uncertainty,aleatoric,")
    assert (tmp_path / "module.pt2").is_file()


def commands(text: str) -> list[str]:
    """The `vcl` lines of shell blocks, fenced or indented, without comments."""
    fenced = [line for _, code in blocks(text, "", "sh", "bash", "shell", "console") for line in code]
    indented = [line for line in text.splitlines() if line.startswith("    ")]
    lines = (line.strip().removeprefix("$ ").partition("#")[0].strip() for line in fenced + indented)
    return [line for line in lines if line == "vcl" or line.startswith("vcl ")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_vcl_line_parses(document: Path) -> None:
    for line in commands(document.read_text()):
        assert parses(line) == "", line


def test_shell_lines_are_found_and_judged() -> None:
    assert len(commands((ROOT / "README.md").read_text())) > 5
    assert commands("```\nvcl list  # names\nmake run\n```\n\n    vcl run x\n") == ["vcl list", "vcl run x"]
    assert "wander" in parses("vcl wander")
    assert "--nowhere" in parses("vcl run split-digits --nowhere 3")
    assert parses("vcl run split-digits --seeds 3") == ""


def test_a_wrong_shape_and_an_error_are_noticed(tmp_path: Path) -> None:
    text = "words\n\n```python\nimport numpy as np\n\nx = np.zeros((2, 3))  # [2, 4]\n```\n\n```python\n1 / 0\n```\n"
    first, second = blocks(text, "python")
    assert "AssertionError: (2, 3)" in run(text, [first], tmp_path, "a").stderr
    assert "line 10, in <module>" in run(text, [second], tmp_path, "b").stderr


def parses(line: str) -> str:
    """Empty if the command exists and knows the options and arguments of ``line``; else what is wrong."""
    command, words = typer.main.get_command(app), shlex.split(line)[1:]
    try:
        while words and hasattr(command, "commands"):
            if words[0].startswith("-"):
                break
            if words[0] not in command.commands:
                return f"there is no command {words[0]}"
            command, words = command.commands[words[0]], words[1:]
        command.make_context(command.name, words)
    except typer.Exit:  # such as --version
        return ""
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("short", "meaning"),
    [
        ("EWC", "elastic weight consolidation"), ("SI", "synaptic intelligence"), ("LP", "Laplace propagation"),
        ("K-center", "spreads them"), ("coreset", "points of each task that are kept"),
    ],
)  # fmt: skip
def test_the_readme_explains_a_short_name_where_it_is_first_used(short: str, meaning: str) -> None:
    text = (ROOT / "README.md").read_text()
    first = re.search(rf"(?<![\w-]){short}(?![\w-])", text)
    assert first is not None
    assert meaning in text[first.start() : first.start() + 80 + len(meaning)]


def test_every_decision_is_in_the_list() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| \[(\d+)\]\((\d{4})-[\w-]+\.md\) \| ", (folder / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in listed] == sorted(int(path.name[:4]) for path in folder.glob("0*.md"))
    assert all(int(number) == int(file) for number, file in listed)


def test_the_page_of_speed_has_the_measured_numbers() -> None:
    found = json.loads((ROOT / "results" / "bench-2026-11-16-cpu.json").read_text())["lines"]
    least = {(line["group"], line["name"]): f"{line['least_ms']:.2f}" for line in found}
    names = {
        "its matrix products alone": "matrix products alone",
        "plain network without a posterior": "deterministic network",
        'vcl, `estimator="local"`': "local",
        'vcl, `estimator="weights"`': "weights",
        "vcl, a module that cannot be traced, `local`": "local, the general way",
    } | {name: name for name in ("torchbnn", "bayesian-torch", "blitz")}
    text = (ROOT / "docs" / "speed.md").read_text()
    for said, name in names.items():
        one, ten = (least[f"step, 1 runs x {draws} draws", name] for draws in (1, 10))
        assert f"| {said} | {one} | {ten} |" in text
