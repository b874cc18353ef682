"""`triton` in a process that a program under `ziggurat.triton.install()` has started."""

import importlib
import sys

from ziggurat.triton.installation import install

del sys.modules["triton"]  # This module, whose place `ziggurat.triton` takes.
install()
importlib.import_module("triton")
