"""Rules of casts between numbers, and between pointers and integers."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    ScalarType,
    Type,
    f32,
    find_scalar,
    i1,
    i64,
    u64,
    with_element,
)
from ziggurat.frontends.language.dtypes import E4B15
from ziggurat.frontends.language.host import cast
from ziggurat.frontends.language.phrases import CAST_BITS
from ziggurat.transforms.calls.constant_arguments import describe, show
from ziggurat.transforms.calls.emit import Emitter, Operand
from ziggurat.transforms.calls.foreign_floats import check_conversion, is_e4b15
from ziggurat.transforms.calls.promotion import is_number, is_pointer, require_fits, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, numbers


def _converted(call: Typing, x: Type, dtype: Any, rounding: Any = None, bitcast: bool = False) -> Type:
    if not isinstance(dtype, ScalarType | PtrType):
        scalar = find_scalar(dtype) or f32
        raise call.error("'dtype' must be a dtype; got {}", show(dtype), hint=say("write {}", show(scalar)))
    if isinstance(dtype, PtrType):
        return _pointers(x, dtype)
    if bitcast:
        return _reinterpreted(Typing("bitcast"), x, dtype)
    if is_pointer(x):
        if dtype not in (i64, u64, i1):
            raise KernelTypeError(
                say(
                    "the pointer {} casts to {}, {}, {} or another pointer, not to {}",
                    x,
                    *map(show, (i64, u64, i1)),
                    dtype,
                )
            )
        return with_element(x, dtype)
    numbers(call, x)
    check_conversion(x, dtype)
    if rounding not in (None, "rtne", "rtz"):
        raise KernelValueError(say("fp_downcast_rounding must be 'rtne' or 'rtz'; got {}", show(rounding)))
    source = scalar_type(x)
    narrows = dtype.is_float and source.is_float and dtype.bits < source.bits
    if rounding is not None and not narrows and source != dtype:
        raise KernelValueError("fp_downcast_rounding is for a cast from a float to a narrower float")
    if isinstance(x, ConstantType):
        probe = x.value if dtype.is_int and dtype != i1 and not call.language.wrapped_numbers else 0.0
        if isinstance(probe, int) and not -1 << dtype.bits - 1 <= probe < 1 << dtype.bits:
            require_fits(int(probe), dtype)
        return dtype
    return with_element(x, dtype)


def _reinterpreted(call: Typing, x: Type, dtype: ScalarType | PtrType) -> Type:
    if isinstance(dtype, PtrType):
        return _pointers(x, dtype)
    numbers(call, x)
    source = scalar_type(x)
    if source.bits != dtype.bits:
        raise KernelTypeError(
            say("{} keeps the width: {} has {} bits, {} has {}", call, source, source.bits, dtype, dtype.bits),
            hint=CAST_BITS(dtype=dtype),
        )
    return with_element(source if isinstance(x, ConstantType) else x, dtype)


def _pointers(x: Type, target: PtrType) -> Type:
    if is_pointer(x) or (not isinstance(x, ConstantType) and is_number(x) and scalar_type(x) in (i64, u64)):
        return with_element(x, target)
    raise KernelTypeError(say("only pointers, {} and {} cast to {}, not {}", i64, u64, target, describe(x)))


def _cast(emit: Emitter, result: Type, x: Operand, dtype: Any, rounding: Any = None, bitcast: bool = False) -> Value:
    if bitcast or isinstance(dtype, PtrType):
        return _bitcast(emit, result, x, dtype)
    if is_pointer(x.type):
        return emit.cast(emit.add(tt.PtrToInt(x.value)), scalar_type(result))
    if dtype == E4B15 or is_e4b15(x.type):
        return emit.convert(x, with_element(result, dtype))
    if isinstance(x.type, ConstantType):
        number = cast(x.type.value, scalar_type(result), rounding, bitcast=False)
        return emit.constant(number, result)
    mode = arith.Rounding.ZERO if rounding == "rtz" else arith.Rounding.NEAREST
    return emit.cast(x.value, scalar_type(result), mode)


def _bitcast(emit: Emitter, result: Type, x: Operand, dtype: Any) -> Value:
    value = emit.convert(x, scalar_type(x.type)) if isinstance(x.type, ConstantType) else x.value
    if value.type == result:
        return value
    if not isinstance(dtype, PtrType):
        return emit.add(arith.Bitcast(value, result))
    return emit.add(tt.Bitcast(value, result) if is_pointer(x.type) else tt.IntToPtr(emit.cast(value, i64), result))


RULES = {
    "cast": Rule(_converted, _cast),
    "bitcast": Rule(_reinterpreted, _bitcast),
}
