"""Methods and attributes of Python's constants in Triton's Python: they are evaluated while the kernel is compiled."""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

NAME = tl.constexpr("gelu_tanh")


class Mode(enum.Enum):
    FAST = 1

    def following(self) -> int:
        return self.value + 1


@dataclasses.dataclass(frozen=True)
class Size:
    n: int

    def twice(self) -> int:
        return 2 * self.n

    def plus(self, number: int, times: int = 1) -> int:
        return self.n + number * times


class Pair(NamedTuple):
    a: int
    b: int

    def plus(self, number: int, times: int = 1) -> int:
        return self.a + self.b + number * times

    @staticmethod
    def larger(first: int, second: int) -> int:
        return max(first, second)

    @classmethod
    def fields(cls, times: int) -> int:
        return len(cls._fields) * times


class Methods(NamedTuple):
    combine: Any
    number: int


@triton.jit
def difference(a, b):
    return a - b


def kind_of(x: Any) -> str:
    return type(x).__name__


def total(*numbers: Any, scale: Any = 1) -> int:
    return sum(int(number) for number in numbers) * int(scale)


def fails(x: Any) -> int:
    raise RuntimeError("no value")


host: Any = types.ModuleType("host")
vars(host).update(kind_of=kind_of, total=total, fails=fails)


@pytest.fixture
def value_of(kernel):
    def value_of(expression: str, constant: Any, prefix: str = "tl") -> int:
        source = f"def f(out, n, C: {prefix}.constexpr):\n    {prefix}.store(out, {expression})"
        test_kernel = kernel(source, zg.kernel if prefix == "zg" else triton.jit, tl=tl, np=np, NAME=NAME, host=host)
        out = np.full(1, -9, np.int32)
        test_kernel[(1,)](out, 3, constant)
        return int(out[0])

    return value_of


@pytest.mark.parametrize(
    ("expression", "constant", "value"),
    [
        ("C.startswith('gelu')", "gelu_tanh", 1),
        ("C.lower() == 'gelu'", "GELU", 1),
        ("C.split('_')[1] == 'b'", "a_b", 1),
        ("len(C.split(','))", "a,b,c", 3),
        ("C.strip().replace('a', 'b') == 'b'", " a ", 1),
        ("C.join(('a', 'b')) == 'a-b'", "-", 1),
        ("'-'.join(('a', C)) == 'a-q'", "q", 1),
        ("'{}x'.format(C) == '5x'", 5, 1),
        ("int(C.removeprefix('x'))", "x12", 12),
        ("C.bit_length()", 1000, 10),
        ("C.real + C.numerator", 5, 10),
        ("C.is_integer()", 2.0, 1),
        ("True.bit_length()", 0, 1),
        ("C.index(3)", (1, 3), 1),
        ("C.count(3)", (3, 3, 4), 2),
        ("C.index(3)", [1, 3], 1),
        ("NAME.find('t')", 0, 5),
        ("getattr(C, 'upper')() == 'A'", "a", 1),
        ("hasattr(C, 'upper')", "a", 1),
        ("hasattr(C, 'uper')", "a", 0),
        ("C.following()", Mode.FAST, 2),
        ("C.twice() + C.n", Size(4), 12),
        ("C.index(8) + C.a", Pair(7, 8), 8),
        ("C._asdict()['b']", Pair(7, 8), 8),
        ("C.get('a')", {"a": 6}, 6),
        ("C.get('b', 4)", {"a": 6}, 4),
        ("C.plus(10)", Size(4), 14),
        ("C.plus(10, times=2)", Size(4), 24),
        ("C.plus(10)", Pair(7, 8), 25),
        ("C.plus(10, times=2)", Pair(7, 8), 35),
        ("C.larger(2, 5)", Pair(7, 8), 5),
        ("C.larger(5, second=2)", Pair(7, 8), 5),
        ("C.fields(3)", Pair(7, 8), 6),
        ("C.combine(n, 10)", Methods(difference, 1), -7),
        ("C.combine(b=n, a=10)", Methods(difference, 1), 7),
        ("np.dtype(C).itemsize", tl.float16, 2),
        ("np.iinfo(C).max", tl.int8, 127),
        ("host.kind_of(C) == 'constexpr'", 3, 1),
        ("host.kind_of(C) == 'constexpr'", "a", 1),
        ("host.kind_of(C) == 'tuple'", (1, 2), 1),
        ("host.kind_of(C) == 'dtype'", tl.float32, 1),
        ("host.kind_of(C) == 'Pair'", Pair(1, 2), 1),
        ("host.total(C, 2, scale=10)", 3, 50),
        ("len(tuple(C))", (1, 2, 3), 3),
        ("len(list(C))", (1, 2), 2),
        ("len(tuple())", 0, 0),
        ("max(C, 0.5, -1.0) * 2", 0.25, 1),
        ("len(C.ljust(65536))", "a", 65536),
        ("len(C * 65536)", "a", 65536),
        ("min(C, 0.5, -1.0)", 0.25, -1),
        ("C.zfill(70000 - 69998) == '07'", "7", 1),
        ("C.is_fp32()", tl.float32, 1),
        ("C.itemsize", tl.float16, 2),
        ("1 if C.endswith('h') else n", "gelu_tanh", 1),
        ("n if C.isdigit() else 2", "12", 3),
    ],
)
def test_values(value_of, expression: str, constant: Any, value: int):
    assert value_of(expression, constant) == value


