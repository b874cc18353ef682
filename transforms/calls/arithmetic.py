"""Rules of calls element by element: arithmetic, comparisons, functions of floats, and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.dialects.arith import FloatPredicate, IntPredicate
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import (
    SCALARS,
    ConstantType,
    PtrType,
    ScalarType,
    Type,
    element_of,
    f32,
    i1,
    i32,
    i64,
    shape_of,
    shaped,
    with_element,
)
from ziggurat.frontends.language import CALLS, CompareKind
from ziggurat.frontends.language.comparison import NAMED
from ziggurat.frontends.language.host import OPS, OPS_OF_FLOATS
from ziggurat.frontends.language.phrases import (
    CAST_OFFSET,
    COMPARE,
    DIVIDE,
    DIVIDE_FLOATS,
    GIVE_WIDTH,
    INVERT,
    MULTIPLY_ADD,
    NOT_INTEGERS,
)
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.calls.constant_arguments import describe, show
from ziggurat.transforms.calls.emit import Builds, Emitter, Operand, as_given
from ziggurat.transforms.calls.promotion import (
    common_shape,
    constant,
    is_number,
    is_pointer,
    promote,
    promoted,
    scalar_type,
)
from ziggurat.transforms.calls.rule import Rule, Typing, axis, choice, integers, number_tensor, numbers

# Types of results.


def arithmetic(call: Typing, *operands: Type, options: Sequence[Type] = ()) -> Type:
    """Take numbers of any kind and give the promoted dtype in the broadcast shape. `options` are further constants."""
    numbers(call, *operands)
    return call.computed(*operands, *options) or promoted(str(call), *operands, language=call.language)


def counted(call: Typing, a: Type, b: Type) -> Type:
    """The type that `arithmetic` gives; i32 for i1 with i1, unless the language calculates modulo 2 with these."""
    result = arithmetic(call, a, b)
    if isinstance(result, ConstantType) or element_of(result) != i1 or call.language.plain_integers:
        return result
    return with_element(result, i32)


def quotient(call: Typing, a: Type, b: Type) -> Type:
    """The type that `arithmetic` gives; f32 where neither operand is a float, and by the code of Triton of f16 and
    bf16."""
    result = arithmetic(call, a, b)
    if isinstance(result, ConstantType):
        return result
    _of_one_sign(call, a, b)
    element = scalar_type(result)
    wide = not element.is_float or (call.language.wide_promotion and element.bits == 16)
    return with_element(result, f32) if wide else result


def remainder(call: Typing, a: Type, b: Type) -> Type:
    """The type that `arithmetic` gives; by the code of Triton f32 of f16 and bf16."""
    result = arithmetic(call, a, b)
    if isinstance(result, ConstantType):
        return result
    if not scalar_type(result).is_float:
        _of_one_sign(call, a, b)
        return result
    return quotient(call, a, b)


def _of_one_sign(call: Typing, a: Type, b: Type) -> None:
    """Integers that are divided are all signed or all unsigned, where the language asks for it. A literal has a sign
    where its kind is above that of the other operand: where that is an i1."""
    x, y = scalar_type(a), scalar_type(b)
    literals = isinstance(a, ConstantType), isinstance(b, ConstantType)
    takes_part = not any(literals) or (x.rank > y.rank if literals[0] else y.rank > x.rank)
    if call.language.plain_integers and takes_part and x.is_int and y.is_int and x.signed != y.signed:
        raise call.error(
            "Cannot use /, // or % with {} and {} because they have different signedness",
            x,
            y,
            hint="cast them to the same signedness",
        )


def floor_quotient(call: Typing, a: Type, b: Type) -> Type:
    """The type of a quotient of integers."""
    result = bitwise(call, a, b)
    if not isinstance(result, ConstantType):
        _of_one_sign(call, a, b)
    return result


def _float_quotient(call: Typing, a: Type, b: Type, ieee_rounding: bool = False) -> Type:
    """A quotient of floats."""
    numbers(call, a, b)
    for type_ in (a, b):
        if not scalar_type(type_).is_float:
            raise call.error("the operands must be floats; got {}", type_, hint=DIVIDE())
    return call.computed(a, b, constant(ieee_rounding)) or promoted(str(call), a, b)


def bitwise(call: Typing, a: Type, b: Type) -> Type:
    """Integers only."""
    numbers(call, a, b)
    for type_ in (a, b):
        number = type_.value if isinstance(type_, ConstantType) else None
        if not isinstance(number, int) and scalar_type(type_).is_float:
            first, second = describe(scalar_type(a)), describe(scalar_type(b))
            raise KernelTypeError(
                NOT_INTEGERS(call=str(call), type=describe(type_), first=first, second=second),
                hint=DIVIDE_FLOATS() if call.name == "floordiv" else None,
            )
    return arithmetic(call, a, b)


def _moved(call: Typing, pointer: Type, offset: Type) -> Type:
    """Pointers moved by integers."""
    if is_pointer(offset):
        raise call.error(
            "one operand must be an integer; got two pointers, {} and {}",
            pointer,
            offset,
            hint="move a pointer by an integer",
        )
    if not is_number(offset) or not scalar_type(offset).is_int:
        raise call.error("the offset of the pointer {} must be an integer; got {}", pointer, offset, hint=CAST_OFFSET())
    return shaped(common_shape(str(call), pointer, offset), expect(element_of(pointer), PtrType))


def _sum(call: Typing, a: Type, b: Type) -> Type:
    if is_pointer(a):
        return _moved(call, a, b)
    return _moved(call, b, a) if is_pointer(b) else counted(call, a, b)


def _difference(call: Typing, a: Type, b: Type) -> Type:
    return _moved(call, a, b) if is_pointer(a) else counted(call, a, b)


def _fused(call: Typing, a: Type, b: Type, c: Type) -> Type:
    result = arithmetic(call, a, b, c)
    if not isinstance(result, ConstantType) and not scalar_type(result).is_float:
        raise call.error("the operands must be floats; got {}", result, hint=MULTIPLY_ADD())
    return result


def _as_given(call: Typing, x: Type) -> Type:
    """The type of the operand."""
    numbers(call, x)
    if call.name == "invert" and scalar_type(x).is_float:
        raise call.error("the operands must be integers; got {}", x)
    keeps_type = isinstance(x, ConstantType) or call.language.plain_integers
    if call.name == "neg" and not keeps_type and scalar_type(x) == i1:
        raise call.error("the operands must be integers or floats; got {}", x, hint=INVERT())
    return call.computed(x) or x


def _upper_half(call: Typing, a: Type, b: Type) -> Type:
    literal = isinstance(a, ConstantType) and isinstance(b, ConstantType)
    result = None if literal else bitwise(call, a, b)
    if result is None or scalar_type(result).bits < 32:
        raise call.error("the operands must be integers of 32 or 64 bits; got {} and {}", a, b)
    return result if call.language.typed_literals else with_element(result, scalar_type(result).unsigned)


def _bits(call: Typing, x: Type) -> Type:
    """An integer whose width is known."""
    if isinstance(x, ConstantType):
        raise call.error("the operand must be an integer of a known width; got {}", x, hint=GIVE_WIDTH())
    if not is_number(x) or scalar_type(x).kind != "int":
        raise call.error("the operands must be integers; got {}", x)
    return x


def _count(call: Typing, x: Type) -> Type:
    return with_element(_bits(call, x), i32)


def _ceiling(call: Typing, x: Type, div: Type) -> Type | None:
    integers(call, x=x, div=div)
    common_shape(str(call), x, div)
    return call.computed(x, div)


def _power(call: Typing, n: int) -> Type | None:
    return call.computed(constant(n))


# Ops.

# Ops that give one of their operands, with which no rounding is due.
_SELECTING = (arith.MinNumF, arith.MaxNumF, arith.MinimumF, arith.MaximumF)


def rounded(emit: Emitter, cls: type[Any], element: ScalarType, *values: Value) -> Value:
    """An op on values of one type. That of 8-bit floats is computed in f32 and rounded, unless it selects a value."""
    if not element.is_fp8 or cls in _SELECTING:
        return emit.add(cls(*values))
    return emit.cast(emit.add(cls(*(emit.cast(value, f32) for value in values))), element)


# The ops of i1 that calculate modulo 2.
_MODULO_2: dict[Any, type[Any]] = {arith.AddI: arith.XOrI, arith.SubI: arith.XOrI, arith.MulI: arith.AndI}


def elementwise(floats: type[Any] | None, signed: type[Any] | None = None, unsigned: type[Any] | None = None) -> Builds:
    """Build an op of operands that are converted to the result's type: the op of floats, signed or unsigned integers.

    A single op of integers is for both.
    """

    def build(emit: Emitter, result: Type, *operands: Operand) -> Value:
        element = scalar_type(result)
        cls = floats if element.is_float else signed if element.signed else unsigned or signed
        cls = _MODULO_2.get(cls, cls) if element == i1 else cls
        assert cls is not None
        return rounded(emit, cls, element, *(emit.convert(operand, result) for operand in operands))

    return build


def exact(cls: type[Any]) -> Builds:
    """Build an op of operands that are converted to the result's type, without computing narrow floats in f32."""

    def build(emit: Emitter, result: Type, *operands: Operand) -> Value:
        return emit.add(cls(*(emit.convert(operand, result) for operand in operands)))

    return build


