"""Generators: VAEs with a posterior over their decoders, their metrics, and the classifier that judges them."""
