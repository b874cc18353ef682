"""Arithmetic, functions of floats, and conversions between number types.

Most ops have the same name in MLIR. Triton converts 8-bit floats from and to f32, f16 and bf16 only, by its own op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ziggurat.backend.mlir.emitter import OP, TYPE, Attributes, MlirEmitter, Names, emits, mlir_type, own_type, quoted
from ziggurat.backend.mlir.reader import DEFAULTS, MlirReader, reads, signed
from ziggurat.backend.mlir.syntax import Dense, Statement
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, math, scf, tt
from ziggurat.codemodel.dialects.arith import Rounding
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.numbers import wrapped
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    constant_key,
    element_of,
    f32,
    f64,
    i1,
    i32,
    i64,
    scalar_element,
    u32,
    with_element,
)


def cast(e: MlirEmitter, op: str, name: str, source: Type, target: Type) -> str:
    """A cast of the arith or the tt dialect; no op if MLIR has one type for both."""
    before, after = mlir_type(source), mlir_type(target)
    arrow = "->" if op.startswith("tt.") else "to"
    return name if before == after else e.value(f"{op} {name}", f" : {before} {arrow} {after}", own_type(target))


def cast_step(e: MlirEmitter, op: str, name: str, source: Type, target: Type) -> str:
    """A cast as a step around an op."""
    with e.steps():
        return cast(e, op, name, source, target)


def convert_float(e: MlirEmitter, name: str, source: Type, target: Type, rounding: Rounding = Rounding.NEAREST) -> str:
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
            return cast(e, "arith.extf", step_to(e, name, source, middle), middle, target)
        return cast(e, "tt.fp_to_fp", name, source, target)
    if rounding is Rounding.ZERO:
        if here == f64 or there.name == "f8e4m3":
            raise TargetError(f"Triton has no conversion from {here} to {there} that rounds toward zero")
        if there.is_fp8 and here != f32:
            name, source = cast_step(e, "arith.extf", name, source, middle), middle
    elif not there.is_fp8:
        return cast(e, "arith.truncf", name, source, target)
    elif here == f64:
        name, source = cast_step(e, "arith.truncf", name, source, middle), middle
    return e.value(f"tt.fp_to_fp {name}", f", rounding = {rounding.value} : {mlir_type(source)} -> {mlir_type(target)}")


@emits(arith.ExtF, arith.TruncF)
def float_to_float(e: MlirEmitter, op: arith.ExtF | arith.TruncF) -> Names:
    rounding = op.rounding if isinstance(op, arith.TruncF) else Rounding.NEAREST
    return (convert_float(e, e.name(op.operand), op.operand.type, op.type, rounding),)


@emits(arith.Cast)
def convert(e: MlirEmitter, op: arith.Cast) -> Names:
    """Between integers, or between an integer and a float. A float of 8 bits goes by way of f32."""
    source, target = (
        with_element(type_, f32) if scalar_element(type_).is_fp8 else type_ for type_ in (op.operand.type, op.type)
    )
    name = e.name(op.operand)
    if source != op.operand.type:
        name = step_to(e, name, op.operand.type, source)
    name = cast(e, op.NAME, name, source, target)
    if target == op.type:
        return (name,)
    e.hint(name, TYPE, quoted(str(op.type)))
    return (step_to(e, name, target, op.type),)


def step_to(e: MlirEmitter, name: str, source: Type, target: Type) -> str:
    """A float as another float type, as a step around an op."""
    with e.steps():
        return convert_float(e, name, source, target)


@emits(arith.Bitcast, tt.Bitcast, tt.IntToPtr, tt.PtrToInt)
def bitcast(e: MlirEmitter, op: Op) -> Names:
    """The tt dialect's op: Triton cannot compile arith's between integers and floats. It is written between equal types
    too, such as those of an i32 and of a u32: it has the type."""
    name = tt.Bitcast.NAME if isinstance(op, arith.Bitcast) else op.NAME
    (value,) = op.operands
    return e.line(f"{name} {e.name(value)}", f" : {mlir_type(value.type)} -> {mlir_type(op.result.type)}", 1)


def addresses(e: MlirEmitter, name: str, type_: Type) -> tuple[str, Type]:
    """Pointers as integers, which can be compared; numbers as they are. Returns the name and the type."""
    if isinstance(element_of(type_), ScalarType):
        return name, type_
    target = with_element(type_, i64)
    return cast_step(e, "tt.ptr_to_int", name, type_, target), target


def is_boolean(type_: Type) -> bool:
    """Whether a type is i1 or a tensor of i1."""
    return element_of(type_) == i1


# Arithmetic.


@emits(arith.ConstantOp)
def constant(e: MlirEmitter, op: arith.ConstantOp) -> Names:
    return (e.constant(op.value, op.type),)


@emits(arith.IntBinary, math.AbsI)
def integers(e: MlirEmitter, op: arith.IntBinary | math.AbsI) -> Names:
    is_itself = isinstance(op, math.AbsI) and not scalar_element(op.result.type).signed
    return e.names(op.operands) if is_itself else e.plain(op, "{r}")


def _wide(scalar: ScalarType, exact_16: bool) -> ScalarType:
    # NVIDIA's part of Triton has no arithmetic on fp8, and no division or tanh of 16-bit floats. In f32 a single op on
    # these is exact enough for its rounded result to be the right one.
    return f32 if scalar.is_fp8 or (scalar.bits == 16 and not exact_16) else scalar


def float_op(e: MlirEmitter, op: Op, text: str | None = None, *, exact_16: bool = True) -> Names:
    """An op on floats of one type with a result of that type, in a wider type where Triton lacks the op."""
    type_ = op.result.type
    wide = with_element(type_, _wide(scalar_element(type_), exact_16))
    operands = [step_to(e, name, type_, wide) for name in e.names(op.operands)]
    result = e.compute(text or op.NAME, wide, *operands)
    if text is not None:
        e.hint(result, OP, quoted(op.NAME))
    return (step_to(e, result, wide, type_),)


@emits(arith.NegF)
def negate(e: MlirEmitter, op: arith.NegF) -> Names:
    if e.has("negf"):
        return float_op(e, op)
    type_ = op.result.type
    wide = with_element(type_, _wide(scalar_element(type_), True))
    with e.steps():
        name, zero = convert_float(e, e.name(op.operand), type_, wide), e.constant(-0.0, wide)
    result = e.compute("arith.subf", wide, zero, name)
    e.hint(result, OP, quoted(op.NAME))
    return (step_to(e, result, wide, type_),)


@emits(arith.FloatBinary, math.FloatUnary, math.Fma)
def floats(e: MlirEmitter, op: Op) -> Names:
    return float_op(e, op, exact_16=not isinstance(op, arith.DivF))


def _directed_symbol(operation: math.Operation, direction: math.Direction, wide: bool) -> str:
    before, after = ("", "" if wide else "f") if operation is math.Operation.FMA else ("d" if wide else "f", "")
    return f"__nv_{before}{operation.value}{after}_{direction.value}"


# The operation and the direction by the function of libdevice.
_DIRECTED = {
    _directed_symbol(operation, direction, wide): (operation, direction)
    for operation in math.Operation
    for direction in math.Direction
    for wide in (False, True)
}


@emits(math.Directed)
def directed(e: MlirEmitter, op: math.Directed) -> Names:
    """A function of libdevice, as in Triton's own library."""
    type_ = op.result.type
    symbol = _directed_symbol(op.operation, op.direction, scalar_element(type_) == f64)
    return (extern(e, symbol, e.names(op.values), type_, type_),)


