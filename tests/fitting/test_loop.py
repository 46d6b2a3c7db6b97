import pytest
import torch
from torch import Tensor

from vcl.data import Data, concat, dataset, ready
from vcl.errors import NonFiniteError, VclError
from vcl.fitting.guard import Fit, Guard, finite, named
from vcl.fitting.loop import Ascent, Progress, ascend, climb, scaled_sum
from vcl.fitting.step import Eager, gather
from vcl.ops.rng import Rng


class Quadratic:
    """sum_n -(theta - x_n)^2 / 2, whose maximum is the mean of the data."""

    def __init__(self) -> None:
        self.batches: list[Tensor] = []
        self.noises: list[Tensor] = []

    def noise(self, batch: Data) -> int:
        return 2

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        self.batches.append(batch.y)
        self.noises.append(noise)
        return scaled_sum(-0.5 * (parameters[0] - batch.x[..., 0]).square(), total)


def numbers(n: int = 10, runs: int = 1) -> Data:
    return dataset(torch.arange(float(n))[:, None], torch.arange(n), runs=runs)


def test_a_batch_stands_for_all_examples_without_bias() -> None:
    values = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    estimates = torch.stack([scaled_sum(batch, 12) for batch in values.split(4)])
    assert estimates.mean().item() == pytest.approx(values.sum().item())
    assert scaled_sum(values, 12).item() == pytest.approx(values.sum().item())
    assert scaled_sum(torch.ones(3, 5), 20).tolist() == [20, 20, 20]


def test_it_climbs_to_the_maximum() -> None:
    (theta,) = ascend(Quadratic(), (torch.zeros(1, 1),), numbers(), Ascent(400, None, 0.05), Rng((0,)))
    assert theta.item() == pytest.approx(4.5, abs=1e-3)


def test_each_epoch_visits_every_example_once_in_a_new_order_for_each_run() -> None:
    objective = Quadratic()
    ascend(objective, (torch.zeros(2, 1),), numbers(10, runs=2), Ascent(3, 4), Rng((0, 1)))
    assert [batch.shape[1] for batch in objective.batches] == [4, 4, 2] * 3
    epochs = [torch.cat(objective.batches[e * 3 : e * 3 + 3], dim=1) for e in range(3)]
    for epoch in epochs:
        assert epoch.sort(1).values.tolist() == [list(range(10))] * 2
        assert epoch[0].tolist() != epoch[1].tolist()
    assert epochs[0].tolist() != epochs[1].tolist()


def test_noise_is_new_at_every_step() -> None:
    objective = Quadratic()
    ascend(objective, (torch.zeros(1, 1),), numbers(), Ascent(3, None), Rng((0,)))
    assert len({tuple(noise.flatten().tolist()) for noise in objective.noises}) == 3


def test_trap_optimiser_state_carried_into_the_next_fit() -> None:
    """Two fits from one start are equal: Adam's moments begin at zero each time, so the first step is lr long."""
    start = (torch.full((1, 1), 3.0),)
    ends = [ascend(Quadratic(), start, numbers(), Ascent(1, None, 0.01), Rng((0,)))[0].item() for _ in range(2)]
    assert ends[0] == ends[1] == pytest.approx(3.01, abs=1e-6)
    assert start[0].item() == 3.0, "the start is not written to"


def test_the_cosine_rate_falls_from_lr_to_nothing() -> None:
    cosine = Ascent(10, None, 0.2, "cosine")
    rates = [cosine.rate(step, 10) for step in range(10)]
    assert rates[0] == 0.2
    assert rates[5] == pytest.approx(0.1)
    assert rates[9] == pytest.approx(0.1 * (1 + torch.cos(torch.tensor(0.9 * torch.pi)).item()))
    assert rates == sorted(rates, reverse=True)
    assert {Ascent(10, None, 0.2).rate(step, 10) for step in range(10)} == {0.2}

    class Slope(Quadratic):
        def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
            return parameters[0].sum(1)

    # Under a constant gradient every step of Adam is as long as its rate, so the end is the sum of the rates.
    (end,) = ascend(Slope(), (torch.zeros(1, 1),), numbers(), cosine, Rng((0,)))
    assert end.item() == pytest.approx(sum(rates), rel=1e-5)


