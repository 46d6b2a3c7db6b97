"""Predictions, generated images and likelihoods of a belief, and metrics."""

from vcl.predicting.generation import classifier_uncertainty as classifier_uncertainty
from vcl.predicting.generation import generate as generate
from vcl.predicting.generation import log_marginal as log_marginal
from vcl.predicting.generative_classifier import class_log_marginals as class_log_marginals
from vcl.predicting.generative_classifier import classify as classify
from vcl.predicting.generative_classifier import score as score
from vcl.predicting.metrics import accuracy as accuracy
from vcl.predicting.metrics import average_accuracy as average_accuracy
from vcl.predicting.metrics import backward_transfer as backward_transfer
from vcl.predicting.metrics import brier as brier
from vcl.predicting.metrics import calibration_error as calibration_error
from vcl.predicting.metrics import forgetting as forgetting
from vcl.predicting.metrics import log_predictive as log_predictive
from vcl.predicting.prediction import predict as predict
from vcl.predicting.prediction import predict_draws as predict_draws
from vcl.predicting.prediction import predict_outputs as predict_outputs
from vcl.predicting.uncertainty import decompose as decompose
from vcl.predicting.uncertainty import intervals as intervals
from vcl.predicting.uncertainty import quantiles as quantiles
from vcl.predicting.uncertainty import sample_targets as sample_targets
from vcl.predicting.uncertainty import variances as variances
