"""What an update says of its fit."""

from typing import Any

import pytest
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


@pytest.mark.parametrize("method", ["structured", "mean-field", "laplace"])
@pytest.mark.parametrize("posterior", ["all", "head"])
def test_a_head_that_grew_counts_in_what_was_lost(method: Any, posterior: Any) -> None:
    """The old outputs keep what data said of them, and the new ones know nothing that could be lost."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(80, 4, generator=g)
    y = (x[:, 0] > 0).long()
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh())
    learner = ContinualClassifier(net, method=method, posterior=posterior, epochs=5, batch=20, verbose=0)
    learner.update(x[:40], y[:40])
    before = learner._knows().state.propagated
    learner.update(x[40:], y[40:] + 2 * (x[40:, 1] > 0).long())
    state = learner._knows().state
    assert learner.classes() == (0, 1, 2, 3)
    now = state.propagated.layout.split(state.propagated.mean)
    after = {name: now[name][:, : shape[0]] for name, shape in zip(*before.layout, strict=True)}
    theta = before.layout.join(after, lead=1)
    with_prior = before.factor().pull(theta).sum()
    wanted = with_prior - 0.5 * (theta - before.mean).square().sum()
    assert wanted > 0
    torch.testing.assert_close(learner.history[-1].lost, float(wanted), rtol=1e-3, atol=1e-4)
