"""Type promotion and broadcasting, as Triton's semantics document states them.

Where the code of the C++ Triton departs from its document, this module follows the document;
docs/reference/language.md lists the differences.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError, shown
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.types import (
    MAX_ELEMENTS,
    ConstantType,
    DescriptorType,
    PtrType,
    ScalarType,
    Type,
    bf16,
    element_of,
    f16,
    f32,
    f64,
    i1,
    i32,
    i64,
    pyobject,
    shape_of,
    shaped,
    u32,
    u64,
    with_element,
)
from ziggurat.frontends.language.host import MAX_BITS
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.language.phrases import ADD_AXIS, INDEX_POINTER, LITERAL_RANGE, NEGATIVE_LITERAL
from ziggurat.transforms.calls.constant_arguments import describe

F32_MAX = (2 - 2**-23) * 2.0**127


def literal_type(value: Any) -> Type:
    """The dtype of a Python constant: the first of i32, u32, i64, u64, or of f32, f64, that holds it.

    `object` for a constant without a run-time form, such as an int beyond 64 bits. Raises `KernelValueError` for one
    beyond `MAX_BITS`.
    """
    if isinstance(value, bool):
        return i1
    if isinstance(value, int):
        scalar = integer_type(value)
        if scalar is not None:
            return scalar
        if value.bit_length() > MAX_BITS:
            raise KernelValueError(
                say("a constant integer must have at most {} bits; got one of {} bits", MAX_BITS, value.bit_length())
            )
    if isinstance(value, float):
        return f32 if not math.isfinite(value) or abs(value) <= F32_MAX else f64
    return pyobject


def integer_type(*values: int) -> ScalarType | None:
    """The first of i32, u32, i64 and u64 that holds all of these integers."""
    low, high = min(values), max(values)
    return next((t for t in (i32, u32, i64, u64) if t.limits[0] <= low and high <= t.limits[1]), None)


def constant(value: Any) -> ConstantType:
    """The type of a value known at compile time."""
    return ConstantType(value, literal_type(value))


NONE = constant(None)


def run_time_type(type_: Type, language: Language = EXPLICIT) -> Type:
    """The type that a value has at run time: of a Python number, its dtype."""
    if not isinstance(type_, ConstantType):
        return type_
    value = type_.value
    if is_number(type_) and type_.type == pyobject:
        raise KernelValueError(
            say("an integer must fit in 64 bits at run time; got {}", shown(value)),
            hint="compute with it at compile time, until it fits",
        )
    if language.typed_literals and isinstance(value, float) and 0 < abs(value) < f32.format.smallest_normal:
        return f64
    return type_.type


def is_number(type_: Type) -> bool:
    """True of scalars and tensors of numbers, and of constants that are numbers."""
    if isinstance(type_, ConstantType):
        return isinstance(type_.value, (bool, int, float))
    return isinstance(element_of(type_), ScalarType)


def scalar_type(type_: Type) -> ScalarType:
    """The element type of a number or a tensor of numbers."""
    element = element_of(run_time_type(type_))
    if not isinstance(element, ScalarType):
        raise KernelTypeError(say("expected numbers; got {}", describe(type_)))
    return element


def promote(*types: Type, language: Language = EXPLICIT) -> ScalarType:
    """The common element type of numbers: of those with a dtype first, and then of the literals (`ConstantType`).

    Raises `KernelValueError` when a literal does not fit in the integer type of the others.
    """
    literals = [type_ for type_ in types if isinstance(type_, ConstantType)]
    typed = [type_ for type_ in types if not isinstance(type_, ConstantType)]
    common = functools.partial(promote_types, language=language)
    operands = typed or [run_time_type(literal, language) for literal in literals]
    element = functools.reduce(common, map(scalar_type, operands))
    for literal in literals if typed else ():
        kind = scalar_type(run_time_type(literal, language))
        if kind.rank > element.rank:
            element = kind
        else:
            require_fits(literal.value, element)
    return element


def require_fits(value: Any, target: ScalarType, hint: str | None = None) -> None:
    """Raise `KernelValueError` when an integer literal does not fit in an integer type."""
    if target.kind == "int" and isinstance(value, int):
        low, high = target.limits
        if not low <= value <= high:
            summary = NEGATIVE_LITERAL if low == 0 and value < 0 else LITERAL_RANGE
            raise KernelValueError(
                summary(value=shown(value), type=describe(target), low=low, high=high),
                hint=hint or say("use a wider type, or a constant that fits in {}", target),
            )


def promote_types(a: ScalarType, b: ScalarType, language: Language = EXPLICIT) -> ScalarType:
    """The common dtype of two: by kind, then by width, then f16 among unlike floats, then unsigned.

    By the code of Triton, f16 is the common dtype of it and any narrower one, and bf16 with anything but itself gives
    f32; 8-bit floats do not mix with integers, which raises `KernelTypeError`.
    """
    if a == b:
        return a
    if language.wide_promotion and (a.is_float or b.is_float):
        for dtype in (f64, f32, f16):
            if dtype in (a, b):
                return dtype
        if bf16 in (a, b):
            return f32
        if a.is_float and b.is_float:
            return f16
        raise KernelTypeError(
            say("unexpected type {} and {}", a, b), hint="cast one of them: 8-bit floats are only stored"
        )
    if a.rank != b.rank:
        return a if a.rank > b.rank else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_float:
        return f16
    return a if not a.signed else b


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The common shape: the shorter is padded on the left with ones; sizes are equal, or one of them is 1.

    Raises `KernelTypeError` that shows both shapes.
    """
    if a == b:
        return a
    rank = max(len(a), len(b))
    padded_a = (1,) * (rank - len(a)) + a
    padded_b = (1,) * (rank - len(b)) + b
    result: list[int] = []
    for axis, (x, y) in enumerate(zip(padded_a, padded_b, strict=True)):
        if x != y and 1 not in (x, y):
            raise KernelTypeError(
                say(
                    "{}: the shapes {} and {} do not match: {} and {} along axis {}", what, list(a), list(b), x, y, axis
                ),
                hint=ADD_AXIS(),
            )
        result.append(max(x, y))
    return tuple(result)


