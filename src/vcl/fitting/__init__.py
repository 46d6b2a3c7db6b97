"""The one training loop, a step of it, its optimiser, and the curvature where a fit ends."""
