"""Loop-carried integers and pointers whose value in iteration k is known without running the iterations before it.

    for k in range(n): p = p + step          in iteration k, p is initial + k · step

The step is computed outside of the loop. Pointers move by 64-bit offsets: k · step may be too large for the step's type
where p itself is not.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import BlockParameter, Body, Value
from ziggurat.codemodel.types import PtrType, TensorType, element_of, i64, scalar_element, with_element
from ziggurat.transforms.casts import cast
from ziggurat.transforms.differentiate.adjoint import Reverse

Step = tuple[bool, Value]
"""Whether the step is subtracted, and the step."""


def steps_of(loop: scf.For, index: int) -> list[Step] | None:
    """The steps that each iteration adds to carried value `index`; None if one is not known before the loop."""
    parameter = loop.entry_arguments(loop.body)[index]
    (end,) = loop.terminators(loop.body)
    return _steps(end.handed[index], parameter, loop.body)


def _steps(value: Value, parameter: BlockParameter, body: Body) -> list[Step] | None:
    if value is parameter:
        return []
    op = value.op
    match op:
        case tt.AddPtr() | arith.SubI():
            source, step = op.operands
        case arith.AddI() if is_inside(op.lhs, body):
            source, step = op.operands
        case arith.AddI():
            step, source = op.operands
        case _:
            return None
    if is_inside(step, body):
        return None
    before = _steps(source, parameter, body)
    return None if before is None else [*before, (isinstance(op, arith.SubI), step)]


def is_inside(value: Value, body: Body) -> bool:
    """Whether a value is declared in a body, or in one inside it."""
    block = value.block
    while block is not None:
        if block.parent is body:
            return True
        owner = block.parent.parent
        block = owner.parent if owner is not None else None
    return False


def value_at(at: Reverse, loop: scf.For, index: int, steps: list[Step], number: Value) -> Value:
    """Carried value `index` in iteration `number`."""
    value = at.value(loop.inits[index])
    for negative, step in steps:
        offset = _times(at, at.value(step), number, isinstance(element_of(value.type), PtrType))
        if isinstance(element_of(value.type), PtrType):
            value = at.emit(tt.AddPtr(value, offset))
        else:
            value = at.emit((arith.SubI if negative else arith.AddI)(value, offset))
    return value


def _times(at: Reverse, step: Value, number: Value, wide: bool) -> Value:
    """step · number, in 64 bits if `wide`."""
    op = step.op
    if isinstance(op, tt.Splat):
        product = _times(at, op.value, number, wide)
        return at.emit(tt.Splat(product, with_element(step.type, scalar_element(product.type))))
    if isinstance(op, arith.ConstantOp) and isinstance(step.type, TensorType):
        element = step.type.element
        product = _times(at, at.emit(arith.ConstantOp(op.value, type=element)), number, wide)
        return at.emit(tt.Splat(product, with_element(step.type, scalar_element(product.type))))
    element = scalar_element(step.type)
    if wide and element.bits < 64:
        element, step = i64, cast(at.builder, step, i64)
    count = cast(at.builder, number, element)
    if isinstance(step.type, TensorType):
        count = at.emit(tt.Splat(count, step.type))
    return at.emit(arith.MulI(step, count))
