"""Generated kernels through every pass to the GPU model: the model after each pass verifies, and no hazard is left.

They are rich in what makes layouts meet: control flow that carries tensors, pointers and tuples, and within it
reductions, scans, dots, transposes and accesses of memory. What they compute is of no interest here; that generated
kernels compute the right thing is tested in `tests/language/test_generated_kernels.py`.
"""

from __future__ import annotations

import linecache
import math
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import place

Shape = tuple[int, ...]
# The type of a variable: (dtype, shape), with a dtype like "*f16" for pointers; of a tuple, the types of its parts.
Kind = tuple[Any, ...]

SHAPES: tuple[Shape, ...] = ((16,), (64,), (16, 16), (16, 32), (32, 16), (64, 32), (8, 4), (2, 16, 16))
POINTERS = {"p": "f16", "q": "f32", "r": "i32"}
OPS = ("add", "sub", "mul", "maximum")


def is_pair(kind: Kind) -> bool:
    return isinstance(kind[0], tuple)


class Kernels:
    """A writer of one kernel: statements over variables whose types are known."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.variables: dict[str, Kind] = {"n": ("i32", ())}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    # Expressions: the text of one of a given type.

    def known(self, dtype: str, shape: Shape) -> str:
        """A variable of a type, or else a new value."""
        names = [name for name, kind in self.variables.items() if kind == (dtype, shape)]
        parts = [
            f"{name}[{index}]"
            for name, kind in self.variables.items()
            if is_pair(kind)
            for index, part in enumerate(kind)
            if part == (dtype, shape)
        ]
        if names + parts:
            return self.pick(*names, *parts)
        return self.made(dtype, shape)

    def made(self, dtype: str, shape: Shape) -> str:
        if not shape:
            return f"zg.cast(n, zg.{dtype})"
        if self.random.random() < 0.5:
            return f"zg.load({self.pointers(dtype, shape)}{self.pick('', f', {self.mask(shape)}')})"
        if self.random.random() < 0.5:
            return f"zg.full({shape}, n, zg.{dtype})"
        return f"zg.cast({self.offsets(shape)}, zg.{dtype})"

    def offsets(self, shape: Shape) -> str:
        """Numbers of elements, in rows, in columns, or with an unknown stride."""
        if len(shape) == 2:
            rows, columns = (f"zg.expand(zg.arange(0, {size}), {1 - axis})" for axis, size in enumerate(shape))
            strides = self.pick((shape[1], 1), (1, shape[0]), ("n", 1), (1, "n"))
            return f"zg.add(zg.mul({rows}, {strides[0]}), zg.mul({columns}, {strides[1]}))"
        return f"zg.reshape(zg.arange(0, {math.prod(shape)}), {shape})"

    def pointers(self, dtype: str, shape: Shape) -> str:
        names = [name for name, kind in self.variables.items() if kind == (f"*{dtype}", shape)]
        if names and self.random.random() < 0.6:
            return self.pick(*names)
        base = next(name for name, element in POINTERS.items() if element == dtype)
        return f"zg.add({base}, {self.offsets(shape)})"

    def mask(self, shape: Shape) -> str:
        return f"zg.compare({self.offsets(shape)}, n, K.LESS_THAN)"

    def expression(self, dtype: str, shape: Shape, depth: int) -> str:
        if depth <= 0:
            return self.known(dtype, shape)
        below = depth - 1
        ways = [
            lambda: self.known(dtype, shape),
            lambda: (
                f"zg.{self.pick(*OPS)}({self.expression(dtype, shape, below)}, {self.expression(dtype, shape, below)})"
            ),
            lambda: f"zg.cast({self.expression(self.pick('f16', 'f32', 'i32'), shape, below)}, zg.{dtype})",
            lambda: (
                f"({self.expression(dtype, shape, below)} if n > {self.pick(1, 5)} else {self.known(dtype, shape)})"
            ),
        ]
        if not shape:
            wide = self.pick(*SHAPES)
            ways.append(lambda: f"zg.cast(zg.{self.pick('max', 'sum')}({self.known(dtype, wide)}), zg.{dtype})")
        else:
            ways += self.shaped(dtype, shape, below)
        return self.pick(*ways)()

    def shaped(self, dtype: str, shape: Shape, below: int) -> list[Any]:
        """Further expressions of a tensor."""
        rank, numel = len(shape), math.prod(shape)
        axis = self.random.randrange(rank)
        others = [shape, *(other for other in SHAPES if math.prod(other) == numel)]

        def broadcast() -> str:
            narrow = self.expression(dtype, shape[:axis] + shape[axis + 1 :], below)
            return f"zg.broadcast(zg.expand({narrow}, {axis}), {shape})"

        def summed() -> str:
            copies = f"zg.sum({self.expression(dtype, shape, below)}, {axis}, keep_dims=True)"
            return f"zg.cast(zg.sub({self.known(dtype, shape)}, {copies}), zg.{dtype})"

        ways: list[Any] = [
            lambda: f"zg.reshape({self.expression(dtype, self.pick(*others), below)}, {shape})",
            lambda: f"zg.cast(zg.cumsum({self.expression(dtype, shape, below)}, {axis}), zg.{dtype})",
            lambda: f"zg.where({self.mask(shape)}, {self.expression(dtype, shape, below)}, {self.known(dtype, shape)})",
            lambda: f"zg.gather({self.known(dtype, shape)}, {self.known('i32', shape)}, {axis})",
            broadcast if rank > 1 else lambda: self.known(dtype, shape),
            summed,
        ]
        if rank == 1:
            wide = self.pick(*(other for other in SHAPES if len(other) == 2 and shape[0] in other), None)
            if wide is not None:
                along = 1 - wide.index(shape[0])
                ways.append(lambda: f"zg.max({self.expression(dtype, wide, below)}, {along})")
            ways.append(lambda: f"zg.sort({self.expression(dtype, shape, below)})")
        if rank == 2:
            ways.append(lambda: f"zg.trans({self.expression(dtype, shape[::-1], below)}, 1, 0)")
            if min(shape) >= 16:
                inner = self.pick(16, 32)
                ways += 3 * [lambda: self.dot(dtype, shape, inner, below)]
        return ways

    def dot(self, dtype: str, shape: Shape, inner: int, below: int) -> str:
        of = self.pick("f16", "f16", "f32")
        a, b = self.expression(of, (shape[0], inner), below), self.expression(of, (inner, shape[1]), below)
        acc = self.pick("", f", {self.known('f32', shape)}")
        return f"zg.cast(zg.dot({a}, {b}{acc}), zg.{dtype})"

    # Statements.

    def value(self, kind: Kind) -> str:
        """A new value of a variable's type."""
        if is_pair(kind):
            return f"({', '.join(self.value(part) for part in kind)})"
        dtype, shape = kind
        if dtype[0] == "*":
            names = [name for name, other in self.variables.items() if other == kind]
            return f"zg.add({self.pick(*names) if names else self.pointers(dtype[1:], shape)}, {self.pick(1, 16, 'n')})"
        return self.expression(dtype, shape, 2)

    def declaration(self) -> list[str]:
        dtype, shape = self.pick("f16", "f32", "i32"), self.pick(*SHAPES)
        kind: Kind = self.pick((dtype, shape), (dtype, shape), (f"*{dtype}", shape), (dtype, ()))
        if self.random.random() < 0.2:
            kind = (kind, (self.pick("f16", "f32"), self.pick(*SHAPES)))
        name = self.fresh()
        line = f"{name} = {self.value(kind)}"
        self.variables[name] = kind
        return [line]

    def update(self) -> list[str]:
        names = [name for name in self.variables if name[0] == "v"]
        if not names:
            return self.declaration()
        name = self.pick(*names)
        return [f"{name} = {self.value(self.variables[name])}"]

    def store(self) -> list[str]:
        dtype, shape = self.pick("f16", "f32", "i32"), self.pick(*SHAPES)
        if self.random.random() < 0.2:
            return [f"zg.atomic_add({self.pointers(dtype, shape)}, {self.known(dtype, shape)}, {self.mask(shape)})"]
        masked = self.pick("", f", {self.mask(shape)}")
        return [f"zg.store({self.pointers(dtype, shape)}, {self.known(dtype, shape)}{masked})"]

    def nested(self, depth: int) -> list[str]:
        form = self.pick("for", "for", "while", "if")
        outer = dict(self.variables)
        counter = self.fresh().replace("v", "i")
        if form == "while":
            head = [f"{counter} = 0", f"while {counter} < n:"]
            ends = [f"    {counter} += 1"]
        else:
            head = [
                f"for {counter} in range(0, {self.pick('n', 4)}):" if form == "for" else f"if n > {self.pick(1, 7)}:"
            ]
            ends = []
        inside = {**outer, **({counter: ("i32", ())} if form == "for" else {})}
        lines = [*head, *self.suite(depth, inside), *ends]
        if form == "if" and self.random.random() < 0.6:
            lines += ["else:", *self.suite(depth, outer)]
        self.variables = outer
        return lines

    def suite(self, depth: int, variables: dict[str, Kind]) -> list[str]:
        self.variables = dict(variables)
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            lines += self.pick(
                self.update, self.update, self.store, *([lambda: self.nested(depth - 1)] * (depth > 0))
            )()
        return ["    " + line for line in lines]

    def kernel(self) -> str:
        lines: list[str] = []
        for _ in range(self.random.randint(2, 4)):
            lines += self.declaration()
        for _ in range(self.random.randint(1, 3)):
            lines += self.pick(lambda: self.nested(1), lambda: self.nested(1), self.update, self.store)()
        for name, kind in self.variables.items():
            parts = [(f"{name}[{i}]", part) for i, part in enumerate(kind)] if is_pair(kind) else [(name, kind)]
            for text, (dtype, shape) in parts:
                if dtype[0] == "*":
                    lines.append(f"zg.store({text}, {self.made(dtype[1:], shape)})")
                elif name != "n":
                    at = self.pointers(dtype, shape) if shape else "q"
                    lines.append(f"zg.store({at}, {text if shape else f'zg.cast({text}, zg.f32)'})")
        return "\n".join([f"def kernel({', '.join(POINTERS)}, n):", *("    " + line for line in lines)])


