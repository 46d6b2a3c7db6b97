"""One file per figure: rows in, picture out. Figures do not use models."""
