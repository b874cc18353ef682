"""Matrix products."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = ["dot"]


@call("Linear algebra")
def dot(a: Value, b: Value, acc: Value = None, input_precision: ConstStr | None = None) -> Value:
    """The matrix product `a · b`, added to an accumulator.

    - `a`: shape (M, K), or (B, M, K) for a batch.
    - `b`: shape (K, N), or (B, K, N); the dtype of `a`. Floats, or 8-bit integers.
    - `acc`: shape (M, N), or (B, M, N), in the result's dtype; zeros where it is None.
    - `input_precision`: how f32 is multiplied: "tf32", "tf32x3" or "ieee"; None leaves it to the target (exact in the
      interpreter).

    Result: the shape of `acc`; f32 for floats of up to 32 bits (f16 where `acc` is f16 and the operands have 16 bits or
    fewer), f64 for f64, i32 for 8-bit integers.
    Errors: unequal K; unequal dtypes, two different 8-bit floats among them; a rank other than 2 or 3; an accumulator
    of another type.
    """
