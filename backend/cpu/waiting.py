"""Loops that wait until another program has written to memory."""

from __future__ import annotations

import attrs

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite
from ziggurat.transforms.place.prepare import prepare

# Atomics that leave the memory as it is, if they are done again.
_LASTING = (
    tt.AtomicKind.AND, tt.AtomicKind.OR, tt.AtomicKind.MAX, tt.AtomicKind.MIN, tt.AtomicKind.UMAX, tt.AtomicKind.UMIN,
    tt.AtomicKind.FMAX, tt.AtomicKind.FMIN, tt.AtomicKind.XCHG,
)  # fmt: skip
_NEUTRAL = (tt.AtomicKind.ADD, tt.AtomicKind.FADD, tt.AtomicKind.XOR)  # If their operand is 0.


def waiting_loops(model: Op) -> frozenset[Location | None]:
    """The places of a kernel's loops that go on until memory has another content, and do not change it meanwhile.

    Programs with such a loop run in their order on one thread: a program sees what earlier ones have written. It cannot
    wait for a later one, so that the loop is an error after some iterations, as it is in the interpreter.
    """
    loops = (op for op in model.walk() if isinstance(op, scf.While))
    if not any(isinstance(op, MemoryRead | tt.Call) for loop in loops for op in loop.walk()):
        return frozenset()
    return frozenset(place_of(op) for op in prepare(model).walk() if isinstance(op, scf.While) and _waits(op))


def place_of(loop: Op) -> Location | None:
    """The place of a loop in the source, which passes leave as it is."""
    return None if loop.location is None else attrs.evolve(loop.location, by=None)


def _waits(loop: scf.While) -> bool:
    """Whether a loop's condition stays as it is from some iteration on, if memory does. Its loads may be before it."""
    if any(len(body.blocks) > 1 for body in loop.bodies):
        return False
    first, second = loop.before.entry, loop.after.entry
    inner = [op for body in loop.bodies for op in body.walk()]
    if any(isinstance(op, MemoryWrite) and not _lasts(op) for op in inner):
        return False
    condition, *handed = first.terminator.operands
    yielded = second.terminator.operands
    ops = (*first.ops, *second.ops)  # An inner loop or branch is one op.
    pairs = (*zip(second.parameters, handed, strict=True), *zip(first.parameters, yielded, strict=True))
    changing: set[Value] = {*(op.result for op in ops), *first.parameters, *second.parameters}
    for start, middle, given, last in zip(first.parameters, second.parameters, handed, yielded, strict=True):
        if given is start and last is middle:
            changing -= {start, middle}
    # Values that are computed from lasting ones are lasting, if memory is.
    while True:
        lasting = {op.result for op in ops if op.result in changing and changing.isdisjoint(op.used_values())}
        lasting |= {parameter for parameter, value in pairs if parameter in changing and value not in changing}
        if not lasting:
            return condition not in changing
        changing -= lasting


def _lasts(op: Op) -> bool:
    """Whether an op changes nothing if it is done again at once."""
    if isinstance(op, tt.AtomicRMW):
        return op.kind in _LASTING or (op.kind in _NEUTRAL and _number(op.value) == 0)
    return isinstance(op, tt.AtomicCAS)


def _number(value: Value) -> object:
    """The value of a constant, or of a tensor of one."""
    while isinstance(value, OpResult) and isinstance(value.op, tt.Splat):
        value = value.op.value
    op = value.op if isinstance(value, OpResult) else None
    return op.value if isinstance(op, arith.ConstantOp) else None
