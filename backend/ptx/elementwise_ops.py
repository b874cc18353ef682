"""Emission of arith and math: for each register a rule of `backend/llvm/elementwise.py`, or a machine instruction.

exp, exp2, sqrt and rsqrt of f32 are the machine's fast instructions, as in Triton; with `exact_math` they are accurate.
log, log2, sin, cos, tanh and erf are routines (`accurate.py`), and so are all functions of f64: the instruction for
logarithms has no correct digits next to 1. Functions of smaller floats are computed in f32.
`docs/reference/accuracy.md` has the error bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial

from ziggurat.backend.llvm.accurate import F32
from ziggurat.backend.llvm.elementwise import CHOICES, RULES, WHOLE, extended, in_f32
from ziggurat.backend.llvm.routines import Number, literal, llvm_type
from ziggurat.backend.ptx import pairs
from ziggurat.backend.ptx.bytes_in_words import in_fours
from ziggurat.backend.ptx.casts import conversions, narrow, narrowed, widen
from ziggurat.backend.ptx.emitter import Emitted, PtxEmitter, emits
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, TensorType, bf16, element_of, f16, f32, f64, pointee_of, scalar_element
from ziggurat.transforms.analysis.queries import layout_of
from ziggurat.transforms.tiles.contract import is_library


@emits(arith.ConstantOp)
def _constant(emitter: PtxEmitter, op: arith.ConstantOp) -> Emitted:
    text = literal(op.value, scalar_element(op.type))
    return [text] * layout_of(op.type).num_registers if isinstance(op.type, TensorType) else text


@emits(arith.Select)
def _select(emitter: PtxEmitter, op: arith.Select) -> Emitted:
    if (scalar := element_of(op.result.type)) not in (f16, bf16):
        return _by_rule(emitter, op)
    assert isinstance(scalar, ScalarType)

    def choose(conditions: list[str], *columns: list[str]) -> list[str]:
        return pairs.chosen(emitter, conditions, columns, scalar)

    return emitter.all(op.result.type, op.operands, choose)


@emits(arith.Elementwise, arith.CmpI, arith.Cast)
def _by_rule(emitter: PtxEmitter, op: Op) -> Emitted:
    rule = partial(RULES[op], op)
    if not isinstance(op, arith.IntBinary) or scalar_element(op.result.type).bits != 8:
        return emitter.each(op.result.type, op.operands, rule)

    def element_by_element(*columns: Sequence[str]) -> list[str]:
        return [rule(*(emitter.of("i8", value) for value in row)).name for row in zip(*columns, strict=True)]

    return emitter.all(op.result.type, op.operands, lambda *columns: in_fours(emitter, op, columns, element_by_element))


@emits(tt.IntToPtr, tt.PtrToInt)
def _address(emitter: PtxEmitter, op: tt.IntToPtr | tt.PtrToInt) -> Emitted:
    name, kind = "inttoptr" if isinstance(op, tt.IntToPtr) else "ptrtoint", llvm_type(op.result.type)
    return emitter.each(op.result.type, op.operands, lambda value: value.to(name, kind))


@emits(arith.AddI)
def _add(emitter: PtxEmitter, op: arith.AddI) -> Emitted:
    """The sum of what registers share is computed once: (x + 3) + (y + 4) is (x + y) + 7."""
    kind, sums = llvm_type(op.result.type), dict[tuple[str, str], str]()

    def add(a: str, b: str) -> str:
        (x, i), (y, j) = emitter.parts(a), emitter.parts(b)
        if not x or not y:
            return emitter.offset(kind, x or y, i + j)
        if (x, y) not in sums:
            sums[x, y] = emitter.emit(f"add {kind} {x}, {y}")
        return emitter.offset(kind, sums[x, y], i + j)

    return emitter.all(op.result.type, op.operands, lambda *columns: in_fours(emitter, op, columns, partial(map, add)))


@emits(arith.MulI)
def _multiply(emitter: PtxEmitter, op: arith.MulI) -> Emitted:
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

    return emitter.all(op.result.type, op.operands, partial(map, multiply))


def computed(emitter: PtxEmitter, op: Op, make: Callable[..., Number], bits: int = 32) -> Emitted:
    """The result of an op on floats: in their type, or in f32 where that has fewer than `bits` bits."""
    scalar = scalar_element(op.operands[0].type)

    def apply(*columns: list[str]) -> list[str]:
        if scalar.bits >= bits:
            return pairs.applied(emitter, columns, scalar, make)
        wide = (widen(emitter, column, scalar, f32) for column in columns)
        results = [make(*(emitter.of("float", value) for value in row)).name for row in zip(*wide, strict=True)]
        return narrow(emitter, results, f32, scalar)

    return emitter.all(op.result.type, op.operands, apply)


# Ops with instructions of 16 bits, and ops whose result on 8-bit floats is not that on f32, rounded.
_IN_16_BITS = (arith.AddF, arith.SubF, arith.MulF, arith.NegF, math.AbsF, math.Fma, *CHOICES)
_ON_8_BITS = (arith.NegF, arith.CmpF, math.AbsF, *WHOLE, *CHOICES)


@emits(arith.FloatBinary, math.FloatUnary, arith.NegF, arith.CmpF)
def _float(emitter: PtxEmitter, op: Op) -> Emitted:
    scalar, rule = scalar_element(op.operands[0].type), partial(RULES[op], op)
    if scalar.is_fp8 and isinstance(op, _ON_8_BITS):
        return emitter.each(op.result.type, op.operands, partial(in_f32, conversions(emitter), type(op), scalar, rule))
    if isinstance(op, arith.CmpF):
        return emitter.each(op.result.type, op.operands, rule)
    return computed(emitter, op, rule, bits=16 if isinstance(op, _IN_16_BITS) else 32)


@emits(arith.MulF)
def _mulf(emitter: PtxEmitter, op: arith.MulF) -> Emitted:
    """A product, whose factors a reduction or a scan may add by fma, as `contract` has other sums do."""
    emitter.values[op.result] = _float(emitter, op)
    options, type_ = emitter.options, op.result.type
    may_add = options.contract and not options.exact_math and not is_library(op)
    scalar = scalar_element(type_)
    if may_add and isinstance(type_, TensorType) and (scalar in (f32, f64) or pairs.has_pairs(emitter, scalar)):
        factors = zip(emitter.tensor(op.lhs), emitter.tensor(op.rhs), strict=True)
        emitter.products |= zip(emitter.tensor(op.result), factors, strict=True)
    return emitter.values[op.result]


@emits(arith.DivF)
def _divf(emitter: PtxEmitter, op: arith.DivF) -> Emitted:
    if emitter.options.exact_math or scalar_element(op.lhs.type) != f32:
        return _float(emitter, op)
    registers = emitter.layout(op.result.type).unique_registers
    uses = Counter(emitter.at(op.rhs, register) for register in registers)

    @cache
    def inverse(b: str) -> tuple[Number, Number]:
        """A power of two, and the inverse of its product with a divisor, which is neither infinite nor subnormal."""
        divisor = emitter.of("float", b)
        size = abs(divisor)
        scale = size.test("ogt", 2.0**126).select(0.25, size.test("olt", 2.0**-126).select(2.0**24, 1.0, "float"))
        return scale, _machine(emitter, "rcp.approx.ftz.f32", divisor * scale)

    def divide(a: Number, b: Number) -> Number:
        if uses[b.name] == 1:
            return _machine(emitter, "div.full.f32", a, b)
        # The steps of `div.full`, with two multiplications instead of three for each of the numbers with one divisor.
        scale, reciprocal = inverse(b.name)
        return a * scale * reciprocal

    return computed(emitter, op, divide)


def _machine(emitter: PtxEmitter, name: str, *values: Number) -> Number:
    """The result of an instruction of the machine on floats of one type."""
    text = f"{name} {', '.join(f'${number}' for number in range(len(values) + 1))};"
    kind = values[0].kind
    return emitter.of(kind, emitter.asm((kind,), text, *((kind, value.name) for value in values))[0])


@emits(tt.AddPtr)
def _addptr(emitter: PtxEmitter, op: tt.AddPtr) -> Emitted:
    memory, offset = f"i{8 * pointee_of(op.ptr.type).bytes}", scalar_element(op.offset.type)

    def move(base: Number, by: Number) -> str:
        return emitter.emit(f"getelementptr {memory}, {base.typed}, {extended(by, offset).typed}")

    return emitter.each(op.result.type, op.operands, move)


# The machine's instructions for f32; e^x is 2^(x · log2 e).
_FAST: dict[type[Op], str] = {
    math.Exp: "ex2.approx.ftz.f32", math.Exp2: "ex2.approx.ftz.f32", math.Sqrt: "sqrt.approx.ftz.f32",
    math.Rsqrt: "rsqrt.approx.ftz.f32",
}  # fmt: skip


@emits(*_FAST)
def _fast(emitter: PtxEmitter, op: math.FloatUnary) -> Emitted:
    if emitter.options.exact_math or scalar_element(op.operand.type) == f64:
        return _float(emitter, op)

    def make(x: Number) -> Number:
        return _machine(emitter, _FAST[type(op)], x * F32.LOG2_E[0] if isinstance(op, math.Exp) else x)

    return computed(emitter, op, make)


_APPROXIMATE = {
    math.Function.LOG2: "lg2.approx.ftz.f32", math.Function.SIN: "sin.approx.ftz.f32",
    math.Function.COS: "cos.approx.ftz.f32", math.Function.TANH: "tanh.approx.f32",
}  # fmt: skip


@emits(math.Approximate)
def _approximate(emitter: PtxEmitter, op: math.Approximate) -> Emitted:
    name = _APPROXIMATE[op.function]
    make = partial(RULES[op.accurate], op.accurate) if emitter.options.exact_math else partial(_machine, emitter, name)
    return computed(emitter, op, make)


# PTX's names of the directions.
_DIRECTIONS = {math.Direction.ZERO: "rz", math.Direction.DOWN: "rm", math.Direction.UP: "rp"}


@emits(math.Directed)
def _directed(emitter: PtxEmitter, op: math.Directed) -> Emitted:
    name = f"{op.operation.value}.{_DIRECTIONS[op.direction]}.{scalar_element(op.result.type).name}"
    return emitter.each(op.result.type, op.operands, partial(_machine, emitter, name))


@emits(math.Fma)
def _fma(emitter: PtxEmitter, op: math.Fma) -> Emitted:
    scalar, rule = scalar_element(op.a.type), partial(RULES[op], op)
    if not scalar.is_fp8:
        return _float(emitter, op)

    def apply(*values: Number) -> Number:
        # The product of two 8-bit floats and the sum are exact in f64, so that only the last step rounds.
        wide = (emitter.of("double", widen(emitter, [value.name], scalar, f64)[0]) for value in values)
        return narrowed(emitter, rule(*wide), f64, scalar)

    return emitter.each(op.result.type, op.operands, apply)
