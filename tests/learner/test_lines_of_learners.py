"""What learners write: a bar on a terminal, and one line after each update."""

from __future__ import annotations

import re

import pytest
import torch

from own_data import classes_of, classifier, numbers, regressor, targets_of
from vcl.fitting.loop import Progress
from vcl.learner import progress
from vcl.learner.progress import Bar
from vcl.learner.record import Update


def of(epoch: int, epochs: int, note: str = "") -> Progress:
    return Progress("fit", epoch, epochs, torch.zeros(1), note)


class TestTheBar:
    def test_on_a_terminal_it_shows_the_time_left_and_is_cleared(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        clock = iter([0.0, 0.0, 10.0, 20.0, 20.01])
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
        bar = Bar(True)
        for epoch in (1, 2, 3):
            bar(of(epoch, 6))
        bar(of(4, 6))  # too soon after the last
        bar(of(4, 6, "a note"))
        drawn = capsys.readouterr().err.split("\r")[1:]
        assert [re.findall(r"(\d+)/6 +(\d+) s left", line)[0] for line in drawn] == [("2", "20"), ("3", "20")]
        bar.end()
        assert capsys.readouterr().err.strip("\r ") == ""

    def test_elsewhere_it_writes_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        for shown in (True, False):
            bar = Bar(shown)
            bar(of(1, 1))
            bar.end()
        assert capsys.readouterr().err == ""


class TestTheLine:
    def test_it_says_how_far_the_fit_got_where_it_learned_and_what_was_lost(self) -> None:
        learner = regressor(method="mean-field", epochs=30)
        for seed in (0, 1):
            learner.update(numbers(40, seed), targets_of(numbers(40, seed)) + 5.0 * seed)
        first, second = learner.history
        assert re.fullmatch(
            r"update 1: 40 examples, \d+ epochs in 4 fits, [\d.]+ s; variances converged; KL \d+ nats \(.*\)",
            first.line(),
        )
        assert re.search(r"; the fit to earlier data lost about [\d.]+ nats$", second.line())
        assert first.lost == 0.0
        assert second.lost > 0
        assert sum(first.kl.values()) > 0
        assert all(name in first.kl for name in ("trunk.1.weight", "heads.all.bias"))

    def test_it_survives_a_folder_to_the_bit(self) -> None:
        learner = classifier().update(numbers(), classes_of(numbers()))
        (line,) = learner.history
        again = Update.from_described(line.described())
        assert str(again) == str(line)