_APPROXIMATE = {f"__nv_fast_{function.value}f": function for function in math.Function}


@emits(math.Approximate)
def by_instruction(e: MlirEmitter, op: math.Approximate) -> Names:
    """A function of libdevice, as in Triton's own library."""
    type_ = op.result.type
    return (extern(e, f"__nv_fast_{op.function.value}f", e.names([op.operand]), type_, type_),)


@emits(tt.PreciseDivF, tt.PreciseSqrt)
def precise(e: MlirEmitter, op: Op) -> Names:
    """Triton has these ops for f32 only. For f64 its ordinary division and root are as precise."""
    usual = arith.DivF if isinstance(op, tt.PreciseDivF) else math.Sqrt
    return float_op(e, op, usual.NAME if scalar_element(op.result.type) == f64 else None, exact_16=False)


_EXTERN: dict[type[Op], str] = {math.Tanh: "tanh", math.Trunc: "trunc", math.RoundEven: "rint"}


@emits(*_EXTERN)
def by_libdevice(e: MlirEmitter, op: math.FloatUnary) -> Names:
    """A call of NVIDIA's libdevice, as Triton's front end writes it: Triton cannot compile MLIR's op."""
    type_ = op.result.type
    wide = type_ if scalar_element(type_) == f64 else with_element(type_, f32)
    name = step_to(e, e.name(op.operand), type_, wide)
    symbol = f"__nv_{_EXTERN[type(op)]}{'' if scalar_element(wide) == f64 else 'f'}"
    return (step_to(e, extern(e, symbol, [name], wide, wide), wide, type_),)


