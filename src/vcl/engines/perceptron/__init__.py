"""The fit of a multilayer perceptron and its gradient, written out: what torch would differentiate, in fewer passes.

A perceptron is a chain a_1 = x W_1^T + b_1, h_l = max(0, a_l), a_{l+1} = h_l W_{l+1}^T + b_{l+1}, whose last a are the
logits of a softmax. Its fit under q, from B of N examples and S draws of theta, is

    F(q) = N/B sum_n 1/S sum_s log p(y^(n) | theta_s, x^(n))

Both estimators go up the chain with the values and down again with g = dF/da:

    weights   theta = mu + sigma eps:  dF/dmu = sum_s dF/dtheta_s,  dF/dlog sigma^2 = sigma/2 sum_s eps_s dF/dtheta_s
    local     a = m + d eps with m = h M^T + b and d^2 = h^2 V^T + v + tiny; with k = g eps / d
              dF/dM = g^T h,  dF/dlog V = V/2 (k^T h^2),  dF/dh = g M + h (k V)

Noise is used as :mod:`vcl.engines.rows` and :mod:`vcl.engines.draws` use it, so values and gradients are those of the
general way, to rounding; the tests compare them. Runs are taken one after another: what one needs stays in the caches,
and nothing in it depends on what stands beside it. Memory, and the views of it, are made once and serve every step.
"""

from vcl.engines.perceptron.fit import Fit, Workspace, fit_gradient, suits
from vcl.engines.perceptron.parts import Perceptron

__all__ = ["Fit", "Perceptron", "Workspace", "fit_gradient", "suits"]
