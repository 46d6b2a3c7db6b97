"""Beliefs: a flat parameter vector with a layout, and families of distributions over it."""

from vcl.beliefs.algebra import combine as combine
from vcl.beliefs.algebra import power as power
from vcl.beliefs.algebra import product as product
from vcl.beliefs.algebra import quotient as quotient
from vcl.beliefs.belief import Belief as Belief
from vcl.beliefs.belief import Factor as Factor
from vcl.beliefs.fading import fade as fade
from vcl.beliefs.full import FullGaussian as FullGaussian
from vcl.beliefs.layout import Layout as Layout
from vcl.beliefs.mean_field import MeanField as MeanField
from vcl.beliefs.mean_field import kl as kl
from vcl.beliefs.point import Point as Point
from vcl.beliefs.quadratic import Quadratic as Quadratic
from vcl.beliefs.registry import register as register
