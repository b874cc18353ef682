"""The dialects: each file declares the ops of one. Importing this package makes all of them known to the parser."""

from ziggurat.codemodel.dialects import arith, cf, core, cpu, debug, math, py, scf, tt
from ziggurat.codemodel.dialects import py_objects as py_objects
from ziggurat.codemodel.dialects import py_suites as py_suites

__all__ = ["arith", "cf", "core", "cpu", "debug", "math", "py", "scf", "tt"]
