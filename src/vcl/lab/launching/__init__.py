"""Computes parts in other processes, on this machine or on many: jobs, what does one, and where they run."""
