"""`vcl paper`: runs the paper's experiments and compares our numbers with the paper's."""
