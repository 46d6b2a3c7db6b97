"""Readers of what vcl has written: results, what processes leave for each other, and published folders.

Checksums are taken out, as if an earlier version had written the files: otherwise no edit would get past them.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import formats
from reader import Reader


def of_results(here: Path, run: Path) -> dict[str, Reader]:
    """What runs keep: ``run`` is a folder of results of vcl-random on split-digits, whose parts are copied."""
    import torch
    from rich.console import Console

    from vcl.lab import saved
    from vcl.lab.report.folders import page_of
    from vcl.lab.show import groups_in
    from vcl.lab.store import PICTURES, Store, read_pictures

    shutil.copytree(run, here / "out")
    (part,) = (here / "out" / "parts").glob("split-digits-vcl-random-*")
    formats.without_checksums(part / "part.json")
    silent = Console(file=io.StringIO())

    def shown(path: Path) -> None:
        for group in groups_in(here / "out", silent):
            assert group.name
        page_of([here / "out"], silent)

    def predicted(path: Path) -> None:
        found = saved.read(here / "out", None)
        (x,) = torch.zeros(1, 2, *found.shape)
        path.with_name("x.npy").write_bytes(formats.to_npy(X))
        saved.predictions(found, found.tasks[0], path.with_name("x.npy"), None, str)
        assert x.shape[1:] == found.shape

    def stacks(path: Path) -> None:
        for stack in Store(here / "out", torch.device("cpu"), "").stacks():
            stack.rows()
            assert len(stack.alive) + len(stack.set_aside) == len(stack.runs)

    def state(path: Path) -> None:
        read_pictures(path)

    pictures = formats.to_safetensors(
        {"tensors": {"1": {"dtype": "U8", "shape": [1, 1, 2, 2, 2], "data": bytes(8)}}, "about": None, "length": None}
    )
    X: Any = {"header": {"descr": "<f4", "fortran_order": False, "shape": (2, 8, 8)}, "data": bytes(512)}

    def valid(name: str) -> list[bytes]:
        return [(part / name).read_bytes()]

    (whole,) = valid("predictive.safetensors")
    unsealed = [formats.to_safetensors({**formats.from_safetensors(whole), "about": None})]
    return {
        "part.json of tables": Reader(shown, part / "part.json", valid("part.json"), formats.JSON, 0.5),
        "part.json of stacks": Reader(stacks, part / "part.json", valid("part.json"), formats.JSON, 2.0),
        "part.json of predictions": Reader(predicted, part / "part.json", valid("part.json"), formats.JSON, 0.5),
        "rows.csv": Reader(stacks, part / "rows.csv", valid("rows.csv"), formats.CSV, 2.0),
        **{
            name: Reader(shown, part / name, valid(name), formats.CSV, 0.3)
            for name in ("objective.csv", "fits.csv", "calibration.csv")
        },
        "predictive.safetensors": Reader(predicted, part / "predictive.safetensors", unsealed, formats.TENSORS, 0.5),
        "pictures": Reader(state, here / PICTURES, [pictures], formats.TENSORS),
    }


def of_work(here: Path, run: Path) -> dict[str, Reader]:
    """What processes leave for each other: journals, heartbeats, claims and manifests of an address."""
    from torch import ones

    from vcl.fitting.journal import Entry
    from vcl.fitting.progress import Progress
    from vcl.lab.generative.classifier import Classifier, _about, _named, read
    from vcl.lab.pulse import read_now
    from vcl.lab.reading import reading
    from vcl.lab.remote import published
    from vcl.lab.remote.claims import owner_of
    from vcl.lab.remote.files import Files
    from vcl.learner.generations import Generations

    journal = Generations(here / "journal", "me")
    journal.write({"fit": Entry({"mean": ones(2, 3)}, (Progress("task", 1, 2, ones(2)),), False)})
    told, held = here / "journal" / "journal-1.json", here / "journal" / "journal-1.safetensors"
    about = json.loads(json.loads(told.read_bytes())["about"])

    def entries(path: Path) -> None:
        for entry in journal.read().entries.values():
            assert entry.tensors is not None

    def with_manifest(path: Path) -> None:
        content = path.read_bytes()
        whole = {**about, "bytes": len(content), "sha256": formats.sha256(content).hexdigest()}
        told.write_bytes(formats.sealed("about", "sha256").pack(whole))
        entries(path)

    (here / "now").mkdir()
    now = {"task": 1, "tasks": 2, "fit": "task", "epoch": 1, "epochs": 2, "written": "2026-01-01T00:00:00+00:00"}
    owner = {"token": "a", "machine": "b", "launch": "c", "host": "d", "pid": 1, "beat": 0.5}
    (here / "address").mkdir()
    (here / "address" / "rows.csv").write_bytes(b"x")
    files = Files(f"file://{here / 'address'}")
    listed = {"format": 1, "files": {"rows.csv": ["rows.csv", 1, formats.sha256(b"x").hexdigest()]}}

    def fetched(path: Path) -> None:
        found = published.read(files, path.name)
        published.fetch(files, found, list(found), here)

    from safetensors.torch import save
    from torch import frombuffer, uint8

    judge = Classifier((ones(2, 2), ones(2)), 0.5, "")
    judge = judge._replace(checksum=formats.sha256(save(_named(judge.weights))).hexdigest())
    packed = save({**_named(judge.weights), "about": frombuffer(bytearray(formats.text(_about(judge))), dtype=uint8)})

    def judged(path: Path) -> None:
        with reading(path):
            read(path.read_bytes())

    return {
        "manifest of a journal": Reader(
            entries, told, [told.read_bytes()], formats.sealed("about", "sha256"), 1.0
        ),
        "tensors of a journal": Reader(with_manifest, held, [held.read_bytes()], formats.TENSORS),
        "now.json": Reader(
            lambda path: read_now(path.parent), here / "now" / "now.json", [formats.text(now)], formats.JSON
        ),
        "claim at an address": Reader(
            lambda path: owner_of(files, path.name), here / "address" / "claim", [formats.text(owner)], formats.JSON
        ),
        "manifest of an address": Reader(
            fetched, here / "address" / "manifest", [formats.sealed("about", "sha256").pack(listed)],
            formats.sealed("about", "sha256"),
        ),
        "classifier of a store": Reader(judged, here / "classifier", [packed], formats.TENSORS),
    }  # fmt: skip


def of_words(here: Path, run: Path) -> dict[str, Reader]:
    """Settings as words and as JSON, plugins, and pages that are there already."""
    from vcl.lab.methods.entry import MethodEntry
    from vcl.lab.registry import _wrong_with, load_file, method
    from vcl.lab.report.folders import check
    from vcl.lab.settings import assign, read_values, values_of, with_values
    from vcl.lab.settings import check as check_settings
    from vcl.learner.report import _start
    from vcl.pages import Page, html, is_page

    kinds = {name: method(name).settings for name in ("vcl-random", "ewc", "si", "vcl-kron")}
    words = [f"{name}={value}" for name, value in values_of(kinds["vcl-random"]()).items()]

    def said(path: Path) -> None:
        changes = path.read_text("utf-8", "surrogateescape").split("\n")[:20]
        for name, values in assign(changes, {}, kinds).items():
            check_settings(with_values(kinds[name](), values))

    def stored(path: Path) -> None:
        from vcl.lab.reading import read_object, reading

        with reading(path):
            read_values(kinds["vcl-random"], read_object(path))

    fields: Mapping[str, Any] = method("ewc")._asdict()

    def entry(path: Path) -> None:
        from vcl.errors import VclError

        try:
            given = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise VclError("no entry") from error
        known = given.items() if isinstance(given, dict) else ()
        changed = {name: value for name, value in known if name in fields and value != "as it is"}
        wrong = _wrong_with(MethodEntry(**{**fields, **changed}))
        if wrong:
            raise VclError(wrong)

    def page(path: Path) -> None:
        check(path, True)
        is_page(_start(path))

    def plugin(path: Path) -> None:
        content = path.read_bytes()  # a program is run as it is, so that none may come of it
        for word in (b"(", b"import", b"@"):
            content = content.replace(word, b"_")
        path.write_bytes(content)
        load_file(path)

    return {
        "--set": Reader(said, here / "words", ["\n".join(words).encode()], formats.BYTES, 2.0),
        "settings in JSON": Reader(
            stored, here / "settings.json", [formats.text(values_of(kinds["vcl-random"]()))], formats.JSON, 2.0
        ),
        "entry of a plugin": Reader(
            entry, here / "entry.json", [formats.text(dict.fromkeys(fields, "as it is"))], formats.JSON
        ),
        "file of a plugin": Reader(plugin, here / "plugin.py", [b"value = 1\n"], formats.BYTES, 0.3),
        "page": Reader(
            page, here / "page.html", [html(Page("A page", "", "", [])).encode()[:3000]], formats.BYTES, 0.5
        ),
    }


def of_paper(here: Path, run: Path) -> dict[str, Reader]:
    """What ``vcl paper`` and its pages read: tables, claims, rows, names of tasks."""
    from vcl.lab.paper.published import items_in, judge_item, seconds_of
    from vcl.lab.paper.reproduce import TASKS
    from vcl.lab.report import paper

    source = Path(__file__).resolve().parents[2] / "results" / "paper"
    for name in ("table.csv", "claims.csv", "table.md"):
        shutil.copy(source / name, here)
    shutil.copytree(source / "toy2d", here / "toy2d")
    shutil.copytree(source / "estimators", here / "estimators")

    def judged(path: Path) -> None:
        seconds = seconds_of(here)
        for item in items_in(here):
            if item.name == "toy2d":
                judge_item(item, here, seconds)

    def paged(path: Path) -> None:
        paper.sections(here, "")
        paper.comparisons(here, "")

    def valid(name: str) -> list[bytes]:
        return [(here / name).read_bytes()]

    tasks = f"estimators/{TASKS}"
    return {
        "table of the paper": Reader(paged, here / "table.csv", valid("table.csv"), formats.CSV, 0.2),
        "claims of the paper": Reader(paged, here / "claims.csv", valid("claims.csv"), formats.CSV, 0.2),
        "document of the paper": Reader(paged, here / "table.md", valid("table.md"), formats.BYTES, 0.2),
        "rows of a table": Reader(judged, here / "toy2d/rows.csv", valid("toy2d/rows.csv"), formats.CSV, 0.1),
        "rows of a stream": Reader(paged, here / "estimators/rows.csv", valid("estimators/rows.csv"), formats.CSV, 0.2),
        "names of tasks": Reader(paged, here / tasks, valid(tasks), formats.JSON, 0.2),
    }
