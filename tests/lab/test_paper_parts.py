"""The published parts hold every value that made their numbers, and those values are still today's."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lab_made import images
from rich.console import Console

from vcl.lab.identity import description, same
from vcl.lab.paper.item import Context, Request, StreamItem, TableItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.reproduce import Reproduction

PUBLISHED = Path(__file__).parents[2] / "results" / "paper" / "parts.json"
PARTS: list[dict[str, Any]] = json.loads(PUBLISHED.read_text())
NAMES = [item.name for item in ITEMS if isinstance(item, StreamItem) and item.name not in ("ordering", "beyond")]
"""All but one whose requests follow from the pictures themselves, and one that is not among these results."""


def requests(name: str) -> list[Request]:
    (item,) = (item for item in ITEMS if item.name == name)
    assert isinstance(item, StreamItem)
    loaded: Any = SimpleNamespace(arrays=images())
    return item.requests(Context("paper", lambda _: loaded))


def wanted(request: Request, stored: dict[str, Any]) -> dict[str, Any]:
    """What today's code would compute for a request, on the stored part's data and kind of device, as it was stored.

    The published parts have format 2: one dictionary for each group of settings, and methods with their lambdas.
    """
    folder = Reproduction("paper", None, torch.device("cpu"), None, Path(), "", Console(file=StringIO()))
    plan = folder.plan_of(request._replace(changes=(*request.changes, f"matmul={stored['matmul']}")))
    entry = plan.methods[0]
    about = description(plan, entry, stored["data"], {})
    return {
        **{key: about[key] for key in ("data", "stream", "network")},
        "prediction": about["prediction"]["settings"],
        "format": 2,
        "experiment": about["experiment"]["name"],
        "method": plan.build(entry),
        "device": stored["device"],
        "matmul": plan.setup.run.matmul,
        "runs": [[run.label, run.seed] for run in plan.runs(entry)],
    }


def translated(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored description with what was no setting then, or is none any more: experiments had these values."""
    found = without_classes(stored)
    stream = dict(found["stream"])
    if stored["experiment"].startswith("permuted"):
        assert stream.pop("heads") == "single", "there are no others"
    if stored["experiment"] == "split-notmnist":
        assert "pairing" not in stream
        stream["pairing"] = "halves"
    return {**found, "stream": stream}


def without_classes(stored: Any) -> Any:
    """A stored description without the names of classes, which are no part of one any more."""
    if isinstance(stored, dict):
        return {key: without_classes(value) for key, value in stored.items() if key != ""}
    return [without_classes(each) for each in stored] if isinstance(stored, list) else stored


@pytest.mark.parametrize("name", NAMES)
def test_what_was_published_is_what_these_settings_compute(name: str) -> None:
    """A changed default, preset or builder must be followed by a new run."""
    stored = [translated(part["description"]) for part in PARTS if "experiment" in part["description"]]
    for request in requests(name):
        mine = [about for about in stored if about["experiment"] == request.experiment]
        found = [about for about in mine if same(about, wanted(request, about))]
        assert len(found) == 1, (request, len(found))


def test_tables_of_their_own_too() -> None:
    stored = {part["description"]["name"]: part["description"] for part in PARTS if "name" in part["description"]}
    tables = [item for item in ITEMS if isinstance(item, TableItem)]
    assert stored.keys() == {item.name for item in tables}
    for item in tables:
        assert stored[item.name]["settings"] == json.loads(json.dumps(item.settings["paper"]))


def test_each_part_says_what_made_it() -> None:
    for part in PARTS:
        assert part["finished"]
        assert part["seconds"] > 0
        assert part["command"].startswith("vcl paper ")
        assert part["device"]
        assert part["description"]["format"] == 2
        assert part["builds"]
        assert all(build["vcl"] and build["torch"] for build in part["builds"])
