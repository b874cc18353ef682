"""Hints of the compiler in the words of Triton's language."""

from __future__ import annotations

import re
from typing import Final

from ziggurat.codemodel.types import SCALARS
from ziggurat.frontends.triton.dtypes import type_of
from ziggurat.frontends.triton.spelling import SPELLED

# Explicit calls for which Triton has operators, methods or other names.
_INSTEAD: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"zg\.add\(zg\.mul\((\w+), (\w+)\), (\w+)\)", r"\1 * \2 + \3"),
        (r"zg\.add\((\w+), (\w+)\)", r"\1 + \2"),
        (r"zg\.less\((\w+), (\w+)\)", r"\1 < \2"),
        (r"zg\.cast\((\w+), (zg\.\w+)\)", r"\1.to(\2)"),
        (r"a (mask|condition) with zg\.compare", r"a \1 by comparing: offsets < n"),
        (r"with zg\.expand", "with x[:, None]"),
        (r"zg\.expand to", "x[:, None] to"),
        (r"zg\.invert", "~x"),
        (r"zg\.mul\b", "the operator *"),
        (r"zg\.div\b", "the operator /"),
        (r"zg\.any, zg\.all", "tl.max, tl.min"),
        (r"calls are zg\.<name>", "calls are tl.<name>"),
        (r"@zg\.(kernel|function)", "@triton.jit"),
        (r"zg\.(TensorDescriptor|Config)\b", r"\1"),
        (r"zg\.next_power_of_2", "triton.next_power_of_2"),
    )
)
_NAME: Final = re.compile(r"\bzg\.(\w+)")
_OTHERS: Final = ("constexpr", "range", "static_range")


def in_words_of_triton(hint: str) -> str:
    """A hint with names and operators of Triton. A call that Triton does not have keeps its name."""
    for pattern, words in _INSTEAD:
        hint = pattern.sub(words, hint)
    return _NAME.sub(_named, hint)


def _named(found: re.Match[str]) -> str:
    name = found[1]
    if name in SCALARS:
        return f"tl.{type_of(SCALARS[name]).codegen_name()}"
    return f"tl.{name}" if name in SPELLED or name in _OTHERS else found[0]