def generated(random: Random) -> tuple[str, Op]:
    """A kernel's source and its Triton model."""
    source = Kernels(random).kernel() + "\n"
    file = "<a generated kernel>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"zg": zg, "K": zg.CompareKind}
    exec(compile(source, file, "exec"), space)
    hint = random.choice([zg.divisible, lambda type_: type_])
    types = [hint(zg.ptr(getattr(zg, element))) for element in POINTERS.values()]
    return source, zg.kernel(space["kernel"]).triton(*types, hint(zg.i32))


def checked(source: str, model: Op, options: CompileOptions) -> gpu.Module:
    """Place a kernel; each model is verified."""
    try:
        module = place(model, attrs.evolve(options, verify=True))
    except zg.ResourceError:
        raise
    except Exception as error:
        error.add_note(f"{options}\n{source}")
        raise
    return module


@settings(
    max_examples=25, phases=(Phase.explicit, Phase.reuse, Phase.generate), suppress_health_check=list(HealthCheck)
)
@given(st.randoms(use_true_random=False), st.sampled_from([1, 4, 8]), st.sampled_from(["sm_80", "sm_90a"]))
def test_generated_kernels_are_placed(random: Random, num_warps: int, target: str) -> None:
    source, model = generated(random)
    checked(source, model, CompileOptions(target, num_warps))


def test_generated_kernels_have_all_kinds_of_ops() -> None:
    """Otherwise the test above would prove little."""
    calls: set[type[Op]] = set()
    for seed in range(40):
        _, model = generated(Random(seed))
        calls |= {type(op) for op in model.walk()}
        if seed >= 12 and {tt.Dot, scf.While} <= calls:
            break
    assert {scf.For, scf.While, scf.If, tt.Dot, tt.Reduce, tt.Scan, tt.Trans, tt.Load, core.TupleLoad} <= calls


@pytest.mark.parametrize("num_warps", [1, 8])
def test_snapshots_are_in_the_order_of_the_passes(num_warps: int) -> None:
    snapshots: list[Snapshot] = []
    _, model = generated(Random(1))
    module = place(model, CompileOptions(num_warps=num_warps), snapshots)
    names = [snapshot.name for snapshot in snapshots]
    assert snapshots[-1].model is module
    assert names.index("prepare") < names.index("assign") < names.index("lower") < names.index("allocate")
    assert names[-1] == "barriers"
