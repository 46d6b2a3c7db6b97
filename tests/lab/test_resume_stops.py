"""A stop where a fit takes no steps: in curvature, and beside another process; and files of a later version."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from lab_made import call, fault, files_under, without_checksums
from resuming import ends, plan, run, stopped_at

from vcl.errors import VclError
from vcl.lab.folder import PART
from vcl.lab.store import STATE

CURVATURES = [
    ("lp", "permuted-digits", "vcl.fitting.curvature.own_pieces"),
    ("ewc", "permuted-digits", "vcl.fitting.curvature.own_pieces"),
    ("lp", "generative-digits", "vcl.fitting.curvature.own_pieces"),
    ("lp-kron", "permuted-digits", "vcl.fitting.kronecker_curvature.own_pieces"),
    ("vcl-kron", "permuted-digits", "vcl.fitting.kronecker_curvature.own_pieces"),
]


def interrupted(call: int, function: Any) -> Any:
    """The function, with a Ctrl-C at one of its calls."""
    seen = iter(range(1, 10**9))

    def called(*args: Any, **named: Any) -> Any:
        if next(seen) == call:
            signal.raise_signal(signal.SIGINT)
        return function(*args, **named)

    return called


@pytest.mark.parametrize(("method", "name", "where"), CURVATURES)
@pytest.mark.parametrize("place", [1, 2])
def test_ctrl_c_in_curvature_keeps_the_fit_before_it(
    method: str, name: str, where: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first place is within the first task, and the second in a later round or the second task."""
    wanted = plan(method, name)
    run(wanted, tmp_path / "whole")
    module, _, function = where.rpartition(".")
    with monkeypatch.context() as patch:
        patch.setattr(where, interrupted(place, getattr(sys.modules[module], function)))
        with pytest.raises(KeyboardInterrupt):
            run(wanted, tmp_path / "stopped")
    assert "goes on within task" in run(wanted, tmp_path / "stopped")
    assert ends(tmp_path / "stopped") == ends(tmp_path / "whole")


LINE = (
    "run permuted-digits --method vcl --preset smoke --seeds 2 --device cpu --set tasks=2 --set epochs=15 "
    "--set train_limit=100 --set test_limit=10 --set hidden=4 --set batch=8"
)


def test_a_second_process_is_refused_while_the_first_lives_and_goes_on_when_it_is_dead(tmp_path: Path) -> None:
    out, line = tmp_path / "out", f"{LINE} --save-every 0"
    first = subprocess.Popen([sys.executable, "-m", "vcl", *line.split(), "--out", str(out)], stderr=subprocess.DEVNULL)
    try:
        end = monotonic() + 120
        while not list(out.rglob("journal-2*.json")):
            assert monotonic() < end
            assert first.poll() is None
            sleep(0.01)
        first.send_signal(signal.SIGSTOP)  # it lives, and gets no further
        assert fault(f"{line} --out {out}").startswith("another vcl is at work in ")
    finally:
        first.kill()
        first.wait()
    over = call(f"{line} --out {out}")
    assert over.exit_code == 0, over.output
    assert "vcl: goes on within task " in over.output
    assert call(f"{LINE} --out {tmp_path / 'whole'}").exit_code == 0
    one, other = (next((root / "parts").rglob("rows.csv")).read_text() for root in (out, tmp_path / "whole"))
    assert one == other


def test_files_of_a_later_version_are_refused_and_left_alone(tmp_path: Path) -> None:
    wanted = plan("vcl", "permuted-digits", "tasks=3")
    with pytest.raises(KeyboardInterrupt):  # in the second task
        run(wanted, tmp_path, stopped_at(8, KeyboardInterrupt()))
    (part,), (state,) = tmp_path.rglob(PART), tmp_path.rglob(STATE)
    about, kept = json.loads(part.read_text()), part.read_text()
    assert about["format"] == 1
    part.write_text(json.dumps(about | {"format": 2}))
    before = files_under(tmp_path)
    later = "and this version of vcl reads up to 1; install a newer version of vcl."
    with pytest.raises(VclError) as error:
        run(wanted, tmp_path)
    assert str(error.value) == f"{part} has format 2, {later}"
    part.write_text(kept)
    without_checksums(tmp_path)
    content = state.read_bytes()
    state.write_bytes(content.replace(b'{"format": 2, "t"', b'{"format": 3, "t"'))
    assert state.read_bytes() != content
    with pytest.raises(VclError) as error:
        run(wanted, tmp_path)
    assert str(error.value) == f"{state} has format 3, {later.replace('1', '2', 1)}"
    state.write_bytes(content)
    assert files_under(tmp_path).keys() == before.keys()
    assert "continues after task 1" in run(wanted, tmp_path)
