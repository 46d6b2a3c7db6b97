"""Learners as objects for your own data, and states as bytes."""

from vcl.learner.checkpoint import from_bytes as from_bytes
from vcl.learner.checkpoint import to_bytes as to_bytes
from vcl.learner.classifier import GenerativeClassifier as GenerativeClassifier
from vcl.learner.generative import GenerativeLearner as GenerativeLearner
from vcl.learner.generative import generative_vcl as generative_vcl
