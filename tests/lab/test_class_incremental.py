"""Class-incremental experiments: their streams, what is measured, both kinds through the command line, and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lab_made import alone, among_digits, call, images, shown_rows

from vcl.errors import VclError
from vcl.lab.class_incremental import SIZE
from vcl.lab.paper import items
from vcl.lab.paper.item import Request, StreamItem, everything
from vcl.lab.plan import make_plan
from vcl.lab.results import Row, matrix, methods, read_csv
from vcl.lab.runner import run_method
from vcl.lab.streams import Stream
from vcl.ops.rng import Rng
from vcl.predicting import class_log_marginals, classify

DATA = images(train=120, test=60, classes=6)
SMALL = (
    "tasks=3", "train_limit=16", "test_limit=8", "latent=2", "hidden=6", "features=6", "epochs=2", "batch=8",
    "z_draws=4",
)  # fmt: skip


def planned(name: str, method: str, *changes: str, seeds: int = 2) -> Any:
    return make_plan(name, method, "smoke", seeds, "cpu", [*changes])


def streamed(name: str, *changes: str) -> Stream:
    plan = planned(name, "vcl", *changes)
    found: Stream = plan.stream(DATA, Rng(plan.seeds))
    return found


def learned(name: str, method: str, *changes: str, seeds: int = 2) -> list[Any]:
    plan = planned(name, method, *changes, seeds=seeds)
    (entry,) = plan.methods
    return list(run_method(plan, entry, plan.runs(entry), DATA, DATA.classes))


class TestStreams:
    def test_each_class_has_a_generator_and_labels_are_places_among_all_classes(self) -> None:
        tasks = list(streamed("class-incremental-digits", "tasks=3", "train_limit=none"))
        assert [task.name for task in tasks] == ["a", "b", "c"]
        assert [dict(task.heads) for task in tasks] == [{"a": 64}, {"b": 64}, {"c": 64}]
        for number, task in enumerate(tasks):
            assert (task.train.y == number).all()
            assert torch.equal(task.train.x[0], DATA.train_x[DATA.train_y == number])

    def test_two_classes_a_task_are_two_generators(self) -> None:
        tasks = list(streamed("class-incremental-digits", "tasks=3", "classes=2", "train_limit=7", "test_limit=4"))
        assert [task.name for task in tasks] == ["a/b", "c/d", "e/f"]
        second = tasks[1]
        assert dict(second.heads) == {"c": 64, "d": 64}
        assert [source.head for source in second.train.sources] == ["c", "d"]
        assert second.train.y[0].tolist() == [2, 2, 2, 2, 3, 3, 3], "as many of each, one more of the first"
        assert [second.train.sources[place].head for place in second.train.source[0]] == ["c"] * 4 + ["d"] * 3
        assert second.test.size == 4

    @pytest.mark.parametrize("name", ["class-incremental-digits", "single-head-digits"])
    def test_an_order_and_too_many_classes(self, name: str) -> None:
        assert [task.name for task in streamed(name, "tasks=3", "order=2,0,1")] == ["c", "a", "b"]
        with pytest.raises(VclError, match="classes is 7; the dataset has 6: give at most 6"):
            streamed(name, "tasks=none", "classes=7")
        with pytest.raises(VclError, match="tasks is 4; 6 classes make at most 3 tasks of 2"):
            streamed(name, "tasks=4", "classes=2")

    def test_both_kinds_have_the_same_examples(self) -> None:
        for changes in (("tasks=3",), ("tasks=2", "classes=2", "train_limit=none", "test_limit=none")):
            two = (streamed(name, *changes) for name in ("class-incremental-digits", "single-head-digits"))
            for ours, heads in zip(*two, strict=True):
                assert ours.name == heads.name
                for mine, theirs in ((ours.train, heads.train), (ours.test, heads.test)):
                    assert sorted(mine.y[0].tolist()) == sorted(theirs.y[0].tolist())
                    assert sorted(mine.x[0].flatten(1).tolist()) == sorted(theirs.x[0].flatten(1).tolist())


class TestWhatIsMeasured:
    @pytest.mark.parametrize("changes", [("order=2,0,1",), ("classes=2", "tasks=2", "order=1,0")])
    def test_accuracy_is_among_the_classes_met_whatever_their_order(self, changes: tuple[str, ...]) -> None:
        last = learned("class-incremental-digits", "vcl", *SMALL, *changes)[-1]
        plan = planned("class-incremental-digits", "vcl", *SMALL, *changes)
        stream, state = plan.stream(DATA, Rng(plan.seeds)), last.state
        heads = list(state.heads)
        labels = torch.tensor([DATA.classes.index(head) for head in heads])
        A = matrix(last.rows, "vcl")[:, -1]
        for number in range(stream.size):
            test = stream.make(number).test
            rng = Rng(plan.seeds).at("evaluate", state.t, number + 1)
            found = class_log_marginals(state, plan.model(stream.shape), test.x, heads, rng, 4)
            right = labels[found.argmax(-1)] == test.y
            assert torch.allclose(A[:, number], right.double().mean(1))
            chosen = classify(found).gather(-1, (labels == test.y[..., None]).double().argmax(-1, keepdim=True))
            expected = chosen.clamp_min(1e-30).log().mean((1, 2))
            assert torch.allclose(matrix(last.rows, "vcl", "log predictive")[:, -1, number], expected)

    def test_after_the_first_class_every_answer_is_right(self) -> None:
        first = learned("class-incremental-digits", "naive", *SMALL)[0]
        assert {row.value for row in first.rows if row.metric == "accuracy"} == {1.0}
        assert {row.value for row in first.rows if row.metric == "log predictive"} == {0.0}

    def test_the_parameters_of_a_class(self) -> None:
        # z 2 -> 6 -> h 6 | 6 -> x 64, and an encoder 64-6-6-6-(2 + 2).
        lower, upper, encoder = 3 * 6 + 7 * 6, 7 * 6 + 7 * 64, 65 * 6 + 2 * 7 * 6 + 7 * 4
        wanted = {
            (): upper / 3 + lower + encoder,
            ("private=both",): upper + lower + encoder,
            ("encoder=shared",): (upper + encoder) / 3 + lower,
        }
        for changes, size in wanted.items():
            last = learned("class-incremental-digits", "naive", *SMALL, *changes)[-1]
            assert [row.value for row in last.rows if row.metric == SIZE] == [pytest.approx(size)] * 6
        last = learned("single-head-digits", "vcl", "tasks=3", "hidden=6", "epochs=1")[-1]
        # One head has all classes from the start; the data has 6, of which 3 were met.
        assert [row.value for row in last.rows if row.metric == SIZE] == [pytest.approx((65 * 6 + 7 * 6) / 3)] * 6

    @pytest.mark.parametrize("changes", [(), ("classes=2", "tasks=2"), ("theta_draws=2",), ("private=both",)])
    def test_stacked_runs_equal_runs_alone(self, changes: tuple[str, ...]) -> None:
        stack = learned("class-incremental-digits", "vcl", *SMALL, *changes)
        single = learned("class-incremental-digits", "vcl", *SMALL, *changes, seeds=1)
        for both, one in zip(stack, single, strict=True):
            kept = {row[2:5]: row.value for row in both.rows if row.seed == 0}
            assert kept.keys() == {row[2:5] for row in one.rows}
            for row in one.rows:
                assert kept[row[2:5]] == pytest.approx(row.value, abs=1e-3), row

    def test_weights_are_drawn_only_where_a_method_has_variances(self) -> None:
        for method, same in (("vcl", False), ("naive", True)):
            mean, drawn = (learned("class-incremental-digits", method, *SMALL, f"theta_draws={n}")[-1] for n in (0, 2))
            assert (mean.rows == drawn.rows) == same


GENERATORS = "vcl,vcl-random,naive,lp,ewc,si"
FEW = "--preset smoke --device cpu"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kinds in one folder."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        here = alone(tmp_path_factory.mktemp("classes"), monkeypatch)
        for line in (
            f"run class-incremental-digits --method {GENERATORS} {FEW} --out out",
            f"run class-incremental-digits --method vcl {FEW} --set encoder=shared --out out",
            f"run class-incremental-digits --method naive {FEW} --set private=both --out out",
            f"run class-incremental-digits --method vcl,lp {FEW} --set classes=2 --out out",
            f"run single-head-digits --method vcl,vcl-random,random-only,lp {FEW} --out out",
        ):
            result = call(line)
            assert result.exit_code == 0, (line, result.output)
        return here / "out"


class TestThroughTheCommandLine:
    def test_one_document_has_all_tables_with_the_same_columns(self, shown: Path) -> None:
        text = (shown / "table.md").read_text()
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        heads = [line for line in lines if line.startswith("| method")]
        columns = "| method | accuracy % | forgetting % | log predictive | calibration | parameters a class | seconds |"
        assert heads == [columns] * 3
        names = [
            line.split(" | ")[0].removeprefix("| ") for line in lines if not line.startswith(("| method", "| ---"))
        ]
        assert names[:8] == [*GENERATORS.split(","), "vcl encoder=shared", "naive private=both"]
        assert names[8:10] == ["vcl", "lp"]
        assert names[10:] == ["vcl", "vcl-random", "random-only", "lp"]
        for line in lines:
            if not line.startswith(("| method", "| ---")):
                size, seconds = line.removesuffix(" |").split(" | ")[-2:]
                assert int(size.replace(",", "")) > 100
                assert int(seconds) >= 0
        assert "An answer is one of all classes met so far." in text

    def test_every_metric_of_classification_is_there(self, shown: Path) -> None:
        rows: list[Row] = shown_rows(shown, "class-incremental-digits")
        assert {row.metric for row in rows} == {
            "accuracy", "log predictive", "calibration error", "Brier score", SIZE
        }  # fmt: skip

    def test_samples_can_be_drawn_and_predictions_are_refused_in_a_sentence(
        self, shown: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(shown.parent)
        part = next(
            path.name for path in (shown / "parts").iterdir() if path.name.startswith("class-incremental-digits-si")
        )
        result = call(f"sample out/parts/{part} --task 1 --count 4 --out one.png")
        assert result.exit_code == 0, result.output
        result = call(f"predict out/parts/{part} --task 1")
        assert "keeps decoders alone, and predictions need the encoders too" in str(result.exception)

    def test_a_dry_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        alone(tmp_path, monkeypatch)
        for changes, engine in (("", "layered"), ("--set classes=2", "general")):
            result = call(f"run class-incremental-digits --method vcl {FEW} {changes} --dry-run")
            assert result.exit_code == 0, result.output
            assert engine in result.output


SWEPT = (
    "class-incremental-digits --method ewc,lp",
    "class-incremental-digits --method lp --set classes=2",
    "single-head-digits --method ewc",
    "split-digits --method lp --set heads=single",
    "split-digits --method lp --set heads=shared",
    "split --dataset digits --method si --set heads=shared",
    "permuted-digits --method ewc",
)


@pytest.mark.parametrize("what", SWEPT)
def test_lambda_is_chosen_on_held_out_training_data(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = alone(tmp_path, monkeypatch)
    result = call(f"sweep {what} --grid lambda=0.1,10 --validation 0.3 {FEW} --seeds 1 --out out")
    assert result.exit_code == 0, result.output
    assert "the test set took no part in the choice" in result.output
    assert any("-validation" in path.name for path in (here / "out").iterdir())


def test_both_kinds_stand_side_by_side_in_an_item_of_vcl_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = among_digits(tmp_path, monkeypatch)
    requests = [
        Request("class-incremental-mnist", "vcl", label="vcl, generators"),
        Request("class-incremental-mnist", "naive", ("private=both",), label="independent VAEs"),
        Request("single-head-mnist", "vcl", label="vcl, one head"),
    ]
    mine = StreamItem("mine", "classes one by one", "beyond", lambda context: requests, everything, items.draw_average)
    monkeypatch.setattr(items, "ITEMS", (*items.ITEMS, mine))
    result = call("paper mine --preset smoke --device cpu --out out")
    assert result.exit_code == 0, result.output
    assert methods(read_csv(here / "out/mine/rows.csv")) == [request.label for request in requests]
    assert "| mine | independent VAEs |" in (here / "out/table.md").read_text()
