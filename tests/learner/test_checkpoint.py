import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from made import blob_tasks, linear_tasks, small_network
from vcl.beliefs.full import FullGaussian
from vcl.beliefs.layout import Layout
from vcl.beliefs.mean_field import MeanField
from vcl.beliefs.point import Point
from vcl.beliefs.quadratic import Quadratic
from vcl.beliefs.registry import FAMILIES, register
from vcl.beliefs.stored import VECTOR, checked
from vcl.coresets import Nothing, RandomK
from vcl.errors import LaterFormatError, VclError
from vcl.fitting.loop import Ascent
from vcl.learner.checkpoint import from_bytes, packed, to_bytes
from vcl.models import LinearGaussian
from vcl.ops.rng import Rng
from vcl.projections import (
    ElasticWeightConsolidation,
    Exact,
    LaplacePropagation,
    MaximumLikelihood,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method, State, initial, learn


def plain(project: Any) -> Method[Any]:
    return Method(project, Nothing(), project)


QUICK = VariationalKL(Ascent(4, 16, 0.01), draws=2, estimator="local")
METHODS = {
    "per-head": Method(QUICK, RandomK(5), QUICK, "per-head"),
    "joint": Method(QUICK, RandomK(5), QUICK, "joint"),
    "ewc": plain(ElasticWeightConsolidation(Ascent(4, 16), 10.0)),
    "lp": plain(LaplacePropagation(Ascent(4, 16))),
    "si": plain(SynapticIntelligence(Ascent(4, 16))),
    "point": Method(MaximumLikelihood(Ascent(4, 16)), Nothing(), MaximumLikelihood(Ascent(4, 16))),
}


@pytest.mark.parametrize("name", METHODS)
def test_trap_a_saved_state_forgets_nothing_and_goes_on_as_if_never_saved(name: str) -> None:
    """Posterior, prior for the next task, coreset and heads all come back, so the next task ends at the same bits."""
    model, tasks, method, rng = small_network(), blob_tasks(3, runs=2), METHODS[name], Rng((0, 1))
    straight = list(learn(initial(model, method, 2), tasks, model, method, rng))
    loaded = from_bytes(to_bytes(straight[1]))
    assert loaded.t == 2
    assert loaded.heads == straight[1].heads
    assert type(loaded.propagated) is type(straight[1].propagated)
    (resumed,) = learn(loaded, tasks[2:], model, method, rng)
    for got, want in (
        (resumed.propagated, straight[2].propagated),
        (resumed.predictive["h1"], straight[2].predictive["h1"]),
    ):
        assert got.layout == want.layout
        assert all(torch.equal(a, b) for a, b in zip(got[1:], want[1:], strict=True))
    assert torch.equal(resumed.coreset.x, straight[2].coreset.x)
    assert resumed.coreset.sources == straight[2].coreset.sources


def test_a_state_before_any_task_and_shared_beliefs_survive() -> None:
    model, method = small_network(), METHODS["joint"]
    start = initial(model, method, 2)
    assert from_bytes(to_bytes(start)).coreset is None
    (state,) = learn(start, blob_tasks(1, runs=2), model, method, Rng((0, 1)))
    assert len(to_bytes(state)) < 4 * len(to_bytes(start))
    (plain,) = learn(start, blob_tasks(1, runs=2), model, Method(QUICK, Nothing(), QUICK), Rng((0, 1)))
    loaded = from_bytes(to_bytes(plain))
    assert loaded.predictive["h0"] is loaded.propagated


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_is_no_state_is_refused(content: bytes) -> None:
    with pytest.raises(VclError, match="not a saved vcl state, or it is damaged"):
        from_bytes(content)


def test_a_truncated_state_is_refused() -> None:
    model, method = small_network(), METHODS["joint"]
    with pytest.raises(VclError, match="damaged"):
        from_bytes(to_bytes(initial(model, method, 1))[:-5])


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("source", lambda source: source.int(), "coreset.source has dtype torch.int32"),
        ("source", lambda source: source + 1, "coreset.source is out of range"),
        ("source", lambda source: source[:, 1:], "shapes of the coreset"),
        ("x", lambda x: x * torch.nan, "coreset.x holds numbers that are not finite"),
    ],
)
def test_an_altered_coreset_is_refused(field: str, change: Any, words: str) -> None:
    model, method = small_network(), METHODS["joint"]
    (state,) = learn(initial(model, method, 2), blob_tasks(1, runs=2), model, method, Rng((0, 1)))
    tensors = packed(state)
    from_bytes(save(tensors))
    tensors[f"coreset.{field}"] = change(tensors[f"coreset.{field}"]).contiguous()
    with pytest.raises(VclError, match=words):
        from_bytes(save(tensors))


