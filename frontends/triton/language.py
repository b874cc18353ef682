"""Triton's Python as a language: the calls by the names in `spelling`, and the rules of the C++ Triton's code."""

from __future__ import annotations

from typing import Final

from ziggurat.frontends.language.languages import LANGUAGES, SWITCHES, Language
from ziggurat.frontends.language.wording import TRITON as WORDS
from ziggurat.frontends.triton.spelling import METHODS, SPELLED
from ziggurat.frontends.triton.triton_errors import as_triton

TRITON: Final = Language("tl", WORDS, calls=SPELLED, methods=METHODS, error=as_triton, **dict.fromkeys(SWITCHES, True))
LANGUAGES[TRITON.prefix] = TRITON
