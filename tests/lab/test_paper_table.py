"""The arithmetic of verdicts and claims, against hand-made rows; and the file of the paper's numbers."""

from __future__ import annotations

from math import inf, isnan
from pathlib import Path

import pytest
import torch
from lab_made import triangle_rows

from vcl.errors import VclError
from vcl.lab.paper import table
from vcl.lab.paper.item import (
    ACCURACY,
    Measured,
    best_of_grids,
    first_one_later,
    first_when_learned,
    kept_since_learned,
    late_when_learned,
    measure,
    when_learned,
)
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.numbers import Claim, Number, Word, claims, numbers, values, words
from vcl.lab.results import Summary, methods

TAKES = (first_when_learned, first_one_later, late_when_learned)
NINETY = Number("fig2", "vcl", 90.0, 1.5, "section 6.1")


@pytest.mark.parametrize(
    ("ours", "verdict"), [(90.0, "within"), (88.5, "within"), (91.5, "within"), (88.4, "worse"), (91.6, "better")]
)
def test_a_verdict_is_by_the_tolerance_alone(ours: float, verdict: str) -> None:
    assert table.verdict(ours, NINETY) == verdict


def test_a_line_holds_both_numbers_and_where_the_papers_is_from() -> None:
    line = table.line("fig2", "vcl", Summary(88.861, 0.642, 5), NINETY, 12.34)
    assert line == ("fig2", "vcl", "90", "88.86", "0.64", 5, "within", 12.3, "section 6.1")
    assert table.line("fig2", "mle", Summary(30.0, float("nan"), 1), None, 1.0)[2:7] == ("", "30.00", "", 1, "")


def test_ends_are_the_average_over_tasks_after_the_last_in_percent() -> None:
    rows = triangle_rows("vcl", {0: [[0.9], [0.7, 0.8]], 3: [[0.5], [0.8, 0.6]]})
    assert measure(rows, "vcl", ACCURACY) == pytest.approx({0: 75.0, 3: 70.0})


def test_what_was_learned_is_the_average_over_tasks_each_right_after_it() -> None:
    rows = triangle_rows("vcl", {0: [[-1.0], [-7.0, -2.0]], 3: [[-3.0], [-9.0, -5.0]]})
    learned = Measured("accuracy", " when learned", take=when_learned)
    assert measure(rows, "vcl", learned) == pytest.approx({0: -1.5, 3: -4.0})


def test_what_was_learned_first_and_what_late() -> None:
    course = [[-1.0], [-7.0, -2.0], *([-9.0] * after + [-float(after)] for after in range(2, 10))]
    rows = triangle_rows("vcl", {0: course})
    taken = {take: measure(rows, "vcl", Measured("accuracy", take=take))[0] for take in TAKES}
    assert taken == pytest.approx({first_when_learned: -1.0, first_one_later: -7.0, late_when_learned: -8.0})
    alone = triangle_rows("vcl", {0: [[-1.0]]})
    for take in (first_one_later, late_when_learned):
        assert isnan(measure(alone, "vcl", Measured("accuracy", take=take))[0])


def test_what_is_kept_is_the_end_less_what_was_learned() -> None:
    rows = triangle_rows("vcl", {0: [[-1.0], [-7.0, -2.0]], 3: [[-3.0], [-9.0, -5.0]]})
    kept = Measured("accuracy", take=kept_since_learned)
    assert measure(rows, "vcl", kept) == pytest.approx({0: -4.5 + 1.5, 3: -7.0 + 4.0})


def word(low: float = -inf, high: float = inf) -> Word:
    return Word("so", "points", "because", low, high)


def claim(of: Word, *pairs: tuple[str, str]) -> Claim:
    return Claim("fig2", "a is better", "a is so", "somewhere", of, pairs or (("a", "b"),))


CLAIM = claim(word(0.0))


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def around(mean: float, error: float, n: int) -> dict[int, float]:
    """n values of this mean and standard error."""
    shape = torch.linspace(-1, 1, n, dtype=torch.float64)
    return by_seed(*(mean + error * n**0.5 * shape / shape.std()).tolist())


