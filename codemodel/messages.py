"""Messages made of parts: one text with types, constants and calls in it, which each language writes in its own way.

A message is raised where there may be no language at hand: a type rule serves explicit calls, Triton's Python and C. It
is a `str`, with the text for explicit calls, that keeps its parts; `in_words(words)` is the text for another language.

    KernelTypeError(say("{}: the operand must be {a_tensor}; got {}", call, described(x)), hint=USE_CAST(dtype=f32))

`say` is for a sentence that all languages share. A `Phrase` has a sentence of its own for each of them, where the
sentence names what the author is to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, SupportsIndex

import attrs

from ziggurat.codemodel.types import PtrType, ScalarType, Type


@attrs.frozen(kw_only=True)
class Words:
    """The names that a language has for what messages speak of.

    `language` is the key of its texts in a `Phrase`: "zg", "tl" or "c". `call` gives the name of a call as its author
    writes it, for a name of `SIGNATURES`. `type` gives the type of a run-time value, and `dtype` the same type where a
    kernel names it in code. `nouns` has the language's words for the keys of `NOUNS`. `operators` has the signs of
    calls that are operators alone. `op` gives the name of an op.
    """

    language: str
    call: Callable[[str], str]
    type: Callable[[Type], str]
    dtype: Callable[[ScalarType | PtrType], str]
    nouns: Mapping[str, str]
    operators: Mapping[str, str] = attrs.field(factory=dict[str, str])
    op: Callable[[str], str] = str

    def for_op(self, call: str) -> Words:
        """The words in which the name of an op is `call`, which the op is built for."""

        def name(_: str) -> str:
            return call

        return attrs.evolve(self, op=name)


NOUNS: Final = {
    "tensor": "tensor",
    "tensors": "tensors",
    "a_tensor": "a tensor",
    "positional": "positional ",
    "the_tuple": "the tuple ",
    "function": "@zg.function",
    "TensorDescriptor": "zg.TensorDescriptor",
}


def _explicit_dtype(dtype: ScalarType | PtrType) -> str:
    return f"zg.ptr(zg.{dtype.pointee})" if isinstance(dtype, PtrType) else f"zg.{dtype}"


EXPLICIT_WORDS: Final = Words(language="zg", call="zg.{}".format, type=str, dtype=_explicit_dtype, nouns=NOUNS)


class Part(str):
    """A text that depends on the language. As a `str` it is the text for explicit calls."""

    __slots__ = ("write",)
    write: Callable[[Words], str]

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


def _written(part: Any, words: Words, dtype: Callable[[Any], str]) -> Any:
    """A part of a message in the words of a language, types by `dtype`."""
    if isinstance(part, Type):
        return dtype(part)
    return in_words(part, words) if isinstance(part, str) else part


def say(template: str, *parts: Any) -> Part:
    """The text of a template of `str.format`. Parts that are types of run-time values are written by the language."""

    def write(words: Words) -> str:
        return template.format(*(_written(part, words, words.type) for part in parts), **words.nouns)

    return Part(write)


def joined(separator: str, *texts: str) -> Part:
    """Texts with a separator between them."""
    return Part(lambda words: separator.join(in_words(text, words) for text in texts))


def op_text(name: str) -> Part:
    """The name of an op; in an error of the call that the op is built for, the call."""
    return Part(lambda words: words.op(name))


def call_text(name: str) -> Part:
    """A call of the language as its author writes it: `zg.load`, `tl.load`, `load`."""
    return Part(lambda words: words.call(name))


def operator_text(sign: str) -> str:
    """An operator of Python or C in messages."""
    return f"the operator '{sign}'"


def dtype_text(dtype: ScalarType | PtrType) -> Part:
    """A dtype as a kernel names it: `zg.f32`, `tl.float32`, `float`."""
    return Part(lambda words: words.dtype(dtype))


def applied_text(name: str, values: Sequence[str]) -> Part:
    """A call with arguments as its author writes it: `zg.floordiv(7, 0)`, `7 / 0`."""

    def write(words: Words) -> str:
        texts = [in_words(value, words) for value in values]
        sign = words.operators.get(name)
        if sign and len(texts) == 2:
            return f"{texts[0]} {sign} {texts[1]}"
        return f"{sign or words.call(name)}({', '.join(texts)})"

    return Part(write)


@attrs.frozen
class Phrase:
    """A sentence that languages have in words of their own, with `{name}` for a part. Calling it gives the message.

    A language without words of its own has those of explicit calls, with its own prefix of calls. A dtype among the
    parts is written as a kernel names it; a type of a run-time value is given as a text, such as that of `say`.
    """

    zg: str
    tl: str | None = None
    c: str | None = None

    def text(self, words: Words) -> str:
        """The sentence for a language, with the names of its parts."""
        return getattr(self, words.language) or self.zg.replace("zg.", words.call(""))

    def __call__(self, **parts: Any) -> Part:
        def write(words: Words) -> str:
            named = {name: _written(part, words, words.dtype) for name, part in parts.items()}
            return self.text(words).format(**words.nouns, **named)

        return Part(write)
