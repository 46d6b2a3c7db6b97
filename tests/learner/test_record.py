"""What an update says of its fit."""

import torch

from vcl.beliefs import MeanField
from vcl.beliefs.layout import Layout
from vcl.learner.continual_classifier import ContinualClassifier
from vcl.learner.record import Update, lost


def update(limited: float, growth: bool) -> Update:
    return Update("a", "a", 10, 1.0, 3, -0.5, limited, 2.0, {"w": 3.0}, 0.0, (), growth)


def test_the_line_follows_the_kind_of_steps() -> None:
    assert "converged" in update(0.05, True).line()
    assert "40% of the log variances grew as far as the steps allow (2)" in update(0.4, True).line()
    assert "natural gradients" not in update(0.4, True).line()
    assert "or fit by natural gradients" in update(0.4, False).line()


def test_a_record_without_the_kind_of_steps_can_be_read() -> None:
    described = update(0.4, True).described()
    assert Update.from_described(described) == update(0.4, True)
    assert not Update.from_described({name: each for name, each in described.items() if name != "growth"}).growth


def test_the_default_learner_says_how_far_its_fit_got() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=g)
    learner = ContinualClassifier(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh()), epochs=5)
    learner.update(x, (x[:, 0] > 0).long())
    (record,) = learner.history
    assert record.limited is not None
    assert record.growth
    assert len(record.kl) == 2, "the hidden layer and the head"
    assert all(value > 0 for value in record.kl.values())
    assert "nats (" in record.line()


def test_what_was_lost_leaves_out_the_pull_of_the_prior() -> None:
    """1/2 (3 - 1) 2^2 = 4 for a step of 2 from a belief of precision 3 under a prior of precision 1."""
    layout = Layout(("w",), ((1,),))
    prior = MeanField(layout, torch.zeros(1, 1), torch.zeros(1, 1))
    before = MeanField(layout, torch.ones(1, 1), -torch.tensor([[3.0]]).log())
    torch.testing.assert_close(lost(before, torch.tensor([[3.0]]), prior), 4.0)
