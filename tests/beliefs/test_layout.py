import pytest
import torch

from vcl.beliefs.layout import Layout, head_of
from vcl.errors import VclError

SHARED = Layout(("trunk.w", "trunk.b", "scale"), ((3, 2), (3,), ()))
HEADS = Layout(("heads.a.weight", "heads.a.bias", "heads.b.weight", "heads.b.bias"), ((2, 3), (2,), (1, 3), (1,)))
BOTH = SHARED.extend(HEADS)


def test_split_and_join_are_inverses_with_leading_axes() -> None:
    flat = torch.randn(4, 5, BOTH.size)
    parts = BOTH.split(flat)
    assert [tuple(parts[name].shape) for name in BOTH.names] == [(4, 5, *shape) for shape in BOTH.shapes]
    assert torch.equal(BOTH.join(parts, lead=2), flat)
    assert torch.equal(parts["trunk.b"], flat[..., 6:9])


def test_new_heads_go_to_the_end_so_old_slices_never_move() -> None:
    flat = torch.randn(1, BOTH.size)
    assert BOTH.names[:3] == SHARED.names
    assert torch.equal(BOTH.pick(flat, SHARED), flat[:, : SHARED.size])
    assert BOTH.extend(SHARED) == BOTH


def test_touched_are_the_shared_parameters_and_the_heads_asked_for() -> None:
    assert BOTH.touched(["b"]).names == (*SHARED.names, "heads.b.weight", "heads.b.bias")
    assert BOTH.touched([]) == SHARED


def test_put_replaces_a_part_and_leaves_every_other_bit() -> None:
    flat = torch.randn(2, BOTH.size)
    part = BOTH.touched(["b"])
    changed = BOTH.put(flat, part, torch.zeros(2, part.size))
    rest = HEADS.touched([])._replace(names=HEADS.names[:2], shapes=HEADS.shapes[:2])
    assert torch.equal(BOTH.pick(changed, rest), BOTH.pick(flat, rest))
    assert not BOTH.pick(changed, part).any()


def test_append_of_nothing_new_is_the_same_vector() -> None:
    flat = torch.randn(2, BOTH.size)
    assert torch.equal(BOTH.append(flat, SHARED, torch.zeros(1, SHARED.size)), flat)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("heads.a.weight", (1, 3)),
        ("heads.a.weight", (2, 4)),
        ("heads.a.weight", (4,)),
        ("trunk.w", (4, 2)),
        ("scale", (1,)),
    ],
)
def test_only_heads_grow_and_only_by_rows(name: str, shape: tuple[int, ...]) -> None:
    other = Layout((name,), (shape,))
    with pytest.raises(VclError, match=rf"'{name}' has shape .* and cannot become .*; a head may only get more"):
        BOTH.extend(other)
    with pytest.raises(VclError, match="cannot become"):
        BOTH.append(torch.zeros(1, BOTH.size), other, torch.zeros(1, other.size))


def test_a_mask_is_of_the_rows_asked_for() -> None:
    found = BOTH.split(BOTH.mask({"trunk.w": 2, "scale": 0, "heads.a.bias": 2, "heads.b.weight": 0}))
    assert found["trunk.w"].tolist() == [[False, False], [False, False], [True, True]]
    assert found["scale"].item()
    assert found["heads.b.weight"].tolist() == [[True, True, True]]
    assert not any(found[name].any() for name in ("trunk.b", "heads.a.weight", "heads.a.bias", "heads.b.bias"))


def test_head_names_may_hold_dots_and_slashes() -> None:
    assert head_of("heads.v1.2/3.weight") == "v1.2/3"
    assert head_of("trunk.heads.weight") is None


def test_cut_is_pick_by_slices_and_pad_its_inverse() -> None:
    flat = torch.randn(4, BOTH.size, requires_grad=True)
    parts = [
        BOTH,
        SHARED,
        BOTH.touched(["b"]),
        BOTH.where(lambda name: name.endswith("bias")),
        BOTH.where(lambda _: False),
    ]
    for part in parts:
        cut = BOTH.cut(flat, part)
        assert torch.equal(cut, BOTH.pick(flat, part))
        (gradient,) = torch.autograd.grad(cut.square().sum(), flat)
        assert torch.equal(gradient, BOTH.pad(2 * cut, part))
        padded = BOTH.split(BOTH.pad(cut, part, fill=7.0))
        for name, value in padded.items():
            assert torch.equal(value, BOTH.split(flat)[name] if name in part.names else torch.full_like(value, 7.0))
