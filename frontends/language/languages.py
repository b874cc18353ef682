"""The languages that share the calls, and the points in which they differ: the explicit calls, and Triton's Python.

Both are reflected into one Python code model and attributed by one attributor. A function has its
language; reflection, attribution and the rules of calls ask it. docs/guides/triton.md has the table of differences,
which is generated.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from ziggurat.codemodel.messages import EXPLICIT_WORDS, Words
from ziggurat.frontends.language.words import TRITON as TRITON_WORDS


def _differs(about: str, explicit: Any = False, triton: Any = True) -> Any:
    """A field with its values in the two languages; `about` is its row in the table of differences."""
    return attrs.field(default=explicit, kw_only=True, metadata={"about": about, "triton": triton})


@attrs.frozen
class Language:
    """The rules of one language. `prefix` stands before the name of a call in messages: `zg.load`, `tl.load`; `words`
    has the names of types and calls there."""

    prefix: str
    words: Words = EXPLICIT_WORDS
    tensor_operators: bool = _differs("operators, indexing by `None` and `:`, and methods work on tensors")
    assigned_numbers: bool = _differs(
        "a variable that is assigned a Python number holds a run-time scalar; a constant if annotated `tl.constexpr`"
    )
    rebinding: bool = _differs("a variable may be assigned a value of another shape where no loop or branch joins")
    implied_casts: bool = _differs(
        "`store`, `other=` and atomics convert the value to the pointee's type; `where`, masks, and pointers as "
        "conditions convert to i1"
    )
    broadcast_pointers: bool = _differs("pointers are broadcast with the mask and `other` of a `load`")
    code_promotion: bool = _differs(
        "bf16 with an integer or an 8-bit float gives f32; an 8-bit float with an integer is an error"
    )
    wide_quotients: bool = _differs("`/` and `%` of f16 or bf16 give f32")
    signed_division: bool = _differs("`//` and `%` of a signed and an unsigned integer are errors")
    typed_literals: bool = _differs(
        "a literal that is compared, or an operand of `maximum`, `minimum`, `clamp`, `fma`, `join` …, has a dtype of "
        "its own: i32, f32 …"
    )
    tiny_literals: bool = _differs("a literal that is subnormal in f32 is an f64")
    wide_reductions: bool = _differs(
        "`max` and `min` of numbers narrower than 32 bits give f32 or i32; sums of i1 give u32; `maximum`, `minimum`, "
        "`argmax`, `cumsum` … of bf16 compute in f32"
    )
    bool_arithmetic: bool = _differs("`+`, `-` and `*` of i1 with i1 give i1, modulo 2")
    shifted_sign: bool = _differs("`>>` keeps the sign of a signed left operand, whatever the right one is")
    float_functions: bool = _differs("`exp`, `log`, `sin`, `sqrt`, `floor` … take f32 and f64 only")
    standing_hints: bool = _differs(
        "`multiple_of(x, n)`, `max_contiguous` and `max_constancy` as statements hold for the variable `x` from there"
    )
    least_dots: bool = _differs("a `dot` has at least 16 elements along K, of 8-bit numbers 32")
    wrapped_numbers: bool = _differs(
        "a number out of the range of its parameter's declared type is cut to the low bits"
    )
    ordered_extremes: bool = _differs("`max(…)` and `min(…)` of constants refuse NaN and -0.0")
    type_members: bool = _differs(
        "values have `.type`, numbers `.numel`, and dtypes the attributes and methods of Triton's: `x.dtype.is_fp16()`"
    )
    narrow_scalars: bool = _differs("a run-time value may be given for a `constexpr` parameter of a helper function")

    dropped_constants: bool = _differs(
        "`and` and `or` leave out a constant after a run-time scalar unless it decides: `n or 3` is 3, `n and 3` is n"
    )
    python_syntax: bool = _differs(
        "f-strings, list comprehensions, `:=`, `*arguments`, slices of tuples, named tuples, aggregates, functions of "
        "the host and Python's methods on constants, statements after `return`, and values that are not used"
    )
    tolerant_memory: bool = _differs(
        "in host memory, an access outside of the arrays gives a warning, reads 0 and writes nothing, and so does a "
        "division by zero, whose result is -1; with `strict=True` they are errors"
    )
    c_prints: bool = _differs(
        "`device_print` writes floats as C's `%f` has them and i1 as 0 and 1, and on a GPU each thread writes a scalar"
    )
    device_assertions: bool = _differs(
        "an `assert` of a condition that is known at compile time is checked at run time, which `debug=True` asks for"
    )
    loose_range: bool = _differs("keywords of Python's `range` are ignored, with a warning")
    lasting_index: bool = _differs("the index of a loop may be read after it, also where there was no iteration")
    typed_recursion: bool = _differs("a function may call itself with arguments of other types")
    early_globals: bool = _differs("a name that is read before the function assigns it is a global, if there is one")
    strict_globals: bool = _differs(
        "a global must be a `tl.constexpr`, a function, a dtype or a module; one that has changed is an error"
    )

    @property
    def is_triton(self) -> bool:
        """Whether the names of the language are Triton's."""
        return self.prefix == "tl"


# The fields that differ, as `_differs` declares them.
_POINTS: Final = [field for field in attrs.fields(Language) if "about" in field.metadata]

EXPLICIT: Final = Language("zg")
TRITON: Final = Language("tl", TRITON_WORDS, **{field.name: field.metadata["triton"] for field in _POINTS})


def differences() -> list[tuple[str, str, str]]:
    """The rows of the table of differences: what differs, in the explicit calls, and in Triton's Python."""

    def shown(value: Any) -> str:
        return ("no", "yes")[value] if isinstance(value, bool) else str(value)

    return [
        (field.metadata["about"], shown(getattr(EXPLICIT, field.name)), shown(getattr(TRITON, field.name)))
        for field in _POINTS
    ]
