"""The frame of ``make faults``: what is lost is seen, and what other families had is kept."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "faults"

FAMILIES = {
    "fine": 'yield Outcome("a", Result.SURVIVED, "seen", 3)\n    yield Outcome("b", Result.REFUSED)',
    "bad": 'yield Outcome("a", Result.SURVIVED)\n    yield Outcome("c", Result.LOST, "other bytes: rows.csv")',
    "raising": 'yield Outcome("a", Result.SURVIVED)\n    raise RuntimeError("on the way")',
    "empty": "yield from ()",
}


def loaded(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOL / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with planted families."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("outcome", "table"):  # an installed package may have such a name
        monkeypatch.setitem(sys.modules, name, loaded(name, f"{name}.py"))
    for name, body in FAMILIES.items():
        text = f"from outcome import Outcome, Result\n\n\ndef trials(short, seed, folder):\n    {body}\n"
        (tmp_path / f"planted_{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, f"planted_{name}", raising=False)
    module = loaded("faults_frame", "__main__.py")
    monkeypatch.setattr(module, "FAMILIES", tuple(module.Family(f"planted_{name}") for name in FAMILIES))
    return module


def tried(frame: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *names: str) -> int:
    words = [word for name in names for word in ("--only", f"planted_{name}")]
    monkeypatch.setattr(sys, "argv", ["faults", *words, "--out", str(out)])
    status: int = frame.main()
    return status


def lines(out: Path) -> list[str]:
    return (out / "counts.csv").read_text().splitlines()


@pytest.mark.parametrize(("name", "fault"), [("bad", "c"), ("raising", "itself"), ("empty", "itself")])
def test_a_loss_an_error_and_an_empty_family_are_lost(
    name: str, fault: str, frame: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tried(frame, monkeypatch, tmp_path / "out", "fine", name) == 1
    (lost,) = [line for line in lines(tmp_path / "out") if line.endswith(",0,0,0,1")]
    assert lost.startswith(f"planted_{name},")
    assert lost.split(",")[1].endswith(fault)
    assert "| all | | " in (tmp_path / "out" / "table.md").read_text()


def test_a_family_alone_keeps_what_the_table_had_of_the_others(
    frame: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert tried(frame, monkeypatch, out, "bad") == 1
    assert tried(frame, monkeypatch, out, "fine") == 0
    assert lines(out) == [
        "family,fault,survived,fell back,refused,LOST",
        "planted_fine,a,3,0,0,0", "planted_fine,b,0,0,1,0", "planted_bad,a,1,0,0,0", "planted_bad,c,0,0,0,1",
    ]  # fmt: skip
    text = (out / "table.md").read_text()
    assert "| all | | 6 | 4 | 0 | 1 | 1 |" in text
    assert "- planted_bad, c, LOST: other bytes: rows.csv" in text
    assert json.loads((out / "planted_fine.json").read_text())["outcomes"][0] == ["a", "survived", "seen", 3]


def test_a_few_trials_do_not_replace_the_published_table(
    frame: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["faults", "--short"])
    with pytest.raises(SystemExit):
        frame.main()
    assert "--short needs --out FOLDER" in capsys.readouterr().err
