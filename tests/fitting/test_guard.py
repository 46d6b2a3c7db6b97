"""A fit that leaves the finite numbers names its epoch, its runs and the tensors that left them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from made import blob_tasks, small_network
from vcl.beliefs.layout import Layout
from vcl.data import Data, dataset
from vcl.errors import NonFiniteError
from vcl.fitting import guard
from vcl.fitting.guard import Climbed, heights
from vcl.fitting.loop import Ascent, ascend
from vcl.ops.rng import Rng
from vcl.projections import (
    ElasticWeightConsolidation,
    KroneckerLaplace,
    KroneckerVariational,
    MaximumLikelihood,
    SynapticIntelligence,
    VariationalKL,
)
from vcl.recursion import Method, initial, learn

LAYOUT = Layout(("trunk.weight", "trunk.bias", "heads.a.weight"), ((2, 2), (2,), (1, 2)))
NAN = torch.tensor([1.0, torch.nan])


class Wild:
    """Every number grows by Adam's rate a step; in step 20 some tensors of the second run are lost."""

    def __init__(self, lost: Sequence[str], scale: Tensor | None = None) -> None:
        self.lost, self.step, self.scale = lost, 0, torch.ones(2) if scale is None else scale

    def climbed(self) -> tuple[Climbed, ...]:
        return (Climbed("means", LAYOUT), Climbed("log variances", LAYOUT))

    def noise(self, batch: Data) -> int:
        return 0

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        self.step += 1
        weights = torch.ones(2, 2, LAYOUT.size)
        for weight, (kind, _) in zip(weights, self.climbed(), strict=True):
            for name, part in LAYOUT.split(weight).items():
                if self.step == 20 and f"{kind} of {name!r}" in self.lost:
                    part[1] = torch.inf
        return (torch.stack(parameters) * weights).sum((0, 2)) * self.scale


def numbers() -> Data:
    return dataset(torch.arange(10.0)[:, None], torch.arange(10), runs=2)


def start() -> tuple[Tensor, Tensor]:
    """The bias of the second run is far out."""
    mean, log_var = torch.zeros(2, LAYOUT.size), torch.zeros(2, LAYOUT.size)
    log_var[1, 4] = 5.3
    return mean, log_var


ALL = [f"{kind} of {name!r}" for kind in ("means", "log variances") for name in LAYOUT.names]


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (["log variances of 'trunk.bias'"], "not finite after it: the log variances of 'trunk.bias'."),
        (
            ["means of 'trunk.bias'", "means of 'heads.a.weight'", "log variances of 'trunk.bias'"],
            "not finite after it: the means of 'trunk.bias' and the means of 'heads.a.weight' and 1 more.",
        ),
        (
            ALL,
            "every tensor left the finite numbers in it, and the largest magnitude before was 7.1, in the log "
            "variances of 'trunk.bias'.",
        ),
    ],
)
def test_the_tensors_that_left_the_finite_numbers_are_named(lost: list[str], words: str) -> None:
    """In epoch 10 of two steps each; before it every number has grown by 0.1 eighteen times."""
    with pytest.raises(NonFiniteError) as caught:
        ascend(Wild(lost), start(), numbers(), Ascent(12, 5, 0.1), Rng((3, 8)), what="a fit")
    assert str(caught.value).startswith("a fit became non-finite in epoch 10 of 12 (seed 8): the learning rate 0.1 ")
    assert str(caught.value).endswith(f"lower it, or scale the inputs; {words}")
    assert caught.value.runs == (1,)


def test_where_the_objective_alone_is_not_finite_the_largest_number_is_named() -> None:
    class Infinite(Wild):
        def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
            value = super().__call__(parameters, batch, total, noise)
            return value + (0 if self.step < 20 else torch.tensor([0.0, torch.inf]))

    with pytest.raises(NonFiniteError, match=r"the objective alone left the finite numbers, and the .* was 7\.1"):
        ascend(Infinite(()), start(), numbers(), Ascent(12, 5, 0.1), Rng((3, 8)), what="a fit")


def test_a_long_fit_looks_at_its_tensors_now_and_then_and_still_names_those_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0

    def counted(*given: Any) -> Tensor:
        nonlocal looked
        looked += 1
        return heights(*given)

    monkeypatch.setattr(guard, "heights", counted)
    epochs = 11 * guard.LOOKS  # it looks at every 11th, and numbers are lost in the 10th
    ascend(Wild(()), start(), numbers(), Ascent(epochs, 5, 1e-3), Rng((3, 8)), what="a fit")
    assert looked == 1 + guard.LOOKS
    with pytest.raises(NonFiniteError, match=r"not finite after it: the log variances of 'trunk\.bias'"):
        ascend(Wild(["log variances of 'trunk.bias'"]), start(), numbers(), Ascent(epochs, 5, 0.1), Rng((3, 8)))
    with pytest.raises(NonFiniteError, match=r"the largest magnitude before was 5\.3, in the log variances of 'trunk"):
        ascend(Wild(ALL), start(), numbers(), Ascent(epochs, 5, 0.1), Rng((3, 8)))


@pytest.mark.parametrize(
    ("reach", "words"),
    [(-4e20, "was 4e+20, in the inputs."), (1.0, "was 9, in the inputs."), (8.0, "of 'trunk.bias'.")],
)
def test_at_the_start_the_largest_number_may_be_an_input(reach: float, words: str) -> None:
    data = numbers()
    x, (mean, log_var) = data.x.clone(), start()
    x[1, 0] = reach
    log_var[1, 4] *= 2 if reach == 8 else 1
    with pytest.raises(NonFiniteError) as caught:
        ascend(Wild((), NAN), (mean, log_var), data._replace(x=x), Ascent(5, 5), Rng((3, 8)), what="a fit")
    assert str(caught.value).startswith("a fit is not finite at its start (seed 8), so the learning rate is not the ")
    assert str(caught.value).endswith(words)


FAST = Ascent(2, 16, 1e30)


@pytest.mark.parametrize(
    ("project", "words"),
    [
        (MaximumLikelihood(FAST), "the weights of '(trunk|heads)"),
        (ElasticWeightConsolidation(FAST), "the weights of '(trunk|heads)"),
        (SynapticIntelligence(FAST), "the weights of '(trunk|heads)"),
        (KroneckerLaplace(FAST), "the weights of '(trunk|heads)"),
        (VariationalKL(FAST, 1, ml_start=False), "the (means|log variances) of '(trunk|heads)"),
        (VariationalKL(FAST, 1, ml_start=False, climbs="log_sd"), "the (means|log deviations) of '(trunk|heads)"),
        (VariationalKL(FAST, 1, ml_start=False, family="full"), "parameter 1|parameter 2"),
        (KroneckerVariational(KroneckerLaplace(Ascent(2, 16)), FAST), "the (means|log variances) of '(trunk|heads)"),
    ],
)
def test_every_projection_names_its_tensors_with_its_task(project: Any, words: str) -> None:
    method, model = Method[Any](project), small_network()
    with pytest.raises(NonFiniteError, match=rf"^task 1 \(t0\): .*epoch [12] of 2 .*{words}"):
        list(learn(initial(model, method, 1), blob_tasks(1), model, method, Rng((0,))))