def _offset(emit: Emitter, result: Type, pointer: Operand, offset: Operand, negative: bool = False) -> Value:
    """Pointers moved by offsets, both brought to the result's shape."""
    element = scalar_type(offset.type)
    if element == i1:
        element = i32
    if negative and isinstance(offset.type, ConstantType):
        offset = Operand(constant(-offset.type.value), None)
    elif negative:
        # An unsigned offset is widened first: its negative has no place in its own type.
        element = element if element.signed else i64
        wide = with_element(offset.type, element)
        value = emit.convert(offset, wide)
        offset = Operand(wide, emit.add(arith.SubI(emit.constant(0, wide), value)))
    base = emit.spread(pointer.value, shape_of(result))
    return emit.add(tt.AddPtr(base, emit.convert(offset, shaped(shape_of(result), element))))


_ADD, _SUB = (elementwise(*OPS[name]) for name in ("add", "sub"))


def _add(emit: Emitter, result: Type, a: Operand, b: Operand) -> Any:
    if is_pointer(a.type):
        return _offset(emit, result, a, b)
    return _offset(emit, result, b, a) if is_pointer(b.type) else _ADD(emit, result, a, b)


def _sub(emit: Emitter, result: Type, a: Operand, b: Operand) -> Any:
    return _offset(emit, result, a, b, negative=True) if is_pointer(a.type) else _SUB(emit, result, a, b)


