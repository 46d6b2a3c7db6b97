"""``python -m vcl`` is ``vcl``."""

from vcl.lab.cli import main

main()
