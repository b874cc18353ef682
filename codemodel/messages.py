"""Messages made of parts: one text with types, constants and calls in it, which each language writes in its own way.

A message is raised where there may be no language at hand: a type rule serves explicit calls, Triton's Python and C. It
is a `str`, with the text for explicit calls, that keeps its parts; `in_words(words)` is the text for another language.

    KernelTypeError(say("{}: the operand must be {a_tensor}; got {}", call, described(x)), hint=USE_CAST(dtype=f32))

`say` is for a sentence that all languages share. A `Phrase` has a sentence of its own for each of them, where the
sentence names what the author is to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, SupportsIndex

import attrs

from ziggurat.codemodel.types import PtrType, ScalarType, Type


@attrs.frozen(kw_only=True)
class Words:
    """The names that a language has for what messages speak of.

    `language` is the key of its texts in a `Phrase`: "zg", "tl" or "c". `call` gives the name of a call as its author
    writes it, for a name of `SIGNATURES`. `type` gives the type of a run-time value, and `dtype` the same type where a
    kernel names it in code. `nouns` has the language's words for `{tensor}`, `{tensors}` and `{a_tensor}`.
    """

    language: str
    call: Callable[[str], str]
    type: Callable[[Type], str]
    dtype: Callable[[ScalarType | PtrType], str]
    nouns: Mapping[str, str]


NOUNS: Final = {"tensor": "tensor", "tensors": "tensors", "a_tensor": "a tensor"}


def _explicit_dtype(dtype: ScalarType | PtrType) -> str:
    return f"zg.ptr(zg.{dtype.pointee})" if isinstance(dtype, PtrType) else f"zg.{dtype}"


EXPLICIT_WORDS: Final = Words(language="zg", call="zg.{}".format, type=str, dtype=_explicit_dtype, nouns=NOUNS)


class Part(str):
    """A text that depends on the language. As a `str` it is the text for explicit calls."""

    __slots__ = ("write",)

    def __new__(cls, write: Callable[[Words], str]) -> Part:
        self = super().__new__(cls, write(EXPLICIT_WORDS))
        self.write = write
        return self

    def in_words(self, words: Words) -> str:
        """The text for a language."""
        return self.write(words)

    def __add__(self, text: str) -> Part:
        return Part(lambda words: self.write(words) + in_words(text, words))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return str, (str(self),)  # Another process gets the text: parts hold functions.


def in_words(text: str, words: Words) -> str:
    """A text for a language; one without parts as it is."""
    return text.in_words(words) if isinstance(text, Part) else text


def say(template: str, *parts: Any, **named: Any) -> Part:
    """The text of a template of `str.format`. Parts that are types of run-time values are written by the language."""

    def write(words: Words) -> str:
        def text(part: Any) -> Any:
            return words.type(part) if isinstance(part, Type) else in_words(part, words) if _is_text(part) else part

        return template.format(*map(text, parts), **words.nouns, **{name: text(part) for name, part in named.items()})

    return Part(write)


def _is_text(part: Any) -> bool:
    return isinstance(part, str)


def dtype_text(dtype: ScalarType | PtrType) -> Part:
    """A dtype as a kernel names it: `zg.f32`, `tl.float32`, `float`."""
    return Part(lambda words: words.dtype(dtype))


def call_text(name: str) -> Part:
    """A call of the language as its author writes it: `zg.load`, `tl.load`, `load`."""
    return Part(lambda words: words.call(name))


@attrs.frozen
class Phrase:
    """A sentence that each language has in its own words, with `{name}` for a part. Calling it gives the message.

    A dtype among the parts is written as a kernel names it.
    """

    zg: str
    tl: str
    c: str

    def __call__(self, **parts: Any) -> Part:
        def write(words: Words) -> str:
            named = {
                name: words.dtype(part) if isinstance(part, ScalarType | PtrType) else in_words(part, words)
                for name, part in parts.items()
            }
            return getattr(self, words.language).format(**words.nouns, **named)

        return Part(write)
