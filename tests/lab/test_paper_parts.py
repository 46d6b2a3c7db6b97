"""The published parts hold every value that made their numbers, and those values are still today's."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lab_made import images
from rich.console import Console

from vcl.lab.identity import same
from vcl.lab.paper.item import Context, Request, StreamItem, TableItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.reproduce import Reproduction
from vcl.lab.paper.store import FORMAT, description

PUBLISHED = Path(__file__).parents[2] / "results" / "paper" / "parts.json"
PARTS: list[dict[str, Any]] = json.loads(PUBLISHED.read_text())
NAMES = [item.name for item in ITEMS if isinstance(item, StreamItem) and item.name != "ordering"]
"""All but one whose requests follow from the pictures themselves."""


def requests(name: str) -> list[Request]:
    (item,) = (item for item in ITEMS if item.name == name)
    assert isinstance(item, StreamItem)
    loaded: Any = SimpleNamespace(arrays=images())
    return item.requests(Context("paper", lambda _: loaded))


def wanted(request: Request, stored: dict[str, Any]) -> dict[str, Any]:
    """What today's code would compute for a request, on the stored part's data and kind of device."""
    folder = Reproduction("paper", None, torch.device("cpu"), None, Path(), "", Console(file=StringIO()))
    plan = folder.plan_of(request._replace(changes=(*request.changes, f"matmul={stored['matmul']}")))
    about: Any = SimpleNamespace(digest=stored["data"])
    return description(replace(plan, device=torch.device(stored["device"])), about)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_published_is_what_these_settings_compute(name: str) -> None:
    """A changed default, preset or builder must be followed by a new run."""
    stored = [part["description"] for part in PARTS if "experiment" in part["description"]]
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
        assert part["description"]["format"] == FORMAT
        assert part["builds"]
        assert all(build["vcl"] and build["torch"] for build in part["builds"])
