"""Functions from texts, and the benchmarks of Python's models, for tests of these models."""

import sys
from pathlib import Path

from defined_functions import define as define

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
