"""Leaf operations: noise, random generators, and operations with both a torch and a Triton form."""
