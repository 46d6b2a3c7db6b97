import torch

from vcl.ops.noise import TorchNoise, make_noise
from vcl.ops.rng import Rng


def test_each_run_has_its_own_numbers_new_at_every_draw_whatever_stands_beside_it() -> None:
    like = torch.zeros(3, 1)
    together, alone = make_noise(Rng((0, 1, 2)), like), make_noise(Rng((1,)), like[:1])
    assert isinstance(together, TorchNoise)
    first, second = together.draw(1000), together.draw(1000)
    assert first.shape == (3, 1000)
    assert alone.draw(1000).equal(first[1:2])
    assert alone.draw(1000).equal(second[1:2])
    assert torch.corrcoef(torch.cat([first, second])).triu(1).abs().max() < 0.15


def test_numbers_of_a_run_follow_from_its_seed_and_the_purpose() -> None:
    assert Rng((3, 4)).numbers()[1:] == Rng((4,)).numbers()
    assert Rng((3,)).at("noise").numbers() != Rng((3,)).numbers()
    assert all(0 <= number < 2**63 for number in Rng(tuple(range(50))).numbers())