def _extreme(call: Typing, a: Type, b: Type, propagates: bool = False) -> Type:
    return arithmetic(call, a, b, options=[constant(propagates)])


def _clamped(call: Typing, x: Type, low: Type, high: Type, propagates: bool = False) -> Type:
    return arithmetic(call, x, low, high, options=[constant(propagates)])


# The op of floats that gives NaN where an operand is NaN.
_PROPAGATING = {"minimum": arith.MinimumF, "maximum": arith.MaximumF}


def _choose(name: str, emit: Emitter, result: Type, a: Operand, b: Operand, propagates: bool = False) -> Any:
    """The smaller or the larger of two operands."""
    floats, signed, unsigned = OPS[name]
    return elementwise(_PROPAGATING[name] if propagates else floats, signed, unsigned)(emit, result, a, b)


def _clamp(emit: Emitter, result: Type, x: Operand, low: Operand, high: Operand, propagates: bool = False) -> Any:
    above = Operand(result, _choose("maximum", emit, result, x, low, propagates))
    return _choose("minimum", emit, result, above, high, propagates)


def _divide(emit: Emitter, result: Type, a: Operand, b: Operand, ieee_rounding: bool = False) -> Any:
    return (exact(tt.PreciseDivF) if ieee_rounding else elementwise(arith.DivF))(emit, result, a, b)


