"""Python's syntax in a kernel means the same by explicit calls, where `L` is `zg`, as in Triton's Python.

Each case is a suite that makes `y` of 16 floats `x`, as many integers `i`, the pointer `x_ptr`, the scalar `n` = 5, and
the indices `at`; and what NumPy makes of the same.
"""

from __future__ import annotations

import enum
import itertools
import linecache
import math
import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

Pair = namedtuple("Pair", ["first", "second"])


class Mode(enum.Enum):
    FAST = 3.0


X = np.random.default_rng(0).standard_normal(16, dtype=np.float32)
I = np.arange(-5, 11, dtype=np.int32)  # noqa: E741

# The functions that the suites call.
HELPERS = """\
@function
def plus(v, k: L.constexpr):
    return v + k

@function
def scaled(*values):
    return values[0] * values[1]

@function
def early(v):
    return v + 1.0
    v = 0.0

@function
def down(v, depth: L.constexpr):
    if depth == 0:
        return v
    return down(v + 1.0, depth - 1)

"""

CASES: dict[str, tuple[str, Any]] = {
    # Operators, indexing and methods of tensors.
    "arithmetic": ("y = -x + x * 2.0 - x / 4.0", -X + X * 2 - X / 4),
    "a unary plus": ("y = +x", X),
    "an operator after a number": ("y = 1.0 - x", 1 - X),
    "integers": ("y = (i & 3) + (i | 1) + (i ^ 5) + ~i", (I & 3) + (I | 1) + (I ^ 5) + ~I),
    "shifts": ("y = (i << 2) + (i >> 1)", (I << 2) + (I >> 1)),
    "division of integers": ("y = (i + 5) // 3 + (i + 5) % 3", (I + 5) // 3 + (I + 5) % 3),
    "comparisons": ("y = L.where(x > 0.0, x, -x)", np.abs(X)),
    "a chain of comparisons": ("y = L.where((-1.0 < x) & (x <= 1.0), x, 0.0)", np.where((X > -1) & (X <= 1), X, 0)),
    "and of tensors": ("y = L.where((x > 0.0) and (x < 1.0), x, 0.0)", np.where((X > 0) & (X < 1), X, 0)),
    "not of a tensor": ("y = L.where(not (x > 0.0), x, 0.0)", np.where(X > 0, 0, X)),
    "an augmented assignment": ("y = x\ny += 1.0\ny *= 2.0", (X + 1) * 2),
    "new axes": ("y = L.sum(x[:, None] + x[None, :], 1)", 16 * X + X.sum()),
    "a transposed tensor": ("y = L.sum((x[:, None] * (i[None, :] * 1.0)).T, 0)", X * I.sum()),
    "a conversion": ("y = x.to(F16).to(F32)", X.astype(np.float16)),
    "methods": ("y = x - x.max(0) + x.sum(0)", X - X.max() + X.sum()),
    "a method with keywords": ("y = x.reshape((4, 4)).sum(axis=1).exp().sum() + x", None),
    "reshaping": ("y = x.reshape((4, 4)).trans((1, 0)).reshape((16,))", X.reshape(4, 4).T.ravel()),
    "a method of pointers": ("(x_ptr + at).store(x + 1.0)\ny = L.load(x_ptr + at)", X + 1),
    "builtins on tensors": ("y = max(x, 0.5) + min(x, i) + abs(x)", None),
    # Conversions that are implied.
    "a store of integers": ("y = i", I),
    "a condition of integers": ("y = L.where(i, x, 0.0)", np.where(I, X, 0)),
    "a pointer as a condition": ("y = x\nif x_ptr:\n    y = x + 1.0", X + 1),
    "a tensor of one element as a condition": ("y = x\nif L.full((1,), n, I32) > 4:\n    y = x + 1.0", X + 1),
    "pointers that are broadcast": (
        "y = L.sum(L.load((x_ptr + at)[:, None], mask=((at < 8)[None, :]), other=0.0), 1)", 8 * X
    ),
    # Variables.
    "another shape": ("y = x[:, None]\ny = L.sum(y, 1)", X),
    "a hint that stands": ("L.multiple_of(n, 1)\ny = x + n", X + 5),
    "an index after the loop": ("for k in range(n):\n    pass\ny = x + k", X + 4),
    "else after a loop": ("y = x\nfor k in range(2):\n    y = y + 1.0\nelse:\n    y = y * 2.0", (X + 2) * 2),
    "a range with keywords": ("y = x\nfor k in range(0, 3, num_stages=2):\n    y = y + 1.0", X + 3),
    "a global that is assigned later": ("y = x * K\nK = 3.0", X * 2),
    "an annotation alone": ("y: None\ny = x", X),
    # Functions.
    "a run-time value for a constant": ("y = plus(x, n)", X + 5),
    "any number of arguments": ("pair = (x, 2.0)\ny = scaled(*pair)", X * 2),
    "a statement after return": ("y = early(x)", X + 1),
    "a function of itself": ("y = down(x, 3)", X + 3),
    # Python on constants.
    "a text with values": ("y = x * len(f'{BLOCK}')", X * 2),
    "a comprehension": ("parts = [x * k for k in (1.0, 2.0) if k > 0.0]\ny = parts[0] + parts[1]", X * 3),
    "a comprehension of a variable of a loop": (
        "for k in (1.0, 2.0):\n    z = x * k\nparts = [z * k for i in (1, 2)]\ny = parts[0] + parts[1]",
        X * 8,
    ),
    "a comprehension over a range": ("parts = [x * k for k in range(3) if k != 1]\ny = parts[0] + parts[1]", X * 2),
    "an assignment in an expression": ("y = (z := x + 1.0) * z", (X + 1) ** 2),
    "an assignment in an expression after choices": (
        "k = 1.0 if n > 4 else 2.0\nm = n > 4 and n < 9\ny = (z := x + k) * z", (X + 1) ** 2
    ),
    "a loop over values that a constant ends": (
        "y = x\nfor v in (x, x + 1.0, x + 2.0):\n    y = y + v\n    if BLOCK == 16:\n        break", X * 2
    ),
    "an assignment in the condition of a loop": ("k = 0\nwhile (m := k + 1) < n:\n    k = m\ny = x + k", X + 4),
    "a slice of a tuple": ("t = (1.0, 2.0, 3.0)[1:]\ny = x * t[0] + t[1]", X * 2 + 3),
    "a method of a text": ("y = x * len('a,b'.split(','))", X * 2),
    "texts that are joined": ("y = x * len('a' + 'bc')", X * 3),
    "a function of the host": ("y = x * math.sqrt(4.0)", X * 2),
    "a value that is not used": ("x == 1.0\ny = x", X),
    "a named tuple": ("p = Pair(x, 2.0)\ny = p.first * p.second", X * 2),
    "a member of an enum": ("y = x * Mode.FAST.value", X * 3),
    "an attribute by name": ("y = x * getattr(Mode.FAST, 'value')", X * 3),
    "members of a type": (
        "y = x * (2.0 if x.dtype.is_fp32() else 3.0) + x.numel + x.type.element_ty.itemsize", X * 2 + 20
    ),
    "a class": ("y = x * (2.0 if isinstance(n, int) else 3.0)", X * 3),
}  # fmt: skip
CASES["a method with keywords"] = (CASES["a method with keywords"][0], np.exp(X.reshape(4, 4).sum(1)).sum() + X)
CASES["builtins on tensors"] = (
    CASES["builtins on tensors"][0],
    np.maximum(X, 0.5) + np.minimum(X, I.astype(np.float32)) + np.abs(X),
)

LANGUAGES: dict[str, dict[str, Any]] = {
    "explicit": {"L": zg, "kernel": zg.kernel, "function": zg.function, "F16": zg.f16, "F32": zg.f32, "I32": zg.i32},
    "triton": {
        "L": tl, "kernel": triton.jit, "function": triton.jit, "F16": tl.float16, "F32": tl.float32, "I32": tl.int32,
    },
}  # fmt: skip

_numbers = itertools.count()


def launched(language: str, suite: str) -> np.ndarray:
    """The value that the kernel with this suite stores for `y`."""
    lines = "".join(f"    {line}\n" for line in suite.splitlines())
    text = (
        f"{HELPERS}@kernel\ndef made(x_ptr, i_ptr, out_ptr, n, BLOCK: L.constexpr):\n"
        "    at = L.arange(0, BLOCK)\n    x = L.load(x_ptr + at)\n    i = L.load(i_ptr + at)\n"
        f"{lines}    L.store(out_ptr + at, y)\n"
    )
    file = f"<each language {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {**LANGUAGES[language], "math": math, "Pair": Pair, "Mode": Mode}
    names["K"] = names["L"].constexpr(2.0)
    exec(compile(text, file, "exec"), names)
    out = np.zeros(16, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of conditions of integers, and of keywords of range.
        names["made"][(1,)](X.copy(), I.copy(), out, 5, BLOCK=16, interpret=True)
    return out


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("what", CASES)
def test_the_values_are_those_of_numpy(language: str, what: str):
    suite, expected = CASES[what]
    np.testing.assert_allclose(launched(language, suite), expected, rtol=2e-5, atol=2e-5)
