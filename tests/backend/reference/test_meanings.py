"""Every op of the Triton and the CPU model has a meaning in NumPy."""

import ziggurat.backend.reference.run  # noqa: F401
from ziggurat.backend.reference.machine import triton
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, cf, core, cpu, math, scf, tt

# Functions are called, not run; variables and Python's values are gone from this level.
WITHOUT = {"tt.func", "cpu.module"}
ABSENT_CORE = {"module", "func", "func.call", "func.ref", "constant", "var", "var.load", "var.store"}


def test_every_op_has_a_meaning():
    for dialect in (arith, cf, cpu, math, scf, tt):
        ops = [cls for cls in OPS.values() if cls.__module__ == dialect.__name__]
        assert ops
        assert set(triton.missing(ops)) <= WITHOUT, dialect.__name__
    assert set(triton.missing(cls for cls in OPS.values() if cls.__module__ == core.__name__)) == ABSENT_CORE
