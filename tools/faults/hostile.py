"""Every reader of vcl, with valid files for it: what ``readers`` hands hostile files to.

A reader takes the path of one file, which is edited, and does what a user does with it: also the first use of what was
read, as a prediction with a learner. It is made in a folder of its own, in which it writes its valid files. Not here
are files of the package itself, such as ``numbers.toml``, and what a process says to its own workers.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import formats
from formats import Format


class Reader(NamedTuple):
    """A reader, where the file lies that it reads, and what is valid there."""

    read: Callable[[Path], object]
    place: Path
    valid: Sequence[bytes]
    format: Format
    weight: float = 1.0
    """How many inputs it is given, beside others."""


def of_datasets(here: Path) -> dict[str, Reader]:
    """IDX, PNG, npz and archives."""
    import numpy as np
    from PIL import Image

    from vcl.lab.datasets import notmnist, npm
    from vcl.lab.datasets.checksum import sha256, verified
    from vcl.lab.datasets.idx import images_and_labels, parse
    from vcl.lab.datasets.png import read_classes
    from vcl.lab.saved import read_inputs

    values = np.arange(12, dtype=np.uint8)
    images = formats.to_idx({"magic": bytes((0, 0, 8, 3)), "sizes": [3, 2, 2], "data": values.tobytes()})
    labels = formats.to_idx({"magic": bytes((0, 0, 8, 1)), "sizes": [3], "data": b"\0\1\2"})
    (here / "A").mkdir()
    pictures = []
    for mode in ("L", "RGB", "P", "I;16", "LA"):
        out = io.BytesIO()
        Image.fromarray(np.arange(784, dtype=np.uint8).reshape(28, 28)).convert(mode).save(out, "PNG")
        pictures.append(out.getvalue())
    arrays = []
    for kinds in ({"images": np.zeros((3, 28, 28), np.uint8), "labels": np.arange(3)}, {"x": values[None] / 2}):
        out = io.BytesIO()
        np.savez(out, allow_pickle=False, **kinds)
        arrays.append(out.getvalue())
    plain = []
    for array in (values.reshape(3, 2, 2), values.reshape(3, 2, 2) / 11, np.asfortranarray(values.reshape(3, 2, 2))):
        out = io.BytesIO()
        np.save(out, array)
        plain.append(out.getvalue())
    files = [["package/data/a", b"0", "", b"x" * 600, None], ["package/data/b", b"2", "a", b"", None]]
    expected = sha256(labels)

    def idx(path: Path) -> None:
        content = path.read_bytes()
        sides = content[3:4]
        (parse(content, 1, "labels") if sides == b"\1" else images_and_labels(content, labels, "images", 10))

    return {
        "IDX": Reader(idx, here / "idx", [images, labels], formats.IDX, 2.0),
        "packed IDX": Reader(
            lambda path: verified(path, expected, "delete it", 2**20), here / "a.gz",
            [gzip.compress(labels), labels], formats.BYTES,
        ),
        "PNG": Reader(
            lambda path: read_classes([path.parent], 28, str), here / "A" / "a.png", pictures, formats.PNG, 2.0
        ),
        "npy": Reader(lambda path: read_inputs(path, (2, 2), True), here / "a.npy", plain, formats.NPY, 2.0),
        "npz of inputs": Reader(lambda path: read_inputs(path, (12,)), here / "in.npz", arrays[1:], formats.NPZ),
        "npz of notMNIST": Reader(
            lambda path: notmnist.read_npz(path, "0" * 64), here / "a.npz", arrays[:1], formats.NPZ
        ),
        "archive": Reader(
            lambda path: list(npm._members(path, "package/data", ["a"], 2**20)), here / "a.tgz",
            [formats.to_tgz(files)], formats.TGZ, 2.0,
        ),
    }  # fmt: skip


TABLE = b"a,b,c\n1.5,x,0\n2,y,1\n,x,1\n"


def of_tables(here: Path) -> dict[str, Reader]:
    """What ``vcl model update`` takes."""
    import numpy as np

    from vcl.lab.model import files
    from vcl.lab.model.columns import Arrays
    from vcl.lab.model.recipe import Recipe
    from vcl.lab.model.targets import labelled
    from vcl.learner.tables import Table

    out = io.BytesIO()
    np.savez(out, allow_pickle=False, x=np.ones((3, 2)), y=np.arange(3))
    table = {"a": [1.5, 2.0, None], "b": ["x", "y", "x"], "c": [0, 1, 1]}

    def learned(kind: str) -> Callable[[Path], None]:
        recipe = Recipe(kind, (5,), {}, "c", ())

        def read(path: Path) -> None:
            found = labelled(files.read(path), recipe, None, str(path))
            if not isinstance(found.x, np.ndarray):
                Table.of(found.x).numbers(found.x, str)

        return read

    def inputs(path: Path) -> None:
        found = files.read(path)
        assert isinstance(found, Arrays)

    tabs = TABLE.replace(b",", b"\t")
    return {
        "CSV of classes": Reader(learned("classifier"), here / "a.csv", [TABLE], formats.CSV, 2.0),
        "CSV of numbers": Reader(learned("regressor"), here / "b.csv", [TABLE, tabs], formats.CSV, 2.0),
        "TSV": Reader(learned("classifier"), here / "a.tsv", [tabs], formats.BYTES),
        "Parquet": Reader(learned("classifier"), here / "a.parquet", [formats.to_parquet(table)], formats.PARQUET, 2.0),
        "npz of tables": Reader(learned("classifier"), here / "b.npz", [out.getvalue()], formats.NPZ),
        "npz of arrays": Reader(inputs, here / "c.npz", [out.getvalue()], formats.NPZ),
    }


def of_learners(here: Path) -> dict[str, Reader]:
    """Saved states, learners, generators, and models of ``vcl model``."""
    import torch

    import vcl
    from vcl.lab.model import described, kept
    from vcl.lab.model import recipe as recipes
    from vcl.lab.model.recipe import Recipe
    from vcl.learner.checkpoint import from_bytes, to_bytes
    from vcl.learner.folder import _check
    from vcl.learner.generative import _check as check_of
    from vcl.models import mlp_vae

    torch.manual_seed(0)
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    recipe, models = Recipe("classifier", (3,), {"epochs": 1, "method": "mean-field"}), here / "model"
    models.mkdir()
    learner = recipe.learner(3, verbose=0)
    learner.update({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}, y, task="one")
    kept.save(models, learner, recipe)
    manifest = json.loads((models / "learner.json").read_bytes())

    def resealed(tree: Any) -> bytes:
        if isinstance(tree, dict) and "check" in tree:
            with suppress(ValueError, TypeError, RecursionError):
                tree = {**tree, "check": _check(json.loads(formats.text(tree)))}
        return formats.text(tree)

    def model(path: Path) -> None:
        found = recipes.read(models)
        learner = kept.load(models, found, verbose=0)
        described.as_text(models, found)
        table = {name: x[:4, place].numpy() for place, name in enumerate("abc")}
        learner.predict(table if learner._known is not None and learner._known.table else x[:4].numpy())

    def changed(name: str) -> Callable[[Path], None]:
        """Reads a learner one of whose files has other bytes, and whose manifest says that these were saved."""

        def read(path: Path) -> None:
            content = path.read_bytes()
            about = json.loads(json.dumps(manifest))
            about["files"][name]["sha256"] = formats.sha256(content).hexdigest()
            (models / "learner.json").write_bytes(resealed(about))
            try:
                model(path)
            finally:
                (models / "learner.json").write_text(json.dumps(manifest))

        return read

    vae = mlp_vae(16, latent=2, features=3, hidden=3)
    generator = vcl.GenerativeLearner(vae, seeds=(0,))
    generator.method = vcl.learner.generative.generative_vcl(vcl.Ascent(epochs=1, batch=8))
    generator.update(torch.rand(8, 4, 4), "a")
    generator.save(here / "generator")

    def drawn(path: Path) -> None:
        found = vcl.GenerativeLearner.load(path, vae)
        for task in found.tasks:
            found.sample(task, 1)

    def whole(tree: Any) -> bytes:
        """A generator's file, whose checksum of itself is right."""
        told, state = tree["tensors"]["learner"]["data"], tree["tensors"]["state"]["data"]
        packed = formats.to_safetensors(state["safetensors"])
        told = {name: value for name, value in told.items() if name != "check"}
        sealed = {**told, "check": check_of(json.loads(formats.text(told)), packed)}
        parts = {
            "learner": {**tree["tensors"]["learner"], "data": sealed},
            "state": {**tree["tensors"]["state"], "shape": [len(packed)], "data": packed},
        }
        return formats.to_safetensors({**tree, "tensors": {**tree["tensors"], **parts}})

    state, arrays = (models / manifest["files"][name]["file"] for name in ("state", "arrays"))
    states = [to_bytes(generator.state), state.read_bytes()]
    return {
        "state": Reader(lambda path: from_bytes(path.read_bytes()), here / "state", states, formats.TENSORS, 2.0),
        "learner.json": Reader(
            model, models / "learner.json", [json.dumps(manifest).encode()], Format(json.loads, resealed), 2.0
        ),
        "state of a learner": Reader(changed("state"), state, [state.read_bytes()], formats.TENSORS),
        "arrays of a learner": Reader(changed("arrays"), arrays, [arrays.read_bytes()], formats.TENSORS),
        "model.json": Reader(model, models / "model.json", [(models / "model.json").read_bytes()], formats.JSON),
        "generator": Reader(
            drawn,
            here / "generator",
            [(here / "generator").read_bytes()],
            Format(formats.from_safetensors, whole),
        ),
    }


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

    return {
        "part.json of tables": Reader(shown, part / "part.json", valid("part.json"), formats.JSON, 0.5),
        "part.json of stacks": Reader(stacks, part / "part.json", valid("part.json"), formats.JSON, 2.0),
        "part.json of predictions": Reader(predicted, part / "part.json", valid("part.json"), formats.JSON, 0.5),
        "rows.csv": Reader(stacks, part / "rows.csv", valid("rows.csv"), formats.CSV, 2.0),
        **{
            name: Reader(shown, part / name, valid(name), formats.CSV, 0.3)
            for name in ("objective.csv", "fits.csv", "calibration.csv")
        },
        "predictive.safetensors": Reader(
            predicted, part / "predictive.safetensors", valid("predictive.safetensors"), formats.TENSORS, 0.5
        ),
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


def readers(here: Path, run: Path) -> dict[str, Reader]:
    """All readers, by what they read; their valid files are written below ``here``."""
    found: dict[str, Reader] = {}
    made: Mapping[str, Callable[[Path], dict[str, Reader]]] = {
        "datasets": of_datasets,
        "tables": of_tables,
        "learners": of_learners,
        "results": lambda place: of_results(place, run),
        "work": lambda place: of_work(place, run),
        "words": lambda place: of_words(place, run),
        "paper": lambda place: of_paper(place, run),
    }
    for name, make in made.items():
        (here / name).mkdir(parents=True)
        found |= make(here / name)
    return found