def extern(e: MlirEmitter, symbol: str, names: Sequence[str], source: Type, target: Type) -> str:
    """A call of a function of NVIDIA's libdevice, from values of a type to a type."""
    attributes: Attributes = {"libname": '""', "libpath": '""', "pure": "true", "symbol": f'"{symbol}"'}
    types = f" : ({', '.join([mlir_type(source)] * len(names))}) -> {mlir_type(target)}"
    return e.value(f"tt.extern_elementwise {', '.join(names)}", types, attributes)


_BITS: dict[type[Op], str] = {math.CtPop: "popc", math.CtLz: "clz", math.BitReverse: "brev"}


@emits(math.CtPop, math.CtLz, math.BitReverse)
def bits(e: MlirEmitter, op: math.IntUnary) -> Names:
    """A call of libdevice, as Triton cannot compile MLIR's ops. It takes 32 or 64 bits, and gives a count in 32."""
    type_ = op.result.type
    width = scalar_element(type_).bits
    wide = with_element(type_, i64 if width == 64 else i32 if width == 32 else u32)
    name = e.name(op.operand)
    if width < 32:
        name = cast_step(e, "arith.extui", name, type_, wide)
    counts = not isinstance(op, math.BitReverse)
    counter_type = with_element(type_, i32) if counts and width == 64 else wide
    symbol = f"__nv_{_BITS[type(op)]}{'ll' if width == 64 else ''}"
    result = extern(e, symbol, [name], wide, counter_type)
    e.hint(result, OP, quoted(op.NAME))
    with e.steps():
        if width < 32 and not isinstance(op, math.CtPop):
            result = e.compute(
                "arith.subi" if counts else "arith.shrui", counter_type, result, e.constant(32 - width, counter_type)
            )
        if width == 64 and counts:
            result = cast(e, "arith.extui", result, counter_type, wide)
        return (cast(e, "arith.trunci", result, wide, type_) if width < 32 else result,)


@emits(tt.MulHiUI)
def upper_half(e: MlirEmitter, op: tt.MulHiUI) -> Names:
    """Triton's op takes 32 and 64 bits. The product of narrower numbers fits in 32."""
    type_ = op.result.type
    bits = scalar_element(type_).bits
    if bits >= 32:
        return e.plain(op, "{r}")
    wide = with_element(type_, u32)
    lhs, rhs = (cast_step(e, "arith.extui", name, type_, wide) for name in e.names(op.operands))
    upper = e.compute("arith.muli", wide, lhs, rhs)
    e.hint(upper, OP, quoted(op.NAME))
    with e.steps():
        upper = e.compute("arith.shrui", wide, upper, e.constant(bits, wide))
        return (cast(e, "arith.trunci", upper, wide, type_),)


@emits(arith.CmpI)
def compare_integers(e: MlirEmitter, op: arith.CmpI) -> Names:
    (lhs, type_), (rhs, _) = (addresses(e, e.name(value), value.type) for value in (op.lhs, op.rhs))
    return (compare(e, op.predicate.value, lhs, rhs, type_),)