def _neg(emit: Emitter, result: Type, x: Operand) -> Value:
    value = emit.convert(x, result)
    if scalar_type(result).is_float:
        return emit.add(arith.NegF(value))
    return value if scalar_type(result) == i1 else emit.add(arith.SubI(emit.constant(0, result), value))


def _shift_right(emit: Emitter, result: Type, a: Operand, b: Operand) -> Any:
    """A shift by the sign of the result, or of the left operand: of the tensor where that is a literal."""
    shift: Any = elementwise(*OPS["shr"])
    element = scalar_type(b.type if isinstance(a.type, ConstantType) else a.type)
    if not emit.language.plain_integers or element.signed == scalar_type(result).signed:
        return shift(emit, result, a, b)
    same = with_element(result, SCALARS[f"{'i' if element.signed else 'u'}{scalar_type(result).bits}"])
    return emit.cast(shift(emit, same, a, b), scalar_type(result))


def _invert(emit: Emitter, result: Type, x: Operand) -> Value:
    value = emit.convert(x, result)
    return emit.add(arith.XOrI(value, emit.constant(True if scalar_type(result) == i1 else -1, result)))


def _abs(emit: Emitter, result: Type, x: Operand) -> Value:
    element = scalar_type(result)
    if element.is_float:
        return emit.add(math.AbsF(x.value))
    return emit.add(math.AbsI(x.value)) if element.signed else x.value


def _upper(emit: Emitter, result: Type, a: Operand, b: Operand) -> Value:
    """The upper half of the product of unsigned integers, in the dtype of the result."""
    unsigned = with_element(result, scalar_type(result).unsigned)
    return emit.cast(exact(tt.MulHiUI)(emit, unsigned, a, b), scalar_type(result))  # pyright: ignore[reportArgumentType]


def _counted(cls: type[math.BitUnary]) -> Builds:
    """A count of bits, which is given as an i32."""

    def build(emit: Emitter, result: Type, x: Operand) -> Value:
        return emit.cast(emit.add(cls(x.value)), i32)

    return build


_ELEMENTWISE = {
    "mul": counted, "div": quotient, "mod": remainder, "floordiv": floor_quotient,
    **dict.fromkeys(("and_", "or_", "xor", "shl"), bitwise),
}  # fmt: skip


# Roundings.

_OPERATIONS = {operation.value: operation for operation in math.Operation}
_DIRECTIONS = {direction.value: direction for direction in math.Direction}


def _directed(call: Typing, operation: str, rounding: str, operands: Sequence[Type]) -> Type:
    choice(f"{call}: 'operation'", operation, _OPERATIONS)
    choice(f"{call}: 'rounding'", rounding, _DIRECTIONS)
    numbers(call, *operands)
    if not operands:
        raise call.error("'{}' takes operands; got none", operation)
    type_ = promoted(str(call), *operands)
    how = _OPERATIONS[operation], _DIRECTIONS[rounding]
    return call.op_type(lambda values: math.Directed(values, *how), *[type_] * len(operands))


def _direct(emit: Emitter, result: Type, operation: str, rounding: str, operands: Sequence[Operand]) -> Value:
    values = [emit.convert(operand, result) for operand in operands]
    return emit.add(math.Directed(values, _OPERATIONS[operation], _DIRECTIONS[rounding]))


# Approximations.

_FUNCTIONS = {function.value: function for function in math.Function}


def _by_instruction(call: Typing, function: str, x: Type) -> Type:
    choice(f"{call}: 'function'", function, _FUNCTIONS)
    numbers(call, x)
    return call.op_type(lambda operands: math.Approximate(operands[0], _FUNCTIONS[function]), x)


def _approximation(emit: Emitter, result: Type, function: str, x: Operand) -> Value:
    return emit.add(math.Approximate(x.value, _FUNCTIONS[function]))


# Comparing and choosing.

