"""Effects of ops on memory and control, for passes that move or share ops. The memory model is in `demand.py`."""

from __future__ import annotations

from ziggurat.codemodel import traits
from ziggurat.codemodel.dialects import cf, core, py, scf, tt
from ziggurat.codemodel.op import Op, Value, constant_of
from ziggurat.codemodel.types import pyobject

# Ops that do not write memory, besides pure ops and reads.
_SILENT = (
    *(traits.BodyTerminator, traits.BlockTerminator, traits.Loop, core.Var, core.VarLoad, core.VarStore),
    *(scf.If, py.If, py.CondExpression, py.CondAnd, py.CondOr, py.Assert),
    *(tt.Print, tt.Assert, tt.Assume, cf.AssertOp),
)


def is_pure(op: Op) -> bool:
    """Whether the op may be repeated, and shared with an equal one."""
    if isinstance(op, traits.Pure):
        return not runs_methods(op)
    return isinstance(op, tt.InlineAsm) and op.is_pure


def runs_methods(op: Op) -> bool:
    """Whether a pure op of the Python code model takes an object, and so may run a method of it, with any effect: as
    `a + b`, `a.b` and `a[0]` may."""
    if not isinstance(op, traits.PythonTier) or isinstance(op, py.Is | py.IsNot | py.Pack):
        return False
    return any(value.type == pyobject for value in op.operands)


def may_trap(op: Op) -> bool:
    """Whether the op, or one inside it, is undefined for some operands. A division by 2 is not."""
    return any(isinstance(inner, traits.MayTrap) and not _is_safe(inner.operands[1]) for inner in op.walk())


def _is_safe(divisor: Value) -> bool:
    return constant_of(divisor) not in (None, 0, -1)


def is_read(op: Op) -> bool:
    """Whether the op reads global memory and does nothing else."""
    if isinstance(op, tt.Load):
        return not op.volatile
    return isinstance(op, traits.MemoryRead) and not isinstance(op, traits.MemoryWrite)


def may_write(op: Op) -> bool:
    """Whether the op, or one inside it, may write global memory. Unknown ops and calls may."""
    return not all(is_pure(inner) or is_read(inner) or isinstance(inner, _SILENT) for inner in op.walk())


def may_stop(op: Op) -> bool:
    """Whether control may not get past the op: it may fail, leave the function, or not end."""
    return any(map(_stops, op.walk()))


def _stops(op: Op) -> bool:
    if isinstance(op, scf.For):
        return not is_nonzero(op.step)
    if isinstance(op, traits.Returns | traits.LeavesIteration | core.Unreachable | scf.While | py.While | py.For):
        return True
    if isinstance(op, py.Assert | tt.Assert | cf.AssertOp):
        return True
    if op.jumps:
        return True
    return not (is_pure(op) or isinstance(op, (traits.MemoryRead, traits.MemoryWrite, *_SILENT)))


def is_nonzero(value: Value) -> bool:
    """Whether a value is an integer constant other than zero."""
    number = constant_of(value)
    return type(number) is int and number != 0