def rewritten(state: State[Any], **changes: Any) -> bytes:
    """The state's file with words of its description changed."""
    tensors = packed(state)
    about = json.loads(bytes(tensors["about"].numpy())) | changes
    return save({**tensors, "about": torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)})


def test_a_full_gaussian_goes_on_as_if_never_saved() -> None:
    model, method, tasks, rng = LinearGaussian(4, 0.5, 2.0), plain(Exact()), linear_tasks([5, 3, 4], 2), Rng((0, 1))
    start = initial(model, method, 2)
    straight = list(learn(start._replace(propagated=start.propagated.to(torch.float64)), tasks, model, method, rng))
    (resumed,) = learn(from_bytes(to_bytes(straight[1])), tasks[2:], model, method, rng)
    assert type(resumed.propagated) is FullGaussian
    assert torch.equal(resumed.propagated.precision, straight[2].propagated.precision)
    assert torch.equal(resumed.propagated.mean, straight[2].propagated.mean)


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "family"),
        [("mean-field", MeanField), ("full", FullGaussian), ("point", Point), ("quadratic", Quadratic)],
    )
    def test_files_of_format_1_are_read(self, name: str, family: type) -> None:
        """The files were written by version 0.1.0 before families had names."""
        content = (Path(__file__).parent / "format1" / f"{name}.safetensors").read_bytes()
        tensors = load(content)
        about = json.loads(bytes(tensors["about"].numpy()))
        assert about["format"] == 1
        state = from_bytes(content)
        assert (state.t, dict(state.heads)) == (about["t"], about["heads"])
        assert type(state.propagated) is family
        assert {f"belief.0.{field}" for field in state.propagated.tensors()} <= set(tensors)
        assert all(torch.equal(value, tensors[f"belief.0.{key}"]) for key, value in state.propagated.tensors().items())
        assert (state.coreset is None) == ("coreset.x" not in tensors)
        again = from_bytes(to_bytes(state))
        assert json.loads(bytes(packed(state)["about"].numpy()))["format"] == 2
        for head, belief in state.predictive.items():
            pairs = zip(again.predictive[head][1:], belief[1:], strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)

    @pytest.mark.parametrize("made", [0, -1, True, "2", None, 1.0])
    def test_other_formats_are_refused(self, made: Any) -> None:
        state = initial(small_network(), METHODS["joint"], 1)
        with pytest.raises(VclError, match=rf"its format is {made!r}, and this version reads 1 to 2"):
            from_bytes(rewritten(state, format=made))

    def test_a_later_format_is_whole_and_asks_for_a_newer_version(self) -> None:
        with pytest.raises(LaterFormatError) as error:
            from_bytes(rewritten(initial(small_network(), METHODS["joint"], 1), format=3))
        assert str(error.value) == (
            "this state has format 3, and this version of vcl reads up to 2; install a newer version of vcl."
        )

    @pytest.mark.parametrize("layout", [[["a", "a", "b"], [[1], [2]]], [["a", "b"], [[1], [1], [1]]]], ids=str)
    def test_a_layout_has_a_shape_for_each_of_its_names(self, layout: Any) -> None:
        state = State(0, {}, Point(Layout(("a", "b", "c"), ((1,), (1,), (1,))), torch.zeros(1, 3)), {}, None)
        with pytest.raises(VclError, match="names of parameters"):
            from_bytes(rewritten(state, beliefs=[{"family": "point", "layout": layout}]))