def judged(of: Word, mean: float, error: float, n: int) -> str:
    seen = table.judge(claim(of), {"a": around(mean, error, n), "b": dict.fromkeys(range(n), 0.0)})
    assert seen is not None
    assert (seen.difference, seen.error, seen.seeds) == (f"{mean:.2f}", f"{error:.2f}", n)
    return seen.verdict


def test_a_claim_about_what_did_not_happen_is_not_judged() -> None:
    assert table.judge(CLAIM, {"a": {0: 1.0, 1: 2.0}, "b": {0: float("nan"), 1: float("nan")}}) is None


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 80.0, 1: 81.5, 2: 81.5}, ("10.00", "0.29", 3, "true")),
        ({0: 80.0, 1: 81.5, 2: 81.5}, {0: 90.0, 1: 91.0, 2: 92.0}, ("-10.00", "0.29", 3, "false")),
        ({0: 90.0, 1: 91.0}, {0: 89.0, 1: 92.0}, ("0.00", "1.00", 2, "undecided")),
        ({0: 90.0}, {0: 80.0, 1: 81.5}, ("10.00", "", 1, "undecided (one seed)")),
    ],
)
def test_a_claim_is_judged_by_paired_differences(
    a: dict[int, float], b: dict[int, float], found: tuple[str, str, int, str]
) -> None:
    seen = table.judge(CLAIM, {"a": a, "b": b})
    assert seen is not None
    assert (seen.difference, seen.error, seen.seeds, seen.verdict) == found


# The 5 % thresholds of a printed t table, in standard errors, by the number of seeds.
THRESHOLDS = {2: 12.706, 3: 4.303, 5: 2.776, 10: 2.262}


@pytest.mark.parametrize(("seeds", "errors"), THRESHOLDS.items())
@pytest.mark.parametrize("margin", [0.0, 3.0, -1.0])
def test_a_claim_is_decided_where_the_t_threshold_of_its_seeds_is_passed(
    seeds: int, errors: float, margin: float
) -> None:
    for factor, found in ((0.99, "undecided"), (1.01, "true")):
        assert judged(word(margin), margin + factor * errors, 1.0, seeds) == found
    for factor, found in ((0.99, "undecided"), (1.01, "false")):
        assert judged(word(margin), margin - factor * errors, 1.0, seeds) == found


@pytest.mark.parametrize(
    ("mean", "error", "found"),
    [
        (0.0, 1.16, "true"),  # 4.303 * 1.16 = 4.99: the interval is just inside -5 to 5
        (0.0, 1.17, "undecided"),
        (4.0, 0.22, "true"),
        (4.0, 0.24, "undecided"),
        (-4.0, 0.24, "undecided"),
        (6.0, 0.24, "undecided"),
        (6.0, 0.23, "false"),
        (-6.0, 0.23, "false"),
        (-6.0, 0.24, "undecided"),
        (30.0, 4.0, "false"),
    ],
)
def test_equivalence_needs_the_whole_interval_within_both_ends(mean: float, error: float, found: str) -> None:
    assert judged(word(-5.0, 5.0), mean, error, 3) == found


@pytest.mark.parametrize(("mean", "found"), [(1.5, "true"), (-1.0, "false"), (4.0, "false"), (0.1, "undecided")])
def test_slightly_worse_has_a_sign_and_a_bound(mean: float, found: str) -> None:
    assert judged(word(0.0, 3.0), mean, 0.2, 5) == found


def test_what_is_the_same_in_every_seed_is_not_better_but_equivalent() -> None:
    values = {"a": by_seed(1.0, 2.0), "b": by_seed(1.0, 2.0)}
    assert table.judge(claim(word(0.0)), values).verdict == "false"  # type: ignore[union-attr]
    assert table.judge(claim(word(-0.01, 0.01)), values).verdict == "true"  # type: ignore[union-attr]


def test_pairs_are_by_seed_and_not_by_place() -> None:
    seen = table.judge(CLAIM, {"a": {1: 60.0, 0: 50.0, 9: 0.0}, "b": {0: 49.0, 1: 59.0, 8: 100.0}})
    assert seen is not None
    assert (seen.difference, seen.seeds) == ("1.00", 2)