# Predicates of floats, signed and unsigned integers by comparison. A NaN is unequal to everything.
PREDICATES = {
    CompareKind.EQUAL: (FloatPredicate.OEQ, IntPredicate.EQ, IntPredicate.EQ),
    CompareKind.NOT_EQUAL: (FloatPredicate.UNE, IntPredicate.NE, IntPredicate.NE),
    CompareKind.LESS_THAN: (FloatPredicate.OLT, IntPredicate.SLT, IntPredicate.ULT),
    CompareKind.LESS_THAN_OR_EQUAL: (FloatPredicate.OLE, IntPredicate.SLE, IntPredicate.ULE),
    CompareKind.GREATER_THAN: (FloatPredicate.OGT, IntPredicate.SGT, IntPredicate.UGT),
    CompareKind.GREATER_THAN_OR_EQUAL: (FloatPredicate.OGE, IntPredicate.SGE, IntPredicate.UGE),
}


def _compared(call: Typing, a: Type, b: Type, kind: CompareKind | None = None) -> Type:
    if is_pointer(a) and a == b:
        return with_element(a, i1)
    result = arithmetic(call, a, b, options=[] if kind is None else [ConstantType(kind, i1)])
    return result if isinstance(result, ConstantType) else with_element(result, i1)


def _compare(emit: Emitter, result: Type, a: Operand, b: Operand, kind: CompareKind) -> Value:
    """Compare two operands after promotion."""
    floats, signed, unsigned = PREDICATES[kind]
    if is_pointer(a.type):
        return emit.add(arith.CmpI(a.value, b.value, signed))
    element = promote(a.type, b.type, language=emit.language)
    type_ = with_element(result, element)
    left, right = emit.convert(a, type_), emit.convert(b, type_)
    if element.is_fp8:
        # Promoted first, as all operands are; then compared in f32.
        left, right = emit.cast(left, f32), emit.cast(right, f32)
    if element.is_float:
        return emit.add(arith.CmpF(left, right, floats))
    return emit.add(arith.CmpI(left, right, signed if element.signed else unsigned))


def _chosen(call: Typing, condition: Type, x: Type, y: Type) -> Type:
    if not is_number(condition):
        raise call.error("the condition must be {} (true or false); got {}", i1, condition, hint=COMPARE())
    if scalar_type(condition) != i1 and call.language.is_triton:
        call.context.warn(
            say(
                "tl.where with a non-boolean condition is deprecated and will error out in a future "
                "triton release. Got {}",
                scalar_type(condition),
            )
        )
    if isinstance(condition, ConstantType) and isinstance(x, ConstantType) and isinstance(y, ConstantType):
        return call.computed(condition, x, y) or (x if condition.value else y)
    if is_pointer(x) and is_pointer(y):
        element = expect(element_of(x), PtrType)
        if element != element_of(y):
            raise KernelTypeError(say("{} chooses between unlike pointers, {} and {}", call, x, y))
    else:
        numbers(call, x, y)
        element = promote(x, y, language=call.language)
    return shaped(common_shape(str(call), condition, x, y), element)


def _where(emit: Emitter, result: Type, condition: Operand, x: Operand, y: Operand) -> Value:
    if isinstance(condition.type, ConstantType):
        return emit.convert(x if condition.type.value else y, result)
    mask = emit.nonzero(condition.value)
    mask = emit.spread(mask, shape_of(result)) if shape_of(condition.type) else mask
    return emit.add(arith.Select(mask, emit.convert(x, result), emit.convert(y, result)))


# Functions of floats, and random numbers, which are written in the language.

_WRITTEN_IN_THE_LANGUAGE = (
    "tan", "asin", "acos", "atan", "sinh", "cosh", "expm1", "log1p", "round", "isnan", "isinf", "isfinite",
)  # fmt: skip


def _float(call: Typing, x: Type) -> Type:
    return _constant_float(call, x) or (x if scalar_type(x).is_float else with_element(x, f32))


def _of_full_width(call: Typing, x: Type) -> None:
    """A float of 32 or 64 bits, where the language asks for it; `tanh` is of libdevice, which converts."""
    if not call.language.strict_operands or isinstance(x, ConstantType) or call.name == "tanh":
        return
    if not scalar_type(x).is_float or scalar_type(x).bits < 32:
        raise call.error(
            "Expected dtype ['fp32', 'fp64'] but got {}", scalar_type(x), hint="convert it: x.to(tl.float32)"
        )


