"""`vcl paper`: what the paper ran, ours beside theirs. One file per kind of thing: items, parts, numbers, table."""
