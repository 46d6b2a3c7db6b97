"""The classifier that judges generated images: what it learns, and how its file in the store is kept and checked."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch
from lab_made import files_under, images, without_checksums
from rich.console import Console
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional as F

from vcl.errors import VclError
from vcl.lab.compute import compute, prepare
from vcl.lab.datasets import load as load_dataset
from vcl.lab.datasets.checksum import sha256
from vcl.lab.generative import classifier as made_here
from vcl.lab.generative.classifier import FORMAT, LAYERS, Classifier, Training, trained
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import make_plan
from vcl.lab.store import Store
from vcl.lab.streams import Arrays, arrays
from vcl.ops.rng import Rng

CPU = torch.device("cpu")
SMALL = Training(12, 2)


def stripes(each: int = 40, classes: int = 4, side: int = 8) -> Arrays:
    """Class c has the rows 2c and 2c + 1 bright; all else is dim noise, so that a look at one row is enough."""
    g = torch.Generator().manual_seed(0)

    def part(n: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(n * classes) % classes
        x = torch.randint(0, 60, (n * classes, side, side), generator=g, dtype=torch.uint8)
        for c in range(classes):
            x[y == c, 2 * c : 2 * c + 2] += 150
        return x, y

    return Arrays(*part(each), *part(10), tuple("abcdefg"[:classes]))


def same(one: Classifier, other: Classifier) -> bool:
    return one[1:] == other[1:] and all(map(torch.equal, one.weights, other.weights))


# What it learns.


def test_it_learns_classes_that_can_be_told_apart() -> None:
    data = stripes()
    found = trained(data, Training(64, 60), CPU)
    assert found.accuracy == 1.0
    log_probs = found.log_probs(data.test_x.flatten(1) / 255)
    assert log_probs.gather(1, data.test_y[:, None]).min() > -0.05, "and is sure of every one of them"


def test_it_knows_the_digits() -> None:
    # Measured: 99.4 % with 60 epochs.
    found = trained(arrays(load_dataset("digits")), Training(200, 60), CPU)
    assert found.accuracy >= 0.98


def test_it_has_three_hidden_layers_of_the_size_asked_for() -> None:
    weights = trained(images(classes=3), Training(7, 1), CPU).weights
    assert [tuple(part.shape) for part in weights] == [(7, 64), (7,), (7, 7), (7,), (7, 7), (7,), (3, 7), (3,)]
    assert len(weights) == 2 * (LAYERS + 1)
    assert not any(part.requires_grad for part in weights)


def test_the_same_data_and_settings_give_the_same_weights_bit_for_bit() -> None:
    torch.manual_seed(1)
    one = trained(images(), SMALL, CPU)
    torch.manual_seed(2)
    assert same(one, trained(images(), SMALL, CPU))


@pytest.mark.parametrize(
    "other",
    [
        lambda: trained(images(train=59), SMALL, CPU),
        lambda: trained(images(), Training(12, 3), CPU),
        lambda: trained(images(), SMALL, CPU, Rng((1,)).at("classifier")),
    ],
    ids=["data", "epochs", "rng"],
)
def test_other_data_settings_or_randomness_give_another_one(other: Callable[[], Classifier]) -> None:
    one, another = trained(images(), SMALL, CPU), other()
    assert not torch.equal(one.weights[0], another.weights[0])
    assert one.checksum != another.checksum


def test_no_global_randomness_is_used_or_left_behind(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    stored(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


# What it says.


def test_probabilities_sum_to_one_whatever_stands_before_the_pixels() -> None:
    found = trained(images(), SMALL, CPU)
    log_probs = found.log_probs(torch.rand(3, 5, 64, generator=torch.Generator().manual_seed(0)))
    assert log_probs.shape == (3, 5, 10)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, 5))


def test_the_accuracy_is_the_share_of_right_answers_on_the_test_set() -> None:
    data = stripes(each=6)
    found = trained(data, Training(8, 2), CPU)
    right = 0
    for image, label in zip(data.test_x, data.test_y.tolist(), strict=True):
        log_probs = found.log_probs(image.flatten() / 255).tolist()
        right += log_probs.index(max(log_probs)) == label
    assert 0 < right < 40, "neither all nor none, so that counting matters"
    assert found.accuracy == right / 40


def test_the_checksum_is_that_of_the_weights() -> None:
    found = trained(images(), SMALL, CPU)
    named = {str(place): weight for place, weight in enumerate(found.weights)}
    assert found.checksum == sha256(save(named))
    named["3"] = named["3"] + 1e-6
    assert found.checksum != sha256(save(named))


# Dropout.


def test_dropout_is_for_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    data = images()
    found = trained(data, SMALL, CPU)
    x = data.test_x.flatten(1) / 255
    by_hand = x
    for place in range(0, 6, 2):
        by_hand = (by_hand @ found.weights[place].T + found.weights[place + 1]).clamp(min=0)
    by_hand = F.log_softmax(by_hand @ found.weights[6].T + found.weights[7], -1)
    torch.testing.assert_close(found.log_probs(x), by_hand)

    monkeypatch.setattr(made_here, "DROPOUT", 0.9)
    torch.testing.assert_close(found.log_probs(x), by_hand)
    other = trained(data, SMALL, CPU)
    assert not torch.equal(other.weights[0], found.weights[0]), "training is another with more of it"


def test_under_dropout_a_fifth_of_the_units_is_silent_and_the_rest_speaks_up() -> None:
    units, rows = 10, 20_000
    weights = (torch.eye(units), torch.zeros(units), torch.ones(1, units), torch.zeros(1))
    masks = torch.Generator().manual_seed(0)
    heard = made_here._forward(weights, torch.ones(rows, units), masks)[:, 0]
    speaking = heard * 0.8  # each that is left counts 1 / 0.8
    torch.testing.assert_close(speaking, speaking.round(), atol=1e-4, rtol=0)
    # Binomial(10, 0.8): mean 8 and variance 1.6, so the mean of 20,000 has an error of 0.009.
    assert float(speaking.mean()) == pytest.approx(8, abs=0.04)
    assert float(speaking.var()) == pytest.approx(1.6, abs=0.1)
    again = made_here._forward(weights, torch.ones(rows, units), masks)[:, 0]
    assert not torch.equal(heard, again), "other units each time"


# The store.


def stored(out: Path, data: Arrays | None = None, how: Training = SMALL) -> tuple[Classifier, list[str]]:
    """The classifier, and what was said: as a part of a generative experiment asks for it."""
    said: list[str] = []
    data = images() if data is None else data
    asked = ("ll_draws=2", "images=3", f"classifier_hidden={how.hidden}", f"classifier_epochs={how.epochs}")
    plan = make_plan("generative-digits", "naive", "smoke", 1, "cpu", asked)
    part = Part(plan, plan.methods[0], Loaded(data, "made up", data.digest()))
    judge = prepare(part, Store(out, CPU, "vcl test"), said.append)[0]
    assert judge.classes == data.classes
    return judge.classifier, said


def kept(out: Path) -> list[Path]:
    """The files that hold classifiers."""
    return sorted((out / "parts").glob("classifier-*/classifier.safetensors"))


def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Classifier:
        pytest.fail("it was trained again")

    monkeypatch.setattr(made_here, "trained", never)


def test_a_second_call_reads_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, said = stored(tmp_path / "new" / "cache")
    no_training(monkeypatch)
    second, again = stored(tmp_path / "new" / "cache")
    assert same(first, second)
    percent = 100 * first.accuracy
    assert said == again == [f"classifier: {percent:.2f} % on the test set, SHA-256 {first.checksum[:16]}…"]


def test_each_dataset_and_each_training_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [(images(), SMALL), (images(train=50), SMALL), (images(), Training(13, 2)), (images(), Training(12, 1))]
    made = [stored(tmp_path, *each)[0] for each in asked]
    abouts = [json.loads(path.with_name("part.json").read_text())["description"] for path in kept(tmp_path)]
    wanted = {(data.digest(), how.hidden, how.epochs, "cpu") for data, how in asked}
    assert {(about["data"], about["hidden"], about["epochs"], about["device"]) for about in abouts} == wanted
    assert len(abouts) == len({each.checksum for each in made}) == 4
    no_training(monkeypatch)
    assert all(same(stored(tmp_path, *each)[0], wanted) for each, wanted in zip(asked, made, strict=True))


Damage = Callable[[bytes], bytes]


def flipped(content: bytes) -> bytes:
    """One bit of the first weight is another."""
    size = int.from_bytes(content[:8], "little")
    start, _ = json.loads(content[8 : 8 + size])["0"]["data_offsets"]
    place = 8 + size + start
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def rewritten(change: Callable[[dict[str, Tensor], dict[str, object]], object]) -> Damage:
    """A whole file again, with other weights or another story about them."""

    def damage(content: bytes) -> bytes:
        tensors = load(content)
        about = json.loads(bytes(tensors.pop("about").numpy()))
        told = change(tensors, about)
        told = told if isinstance(told, (dict, list)) else about
        tensors["about"] = torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)
        return save(tensors)

    return damage


DAMAGES: dict[str, Damage] = {
    "a bit of a weight": flipped,
    "cut short": lambda content: content[:-1],
    "cut to its header": lambda content: content[:60],
    "empty": lambda content: b"",
    "no tensors": lambda content: b"not a file of tensors, but long enough to have a header",
    "another format": rewritten(lambda tensors, about: about.update(format=FORMAT + 1)),
    "another checksum": rewritten(lambda tensors, about: about.update(checksum="0" * 64)),
    "a weight too few": rewritten(lambda tensors, about: tensors.pop("7")),
    "a weight of another shape": rewritten(lambda tensors, about: tensors.update({"1": torch.zeros(5)})),
    "no story": lambda content: save({"0": torch.zeros(2)}),
    "a story that is no JSON": lambda content: save({"0": torch.zeros(2), "about": torch.zeros(9, dtype=torch.uint8)}),
    "another accuracy": rewritten(lambda tensors, about: about.update(accuracy=0.999)),
    "no checksum": rewritten(lambda tensors, about: {"format": FORMAT}),
    "a story of another kind": rewritten(lambda tensors, about: ["format", FORMAT]),
    "weights of other names": rewritten(lambda tensors, about: tensors.update({"first": tensors.pop("0")})),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_noticed_and_told_and_made_anew_when_it_is_deleted(damage: str, tmp_path: Path) -> None:
    first, said = stored(tmp_path)
    (path,) = kept(tmp_path)
    content = path.read_bytes()
    path.write_bytes(DAMAGES[damage](content))
    assert path.read_bytes() != content
    with pytest.raises(VclError) as told:
        stored(tmp_path)
    assert str(told.value).startswith(f"{path} cannot be read (it")
    assert str(told.value).endswith("; delete its folder to compute it anew.")
    assert "\n" not in str(told.value)
    shutil.rmtree(path.parent)
    second, again = stored(tmp_path)
    assert same(first, second)
    assert said == again
    assert path.read_bytes() == content


def test_a_part_says_by_which_classifier_its_images_were_judged(tmp_path: Path) -> None:
    """Numbers by different classifiers do not compare, so that they are never in one part."""
    data = images()
    found, (line,) = stored(tmp_path)
    plan = make_plan(
        "generative-digits", "naive", "smoke", 1, "cpu",
        ("ll_draws=2", "images=3", "classifier_hidden=12", "classifier_epochs=2", "hidden=3", "tasks=1"),
    )  # fmt: skip
    store = Store(tmp_path, CPU, "vcl test")
    part = Part(plan, plan.methods[0], Loaded(data, "made up", data.digest()))
    compute(part, store, Console(file=StringIO()))
    (stack,) = store.stacks()
    assert stack.known["description"]["prediction"]["classifier"] == found.checksum
    assert stack.known["notes"] == [line]
    # Another one under the same description, as another machine may have trained it.
    (path,) = kept(without_checksums(tmp_path))
    other = trained(data, SMALL, CPU, Rng((1,)).at("classifier"))
    text = torch.frombuffer(bytearray(json.dumps(made_here._about(other)).encode()), dtype=torch.uint8)
    path.write_bytes(save({**made_here._named(other.weights), "about": text}))
    assert compute(part, store, Console(file=StringIO())).new
    assert len(store.stacks()) == 2


@pytest.mark.parametrize("step", ["flush", "move"])
def test_the_file_is_whole_or_absent(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        if step == "flush":
            broken.setattr(os, "fsync", full)
        else:
            broken.setattr(Path, "replace", full)
        with pytest.raises(VclError, match="No space left on device"):
            stored(tmp_path)
    assert files_under(tmp_path) == {}
    found, _ = stored(tmp_path)
    (path,) = kept(tmp_path)
    no_training(monkeypatch)
    assert same(found, stored(tmp_path)[0])
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_stop_between_the_file_and_its_record_trains_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Store, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            stored(tmp_path)
    (path,) = kept(tmp_path)
    path.write_bytes(b"anything")  # nothing says that it is whole
    found, _ = stored(tmp_path)
    assert same(found, trained(images(), SMALL, CPU))


def test_a_store_that_cannot_be_made_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(VclError) as told:
        stored(tmp_path / "file" / "out")
    assert str(tmp_path / "file" / "out") in str(told.value)
    assert "\n" not in str(told.value)
    assert (tmp_path / "file").read_text() == "precious"


def test_on_another_device_it_is_the_same_one() -> None:
    found = trained(images(), SMALL, CPU)
    moved = found.to("meta")
    assert {part.device.type for part in moved.weights} == {"meta"}
    assert moved[1:] == found[1:]
