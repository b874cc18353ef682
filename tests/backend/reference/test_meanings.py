"""Every op of the Triton, the GPU and the CPU model has a meaning in NumPy."""

import ziggurat.backend.reference.run  # noqa: F401
from ziggurat.backend.reference.machine import triton
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, cf, core, cpu, math, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu

# Functions are called, not run; variables and Python's values are gone from this level.
WITHOUT = {"tt.func", "cpu.module"}
ABSENT_CORE = {"module", "func", "func.call", "func.ref", "constant", "var", "var.load", "var.store"}


def test_every_op_has_a_meaning():
    for dialect in (arith, cf, cpu, math, scf, tt):
        ops = [cls for cls in OPS.values() if cls.__module__ == dialect.__name__]
        assert ops
        assert set(triton.missing(ops)) <= WITHOUT, dialect.__name__
    assert set(triton.missing(cls for cls in OPS.values() if cls.__module__ == core.__name__)) == ABSENT_CORE


def test_every_op_of_a_gpu_model_has_a_meaning():
    """The functions of a `gpu.module` are run, and not the module."""
    ops = [cls for cls in OPS.values() if cls.__module__.startswith(gpu.__name__.rpartition(".")[0])]
    assert len(ops) > 40
    assert set(triton.missing(ops)) == {"gpu.module"}
