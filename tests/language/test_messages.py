"""Messages in the words of the language of the kernel: one wrong statement in explicit calls, Triton's Python and C.

A row of `PROGRAMS` has the statement in each language, or None where it has no such, and what the message must say there.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Any, NamedTuple

import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.messages import Phrase
from ziggurat.frontends.language import phrases
from ziggurat.frontends.triton_c.library import call_of

TYPES = [zg.ptr(zg.f32), zg.ptr(zg.f16), zg.i32, zg.f32]
_PYTHON = """
{imports}

{decorator}
def {name}(x, h, n, s):
    at = {prefix}.arange(0, 16)
    v = {prefix}.load(x + at)
    w = {prefix}.load(h + at)
    {statement}
"""
_C = """__global__ void f(float *x, half *h, int n, float s) {{
    int at[16] = 0 ... 16;
    float v[16] = *(x + at);
    half w[16] = *(h + at);
    {statement}
}}"""


class Program(NamedTuple):
    """A wrong statement in three languages, each with texts that its message has."""

    name: str
    zg: tuple[str, ...] | None
    tl: tuple[str, ...] | None
    c: tuple[str, ...] | None


PROGRAMS = [
    Program(
        "shapes of a sum",
        ("y = v + zg.arange(0, 8)", "the operator '+'", "[16] and [8]", "zg.expand"),
        ("y = v + tl.arange(0, 8)", "the operator '+'", "[16] and [8]", "x[:, None]"),
        ("float y[16] = v + (0 ... 8);", "the operator '+'", "[16] and [8]", "x[:, newaxis]"),
    ),
]
