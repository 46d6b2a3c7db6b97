"""The one training loop, a step of it, its optimiser, and the curvature where a fit ends."""

from vcl.fitting.curvature import Curvature as Curvature
from vcl.fitting.loop import Ascent as Ascent
from vcl.fitting.loop import Progress as Progress
from vcl.fitting.loop import Report as Report
from vcl.fitting.loop import silent as silent
