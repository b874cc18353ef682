"""Emission of arith and math: an LLVM instruction, an intrinsic or a routine for each register.

exp, exp2, log, log2, sqrt and rsqrt of f32 are the machine's fast instructions, as in Triton; with `exact_math` they
are accurate. sin, cos, tanh and erf are routines (`accurate.py`), and so are all functions of f64. Functions of smaller
floats are computed in f32. `docs/accuracy.md` has the error bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from ziggurat.backend.ptx import pairs
from ziggurat.backend.ptx.accurate import accurate
from ziggurat.backend.ptx.casts import narrow, rounded, widen, widened
from ziggurat.backend.ptx.emitter import Argument, Emitted, Emitter, emits
from ziggurat.backend.ptx.routines import literal, llvm_type, suffix
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, element_of, f32, f64, scalar_element

# One instruction for each register: {k} is the type of the first operand, {r} that of the result, {p} the predicate.
_PLAIN: dict[type[Op], str] = {
    **{
        cls: f"{name} {{k}} {{0}}, {{1}}"
        for cls, name in (
            (arith.SubI, "sub"), (arith.AndI, "and"), (arith.OrI, "or"), (arith.XOrI, "xor"), (arith.DivSI, "sdiv"),
            (arith.DivUI, "udiv"), (arith.RemSI, "srem"), (arith.RemUI, "urem"),
        )
    },
    arith.Select: "select i1 {0}, {r} {1}, {r} {2}",
    arith.ExtSI: "sext {k} {0} to {r}", arith.ExtUI: "zext {k} {0} to {r}", arith.TruncI: "trunc {k} {0} to {r}",
    arith.CmpI: "icmp {p} {k} {0}, {1}", tt.IntToPtr: "inttoptr {k} {0} to {r}", tt.PtrToInt: "ptrtoint {k} {0} to {r}",
}  # fmt: skip


# LLVM's intrinsic by op, with its arguments after the operands.
_INTRINSICS: dict[type[Op], tuple[str, list[Argument]]] = {
    arith.MaxSI: ("smax", []), arith.MinSI: ("smin", []), arith.MaxUI: ("umax", []), arith.MinUI: ("umin", []),
    math.AbsI: ("abs", [("i1", "false")]), math.CtPop: ("ctpop", []), math.CtLz: ("ctlz", [("i1", "false")]),
    math.BitReverse: ("bitreverse", []),
}  # fmt: skip

_CHOICES: dict[type[Op], str] = {
    arith.MaximumF: "maximum", arith.MinimumF: "minimum", arith.MaxNumF: "maxnum", arith.MinNumF: "minnum",
}  # fmt: skip
# LLVM's instruction or intrinsic for two floats.
BINARY: dict[type[Op], str] = {arith.AddF: "fadd", arith.SubF: "fsub", arith.MulF: "fmul", **_CHOICES}


@emits(arith.ConstantOp)
def _constant(emitter: Emitter, op: arith.ConstantOp) -> Emitted:
    text = literal(op.value, scalar_element(op.type))
    if isinstance(op.type, TensorType):
        assert op.type.layout is not None
        return [text] * op.type.layout.num_registers
    return text


@emits(*_PLAIN)
def _plain(emitter: Emitter, op: Op) -> Emitted:
    text, kinds = _PLAIN[type(op)], {"k": llvm_type(op.operands[0].type), "r": llvm_type(op.result.type)}
    if isinstance(op, arith.CmpI):
        kinds["p"] = op.predicate.value

    def make(*values: str) -> str:
        return emitter.emit(text.format(*values, **kinds))

    return emitter.each(op.result.type, op.operands, make)


@emits(arith.AddI)
def _add(emitter: Emitter, op: arith.AddI) -> Emitted:
    """The sum of what registers share is computed once: (x + 3) + (y + 4) is (x + y) + 7."""
    kind, sums = llvm_type(op.result.type), dict[tuple[str, str], str]()

    def add(a: str, b: str) -> str:
        (x, i), (y, j) = emitter.parts(a), emitter.parts(b)
        if not x or not y:
            return emitter.offset(kind, x or y, i + j)
        if (x, y) not in sums:
            sums[x, y] = emitter.emit(f"add {kind} {x}, {y}")
        return emitter.offset(kind, sums[x, y], i + j)

    return emitter.each(op.result.type, op.operands, add)


@emits(arith.MulI)
def _multiply(emitter: Emitter, op: arith.MulI) -> Emitted:
    """The product of what registers share is computed once: (x + 8) * 4 is x * 4 + 32.

    By a variable, a product adds to that of the register before: (x + 8) * y is x * y + 8 * y. LLVM would join the sum
    of x * y, used once, to a product again.
    """
    kind, steps = llvm_type(op.result.type), dict[tuple[int, str], str]()
    last: dict[tuple[str, str], tuple[int, str]] = {}

    def multiply(a: str, b: str) -> str:
        if b in emitter.offsets or a[0] != "%":
            a, b = b, a
        (x, i), (y, j) = emitter.parts(a), emitter.parts(b)
        if (x, b) not in last:
            last[x, b] = (
                (i, emitter.emit(f"mul {kind} {a}, {b}")) if y else (0, emitter.emit(f"mul {kind} {x or 0}, {b}"))
            )
        before, product = last[x, b]
        if not y:
            return emitter.offset(kind, product, i * j)
        if i == before:
            return product
        step = i - before, b
        if step not in steps:
            steps[step] = emitter.emit(f"mul {kind} {b}, {i - before}")
        last[x, b] = i, emitter.emit(f"add {kind} {product}, {steps[step]}")
        return last[x, b][1]

    return emitter.each(op.result.type, op.operands, multiply)


@emits(*_INTRINSICS)
def _intrinsic(emitter: Emitter, op: Op) -> Emitted:
    operand = op.operands[0]
    if isinstance(op, math.AbsI) and not scalar_element(operand.type).signed:
        return emitter.values[operand]
    kind, (name, rest) = llvm_type(operand.type), _INTRINSICS[type(op)]

    def make(*values: str) -> str:
        return emitter.call(kind, f"llvm.{name}.{kind}", *((kind, value) for value in values), *rest)

    return emitter.each(op.result.type, op.operands, make)


@emits(arith.ShlI, arith.ShrSI, arith.ShrUI)
def _shift(emitter: Emitter, op: Any) -> Emitted:
    """A shift by the width or more shifts everything out; a signed number keeps its sign."""
    kind = llvm_type(op.lhs.type)
    bits = scalar_element(op.lhs.type).bits
    name = {arith.ShlI: "shl", arith.ShrSI: "ashr", arith.ShrUI: "lshr"}[type(op)]

    def shift(value: str, by: str) -> str:
        if by.isdecimal() and int(by) < bits:
            return emitter.emit(f"{name} {kind} {value}, {by}")
        if name == "ashr":
            by = emitter.of(kind, by).call("llvm.umin", bits - 1).name
            return emitter.emit(f"ashr {kind} {value}, {by}")
        within = emitter.of(kind, by).test("ult", bits)
        shifted = emitter.of(kind, emitter.emit(f"{name} {kind} {value}, {by}"))
        return within.select(shifted, 0).name

    return emitter.each(op.result.type, op.operands, shift)


# A function from an LLVM type and one to three values of it to a value.
Compute = Callable[[str, str], str] | Callable[[str, str, str], str] | Callable[[str, str, str, str], str]


def computed(emitter: Emitter, op: Op, compute: Compute, bits: int = 32) -> Emitted:
    """The result of an op on floats: in their type, or in f32 where that has fewer than `bits` bits."""
    scalar, make = scalar_element(op.operands[0].type), cast("Callable[..., str]", compute)
    registers = emitter.layout(op.result.type).unique_registers
    columns = [[emitter.at(value, register) for register in registers] for value in op.operands]
    if scalar.bits >= bits:
        made = pairs.applied(emitter, columns, scalar, make)
    else:
        wide = (widen(emitter, column, scalar, f32) for column in columns)
        made = narrow(emitter, [make("float", *values) for values in zip(*wide, strict=True)], f32, scalar)
    return emitter.value(op.result.type, dict(zip(registers, made, strict=True)))


@emits(arith.AddF, arith.SubF, arith.MulF)
def _float_binary(emitter: Emitter, op: Op) -> Emitted:
    name = BINARY[type(op)]
    return computed(emitter, op, lambda kind, a, b: binary(emitter, name, kind, a, b), bits=16)


def binary(emitter: Emitter, name: str, kind: str, a: str, b: str) -> str:
    """An instruction or an intrinsic of `BINARY`."""
    if name[0] == "f":
        return emitter.emit(f"{name} {kind} {a}, {b}")
    return _called(emitter, name, kind, a, b)


def choose(emitter: Emitter, cls: type[Op], scalar: ScalarType, a: str, b: str) -> str:
    """The larger or smaller of two floats, by the rules of the op's class."""
    kind, name = llvm_type(scalar), _CHOICES[cls]
    if not scalar.is_fp8:
        return _called(emitter, name, kind, a, b)
    # The result is one of the operands, unrounded: rounding would make an infinity finite.
    x, y = (emitter.of("float", widened(emitter, value, scalar)) for value in (a, b))
    chosen, first, second = (value.bits() for value in (x.call(f"llvm.{name}", y), x, y))
    is_first, is_second = chosen.test("eq", first), chosen.test("eq", second)
    return is_first.select(emitter.of("i8", a), is_second.select(emitter.of("i8", b), 127)).name


