"""Rules of comparing and choosing."""

from __future__ import annotations

from functools import partial

from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.dialects.arith import FloatPredicate, IntPredicate
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ConstantType, PtrType, Type, element_of, f32, i1, shape_of, shaped, with_element
from ziggurat.frontends.language import CompareKind
from ziggurat.frontends.language.comparison import NAMED
from ziggurat.transforms.calls.constants import describe
from ziggurat.transforms.calls.emit import Emitter, Operand
from ziggurat.transforms.calls.promotion import common_shape, is_number, is_pointer, promote, promoted, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, numbers

# Predicates of floats, signed and unsigned integers by comparison. A NaN is unequal to everything.
PREDICATES = {
    CompareKind.EQUAL: (FloatPredicate.OEQ, IntPredicate.EQ, IntPredicate.EQ),
    CompareKind.NOT_EQUAL: (FloatPredicate.UNE, IntPredicate.NE, IntPredicate.NE),
    CompareKind.LESS_THAN: (FloatPredicate.OLT, IntPredicate.SLT, IntPredicate.ULT),
    CompareKind.LESS_THAN_OR_EQUAL: (FloatPredicate.OLE, IntPredicate.SLE, IntPredicate.ULE),
    CompareKind.GREATER_THAN: (FloatPredicate.OGT, IntPredicate.SGT, IntPredicate.UGT),
    CompareKind.GREATER_THAN_OR_EQUAL: (FloatPredicate.OGE, IntPredicate.SGE, IntPredicate.UGE),
}


def _compared(call: Typing, a: Type, b: Type, kind: CompareKind | None = None) -> Type:
    if is_pointer(a) and a == b:
        return with_element(a, i1)
    numbers(call, a, b)
    computed = call.computed(a, b, *([] if kind is None else [ConstantType(kind, i1)]))
    return computed or with_element(promoted(str(call), a, b), i1)


def _compare(emit: Emitter, result: Type, a: Operand, b: Operand, kind: CompareKind) -> Value:
    """Compare two operands after promotion."""
    floats, signed, unsigned = PREDICATES[kind]
    if is_pointer(a.type):
        return emit.add(arith.CmpI(a.value, b.value, signed))
    element = promote(a.type, b.type)
    type_ = with_element(result, element)
    left, right = emit.convert(a, type_), emit.convert(b, type_)
    if element.is_fp8:
        # Promoted first, as all operands are; then compared in f32.
        left, right = emit.cast(left, f32), emit.cast(right, f32)
    if element.is_float:
        return emit.add(arith.CmpF(left, right, floats))
    return emit.add(arith.CmpI(left, right, signed if element.signed else unsigned))


def _chosen(call: Typing, condition: Type, x: Type, y: Type) -> Type:
    if not is_number(condition) or scalar_type(condition) != i1:
        raise KernelTypeError(
            f"{call}: the condition must be i1 (true or false); got {describe(condition)}",
            hint="make a condition with zg.compare",
        )
    if isinstance(condition, ConstantType) and isinstance(x, ConstantType) and isinstance(y, ConstantType):
        return call.computed(condition, x, y) or (x if condition.value else y)
    if is_pointer(x) and is_pointer(y):
        element = element_of(x)
        assert isinstance(element, PtrType)
        if element != element_of(y):
            raise KernelTypeError(f"{call} chooses between unlike pointers, {x} and {y}")
    else:
        numbers(call, x, y)
        element = promote(x, y)
    return shaped(common_shape(str(call), condition, x, y), element)


def _where(emit: Emitter, result: Type, condition: Operand, x: Operand, y: Operand) -> Value:
    if isinstance(condition.type, ConstantType):
        return emit.convert(x if condition.type.value else y, result)
    mask = emit.spread(condition.value, shape_of(result)) if shape_of(condition.type) else condition.value
    return emit.add(arith.Select(mask, emit.convert(x, result), emit.convert(y, result)))


RULES = {
    "compare": Rule(_compared, _compare),
    **{name: Rule(_compared, partial(_compare, kind=kind)) for name, kind in NAMED.items()},
    "where": Rule(_chosen, _where),
}
