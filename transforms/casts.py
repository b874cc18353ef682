"""Numbers of one element type as another."""

from __future__ import annotations

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import Value, require_argument
from ziggurat.codemodel.types import ScalarType, element_of, f32, i1, with_element


def cast(
    builder: Builder, value: Value, element: ScalarType, rounding: arith.Rounding = arith.Rounding.NEAREST
) -> Value:
    """A number or a tensor of numbers, with elements of another type; itself where it has that type.

    Floats are rounded as `rounding` says; a float becomes the integer toward zero. Raises `BuildError` for pointers and
    for i1 as `element`.
    """
    require_argument(builder, Builder, "cast: 'builder' must be a Builder")
    require_argument(value, Value, "cast: 'value' must be a Value", "give op.result, or a parameter of a body")
    require_argument(element, ScalarType, "cast: 'element' must be a dtype such as zg.f32")
    source = element_of(value.type)
    if source == element:
        return value
    if not isinstance(source, ScalarType) or element == i1:
        raise BuildError(f"cast: the types must be of numbers, the new one not i1; got {value.type} and {element}")
    target = with_element(value.type, element)
    if source.is_float and element.is_float:
        if source.bits < element.bits:
            return builder.add(arith.ExtF(value, target))
        if source.bits == element.bits:  # f16 and bf16 meet in f32, which holds both.
            value = builder.add(arith.ExtF(value, with_element(value.type, f32)))
        return builder.add(arith.TruncF(value, target, rounding=rounding))
    if source.is_float:
        if source.is_fp8:  # 8-bit floats become integers, and integers 8-bit floats, by way of f32.
            value = cast(builder, value, f32)
        return builder.add((arith.FPToSI if element.signed else arith.FPToUI)(value, target))
    if element.is_float:
        wide = with_element(value.type, f32 if element.is_fp8 else element)
        converted = builder.add((arith.SIToFP if source.signed else arith.UIToFP)(value, wide))
        return cast(builder, converted, element, rounding)
    if source.bits == element.bits:
        return builder.add(arith.Bitcast(value, target))
    if source.bits > element.bits:
        return builder.add(arith.TruncI(value, target))
    return builder.add((arith.ExtSI if source.signed else arith.ExtUI)(value, target))