@emits(*_CHOICES)
def _choice(emitter: Emitter, op: arith.FloatBinary) -> Emitted:
    scalar = scalar_element(op.lhs.type)
    cls = type(op)
    if scalar.is_fp8:
        return emitter.each(op.result.type, op.operands, lambda a, b: choose(emitter, cls, scalar, a, b))
    return computed(emitter, op, lambda kind, a, b: binary(emitter, BINARY[cls], kind, a, b), bits=16)


@emits(arith.DivF, tt.PreciseDivF)
def _divf(emitter: Emitter, op: arith.DivF | tt.PreciseDivF) -> Emitted:
    is_fast = isinstance(op, arith.DivF) and not emitter.options.exact_math and scalar_element(op.lhs.type) == f32
    registers = emitter.layout(op.result.type).unique_registers
    uses = Counter(emitter.at(op.rhs, register) for register in registers)

    @cache
    def inverse(b: str) -> tuple[str, str]:
        """A power of two, and the inverse of its product with a divisor, which is neither infinite nor subnormal."""
        divisor = emitter.of("float", b)
        size = abs(divisor)
        scale = size.test("ogt", 2.0**126).select(0.25, size.test("olt", 2.0**-126).select(2.0**24, 1.0, "float"))
        (found,) = emitter.asm(("float",), "rcp.approx.ftz.f32 $0, $1;", ("float", (divisor * scale).name))
        return scale.name, found

    def divide(kind: str, a: str, b: str) -> str:
        if not is_fast:
            return emitter.emit(f"fdiv {kind} {a}, {b}")
        if uses[b] == 1:
            return emitter.asm(("float",), "div.full.f32 $0, $1, $2;", ("float", a), ("float", b))[0]
        # The steps of `div.full`, with two multiplications instead of three for each of the numbers with one divisor.
        scale, found = inverse(b)
        return emitter.emit(f"fmul float {emitter.emit(f'fmul float {a}, {scale}')}, {found}")

    return computed(emitter, op, divide)