class Own(NamedTuple):
    """A family of somebody's own: a uniform box around a centre."""

    layout: Layout
    mean: Tensor
    width: Tensor

    def grow(self, prior: MeanField) -> "Own":
        return self

    def restrict(self, part: Layout) -> "Own":
        return Own(part, *(self.layout.pick(value, part) for value in self[1:]))

    def merge(self, part: "Own") -> "Own":
        return part

    def select(self, runs: Tensor) -> "Own":
        return Own(self.layout, self.mean[runs], self.width[runs])

    def to(self, where: Any) -> "Own":
        return Own(self.layout, self.mean.to(where), self.width.to(where))

    def draw(self, noise: Tensor) -> Tensor:
        return self.mean[:, None] + self.width[:, None] * (torch.special.ndtr(noise) - 0.5)

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "width": self.width}

    @classmethod
    def from_tensors(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> "Own":
        return cls(layout, *checked(layout, tensors, {"mean": VECTOR, "width": VECTOR}))


class TestOwnFamily:
    layout = Layout(("w",), ((3,),))

    def state(self) -> State[Own]:
        own = Own(self.layout, torch.arange(6.0).view(2, 3), torch.ones(2, 3))
        return State(1, {"all": 1}, own, {"all": own}, None)

    @pytest.fixture(autouse=True)
    def families(self) -> Iterator[None]:
        known = dict(FAMILIES)
        yield
        FAMILIES.clear()
        FAMILIES.update(known)

    def test_it_is_refused_with_what_to_write(self) -> None:
        with pytest.raises(VclError, match=r'family Own cannot be saved.*register\("a-name", Own\) first') as raised:
            to_bytes(self.state())
        assert "\n" not in str(raised.value)

    def test_registered_it_is_saved_and_loaded(self) -> None:
        register("box", Own)
        content = to_bytes(self.state())
        loaded = from_bytes(content)
        assert type(loaded.propagated) is Own
        assert torch.equal(loaded.propagated.width, self.state().propagated.width)
        assert loaded.predictive["all"] is loaded.propagated
        del FAMILIES["box"]
        with pytest.raises(VclError, match=r"family 'box', which is not registered here .*: call vcl\.beliefs"):
            from_bytes(content)

    def test_its_own_checks_are_told_with_the_place(self) -> None:
        register("box", Own)
        tensors = packed(self.state())
        tensors["belief.0.width"] = tensors["belief.0.width"][:, :2].contiguous()
        with pytest.raises(VclError, match=r"belief\.0\.width has shape \(2, 2\) and not \(2, 3\)"):
            from_bytes(save(tensors))

    def test_a_name_and_a_family_belong_together_once(self) -> None:
        register("point", Point)  # again the same is nothing new
        with pytest.raises(VclError, match="the name 'point' is taken by Point"):
            register("point", Own)
        with pytest.raises(VclError, match="Point is already registered as 'point'"):
            register("dot", Point)
        assert FAMILIES["point"] is Point
        assert "dot" not in FAMILIES


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"mean": torch.zeros(2, 3)}, "log_var is missing"),
        ({"mean": torch.zeros(2, 3), "log_var": torch.zeros(2, 3), "more": torch.zeros(1)}, "more is too much"),
        ({"mean": torch.zeros(2, 3), "log_var": torch.zeros(2, 3).double()}, "log_var has dtype torch.float64"),
        ({"mean": torch.zeros(2, 3).int(), "log_var": torch.zeros(2, 3)}, "mean has dtype torch.int32"),
        ({"mean": torch.zeros(2, 3), "log_var": torch.zeros(1, 3)}, r"log_var has shape \(1, 3\) and not \(2, 3\)"),
        ({"mean": torch.zeros(3), "log_var": torch.zeros(3)}, r"mean has shape \(3,\) and not \(3, 3\)"),
        ({"mean": torch.zeros(()), "log_var": torch.zeros(())}, r"mean has shape \(\)"),
        ({"mean": torch.zeros(2, 3), "log_var": torch.full((2, 3), torch.inf)}, "log_var holds numbers that are not"),
        ({"mean": torch.full((2, 3), -torch.inf), "log_var": torch.zeros(2, 3)}, "mean holds numbers that are not"),
    ],
)
def test_tensors_that_are_no_mean_field_are_refused(tensors: dict[str, Tensor], words: str) -> None:
    with pytest.raises(VclError, match=words):
        MeanField.from_tensors(Layout(("w",), ((3,),)), tensors)


def test_a_point_of_a_mean_field_and_a_matrix_are_no_faults() -> None:
    layout = Layout(("w",), ((2,),))
    q = MeanField.from_tensors(layout, {"mean": torch.zeros(1, 2), "log_var": torch.tensor([[0.0, -torch.inf]])})
    assert q.log_var[0, 1] == -torch.inf
    with pytest.raises(VclError, match=r"precision has shape \(1, 2\) and not \(1, 2, 2\)"):
        FullGaussian.from_tensors(layout, {"mean": torch.zeros(1, 2), "precision": torch.ones(1, 2)})
