"""The dialects: each file declares the ops of one. Importing this package makes all of them known to the parser."""

from ziggurat.codemodel.dialects import arith, cf, core, cpu, debug, math, py, scf, tt

__all__ = ["arith", "cf", "core", "cpu", "debug", "math", "py", "scf", "tt"]
