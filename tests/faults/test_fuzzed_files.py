"""Files that fuzzing has found: each once ended in a traceback, or took memory that the file does not pay for."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from tokenize import TokenError

import numpy as np
import pytest
import torch
from numpy.lib import format as npy_format

from vcl.errors import VclError
from vcl.lab import results
from vcl.lab.folder import NOW
from vcl.lab.model import described, kept
from vcl.lab.model import recipe as recipes
from vcl.lab.model.columns import Arrays
from vcl.lab.model.targets import labelled
from vcl.lab.paper import published, table
from vcl.lab.paper.items import ITEMS
from vcl.lab.pulse import read_now
from vcl.lab.remote import published as manifests
from vcl.lab.remote.claims import owner_of
from vcl.lab.remote.files import Files
from vcl.lab.saved import read_inputs
from vcl.lab.sums import signed
from vcl.learner.checkpoint import from_bytes
from vcl.learner.folder import checksum_of


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(VclError) as caught:
        read()
    return str(caught.value)


def test_an_npy_header_that_is_half_a_program(tmp_path: Path) -> None:
    told = b"(\n" + b" " * 10
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(told).to_bytes(2, "little") + told)
    with pytest.raises(TokenError):
        npy_format.read_array_header_1_0(io.BytesIO((tmp_path / "x.npy").read_bytes()[8:]))
    assert "cannot be read" in refused(lambda: read_inputs(tmp_path / "x.npy", (2,)))


def test_a_pulse_and_a_claim_that_are_nested_count_for_nothing(tmp_path: Path) -> None:
    (tmp_path / NOW).write_text("[" * 10**6)
    assert read_now(tmp_path) == {}
    (tmp_path / NOW).write_text(json.dumps({"fit": "x" * 10**6}))
    assert read_now(tmp_path) == {}
    (tmp_path / "claim").write_text("[" * 10_000)
    assert owner_of(Files(f"file://{tmp_path}"), "claim") is None


def test_a_manifest_with_an_infinite_size(tmp_path: Path) -> None:
    about = json.dumps({"format": 1, "files": {"a": ["a", inf, "x"]}})
    digest = manifests.sha256(about.encode()).hexdigest()
    (tmp_path / "manifest").write_text(json.dumps({"sha256": digest, "about": about}))
    assert "is damaged" in refused(lambda: manifests.read(Files(f"file://{tmp_path}"), "manifest"))


@pytest.mark.parametrize("after", [0, 3_000, 2**31])
def test_rows_of_more_tasks_than_there_are_rows_for(after: int, tmp_path: Path) -> None:
    rows = [results.Row("vcl", seed, after, 1, "accuracy", 0.5) for seed in range(5)]
    (tmp_path / "rows.csv").write_text(results.to_csv(rows))
    assert "holds no vcl rows" in refused(lambda: results.read_csv(tmp_path / "rows.csv"))


def test_rows_of_many_tasks_that_are_all_there(tmp_path: Path) -> None:
    rows = [results.Row("vcl", 0, after, on, "accuracy", 0.5) for after in range(1, 300) for on in range(1, after + 1)]
    (tmp_path / "rows.csv").write_text(results.to_csv(rows))
    assert results.read_csv(tmp_path / "rows.csv") == rows


def test_a_published_folder_that_is_not_text(tmp_path: Path) -> None:
    item = next(each for each in ITEMS if each.name == "toy2d")
    (tmp_path / "toy2d").mkdir()
    for name in ("table.csv", "claims.csv", "table.md", "toy2d/rows.csv"):
        (tmp_path / name).write_bytes(b"\x80")
    for read in (
        lambda: table.read_lines(tmp_path / "table.csv"),
        lambda: table.read_seen(tmp_path / "claims.csv"),
        lambda: published.command_of(tmp_path),
        lambda: published.judge_item(item, tmp_path, {("toy2d", "x"): 1.0}),
    ):
        assert "cannot be read" in refused(read)
    (tmp_path / "toy2d" / "rows.csv").write_text("kind,value\npoint\n")
    assert "several lengths" in refused(lambda: published.judge_item(item, tmp_path, {("toy2d", "x"): 1.0}))
    assert "has no line of it" in refused(lambda: published.judge_item(item, tmp_path, {}))


def learned(folder: Path) -> recipes.Recipe:
    recipe = recipes.Recipe("classifier", (3,), {"epochs": 1})
    learner = recipe.learner(2, verbose=0)
    learner.update(torch.randn(8, 2), torch.arange(8) % 2)
    kept.save(folder, learner, recipe)
    return recipe


def test_a_model_that_names_a_huge_network(tmp_path: Path) -> None:
    learned(tmp_path)
    about = json.loads((tmp_path / recipes.NAME).read_text())
    (tmp_path / recipes.NAME).write_text(json.dumps(signed({**about, "hidden": [2**50]})))
    recipe = recipes.read(tmp_path)
    assert "larger than what was learned" in refused(lambda: kept.load(tmp_path, recipe))
    assert "memory ran out in the making of the network" in refused(lambda: recipe.network(2))


def test_a_learner_without_its_version(tmp_path: Path) -> None:
    recipe = learned(tmp_path)
    about = json.loads((tmp_path / "learner.json").read_text())
    del about["vcl"]
    (tmp_path / "learner.json").write_text(json.dumps({**about, "check": checksum_of(about)}))
    assert "is damaged ('vcl' is missing)" in refused(lambda: described.as_text(tmp_path, recipe))


def test_a_state_whose_shape_overflows() -> None:
    header = json.dumps({"about": {"dtype": "U8", "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}}).encode()
    said = refused(lambda: from_bytes(len(header).to_bytes(8, "little") + header))
    assert "not a saved vcl state" in said


@pytest.mark.parametrize(("kind", "shape"), [("classifier", (4, 3)), ("regressor", (4, 3, 2))])
def test_labels_in_a_table(kind: str, shape: tuple[int, ...]) -> None:
    contents = Arrays(np.ones((4, 2)), np.full(shape, np.nan))
    said = refused(lambda: labelled(contents, recipes.Recipe(kind, (3,)), None, "x.npz"))
    assert f"y of x.npz has shape {shape}" in said
