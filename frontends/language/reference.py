"""The language reference, written from the signature table. `docs/language.md` holds what `reference()` gives."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Final

from ziggurat.codemodel.types import SCALARS, ScalarType
from ziggurat.frontends.language import CALLS, METHODS, SIGNATURES, Signature

# The groups in the order of the reference.
GROUPS: Final = (
    "Programs", "Creation", "Memory", "Arithmetic", "Comparison", "Conversion", "Math", "Shape", "Linear algebra",
    "Reductions and scans", "Sorting and indexing", "Atomics", "Tensor descriptors", "Random numbers", "Loops", "Hints",
    "Debugging", "Inline assembly",
)  # fmt: skip

_INTRODUCTION: Final = """\
# The language

<!-- Written by `python -m ziggurat docs` from the signature table (frontends/language). Do not edit. -->

A kernel is a Python function under `@zg.kernel`. It is written for one program of a grid, which works on
tensors of constant shape. Scalars use Python's operators; tensors use the calls below. A kernel may call
functions under `@zg.function`, which are compiled for each combination of argument types.

A parameter marked *constant* takes a value known at compile time: a literal, a parameter annotated
`zg.constexpr`, or Python arithmetic on these. A *value* is a scalar, a pointer, or a tensor of either; a Python
number stands for a scalar. The calls mean what `triton.language`'s of the same name mean, but for the
[differences](#differences-from-triton) listed below.
"""

_TYPES: Final = """\
## Types

| dtype | kind | bits | values |
| --- | --- | --- | --- |
{rows}

`zg.ptr(dtype)` is a pointer to one of these in global memory. A tensor has a dtype or pointers for elements;
each size is a power of two, and there are at most 2²⁰ elements. `x.shape` and `x.dtype` are constants,
and `p.dtype.element_ty` is the dtype that a pointer points to. `zg.descriptor(block, dtype)` describes a tensor in
global memory that is moved in [blocks](#tensor-descriptors).
"""

_RULES: Final = """\
## Promotion

The operands of a call that has a *promoted dtype* are first cast to one, by the rules of Triton's semantics
document:

1. **Kind.** Of bool < integer < float, the higher kind wins: i32 with bf16 gives bf16.
2. **Width.** Within a kind the wider wins: f32 with f16 gives f32.
3. **Prefer f16.** Unlike floats of one width give f16: bf16 with f16, and f8e4m3 with f8e5m2.
4. **Prefer unsigned.** Integers of one width and unlike sign give the unsigned one: i32 with u32 gives u32.

A *literal* (a Python number, or a constant computed from such) of a kind that is not above the other operand's
takes the other operand's dtype: u8 with 1 gives u8. An integer literal has to fit, otherwise that is an error.
A literal of a higher kind takes part with the first dtype that holds it, of i32, u32, i64, u64, or of f32, f64:
i16 with 4.0 gives f32. A parameter that is not `zg.constexpr` is a scalar with a dtype, and takes part like a
tensor.

Sums, differences and products of i1 with i1 are i32. `zg.div` of two integers is f32.

## Broadcasting

The shorter shape is padded on the left with ones; then sizes have to be equal, or one of them 1, and that one
is repeated. A scalar has the shape (). Pointers given to `zg.store` and the atomics are not broadcast.

## Calls and operators on constants

A call means the same on constants as on run-time values: `zg.floordiv(-7, 2)` is -3 and `zg.minimum(nan, 1.0)` is
1.0, in a kernel and when Python calls it. A constant float counts as an f64, a constant integer has no width. An
operator on run-time scalars means the call of its name, so `//` and `%` round toward zero as C does. An operator
between two constants is Python's own: there `-7 // 2` is -4 and `-7 % 2` is 1.

## Differences from Triton

Where the code of Triton (3.9) departs from its semantics document, ziggurat follows the document. It also differs
where the document is silent:

| | Triton's code | ziggurat |
| --- | --- | --- |
| i32 with bf16 | f32 | bf16 (rule 1) |
| f8 with an integer | an error | the f8 (rule 1) |
| f16 / f16 | f32 | f16 |
| `%` of f16 with f16 | f32 | f16 |
| `//`, `%` of i32 with u32 | an error | u32 (rule 4) |
| `exp`, `log`, `sqrt` … of f16, bf16 | an error | computed in f32, rounded back |
| `sum`, `cumsum` of f16, bf16 | added in 16 bits | added in f32, rounded once |
| `max`, `min` of f16, bf16, i8, i16 | f32, i32 | the dtype of the operand |
| a condition of `where` that is not i1 | cast, with a warning | an error |
| `range` with a negative step known only at run time | no iterations | counts down |
| a variable that is assigned another shape or dtype | allowed outside of loops and branches | an error |
| an operator on tensors | allowed | an error that names the call |
| `x[:, None]` | allowed | `zg.expand(x, 1)` |

## Statements

| statement | meaning |
| --- | --- |
| `a = e`, `a, b = e`, `a += e` | assignment; a variable keeps its type for its whole life |
| `for i in range(…)` | counted at run time; also `zg.range` with options, and `zg.static_range`, which is unrolled |
| `for x in (1, 2)`, `for a, b in PAIRS` | over the items of a tuple, unrolled; a constant item stays one |
| `(a, b)`, `[a, b]` | a tuple; a list is one as well, and does not change |
| `while c` | as long as a scalar condition holds |
| `if c: … elif d: … else: …` | on a scalar condition; of a constant one, only the branch taken is looked at |
| `a if c else b`, `a and b`, `a or b`, `not a`, `a < b < c` | on scalars; what a constant rules out is not looked at |
| `break`, `continue` | in every kind of loop; a counted loop with a `break` is not pipelined and \
ignores the options of `zg.range` |
| `return`, `return e` | from anywhere but a loop |
| `assert c, "message"` | `zg.device_assert`, or at compile time for a constant |
| `f(…)` | of a `@zg.function`: positional, keyword and default arguments; a tuple for several results. `f` may be \
a parameter, a variable or an item of a tuple that holds a function known at compile time |
| `range min max abs len int float bool isinstance` | the other builtins that may be used |
| docstrings, `pass` | nothing |

A variable that is assigned on one path only is not known after it. Global names are looked up when the function
is read: numbers, strings, None, dtypes, members of enums, functions under `@zg.function`, and tuples of these are
constants. A parameter annotated `zg.constexpr` takes these as well. (`N = zg.constexpr(16)` in a module is `N = 16`.)

What is wrong under an `if` or a `while`, or in a part of an expression that may not be needed, is reported when the
kernel is compiled for arguments with which it is run; until then it is an op `error` of `kernel.model`.
"""


_RAISED: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def reference() -> str:
    """The reference in Markdown."""
    groups = {group: [s for s in SIGNATURES.values() if s.group == group] for group in GROUPS}
    parts = [_INTRODUCTION, _contents(groups), _TYPES.format(rows="\n".join(map(_dtype, SCALARS.values()))), _RULES]
    for group, signatures in groups.items():
        parts.append(f"## {group}\n\n{_about(signatures[0])}\n")
        parts.extend(map(_entry, signatures))
    return "\n".join(parts)


def _contents(groups: dict[str, list[Signature]]) -> str:
    lines = [
        f"| [{group}](#{_anchor(group)}) | {' '.join(f'`{s.name}`' for s in found)} |"
        for group, found in groups.items()
    ]
    return "\n".join(["| calls | |", "| --- | --- |", *lines, ""])


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _dtype(type_: ScalarType) -> str:
    return f"| `zg.{type_.name}` | {type_.kind} | {type_.bits} | {_values(type_)} |"


def _values(type_: ScalarType) -> str:
    if type_.kind == "bool":
        return "false, true; a byte in memory"
    if type_.kind == "int":
        power = str(type_.bits - 1 if type_.signed else type_.bits).translate(_RAISED)
        return f"{f'−2{power}' if type_.signed else '0'} … 2{power} − 1"
    return {
        "f16": "IEEE 754 binary16; up to 65504",
        "bf16": "the upper half of an f32",
        "f32": "IEEE 754 binary32",
        "f64": "IEEE 754 binary64",
        "f8e4m3": "4 bits of exponent, 3 of fraction; up to 448, no infinities",
        "f8e5m2": "5 bits of exponent, 2 of fraction; up to 57344",
    }[type_.name]


def _about(signature: Signature) -> str:
    """The docstring of the file that declares the group."""
    module = sys.modules[inspect.unwrap(CALLS[signature.name]).__module__]
    return inspect.cleandoc(module.__doc__ or "")


def _entry(signature: Signature) -> str:
    summary, _, rest = signature.doc.partition("\n\n")
    methods = [f"Also `desc.{method}(…)`.\n" for method, name in METHODS.items() if name == signature.name]
    return "\n".join([f"### `zg.{signature}`\n", f"{summary}\n", *methods, *_paragraphs(signature, rest)])


def _paragraphs(signature: Signature, text: str) -> Iterator[str]:
    """The rest of a docstring. Result and Errors become paragraphs; parameters that take constants are marked."""
    constants = {f"`{p.name}`" for p in signature.parameters if p.constexpr}
    for line in text.split("\n"):
        label, colon, rest = line.partition(":")
        if colon and label in ("Result", "Errors"):
            if label == "Errors":
                yield ""
            yield f"**{label}:**{rest}"
        elif colon and constants.issuperset(label.removeprefix("- ").split(", ")):
            yield f"{label} (constant):{rest}"
        else:
            yield line
    yield ""