@pytest.mark.parametrize(
    ("expression", "constant", "words"),
    [
        ("C.splitt('_')", "a_b", r"the constant 'a_b' has no method 'splitt'[^?]*did you mean split\?"),
        ("C.split(n)", "a_b", "'split' is a function of the host, which must be called with constants; got int32"),
        ("C.index('z')", "abc", "'index' raised ValueError: substring not found"),
        ("C.append(3)", [1, 2], r"the tuple \(1, 2\) has no method 'append'(.|\n)*make another one"),
        ("C.pop('a')", {"a": 1}, "'pop' would change a dict from outside of the kernel"),
        ("C.add(3)", {1}, "'add' would change a set from outside of the kernel"),
        ("C.number(3)", Methods(difference, 1), "'number' must be a function to be called; got the constant 1"),
        ("C.combine(n)", Methods(difference, 1), "difference needs its argument 'b'"),
        ("C.absent(3)", Pair(7, 8), "'Pair' has no attribute 'absent'"),
        ("C.absent(3)", Size(4), "has no attribute 'absent'"),
        ("C.append(3)", bytearray(b"a"), "'append' would change a bytearray from outside of the kernel"),
        ("max(1.0, C)", -0.0, r"cannot compute max\(\): -0.0 is among the operands"),
        ("min(C, 1.0)", float("nan"), r"cannot compute min\(\): a NaN is among the operands"),
        ("max(1.0, C)", "a", "the operands must be numbers"),
        ("host.fails(C)", 3, "'fails' raised RuntimeError: no value"),
        ("host.total(C, n)", 3, "'total' is a function of the host, which must be called with constants; got int32"),
        (
            "host.total(C, scale=n)",
            3,
            "'total' is a function of the host, which must be called with constants; got int32",
        ),
        ("np.exp(n)", 3, r"'exp' is a function of the host.*got int32(.|\n)*write tl.exp"),
        ("C.ljust(65537)", "a", "'ljust' gives more than 65536 characters or items"),
        ("C.ljust(10**9)", "a", "'ljust' gives more than 65536 characters or items"),
        ("C.replace('a', 300 * 'b')", "a" * 300, "'replace' gives more than 65536 characters or items"),
        ("C.real", "a", "the constant 'a' has no property 'real' in a kernel"),
        ("n.bit_length()", "a", "int32 has no method 'bit_length'"),
    ],
)
def test_errors_are_at_the_call(value_of, expression: str, constant: Any, words: str):
    text_before = repr(constant)
    with pytest.raises(zg.ZigguratError, match=words) as error_info:
        value_of(expression, constant)
    assert repr(constant) == text_before and "^" * len(expression.partition("(")[0]) in str(error_info.value)


def test_explicit_calls_have_methods_of_constants(value_of):
    assert value_of("len(C.split('_'))", "a_b", "zg") == 2
