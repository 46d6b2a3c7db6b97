"""To generate: streams of one class a task, learned by a VAE with a posterior over its decoder."""

from vcl.lab.generative.kind import GENERATIVE
from vcl.lab.generative.settings import GenerativeSettings

__all__ = ["GENERATIVE", "GenerativeSettings"]
