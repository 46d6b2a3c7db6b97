"""Set-up for all tests; what they are made of is in made.py and oracles.py."""

import os
import sys
from pathlib import Path

# Tests run side by side, one worker a core: more threads than that only wait for each other. Set before torch looks.
os.environ["OMP_NUM_THREADS"] = "1"

sys.path.insert(0, str(Path(__file__).parent))  # so that test files in sub-folders can import made and oracles
