"""A narrow perceptron, whichever the estimator: the softmax, the KL taken from a gradient, and the bound's value.

What stands between two of its matrix products, forward and back, is in :mod:`vcl.ops.kernels.perceptron_weights` and
:mod:`vcl.ops.kernels.perceptron_local`: a program holds all units of a layer for some rows. ``a`` is what comes into
the units of a layer, h = max(a, 0) what comes out, and a row is an example under one draw.
:mod:`vcl.engines.perceptron.fused` calls them in their order.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vcl.ops.kernels.base import triton

if triton is not None:
    from vcl.ops.kernels.parameters import kl_of

    tl: Any = import_module("triton.language")

    @triton.jit
    def softmax(logits, label, row_inside, class_inside, OUT: tl.constexpr):
        # log softmax(logits)_y of each row, and its gradient in the logits.
        logits = tl.where(class_inside[None, :], logits, -float("inf"))
        logits -= tl.max(logits, 1)[:, None]
        e = tl.exp(logits)
        total = tl.sum(e, 1)
        hot = tl.arange(0, OUT)[None, :] == label[:, None]
        log_lik = tl.sum(tl.where(hot, logits, 0.0), 1) - tl.log(total)
        g = tl.where(hot, 1.0, 0.0) - e / total[:, None]
        return tl.where(row_inside, log_lik, 0.0), tl.where(row_inside[:, None], g, 0.0)

    @triton.jit
    def less_kl(g_mean, g_log_var, kl, mean, log_var, p_mean, p_log_var, plain, along, run, at, inside, size,
                p_mean_apart, p_var_apart, kl_at):  # fmt: skip
        # What a program has found of a gradient, written less the gradient of the KL, and its share of the KL.
        mine, pull, excess = kl_of(
            tl.load(mean + run * size + at, inside, other=0.0),
            tl.load(log_var + run * size + at, inside, other=0.0),
            tl.load(p_mean + run * p_mean_apart + at, inside, other=0.0),
            tl.load(p_log_var + run * p_var_apart + at, inside, other=0.0),
        )
        tl.store(g_mean + run * size + at, plain - pull, inside)
        tl.store(g_log_var + run * size + at, along - excess, inside)
        tl.store(kl + kl_at, tl.sum(mine, 0))

    @triton.jit
    def value(value, log_lik, kl, log_lik_parts, kl_parts, scale, BLOCK: tl.constexpr):
        # scale * sum log_lik - sum kl of a run.
        run = tl.program_id(0).to(tl.int64)
        total = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, log_lik_parts, BLOCK):
            at = first + tl.arange(0, BLOCK)
            total += scale * tl.load(log_lik + run * log_lik_parts + at, at < log_lik_parts, other=0.0)
        for first in range(0, kl_parts, BLOCK):
            at = first + tl.arange(0, BLOCK)
            total -= tl.load(kl + run * kl_parts + at, at < kl_parts, other=0.0)
        tl.store(value + run, tl.sum(total, 0))