def compare(e: MlirEmitter, predicate: str, lhs: str, rhs: str, type_: Type) -> str:
    """A comparison of integers, or of tensors of them."""
    return e.compute(f"arith.cmpi {predicate},", type_, lhs, rhs)


@emits(arith.CmpF)
def compare_floats(e: MlirEmitter, op: arith.CmpF) -> Names:
    type_ = op.lhs.type
    wide = with_element(type_, _wide(scalar_element(type_), True))
    lhs, rhs = (step_to(e, e.name(value), type_, wide) for value in (op.lhs, op.rhs))
    return (e.compute(f"arith.cmpf {op.predicate.value},", wide, lhs, rhs),)


@emits(arith.Select)
def select(e: MlirEmitter, op: arith.Select) -> Names:
    condition, then, otherwise = e.names(op.operands)
    return (choose(e, condition, then, otherwise, op.result.type, op.condition.type),)


def choose(e: MlirEmitter, condition: str, then: str, otherwise: str, type_: Type, by: Type | None = None) -> str:
    """`arith.select` by a condition of the type `by`; None for a condition for each element."""
    by = with_element(type_, i1) if by is None else by
    condition_type = "" if by == i1 else f"{mlir_type(by)}, "
    return e.value(f"arith.select {condition}, {then}, {otherwise}", f" : {condition_type}{mlir_type(type_)}")


# Reading.


@DEFAULTS.of(arith.Elementwise)
def elementwise(r: MlirReader, s: Statement) -> Value:
    """An op of numbers of one type that has the same name and operands in MLIR."""
    cls: Any = OPS[str(s.attributes.get(OP, s.name))]
    operands = r.operands(s, cls.SPEC.required)
    r.require_type(s, operands)
    return r.add(cls(*r.alike(operands, _SIGNS.get(cls.TAKES, True if cls is math.AbsI else None))))


_SIGNS = {"signed": True, "unsigned": False}


@reads("arith.constant")
def read_constant(r: MlirReader, s: Statement) -> Value:
    attributes, (type_,) = s.attributes["value"], s.result_types
    if not isinstance(attributes, Dense):
        r.unsupported("a constant that is no number")
    scalar = scalar_element(type_)
    elements = attributes.elements if scalar.is_float else [wrapped(element, scalar) for element in attributes.elements]
    if all(constant_key(element) == constant_key(elements[0]) for element in elements):
        return r.constant(elements[0], type_)
    if not isinstance(type_, TensorType) or len(elements) != type_.numel:
        r.fail(f"a constant of type {type_} must have one element, or {type_}'s number of them; got {len(elements)}")
    flat = r.constant(elements[0], TensorType((type_.numel,), type_.element))
    index = r.add(tt.MakeRange(0, type_.numel))
    for at, element in enumerate(elements[1:], 1):  # Triton models have constants of equal elements only.
        here = r.add(arith.CmpI(index, r.constant(at, index.type), arith.IntPredicate.EQ))
        flat = r.add(arith.Select(here, r.constant(element, flat.type), flat))
    return flat if type_.rank == 1 else r.add(tt.Reshape(flat, type_))


@reads("arith.cmpi")
def read_integer_comparison(r: MlirReader, s: Statement) -> Value:
    predicate = r.choice(s, "predicate", _INT_PREDICATES, word=0)
    sign = {"s": True, "u": False}.get(predicate.value[0]) if predicate.value not in ("eq", "ne") else None
    lhs, rhs = r.alike(r.operands(s, 2), sign)
    if sign and is_boolean(lhs.type):  # As a signed number, true is -1.
        return r.add(arith.CmpI(rhs, lhs, arith.IntPredicate(f"u{predicate.value[1:]}")))
    return r.add(arith.CmpI(lhs, rhs, predicate))


