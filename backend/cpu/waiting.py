"""Programs that wait for each other, which cannot run one after the other."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Op, OpResult, Value

# Atomics that leave the memory as it is, if their operand is 0.
_NEUTRAL = (tt.AtomicKind.ADD, tt.AtomicKind.OR, tt.AtomicKind.XOR)


def demand_no_waiting(model: Op) -> None:
    """Raise `TargetError` for a loop that reads an element again and again until another program has written it.

    Native code runs programs to their end. Such a loop would never end if the other program is a later one; the
    interpreter finds that out by counting. A lock is no such loop: the program that has it gives it back.
    """
    for loop in model.walk():
        if isinstance(loop, scf.While):
            for op in loop.walk():
                if _polls(op):
                    raise TargetError(
                        "a loop waits for memory that another program is to write, and programs run to their end one "
                        "after the other",
                        op.location or loop.location,
                        hint="launch a second kernel for what must come after all programs",
                    )


def _polls(op: Op) -> bool:
    """Whether an op reads what another program may have written meanwhile, and changes nothing."""
    if isinstance(op, tt.Load):
        return op.volatile
    if isinstance(op, tt.AtomicCAS):
        return op.compare is op.value or _number(op.compare) == _number(op.value) is not None
    return isinstance(op, tt.AtomicRMW) and op.kind in _NEUTRAL and _number(op.value) == 0


def _number(value: Value) -> Any:
    """The value of a constant."""
    op = value.op if isinstance(value, OpResult) else None
    return op.value if isinstance(op, arith.ConstantOp) else None
