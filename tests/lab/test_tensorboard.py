"""`--log tensorboard`: the event files have the numbers of the rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_made import alone, done, fault

from vcl.lab.results import read_csv, read_measures, read_objectives

pytest.importorskip("tensorboard", reason="NOT RUN: event files were not read: tensorboard is missing")
RUN = "run split-digits --preset smoke --device cpu --set tasks=3 --log tensorboard --out out "


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def scalars_in(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Every scalar of the only event file in a folder, in its order."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    (path,) = folder.glob("events.out.tfevents.*")
    reader = PyRecordReader_New(str(path))
    while True:
        try:
            reader.GetNext()
        except Exception:  # the reader's sign of the end
            return
        event: Any = Event.FromString(reader.record())
        for value in event.summary.value:
            yield value.tag, event.step, value.simple_value


def test_event_files_have_the_numbers_of_the_rows(here: Path) -> None:
    done(RUN + "--method vcl --seeds 2")
    (part,) = (here / "out" / "parts").iterdir()
    logs = here / "out" / "tensorboard" / part.name
    assert sorted(path.name for path in logs.iterdir()) == ["seed-0", "seed-1"]
    found = list(scalars_in(logs / "seed-1"))
    by_place = {(tag, step): value for tag, step, value in found}
    assert len(by_place) == len(found)
    rows = [row for row in read_csv(part / "rows.csv") if row.seed == 1]
    names = ["0/1", "2/3", "4/5"]
    for row in rows:
        assert by_place[f"{row.metric}/on {names[row.on - 1]}", row.after] == pytest.approx(row.value, rel=1e-6)
    last = [row.value for row in rows if row.metric == "accuracy" and row.after == 3]
    assert by_place["accuracy/average so far", 3] == pytest.approx(sum(last) / 3, rel=1e-6)
    objectives = [each.value for each in read_objectives(part / "objective.csv") if each.seed == 1]
    shown = [value for tag, _, value in sorted(found, key=lambda one: one[1]) if tag == "objective/variational fit"]
    wanted = [
        each.value
        for each in read_objectives(part / "objective.csv")
        if each.seed == 1 and each.fit == "variational fit"
    ]
    assert shown == pytest.approx(wanted, rel=1e-6)
    assert len(objectives) == sum(tag.startswith("objective/") for tag, _, _ in found)
    sd = next(each for each in read_measures(part / "fits.csv") if each.measure.startswith("sd ") and each.seed == 1)
    tag = f"posterior sd/{sd.fit} {sd.measure.removeprefix('sd ')}"
    assert by_place[tag, sd.task] == pytest.approx(sd.value, rel=1e-6)


def test_a_finished_part_keeps_its_file_and_a_new_one_gets_its_own(here: Path) -> None:
    done(RUN + "--method mle --seeds 1")
    (first,) = (here / "out" / "tensorboard").rglob("events*")
    content = first.read_bytes()
    done(RUN + "--method mle,ewc --seeds 1 --set ewc.lambda=10")
    files = list((here / "out" / "tensorboard").rglob("events*"))
    assert first.read_bytes() == content
    assert len(files) == 2
    assert any(path.parent.name == "lambda=10-seed-0" for path in files)


def test_what_is_missing_or_unknown_is_said_before_any_work(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault(RUN.replace("tensorboard", "wandb")) == "--log is 'wandb'; give tensorboard."
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    assert fault(RUN) == "--log tensorboard needs tensorboard: pip install 'vcl[tensorboard]'."
    assert not (here / "out").exists()
