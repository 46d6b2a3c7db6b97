"""Pages for the tests: hand-made comparisons, ordinary, hostile and large."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vcl.pages import Comparison, Fit, Line, Measures, Metric, Page, Section
from vcl.pages.sections import bars, cell, curves, facts, heat, images, table

HOSTILE = (
    "</script><script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "'--><svg/onload=window.hit=1>",
    "<!--<script>",
    "__proto__",
    "javascript:window.hit=1",
    "${window.hit=1}\u2028\u2029",
    "=HYPERLINK(1)",
)
METRICS = (
    Metric("accuracy", 100, "%", "more"),
    Metric("log predictive", 1, "nats", "more"),
    Metric("calibration error", 1, "", "less"),
    Metric("Brier score", 1, "", "less"),
)


def comparison(labels: tuple[str, ...], seeds: int, tasks: int, fits: bool = True) -> Comparison:
    """Random numbers, the methods better one after another: method m has about 0.5 + 0.4 m / M."""
    made, size = [], tasks * (tasks + 1) // 2
    for place, label in enumerate(labels):
        g = np.random.default_rng(place)
        base = 0.5 + 0.4 * place / len(labels)
        values = {each.name: (base + 0.05 * g.random((seeds, size))).astype("<f4") for each in METRICS}
        objective = [
            Fit(task, "variational fit", tuple(range(1, 21)), -g.random((seeds, 20)).astype("<f4"))
            for task in range(1, tasks + 1)
        ]
        measured = [Measures(task, "variational fit", {"kl trunk.0.weight": [1.0] * seeds}) for task in (1, 2)]
        made.append(
            Line(
                label=label,
                part=label,
                lam=None,
                seeds=tuple(range(seeds)),
                tasks=tasks,
                values=values,
                paper=70.0 if place == 0 else None,
                seconds=10.0 + place,
                settings=[("epochs", str(place)), ("batch", "256")],
                made=[
                    {
                        "command": f"vcl run {label}", "runs": seeds, "device": "cpu", "engine": "general",
                        "seconds": 1.0, "finished": "today", "vcl": "0", "torch": "0", "python": "3", "commit": "-",
                        "source": "-", "folder": "parts",
                    }
                ],
                objective=objective if fits else (),
                fits=measured if fits else (),
                reliability={when: counts(seeds, right) for when, right in (("end", 60), ("learned", 80))},
            )
        )  # fmt: skip
    names = tuple(f"task {number}" for number in range(1, tasks + 1))
    return Comparison(
        "made",
        "made",
        names,
        "accuracy",
        "average accuracy",
        METRICS,
        tuple(made),
        explained="Mean.",
        notes=("A note.",),
    )


def counts(seeds: int, right: int) -> np.ndarray:
    """In each of ten bins but the first five 100 examples; ``right`` of them are, with a mean confidence of 0.75."""
    made = np.zeros((seeds, 10, 3))
    made[:, 5:] = (100, right, 75)
    return made


def small() -> Page:
    """Three methods, three seeds, three tasks."""
    return Page("Results: small", "1 comparison.", "Made for a test.", groups=[comparison(("mle", "ewc", "vcl"), 3, 3)])


def ends() -> Page:
    """The same with rows of the last task alone, as a grid of lambda keeps them, and nothing of what made it."""
    group = small().groups[0]
    bare = {"objective": (), "fits": (), "reliability": {}, "seconds": None, "made": ()}
    lines = [
        replace(line, values={name: _end(values) for name, values in line.values.items()}, **bare)
        for line in group.lines
    ]
    return replace(small(), groups=[replace(group, lines=tuple(lines), notes=())])


def _end(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.full_like(values[:, :3], np.nan), values[:, 3:]], 1)


def hostile() -> Page:
    """Every name is an attack."""
    bad = HOSTILE[0]
    made = comparison(HOSTILE, 2, 2)
    made = Comparison(
        bad, bad, HOSTILE[:2], "accuracy", bad, (*METRICS, Metric(bad), Metric("__proto__")), made.lines, bad, bad,
        HOSTILE, HOSTILE,
    )  # fmt: skip
    blocks = [
        facts([(bad, bad)]), table(bad, HOSTILE, [[*HOSTILE], [cell(1, bad, "good")] * len(HOSTILE)]),
        heat(bad, bad, HOSTILE[:2], HOSTILE[:2], [[1.0, None], [2.0, 3.0]], log=True), bars(bad, [(bad, 1.0, bad)]),
        curves(bad, bad, {bad: [(0.0, 1.0), (1.0, 2.0)]}, bad), images([("data:image/png;base64,", bad, bad)]),
    ]  # fmt: skip
    return Page(bad, bad, bad, [Section(bad, blocks, bad)], [made], bad)


def large() -> Page:
    """100 methods with 10 seeds each on 10 tasks."""
    labels = tuple(f"method-{number}" for number in range(100))
    return Page("Results: large", "100 lines.", "Made for a test.", groups=[comparison(labels, 10, 10)])
