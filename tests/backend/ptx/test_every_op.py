"""Every elementwise op of every type, every cast and every atomic access, as PTX that NVIDIA's assembler takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ziggurat.backend.ptx.assemble import assemble
from ziggurat.codemodel.dialects import arith, math
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SCALARS, ScalarType
from ziggurat.codemodel.verify import verify


def ops_of(template: type) -> list[str]:
    """The names of the ops of the math dialect that derive from a template."""
    results = [cls for cls in vars(math).values() if isinstance(cls, type) and issubclass(cls, template)]
    return [cls.NAME for cls in results if getattr(cls, "SPEC", None) is not None]


TARGETS = ("sm_80", "sm_90a")
LAYOUTS = {
    "owned": '"1 128 | 2 4 8 16 32 | 64 256"', "lanes": '"1 | 2 4 0 0 0 | 8 16"', "warps": '" | 1 2 4 8 16 | 32 0"',
    "everywhere": '"1 | 0 0 0 0 0 | 0 0"',
}  # fmt: skip
NUMEL = {"owned": 512, "lanes": 32, "warps": 64, "everywhere": 2}
INTEGERS = [name for name, scalar in SCALARS.items() if scalar.is_int]
FLOATS = [name for name, scalar in SCALARS.items() if scalar.is_float]
UNARY = {"arith.negf", *ops_of(math.FloatUnary)} - {"math.approximate"}  # It takes f32 alone.


class Kernel:
    """Writes a kernel: loads of tensors from its first parameters, ops on them, and stores of what they give."""

    def __init__(self, target: str, layout: str = "owned") -> None:
        self.target, self.layout = target, layout
        self.parameters: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.range = self.emit("i32", f"tt.make_range @start=0 @end={NUMEL[layout]}")

    def tensor(self, element: str) -> str:
        return f"tensor<x{NUMEL[self.layout]}, {element}, {LAYOUTS[self.layout]}>"

    def emit(self, element: str, op: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} : {self.tensor(element)} = {op};")
        return f"%v{self.count}"

    def pointers(self, element: str) -> str:
        name = f"%p{len(self.parameters)}"
        self.parameters.append(f"{name} : ptr<{element}>")
        return self.emit(
            f"ptr<{element}>", f"tt.addptr {self.emit(f'ptr<{element}>', f'tt.splat {name}')} {self.range}"
        )

    def load(self, element: str) -> str:
        return self.emit(element, f"tt.load {self.pointers(element)}")

    def store(self, element: str, value: str) -> None:
        self.lines.append(f"tt.store {self.pointers(element)} {value};")

    def ptx(self, options: CompileOptions = DEFAULT_OPTIONS) -> str:
        body = "\n".join(self.lines)
        module = parse(f"""gpu.module @target="{self.target}" @num_warps=4 ()void -> {{
            tt.func @"k" ({", ".join(self.parameters)})void -> {{ {body} tt.return; }}; unreachable; }};""")
        verify(module)
        assert isinstance(module, gpu.Module)
        return assemble(module, options).ptx


def binary(scalar: ScalarType) -> list[str]:
    """The names of the ops of two numbers of a type."""
    templates: list[type] = [arith.FloatBinary] if scalar.is_float else [arith.IntBinary]
    skipped = () if scalar.is_float else (arith.UnsignedBinary,) if scalar.signed else (arith.SignedBinary,)
    results: list[str] = []
    for cls in vars(arith).values():
        if isinstance(cls, type) and issubclass(cls, tuple(templates)) and not issubclass(cls, skipped or ()):
            name = cls.__dict__.get("NAME")
            if name is not None:
                results.append(name)
    return results


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", SCALARS)
@pytest.mark.parametrize("exact", [False, True])
def test_elementwise_ops(element: str, target: str, exact: bool, ptxas) -> None:
    scalar = SCALARS[element]
    if exact and not scalar.is_float:
        return
    kernel = Kernel(target)
    a, b, c = (kernel.load(element) for _ in range(3))
    names = binary(scalar)
    assert len(names) >= (9 if scalar.is_float else 10)
    for name in names:
        kernel.store(element, kernel.emit(element, f"{name} {a} {b}"))
    if scalar.is_float:
        for name in sorted(UNARY):
            kernel.store(element, kernel.emit(element, f"{name} {a}"))
        kernel.store(element, kernel.emit(element, f"math.fma {a} {b} {c}"))
        tests = [f"arith.cmpf {a} {b} @{predicate.value}" for predicate in arith.FloatPredicate]
    else:
        for op in {*ops_of(math.IntUnary)} - ({*ops_of(math.BitUnary)} if element == "i1" else set()):
            kernel.store(element, kernel.emit(element, f"{op} {a}"))
        if not scalar.signed:
            kernel.store(element, kernel.emit(element, f"tt.mulhiui {a} {b}"))
        sign = "s" if scalar.signed else "u"
        tests = [f"arith.cmpi {a} {b} @{p}" for p in ("eq", "ne", *(sign + name for name in ("lt", "le", "gt", "ge")))]
    for test in tests:
        condition = kernel.emit("i1", test)
        kernel.store(element, kernel.emit(element, f"arith.select {condition} {a} {c}"))
    # Without instructions for 8-bit floats, ptxas spills a few bytes of so many ops.
    ptxas(kernel.ptx(CompileOptions(exact_math=exact)), target, stack=scalar.is_fp8 and target == "sm_80")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", FLOATS)
def test_division_and_root_are_not_the_fast_ones(element: str, target: str, ptxas) -> None:
    kernel = Kernel(target)
    a, b = kernel.load(element), kernel.load(element)
    kernel.store(element, kernel.emit(element, f"tt.precise_divf {a} {b}"))
    kernel.store(element, kernel.emit(element, f"tt.precise_sqrt {a}"))
    ptx = kernel.ptx()
    kind = "f64" if element == "f64" else "f32"
    assert f"div.rn.{kind}" in ptx and f"sqrt.rn.{kind}" in ptx and "approx" not in ptx and "div.full" not in ptx
    ptxas(ptx, target)


def casts(source: ScalarType, target: ScalarType) -> Iterator[str]:
    """The ops that convert between two types."""
    narrower = target.bits < source.bits
    if source.bits == target.bits and source != target:
        yield "arith.bitcast {}"
    if source.is_float and target.is_float:
        if narrower:
            yield "arith.truncf {}"
            yield "arith.truncf {} @rounding=rtz"
        elif target.bits > source.bits:
            yield "arith.extf {}"
    elif source.is_float:
        yield f"arith.fpto{'s' if target.signed else 'u'}i {{}}"
    elif target.is_float:
        yield f"arith.{'s' if source.signed else 'u'}itofp {{}}"
    elif narrower:
        yield "arith.trunci {}"
    elif target.bits > source.bits:
        yield "arith.extsi {}"
        yield "arith.extui {}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", SCALARS)
def test_casts(element: str, target: str, ptxas) -> None:
    kernel = Kernel(target)
    value = kernel.load(element)
    count = 0
    for name, scalar in SCALARS.items():
        for op in casts(SCALARS[element], scalar):
            kernel.store(name, kernel.emit(name, op.format(value)))
            count += 1
    assert count >= 14
    if element == "i64":
        pointers = kernel.emit("ptr<f32>", f"tt.int_to_ptr {value}")
        pointers = kernel.emit("ptr<i32>", f"tt.bitcast {pointers}")
        kernel.store("i64", kernel.emit("i64", f"tt.ptr_to_int {pointers}"))
    ptxas(kernel.ptx(), target)


KINDS = {
    "add": INTEGERS, "fadd": FLOATS, "fmax": FLOATS, "fmin": FLOATS,
    "max": ["i8", "i16", "i32", "i64"], "min": ["i8", "i16", "i32", "i64"],
    "umax": ["u8", "u16", "u32", "u64", "i1"], "umin": ["u8", "u16", "u32", "u64", "i1"],
    "and": INTEGERS, "or": INTEGERS, "xor": INTEGERS,
    "xchg": list(SCALARS),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", SCALARS)
def test_atomics(element: str, target: str, ptxas) -> None:
    """Atomics of each kind: with and without a result and a mask, in each order and scope."""
    orders = [(sem, scope) for sem in ("relaxed", "acquire", "release", "acq_rel") for scope in ("cta", "gpu", "sys")]
    kinds = [kind for kind, elements in KINDS.items() if element in elements]
    assert "xchg" in kinds and len(kinds) >= 4 - (element == "i1")
    kernel = Kernel(target, "everywhere" if target == "sm_80" else "owned")
    for number, kind in enumerate(kinds):
        pointers, value, mask = kernel.pointers(element), kernel.load(element), kernel.load("i1")
        for step, argument in enumerate((f"{value} {mask}", value)):
            sem, scope = orders[(5 * number + 7 * step) % len(orders)]
            op = f"tt.atomic_rmw {pointers} {argument} @{kind} @sem={sem} @scope={scope}"
            kernel.store(element, kernel.emit(element, op))
            kernel.emit(element, op)
            if kind == "xchg":
                swap = f"tt.atomic_cas {pointers} {value} {value} @sem={sem} @scope={scope}"
                kernel.store(element, kernel.emit(element, swap))
    # Without instructions for 8-bit floats, ptxas 13 keeps to 32 registers and spills a few bytes.
    ptxas(kernel.ptx(), target, stack=SCALARS[element].is_fp8 and target == "sm_80")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ["i1", "u8", "bf16", "f32", "i64"])
def test_results_reach_all_copies(element: str, layout: str, ptxas) -> None:
    kernel = Kernel("sm_90a", layout)
    pointers, value = kernel.pointers(element), kernel.load(element)
    kernel.store(element, kernel.emit(element, f"tt.atomic_rmw {pointers} {value} @xchg @sem=relaxed"))
    ptx = kernel.ptx()
    ptxas(ptx, "sm_90a")
    assert ("zg_slot" in ptx) == (layout in ("warps", "everywhere"))
    assert ("shfl.sync.idx" in ptx) == (layout == "lanes")
    assert ptx.count("bar.sync") == (2 if "zg_slot" in ptx else 0)


def test_fast_and_exact_functions() -> None:
    kernel = Kernel("sm_90a")
    x = kernel.load("f32")
    for name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt"):
        kernel.store("f32", kernel.emit("f32", f"math.{name} {x}"))
    kernel.store("f32", kernel.emit("f32", f"arith.divf {x} {x}"))
    for name in ("log2", "sin", "cos"):
        kernel.store("f32", kernel.emit("f32", f"math.approximate {x} @{name}"))
    fast, exact = kernel.ptx(), kernel.ptx(CompileOptions(exact_math=True))
    instructions = (
        "ex2.approx.ftz.f32",
        "sqrt.approx.ftz.f32",
        "rsqrt.approx.ftz.f32",
        "div.full.f32",
        "lg2.approx.ftz.f32",
        "sin.approx.ftz.f32",
        "cos.approx.ftz.f32",
    )
    assert all(text in fast for text in instructions)
    assert not any(text in exact for text in (*instructions, ".approx"))
    assert "sqrt.rn.f32" in exact and "div.rn.f32" in exact
