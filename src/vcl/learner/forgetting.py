"""Forgetting a task: its site is divided out of the belief, and its name and head go.

    q / site_t = prior prod_{s != t} site_s

A learner that forgets keeps no examples, so that the belief is also what predicts.
"""

from __future__ import annotations

from vcl.beliefs.layout import head_of
from vcl.beliefs.mean_field import MeanField
from vcl.learner.knowledge import Knowledge
from vcl.learner.sites import Site, natural
from vcl.learner.warned import warn_user


def without(known: Knowledge, task: str, prior: MeanField) -> Knowledge:
    """The knowledge without a task's site, name and, if no other task uses it, head.

    ``prior`` is the model's for all heads so far. Without any task the shared parameters are at it, to the bit, so that
    a fit starts as the first one did.
    """
    tasks = {name: each for name, each in known.tasks.items() if name != task}
    heads = {record.head for record in tasks.values()}
    q = known.state.propagated
    if tasks:
        q = _divided(q, known.sites[task].on(q.layout), prior, task)
        q = q.restrict(q.layout.where(lambda name: head_of(name) is None or head_of(name) in heads))
    else:
        q = prior.restrict(prior.layout.touched(())).to(q.mean.device).to(q.mean.dtype)
    state = known.state._replace(
        heads={head: units for head, units in known.state.heads.items() if head in heads},
        propagated=q, predictive=dict.fromkeys((h for h in known.state.predictive if h in heads), q),
    )  # fmt: skip
    return known._replace(
        state=state, tasks=tasks, outputs={head: each for head, each in known.outputs.items() if head in heads},
        noise=None if known.noise is None else {head: each for head, each in known.noise.items() if head in heads},
        sites={name: each for name, each in known.sites.items() if name != task},
        seen={digest: name for digest, name in known.seen.items() if name != task},
    )  # fmt: skip


def _divided(q: MeanField, site: Site, prior: MeanField, task: str) -> MeanField:
    """q / site; a parameter that then has no positive precision goes back to the prior, with a warning."""
    now, start = natural(q), natural(prior.to(q.mean.device))
    precision, shift = now.precision - site.precision, now.shift - site.shift
    bad = ~(precision > 0)
    if bool(bad.any()):
        warn_user(
            f"without {task!r}, {int(bad.sum())} of {bad.numel()} parameters would have no positive precision, because "
            "later updates took back what it said; they go back to the prior"
        )
        precision, shift = (
            start.precision.expand_as(precision).where(bad, precision),
            start.shift.expand_as(shift).where(bad, shift),
        )
    untouched = (site.precision == 0) & (site.shift == 0)
    mean = q.mean.where(untouched, (shift / precision).to(q.mean))
    return MeanField(q.layout, mean, q.log_var.where(untouched, -precision.log().to(q.log_var)))
