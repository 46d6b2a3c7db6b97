"""Variational continual learning: q_t(theta) = proj(q_{t-1}(theta) p(D_t | theta)), q_0 = prior."""

__version__ = "0.1.0"
