"""Declared types of C: words of a declaration as types, and the reverse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ziggurat.codemodel import records
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    Type,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

# Types by their words in order; `int` and `signed` may stand beside the others, and words may be exchanged.
_INTEGERS = {"char": (i8, u8), "short": (i16, u16), "": (i32, u32), "long": (i64, u64), "long long": (i64, u64)}
_OTHERS: dict[str, ScalarType | None] = {
    "void": None, "bool": i1, "_Bool": i1, "float": f32, "double": f64, "half": f16, "bfloat16": bf16,
    "float8e5": f8e5m2, "float8e4": f8e4m3, "int8_t": i8, "int16_t": i16, "int32_t": i32, "int64_t": i64,
    "uint8_t": u8, "uint16_t": u16, "uint32_t": u32, "uint64_t": u64, "size_t": u64, "ptrdiff_t": i64,
}  # fmt: skip

# The words that name types.
TYPE_WORDS: Final = (
    *_OTHERS, *dict.fromkeys(word for words in _INTEGERS for word in words.split()), "int", "signed", "unsigned",
)  # fmt: skip

# The spelling of a type in C.
SPELLINGS: Final[dict[ScalarType, str]] = {
    i1: "bool", i8: "char", u8: "unsigned char", i16: "short", u16: "unsigned short", i32: "int", u32: "unsigned",
    i64: "long", u64: "unsigned long", f16: "half", bf16: "bfloat16", f32: "float", f64: "double", f8e5m2: "float8e5",
    f8e4m3: "float8e4",
}  # fmt: skip


def scalar_of(words: Iterable[str]) -> ScalarType | None:
    """The type that words name; None for `void`. Raises `KeyError` for words that name no type."""
    rest = list(words)
    if len(rest) == 1 and rest[0] in _OTHERS:
        return _OTHERS[rest[0]]
    if not rest:
        raise KeyError("")
    signs = [word for word in rest if word in ("signed", "unsigned")]
    rest = [word for word in rest if word not in signs]
    if len(signs) > 1 or rest.count("int") > 1:
        raise KeyError(" ".join(rest))
    sized = " ".join(word for word in rest if word != "int")
    if "int" in rest and sized == "char":
        raise KeyError(sized)
    signed, unsigned = _INTEGERS[sized]
    return unsigned if signs == ["unsigned"] else signed


def spelled(type_: Type) -> str:
    """A type in the words of C: `float`, `float*`, `int[32]`, `half*[16, 8]`."""
    if isinstance(type_, ScalarType):
        return SPELLINGS[type_]
    if isinstance(type_, PtrType):
        return f"{SPELLINGS[type_.pointee]}*"
    if isinstance(type_, TensorType):
        return f"{spelled(type_.element)}[{', '.join(map(str, type_.shape))}]"
    return str(type_)


@records.frozen
class Specifiers:
    """The beginning of a declaration. `type` is None for `void`; `multiple` and `aligned` are 1 where nothing is said.

    `qualifiers` holds `const`, `__global__`, `__readonly` and so on.
    """

    type: ScalarType | None
    qualifiers: frozenset[str] = frozenset()
    multiple: int = 1
    aligned: int = 1
