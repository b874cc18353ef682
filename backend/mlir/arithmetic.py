"""Arithmetic, functions of floats, and conversions between number types.

Most ops have the same name in MLIR. Triton converts 8-bit floats from and to f32, f16 and bf16 only, by its own op.
"""

from __future__ import annotations

from ziggurat.backend.mlir.emitter import Attributes, Emitter, Names, emits, mlir_type, quoted
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, Type, element_of, f32, f64, i1, i32, i64, scalar_element, with_element


def cast(e: Emitter, op: str, name: str, source: Type, target: Type) -> str:
    """A cast of the arith or the tt dialect; no op if MLIR has one type for both."""
    before, after = mlir_type(source), mlir_type(target)
    arrow = "->" if op.startswith("tt.") else "to"
    return name if before == after else e.value(f"{op} {name}", f" : {before} {arrow} {after}")


def convert_float(e: Emitter, name: str, source: Type, target: Type, rounding: Rounding = Rounding.NEAREST) -> str:
    """A float as another float type.

    A conversion between f64 and fp8 goes by way of f32, so a number is rounded twice. Raises `TargetError` for a
    rounding toward zero that Triton lacks: from f64, and to f8e4m3.
    """
    here, there = scalar_element(source), scalar_element(target)
    if here == there:
        return name
    middle = with_element(source, f32)
    if here.bits < there.bits:
        if not here.is_fp8:
            return cast(e, "arith.extf", name, source, target)
        if there == f64:
            return cast(e, "arith.extf", convert_float(e, name, source, middle), middle, target)
        return cast(e, "tt.fp_to_fp", name, source, target)
    if rounding is Rounding.ZERO:
        if here == f64 or there.name == "f8e4m3":
            raise TargetError(f"Triton has no conversion from {here} to {there} that rounds toward zero")
        if there.is_fp8 and here != f32:
            name, source = cast(e, "arith.extf", name, source, middle), middle
    elif not there.is_fp8:
        return cast(e, "arith.truncf", name, source, target)
    elif here == f64:
        name, source = cast(e, "arith.truncf", name, source, middle), middle
    return e.value(f"tt.fp_to_fp {name}", f", rounding = {rounding.value} : {mlir_type(source)} -> {mlir_type(target)}")


@emits(arith.ExtF, arith.TruncF)
def float_to_float(e: Emitter, op: arith.ExtF | arith.TruncF) -> Names:
    rounding = op.rounding if isinstance(op, arith.TruncF) else Rounding.NEAREST
    return (convert_float(e, e.name(op.operand), op.operand.type, op.type, rounding),)


@emits(arith.Cast)
def convert(e: Emitter, op: arith.Cast) -> Names:
    """Between integers, or between an integer and a float. A float of 8 bits goes by way of f32."""
    source, target = (
        with_element(type_, f32) if scalar_element(type_).is_fp8 else type_ for type_ in (op.operand.type, op.type)
    )
    name = e.name(op.operand)
    if source != op.operand.type:
        name = convert_float(e, name, op.operand.type, source)
    name = cast(e, op.NAME, name, source, target)
    return (name if target == op.type else convert_float(e, name, target, op.type),)


@emits(arith.Bitcast)
def bitcast(e: Emitter, op: arith.Bitcast) -> Names:
    """The tt dialect's op: Triton cannot compile arith's between integers and floats."""
    return (cast(e, "tt.bitcast", e.name(op.operand), op.operand.type, op.type),)


@emits(tt.Bitcast, tt.IntToPtr, tt.PtrToInt)
def cast_pointer(e: Emitter, op: tt.Bitcast | tt.IntToPtr | tt.PtrToInt) -> Names:
    return (cast(e, op.NAME, e.name(op.value), op.value.type, op.result.type),)


