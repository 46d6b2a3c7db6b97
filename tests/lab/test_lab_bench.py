"""`vcl bench`: the work is what it says, jobs take turns, and what is written is what is shown. No time is asserted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from lab_made import alone, call, fault

from vcl.engines.structure import Fork, Opaque
from vcl.lab.bench import floors, peers, shapes, suite, work
from vcl.lab.bench.timing import WARM_UP, Timing, take_turns

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_jobs_take_turns_and_the_first_call_of_each_row_is_left_out() -> None:
    called: list[str] = []
    jobs = {"a": lambda: called.append("a"), "b": lambda: called.append("b")}
    timed = take_turns(jobs, rounds=2, calls=3, device=CPU)
    assert "".join(called) == "a" * WARM_UP + "b" * WARM_UP + ("aaaa" + "bbbb") * 2
    assert {name: timing.calls for name, timing in timed.items()} == {"a": 6, "b": 6}
    assert all(0 <= timing.least <= timing.middle for timing in timed.values())


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_a_step_of_the_standard_work_learns(estimator: str, general: bool) -> None:
    once = work.step(work.standard(CPU), estimator, draws=2, runs=2, general=general)  # type: ignore[arg-type]
    values = torch.stack([once().value for _ in range(12)])  # type: ignore[attr-defined]
    assert values.shape == (12, 2)
    assert (values[-3:].mean(0) > values[:3].mean(0)).all()


def test_the_general_way_has_the_same_outputs() -> None:
    fast, general = work.network(), work.network(general=True)
    assert isinstance(fast.structure(("all",)), Fork)
    assert isinstance(general.structure(("all",)), Opaque)
    x, theta = torch.rand(3, 28, 28), torch.randn(89_610)
    one, other = (net.predict(net.layout({"all": 10}).split(theta), x, "all") for net in (fast, general))
    assert torch.allclose(one, other)


def test_the_floor_has_the_products_of_a_step_and_no_others() -> None:
    draws, runs = 3, 2
    shapes = [tuple(product.shape) for product in work.floor(work.standard(CPU), draws, runs)()]  # type: ignore[attr-defined]
    wide = work.BATCH * draws
    forward = [(runs, work.BATCH, 100)] * 2 + [(runs, 100, 784)] * 2
    second = [(runs, wide, 100)] * 2 + [(runs, 100, 100)] * 2 + [(runs, wide, 100)] * 2
    last = [(runs, wide, 10)] * 2 + [(runs, 10, 100)] * 2 + [(runs, wide, 100)] * 2
    assert shapes == forward + second + last


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_the_floor_keeps_its_memory(device: str) -> None:
    multiply = work.floor(work.standard(torch.device(device)), 2, 2)
    found = [product.clone() for product in multiply()]  # type: ignore[attr-defined]
    others = [torch.full_like(product, torch.nan) for product in found for _ in range(9)]
    assert all(torch.equal(*each) for each in zip(found, multiply(), strict=True))  # type: ignore[call-overload]
    assert all(other.isnan().all() for other in others)


def test_the_published_shapes_are_those_of_the_paper() -> None:
    found = {shape.name: (shape.sizes, shape.rows, shape.draws, shape.runs) for shape in shapes.published()}
    assert found == {
        "split-mnist": ("784-256-256-2", 12_000, 10, (1, 10)),
        "split-notmnist": ("784-150-150-150-150-2", 3_370, 10, (1, 10)),
        "permuted-digits": ("64-100-10", 64, 10, (1, 10)),
        "generative-mnist": ("784-500-500-500-100 and 50-500-500-500-784", 50, 10, (1, 3)),
    }
    assert {shape.estimator for shape in shapes.published()} == {"weights"}
    assert [shape.rows for shape in shapes.published(60)] == [60, 60, 60, 50]


@pytest.mark.parametrize("shape", shapes.published(60), ids=lambda shape: shape.name)
def test_a_step_of_a_published_shape_learns_and_multiplies_what_its_floor_does(shape: shapes.Shape) -> None:
    shape = shape._replace(draws=2)
    step = shapes.step(shape, 2, CPU)
    values = torch.stack([step.job().value for _ in range(8)])  # type: ignore[attr-defined]
    assert values.shape == (8, 2)
    assert (values[-2:].mean(0) > values[:2].mean(0)).all()
    # The first product of a layer is its output, of all runs and draws; the second is as large as its weights.
    sizes, places = [product.numel() for product in step.floor()], 0  # type: ignore[attr-defined]
    for layer in shape.layers:
        copies = 2 * (2 if layer.drawn else 1)
        assert sizes[places] == copies * shape.rows * layer.out
        assert sizes[places + 1] == copies * layer.out * layer.width
        if layer.back:
            assert sizes[places + 2] == 2 * (2 if layer.by_draw else 1) * shape.rows * layer.width
        places += 3 if layer.back else 2
    assert places == len(sizes)


def test_products_of_the_first_layer_have_the_draws_side_by_side() -> None:
    pairs = floors.products((floors.Layer(5, 4, by_draw=False, back=False), floors.Layer(4, 2)), 7, 3, 2, CPU)
    assert [tuple(product.shape) for product in floors.multiply(pairs, CPU)()] == [
        (2, 7, 12), (2, 12, 5), (6, 7, 2), (6, 2, 4), (6, 7, 4),
    ]  # fmt: skip


def test_bytes_are_counted_by_hand() -> None:
    # Ten drawn parameters and 3 points: 23 climbed values, each read and written with two moments.
    adam, points = 23 * 3 * 2, 3 * (2 + 2)
    assert floors.moved(10, 3, 4, "weights") == 4 * (10 * 4 * (1 + 2 + 1 + 1) + points + adam)
    assert floors.moved(10, 3, 4, "local") == 4 * (2 * 10 * (2 + 1 + 1) + points + adam)
    assert work.moved("weights", 10, 2) == floors.moved(2 * 89_610, 0, 10, "weights")


def test_bandwidth_is_what_a_large_copy_reads_and_writes() -> None:
    copy = floors.copy(CPU)
    assert copy.bytes == 2 * 2**24 * 4
    assert copy.time(Timing(2.0, 3.0, 7), copy.bytes // 2) == Timing(1.0, 1.5, 7)


def test_what_takes_a_cpu_too_long_is_left_out() -> None:
    found = {shape.name: [runs for runs in shape.runs if shape.fits(runs, CPU)] for shape in shapes.published()}
    assert found == {
        "split-mnist": [1],
        "split-notmnist": [1],
        "permuted-digits": [1, 10],
        "generative-mnist": [1, 3],
    }


@pytest.mark.parametrize("peer", peers.installed(), ids=lambda peer: peer.name)
def test_the_other_libraries_do_the_same_work(peer: peers.Peer) -> None:
    standard = work.standard(CPU)
    _, forward = peer.build()
    output, divergence = forward(standard.x[:5].flatten(1).float())
    assert output.shape == (5, 10)
    assert float(divergence) != 0
    peers.step(standard, peer, 3)()
    probabilities = peers.prediction(standard.x[:7], peer, 4)()
    assert probabilities.shape == (7, 10)  # type: ignore[attr-defined]


def test_ratios_are_of_the_least_times() -> None:
    timed = {"floor": Timing(2.0, 9.0, 3), "ours": Timing(3.0, 4.0, 3)}
    lines = suite._lines("group", timed, {"floor": "floor"})
    assert [(line.name, line.ratios) for line in lines] == [("floor", {"floor": 1.0}), ("ours", {"floor": 1.5})]
    timed |= {f"ours{suite.GENERAL}": Timing(6.0, 7.0, 3)}
    assert suite._lines("group", timed, {"floor": "floor"})[-1].ratios == {"floor": 3.0, "fast way": 2.0}


def test_the_command_shows_and_writes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = alone(tmp_path, monkeypatch)
    monkeypatch.setattr(suite, "QUICK", suite.Size(1, 20, 300, 60))
    monkeypatch.setattr(suite, "RUNS", (1,))
    monkeypatch.setattr(suite, "DRAWS", (1, 2))
    monkeypatch.setattr(suite, "IMPORTS", 1)
    monkeypatch.setattr(suite, "take_turns", lambda jobs, *_, **__: take_turns(jobs, 1, 1, CPU, warm_up=0))
    few = [shape._replace(runs=shape.runs[:1], draws=2 if number else shape.draws)
           for number, shape in enumerate(shapes.published(60))]  # fmt: skip
    monkeypatch.setattr(shapes, "published", lambda task: few)
    result = call("bench --quick --device cpu --out bench.json")
    assert result.exit_code == 0, result.output
    about = json.loads((here / "bench.json").read_text())
    assert "…" not in result.output  # no number is cut
    groups = {line["group"] for line in about["lines"]}
    assert {"step, 1 runs x 1 draws", "step, 1 runs x 2 draws", "import"} <= groups
    assert "step of split-mnist, 784-256-256-2, batch 60, 1 runs x 10 draws" in groups
    assert "classes of class-incremental-digits, 20 images x 10 classes x 50 draws" in groups
    for line in about["lines"]:
        assert line["name"] in result.output.replace("\n", " ")
        assert 0 <= line["least_ms"] <= line["median_ms"] + 1e-9
    local = next(line for line in about["lines"] if line["name"] == "local")
    floor = next(line for line in about["lines"] if line["name"] == "matrix products alone")
    assert local["ratios"]["floor"] == pytest.approx(local["least_ms"] / floor["least_ms"], rel=0.02)
    for name in ("local", "weights"):  # each estimator against its own bytes
        mine = [line for line in about["lines"] if line["group"] == "step, 1 runs x 2 draws"]
        least = {line["name"]: line["least_ms"] for line in mine}
        ratios = {line["name"]: line["ratios"] for line in mine}
        for way in (name, name + suite.GENERAL):
            ratio = least[way] / least[suite.BYTES_OF + name]
            assert ratios[way]["bytes"] == pytest.approx(ratio, rel=0.02)


def test_libraries_that_are_not_installed_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed", lambda: peers.PEERS[:1])
    monkeypatch.setattr(suite, "run", lambda *_: [])
    assert "left out: bayesian-torch, blitz (pip install vcl[bench])" in call("bench --device cpu").output


def test_bad_options_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(tmp_path, monkeypatch)
    cores = os.cpu_count()
    for threads in (0, 99_999):
        told = f"--threads is {threads}; give 1 to {cores}, as many as this machine has cores."
        assert fault(f"bench --threads {threads}") == told
    assert "tf32" in fault("bench --matmul tf23")
    assert fault("bench --out nowhere/bench.json").endswith("give a file in a folder that exists.")
    assert fault("bench --out .").endswith("which is a folder; give a file, such as bench.json.")
    Path("old.json").write_text("{}")
    assert fault("bench --out old.json") == "--out is old.json, which exists; give a new name, or delete it first."
    assert Path("old.json").read_text() == "{}"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert fault("bench --out bench.json").endswith("nothing may be written in .; give a file in another folder.")
