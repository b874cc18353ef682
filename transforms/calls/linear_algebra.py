"""Rules of products of matrices."""

from __future__ import annotations

import math
from typing import Any, Final

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    ScalarType,
    TensorType,
    Type,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    i8,
    u8,
    u16,
    with_element,
)
from ziggurat.frontends.language.phrases import CAST_OPERANDS, DOT_PRECISION, FIRST_SUM, SCALE_SHAPE, TRANSPOSE
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.calls.constant_arguments import describe, one_of, show
from ziggurat.transforms.calls.emit import Emitter, Operand
from ziggurat.transforms.calls.foreign_floats import is_e4b15
from ziggurat.transforms.calls.promotion import scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, choice, tensor

PRECISIONS = {None: tt.InputPrecision.DEFAULT} | {
    precision.value: precision for precision in tt.InputPrecision if precision is not tt.InputPrecision.DEFAULT
}


def _product(
    call: Typing, a: Type, b: Type, acc: Type | None, precision: Any = None, imprecise: Any = None, dtype: Any = None
) -> Type:
    x, y = _multiplied(call, a), _multiplied(call, b)
    choice("input_precision", precision, PRECISIONS)
    sums = tt.accumulators(x.element) or (f32,)
    total = sums[0] if dtype is None or (dtype not in sums and call.language.wide_promotion) else dtype
    sum_type = TensorType((*x.shape[:-1], *y.shape[-1:]), total)
    if min(x.rank, y.rank) < 2:
        hint = "give a vector a second axis, or add the products of two vectors up"
    elif x.shape[-1:] != y.shape[-2:-1]:
        hint = TRANSPOSE()
    elif not tt.multiplies(x.element, y.element) or not tt.accumulators(x.element):
        hint = CAST_OPERANDS()
    else:
        hint = FIRST_SUM(shape=show(sum_type.shape), dtype=sums[0], sizes=[*sum_type.shape])
    acc_type = sum_type if acc is None else tensor(call, acc)
    if dtype is not None and acc_type.element != total:
        raise call.error("the accumulator must be {}, as 'out_dtype' says; got {}", total, acc_type, hint=hint)
    types = (x, y, acc_type)
    if x.shape[:-2] == y.shape[:-2] == acc_type.shape[:-2]:
        types = tuple(map(_batch, types))
    result = call.op_type(lambda values: tt.Dot(values[0], values[1], values[2]), *types, hint=hint)
    depth = 32 if tensor(call, a).element.bytes == 1 else 16
    if call.language.strict_operands and x.shape[-1] < depth:
        raise KernelTypeError(
            say("Input shapes should have M >= 1, N >= 1 and K >= {}", depth),
            hint=f"use blocks of {depth} along K, with zeros for what is beyond",
        )
    if imprecise is not None and imprecise not in range(x.shape[-1] + 1) and scalar_type(x).is_fp8:
        raise KernelValueError(DOT_PRECISION(call=str(call), depth=x.shape[-1], number=imprecise))
    return acc_type if acc_type.rank > 3 else result


def _multiplied(call: Typing, x: Type) -> TensorType:
    """The type of an operand in the product: fp8e4b15 is converted to f16."""
    if is_e4b15(x):
        call.context.warn(
            "the use of fp8e4b15 is deprecated on Hopper and later architectures and can cause significant slow down. "
            "It will be removed in a future triton release"
        )
        return tensor(call, with_element(x, f16))
    return tensor(call, x)


def _batch(type_: Type) -> Type:
    """The type of a batch of matrices with one axis for the batch, in place of several."""
    if not isinstance(type_, TensorType) or type_.rank <= 3:
        return type_
    return TensorType((math.prod(type_.shape[:-2]), *type_.shape[-2:]), type_.element)


def _dot(
    emit: Emitter, result: Type, a: Operand, b: Operand, acc: Operand | None, precision: Any = None,
    imprecise: Any = None, _dtype: Any = None,
) -> Value:  # fmt: skip
    c = emit.constant(0, result) if acc is None else acc.value
    factors = [emit.convert(x, with_element(x.type, f16)) if is_e4b15(x.type) else x.value for x in (a, b)]
    x, y, z = (emit.reshape(value, _batch(value.type)) for value in (*factors, c))
    count = imprecise or 0
    dot = emit.add(tt.Dot(x, y, z, input_precision=PRECISIONS[precision], max_num_imprecise_acc=count))
    return emit.reshape(dot, result)


# Microscaling formats.

# The dtypes that hold elements of a format.
FORMATS: Final[dict[str, tuple[ScalarType, ...]]] = {
    "e2m1": (u8,), "e4m3": (f8e4m3, u8), "e5m2": (f8e5m2, u8), "bf16": (bf16, u16), "fp16": (f16, u16),
}  # fmt: skip
# The number of elements along k that share a scale, by the dtype of the scale.
GROUPS: Final = {u8: 32, i8: 32, f8e4m3: 16}


def _scaled(
    call: Typing, lhs: Type, lhs_scale: Type | None, lhs_format: Any, rhs: Type, rhs_scale: Type | None,
    rhs_format: Any, acc: Type | None, fast_math: Any, lhs_k_pack: Any, rhs_k_pack: Any, dtype: Any,
) -> None:  # fmt: skip
    *batch, m, k = _unpacked(call, "lhs", lhs, lhs_format, lhs_k_pack, inner=-1)
    *other, depth, n = _unpacked(call, "rhs", rhs, rhs_format, rhs_k_pack, inner=-2)
    if (batch, k) != (other, depth):
        raise call.error(
            "'lhs' and 'rhs' must have equal batches and equally many elements along K; got {} and {}",
            [*batch, m, k],
            [*other, depth, n],
        )
    for name, scale, size in (("lhs_scale", lhs_scale, m), ("rhs_scale", rhs_scale, n)):
        if scale is None:
            continue
        element = tensor(call, scale).element
        if element not in GROUPS:
            raise call.error("'{}' must be {} or {} (exponents) or {}; got {}", name, u8, i8, f8e4m3, scale)
        expected = [*batch, size, k // GROUPS[element]]
        sizes = list(tensor(call, scale).shape)
        if sizes != expected:
            last, texts = ", ".join(map(str, expected[-2:])), [*map(str, sizes)]
            parts = {"name": name, "shape": expected, "last": last, "sizes": texts}
            raise KernelTypeError(SCALE_SHAPE(call=str(call), type=describe(scale), **parts))


def _unpacked(call: Typing, name: str, x: Type, format_: Any, along_k: Any, *, inner: int) -> list[int]:
    """The shape of an operand, each element counted."""
    type_ = tensor(call, x)
    choice(f"{name}_format", format_, FORMATS)
    if type_.element not in FORMATS[format_]:
        formats = one_of(FORMATS[format_], " or ")
        raise call.error("'{}' of the format {} must be {}; got {}", name, show(format_), formats, type_)
    if type_.rank not in (2, 3):
        raise call.error("'{}' must be a matrix, or a batch of them; got {}", name, type_)
    sizes = list(type_.shape)
    if format_ == "e2m1":
        sizes[inner if along_k else -3 - inner] *= 2
    elif not along_k:
        raise KernelValueError(
            f"{call}: '{name}_k_pack' must be True but for the format \"e2m1\"; got False", hint="leave it out"
        )
    return sizes


RULES = {"dot": Rule(_product, _dot), "dot_scaled": Rule(_scaled, body=LIBRARY["dot_scaled"])}