def test_progress_is_told_once_an_epoch() -> None:
    told: list[Progress] = []
    ascend(Quadratic(), (torch.zeros(2, 1),), numbers(runs=2), Ascent(3, 5), Rng((0, 1)), told.append, "a fit")
    assert [(p.what, p.epoch, p.epochs) for p in told] == [("a fit", e, 3) for e in (1, 2, 3)]
    assert told[0].objective.shape == (2,)


def test_training_that_turns_non_finite_names_the_epoch_and_the_likely_cause() -> None:
    class Explosive(Quadratic):
        def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
            (at,) = parameters
            return at.sum(1) * torch.where(at.detach()[:, 0] > 0, torch.tensor([1.0, float("nan")]), 1.0)

    with pytest.raises(
        NonFiniteError, match=r"a fit became non-finite in epoch 2 of 5 \(seed 1\).*learning rate 0.001"
    ):
        ascend(Explosive(), (torch.zeros(2, 1),), numbers(runs=2), Ascent(5, None), Rng((0, 1)), what="a fit")


@pytest.mark.parametrize("batch", [None, 3])
def test_training_that_is_not_finite_before_its_first_step_is_no_matter_of_the_rate(batch: int | None) -> None:
    class Infinite(Quadratic):
        def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
            return parameters[0].sum(1) * torch.tensor([1.0, float("nan")])

    with pytest.raises(
        NonFiniteError, match=r"^a fit is not finite at its start \(seed 1\), so the learning rate is not the cause"
    ):
        ascend(Infinite(), (torch.zeros(2, 1),), numbers(runs=2), Ascent(5, batch), Rng((0, 1)), what="a fit")


