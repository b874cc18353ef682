"""Conversions of the operands of a call before its rule, where a language has such; Triton's Python does.

Attribution converts the types, and the builder mirror the values, by the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ziggurat.codemodel.types import (
    ConstantType,
    ScalarType,
    TensorType,
    Type,
    bf16,
    element_of,
    f32,
    i1,
    i32,
    u32,
    with_element,
)
from ziggurat.frontends.language.languages import Language
from ziggurat.transforms.calls.emit import Emitter, Operand
from ziggurat.transforms.calls.foreign_floats import check_operands
from ziggurat.transforms.calls.promotion import is_number, run_time_type

# The dtype in which a dtype takes part in a call; itself where it stays.
Widens = Callable[[ScalarType], ScalarType]


def _bf16_in_f32(element: ScalarType) -> ScalarType:
    return f32 if element == bf16 else element


def _narrow_in_32_bits(element: ScalarType) -> ScalarType:
    return element if element.bits >= 32 else f32 if element.is_float else i32


def _counted(element: ScalarType) -> ScalarType:
    return u32 if element == i1 else element


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
# The calls in which a literal has the dtype that a variable would have that is assigned it.
_TYPED: Final = (*_COMPARISONS, "maximum", "minimum", "clamp", "fma", "umulhi", "div_rn", "fdiv", "join", "interleave")
_WIDENED: Final[Mapping[str, Widens]] = {
    **dict.fromkeys(("maximum", "minimum", "clamp", "argmax", "argmin", "cumprod"), _bf16_in_f32),
    **dict.fromkeys(("max", "min", "topk"), _narrow_in_32_bits),
    "sum": _counted,
    "cumsum": lambda element: _counted(_bf16_in_f32(element)),
}


def _widening(name: str, language: Language, arguments: Any) -> Widens | None:
    if not language.wide_reductions:
        return None
    if name in ("max", "min") and arguments[2] is True:  # The largest and its index.
        return _bf16_in_f32
    if name == "topk" and isinstance(arguments[0], TensorType) and arguments[1] == arguments[0].shape[-1]:
        return None
    return _WIDENED.get(name)


def _converted(type_: Type, typed: bool, widens: Widens | None, language: Language) -> Type:
    if typed and isinstance(type_, ConstantType) and is_number(type_):
        type_ = run_time_type(type_, language)
    element = element_of(type_)
    if widens is None or not isinstance(type_, ScalarType | TensorType) or not isinstance(element, ScalarType):
        return type_
    return with_element(type_, widens(element))


def operand_types(name: str, language: Language, arguments: list[Any]) -> list[Any]:
    """The arguments of a call as its rule gets them: types, and constants, which stay.

    Raises `KernelTypeError` for a call of fp8e4b15 that does more than move or convert it.
    """
    check_operands(name, arguments)
    is_run_time = any(isinstance(x, Type) and not isinstance(x, ConstantType) for x in arguments)
    typed = language.typed_literals and name in _TYPED and is_run_time
    widens = _widening(name, language, arguments)
    if not typed and widens is None:
        return arguments
    # A dtype among the other arguments of a reduction is a constant, not the type of an operand.
    count = len(arguments) if typed else 1
    operands = [_converted(x, typed, widens, language) if isinstance(x, Type) else x for x in arguments[:count]]
    return [*operands, *arguments[count:]]


def operand_values(name: str, emit: Emitter, arguments: list[Any]) -> list[Any]:
    """The arguments of a call as its builder gets them: operands, and constants, which stay."""
    types = operand_types(name, emit.language, [x.type if isinstance(x, Operand) else x for x in arguments])
    return [
        Operand(type_, emit.convert(x, type_)) if isinstance(x, Operand) and type_ is not x.type else x
        for x, type_ in zip(arguments, types, strict=True)
    ]