@emits(arith.NegF)
def _negf(emitter: Emitter, op: arith.NegF) -> Emitted:
    if scalar_element(op.operand.type).is_fp8:
        return emitter.each(op.result.type, op.operands, lambda a: emitter.emit(f"xor i8 {a}, 128"))
    return computed(emitter, op, lambda kind, a: emitter.emit(f"fneg {kind} {a}"), bits=16)


@emits(arith.CmpF)
def _cmpf(emitter: Emitter, op: arith.CmpF) -> Emitted:
    kind, scalar = llvm_type(op.lhs.type), scalar_element(op.lhs.type)
    predicate = op.predicate.value

    def compare(a: str, b: str) -> str:
        if scalar.is_fp8:
            a, b = widened(emitter, a, scalar), widened(emitter, b, scalar)
        return emitter.emit(f"fcmp {predicate} {'float' if scalar.is_fp8 else kind} {a}, {b}")

    return emitter.each(op.result.type, op.operands, compare)


@emits(tt.AddPtr)
def _addptr(emitter: Emitter, op: tt.AddPtr) -> Emitted:
    pointer = element_of(op.ptr.type)
    assert isinstance(pointer, PtrType)
    offset = scalar_element(op.offset.type)
    index = llvm_type(offset)
    memory = f"i{8 * pointer.pointee.bytes}"

    def move(base: str, by: str) -> str:
        if offset.bits < 64:
            by = emitter.emit(f"{'sext' if offset.signed else 'zext'} {index} {by} to i64")
        return emitter.emit(f"getelementptr {memory}, ptr addrspace(1) {base}, i64 {by}")

    return emitter.each(op.result.type, op.operands, move)


@emits(tt.MulHiUI)
def _mulhi(emitter: Emitter, op: tt.MulHiUI) -> Emitted:
    bits = scalar_element(op.lhs.type).bits

    def high(a: str, b: str) -> str:
        x, y = (emitter.of(f"i{bits}", value).to("zext", f"i{2 * bits}") for value in (a, b))
        return (x * y >> bits).to("trunc", f"i{bits}").name

    return emitter.each(op.result.type, op.operands, high)


_LOG2_E = "0x3FF7154760000000"
_LN_2 = "0x3FE62E4300000000"
# The machine's instructions for f32; e^x is 2^(x · log2 e), and log x is log2 x · ln 2.
_FAST = {
    "exp": "ex2.approx.ftz.f32", "exp2": "ex2.approx.ftz.f32", "log": "lg2.approx.f32", "log2": "lg2.approx.f32",
    "sqrt": "sqrt.approx.f32", "rsqrt": "rsqrt.approx.f32",
}  # fmt: skip