_INT_PREDICATES = {
    name: arith.IntPredicate(name) for name in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
}
# MLIR's predicates in their order. Each of ours has its name; the others are true where one of ours is not.
_FLOAT_PREDICATES: dict[str, tuple[str, bool]] = {
    "false": ("", False), "oeq": ("oeq", True), "ogt": ("ogt", True), "oge": ("oge", True), "olt": ("olt", True),
    "ole": ("ole", True), "one": ("one", True), "ord": ("ord", True), "ueq": ("one", False), "ugt": ("ole", False),
    "uge": ("olt", False), "ult": ("oge", False), "ule": ("ogt", False), "une": ("une", True), "uno": ("ord", False),
    "true": ("", True),
}  # fmt: skip


@reads("arith.cmpf")
def read_float_comparison(r: MlirReader, s: Statement) -> Value:
    name, positive = r.choice(s, "predicate", _FLOAT_PREDICATES, word=0)
    lhs, rhs = r.operands(s, 2)
    type_ = with_element(lhs.type, i1)
    if not name:
        return r.constant(positive, type_)
    if name == "one":
        parts = [arith.CmpF(lhs, rhs, arith.FloatPredicate.OLT), arith.CmpF(lhs, rhs, arith.FloatPredicate.OGT)]
        comparison = r.add(arith.OrI(*map(r.add, parts)))
    elif name == "ord":
        parts = [arith.CmpF(value, value, arith.FloatPredicate.OEQ) for value in (lhs, rhs)]
        comparison = r.add(arith.AndI(*map(r.add, parts)))
    else:
        comparison = r.add(arith.CmpF(lhs, rhs, arith.FloatPredicate(name)))
    return comparison if positive else r.add(arith.XOrI(comparison, r.constant(True, type_)))


@reads("arith.select")
def read_select(r: MlirReader, s: Statement) -> Value:
    condition, *values = r.operands(s, 3)
    if TYPE in s.attributes and values[0] is values[1]:
        return r.add(tt.DescriptorPadding(values[0], condition))
    values = r.alike(values)
    if not isinstance(values[0].type, DescriptorType):
        return r.add(arith.Select(condition, *values))
    bodies = [r.b.nested([], value.type) for value in values]
    for body, value in zip(bodies, values, strict=True):
        body.add(scf.Yield([value]))
    return r.add(scf.If(condition, *(body.finish() for body in bodies)))


@DEFAULTS.of(arith.ExtF, arith.ExtSI, arith.ExtUI, arith.TruncI, arith.SIToFP, arith.UIToFP, arith.FPToSI, arith.FPToUI)
def read_cast(r: MlirReader, s: Statement) -> Value:
    cls: Any = OPS[s.name]
    (operand,), (type_,) = r.operands(s, 1), s.result_types
    return r.add(cls(operand, type=signed(type_, False) if cls is arith.FPToUI else type_))


_ROUNDINGS = {"rtz": Rounding.ZERO, "rtne": Rounding.NEAREST}  # In Triton's order.


@reads("tt.fp_to_fp")
def read_float_cast(r: MlirReader, s: Statement) -> Value:
    rounding = r.choice(s, "rounding", _ROUNDINGS, default=Rounding.NEAREST)
    (operand,), (type_,) = r.operands(s, 1), s.result_types
    return _converted(r, operand, type_, rounding)


def _converted(r: MlirReader, value: Value, type_: Type, rounding: Rounding) -> Value:
    here, there = scalar_element(value.type).bits, scalar_element(type_).bits
    if value.type == type_:
        return value
    if here == there:  # One kind of 8 or 16 bits to another: exact in f32.
        value, here = r.add(arith.ExtF(value, type=with_element(type_, f32))), 32
    return r.add(arith.ExtF(value, type=type_) if here < there else arith.TruncF(value, type=type_, rounding=rounding))


_MLIR_ROUNDINGS = {
    "to_nearest_even": Rounding.NEAREST, "downward": None, "upward": None, "toward_zero": Rounding.ZERO,
    "to_nearest_away": None,
}  # fmt: skip


@reads("arith.truncf")
def read_truncation(r: MlirReader, s: Statement) -> Value:
    rounding = r.choice(s, "roundingmode", _MLIR_ROUNDINGS, word=0, default=Rounding.NEAREST)
    if rounding is None:
        r.unsupported("this rounding", "use to_nearest_even or toward_zero")
    (operand,), (type_,) = r.operands(s, 1), s.result_types
    return r.add(arith.TruncF(operand, type=type_, rounding=rounding))


