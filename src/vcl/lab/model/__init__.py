"""Learners from the command line: own tables and arrays, a folder that holds the model."""
