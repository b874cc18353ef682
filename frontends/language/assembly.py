"""PTX written by hand, for instructions that the language has no call for."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstBool, ConstDtypes, ConstInt, ConstStr, Value, Values
from ziggurat.frontends.language.signature import call

__all__ = ["inline_asm_elementwise"]


@call("Inline assembly", results="dtype")
def inline_asm_elementwise(
    asm: ConstStr, constraints: ConstStr, args: Values, dtype: ConstDtypes, is_pure: ConstBool, pack: ConstInt
) -> Value:
    """Run PTX on the elements of tensors. Not available in the interpreter.

    - `asm`: the instructions; `$0`, `$1`, … stand for results, then operands; `$$` is a dollar sign.
    - `constraints`: as LLVM writes them: "=r,r,r". One for each register of the results ("=", or "=&" of one that is
      written before the operands are read), then one for each of the operands: b of i1, h of 16 bits, r of 32, l of 64,
      f of f32, d of f64, n of an integer known at compile time, or the number of a result, which is then in its
      register. Clobbers come last: "~{memory}".
    - `args`: a tuple of scalars or tensors; they are broadcast to one shape. Without operands the results are scalars.
    - `dtype`: of the result, or a tuple of dtypes for several.
    - `is_pure`: without effects: it may be moved, shared or removed. Assembly that reads a clock is not pure; it is not
      moved.
    - `pack`: how many elements one run of the instructions takes; those of fewer than 32 bits share registers of 32.

    Result: the broadcast shape, in `dtype`; a tuple for a tuple. A scalar is computed by each thread: where these
    differ, choose no branch by it.
    Errors: shapes that do not broadcast; constraints that are not those of the results and operands.
    """
