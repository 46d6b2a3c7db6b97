"""One file per figure: rows in, picture out. A figure knows nothing of models."""
