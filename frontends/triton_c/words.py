"""Messages of the compiler in the words of C: types, and the operators behind calls of the language."""

from __future__ import annotations

import re
from typing import Final

from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.types import SCALARS
from ziggurat.frontends.language.signature import SIGNATURES
from ziggurat.frontends.triton_c.declared import SPELLINGS
from ziggurat.frontends.triton_c.library import BINARY

# The operators of C by the names of calls of the language.
_OPERATORS: Final = {
    call.removeprefix("zg."): sign for sign, call in BINARY.items() if call.startswith("zg.")
} | {"invert": "!"}  # fmt: skip
_CALLS: Final = {"program_id": "get_program_id", "num_programs": "get_num_programs"}
_SCALARS: Final = {name: SPELLINGS[scalar] for name, scalar in SCALARS.items()}
_NAMES = "|".join(_SCALARS)
_TENSOR = re.compile(rf"tensor<((?:x\d+, )+)(?:ptr<({_NAMES})>|({_NAMES}))>")
_POINTER = re.compile(rf"\bptr<({_NAMES})>|zg\.ptr\(zg\.({_NAMES})\)")
_SCALAR = re.compile(rf"(?<![\w.<'\"])({_NAMES})(?![\w>'\"])")
_DTYPE = re.compile(rf"\bzg\.({_NAMES})\b")
_CALL = re.compile(r"\bzg\.(\w+)")
# Calls with two arguments that C writes with an operator between them.
_BETWEEN: Final = {**_OPERATORS, "floordiv": "/", "div": "/", "mod": "%", "shl": "<<", "shr": ">>", "arange": "..."}
_OF_TWO = re.compile(rf"\bzg\.({'|'.join(_BETWEEN)})\(([^(),]+), ([^(),]+)\)")
_SHAPE = re.compile(r"zg\.declare: 'shape' must be known at compile time; got the tuple \((.*?),?\), a run-time value")
_WORDS: Final = (
    ("zg.arange", "the range"), ("a tensor of pointers", "an array of pointers"), ("tensors", "arrays"),
    ("a tensor", "an array"), ("tensor", "array"), ("positional argument", "argument"),
)  # fmt: skip
# Hints and messages that name calls of Python, and those for C.
WHOLE: Final = {
    "use zg.where to choose element by element, or reduce it to a scalar first (zg.any, zg.all)":
        "choose element by element with c ? x : y, or reduce it to a scalar first: any(x), all(x)",
    "make the sizes equal, or one of them 1; add an axis of size 1 with zg.expand":
        "make the sizes equal, or one of them 1; add an axis of size 1 with x[:, newaxis]",
    "pass a literal, or make it a zg.constexpr parameter": "write a number, or a macro",
    "exchange rows and columns with zg.trans": "exchange rows and columns with ^x",
    "convert the operands with zg.cast": "convert the operands: (half)x",
    "store results with zg.store": "store results: *p = x",
    "make a condition with zg.compare": "compare numbers: x != 0",
    "mask what lies outside, as with mask=zg.less(offsets, n), and check that the sizes "
    "and strides that the kernel was given are the array's":
        "mask the pointers outside of the array, as in *?(offsets < n) p, and check that the sizes and strides that "
        "the kernel was given are the array's",
}  # fmt: skip


def in_words_of_c(text: str) -> str:
    """A message or a hint with the types and operators of C."""
    if text in WHOLE:
        return WHOLE[text]

    def array(found: re.Match[str]) -> str:
        sizes = ", ".join(size.strip(" x") for size in found[1].split(",") if size.strip())
        return f"{_SCALARS[found[2]]}*[{sizes}]" if found[2] else f"{_SCALARS[found[3]]}[{sizes}]"

    def call(found: re.Match[str]) -> str:
        name = found[1]
        if name in _OPERATORS:
            return f"the operator '{_OPERATORS[name]}'"
        return _CALLS.get(name, name) if name in SIGNATURES else found[0]

    text = _TENSOR.sub(array, text)
    text = _OF_TWO.sub(lambda found: f"{found[2]} {_BETWEEN[found[1]]} {found[3]}", text)
    text = _SHAPE.sub(r"the sizes of an array must be known at compile time; got \1", text)
    for words, ours in _WORDS:
        text = text.replace(words, ours)
    text = _POINTER.sub(lambda found: f"{_SCALARS[found[1] or found[2]]}*", text)
    text = _DTYPE.sub(lambda found: _SCALARS[found[1]], text)
    text = _CALL.sub(call, text)
    return _SCALAR.sub(lambda found: _SCALARS[found[1]], text)


def reworded(error: ZigguratError) -> ZigguratError:
    """The error with its message and its hint in the words of C."""
    for one in error.parts:
        one.summary = in_words_of_c(one.summary)
        one.hint = None if one.hint is None else in_words_of_c(one.hint)
    return error
