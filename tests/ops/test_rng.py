import torch

from vcl.ops.rng import Rng


def test_a_seed_draws_the_same_alone_and_in_a_stack() -> None:
    stack = Rng((5, 6, 7)).at("task", 3, "coreset").per_run(lambda g: torch.randn(4, generator=g))
    alone = Rng((6,)).at("task", 3).at("coreset").per_run(lambda g: torch.randn(4, generator=g))
    assert torch.equal(stack[1], alone[0])


def test_seeds_and_purposes_draw_differently() -> None:
    def first(seed: int, *purpose: object) -> float:
        return float(Rng((seed,)).at(*purpose).per_run(lambda g: torch.randn(1, generator=g)))

    assert len({first(0, "a"), first(1, "a"), first(0, "b"), first(0, "a", "b"), first(0, "ab"), first(0)}) == 6


def test_no_global_generator_is_used() -> None:
    before = torch.get_rng_state()
    Rng((0,)).at("x").per_run(lambda g: torch.randn(3, generator=g))
    assert torch.equal(before, torch.get_rng_state())
