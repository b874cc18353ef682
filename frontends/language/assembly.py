"""PTX by hand, for what the language lacks."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstBool, ConstDtypes, ConstInt, ConstStr, Value, Values
from ziggurat.frontends.language.signature import call


@call("Inline assembly")
def inline_asm_elementwise(
    asm: ConstStr, constraints: ConstStr, args: Values, dtype: ConstDtypes, is_pure: ConstBool, pack: ConstInt
) -> Value:
    """Run PTX on the elements of tensors. Not available in the interpreter.

    - `asm`: the instructions; `$0`, `$1`, … stand for results, then operands.
    - `constraints`: of results and operands, as LLVM writes them: "=r,r,r".
    - `args`: a tuple of scalars or tensors; they are broadcast to one shape.
    - `dtype`: of the result, or a tuple of dtypes for several.
    - `is_pure`: without effects: it may be moved, shared or removed.
    - `pack`: how many elements one run of the instructions takes, in registers of 32 bits.

    Result: the broadcast shape, in `dtype`; a tuple for a tuple.
    Errors: shapes that do not broadcast.
    """
