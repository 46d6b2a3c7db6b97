"""A contextual bandit: each digit is shown, one of ten arms is pulled, and only whether it was right is learned.

    python examples/decisions/bandit.py [--quick]

The learner predicts the reward of (image, arm). Thompson sampling pulls the best arm under one draw of the weights for
each image; epsilon-greedy pulls the best arm on average, and a random one with probability epsilon. Rewards are learned
by one ``update`` for every 50 images. Regret is the number of images on which the right arm was not pulled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from common import Baseline, Results, cell, options, say
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import vcl
from vcl.lab.figures.style import colour

ARMS, AT_ONCE, ROUNDS = 10, 50, 1000
PIXELS = 16
"""Of an image that is averaged over squares of two by two: a quarter of the time."""
POLICIES = ("Thompson sampling", "greedy", "epsilon 0.1", "fine-tuning, epsilon 0.1")


def inputs(x: np.ndarray, arms: np.ndarray) -> np.ndarray:
    """The image in the columns of its arm, 0 in those of other arms: [N, pixels arms]."""
    found = np.zeros((len(x), ARMS, x.shape[1]))
    found[np.arange(len(x)), arms] = x
    return found.reshape(len(x), -1)


def every(x: np.ndarray) -> np.ndarray:
    """Each image with each arm: [N arms, pixels arms], arms last."""
    return inputs(np.repeat(x, ARMS, 0), np.tile(np.arange(ARMS), len(x)))


def pull(
    policy: str, learner: vcl.ContinualClassifier | Baseline, x: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """The arm for each image [N]."""
    if policy == "Thompson sampling":
        assert isinstance(learner, vcl.ContinualClassifier)
        drawn = learner.predict_draws(every(x), draws=len(x))[..., 1].reshape(len(x), len(x), ARMS)
        return drawn[np.arange(len(x)), np.arange(len(x))].argmax(-1)  # image n has draw n
    chosen = learner.predict_proba(every(x))[:, 1].reshape(len(x), ARMS).argmax(-1)
    explore = random.random(len(x)) < (0.0 if policy == "greedy" else 0.1)
    return np.where(explore, random.integers(ARMS, size=len(x)), chosen)


def one(policy: str, seed: int, quick: bool, results: Results) -> None:
    """All rounds of one policy."""
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, PIXELS)
    x = (x - x.mean()) / x.std()  # the columns of other arms are 0, so the learner cannot scale them
    random = np.random.default_rng(seed)
    order, unseen = np.split(random.permutation(len(x))[: 150 if quick else None], [100 if quick else ROUNDS])
    torch.manual_seed(seed)
    net = vcl.mlp(PIXELS * ARMS, (50,))
    learner: vcl.ContinualClassifier | Baseline
    if policy.startswith("fine-tuning"):
        learner = Baseline(net, 50, 2, "fine-tuning", seed=seed, standardize=False)
    else:
        learner = vcl.ContinualClassifier(
            net, classes=[0, 1], standardize=False, seed=seed, verbose=0, epochs=2 if quick else None
        )
    regret = 0
    for first in range(0, len(order), AT_ONCE):
        now = order[first : first + AT_ONCE]
        images = x[now]
        arms = pull(policy, learner, images, random) if first else random.integers(ARMS, size=len(now))
        reward = (arms == y[now]).astype(int)
        regret += int((1 - reward).sum())
        results.add(policy=policy, seed=seed, rounds=first + len(now), regret=regret, rewards=float(reward.mean()))
        learner.update(inputs(images, arms), reward)
    # What was learned, whatever the policy does with it: the arms that look best on average, and under draws.
    results.rows[-1]["best"] = right("greedy", learner, x[unseen], y[unseen], random)
    if not policy.startswith("fine-tuning"):
        results.rows[-1]["drawn"] = right("Thompson sampling", learner, x[unseen], y[unseen], random)


def right(
    policy: str, learner: vcl.ContinualClassifier | Baseline, x: np.ndarray, y: np.ndarray, random: np.random.Generator
) -> float:
    """The right arms in % of a policy that learns nothing from them."""
    parts = [slice(first, first + AT_ONCE) for first in range(0, len(x), AT_ONCE)]
    return float(100 * np.mean(np.concatenate([pull(policy, learner, x[at], random) == y[at] for at in parts])))


def main(given: Sequence[str] | None = None) -> None:
    """Run all policies with all seeds, print the table, write rows and figure."""
    asked = options(__doc__, 10, given)
    results = Results("bandit", asked)
    for seed in results.missing():
        for policy in POLICIES:
            one(policy, seed, asked.quick, results)
            say(f"seed {seed}, {policy}: regret {results.rows[-1]['regret']}")
        results.keep()
    last = max(row["rounds"] for row in results.rows)
    table = [
        [policy, cell(results.values("regret", policy=policy, rounds=last), 0),
         cell([100 * np.mean([row["rewards"] for row in results.where(policy=policy, seed=seed)
                              if row["rounds"] > last - 200]) for seed in results.seeds()]),
         cell(results.values("best", policy=policy, rounds=last)),
         "-" if policy.startswith("fine-tuning") else cell(results.values("drawn", policy=policy, rounds=last))]
        for policy in POLICIES
    ]  # fmt: skip
    note = (
        f"Regret after {last} images (random arms: {0.9 * last:.0f}), and right arms in % over the last 200; then on "
        "images that no policy saw, by the best arm on average and by the best under one draw for each image. Means "
        "and standard errors over seeds."
    )
    heading = ("policy", "regret", "right at the end", "unseen, on average", "unseen, by draws")
    results.write(heading, table, figure(results), note)


def figure(results: Results) -> Figure:
    """Regret against rounds: the mean and its standard error."""
    drawn = Figure(figsize=(5, 3.4), layout="constrained")
    axes = drawn.subplots()
    for place, policy in enumerate(POLICIES):
        runs = np.array([results.values("regret", policy=policy, seed=seed) for seed in results.seeds()], dtype=float)
        rounds = results.values("rounds", policy=policy, seed=results.seeds()[0])
        mean, error = runs.mean(0), runs.std(0) / max(1, len(runs) - 1) ** 0.5
        axes.plot(rounds, mean, color=colour(place), label=policy)
        axes.fill_between(rounds, mean - error, mean + error, color=colour(place), alpha=0.2, lw=0)
    axes.set(xlabel="images", ylabel="regret", title="Digits with ten arms")
    axes.legend()
    return drawn


if __name__ == "__main__":
    main()