def test_a_margin_must_be_passed() -> None:
    values = {"a": around(90.0, 0.1, 10), "b": dict.fromkeys(range(10), 89.0)}
    assert table.judge(claim(word(0.5)), values).verdict == "true"  # type: ignore[union-attr]
    assert table.judge(claim(word(2.0)), values).verdict == "false"  # type: ignore[union-attr]


def test_a_claim_about_several_pairs_is_as_true_as_the_worst_of_them() -> None:
    values = {
        "a": by_seed(9.0, 9.1, 9.2),
        "far": by_seed(1.0, 1.1, 1.2),
        "near": by_seed(8.0, 8.1, 8.2),
        "noisy": by_seed(8.0, 0.0, 9.0),
        "above": by_seed(10.0, 10.1, 10.2),
    }

    def found(*others: str) -> tuple[str, str]:
        seen = table.judge(claim(word(0.0), *(("a", other) for other in others)), values)
        assert seen is not None
        return seen.verdict, seen.compared

    assert found("far") == ("true", "a - far")
    assert found("far", "near") == ("true", "a - near (of 2 pairs)")
    assert found("noisy", "near", "far") == ("undecided", "a - noisy (of 3 pairs)")
    assert found("noisy", "above", "far") == ("false", "a - above (of 3 pairs)")
    assert table.judge(claim(word(0.0), ("a", "far"), ("a", "nowhere")), values) is None


def test_a_claim_about_what_was_not_run_is_left_out() -> None:
    assert table.judge(CLAIM, {"a": {0: 1.0}}) is None
    assert table.judge(CLAIM, {"a": {0: 1.0}, "b": {1: 1.0}}) is None


def test_a_file_of_another_version_is_refused_by_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("item,claim,difference,error,seeds,verdict,place\n")
    with pytest.raises(VclError, match="Remove the file and give the same command again"):
        table.read_seen(tmp_path / "c.csv")


def test_lines_and_claims_come_back_from_their_files(tmp_path: Path) -> None:
    lines = [
        table.line("fig2", "vcl", Summary(88.9, 0.6, 5), NINETY, 12.0),
        table.line("fig2", "ewc lambda=100", Summary(81.3, 0.9, 10), None, 3.5),
    ]
    seen = [table.judge(CLAIM, {"a": {0: 2.0, 1: 3.0}, "b": {0: 1.0, 1: 1.5}})]
    (tmp_path / "l.csv").write_text(table.write(lines))
    (tmp_path / "c.csv").write_text(table.write([one for one in seen if one]))
    assert table.read_lines(tmp_path / "l.csv") == lines
    assert table.read_seen(tmp_path / "c.csv") == seen
    assert table.read_lines(tmp_path / "none.csv") == []
    text = table.markdown(lines, table.read_seen(tmp_path / "c.csv"))
    assert "| fig2 | vcl | 90 | 88.90 ± 0.60 | 5 | within | 12 |" in text
    assert "| fig2 | ewc lambda=100 | - | 81.30 ± 0.90 | 10 | - | 4 |" in text
    assert "| fig2 | a is better | so: above 0 points | a - b | 1.25 ± 0.25 | 2 | undecided | somewhere |" in text


def test_of_each_grid_the_lambda_that_ends_best_is_kept() -> None:
    rows = [
        *triangle_rows("vcl", {0: [[0.5]]}),
        *triangle_rows("ewc lambda=1", {0: [[0.5]], 1: [[0.6]]}),
        *triangle_rows("ewc lambda=10", {0: [[0.9]], 1: [[0.4]]}),
        *triangle_rows("si lambda=0.1", {0: [[0.7]]}),
        *triangle_rows("si lambda=0.5", {0: [[0.2]]}),
    ]
    assert methods(best_of_grids(rows)) == ["vcl", "ewc lambda=10", "si lambda=0.1"]


