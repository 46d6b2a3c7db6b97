"""Readers of what users give: datasets, tables and folders of learners, with valid files for each."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import formats
from formats import Format
from reader import Reader


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
    from vcl.lab.sums import signed
    from vcl.learner.checkpoint import from_bytes, to_bytes
    from vcl.learner.folder import checksum_of
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
                tree = {**tree, "check": checksum_of(json.loads(formats.text(tree)))}
        return formats.text(tree)

    def signed_again(tree: Any) -> bytes:
        if isinstance(tree, dict):
            with suppress(ValueError, TypeError, RecursionError):
                return formats.text(signed(json.loads(formats.text(tree))))
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
        "model.json": Reader(
            model, models / "model.json", [(models / "model.json").read_bytes()], Format(json.loads, signed_again)
        ),
        "generator": Reader(
            drawn,
            here / "generator",
            [(here / "generator").read_bytes()],
            Format(formats.from_safetensors, whole),
        ),
    }
