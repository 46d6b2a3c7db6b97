"""The training loop, its steps and optimiser, and the curvature at the end of a fit."""

from vcl.fitting.curvature import Curvature as Curvature
from vcl.fitting.learned_noise import NoiseBelief as NoiseBelief
from vcl.fitting.learned_noise import expected_squares as expected_squares
from vcl.fitting.loop import Ascent as Ascent
from vcl.fitting.loop import Progress as Progress
from vcl.fitting.loop import Report as Report
from vcl.fitting.loop import silent as silent
from vcl.fitting.processes import Group as Group
from vcl.fitting.processes import sharing as sharing