# From the paper's section 6.1, and a third party's run of its generators: number, tolerance, how it counts.
NUMBERS = {
    ("fig2", "vcl"): (90.0, 1.5, "vcl"),
    ("fig2", "vcl-random"): (93.0, 1.0, "vcl"),
    ("fig2", "vcl-kcenter"): (93.0, 1.0, "vcl"),
    ("fig2", "ewc"): (84.0, 1.5, "baselines"),
    ("fig2", "si"): (86.0, 1.5, "baselines"),
    ("fig2", "lp"): (82.0, 1.5, "baselines"),
    ("fig3", "vcl-random coreset=200"): (93.0, 1.0, "repeated"),
    ("fig3", "vcl-random coreset=5000"): (95.5, 0.5, "vcl"),
    ("fig4", "vcl"): (97.0, 1.0, "vcl"),
    ("fig4", "vcl-random"): (98.4, 0.4, "vcl"),
    ("fig4", "vcl-kcenter"): (98.4, 0.4, "vcl"),
    ("fig4", "ewc"): (63.1, 1.5, "baselines"),
    ("fig4", "si"): (98.9, 0.4, "baselines"),
    ("fig4", "lp"): (61.2, 1.5, "baselines"),
    ("fig5", "vcl"): (92.0, 1.5, "other data"),
    ("fig5", "vcl-random"): (96.0, 1.0, "other data"),
    ("fig5", "ewc"): (71.0, 1.5, "other data"),
    ("fig5", "si"): (94.0, 1.5, "other data"),
    ("fig5", "lp"): (63.0, 1.5, "other data"),
    ("generative-mnist", "vcl"): (-97.3, 1.0, "third party"),
    ("generative-mnist", "vcl uncertainty"): (1.94, 0.3, "third party"),
    ("generative-notmnist", "vcl"): (-195.8, 2.0, "third party"),
    ("generative-notmnist", "vcl uncertainty"): (1.68, 0.3, "third party"),
}


def test_the_papers_numbers_and_tolerances_are_these() -> None:
    found = {
        (item.name, method): (number.value, number.tolerance, number.group)
        for item in ITEMS
        for method, number in numbers(item.name).items()
    }
    assert found == NUMBERS
    less = {(item.name, method) for item in ITEMS for method, number in numbers(item.name).items() if number.less}
    assert less == {key for key in NUMBERS if key[1].endswith("uncertainty")}


# What the paper's words mean: word, unit, low, high.
WORDS = {
    ("large margins", "points", 3.0, inf),
    ("significantly", "points", 5.0, inf),
    ("slightly", "points", 0.0, 3.0),
    ("modest", "points", 0.0, 5.0),
    ("competitive", "points", -3.0, inf),
    ("better", "points", 0.0, inf),
    ("best", "points", 0.0, inf),
    ("upper bound", "points", 0.0, inf),
    ("poorly", "points", 5.0, inf),
    ("good", "points", -3.0, inf),
    ("performs well", "points", -3.0, inf),
    ("insensitive", "points", -3.0, 3.0),
    ("asymptotes", "points", -0.5, 0.5),
    ("fails", "points", 10.0, inf),
    ("identical", "points", -0.01, 0.01),
    ("catastrophically", "nats", 50.0, inf),
    ("significantly", "nats", 5.0, inf),
    ("markedly", "nats", 5.0, inf),
    ("fails", "nats", 5.0, inf),
    ("similarly", "nats", -5.0, 5.0),
    ("on par or slightly better", "nats", -1.0, 5.0),
    ("better", "nats", 0.0, inf),
    ("significantly", "uncertainty", 0.5, inf),
    ("similarly", "uncertainty", -0.5, 0.5),
    ("on par or slightly better", "uncertainty", -0.1, 0.5),
    ("better", "uncertainty", 0.0, inf),
}

