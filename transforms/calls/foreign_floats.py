"""8-bit floats that Triton's language has and the ops do not.

fp8e4b15 has a sign, 4 bits of an exponent of bias 15, and 3 of a mantissa: the upper byte of an f16 whose largest
exponents are missing. It is moved, and converted to and from f16 and f32; models hold it in u8. GPUs of NVIDIA's have
none of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    f16,
    f32,
    u8,
    u16,
    with_element,
)
from ziggurat.frontends.language.dtypes import E4B15, UNSUPPORTED
from ziggurat.transforms import casts
from ziggurat.transforms.calls.promotion import run_time_type

SUPPORTED: Final = ("fp8e4b15", "fp8e4nv", "fp8e5")
# The calls that an fp8e4b15 may be an operand of.
_CALLS: Final = frozenset([
    "load", "store", "cast", "bitcast", "dot", "zeros", "full", "reshape", "squeeze", "unsqueeze", "ravel", "trans",
    "permute", "expand", "broadcast", "join", "split",
])  # fmt: skip
_LARGEST: Final = 0x3F00  # 1.75 as f16.


def is_e4b15(type_: Type) -> bool:
    """Whether a type is fp8e4b15, or a tensor of it."""
    return isinstance(type_, ScalarType | TensorType) and element_of(type_) == E4B15


def check_supported(type_: Any) -> None:
    """Raise `KernelTypeError` for a dtype, or a pointer to one, that no GPU of NVIDIA's has."""
    dtype = type_.pointee if isinstance(type_, PtrType) else type_
    if dtype in UNSUPPORTED:
        raise KernelTypeError(
            say("type {} not supported in this architecture. The supported fp8 dtypes are {}", dtype, SUPPORTED),
            hint="load it as tl.uint8, and compute its value from the bits",
        )


def check_operands(call: str, types: Sequence[Any]) -> None:
    """Raise `KernelTypeError` for a call that takes no fp8e4b15."""
    if call not in _CALLS and any(isinstance(type_, Type) and is_e4b15(type_) for type_ in types):
        raise KernelTypeError(
            f"{call} does not work on fp8e4b15, which is only moved and converted", hint="convert it: .to(tl.float16)"
        )
    pointers = (element_of(type_) for type_ in types if isinstance(type_, Type))
    if call == "make_tensor_descriptor" and PtrType(E4B15) in pointers:
        raise KernelTypeError("there are no tensor descriptors of fp8e4b15", hint="describe it as tl.uint8")


def check_conversion(x: Type, target: ScalarType) -> None:
    """Raise `KernelTypeError` for a conversion of fp8e4b15 that is not to or from f16 or f32, and `KernelValueError`
    for a constant that has no type at run time."""
    source = f32 if isinstance(x, ConstantType) and run_time_type(x) else element_of(x)
    if source != target and E4B15 in (source, target) and not {source, target} <= {E4B15, f16, f32}:
        raise KernelTypeError(
            say("fp8e4b15 is converted to and from fp16 and fp32 only; got {} and {}", source, target),
            hint="convert by way of tl.float32, or pass bitcast=True to keep the bits",
        )


def widened(builder: Builder, value: Value, target: ScalarType) -> Value:
    """Numbers in fp8e4b15, held in u8, as f16 or f32."""
    bits = casts.cast(builder, value, u16)
    number = _shifted(builder, bits, 0x7F, 7)
    half = builder.add(arith.OrI(number, _shifted(builder, bits, 0x80, 8)))
    return casts.cast(builder, builder.add(arith.Bitcast(half, with_element(half.type, f16))), target)


def narrowed(builder: Builder, value: Value) -> Value:
    """Numbers in f16 or f32 as fp8e4b15, held in u8: f32 is cut to f16, which is rounded, halves away from zero.

    A number that is too large, and NaN, is 1.75.
    """
    half = casts.cast(builder, value, f16, arith.Rounding.ZERO)
    bits = builder.add(arith.Bitcast(half, with_element(half.type, u16)))
    size = builder.add(arith.AndI(bits, _constant(builder, bits, 0x7FFF)))
    size = builder.add(arith.MinUI(size, _constant(builder, bits, _LARGEST)))
    rounded = builder.add(arith.AddI(size, _constant(builder, bits, 0x40)))
    number = builder.add(arith.ShrUI(rounded, _constant(builder, bits, 7)))
    sign = builder.add(arith.ShrUI(bits, _constant(builder, bits, 8)))
    sign = builder.add(arith.AndI(sign, _constant(builder, bits, 0x80)))
    return casts.cast(builder, builder.add(arith.OrI(number, sign)), u8)


def _shifted(builder: Builder, bits: Value, mask: int, by: int) -> Value:
    top_bits = builder.add(arith.AndI(bits, _constant(builder, bits, mask)))
    return builder.add(arith.ShlI(top_bits, _constant(builder, bits, by)))


def _constant(builder: Builder, like: Value, number: int) -> Value:
    return builder.add(arith.ConstantOp(number, like.type))
