"""Kernels drawn at random for comparisons of native code with the interpreter: all dtypes, shapes of up to five axes,
memory in many forms, loops and branches that carry tensors.

`python tests/support/native_kernels.py SEED SECONDS` draws and compares kernels, and prints those that differ;
with `passes` as a third argument, the CPU model after each pass as well.
"""

from __future__ import annotations

import linecache
import math
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import attrs
import ml_dtypes
import numpy as np
from guarded import POSSIBLE, guarded
from run_cpu import run_cpu

import ziggurat as zg
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.compile import HOST
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.cpu.cpu_passes import LOWER

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
SIGNED = ("i8", "i16", "i32", "i64")
INTEGERS = (*SIGNED, "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
EIGHT_BITS = ("f8e4m3", "f8e5m2")
FREQUENT = ("i32", "f32", "i32", "f32", "i64", "f16")
SIZE = 1024  # Elements of an array.
SLOT = 4096  # Elements of a program in an array of results.
PROGRAMS = 2
MACHINES = (HOST, HOST, HOST, CpuOptions("haswell", "+avx2,+fma,+f16c"))

HELPERS = '''
@zg.function
def smaller(a, b):
    return zg.where(zg.less(b, a), b, a)

@zg.function
def added(a, b):
    return zg.add(a, b)

@zg.function
def later(a, i, b, j):
    """The larger, with its number; the later one of equal ones."""
    take = zg.or_(zg.greater(b, a), zg.and_(zg.equal(b, a), zg.greater(j, i)))
    return zg.where(take, b, a), zg.where(take, j, i)

@zg.function
def composed(a, b, c, d):
    """Composition of affine maps x -> a x + b."""
    return zg.mul(a, c), zg.add(zg.mul(b, c), d)

@zg.function
def branching(a, b):
    if zg.less(a, b):
        r = zg.sub(b, a)
    else:
        r = a
    return r

@zg.function
def stepped(x, n):
    """As many steps of a sequence as the element says."""
    y = x
    for i in range(0, zg.and_(zg.cast(x, zg.i32), 3)):
        if zg.less(y, n):
            y = zg.add(y, x)
        else:
            y = zg.sub(y, 1)
    return y, zg.cast(y, zg.f32)

@zg.function
def both(x, y):
    return zg.add(x, y), zg.where(zg.less(x, y), x, y)

@zg.function
def early(x, n):
    if n > 3:
        return x
    y = zg.add(x, x)
    for i in range(0, n):
        y = zg.add(y, x)
    return y
'''


@attrs.frozen
class Drawn:
    """An expression: its text, the dtype and the shape of its value."""

    text: str
    dtype: str
    shape: Shape

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


class Kernel:
    """A kernel drawn with a seed: `text` is its source, `arguments()` makes fresh arguments."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.lines: list[str] = []
        self.indent = 1
        self.fresh = 0
        self.scope: dict[str, tuple[str, Shape]] = {}
        self.inputs: dict[str, None] = {}
        self.outputs: dict[str, int] = {}
        self.grid = self.random.choice([1, 1, PROGRAMS])
        self.draw()

    # Choices.

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def dtype(self, *among: str) -> str:
        return self.random.choice(among or (FREQUENT if self.chance(0.5) else tuple(DTYPES)))

    def shape_of(self, numel: int) -> Shape:
        """A shape of up to five axes."""
        axes = [numel]
        for _ in range(self.random.choice([0, 0, 1, 1, 2, 3])):
            at = self.random.randrange(len(axes))
            part = self.random.choice([1, *[1 << k for k in range(1, axes[at].bit_length())]])
            axes[at : at + 1] = [axes[at] // part, part]
        self.random.shuffle(axes)
        return tuple(axes[:5]) if math.prod(axes[:5]) == numel else (numel,)

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def keep(self, value: Drawn, prefix: str = "t") -> Drawn:
        """Assign an expression to a fresh variable."""
        name = self.name(prefix)
        self.line(f"{name} = {value.text}")
        self.scope[name] = value.dtype, value.shape
        return attrs.evolve(value, text=name)

    # Conversions.

    def cast(self, value: Drawn, dtype: str) -> Drawn:
        if value.dtype == dtype:
            return value
        if (value.dtype in EIGHT_BITS and dtype == "i1") or (dtype in EIGHT_BITS and value.dtype not in FLOATS):
            value = self.cast(value, "f32")
        elif value.dtype in EIGHT_BITS and dtype not in FLOATS:
            value = self.cast(value, "f32")
        return Drawn(f"zg.cast({value.text}, zg.{dtype})", dtype, value.shape)

    def fit(self, value: Drawn, shape: Shape) -> Drawn:
        """The value brought to a shape."""
        if value.shape == shape:
            return value
        numel = math.prod(shape)
        if not shape:
            if value.numel == 1:
                return Drawn(f"zg.reshape({value.text}, ())", value.dtype, ())
            return self.whole(value)
        if not value.shape:
            return Drawn(f"zg.broadcast({value.text}, {shape})", value.dtype, shape)
        try:
            if np.broadcast_shapes(value.shape, shape) == shape and self.chance(0.7):
                return Drawn(f"zg.broadcast({value.text}, {shape})", value.dtype, shape)
        except ValueError:
            pass
        if value.numel == numel:
            return Drawn(f"zg.reshape({value.text}, {shape})", value.dtype, shape)
        if value.numel > numel:
            ratio = value.numel // numel
            folded = Drawn(f"zg.reshape({value.text}, {(numel, ratio)})", value.dtype, (numel, ratio))
            return self.fit(self.folded(folded, 1), shape)
        ratio = numel // value.numel
        wide = Drawn(
            f"zg.broadcast(zg.expand(zg.ravel({value.text}), 1), {(value.numel, ratio)})", value.dtype,
            (value.numel, ratio),
        )  # fmt: skip
        return Drawn(f"zg.reshape({wide.text}, {shape})", value.dtype, shape)

    def folded(self, value: Drawn, axis: int | None, keep: bool = False) -> Drawn:
        """A reduction of any dtype along an axis."""
        shape = value.shape
        rest = () if axis is None else tuple(1 if a == axis else n for a, n in enumerate(shape) if keep or a != axis)
        if value.dtype in EIGHT_BITS:
            return self.cast(self.folded(self.cast(value, "f16"), axis, keep), value.dtype)
        if value.dtype == "i1":
            call = self.random.choice(["xor_sum", "any", "all", "reduce_or"])
            return Drawn(f"zg.cast(zg.{call}({value.text}, {axis}, keep_dims={keep}), zg.i1)", "i1", rest)
        calls = ["max", "min", "sum", "prod"]
        if value.dtype in INTEGERS:
            calls += ["xor_sum", "reduce_or", "sum"]
        call = self.random.choice(calls)
        return Drawn(f"zg.cast(zg.{call}({value.text}, {axis}, keep_dims={keep}), zg.{value.dtype})", value.dtype, rest)

    def whole(self, value: Drawn) -> Drawn:
        """A scalar of all elements."""
        return self.folded(value, None)

    # Expressions.

    def variable(self, dtype: str | None = None, shape: Shape | None = None) -> Drawn:
        names = [n for n, (d, s) in self.scope.items() if dtype in (None, d) and shape in (None, s)]
        if not names:
            names = [n for n in self.scope]
        name = self.random.choice(names[-8:] if self.chance(0.7) else names)
        return Drawn(name, *self.scope[name])

    def of(self, dtype: str, shape: Shape, depth: int = 1) -> Drawn:
        """A value of a type."""
        return self.cast(self.fit(self.value(depth), shape), dtype)

    def value(self, depth: int) -> Drawn:
        if depth <= 0 or self.chance(0.2):
            return self.variable()
        makers = (
            [self.arithmetic] * 4 + [self.comparison] * 2 + [self.choice] * 2 + [self.unary] * 2
            + [self.integer_ops] * 2 + [self.converted] * 2 + [self.literal] * 2 + [self.division, self.function]
            + [self.reduction] * 3 + [self.scan] * 2 + [self.shaped] * 5 + [self.indexed] * 2 + [self.loaded] * 4
            + [self.joined, self.sorted, self.histogram, self.dot, self.reduced_by, self.scanned_by, self.helper]
            + [self.conditional, self.range, self.random_number]
            + [self.mapped, self.described, self.described, self.block_pointer]
        )  # fmt: skip
        return self.random.choice(makers)(depth - 1)

    def tensor(self, depth: int) -> Drawn:
        value = self.value(depth)
        return value if value.shape else self.fit(value, self.random.choice(self.shapes))

    def pair(self, depth: int, *among: str) -> tuple[Drawn, Drawn]:
        """Two values of one dtype whose shapes go together."""
        a, b = self.value(depth), self.value(depth)
        dtype = a.dtype if a.dtype in among and self.chance(0.8) else self.dtype(*among)
        if b.shape and self.chance(0.9):
            b = self.fit(b, a.shape)
        a, b = self.cast(a, dtype), self.cast(b, dtype)
        try:
            np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            b = self.fit(b, a.shape)
        return a, b

    @staticmethod
    def joint(a: Drawn, b: Drawn, text: str, dtype: str) -> Drawn:
        return Drawn(text, dtype, np.broadcast_shapes(a.shape, b.shape))

    def arithmetic(self, depth: int) -> Drawn:
        a, b = self.pair(depth, *INTEGERS, *FLOATS)
        call = self.random.choice(["add", "sub", "mul", "minimum", "maximum"])
        extra = ", propagate_nan=True" if call[0] == "m" and call != "mul" and self.chance(0.3) else ""
        if call == "add" and a.dtype in FLOATS and self.chance(0.2):
            c = self.cast(self.fit(self.value(depth), a.shape), a.dtype)
            if a.dtype not in ("f32", "f64"):
                a, b, c = (self.cast(x, "f32") for x in (a, b, c))
            return Drawn(f"zg.fma({a.text}, {b.text}, {c.text})", a.dtype, np.broadcast_shapes(a.shape, b.shape))
        return self.joint(a, b, f"zg.{call}({a.text}, {b.text}{extra})", a.dtype)

    def comparison(self, depth: int) -> Drawn:
        a, b = self.pair(depth, *INTEGERS, *FLOATS)
        call = self.random.choice(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
        return self.joint(a, b, f"zg.{call}({a.text}, {b.text})", "i1")

    def choice(self, depth: int) -> Drawn:
        a, b = self.pair(depth, *DTYPES)
        where = self.cast(self.value(depth), "i1")
        where = self.fit(where, np.broadcast_shapes(a.shape, b.shape)) if where.shape else where
        return self.joint(a, b, f"zg.where({where.text}, {a.text}, {b.text})", a.dtype)

    def unary(self, depth: int) -> Drawn:
        a = self.value(depth)
        if a.dtype == "i1":
            return Drawn(f"zg.invert({a.text})", "i1", a.shape)
        if a.dtype in EIGHT_BITS:
            a = self.cast(a, "f32")
        if a.dtype in INTEGERS:
            call = self.random.choice(["neg", "invert", "abs", "popc", "clz", "brev"])
            if call in ("popc", "clz", "brev") and a.dtype[1:] in ("8", "16"):
                a = self.cast(a, "i32")
            return Drawn(f"zg.cast(zg.{call}({a.text}), zg.{a.dtype})", a.dtype, a.shape)
        calls = ["neg", "abs", "floor", "ceil", "trunc", "rint", "sqrt", "rsqrt"]
        if a.dtype != "f64":
            calls += ["exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "sigmoid"]
        call = self.random.choice(calls)
        return Drawn(f"zg.cast(zg.{call}({a.text}), zg.{a.dtype})", a.dtype, a.shape)

    def integer_ops(self, depth: int) -> Drawn:
        call = self.random.choice(["and_", "or_", "xor", "shl", "shr", "umulhi"])
        a, b = self.pair(depth, *(("i1", *INTEGERS) if call in ("and_", "or_", "xor") else INTEGERS))
        if call == "umulhi":
            a, b = self.cast(a, self.dtype("u32", "u64")), b
            b = self.cast(b, a.dtype)
        if call in ("shl", "shr"):
            bits = int(a.dtype[1:])
            return self.joint(a, b, f"zg.{call}({a.text}, zg.and_({b.text}, {bits - 1}))", a.dtype)
        return self.joint(a, b, f"zg.{call}({a.text}, {b.text})", a.dtype)

    def division(self, depth: int) -> Drawn:
        a, b = self.pair(depth, *INTEGERS, *FLOATS)
        if a.dtype in INTEGERS:
            call = self.random.choice(["floordiv", "mod"])
            divisor = f"zg.or_({b.text}, 1)"
            if self.chance(0.5):
                divisor, b = str(self.random.choice([1, 2, 3, 7, 10, 64, 100])), Drawn("", a.dtype, ())
            return self.joint(a, b, f"zg.{call}({a.text}, {divisor})", a.dtype)
        call = self.random.choice(["div", "div", "mod"] if a.dtype in ("f32", "f64") else ["div"])
        return self.joint(a, b, f"zg.cast(zg.{call}({a.text}, {b.text}), zg.{a.dtype})", a.dtype)

    def converted(self, depth: int) -> Drawn:
        a = self.value(depth)
        if self.chance(0.2) and a.dtype in INTEGERS:
            same = [
                d
                for d in (*INTEGERS, *FLOATS, *EIGHT_BITS)
                if np.dtype(DTYPES[d]).itemsize == np.dtype(DTYPES[a.dtype]).itemsize
            ]
            dtype = self.random.choice(same)
            return Drawn(f"zg.bitcast({a.text}, zg.{dtype})", dtype, a.shape)
        if self.chance(0.1) and a.dtype in ("f32",):
            dtype = self.random.choice(["f16", "bf16"])
            return Drawn(f"zg.cast({a.text}, zg.{dtype}, fp_downcast_rounding='rtz')", dtype, a.shape)
        return self.cast(a, self.dtype(*DTYPES))

    def function(self, depth: int) -> Drawn:
        a = self.cast(self.value(depth), "f32")
        call = self.random.choice(["softmax", "clamp", "cdiv"])
        if call == "softmax":
            a = a if a.shape else self.fit(a, self.shapes[0])
            return Drawn(f"zg.softmax({a.text}, {self.random.randrange(len(a.shape))})", "f32", a.shape)
        if call == "clamp":
            return Drawn(f"zg.clamp({a.text}, -2.0, 5.0, propagate_nan={self.chance(0.5)})", "f32", a.shape)
        a = self.cast(a, "i32")
        return Drawn(f"zg.cdiv(zg.and_({a.text}, 65535), {self.random.choice([1, 3, 16])})", "i32", a.shape)

    def literal(self, depth: int) -> Drawn:
        a = self.value(depth)
        if a.dtype in INTEGERS:
            bits = int(a.dtype[1:])
            number: Any = self.random.choice([0, 1, 2, 5, 63, 100, (1 << (bits - 1)) - 1])
        elif a.dtype in FLOATS:
            number = self.random.choice([0.0, 1.0, 0.5, 2.0, -3.0, 100.0, 0.1])
        else:
            return a
        call = self.random.choice(["add", "sub", "mul", "maximum"])
        arguments = [a.text, repr(number)]
        return Drawn(f"zg.{call}({', '.join(arguments if self.chance(0.7) else arguments[::-1])})", a.dtype, a.shape)

    def range(self, depth: int) -> Drawn:
        size = 1 << self.random.randrange(8)
        start = self.random.choice([0, 0, 0, 5, -3])
        return Drawn(f"zg.arange({start}, {start + size})", "i32", (size,))

    def random_number(self, depth: int) -> Drawn:
        a = self.cast(self.value(depth), "i32")
        call, dtype = self.random.choice([("rand", "f32"), ("randint", "i32"), ("randn", "f32")])
        return Drawn(f"zg.cast(zg.{call}(n, {a.text}), zg.{dtype})", dtype, a.shape)

    def reduction(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        axis = self.random.choice([None, *range(len(a.shape))])
        keep = axis is not None and self.chance(0.4)
        if a.dtype not in ("i1", *EIGHT_BITS) and self.chance(0.3) and axis is not None:
            call = self.random.choice(["argmax", "argmin", "max", "min"])
            rest = tuple(1 if x == axis else n for x, n in enumerate(a.shape) if keep or x != axis)
            if call[0] == "a":
                return Drawn(f"zg.{call}({a.text}, {axis}, keep_dims={keep})", "i32", rest)
            first, second = self.name("m"), self.name("m")
            self.line(f"{first}, {second} = zg.{call}({a.text}, {axis}, return_indices=True, keep_dims={keep})")
            self.scope[first], self.scope[second] = (a.dtype, rest), ("i32", rest)
            return Drawn(first, a.dtype, rest) if self.chance(0.5) else Drawn(second, "i32", rest)
        return self.folded(a, axis, keep)

    def scan(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        if a.dtype in ("i1", *EIGHT_BITS):
            a = self.cast(a, self.dtype("i32", "f16"))
        axis = self.random.randrange(len(a.shape))
        call = self.random.choice(["cumsum", "cumprod", "cummax", "cummin"])
        text = f"zg.{call}({a.text}, {axis}, reverse={self.chance(0.3)})"
        return Drawn(f"zg.cast({text}, zg.{a.dtype})", a.dtype, a.shape)

    def reduced_by(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        axis = self.random.randrange(len(a.shape))
        rest = tuple(n for x, n in enumerate(a.shape) if x != axis)
        if self.chance(0.5):
            a = self.cast(a, self.dtype("i32", "f32", "i64", "i8", "f16", "u16"))
            call = self.random.choice(["smaller", "added", "branching"])
            if call == "branching" and a.dtype[0] == "f":
                a = self.cast(a, "i32")
            return Drawn(f"zg.reduce({a.text}, {axis}, {call})", a.dtype, rest)
        a = self.cast(a, self.dtype("i32", "f32", "i16", "u64"))
        b = self.cast(self.fit(self.value(depth), a.shape), "i32")
        first, second = self.name("r"), self.name("r")
        self.line(f"{first}, {second} = zg.reduce(({a.text}, {b.text}), {axis}, later)")
        self.scope[first], self.scope[second] = (a.dtype, rest), ("i32", rest)
        return Drawn(first, a.dtype, rest) if self.chance(0.5) else Drawn(second, "i32", rest)

    def scanned_by(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        axis, reverse = self.random.randrange(len(a.shape)), self.chance(0.3)
        if self.chance(0.5):
            a = self.cast(a, self.dtype("i32", "f32", "i64", "i8", "f16"))
            call = self.random.choice(["smaller", "added"])
            return Drawn(f"zg.associative_scan({a.text}, {axis}, {call}, reverse={reverse})", a.dtype, a.shape)
        dtype = self.dtype("i32", "i64", "f32", "u32")
        a = self.cast(a, dtype)
        b = self.cast(self.fit(self.value(depth), a.shape), dtype)
        first, second = self.name("s"), self.name("s")
        call = f"zg.associative_scan(({a.text}, {b.text}), {axis}, composed, reverse={reverse})"
        self.line(f"{first}, {second} = {call}")
        self.scope[first] = self.scope[second] = a.dtype, a.shape
        return Drawn(self.random.choice([first, second]), a.dtype, a.shape)

    def shaped(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        rank = len(a.shape)
        axis = self.random.randrange(rank)
        kind = self.random.choice(["reshape", "trans", "flip", "expand", "broadcast", "permute", "fit", "flip"])
        if kind == "reshape":
            shape = self.shape_of(a.numel)
            return Drawn(f"zg.reshape({a.text}, {shape})", a.dtype, shape)
        if kind in ("trans", "permute") and rank > 1:
            order = list(range(rank))
            self.random.shuffle(order)
            return Drawn(f"zg.permute({a.text}, {tuple(order)})", a.dtype, tuple(a.shape[i] for i in order))
        if kind == "expand" and rank < 5:
            return Drawn(f"zg.expand({a.text}, {axis})", a.dtype, (*a.shape[:axis], 1, *a.shape[axis:]))
        if kind == "broadcast" and 1 in a.shape and a.numel <= 64:
            shape = tuple(2 if n == 1 else n for n in a.shape)
            if math.prod(shape) <= 256:
                return Drawn(f"zg.broadcast({a.text}, {shape})", a.dtype, shape)
        if kind == "fit":
            return self.fit(a, self.random.choice(self.shapes))
        return Drawn(f"zg.flip({a.text}, {axis})", a.dtype, a.shape)

    def indexed(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        axis = self.random.randrange(len(a.shape))
        size = a.shape[axis]
        expected = list(a.shape)
        if self.chance(0.3):
            expected[axis] = 1 << self.random.randrange(5)
            if math.prod(expected) > 256:
                expected[axis] = size
        at = self.of(self.dtype("i32", "i32", "i64", "u8", "i16", "u32"), tuple(expected), depth)
        if size > 128 and at.dtype in ("i8", "u8"):
            at = self.cast(at, "i32")
        return Drawn(f"zg.gather({a.text}, zg.and_({at.text}, {size - 1}), {axis})", a.dtype, tuple(expected))

    def joined(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        b = self.cast(self.fit(self.value(depth), a.shape), a.dtype)
        kind = self.random.choice(["join", "interleave", "cat", "split"])
        if kind == "split" or a.numel > 128 or len(a.shape) > 4:
            if a.numel < 2:
                return a
            first, second = self.name("h"), self.name("h")
            self.line(f"{first}, {second} = zg.split(zg.reshape({a.text}, {(a.numel // 2, 2)}))")
            self.scope[first] = self.scope[second] = a.dtype, (a.numel // 2,)
            return Drawn(self.random.choice([first, second]), a.dtype, (a.numel // 2,))
        shape = {
            "join": (*a.shape, 2),
            "interleave": (*a.shape[:-1], a.shape[-1] * 2),
            "cat": (a.shape[0] * 2, *a.shape[1:]),
        }
        return Drawn(f"zg.{kind}({a.text}, {b.text})", a.dtype, shape[kind])

    def sorted(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        if a.dtype in ("i1", *EIGHT_BITS):
            a = self.cast(a, self.dtype("i32", "f32"))
        if a.shape[-1] > 16:
            a = self.fit(a, (a.numel // 16, 16))
        kind = self.random.choice(["sort", "argsort", "topk"])
        if kind == "topk":
            k = 1 << self.random.randrange(a.shape[-1].bit_length())
            return Drawn(f"zg.topk({a.text}, {k}, descending={self.chance(0.7)})", a.dtype, (*a.shape[:-1], k))
        text = f"zg.{kind}({a.text}, descending={self.chance(0.4)})"
        return Drawn(text, a.dtype if kind == "sort" else "i32", a.shape)

    def histogram(self, depth: int) -> Drawn:
        a = self.tensor(depth)
        a = self.cast(a, self.dtype("i32", "u8", "i64", "i8", "u32"))
        bins = 1 << self.random.randrange(7)
        values = Drawn(f"zg.ravel({a.text})", a.dtype, (a.numel,))
        if self.chance(0.7):
            values = Drawn(f"zg.and_({values.text}, {min(bins * 2, 64) - 1})", a.dtype, (a.numel,))
        mask = self.of("i1", (a.numel,), depth).text if self.chance(0.4) else "None"
        return Drawn(f"zg.histogram({values.text}, {bins}, {mask})", "i32", (bins,))

    def dot(self, depth: int) -> Drawn:
        """A dot of small whole numbers, whose sums are exact."""
        batch = self.random.choice([(), (), (2,)])
        m, k, n = (1 << self.random.choice([0, 1, 2, 3, 4, 4]) for _ in range(3))
        if k < 1:
            k = 1
        dtype = self.dtype("f32", "f16", "bf16", "f64", "i8", "u8", "f8e4m3")
        parts: list[str] = []
        for shape in ((*batch, m, k), (*batch, k, n)):
            whole = self.of("i32", shape, depth)
            parts.append(self.cast(Drawn(f"zg.and_({whole.text}, 7)", "i32", shape), dtype).text)
        result = "i32" if dtype[1:] == "8" else "f64" if dtype == "f64" else "f32"
        accumulator = "None"
        if self.chance(0.5):
            accumulator = f"zg.cast(zg.and_({self.of('i32', (*batch, m, n), depth).text}, 63), zg.{result})"
        return Drawn(f"zg.dot({parts[0]}, {parts[1]}, {accumulator})", result, (*batch, m, n))

    def helper(self, depth: int) -> Drawn:
        a, b = self.pair(depth, "i32", "f32", "i64", "f16", "u8")
        if self.chance(0.5):
            first, second = self.name("c"), self.name("c")
            self.line(f"{first}, {second} = both({a.text}, {b.text})")
            shape = np.broadcast_shapes(a.shape, b.shape)
            self.scope[first] = self.scope[second] = a.dtype, shape
            return Drawn(self.random.choice([first, second]), a.dtype, shape)
        return Drawn(f"early({a.text}, zg.and_(n, 7))", a.dtype, a.shape)

    def mapped(self, depth: int) -> Drawn:
        a = self.cast(self.tensor(depth), self.dtype("i32", "i64", "u8", "i16"))
        first, second = self.name("c"), self.name("c")
        self.line(f"{first}, {second} = zg.map_elementwise(stepped, {a.text}, {self.random.choice(['5', '0'])})")
        self.scope[first], self.scope[second] = (a.dtype, a.shape), ("f32", a.shape)
        return Drawn(first, a.dtype, a.shape) if self.chance(0.5) else Drawn(second, "f32", a.shape)

    def described(self, depth: int) -> Drawn:
        """A block of a descriptor of a part of an array; an element may be outside."""
        name, dtype = self.input()
        if dtype in ("i1", *EIGHT_BITS):
            return self.loaded(depth)
        columns = self.random.choice([16, 32])
        rows = self.random.choice([1, 2, 4, 8])
        sizes = self.random.choice([(5, 32), (16, 20), (32, 32), ("n8 + 1", 32)])
        padding = ", padding_option='nan'" if dtype in FLOATS and self.chance(0.3) else ""
        result = self.name("d")
        self.line(
            f"{result} = zg.make_tensor_descriptor({name}, {sizes}".replace("'", "")
            + f", (32, 1), {(rows, columns)}{padding})"
        )
        at = self.random.choice(["(0, 0)", "(n8, 16)", "(-1, 8)", "(pid, n8)", "(3, -3)"])
        return self.keep(Drawn(f"{result}.load({at})", dtype, (rows, columns)), "l")

    def block_pointer(self, depth: int) -> Drawn:
        name, dtype = self.input()
        rows, columns = 1 << self.random.randrange(4), 1 << self.random.randrange(6)
        result = self.name("d")
        strides = self.random.choice(["(32, 1)", "(1, 32)", "(n8 + 1, 1)", "(32, one)"])
        offsets = self.random.choice(["(0, 0)", "(n8, 0)", "(pid, n8)"])
        self.line(f"{result} = zg.make_block_ptr({name}, (8, n8 + 1), {strides}, {offsets}, {(rows, columns)}, (1, 0))")
        if self.chance(0.5):
            self.line(f"for {self.name('i')} in range(0, n8):")
            self.line(f"    {result} = zg.advance({result}, {self.random.choice(['(0, 1)', '(1, 0)', '(1, 2)'])})")
        return self.keep(Drawn(f"zg.load({result}, boundary_check=(0, 1))", dtype, (rows, columns)), "l")

    def conditional(self, depth: int) -> Drawn:
        a = self.value(depth)
        b = self.cast(self.fit(self.value(depth), a.shape), a.dtype)
        return Drawn(f"({a.text} if {self.condition(depth).text} else {b.text})", a.dtype, a.shape)

    def condition(self, depth: int) -> Drawn:
        return self.cast(self.fit(self.value(depth), ()), "i1")

    # Memory. Offsets lie in [0, SIZE).

    def input(self) -> tuple[str, str]:
        """An array to read: its pointer, and its dtype."""
        names = [name for name in self.inputs if name[0] == "x"]
        if names and self.chance(0.5):
            name = self.random.choice(names)
        else:
            name = f"x_{self.dtype()}"
            self.inputs[name] = None
        return name, name.partition("_")[2]

    def place(self, shape: Shape, depth: int) -> tuple[str, str]:
        """Offsets of a shape, and a mask that holds only where they are inside of an array, or "" for all."""
        rank, numel = len(shape), math.prod(shape)
        kind = self.random.choice(["affine"] * 6 + ["mod", "gather", "gather", "wide", "stride"])
        base = self.random.choice(["0", "0", "5", "pid", "zg.and_(n, 255)", "n8", "pid * 64"])
        if kind == "gather" or rank == 0:
            at = self.of("i32", shape, depth)
            return f"zg.and_({at.text}, {SIZE - 1})", ""
        strides = list(np.cumprod([1, *shape[::-1]])[:-1][::-1])
        if kind == "stride" or self.chance(0.4):
            order = list(range(rank))
            self.random.shuffle(order)
            total = 1
            for axis in order:
                strides[axis] = 0 if self.chance(0.15) else total
                total *= shape[axis]
        scale = self.random.choice([1, 1, 1, 2, 3]) if numel <= 64 else 1
        parts: list[str] = []
        low = high = 0
        for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
            step = int(stride) * scale * (-1 if self.chance(0.15) else 1)
            low, high = low + min(0, step * (size - 1)), high + max(0, step * (size - 1))
            line = f"zg.arange(0, {size})"
            if rank > 1:
                line = f"zg.expand({line}, {tuple(x for x in range(rank) if x != axis)})"
            form = self.random.choice(["mul", "mul", "argument"]) if step in (1, 2) else "mul"
            factor = {"mul": str(step), "argument": f"one * {step}" if step != 1 else "one"}[form]
            parts.append(line if step == 1 and form == "mul" else f"zg.mul({line}, {factor})")
        text = parts[0]
        for part in parts[1:]:
            text = f"zg.add({text}, {part})"
        if shape != np.broadcast_shapes(shape):
            text = f"zg.broadcast({text}, {shape})"
        if low < 0:
            text = f"zg.add({text}, {-low})"
        if base != "0":
            text = f"zg.add({text}, {base})"
        if kind == "mod":
            text = f"zg.mod({text}, {self.random.choice([SIZE, 64, 'n1'])})"
            return f"zg.broadcast({text}, {shape})", ""
        if kind == "wide":
            text = f"zg.cast({text}, zg.i64)"
        room = SIZE - 1 - (high - low)
        mask = ""
        if base != "0" and room < 255 + PROGRAMS * 64:
            mask = f"zg.less({text}, {SIZE})"
        return f"zg.broadcast({text}, {shape})", mask

    def masks(self, shape: Shape, offsets: str, mask: str, depth: int) -> str:
        """A mask for offsets, with the given one if any."""
        kind = self.random.choice(["none", "none", "prefix", "axis", "any", "scalar"])
        more = ""
        if kind == "prefix":
            more = f"zg.less({offsets}, {self.random.choice(['n', 'n1', '100', 'm'])})"
        elif kind == "axis" and shape:
            axis = self.random.randrange(len(shape))
            line = f"zg.arange(0, {shape[axis]})"
            if len(shape) > 1:
                line = f"zg.expand({line}, {tuple(x for x in range(len(shape)) if x != axis)})"
            limit = self.random.choice(["n8", "3", str(shape[axis]), "n8 - 2"])
            call = self.random.choice(["less", "less", "less_equal", "greater", "greater_equal"])
            more = f"zg.{call}({line}, {limit})"
        elif kind == "any":
            more = self.of("i1", shape, depth).text
        elif kind == "scalar":
            more = "zg.greater(n, 5)"
        texts = [text for text in (mask, more) if text]
        if not texts:
            return ""
        text = texts[0] if len(texts) == 1 else f"zg.and_({texts[0]}, {texts[1]})"
        return f"zg.broadcast({text}, {shape})" if shape else text

    def loaded(self, depth: int) -> Drawn:
        name, dtype = self.input()
        shape = self.random.choice([*self.shapes, self.shape_of(1 << self.random.randrange(8))])
        offsets, mask = self.place(shape, depth)
        offsets = self.keep(Drawn(offsets, "i32", shape), "q").text
        self.scope.pop(offsets)
        mask = self.masks(shape, offsets, mask, depth)
        arguments = [f"zg.add({name}, {offsets})"]
        if mask:
            arguments.append(mask)
            if self.chance(0.6):
                arguments.append(self.of(dtype, self.random.choice([(), shape]), depth).text)
        return self.keep(Drawn(f"zg.load({', '.join(arguments)})", dtype, shape), "l")

    def stored(self) -> None:
        """A store to an array that is also read. Of several programs, no one reads what another writes."""
        if self.grid > 1:
            return self.written(self.value(2))
        name, dtype = self.input()
        shape = self.random.choice(self.shapes)
        offsets, mask = self.place(shape, 1)
        offsets = self.keep(Drawn(offsets, "i32", shape), "q").text
        self.scope.pop(offsets)
        mask = self.masks(shape, offsets, mask, 1)
        value = self.of(dtype, shape, 2)
        self.line(f"zg.store(zg.add({name}, {offsets}), {value.text}{', ' + mask if mask else ''})")

    def atomic(self) -> None:
        dtype = self.dtype("i32", "i32", "i64", "u32", "u64", "f32", "f64", "f16")
        calls = {"i": ["add", "max", "min", "and", "or", "xor", "xchg", "cas"], "f": ["add", "max", "min", "xchg"]}
        call = self.random.choice(calls["f" if dtype[0] == "f" else "i"])
        if dtype == "f16":
            call = "add"
        name = f"x_{dtype}"
        self.inputs[name] = None
        shape = self.random.choice([*self.shapes, ()])
        at = self.of("i32", shape, 1).text
        value = self.of(dtype, shape, 1)
        if dtype[0] == "f" and call in ("max", "min"):
            value = Drawn(f"zg.where(zg.less({value.text}, 1e3), {value.text}, 2.0)", dtype, shape)
        places = f"zg.add({name}, zg.and_({at}, {self.random.choice([7, 63, SIZE - 1])}))"
        mask = "" if call == "cas" else self.masks(shape, at, "", 1)
        arguments = [places, *([value.text] if call == "cas" else []), value.text, *([mask] if mask else [])]
        text = f"zg.atomic_{call}({', '.join(arguments)})"
        if self.chance(0.5) and self.grid == 1:
            self.keep(Drawn(text, dtype, shape), "o")
        else:
            self.line(text)

    def written(self, value: Drawn) -> None:
        """A store of a result to its own place."""
        if value.dtype not in self.outputs:
            self.outputs[value.dtype] = 0
        at = self.outputs[value.dtype]
        if at + value.numel > SLOT:
            return
        self.outputs[value.dtype] = at + value.numel
        base = f"zg.add(o_{value.dtype}, pid * {SLOT} + {at})"
        if not value.shape:
            self.line(f"zg.store({base}, {value.text})")
            return
        line = f"zg.reshape(zg.arange(0, {value.numel}), {value.shape})"
        self.line(f"zg.store(zg.add({base}, {line}), {value.text})")

    # Statements.

    def assignment(self) -> None:
        self.keep(self.value(3), "v")

    def update(self) -> None:
        """A new value of its own type for a variable."""
        names = [n for n in self.scope if n[0] == "v"]
        if not names:
            return self.assignment()
        name = self.random.choice(names)
        dtype, shape = self.scope[name]
        value = self.of(dtype, shape, 2)
        self.line(f"{name} = {value.text}")

    def exchange(self) -> None:
        """Two variables of one type that swap, or are moved: carried values that depend on each other."""
        names = [n for n in self.scope if n[0] == "v"]
        if not names:
            return self.assignment()
        a = self.random.choice(names)
        dtype, shape = self.scope[a]
        others = [n for n in names if self.scope[n] == (dtype, shape)]
        b = self.random.choice(others)
        if len(others) > 2 and self.chance(0.5):
            self.random.shuffle(others)
            transposed = self.random.sample(others, len(others)) if self.chance(0.5) else others[1:] + others[:1]
            return self.line(f"{', '.join(others)} = {', '.join(transposed)}")
        if shape and self.chance(0.7):
            self.line(f"{a}, {b} = zg.flip({b}, {self.random.randrange(len(shape))}), {a}")
        else:
            self.line(f"{a}, {b} = {b}, {a}")

    def body(self, depth: int, size: int = 3) -> None:
        """Statements of a body: what it declares is not seen outside."""
        before = dict(self.scope)
        self.indent += 1
        for _ in range(self.random.randint(1, size)):
            self.random.choice(
                [self.update] * 5 + [self.assignment] * 2 + [self.exchange] * 2 + [self.stored, self.atomic]
                + ([self.nested] * 2 if depth else [])
            )()  # fmt: skip
        self.indent -= 1
        self.scope = before

    def nested(self) -> None:
        if self.indent > 3:
            return self.update()
        makers = [self.loop, self.loop, self.branch, self.while_, self.moved, self.moved, self.matmul]
        self.random.choice(makers)()

    def matmul(self) -> None:
        """A loop of dots whose blocks lie in memory, with strides, masks and transpositions."""
        dtype, exact = self.dtype("f32", "f16", "i8"), self.chance(0.6)
        name = f"{'e' if exact else 'x'}_{dtype}"
        self.inputs[name] = None
        m, k, n = (self.random.choice([1, 4, 8, 16]) for _ in range(3))
        index, total = self.name("i"), self.name("v")
        result = "i32" if dtype == "i8" else "f32"
        start = self.of("i32", (m, n), 1)
        self.line(f"{total} = zg.cast(zg.and_({start.text}, 15), zg.{result})")
        lines = {}
        for what, sizes in (("a", (m, k)), ("b", (k, n))):
            transposed = self.chance(0.4)
            shape = sizes[::-1] if transposed else sizes
            row, column = self.random.choice([("16", "1"), ("1", "16"), ("16", "one"), ("n8", "1"), ("17", "1")])
            text = (
                f"zg.add(zg.mul(zg.expand(zg.arange(0, {shape[0]}), 1), {row}), "
                f"zg.mul(zg.expand(zg.arange(0, {shape[1]}), 0), {column}))"
            )
            lines[what] = self.name("q"), text, transposed, shape
        for place, text, _, _ in lines.values():
            self.line(f"{place} = {text}")
        self.line(f"for {index} in range(0, {self.random.choice(['2', 'n8', '3'])}):")
        self.indent += 1
        before = dict(self.scope)
        parts: list[str] = []
        for what, (place, _, transposed, shape) in lines.items():
            if self.chance(0.2):
                self.random.choice([self.stored, self.update])()
            mask = self.random.choice(
                ["", f", zg.less({place}, n)", f", zg.less(zg.expand(zg.arange(0, {shape[0]}), 1), n8)"]
            )
            if mask.count("expand"):
                mask = f", zg.broadcast({mask[2:]}, {shape})"
            other = ", 1" if mask and self.chance(0.5) else ", 0" if mask else ""
            got = self.name("g")
            self.line(f"{got} = zg.load(zg.add({name}, zg.add({place}, {index} * 16)){mask}{other})")
            if self.chance(0.3):
                self.scope[got] = dtype, shape
            if self.chance(0.5):
                whole = f"zg.cast(zg.and_(zg.cast({got}, zg.i32), 3), zg.{dtype})"
            else:
                whole = f"zg.cast(zg.minimum(zg.maximum(zg.rint(zg.cast({got}, zg.f32)), -3.0), 3.0), zg.{dtype})"
            whole = got if exact else whole
            parts.append(f"zg.trans({whole})" if transposed else whole)
        self.line(f"{total} = zg.dot({parts[0]}, {parts[1]}, {total})")
        if self.chance(0.3):
            self.random.choice([self.update, self.exchange, self.stored])()
        self.scope = before
        self.indent -= 1
        self.scope[total] = result, (m, n)

    def loop(self) -> None:
        index = self.name("i")
        bounds = self.random.choice(["0, 3", "0, n8", "4, -1, -2", "n8, 0, -1", "2, 2", "1, n8, 2", "0, 4, one"])
        self.line(f"for {index} in range({bounds}):")
        self.scope[index] = "i32", ()
        self.body(1)
        if self.chance(0.15):
            self.line(f"    if {index} == 2:")
            self.line("        " + self.random.choice(["break", "continue"]))
            self.line(f"    one_{index} = n8")
        self.scope.pop(index)

    def while_(self) -> None:
        counter = self.name("n")
        self.line(f"{counter} = 0")
        name = self.random.choice([n for n in self.scope])
        dtype, shape = self.scope[name]
        test = self.cast(self.fit(Drawn(name, dtype, shape), ()), "i1").text if self.chance(0.5) else f"{counter} < n8"
        self.line(f"while {counter} < {self.random.choice([2, 4, 5])} and {test}:")
        self.body(1)
        self.line(f"    {counter} += 1")

    def branch(self) -> None:
        self.line(f"if {self.condition(1).text}:")
        self.body(1)
        if self.chance(0.6):
            self.line("else:")
            self.body(1)

    def moved(self) -> None:
        """A loop that moves pointers, or carries offsets, and gathers of a carried tensor."""
        name, dtype = self.input()
        shape = self.random.choice([s for s in self.shapes if s])
        numel = math.prod(shape)
        pointer, total, index = self.name("p"), self.name("v"), self.name("i")
        offsets, _ = self.place(shape, 1)
        limit = self.random.choice([1, 2, 3])
        step = self.random.choice(["1", f"{numel}", "one", "n8"])
        form = self.random.choice(["pointers", "offsets", "base"])
        offsets = f"zg.mod({offsets}, {SIZE // 2})"
        start = {"pointers": f"zg.add({name}, {offsets})", "offsets": offsets, "base": name}[form]
        self.line(f"{pointer} = {start}")
        self.keep(self.of(dtype if dtype not in EIGHT_BITS else "f32", shape, 1), "v")
        total = list(self.scope)[-1]
        copies = self.keep(Drawn(offsets, "i32", shape), "q").text
        self.scope.pop(copies)
        self.line(f"for {index} in range(0, {limit}):")
        self.indent += 1
        at = {"pointers": pointer, "offsets": f"zg.add({name}, {pointer})", "base": f"zg.add({pointer}, {copies})"}[
            form
        ]
        mask = self.random.choice(["", f", zg.less({copies}, n)", f", zg.less(zg.add({copies}, {index}), n1), None"])
        mask = mask.replace(", None", "")
        values = Drawn(f"zg.load({at}{mask})", dtype, shape)
        before = dict(self.scope)
        values = self.keep(values, "l")
        value = self.cast(values, self.scope[total][0])
        if value.dtype == "i1":
            self.line(f"{total} = zg.xor({total}, {value.text})")
        else:
            self.line(f"{total} = zg.add({total}, {value.text})")
        if self.chance(0.3):
            self.random.choice([self.update, self.exchange, self.stored])()
        self.scope = before
        self.line(f"{pointer} = zg.add({pointer}, {step})")
        self.indent -= 1

    def draw(self) -> None:
        numels = [1 << self.random.choice([0, 1, 2, 3, 4, 4, 5, 5, 6, 7, 8, 9]) for _ in range(3)]
        self.shapes: list[Shape] = [self.shape_of(n) for n in numels]
        self.scope = {"n": ("i32", ()), "m": ("i64", ()), "s": ("f32", ()), "pid": ("i32", ())}
        self.line("pid = zg.program_id(0)")
        self.line("n8 = zg.and_(n, 7)")
        self.line("n1 = zg.add(zg.and_(n, 1023), 1)")
        first = self.keep(self.loaded(1), "v")
        for _ in range(self.random.randrange(4)):
            self.keep(self.of(first.dtype, first.shape, 1), "v")
        for _ in range(self.random.randint(2, 6)):
            self.random.choice(
                [self.assignment] * 4 + [self.stored, self.atomic, self.update, self.exchange] + [self.nested] * 4
            )()
        for name in list(self.scope)[::-1]:
            if name[0] in "vtlrmshco" and name not in ("m", "s"):
                self.written(Drawn(name, *self.scope[name]))

    # Running.

    @property
    def parameters(self) -> list[str]:
        return [*self.inputs, *(f"o_{dtype}" for dtype in self.outputs), "n", "m", "s", "one"]

    @property
    def source(self) -> str:
        return "\n".join([HELPERS, f"def kernel({', '.join(self.parameters)}):", *self.lines]) + "\n"

    def model(self) -> Any:
        source = self.source
        file = f"<drawn kernel {self.seed}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        space: dict[str, Any] = {"zg": zg}
        exec(compile(source, file, "exec"), space)
        types = [
            *(zg.ptr(getattr(zg, name.partition("_")[2])) for name in self.parameters[:-4]), zg.i32, zg.i64, zg.f32,
            zg.i32,
        ]  # fmt: skip
        return zg.kernel(space["kernel"]).triton(*types)

    def arguments(self) -> list[Any]:
        draws = np.random.default_rng(self.seed)
        results: list[Any] = []
        for name in self.inputs:
            dtype = name.partition("_")[2]
            # An array that only dots read has small whole numbers, so that their sums are exact.
            whole = name[0] == "e"
            results.append(draws.integers(-4, 5, SIZE).astype(DTYPES[dtype]) if whole else values(draws, dtype, SIZE))
        for dtype in self.outputs:
            results.append(np.zeros(SLOT * PROGRAMS, DTYPES[dtype]))
        n = int(draws.choice([0, 1, 3, 5, 6, 16, 17, 64, 100, 1000, 1024]))
        return [*results, n, int(draws.integers(0, 1 << 40)), float(draws.normal()), 1]


def values(draws: np.random.Generator, dtype: str, size: int) -> Array:
    """Numbers of a dtype: small ones, and extreme ones now and then."""
    kind: Any = DTYPES[dtype]
    if dtype == "i1":
        return draws.integers(0, 2, size).astype(kind)
    if dtype in INTEGERS:
        info = np.iinfo(kind)
        small = draws.integers(max(-9, info.min), 10, size).astype(kind)
        extreme = draws.choice(np.array([info.min, info.max, info.max // 2, 0, 1], kind), size)
        return np.where(draws.random(size) < draws.choice([0, 0.1]), extreme, small)
    small = (draws.integers(-40, 41, size) / 8).astype(kind)
    info = ml_dtypes.finfo(kind)
    special = [0.0, -0.0, np.nan, float(info.max), float(info.smallest_subnormal), np.inf, -np.inf]
    extreme = draws.choice(np.array(special, np.float64).astype(kind).astype(np.float64), size).astype(kind)
    normal = draws.normal(size=size).astype(kind)
    choice = np.where(draws.random(size) < 0.5, small, normal)
    return np.where(draws.random(size) < draws.choice([0, 0.1]), extreme, choice).astype(kind)


def outcome(kernel: Kernel, launch: Callable[[list[Any]], object]) -> tuple[list[Any], str]:
    """The arguments after a launch, and the message of its error, if there is one."""
    arguments = kernel.arguments()
    with np.errstate(all="ignore"):
        try:
            launch(arguments)
        except zg.KernelRuntimeError as error:
            return arguments, str(error)
    return arguments, ""


def differences(kernel: Kernel, actual: tuple[list[Any], str], expected: tuple[list[Any], str]) -> list[str]:
    """The elements in which two outcomes differ; any NaN equals any other."""
    if actual[1] or expected[1]:
        return [] if actual[1] == expected[1] else [f"{actual[1] or 'no error'}, expected {expected[1] or 'no error'}"]
    differing: list[str] = []
    for name, a, b in zip(kernel.parameters, actual[0], expected[0], strict=True):
        if not isinstance(a, np.ndarray):
            continue
        good = a.view(f"u{a.itemsize}") == b.view(f"u{a.itemsize}")
        if a.dtype.kind not in "biu":
            good |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
        if not good.all():
            at = np.flatnonzero(~good)
            text = ", ".join(f"[{i}] {a[i]!r}, expected {b[i]!r}" for i in at[:4])
            differing.append(f"{name}: {len(at)} differ: {text}")
    return differing


def check_natively(kernel: Kernel, options: CpuOptions = HOST) -> list[str]:
    """The differences between native code and the interpreter. The arrays lie between guard pages."""
    model, grid = kernel.model(), (kernel.grid,)
    expected = outcome(kernel, lambda arguments: run(model, None, grid, arguments))

    def launch(arguments: list[Any]) -> None:
        if POSSIBLE:
            for index, value in enumerate(arguments):
                if isinstance(value, np.ndarray):
                    arguments[index] = guarded(value, bool(kernel.seed % 2))
        run_cpu(model, grid, arguments, options=options)

    return differences(kernel, outcome(kernel, launch), expected)


def check_passes(kernel: Kernel) -> list[str]:
    """The differences after the first pass to a CPU model that changes the meaning of the kernel, as interpreted, or
    whose model is printed as another one."""
    model, grid = kernel.model(), (kernel.grid,)
    expected = outcome(kernel, lambda arguments: run(model, None, grid, arguments))
    for name, step in LOWER:
        model = step(model, 64)
        verify(model)
        if not zg.same_model(parse(str(model)), model):
            return [f"{name}: the model is printed as another one"]
        arguments, error = outcome(kernel, lambda a, model=model: run(model, None, grid, a))
        # Messages name the ops of the model.
        actual = differences(kernel, (arguments, bool(error) * expected[1] or error), expected)
        if actual:
            return [f"{name}: {line}" for line in actual]
    return []


def main() -> None:
    first, seconds = int(sys.argv[1]), float(sys.argv[2])
    passes = sys.argv[3:] == ["passes"]
    counts: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    start, seed = time.time(), first
    while time.time() - start < seconds:
        began = time.time()
        try:
            kernel = Kernel(seed)
            actual = check_natively(kernel, MACHINES[seed % len(MACHINES)]) or (passes and check_passes(kernel))
            counts["same" if not actual else "DIFFERENT"] += 1
            if actual:
                print(f"seed {seed}:", *actual[:4], sep="\n  ", flush=True)
        except zg.ZigguratError as error:
            text = re.sub(r"\d+", "#", str(error).splitlines()[0])[:150]
            counts[f"refused: {text}"] += 1
            if counts[f"refused: {text}"] == 1:
                print(f"seed {seed}: refused {str(error)[:700]}", flush=True)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:150]
            counts[text] += 1
            if counts[text] == 1:
                print(f"seed {seed}: RAISED", traceback.format_exc()[-1500:], flush=True)
        if time.time() - began > 5:
            print(f"seed {seed}: {time.time() - began:.1f} s", flush=True)
        seed += 1
    print(f"seeds {first} to {seed - 1}")
    for text, count in counts.most_common():
        print(count, text)


if __name__ == "__main__":
    main()