# The paper's own gaps in points, by the sentence that names them: each must satisfy its word.
GAPS = [
    ("fig2", "vcl", "ewc", "large margins", 6.0),
    ("fig2", "vcl", "si", "large margins", 4.0),
    ("fig2", "vcl", "lp", "large margins", 8.0),
    ("fig2", "ewc", "lp", "slightly", 2.0),
    ("fig2", "vcl-random", "vcl", "modest", 3.0),
    ("fig2", "vcl-kcenter", "vcl", "modest", 3.0),
    ("fig3", "vcl-random coreset=5000", "vcl", "significantly", 5.5),
    ("fig4", "vcl", "ewc", "significantly", 33.9),
    ("fig4", "vcl", "lp", "significantly", 35.8),
    ("fig4", "si", "vcl", "slightly", 1.9),
    ("fig4", "vcl-random", "vcl", "better", 1.4),
    ("fig4", "vcl-kcenter", "vcl", "better", 1.4),
    ("fig5", "vcl", "si", "competitive", -2.0),
    ("fig5", "vcl", "ewc", "significantly", 21.0),
    ("fig5", "vcl", "lp", "significantly", 29.0),
    ("fig5", "vcl-random", "vcl", "better", 4.0),
]


def test_the_words_mean_these_numbers() -> None:
    assert {(one.word, one.unit, one.low, one.high) for one in words().values()} == WORDS
    assert all(len(one.why.split()) >= 3 for one in words().values())


@pytest.mark.parametrize(("item", "a", "b", "said", "gap"), GAPS)
def test_the_papers_own_numbers_satisfy_its_words(item: str, a: str, b: str, said: str, gap: float) -> None:
    (found,) = [one for one in claims(item) if one.pairs == ((a, b),)]
    assert (found.word.word, found.word.unit) == (said, "points")
    assert found.word.low < gap < found.word.high
    known = values(item)
    if a in known and b in known:
        assert known[a] - known[b] == pytest.approx(gap)


# The words of section 6.2 and of the appendices, which give no numbers: the beginning of a claim, its word, how often.
SAID = [
    ("generative", "the naive online VAE fails", "catastrophically", 8),
    ("generative", "LP and EWC perform similarly", "similarly", 4),
    ("generative", "EWC is significantly worse than SI", "significantly", 4),
    ("generative", "SI is better than LP", "better", 2),
    ("generative", "VCL is on par with or slightly better than SI", "on par or slightly better", 4),
    ("generative", "VCL has ", "better", 6),
    ("generative", "VCL and SI draw better images", "better", 2),
    ("generative", "EWC deteriorates markedly", "markedly", 1),
    ("generative", "LP deteriorates markedly", "markedly", 1),
    ("generative", "SI fails to produce", "fails", 1),
    ("lambda-permuted", "LP is slightly worse than EWC at lambda = 1", "slightly", 1),
    ("lambda-permuted", "lambda = ", "best", 3),
    ("lambda-split", "lambda = 1 is the best", "best", 1),
    ("lambda-split", "lambda = 1 performs well", "performs well", 2),
    ("lambda-split", "EWC is insensitive", "insensitive", 1),
    ("lambda-split", "multi-head EWC", "better", 1),
    ("toy2d", "after task 2 EWC", "fails", 1),
    ("linear-memory", "without a prior", "identical", 1),
]


def test_claims_without_numbers_have_these_words() -> None:
    rest = [one for item in ITEMS for one in claims(item.name) if not one.item.startswith("fig")]
    for item, start, said, count in SAID:
        mine = [one for one in rest if one.item.startswith(item) and one.text.startswith(start)]
        assert [one.word.word for one in mine] == [said] * count, start
    assert len(rest) == sum(count for *_, count in SAID)


def test_every_claim_quotes_a_sentence_and_every_word_is_used() -> None:
    all_claims = [one for item in ITEMS for one in claims(item.name)]
    assert all(len(one.quote.split()) >= 5 and one.place and one.pairs for one in all_claims)
    assert len({(one.item, one.text) for one in all_claims}) == len(all_claims)
    assert {(one.word.word, one.word.unit) for one in all_claims} == {(said, unit) for said, unit, *_ in WORDS}
    assert numbers("ordering") == {}
    assert claims("ordering") == []


def test_the_unit_of_a_claim_is_that_of_what_it_compares() -> None:
    for item in ITEMS:
        for one in claims(item.name):
            for name in {name for pair in one.pairs for name in pair}:
                generative = item.name.startswith("generative")
                unit = "points" if not generative else "uncertainty" if name.endswith(" uncertainty") else "nats"
                assert one.word.unit == unit, one.text