def addresses(e: Emitter, name: str, type_: Type) -> tuple[str, Type]:
    """Pointers as integers, which can be compared; numbers as they are. Returns the name and the type."""
    if isinstance(element_of(type_), ScalarType):
        return name, type_
    target = with_element(type_, i64)
    return cast(e, "tt.ptr_to_int", name, type_, target), target


def is_boolean(type_: Type) -> bool:
    """Whether a type is i1 or a tensor of i1."""
    return element_of(type_) == i1


# Arithmetic.


@emits(arith.ConstantOp)
def constant(e: Emitter, op: arith.ConstantOp) -> Names:
    return (e.constant(op.value, op.type),)


@emits(arith.IntBinary)
def integers(e: Emitter, op: arith.IntBinary) -> Names:
    return e.plain(op, "{r}")


def _wide(scalar: ScalarType, exact_16: bool) -> ScalarType:
    # NVIDIA's part of Triton has no arithmetic on fp8, and no division or tanh of 16-bit floats. In f32 a single op on
    # these is exact enough for its rounded result to be the right one.
    return f32 if scalar.is_fp8 or (scalar.bits == 16 and not exact_16) else scalar


def float_op(e: Emitter, op: Op, text: str | None = None, *, exact_16: bool = True) -> Names:
    """An op on floats of one type with a result of that type, in a wider type where Triton lacks the op."""
    type_ = op.result.type
    wide = with_element(type_, _wide(scalar_element(type_), exact_16))
    operands = (convert_float(e, name, type_, wide) for name in e.names(op.operands))
    return (convert_float(e, e.compute(text or op.NAME, wide, *operands), wide, type_),)


@emits(arith.FloatBinary, arith.NegF, math.FloatUnary, math.Fma)
def floats(e: Emitter, op: Op) -> Names:
    return float_op(e, op, exact_16=not isinstance(op, arith.DivF))


@emits(math.Directed)
def directed(e: Emitter, op: math.Directed) -> Names:
    """A function of libdevice, as in Triton's own library."""
    type_, text = op.result.type, mlir_type(op.result.type)
    wide = scalar_element(type_) == f64
    fused = op.operation is math.Operation.FMA
    name = f"{op.operation.value}{'' if wide else 'f'}" if fused else f"{'d' if wide else 'f'}{op.operation.value}"
    attributes: Attributes = {
        "libname": quoted(""),
        "libpath": quoted(""),
        "pure": "true",
        "symbol": quoted(f"__nv_{name}_{op.direction.value}"),
    }
    types = f" : ({', '.join([text] * len(op.values))}) -> {text}"
    return (e.value(f"tt.extern_elementwise {', '.join(e.names(op.values))}", types, attributes),)


@emits(tt.PreciseDivF, tt.PreciseSqrt)
def precise(e: Emitter, op: Op) -> Names:
    """Triton has these ops for f32 only. For f64 its ordinary division and root are as precise."""
    usual = arith.DivF if isinstance(op, tt.PreciseDivF) else math.Sqrt
    return float_op(e, op, usual.NAME if scalar_element(op.result.type) == f64 else None, exact_16=False)


@emits(math.Tanh)
def tanh(e: Emitter, op: math.Tanh) -> Names:
    """A call of NVIDIA's libdevice, as Triton's front end writes it: Triton cannot compile `math.tanh`."""
    type_ = op.result.type
    wide = type_ if scalar_element(type_) == f64 else with_element(type_, f32)
    name = convert_float(e, e.name(op.operand), type_, wide)
    symbol = "__nv_tanh" if scalar_element(wide) == f64 else "__nv_tanhf"
    text = mlir_type(wide)
    return (convert_float(e, extern(e, symbol, name, text, text), wide, type_),)


def extern(e: Emitter, symbol: str, name: str, source: str, target: str) -> str:
    """A call of a function of NVIDIA's libdevice, from a type to a type."""
    attributes: Attributes = {"libname": '""', "libpath": '""', "pure": "true", "symbol": f'"{symbol}"'}
    return e.value(f"tt.extern_elementwise {name}", f" : ({source}) -> {target}", attributes)


