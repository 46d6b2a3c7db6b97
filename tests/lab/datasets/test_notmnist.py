from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vcl.errors import VclError
from vcl.lab.datasets import load, notmnist
from vcl.lab.datasets.split import held_out


def glyphs(n: int = 40, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (n * classes, 28, 28), dtype=np.uint8)
    return images, np.repeat(np.arange(classes), n)


def png_folder(folder: Path, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
    images, labels = glyphs(n)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        (folder / "ABCDEFGHIJ"[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / "ABCDEFGHIJ"[label] / f"{index:04}.png")
    return images, labels


def test_split_keeps_identical_images_together() -> None:
    images, labels = glyphs()
    images[5] = images[3]
    images[45] = images[3]  # the same image under another label
    images[100:135] = images[100]  # a group that is larger than the test part
    test = held_out(images, labels, 0.1)
    sides = [{image.tobytes() for image in images[side]} for side in (test, ~test)]
    assert not sides[0] & sides[1]
    assert test[3] == test[5] == test[45]
    assert not test[100:135].any()
    assert set(np.bincount(labels[test])) <= {3, 4, 5}


def test_split_does_not_depend_on_the_order() -> None:
    images, labels = glyphs()
    order = np.random.default_rng(2).permutation(len(images))
    np.testing.assert_array_equal(held_out(images, labels, 0.1)[order], held_out(images[order], labels[order], 0.1))


def test_npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = glyphs()
    (tmp_path / "notmnist").mkdir()
    path = tmp_path / "notmnist" / "notmnist_small.npz"
    np.savez_compressed(path, images=images, labels=labels.astype(np.uint8))
    found = notmnist.content_sha256(images, labels)
    with pytest.raises(VclError, match=f"^{path} is truncated or altered .* expected .*, found {found}.*delete it"):
        load("notmnist", tmp_path)
    np.testing.assert_array_equal(notmnist.read_npz(path, found)[0], images)
    # And the whole way, as if these were the known images.
    monkeypatch.setattr(notmnist, "SMALL_SHA256", found)
    dataset = load("notmnist", tmp_path)
    assert (len(dataset.train_x), len(dataset.test_x)) == (360, 40)
    assert (dataset.train_x.dtype, dataset.train_y.dtype) == (np.uint8, np.int64)
    assert dataset.classes == tuple("ABCDEFGHIJ")


IMAGES, LABELS = np.zeros((2, 28, 28), np.uint8), np.zeros(2, np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": IMAGES, "labels": LABELS},
            "lacks the array images: expected images and labels, found x, labels",
        ),
        ({"images": IMAGES.astype(float), "labels": LABELS}, "images of float64"),
        ({"images": IMAGES[:, :5], "labels": LABELS}, r"images of uint8 \(2, 5, 28\)"),
        ({"images": IMAGES, "labels": LABELS.astype(float)}, "labels of float64"),
        ({"images": IMAGES, "labels": LABELS[:1]}, r"labels of uint8 \(1,\)"),
        ({"images": IMAGES, "labels": LABELS + 10}, "labels from 10 to 10: expected 0 to 9"),
        (
            {"images": np.array([{}, None]), "labels": LABELS},
            "an array of Python objects, which only pickle could read",
        ),
    ],
)
def test_npz_faults_are_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, **arrays)
    with pytest.raises(VclError, match=f"^{path} .*{message}"):
        notmnist.read_npz(path, "0" * 64)


@pytest.mark.parametrize("keep", [0, 10, 1000, -30])
def test_npz_that_is_truncated(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, images=IMAGES, labels=LABELS)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(VclError, match=r"truncated or altered .* found none, for it cannot be read.*delete it"):
        notmnist.read_npz(path, "0" * 64)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("notmnist", "notmnist"), ("notmnist", "notMNIST_small"), ("notmnist-large", "notmnist_large")],
)
def test_png_folder(tmp_path: Path, name: str, folder: str) -> None:
    images, _ = png_folder(tmp_path / folder)
    (tmp_path / folder / "B" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    (tmp_path / folder / "C" / "empty.png").write_bytes(b"")
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(tmp_path / folder / "D" / "small.png")
    (tmp_path / folder / "D" / "notes.txt").write_text("no image")
    lines: list[str] = []
    dataset = load(name, tmp_path, say=lines.append)
    assert (len(dataset.train_x), len(dataset.test_x)) == (90, 10)
    assert {x.tobytes() for x in [*dataset.train_x, *dataset.test_x]} == {x.tobytes() for x in images}
    assert np.bincount(dataset.test_y).tolist() == [1] * 10
    (line,) = [line for line in lines if "left out" in line]
    assert "left out 3 PNG file(s)" in line
    assert "broken.png" in line


def test_png_folder_that_is_the_known_set_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = notmnist.content_sha256(*png_folder(tmp_path / "notmnist", 2))
    lines: list[str] = []
    load("notmnist", tmp_path, say=lines.append)
    assert len(lines) == 1
    assert "is not the known notMNIST small: its 20 images are taken as they are" in lines[0]
    monkeypatch.setattr(notmnist, "SMALL_SHA256", known)
    load("notmnist", tmp_path, say=lines.append)
    assert len(lines) == 1


def test_png_class_without_images(tmp_path: Path) -> None:
    png_folder(tmp_path / "notmnist", 1)
    for path in (tmp_path / "notmnist" / "E").iterdir():
        path.write_bytes(b"broken")
    with pytest.raises(VclError, match="E has no readable PNG file of 28x28"):
        load("notmnist", tmp_path)


def test_notmnist_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VCL_OFFLINE")
    with pytest.raises(VclError, match=r"no verified place to fetch it from.*unpack .*notMNIST_small\.tar\.gz"):
        load("notmnist")
