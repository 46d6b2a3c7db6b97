"""`benchmarks/scale.py`: a row of each kind on small work, and what the journal's rows say."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import load

scale = load("scale")
SMALL = scale.Work("data", "vcl", hidden=8, examples=64, epochs=2)


@pytest.mark.parametrize("kind", scale.KINDS)
def test_a_row_has_what_was_asked_and_the_size_of_its_state(kind: str) -> None:
    row: dict[str, Any] = scale.measured(SMALL._replace(kind=kind, tasks=3), warm=False)
    assert {name: row[name] for name in SMALL._fields} == SMALL._replace(kind=kind, tasks=3)._asdict()
    assert row["all parameters"] == 784 * 8 + 8 * 9 + 8 + 10 * 9
    assert (row["posterior"] == row["all parameters"]) == (kind != "adapters")
    assert row["ms a step"] > 0
    assert row["s a task"] > 0
    assert abs(row["state bytes"] - row["state bytes after 2"]) < 100, "one head: nothing grows"
    assert kind == "lp-kron" or row["state bytes"] >= 8 * row["posterior"]
    assert f"| {kind} |" in scale.table([row])


def test_a_journal_is_saved_and_its_share_is_of_the_default_interval() -> None:
    row: dict[str, Any] = scale.measured(SMALL._replace(grows="journal", epochs=6, save_steps=2))
    assert row["saves"] == 7, "two tasks of six steps and an end, of which every second is saved"
    assert row["bytes of a save"] > 4 * 2 * row["posterior"]
    assert row["share of the time"] == pytest.approx(row["ms a save"] / 1000 / 180, abs=1e-6)
    assert row["ms a step without"] > 0
    assert "a save, bytes" in scale.table([row])
