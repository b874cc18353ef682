"""Products of matrices."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstBool, ConstDtype, ConstInt, ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = ["dot", "dot_scaled"]


@call("Linear algebra")
def dot(
    a: Value,
    b: Value,
    acc: Value = None,
    input_precision: ConstStr | None = None,
    max_num_imprecise_acc: ConstInt | None = None,
    out_dtype: ConstDtype | None = None,
) -> Value:
    """The matrix product `a · b`, added to an accumulator.

    - `a`: shape (M, K), or (…, M, K) for a batch.
    - `b`: shape (K, N), or (…, K, N); the dtype of `a`. Floats, or 8-bit integers. Two 8-bit floats, or two 8-bit
      integers, may be of different dtypes.
    - `acc`: shape (M, N), or (…, M, N), in the result's dtype; zeros where it is None.
    - `input_precision`: of products of f32: "tf32", "ieee", "tf32x3", "bf16x3" or "bf16x6", which split each operand
      into parts of tf32 or bf16 and add 3 or 6 of the products of parts; None leaves it to the target ("ieee" on a
      CPU).
    - `max_num_imprecise_acc`: of products of 8-bit floats: the largest number, along K, that the matrix units of Hopper
      may add with fewer bits than f32 has. None or 0 is no limit.
    - `out_dtype`: of the result, f16 for f16 in place of f32.

    Result: the shape of `acc`; f32 for floats of up to 32 bits (f16 where `acc` or `out_dtype` is f16 and the operands
    have 16 bits or fewer), f64 for f64, i32 for 8-bit integers.
    Errors: unequal K; unequal dtypes of more than 8 bits; unequal batches; an accumulator of another type.
    """


@call("Linear algebra")
def dot_scaled(
    lhs: Value,
    lhs_scale: Value | None,
    lhs_format: ConstStr,
    rhs: Value,
    rhs_scale: Value | None,
    rhs_format: ConstStr,
    acc: Value = None,
    fast_math: ConstBool = False,
    lhs_k_pack: ConstBool = True,
    rhs_k_pack: ConstBool = True,
    out_dtype: ConstDtype | None = None,
) -> Value:
    """The product of two matrices in microscaling formats (OCP MX specification, version 1.0), added to an accumulator.

    Both are converted to bf16, or to f16 where one has the format "fp16", and then multiplied as by `dot`.

    - `lhs`: shape (M, K), or (B, M, K) for a batch.
    - `lhs_scale`: shape (M, K / 32), or with the batch in front: powers of two, by which 32 neighbours along K are
      multiplied, as u8 or i8 whose bits are the exponent + 127; 255 is NaN. Or shape (M, K / 16), of f8e4m3. None is 1.
    - `lhs_format`: of the elements: "e2m1", two in a u8, the first in the low bits; "e4m3" or "e5m2", of such an 8-bit
      float or u8; "bf16" or "fp16", of such a float or u16.
    - `rhs`, `rhs_scale`, `rhs_format`: the same for shape (K, N), with scales of shape (N, K / 32): not transposed.
    - `acc`: shape (M, N), or (B, M, N), in `out_dtype`; zeros where it is None.
    - `fast_math`: a scale of 255 may give infinities in place of NaN.
    - `lhs_k_pack`, `rhs_k_pack`: the two "e2m1" of a u8 are neighbours along K; otherwise along M or N.
    - `out_dtype`: f32, also where it is None, or f16.

    Result: the shape of `acc`, in `out_dtype`.
    Errors: an unknown format; elements or scales of another dtype or shape; unequal K.
    """
