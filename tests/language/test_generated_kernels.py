"""Generated kernels: expressions over a few dtypes and shapes, with loops, branches and returns.

Each piece of a kernel is made as two things: its source text, and a function that computes the same with NumPy.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable
from random import Random
from typing import Any

import attrs
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

DTYPES = {
    "i8": np.int8, "u8": np.uint8, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "f16": np.float16,
    "f32": np.float32,
}  # fmt: skip
SHAPES = ((), (4,), (2, 4), (2, 1))
Env = dict[str, Any]


@attrs.frozen
class Expression:
    """A part of a kernel: its text, its dtype and shape, and what it is for variables' values."""

    text: str
    dtype: str
    shape: tuple[int, ...]
    value: Callable[[Env], Any]


def promoted(a: str, b: str) -> str:
    """Kind, then width, then unsigned; of these floats none have one width."""
    if (a[0] == "f") != (b[0] == "f"):
        return a if a[0] == "f" else b
    if a[1:] != b[1:]:
        return a if int(a[1:]) > int(b[1:]) else b
    return a if a == b else f"u{a[1:]}"


def as_dtype(value: Any, dtype: str) -> Any:
    return np.asarray(value).astype(DTYPES[dtype])


def c_quotient(a: Any, b: Any) -> Any:
    exact = a.astype(object), b.astype(object)
    return np.asarray((np.abs(exact[0]) // np.abs(exact[1])) * np.sign(exact[0]) * np.sign(exact[1])).astype(a.dtype)


def extreme(a: Any, b: Any, larger: bool) -> Any:
    """The other operand for a NaN; -0.0 is less than 0.0, an order that NumPy leaves open."""
    result = np.asarray((np.fmax if larger else np.fmin)(a, b))
    if result.dtype.kind == "f":
        negative = np.signbit(a) & np.signbit(b) if larger else np.signbit(a) | np.signbit(b)
        result = np.where((a == 0) & (b == 0), np.where(negative, -result.dtype.type(0), result.dtype.type(0)), result)
    return result


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "minimum": lambda a, b: extreme(a, b, False), "maximum": lambda a, b: extreme(a, b, True),
    "and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and_": "&", "or_": "|", "xor": "^"}
KINDS = {"LESS_THAN": np.less, "EQUAL": np.equal, "GREATER_THAN_OR_EQUAL": np.greater_equal, "NOT_EQUAL": np.not_equal}
SIGNS = {"LESS_THAN": "<", "EQUAL": "==", "GREATER_THAN_OR_EQUAL": ">=", "NOT_EQUAL": "!="}


def ordered(x: Any) -> Any:
    """Sorted along the last axis, -0.0 before 0.0."""
    rows = [sorted(row, key=lambda e: (e != e, e, not np.signbit(e))) for row in x.reshape(-1, x.shape[-1])]
    return np.array(rows, x.dtype).reshape(x.shape)


class Generator:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.variables: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.fresh = 0

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    # Expressions.

    def variable(self, scalar: bool = False) -> Expression:
        names = [n for n, (_, shape) in self.variables.items() if not scalar or not shape]
        name = self.random.choice(names)
        dtype, shape = self.variables[name]
        return Expression(name, dtype, shape, lambda env: env[name])

    def expression(self, depth: int, scalar: bool = False) -> Expression:
        if depth == 0 or self.random.random() < 0.15:
            return self.variable(scalar)
        make = self.random.choice(
            [self.binary, self.binary, self.literal, self.choice, self.cast, self.divided, self.conditional]
            + ([] if scalar else [self.reduced, self.reshaped, self.scanned, self.product])
        )
        return make(depth - 1, scalar)

    def binary(self, depth: int, scalar: bool) -> Expression:
        a, b = self.expression(depth, scalar), self.expression(depth, scalar)
        dtype = promoted(a.dtype, b.dtype)
        names = list(BINARY) if dtype[0] != "f" else ["add", "sub", "mul", "minimum", "maximum"]
        name = self.random.choice(names)
        function = BINARY[name]
        text = f"zg.{name}({a.text}, {b.text})"
        if not a.shape and not b.shape and name in OPERATORS and self.random.random() < 0.5:
            text = f"({a.text} {OPERATORS[name]} {b.text})"
        return Expression(
            text, dtype, np.broadcast_shapes(a.shape, b.shape),
            lambda env: function(as_dtype(a.value(env), dtype), as_dtype(b.value(env), dtype)),
        )  # fmt: skip

    def literal(self, depth: int, scalar: bool) -> Expression:
        a = self.expression(depth, scalar)
        number: Any = self.random.choice([0, 1, 3, 7, 100, 0.5, 2.25])
        dtype = "f32" if isinstance(number, float) and a.dtype[0] != "f" else a.dtype
        name = self.random.choice(["add", "sub", "mul", "maximum"])
        on_the_left = self.random.random() < 0.5
        function = BINARY[name]

        def value(env: Env) -> Any:
            pair = [as_dtype(a.value(env), dtype), as_dtype(number, dtype)]
            return function(*(pair if on_the_left else pair[::-1]))

        arguments = (a.text, repr(number)) if on_the_left else (repr(number), a.text)
        return Expression(f"zg.{name}({', '.join(arguments)})", dtype, a.shape, value)

    def condition(self, depth: int, scalar: bool) -> tuple[str, tuple[int, ...], Callable[[Env], Any]]:
        a, b = self.expression(depth, scalar), self.expression(depth, scalar)
        dtype = promoted(a.dtype, b.dtype)
        kind = self.random.choice(list(KINDS))
        text = f"({a.text} {SIGNS[kind]} {b.text})" if scalar else f"zg.compare({a.text}, {b.text}, K.{kind})"
        return (
            text,
            np.broadcast_shapes(a.shape, b.shape),
            lambda env: KINDS[kind](as_dtype(a.value(env), dtype), as_dtype(b.value(env), dtype)),
        )

    def choice(self, depth: int, scalar: bool) -> Expression:
        text, shape, test = self.condition(depth, False if not scalar else True)
        a, b = self.expression(depth, scalar), self.expression(depth, scalar)
        dtype = promoted(a.dtype, b.dtype)
        return Expression(
            f"zg.where({text}, {a.text}, {b.text})", dtype, np.broadcast_shapes(shape, a.shape, b.shape),
            lambda env: np.where(test(env), as_dtype(a.value(env), dtype), as_dtype(b.value(env), dtype)),
        )  # fmt: skip

    def conditional(self, depth: int, scalar: bool) -> Expression:
        """Python's `a if c else b`; of tensors too, with a scalar condition, of one type."""
        text, _, test = self.condition(depth, True)
        if self.random.random() < 0.3:
            other, _, second = self.condition(depth, True)
            both = self.random.random() < 0.5
            first, text = test, f"({text} {'and' if both else 'or'} {other})"
            test = lambda env: (first(env) and second(env)) if both else (first(env) or second(env))  # noqa: E731
        a = self.expression(depth, scalar)
        b = self.fitted(self.expression(depth, True), a.dtype, a.shape)
        return Expression(
            f"({a.text} if {text} else {b.text})", a.dtype, a.shape,
            lambda env: a.value(env) if test(env) else b.value(env),
        )  # fmt: skip

    def fitted(self, a: Expression, dtype: str, shape: tuple[int, ...]) -> Expression:
        """An expression brought to a type; of a scalar, or of the shape already."""
        text = f"zg.cast({a.text}, zg.{dtype})" if a.dtype != dtype else a.text
        if a.shape != shape:
            text = f"zg.broadcast({text}, {shape})"
        return Expression(
            text, dtype, shape, lambda env: np.broadcast_to(converted(a.value(env), a.dtype, dtype), shape)
        )

    def cast(self, depth: int, scalar: bool) -> Expression:
        a = self.expression(depth, scalar)
        return self.fitted(a, self.random.choice(list(DTYPES)), a.shape)

    def divided(self, depth: int, scalar: bool) -> Expression:
        a = self.expression(depth, scalar)
        if a.dtype[0] == "f":
            return Expression(f"zg.abs(zg.neg({a.text}))", a.dtype, a.shape, lambda env: np.abs(a.value(env)))
        by = self.random.choice([1, 2, 5, 7])
        divisor = np.asarray(by, DTYPES[a.dtype])
        if self.random.random() < 0.5:
            return Expression(
                f"zg.floordiv({a.text}, {by})", a.dtype, a.shape,
                lambda env: c_quotient(np.asarray(a.value(env)), divisor),
            )  # fmt: skip
        return Expression(
            f"zg.mod({a.text}, {by})", a.dtype, a.shape, lambda env: np.fmod(np.asarray(a.value(env)), divisor)
        )

    def tensor(self, depth: int) -> Expression:
        a = self.expression(depth)
        return a if a.shape else self.fitted(a, a.dtype, (4,))

    def reduced(self, depth: int, scalar: bool) -> Expression:
        a = self.tensor(depth)
        axis = self.random.choice([None, *range(len(a.shape))])
        # A shape of two elements would not go with the others.
        keep = axis is not None and (axis == 1 or self.random.random() < 0.5)
        name = self.random.choice(["max", "min"] if a.dtype[0] == "f" else ["max", "min", "sum"])
        dtype = f"{a.dtype[0]}32" if name == "sum" and a.dtype[1:] == "8" else a.dtype
        shape = () if axis is None else tuple(1 if i == axis else n for i, n in enumerate(a.shape) if keep or i != axis)

        def value(env: Env) -> Any:
            x = np.asarray(a.value(env))
            if name == "sum":
                return x.sum(axis, DTYPES[dtype], keepdims=keep)
            parts = np.moveaxis(x.reshape(-1) if axis is None else x, axis or 0, 0)
            result = functools.reduce(lambda p, q: extreme(p, q, name == "max"), parts)
            return np.expand_dims(result, axis) if keep else result

        return Expression(f"zg.{name}({a.text}, {axis}, keep_dims={keep})", dtype, shape, value)

    def scanned(self, depth: int, scalar: bool) -> Expression:
        a = self.tensor(depth)
        if a.dtype[0] == "f":
            return Expression(f"zg.sort({a.text})", a.dtype, a.shape, lambda env: ordered(a.value(env)))
        axis = self.random.randrange(len(a.shape))
        dtype = f"{a.dtype[0]}32" if a.dtype[1:] == "8" else a.dtype
        return Expression(
            f"zg.cumsum({a.text}, {axis})", dtype, a.shape,
            lambda env: np.cumsum(a.value(env), axis, DTYPES[dtype]),
        )  # fmt: skip

    def product(self, depth: int, scalar: bool) -> Expression:
        """A dot whose sums are exact, large enough for the matrix units: of i8 or f16, 16 or 64 × 32 by
        32 × 16, or two of them in a batch."""
        a = self.tensor(depth)
        kind = self.random.choice(["i8", "i8", "f16"])
        batched = self.random.random() < 0.4
        rows = 16 if batched else self.random.choice([16, 64])
        # Other values are compared with zero: casts of floats out of range have no defined result.
        whole = a.dtype == kind == "i8"
        line = a.text if whole else f"zg.cast(zg.compare({a.text}, 0, K.GREATER_THAN), zg.{kind})"
        count = 32 // int(np.prod(a.shape))
        line = f"zg.reshape(zg.broadcast(zg.expand(zg.ravel({line}), 1), ({32 // count}, {count})), (32,))"
        numbers = f"zg.cast(zg.arange(0, {rows}), zg.{kind})"
        left = f"zg.broadcast(zg.add(zg.expand({numbers}, 1), zg.expand({line}, 0)), ({rows}, 32))"
        right = f"zg.broadcast(zg.expand({line}, 1), (32, 16))"
        if batched:
            which = f"zg.expand(zg.expand(zg.cast(zg.arange(0, 2), zg.{kind}), 1), 1)"
            left, right = f"zg.add(zg.expand({left}, 0), {which})", f"zg.broadcast(zg.expand({right}, 0), (2, 32, 16))"
        dtype: Any = np.int8 if kind == "i8" else np.int32

        def value(env: Env) -> Any:
            operand = np.asarray(a.value(env))
            repeated = np.repeat((operand if whole else operand > 0).astype(dtype).ravel(), count)
            matrix = np.arange(rows, dtype=dtype)[:, None] + repeated[None, :]
            if batched:
                matrix = matrix + np.arange(2, dtype=dtype)[:, None, None]
            sums = matrix.astype(np.int32) @ np.broadcast_to(repeated[:, None], (32, 16)).astype(np.int32)
            return sums.sum(-1, dtype=np.int32).reshape(2, 4, -1).sum(2, dtype=np.int32)

        sums = f"zg.sum(zg.dot({left}, {right}), {2 if batched else 1})"
        text = f"zg.sum(zg.reshape({sums}, (2, 4, {rows // (4 if batched else 8)})), 2)"
        return Expression(text if kind == "i8" else f"zg.cast({text}, zg.i32)", "i32", (2, 4), value)

    def reshaped(self, depth: int, scalar: bool) -> Expression:
        a = self.tensor(depth)
        if a.shape == (2, 4):
            return Expression(
                f"zg.trans(zg.reshape(zg.trans({a.text}), (2, 4)), 0, 1)", a.dtype, a.shape,
                lambda env: np.asarray(a.value(env)).T.reshape(2, 4),
            )  # fmt: skip
        n = int(np.prod(a.shape))
        if n == 4:
            return Expression(f"zg.ravel({a.text})", a.dtype, (4,), lambda env: np.ravel(a.value(env)))
        return a

    # Statements: lines, and a function that changes the environment. A function gives True once it has returned.

    def assignment(self, depth: int) -> tuple[list[str], Callable[[Env], Any]]:
        a = self.expression(depth)
        name = self.name("v")
        self.variables[name] = (a.dtype, a.shape)

        def do(env: Env) -> None:
            env[name] = np.asarray(a.value(env))

        return [f"{name} = {a.text}"], do

    def update(self) -> tuple[list[str], Callable[[Env], Any]]:
        """A new value of its own type for a variable."""
        name = self.random.choice([n for n in self.variables if n[0] == "v"])
        dtype, shape = self.variables[name]
        a = self.expression(2)
        for _ in range(4):
            if a.shape == shape or not a.shape:
                break
            a = self.expression(1)
        else:
            a = self.expression(1, scalar=True)
        if a.shape and a.shape != shape:
            a = self.expression(0, scalar=True)
        fitted = self.fitted(a, dtype, shape)

        def do(env: Env) -> None:
            env[name] = np.asarray(fitted.value(env))

        return [f"{name} = {fitted.text}"], do

    def block(self, size: int, depth: int) -> tuple[list[str], Callable[[Env], Any]]:
        """Statements of a body: what it declares is not seen outside."""
        before = dict(self.variables)
        lines: list[str] = []
        steps: list[Callable[[Env], Any]] = []
        for _ in range(self.random.randint(1, size)):
            make = self.random.choice([self.update, self.update, self.local, *([self.nested] if depth else [])])
            more, step = make() if make is not self.nested else self.nested(depth - 1)  # type: ignore[call-arg]
            lines += more
            steps.append(step)
        self.variables = before

        def do(env: Env) -> None:
            for step in steps:
                step(env)

        return lines, do

    def local(self) -> tuple[list[str], Callable[[Env], Any]]:
        a = self.expression(2)
        name = self.name("t")
        self.variables[name] = (a.dtype, a.shape)

        def do(env: Env) -> None:
            env[name] = np.asarray(a.value(env))

        return [f"{name} = {a.text}"], do

    def nested(self, depth: int = 1) -> tuple[list[str], Callable[[Env], Any]]:
        return self.random.choice([self.loop, self.branch, self.while_])(depth)

    def loop(self, depth: int) -> tuple[list[str], Callable[[Env], Any]]:
        index = self.name("i")
        start, stop, step = self.random.choice([(0, 3, 1), (4, -1, -2), (2, 2, 1), (-1, 5, 3), (3, 0, -1)])
        count = (
            f"range({start}, {stop} + zero, {step})"
            if self.random.random() < 0.5
            else f"range({start}, {stop}, {step})"
        )
        outer = dict(self.variables)
        self.variables[index] = ("i32", ())
        lines, body = self.block(2, depth)
        self.variables = outer

        def do(env: Env) -> None:
            for number in range(start, stop, step):
                env[index] = np.int32(number)
                body(env)

        return [f"for {index} in {count}:", *("    " + line for line in lines)], do

    def while_(self, depth: int) -> tuple[list[str], Callable[[Env], Any]]:
        text, _, test = self.condition(1, True)
        counter = self.name("n")
        lines, body = self.block(2, depth)

        def do(env: Env) -> None:
            count = 0
            while count < 3 and test(env):
                body(env)
                count += 1

        return [
            f"{counter} = 0", f"while {counter} < 3 and {text}:", *("    " + line for line in lines),
            f"    {counter} += 1",
        ], do  # fmt: skip

    def branch(self, depth: int) -> tuple[list[str], Callable[[Env], Any]]:
        text, _, test = self.condition(1, True)
        then_lines, then = self.block(2, depth)
        else_lines, other = self.block(2, depth) if self.random.random() < 0.7 else (["pass"], lambda env: None)

        def do(env: Env) -> None:
            (then if test(env) else other)(env)

        return [
            f"if {text}:", *("    " + line for line in then_lines), "else:", *("    " + line for line in else_lines),
        ], do  # fmt: skip


def converted(value: Any, source: str, target: str) -> Any:
    """A cast; floats out of an integer's range saturate, and NaN is 0."""
    array = np.asarray(value)
    if source[0] == "f" and target[0] != "f":
        info = np.iinfo(DTYPES[target])
        wide = np.trunc(array.astype(np.float64))
        inside = np.where(np.isnan(wide) | (wide >= float(info.max)) | (wide <= float(info.min)), 0, wide)
        result = inside.astype(DTYPES[target])
        result = np.where(wide >= float(info.max), DTYPES[target](info.max), result)
        return np.where(wide <= float(info.min), DTYPES[target](info.min), result)
    return array.astype(DTYPES[target])


INPUTS = {
    "a": ("i32", ()),
    "b": ("f32", ()),
    "x": ("i32", (4,)),
    "y": ("f32", (2, 4)),
    "u": ("u8", (2, 1)),
    "w": ("i64", (4,)),
}


def inputs() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.integers(0 if dtype[0] == "u" else -9, 10, (3, *s)).astype(DTYPES[dtype])
        for n, (dtype, s) in INPUTS.items()
    }
    arrays["y"] /= 4
    return arrays


