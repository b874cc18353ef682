"""Frontends: the ways from a Python function to the Python code model.

`FOLDER` is where they are: an op of the language's own functions has its place there, and the author's call outside of
it. `LIBRARY` has those that are written in the language itself.
"""

import os
from typing import Final

FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
LIBRARY: Final = os.path.join(FOLDER, "library", "")
