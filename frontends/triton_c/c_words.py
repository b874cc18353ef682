"""The words of Triton-C in messages: its types, and the operators and names that it has for calls of the language."""

from __future__ import annotations

from typing import Final

import attrs

from ziggurat.codemodel.messages import NOUNS, Words, operator_text
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.triton_c.c_library import BINARY
from ziggurat.frontends.triton_c.declared import spelled

_OPERATORS: Final[dict[str, str]] = {
    **{call.removeprefix("zg."): sign for sign, call in BINARY.items() if call.startswith("zg.")},
    "floordiv": "/", "div": "/", "mod": "%", "shl": "<<", "shr": ">>", "invert": "!", "neg": "-", "trans": "^",
    "dot": "@",
}  # fmt: skip
_CALLS: Final[dict[str, str]] = {
    **{name: operator_text(sign) for name, sign in _OPERATORS.items()},
    "maximum": "max", "minimum": "min", "arange": "the range", "cast": "the cast", "program_id": "get_program_id",
    "num_programs": "get_num_programs",
}  # fmt: skip
_NOUNS: Final = NOUNS | {
    "tensor": "array", "tensors": "arrays", "a_tensor": "an array", "positional": "", "the_tuple": "",
    "function": "a definition",
}  # fmt: skip


def _call(name: str) -> str:
    return _CALLS.get(name, name)


WORDS: Final = Words(language="c", call=_call, type=spelled, dtype=spelled, nouns=_NOUNS, operators=_OPERATORS)
# The language of functions that are read from C: the rules of explicit calls, and the words of C.
TRITON_C: Final[Language] = attrs.evolve(EXPLICIT, words=WORDS)
