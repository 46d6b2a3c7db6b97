"""The lab: data, streams, experiments, results and the command line, around the core."""
