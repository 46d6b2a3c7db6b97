"""Pages: one self-contained HTML file from plain data, with charts that need no network and no library."""

from vcl.pages.comparison import Comparison as Comparison
from vcl.pages.comparison import Fit as Fit
from vcl.pages.comparison import Going as Going
from vcl.pages.comparison import Line as Line
from vcl.pages.comparison import Measures as Measures
from vcl.pages.comparison import Metric as Metric
from vcl.pages.comparison import Picture as Picture
from vcl.pages.page import Page as Page
from vcl.pages.page import data_of as data_of
from vcl.pages.page import html as html
from vcl.pages.page import is_page as is_page
from vcl.pages.sections import Section as Section