def common_shape(what: str, *types: Type) -> tuple[int, ...]:
    """The shape to which all of the types broadcast. Raises `KernelValueError` where that has too many elements."""
    shape: tuple[int, ...] = ()
    for type_ in types:
        shape = broadcast_shapes(shape, shape_of(type_), what)
    if math.prod(shape) > MAX_ELEMENTS:
        raise KernelValueError(
            say(
                "{}: the operands broadcast to the shape {}, which has more than {} elements",
                what,
                list(shape),
                MAX_ELEMENTS,
            ),
            hint="use smaller blocks, and more programs",
        )
    return shape


def promoted(what: str, *types: Type, language: Language = EXPLICIT) -> Type:
    """The type of all operands after promotion and broadcasting."""
    return shaped(common_shape(what, *types), promote(*types, language=language))


def in_floats(types: Sequence[Type]) -> list[Type]:
    """The types of operands that are converted to f64, if that is their promoted type, or to f32."""
    wide = f64 if promote(*types) == f64 else f32
    return [shaped(shape_of(type_), wide) for type_ in types]


def rounded_type(result: Type, types: Sequence[Type]) -> Type:
    """The type of a result that was computed `in_floats`: floats have the promoted type of the operands."""
    element = promote(*types)
    return with_element(result, element) if element.is_float and scalar_type(result).is_float else result


def is_pointer(type_: Type) -> bool:
    """True of pointers and tensors of pointers."""
    return isinstance(element_of(type_), PtrType)


def to_load(type_: Type) -> str | None:
    """The hint where a pointer or a descriptor is used as what it points to; None for another type."""
    if isinstance(type_, DescriptorType):
        return "load and store blocks of a descriptor: d.load([...]), d.store([...], x)"
    return INDEX_POINTER() if is_pointer(type_) else None