def function(emitter: Emitter, name: str, value: str, kind: str) -> str:
    """A function of an f32 or f64, `kind` its LLVM type."""
    if kind == "float" and name in _FAST and not emitter.options.exact_math:
        if name == "exp":
            value = emitter.emit(f"fmul float {value}, {_LOG2_E}")
        (found,) = emitter.asm(("float",), f"{_FAST[name]} $0, $1;", ("float", value))
        return emitter.emit(f"fmul float {found}, {_LN_2}") if name == "log" else found
    if name in ("sqrt", "rsqrt"):
        root = emitter.call(kind, f"llvm.sqrt.{suffix(kind)}", (kind, value))
        return root if name == "sqrt" else emitter.emit(f"fdiv {kind} 0x3FF0000000000000, {root}")
    return emitter.routine(accurate(name, kind), value)


@emits(
    math.Exp, math.Exp2, math.Log, math.Log2, math.Sqrt, math.Rsqrt, math.Sin, math.Cos, math.Tanh, math.Erf
)  # fmt: skip
def _function(emitter: Emitter, op: math.FloatUnary) -> Emitted:
    name = op.NAME.removeprefix("math.")
    return computed(emitter, op, lambda kind, value: function(emitter, name, value, kind))


@emits(arith.RemF)
def _remf(emitter: Emitter, op: arith.RemF) -> Emitted:
    """Call C's fmod. In f32 the remainder of two small floats is exact."""
    return computed(emitter, op, lambda kind, a, b: emitter.routine(accurate("fmod", kind), a, b))


@emits(tt.PreciseSqrt)
def _precise_root(emitter: Emitter, op: tt.PreciseSqrt) -> Emitted:
    return computed(emitter, op, lambda kind, value: _called(emitter, "sqrt", kind, value))


@emits(math.Floor, math.Ceil)
def _whole(emitter: Emitter, op: math.FloatUnary) -> Emitted:
    scalar, name = scalar_element(op.operand.type), op.NAME.removeprefix("math.")
    if not scalar.is_fp8:
        return computed(emitter, op, lambda kind, value: _called(emitter, name, kind, value))

    def apply(value: str) -> str:
        whole = rounded(emitter, _called(emitter, name, "float", widened(emitter, value, scalar)), scalar)
        # An infinity or a NaN stays: rounding to 8 bits would make it finite.
        magnitude = emitter.emit(f"and i8 {value}, 127")
        largest = bits_of_number(scalar.format.largest, scalar)
        special = emitter.emit(f"icmp ugt i8 {magnitude}, {largest}")
        return emitter.emit(f"select i1 {special}, i8 {value}, i8 {whole}")

    return emitter.each(op.result.type, op.operands, apply)


@emits(math.AbsF)
def _magnitude(emitter: Emitter, op: math.AbsF) -> Emitted:
    if scalar_element(op.operand.type).is_fp8:
        return emitter.each(op.result.type, op.operands, lambda a: emitter.emit(f"and i8 {a}, 127"))
    return computed(emitter, op, lambda kind, a: _called(emitter, "fabs", kind, a), bits=16)


# PTX's names of the directions.
_DIRECTIONS = {math.Direction.ZERO: "rz", math.Direction.DOWN: "rm", math.Direction.UP: "rp"}


@emits(math.Directed)
def _directed(emitter: Emitter, op: math.Directed) -> Emitted:
    kind = llvm_type(op.result.type)
    name = f"{op.operation.value}.{_DIRECTIONS[op.direction]}.{scalar_element(op.result.type).name}"
    text = f"{name} {', '.join(f'${number}' for number in range(len(op.values) + 1))};"

    def apply(*values: str) -> str:
        return emitter.asm((kind,), text, *((kind, value) for value in values))[0]

    return emitter.each(op.result.type, op.operands, apply)


@emits(math.Fma)
def _fma(emitter: Emitter, op: math.Fma) -> Emitted:
    scalar = scalar_element(op.a.type)
    if not scalar.is_fp8:
        return computed(emitter, op, lambda kind, a, b, c: _called(emitter, "fma", kind, a, b, c), bits=16)

    def apply(*values: str) -> str:
        # The product of two 8-bit floats and the sum are exact in f64, so that only the last step rounds.
        given = [widen(emitter, [value], scalar, f64)[0] for value in values]
        return narrow(emitter, [_called(emitter, "fma", "double", *given)], f64, scalar)[0]

    return emitter.each(op.result.type, op.operands, apply)


def _called(emitter: Emitter, name: str, kind: str, *values: str) -> str:
    """A call of an intrinsic for floats."""
    return emitter.call(kind, f"llvm.{name}.{suffix(kind)}", *((kind, value) for value in values))