_BITS: dict[type[Op], str] = {math.CtPop: "popc", math.CtLz: "clz", math.BitReverse: "brev"}


@emits(math.CtPop, math.CtLz, math.BitReverse)
def bits(e: Emitter, op: math.IntUnary) -> Names:
    """A call of libdevice, as Triton cannot compile MLIR's ops. It takes 32 or 64 bits, and gives a count in 32."""
    type_ = op.result.type
    width = scalar_element(type_).bits
    wide = with_element(type_, i64 if width == 64 else i32)
    name = e.name(op.operand)
    if width < 32:
        name = cast(e, "arith.extui", name, type_, wide)
    counts = not isinstance(op, math.BitReverse)
    given = with_element(type_, i32) if counts else wide
    symbol = f"__nv_{_BITS[type(op)]}{'ll' if width == 64 else ''}"
    found = extern(e, symbol, name, mlir_type(wide), mlir_type(given))
    if width < 32 and not isinstance(op, math.CtPop):
        found = e.compute("arith.subi" if counts else "arith.shrui", given, found, e.constant(32 - width, given))
    if width == 64 and counts:
        found = cast(e, "arith.extui", found, given, wide)
    return (cast(e, "arith.trunci", found, wide, type_) if width < 32 else found,)


@emits(math.AbsI)
def magnitude(e: Emitter, op: math.AbsI) -> Names:
    return e.plain(op, "{r}") if scalar_element(op.result.type).signed else e.names(op.operands)


@emits(tt.MulHiUI)
def upper_half(e: Emitter, op: tt.MulHiUI) -> Names:
    """Triton's op takes 32 and 64 bits. The product of narrower numbers fits in 32."""
    type_ = op.result.type
    bits = scalar_element(type_).bits
    if bits >= 32:
        return e.plain(op, "{r}")
    wide = with_element(type_, i32)
    lhs, rhs = (cast(e, "arith.extui", name, type_, wide) for name in e.names(op.operands))
    upper = e.compute("arith.shrui", wide, e.compute("arith.muli", wide, lhs, rhs), e.constant(bits, wide))
    return (cast(e, "arith.trunci", upper, wide, type_),)


@emits(arith.CmpI)
def compare_integers(e: Emitter, op: arith.CmpI) -> Names:
    (lhs, type_), (rhs, _) = (addresses(e, e.name(value), value.type) for value in (op.lhs, op.rhs))
    return (compare(e, op.predicate.value, lhs, rhs, type_),)


def compare(e: Emitter, predicate: str, lhs: str, rhs: str, type_: Type) -> str:
    """A comparison of integers, or of tensors of them."""
    return e.compute(f"arith.cmpi {predicate},", type_, lhs, rhs)


@emits(arith.CmpF)
def compare_floats(e: Emitter, op: arith.CmpF) -> Names:
    type_ = op.lhs.type
    wide = with_element(type_, _wide(scalar_element(type_), True))
    lhs, rhs = (convert_float(e, e.name(value), type_, wide) for value in (op.lhs, op.rhs))
    return (e.compute(f"arith.cmpf {op.predicate.value},", wide, lhs, rhs),)


@emits(arith.Select)
def select(e: Emitter, op: arith.Select) -> Names:
    condition, then, otherwise = e.names(op.operands)
    return (choose(e, condition, then, otherwise, op.result.type, op.condition.type),)


def choose(e: Emitter, condition: str, then: str, otherwise: str, type_: Type, by: Type | None = None) -> str:
    """`arith.select` by a condition of the type `by`; None for a condition for each element."""
    by = with_element(type_, i1) if by is None else by
    condition_type = "" if by == i1 else f"{mlir_type(by)}, "
    return e.value(f"arith.select {condition}, {then}, {otherwise}", f" : {condition_type}{mlir_type(type_)}")
