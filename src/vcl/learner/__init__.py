"""Learners as objects for your own data, and states as bytes."""

from vcl.learner.checkpoint import from_bytes as from_bytes
from vcl.learner.checkpoint import to_bytes as to_bytes
from vcl.learner.classifier import GenerativeClassifier as GenerativeClassifier
from vcl.learner.continual_classifier import ContinualClassifier as ContinualClassifier
from vcl.learner.continual_classifier import Uncertainty as Uncertainty
from vcl.learner.continual_regressor import ContinualRegressor as ContinualRegressor
from vcl.learner.generative import GenerativeLearner as GenerativeLearner
from vcl.learner.generative import generative_vcl as generative_vcl