@pytest.mark.parametrize("bad", [2, 5])
def test_a_fit_that_is_looked_at_an_epoch_later_still_names_the_epoch(bad: int) -> None:
    """As on a GPU, which is given the next epoch's work before this one's numbers are looked at."""
    told: list[Progress] = []
    start = (torch.zeros(2, 1),)
    guard = Guard(Fit("a fit", 5, 1e-3, (3, 4), named(None, start)), start, numbers(runs=2), told.append, lag=1)

    def run() -> None:
        for epoch in range(1, 6):
            guard.epoch(epoch, torch.tensor([1.0, float("nan") if epoch == bad else 1.0]), (torch.zeros(2, 1),))
        guard.end()

    with pytest.raises(NonFiniteError, match=rf"a fit became non-finite in epoch {bad} of 5 \(seed 4\)"):
        run()
    assert len(told) == bad


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Ascent(epochs=0), "epochs is 0; give at least 1"),
        (Ascent(batch=0), "batch is 0"),
        (Ascent(lr=0.0), "lr is 0.0"),
        (Ascent(lr=float("nan")), "lr is nan"),
        (Ascent(schedule="cosin"), "did you mean 'cosine'"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_cannot_be_run_are_refused(settings: Ascent, words: str) -> None:
    with pytest.raises(VclError, match=words):
        ascend(Quadratic(), (torch.zeros(1, 1),), numbers(), settings, Rng((0,)))


def test_gather_takes_each_runs_own_examples() -> None:
    shared, index = numbers(runs=2), torch.tensor([[3, 1], [0, 9]])
    batch = gather(shared, index)
    assert batch.y.tolist() == [[3, 1], [0, 9]]
    assert batch.source.shape == (2, 2)
    own = shared._replace(x=torch.arange(120.0).view(2, 10, 2, 3), y=torch.arange(20).view(2, 10))
    batch = gather(own, index)
    assert batch.y.tolist() == [[3, 1], [10, 19]]
    assert torch.equal(batch.x[1, 1], own.x[1, 9])
    mixed = concat(dataset(torch.zeros(4, 1), torch.zeros(4), "a"), dataset(torch.ones(3, 1), torch.ones(3), "b"))
    assert gather(mixed, torch.tensor([[0, 6, 5]])).source.tolist() == [[0, 1, 1]]


def test_every_step_is_yielded_after_it_was_taken_with_the_gradient_it_saw_before() -> None:
    """What SI reads. The trap is a step measured before the optimiser moved: it would always be zero."""
    start, objective = torch.tensor([[0.0], [3.0]]), Quadratic()
    before, steps = start.clone(), 0
    for (theta,), step in climb(objective, (start,), numbers(runs=2), Ascent(7, 4, 0.05), Rng((0, 1))):
        batch = objective.batches[-1].float()
        expected = (batch - before).sum(1, keepdim=True) * 10 / batch.shape[1]
        assert torch.allclose(step.gradients[0], expected, rtol=1e-5)
        assert torch.allclose(step.value, -0.5 * (batch - before).square().sum(1) * 10 / batch.shape[1], rtol=1e-5)
        assert (theta - before).abs().min() > 1e-4
        before, steps = theta.clone(), steps + 1
    assert steps == 7 * 3
    (end,) = ascend(Quadratic(), (start,), numbers(runs=2), Ascent(7, 4, 0.05), Rng((0, 1)))
    assert torch.equal(before, end)


def test_a_full_batch_of_pixels_is_scaled_once_and_to_the_same_bits() -> None:
    pixels = torch.arange(30, dtype=torch.uint8).view(10, 3) * 8
    shared = ready(dataset(pixels, torch.zeros(10), runs=3))
    assert shared.x.stride(0) == 0
    assert torch.equal(shared.x[2], pixels.float() / 255)
    own = shared._replace(x=pixels.repeat(3, 1, 1))
    assert torch.equal(ready(own).x, shared.x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")
def test_a_captured_step_ends_where_the_eager_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    data, start = numbers(10, runs=2).to("cuda"), (torch.zeros(2, 1, device="cuda"),)
    settings = Ascent(12, 4, 0.05, "cosine")
    captured = ascend(Quadratic(), start, data, settings, Rng((0, 1)))
    monkeypatch.setattr("vcl.fitting.loop.make_step", Eager)
    eager = ascend(Quadratic(), start, data, settings, Rng((0, 1)))
    assert torch.allclose(captured[0], eager[0], rtol=1e-5)


class TestAveragedIterates:
    @staticmethod
    def iterates(settings: Ascent) -> Tensor:
        steps = climb(Quadratic(), (torch.zeros(2, 1),), numbers(10, runs=2), settings, Rng((0, 1)))
        return torch.stack([now[0].clone() for now, _ in steps])

    @pytest.mark.parametrize(("share", "last"), [(0.5, 5), (1.0, 9), (0.01, 1), (0.34, 4)])
    def test_a_fit_ends_at_the_mean_of_its_last_iterates(self, share: float, last: int) -> None:
        settings = Ascent(3, 4, 0.3, average=share)
        (end,) = ascend(Quadratic(), (torch.zeros(2, 1),), numbers(10, runs=2), settings, Rng((0, 1)))
        torch.testing.assert_close(end, self.iterates(settings)[-last:].mean(0))

    def test_without_a_share_it_ends_at_the_last_one(self) -> None:
        settings = Ascent(3, 4, 0.3)
        (end,) = ascend(Quadratic(), (torch.zeros(2, 1),), numbers(10, runs=2), settings, Rng((0, 1)))
        assert end.equal(self.iterates(settings)[-1])

    @pytest.mark.parametrize("share", [-0.1, 1.1])
    def test_a_share_that_is_none_is_refused(self, share: float) -> None:
        with pytest.raises(VclError, match="give a share of the steps, from 0"):
            Ascent(average=share).check()


def test_on_the_cpu_a_fit_ends_in_the_epoch_that_fails() -> None:
    class Failing(Quadratic):
        def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
            value = super().__call__(parameters, batch, total, noise)
            return value if len(self.batches) < 2 else value * float("nan")

    objective = Failing()
    with pytest.raises(NonFiniteError, match="epoch 2 of 5"):
        ascend(objective, (torch.zeros(1, 1),), numbers(), Ascent(5, None), Rng((0,)))
    assert len(objective.batches) == 2


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_each_way_of_not_being_finite_is_seen_in_its_run(bad: float) -> None:
    parameters = torch.zeros(3, 4)
    parameters[1, 2] = bad
    value, both = torch.tensor([0.0, 0.0, bad]), (torch.ones(3, 2), parameters)
    assert finite(torch.zeros(3), both).tolist() == [True, False, True]
    assert finite(value, both[:1]).tolist() == [True, True, False]
    none = (torch.zeros(3, 0),)
    assert finite(value, none).tolist() == [True, True, False]
