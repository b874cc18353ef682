"""Random kernels, nearly all of them wrong: each is an error with its place, or makes a model that verifies."""

from __future__ import annotations

import linecache
import random
import warnings
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import InternalError, KernelErrors, ZigguratError

PRELUDE = """\
@zg.function
def helper(a, b):
    return zg.add(a, b)

@zg.kernel
def kernel(p, q, n, x, u, c: zg.constexpr):
    t = zg.arange(0, 16)
    f = zg.cast(t, zg.f32)
    m = zg.zeros((16, 32), zg.f32)
    a1 = 1
    a2 = n
    a3 = t
"""
TYPES = (zg.ptr(zg.f32), zg.ptr(zg.i64), zg.i32, zg.f32, zg.u8, 4)
# The first are used twice as often, so that some kernels are right.
NAMES = ["n", "u", "c", "x", "a1", "a2", "i", "0", "1", "3", "True", "0.5"]
ODD = [
    *("p", "q", "t", "f", "m", "a3", "None", "''", "'text'", "-1", "2 ** 70", "zg.f32", "helper", "()", "(1, 2)"),
    *("(n, t)", "t.shape", "zg.CompareKind.EQUAL"),
]
OPERATORS = "+ - * / // % ** & | ^ << >> == != < <= > >= is in and or".split()
CALLS = ["add", "where", "load", "store", "sum", "max", "cast", "full", "dot", "expand", "reshape", "compare", "reduce"]


class Program:
    """Writes one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        body = [line for _ in range(self.random.randint(1, 4)) for line in self.statement(0)]
        self.text = PRELUDE + "".join(f"    {line}\n" for line in body)

    def several(self, depth: int, most: int = 3) -> str:
        return ", ".join(self.expression(depth + 1) for _ in range(self.random.randint(1, most)))

    def expression(self, depth: int) -> str:
        pick, roll = self.random.choice, self.random.random()
        if depth > 2 or roll < 0.5:
            return pick([*NAMES, *NAMES, *ODD])
        inner = self.expression(depth + 1)
        if roll < 0.68:
            return f"({inner} {pick(OPERATORS)} {self.expression(depth + 1)})"
        if roll < 0.72:
            return f"({pick(['-', '~', 'not ', '+'])}{inner})"
        if roll < 0.76:
            return f"({inner} if {self.expression(depth + 1)} else {self.expression(depth + 1)})"
        if roll < 0.82:
            return pick([f"({inner}, 1)", f"a3[{inner}]", "t.numel", "m.T", "n.foo", f"(n, t)[{inner}]"])
        if roll < 0.88:
            return f"{pick(['min', 'max', 'abs', 'len', 'int', 'float', 'bool'])}({self.several(depth, 2)})"
        if roll < 0.9:
            return f"helper({self.several(depth)})"
        return f"zg.{pick(CALLS)}({self.several(depth)})"

    def suite(self, depth: int) -> list[str]:
        count = self.random.randint(1, 3)
        return [f"    {line}" for _ in range(count) for line in self.statement(depth + 1)]

    def statement(self, depth: int) -> list[str]:
        pick, roll = self.random.choice, self.random.random()
        name, value = pick(["a1", "a2", "a3"]), self.expression(0)
        if depth > 2 or roll < 0.5:
            return [f"{name} = {value}"]
        if roll < 0.6:
            return [f"{name} {pick(['+', '-', '*', '//', '%', '&', '<<'])}= {value}"]
        if roll < 0.65:
            return [f"{name}, b = {value}"]
        if roll < 0.78:
            return [f"if {value}:", *self.suite(depth), "else:", *self.suite(depth)]
        if roll < 0.88:
            head = f"{pick(['range', 'zg.range', 'zg.static_range'])}({pick(['n', 'c', '2', value])})"
            return [f"for i in {head}:", *self.suite(depth)]
        if roll < 0.94:
            return [f"while {pick(['n > 0', 'a1', value])}:", *self.suite(depth)]
        return [pick([f"assert {value}, 'x'", f"zg.store(q, {value})"])]


@pytest.mark.parametrize("block", range(8))
def test_a_random_kernel_is_an_error_or_a_model(block: int):
    right = 0
    for seed in range(100 * block, 100 * block + 100):
        text, file = Program(seed).text, f"<random {seed}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope: dict[str, Any] = {"zg": zg}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            exec(compile(text, file, "exec"), scope)
        try:
            model = scope["kernel"].triton(*TYPES)
        except InternalError as error:
            pytest.fail(f"{text}\n{error}")
        except ZigguratError as error:
            for part in error.errors if isinstance(error, KernelErrors) else (error,):
                assert part.location is not None and "^" in str(part), f"{text}\n{part}"
                for inside in ("ConstantType", "ScalarType", "TensorType", "NoneType", "object at", "<class"):
                    assert inside not in f"{part.summary} {part.hint}", f"{text}\n{part}"
        else:
            right += 1
            zg.verify(model)
            assert zg.same_model(zg.parse(str(model)), model)
        del linecache.cache[file]
    assert right > 5