def _constant_float(call: Typing, x: Type) -> Type | None:
    numbers(call, x)
    _of_full_width(call, x)
    return call.computed(x)


def _wide(cls: type[Any]) -> Builds:
    """A function of a float; of one narrower than f32, computed in f32 and rounded."""

    def build(emit: Emitter, result: Type, x: Operand) -> Value:
        element = scalar_type(result)
        wide = with_element(result, f32) if element.bits < 32 else result
        return emit.cast(emit.add(cls(emit.convert(x, wide))), element)

    return build


def _pair(call: Typing, y: Type, x: Type) -> None:
    numbers(call, y, x)
    common_shape(str(call), y, x)


def _along(call: Typing, x: Type, dim: Any, *_options: Any) -> None:
    axis(call, 0 if dim is None else dim, number_tensor(call, x).rank)


def _place(call: Typing, *numbers: Type) -> None:
    names = (parameter.name for parameter in CALLS[call.name].signature.parameters)
    integers(call, **dict(zip(names, numbers, strict=False)))
    common_shape(str(call), *numbers)


def _random(call: Typing, *arguments: Any) -> None:
    *words, rounds = arguments
    _place(call, *words)
    if type(rounds) is not int or not 0 <= rounds <= 100:
        raise call.value_error("'n_rounds' must be an integer from 0 to 100; got {}", show(rounds))


_RANDOM = ("philox", "rand", "randn", "randint", "rand4x", "randn4x", "randint4x")


RULES = {
    "add": Rule(_sum, _add),
    "sub": Rule(_difference, _sub),
    **{name: Rule(type_of, elementwise(*OPS[name])) for name, type_of in _ELEMENTWISE.items()},
    "div_rn": Rule(quotient, exact(tt.PreciseDivF)),
    "fdiv": Rule(_float_quotient, _divide),
    "shr": Rule(bitwise, _shift_right),
    "neg": Rule(_as_given, _neg),
    "invert": Rule(_as_given, _invert),
    **{name: Rule(_extreme, partial(_choose, name)) for name in _PROPAGATING},
    "clamp": Rule(_clamped, _clamp),
    # Not in f32 for smaller floats: the result would be rounded twice.
    "fma": Rule(_fused, exact(math.Fma)),
    "abs": Rule(_as_given, _abs),
    "directed": Rule(_directed, _direct),
    "approximate": Rule(_by_instruction, _approximation),
    "umulhi": Rule(_upper_half, _upper),
    "cdiv": Rule(_ceiling, body=LIBRARY["cdiv"]),
    "next_power_of_2": Rule(_power),
    "popc": Rule(_count, _counted(math.CtPop)),
    "clz": Rule(_count, _counted(math.CtLz)),
    "brev": Rule(_bits, as_given(math.BitReverse)),
    "compare": Rule(_compared, _compare),
    **{name: Rule(_compared, partial(_compare, kind=kind)) for name, kind in NAMED.items()},
    "where": Rule(_chosen, _where),
    **{name: Rule(_float, _wide(cls)) for name, cls in OPS_OF_FLOATS.items()},
    "sqrt_rn": Rule(_float, exact(OPS_OF_FLOATS["sqrt_rn"])),
    "sigmoid": Rule(_constant_float, body=LIBRARY["sigmoid"], in_floats=True),
    **{name: Rule(numbers, body=LIBRARY[name], in_floats=True) for name in _WRITTEN_IN_THE_LANGUAGE},
    **{name: Rule(_pair, body=LIBRARY[name], in_floats=True) for name in ("atan2", "pow")},
    "softmax": Rule(_along, body=LIBRARY["softmax"], in_floats=True),
    "swizzle2d": Rule(_place, body=LIBRARY["swizzle2d"]),
    **{name: Rule(_random, body=LIBRARY[name]) for name in _RANDOM},
}
