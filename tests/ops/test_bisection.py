import torch

from vcl.ops.bisection import bisect


def test_the_smallest_value_is_found_elementwise() -> None:
    wanted = torch.tensor([0.1, 0.5, 0.99], dtype=torch.float64)
    found = bisect(lambda x: x >= wanted, torch.zeros_like(wanted), torch.ones_like(wanted), 60)
    assert torch.allclose(found, wanted, atol=1e-15)


def test_whole_numbers_are_exact_up_to_the_ends_of_the_bracket() -> None:
    wanted = torch.arange(1.0, 18.0)
    found = bisect(lambda x: x >= wanted, torch.zeros(17), torch.full((17,), 17.0), 10, whole=True)
    assert torch.equal(found, wanted)
