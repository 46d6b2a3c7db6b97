import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal as TorchNormal

from vcl.errors import VclError
from vcl.likelihood import Categorical, Normal


def test_categorical_is_the_log_softmax_of_the_label() -> None:
    logits, y = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    assert torch.allclose(Categorical().log_prob(logits, y), TorchCategorical(logits=logits).log_prob(y))
    assert torch.allclose(Categorical().expectation(logits).sum(-1), torch.ones(5))


def test_normal_sums_over_target_dimensions() -> None:
    output, y = torch.randn(5, 2), torch.randn(5, 2)
    assert torch.allclose(Normal(0.3).log_prob(output, y), TorchNormal(output, 0.3).log_prob(y).sum(-1))
    assert torch.allclose(
        Normal(0.3).log_prob(output[:, :1], y[:, 0]), TorchNormal(output[:, 0], 0.3).log_prob(y[:, 0])
    )


def test_normal_moments_add_noise_and_spread_of_the_draws() -> None:
    outputs = torch.tensor([[1.0], [3.0]])  # two draws of the mean of one example
    mean, variance = Normal(0.5).moments(Normal(0.5).expectation(outputs).mean(0))
    assert mean.item() == pytest.approx(2.0)
    assert variance.item() == pytest.approx(1.0 + 0.25)


def test_labels_outside_the_head_are_refused() -> None:
    with pytest.raises(VclError, match=r"labels run from 0 to 3 but its head has 2 classes.*relabel"):
        Categorical().check(torch.tensor([[0, 3]]), 2, "task 'x'")
    with pytest.raises(VclError, match="labels run from -1"):
        Categorical().check(torch.tensor([[-1, 0]]), 2, "task 'x'")
    with pytest.raises(VclError, match="a classifier takes integers 0 to 1"):
        Categorical().check(torch.tensor([[0.0]]), 2, "task 'x'")
    with pytest.raises(VclError, match="takes floating-point targets"):
        Normal().check(torch.tensor([[1]]), 1, "task 'x'")
    with pytest.raises(VclError, match="2 values an example but the head has 3"):
        Normal().check(torch.zeros(1, 4, 2), 3, "task 'x'")
