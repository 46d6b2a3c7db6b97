"""Leaf operations: noise and random generators, and what exists both in torch and as Triton kernels."""
