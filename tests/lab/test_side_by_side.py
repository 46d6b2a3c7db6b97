"""Pieces of work at once: all are done, an error stops them all, and numbers are those of one at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Barrier, get_ident

import pytest
import torch
from lab_made import among_digits, call, fault, files_under
from torch import Tensor

from vcl.data import Data, dataset, unlabelled
from vcl.errors import VclError
from vcl.fitting.loop import Ascent, Progress, Report, ascend, scaled_sum, silent
from vcl.fitting.step import Objective
from vcl.lab.arithmetic import matrix_products
from vcl.lab.results import read_csv
from vcl.lab.side_by_side import StoppedError, side_by_side
from vcl.models import mlp_vae
from vcl.ops.rng import Rng
from vcl.projections.point import LogLikelihood
from vcl.projections.vi import Elbo

CPU = torch.device("cpu")
EPOCH = Progress("a fit", 1, 2, torch.zeros(1))


def test_all_pieces_are_done_as_many_at_once_as_there_are_jobs() -> None:
    meet, done = Barrier(3, timeout=20), list[tuple[int, int]]()

    def piece(number: int, report: Report) -> None:
        meet.wait()  # passes only when three are here at once
        report(EPOCH)
        done.append((number, get_ident()))

    side_by_side([lambda report, n=n: piece(n, report) for n in range(6)], 3, CPU)  # type: ignore[misc]
    assert sorted(number for number, _ in done) == list(range(6))
    assert len({thread for _, thread in done}) == 3


@pytest.mark.parametrize("jobs", [10**6, 10**20])
def test_more_jobs_than_pieces_are_as_many_as_pieces(jobs: int) -> None:
    done: list[int] = []
    side_by_side([lambda report, n=n: done.append(n) for n in range(3)], jobs, CPU)  # type: ignore[misc]
    side_by_side([], jobs, CPU)
    assert sorted(done) == [0, 1, 2]


def test_an_error_stops_the_others_at_their_next_epoch_and_is_raised() -> None:
    meet, seen = Barrier(2, timeout=20), list[str]()

    def fails(report: Report) -> None:
        meet.wait()
        raise VclError("this one cannot go on.")

    def goes_on(report: Report) -> None:
        meet.wait()
        try:
            while True:
                report(EPOCH)
        except StoppedError:
            seen.append("stopped")
            raise

    def never(report: Report) -> None:
        seen.append("begun")

    with pytest.raises(VclError, match="this one cannot go on"):
        side_by_side([fails, goes_on, never], 2, CPU)
    # The third may have taken the place of the first before it was called off, but nothing waits for ever.
    assert "stopped" in seen


def test_each_piece_has_its_share_of_the_threads() -> None:
    mine, shares = torch.get_num_threads(), list[int]()
    side_by_side([lambda report: shares.append(torch.get_num_threads())] * 4, 2, CPU)
    assert shares == [max(1, mine // 2)] * 4
    assert torch.get_num_threads() == mine


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return among_digits(tmp_path, monkeypatch)


def test_items_computed_side_by_side_have_the_same_numbers(here: Path) -> None:
    smoke = "--preset smoke --device cpu"
    for jobs in (1, 3):
        result = call(f"paper fig4 lambda-split {smoke} --jobs {jobs} --out out{jobs}")
        assert result.exit_code == 0, result.output
    assert "split-mnist vcl-random: task 2 of 2" in result.output
    for name in ("fig4", "lambda-split"):
        one, three = (read_csv(here / f"out{jobs}" / name / "rows.csv") for jobs in (1, 3))
        assert one == three
    again = call(f"paper fig4 {smoke} --jobs 3 --out out3")
    assert "task 2 of 2" not in again.output, "what is finished is not computed again"


@pytest.mark.parametrize(
    "what", ["split-digits --method vcl,ewc,mle --grid lambda=1,10", "generative-digits --method vcl,naive,si"]
)
def test_methods_run_side_by_side_have_the_same_rows_in_the_same_order(here: Path, what: str) -> None:
    for jobs in (1, 3):
        result = call(f"run {what} --preset smoke --device cpu --jobs {jobs} --out out{jobs}")
        assert result.exit_code == 0, result.output
    one, three = (files_under(here / f"out{jobs}") for jobs in (1, 3))
    assert sorted(one) == sorted(three)
    for name in one:
        if not name.endswith(("part.json", "table.md")):  # which have the time that it took
            assert one[name] == three[name], name
    again = call(f"run {what} --preset smoke --device cpu --jobs 3 --out out1")
    assert "task 2 of 2" not in again.output, "what is finished is not computed again"


@pytest.mark.parametrize("command", ["paper fig4", "run split-digits"])
def test_jobs_below_one_are_refused(here: Path, command: str) -> None:
    assert fault(f"{command} --preset smoke --jobs 0") == "--jobs is 0; give at least 1."


class Nearest:
    """sum_n -(theta - x_n)^2 / 2."""

    def noise(self, batch: Data) -> int:
        return 1

    def __call__(self, parameters: tuple[Tensor, ...], batch: Data, total: int, noise: Tensor) -> Tensor:
        return scaled_sum(-0.5 * (parameters[0] - batch.x[..., 0]).square(), total)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fits_recorded_beside_others_end_where_they_end_alone() -> None:
    """Together they ask for more streams than torch has: it hands some of them out again."""
    cuda, ends = torch.device("cuda"), dict[int, Tensor]()
    data = dataset(torch.arange(20.0)[:, None], torch.arange(20), runs=2).to("cuda")

    def fit(number: int, report: Report) -> None:
        start = (torch.full((2, 1), float(number), device="cuda"),)
        (ends[number],) = ascend(Nearest(), start, data, Ascent(20, 6, 0.05), Rng((number, number + 1)), report)

    side_by_side([partial(fit, number) for number in range(60)], 4, cuda)
    beside = {number: end.tolist() for number, end in ends.items()}
    for number in range(60):
        fit(number, silent)
    assert beside == {number: end.tolist() for number, end in ends.items()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "points"])
def test_generators_fitted_beside_others_end_where_they_end_alone(drawn: bool) -> None:
    """Their gradients all come from torch's one thread, whose matrix products have a workspace for each stream."""
    cuda, ends = torch.device("cuda"), dict[int, list[Tensor]]()
    g = torch.Generator("cuda").manual_seed(0)
    x = torch.randint(0, 256, (1000, 784), generator=g, device="cuda", dtype=torch.uint8)
    data = unlabelled(x, "a", "a", 2)
    prior = mlp_vae().prior({"a": 784}).to("cuda").expand(2)
    q = prior._replace(mean=0.05 * torch.randn(prior.mean.shape, generator=g, device="cuda"), log_var=prior.log_var - 8)

    def fit(number: int, report: Report) -> None:
        model = mlp_vae()  # each its own: while torch calls a module with given parameters, nobody else may
        elbo = Elbo(model, prior, 10, "weights", "log_sd")
        points: Objective = LogLikelihood(model, prior.layout, 10)
        objective, start = (elbo, elbo.parameters(q)) if drawn else (points, (q.mean,))
        ends[number] = [*ascend(objective, start, data, Ascent(10, 50, 1e-4), Rng((number, number + 1)), report)]

    with matrix_products("tf32"):
        side_by_side([partial(fit, number) for number in range(6)], 3, cuda)
        beside = dict(ends)
        for number in range(6):
            fit(number, silent)
    for number, found in beside.items():
        assert all(torch.equal(ours, alone) for ours, alone in zip(found, ends[number], strict=True)), number