@reads("arith.bitcast", "tt.bitcast")
def read_bitcast(r: MlirReader, s: Statement) -> Value:
    (operand,), (type_,) = r.operands(s, 1), s.result_types
    if operand.type == type_:
        return operand
    cls = tt.Bitcast if isinstance(element_of(type_), PtrType) else arith.Bitcast
    return r.add(cls(operand, type=type_))


@reads("tt.int_to_ptr")
def read_address(r: MlirReader, s: Statement) -> Value:
    (operand,), (type_,) = r.operands(s, 1), s.result_types
    return r.add(tt.IntToPtr(r.as_type(operand, with_element(type_, i64)), type=type_))


@reads("tt.clampf")
def read_clamp(r: MlirReader, s: Statement) -> Value:
    x, low, high = r.operands(s, 3)
    if r.choice(s, "propagateNan", {"none": False, "all": True}, default=False):
        return r.add(arith.MinimumF(r.add(arith.MaximumF(x, low)), high))
    return r.add(arith.MinNumF(r.add(arith.MaxNumF(x, low)), high))


# Functions of libdevice that are one op.
_LIBDEVICE: dict[str, type[Op]] = {
    "exp": math.Exp, "exp2": math.Exp2, "log": math.Log, "log2": math.Log2, "sqrt": math.Sqrt, "rsqrt": math.Rsqrt,
    "sin": math.Sin, "cos": math.Cos, "tanh": math.Tanh, "erf": math.Erf, "floor": math.Floor, "ceil": math.Ceil,
    "trunc": math.Trunc, "rint": math.RoundEven, "nearbyint": math.RoundEven,
    "fabs": math.AbsF, "fma": math.Fma, "fmod": arith.RemF, "fmax": arith.MaxNumF, "fmin": arith.MinNumF,
}  # fmt: skip
_COUNTS = {symbol: cls for cls, symbol in _BITS.items()}


def _names_of(symbol: str) -> Iterator[str]:
    """The names that a function of libdevice may have in the language: `__nv_copysignf` is `copysign`, `__nv_fmul_rn`
    is `mul_rn`. Those on unsigned integers have none: the text does not say that a number has no sign."""
    name = symbol.removeprefix("__nv_")
    if not name.startswith("u") and "uint" not in name and "ull" not in name:
        for before in ("", "f", "d"):
            for after in ("", "f", "d", "ll", "i", "if"):
                yield name.removesuffix(after).removeprefix(before)


@reads("tt.extern_elementwise")
def read_extern(r: MlirReader, s: Statement) -> Value:
    """A function of NVIDIA's libdevice, which is an op of the model or a function of the language's library."""
    symbol, (type_,) = s.attributes.get("symbol"), s.result_types
    operands = r.operands(s)
    if symbol in _DIRECTED:
        return r.add(math.Directed(operands, *_DIRECTED[symbol]))
    if symbol in _APPROXIMATE:
        return r.add(math.Approximate(r.operands(s, 1)[0], _APPROXIMATE[symbol]))
    name = str(symbol).removeprefix("__nv_")
    bits = name.removesuffix("ll")
    if bits in _COUNTS:
        count = r.add(_COUNTS[bits](*operands))
        # Of 64 bits, libdevice gives the count in 32.
        narrows = scalar_element(operands[0].type).bits == 64 and scalar_element(type_).bits == 32
        return r.add(arith.TruncI(count, type=type_)) if narrows else count
    if element_of(type_) == f32:
        name = name.removesuffix("f")
    if name in _LIBDEVICE and all(value.type == operands[0].type for value in operands):
        return r.add(_LIBDEVICE[name](*operands))
    value = next(filter(None, (r.library(each, operands) for each in _names_of(str(symbol)))), None)
    if value is None or value.type != type_:
        r.fail(f"the function {symbol} of libdevice is not supported")
    return value