# Not shrunk: that takes minutes, and a seed of a shorter kernel is as good.
@settings(
    max_examples=60, phases=(Phase.explicit, Phase.reuse, Phase.generate), suppress_health_check=list(HealthCheck)
)
@given(st.randoms(use_true_random=False))
def test_generated_kernels(compute, random: Random):
    with np.errstate(all="ignore"):
        check(compute, random)


def check(compute: Any, random: Random) -> None:
    generator = Generator(random)
    generator.variables = dict(INPUTS)
    lines, steps = ["zero = a - a"], []
    for number in range(random.randint(2, 5)):
        more, step = generator.assignment(3) if number < 2 or random.random() < 0.4 else generator.nested(1)
        lines += more
        steps.append(step)
    arrays = inputs()
    outputs = [n for n in generator.variables if n[0] == "v"]
    rows: dict[str, list[Any]] = {name: [] for name in outputs}
    for program in range(3):
        env: Env = {name: array[program] for name, array in arrays.items()}
        for step in steps:
            step(env)
        for name in outputs:
            dtype, shape = generator.variables[name]
            rows[name].append(np.broadcast_to(as_dtype(env[name], dtype), shape))
    # A copy, so that a result is never an input itself.
    lines += [f"{name}_result = {name}" for name in outputs]
    compute(
        textwrap.dedent("\n".join(lines)),
        {**arrays},
        {f"{name}_result": np.stack(values) for name, values in rows.items()},
    )
