"""Rules of the calls that only Triton-C has; see `ziggurat.frontends.triton_c.c_calls`.

Most defer to the rule of a call of the language, after the conversions of C.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Value, expect
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    i1,
    i32,
    i64,
    pointee_of,
    shape_of,
    shaped,
    u64,
    with_element,
)
from ziggurat.frontends.triton_c.c_calls import C_SIGNATURES, PARAMETERS, WRITTEN
from ziggurat.transforms.calls import RULES
from ziggurat.transforms.calls.constant_arguments import describe
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, number_as
from ziggurat.transforms.calls.promotion import (
    NONE,
    broadcast_shapes,
    common_shape,
    constant,
    is_number,
    is_pointer,
    promote,
    scalar_type,
)
from ziggurat.transforms.calls.rule import CallTable, Rule, Typing, numbers, tensor
from ziggurat.transforms.calls.rule import shape as checked_shape


def _result_type(rule: Rule, call: Typing, name: str, *arguments: Any) -> Type:
    """The type that a rule of the language gives, with messages that name the operator of C."""
    return expect(rule.type(attrs.evolve(call, name=name), *arguments), Type)


def _built(rule: Rule, emit: Emitter, result: Type, *arguments: Any) -> Any:
    assert rule.build is not None
    return rule.build(emit, result, *arguments)


# Arithmetic.


def _is_bool(x: Type) -> bool:
    return is_number(x) and scalar_type(x) == i1


def _as_int(x: Type) -> Type:
    """The type of an operand of arithmetic: a bool is an int."""
    if not _is_bool(x):
        return x
    return constant(int(x.value)) if isinstance(x, ConstantType) else with_element(x, i32)


def _int(emit: Emitter, x: Operand) -> Operand:
    """An operand with bools as ints."""
    type_ = _as_int(x.type)
    if type_ is x.type or isinstance(type_, ConstantType):
        return Operand(type_, x.value if type_ is x.type else None)
    return Operand(type_, emit.cast(x.value, i32))


_FLOATS, _QUOTIENT, _REMAINDER = (RULES[name] for name in ("div", "floordiv", "mod"))


def _divided(call: Typing, a: Type, b: Type, where: Type | None) -> Type:
    numbers(call, a, b)
    a, b = _as_int(a), _as_int(b)
    floats = any(scalar_type(x).is_float for x in (a, b))
    if floats and call.name == "rem":
        raise KernelTypeError(
            say("{} takes integers; got {} and {}", call, describe(a), describe(b)), hint="write fmod(a, b) for floats"
        )
    if floats:
        return _result_type(_FLOATS, call, "div", a, b)
    name = "mod" if call.name == "rem" else "floordiv"
    if where is not None and isinstance(a, ConstantType) and isinstance(b, ConstantType) and b.value == 0:
        return constant(0)
    result = _result_type(RULES[name], call, name, a, b)
    if where is None or isinstance(b, ConstantType):
        return result
    return shaped(common_shape(str(call), result, where), scalar_type(result))


def _division(integers: Rule) -> Any:
    def build(emit: Emitter, result: Type, a: Operand, b: Operand, where: Operand | None) -> Built:
        a, b = _int(emit, a), _int(emit, b)
        if scalar_type(result).is_float:
            return _built(_FLOATS, emit, result, a, b)
        if where is not None and not isinstance(b.type, ConstantType):
            b = Operand(result, _chosen(emit, result, where, b, Operand(constant(1), None)))
        return _built(integers, emit, result, a, b)

    return build


def _negated(call: Typing, x: Type) -> Type:
    numbers(call, x)
    return _result_type(RULES["neg"], call, "neg", _as_int(x))


def _negate(emit: Emitter, result: Type, x: Operand) -> Built:
    return _built(RULES["neg"], emit, result, _int(emit, x))


def _type_of_number(x: Type) -> Type:
    """The type of an operand, of a number the one that C gives it."""
    if not isinstance(x, ConstantType) or isinstance(x.value, float):
        return x
    return next((type_ for type_ in (i32, i64) if type_.limits[0] <= x.value <= type_.limits[1]), u64)


def _shift(name: str) -> Rule:
    """A shift. The count does not decide the type, as in C: `int >> unsigned` is an `int`."""
    rule = RULES[name]

    def type_of(call: Typing, a: Type, b: Type) -> Type:
        numbers(call, a, b)
        a, b = _as_int(a), _as_int(b)
        is_constant = isinstance(b, ConstantType)
        result = _result_type(rule, call, name, a if is_constant else _type_of_number(a), b)
        if isinstance(result, ConstantType):
            return result
        element = scalar_type(_type_of_number(a))
        wide = b.value >= element.bits if is_constant else scalar_type(b).bits > element.bits
        return with_element(result, i32 if wide and element.bits < i32.bits else element)

    def build(emit: Emitter, result: Type, a: Operand, b: Operand) -> Built:
        return _built(rule, emit, result, _int(emit, a), _int(emit, b))

    return Rule(type_of, build)


def _inverted(call: Typing, x: Type) -> Type:
    if _is_bool(x):
        raise KernelTypeError(
            say("{} takes integers; got {}", call, describe(x)), hint="write !x to exchange true and false"
        )
    return _result_type(RULES["invert"], call, "invert", x)


# Conditions.


def _truth(call: Typing, x: Type) -> Type:
    if not is_number(x):
        hint = "compare integers: a pointer is never null here" if is_pointer(x) else None
        raise KernelTypeError(say("{} must be a number or an array of numbers; got {}", call, describe(x)), hint=hint)
    return constant(bool(x.value)) if isinstance(x, ConstantType) else with_element(x, i1)


def _is_nonzero(emit: Emitter, result: Type, x: Operand) -> Value:
    return emit.nonzero(x.value)


_WHERE = RULES["where"]


def _choice(call: Typing, condition: Type, x: Type, y: Type) -> Type:
    if not isinstance(condition, ConstantType):
        return _result_type(_WHERE, call, "where", condition, x, y)
    branch = x if condition.value else y
    if not is_number(x) or not is_number(y) or (isinstance(x, ConstantType) and isinstance(y, ConstantType)):
        return branch
    return shaped(shape_of(branch), promote(x, y))


def _chosen(emit: Emitter, result: Type, condition: Operand, x: Operand, y: Operand) -> Any:
    if not isinstance(condition.type, ConstantType):
        return _built(_WHERE, emit, result, condition, x, y)
    branch = x if condition.type.value else y
    return emit.convert(branch, result) if is_number(result) else branch.value


# Declared types.


def _check_broadcasts(what: str, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Raise `KernelTypeError` for a shape that does not broadcast to the wanted one."""
    try:
        if shape == target or broadcast_shapes(shape, target, what) == target:
            return
    except KernelTypeError:
        pass

    def words(dims: tuple[int, ...]) -> str:
        return f"[{', '.join(map(str, dims))}]" if dims else "a scalar"

    raise KernelTypeError(
        say("incompatible shapes: {} must be {}; got {}", what, words(target), words(shape)),
        hint="make the sizes equal, or 1, which is broadcast; add an axis of size 1 with x[:, newaxis]",
    )


def _declared(call: Typing, x: Type, dims: Any, declaration: tuple[ScalarType | PtrType, str, bool]) -> Type:
    """The declared type, if the value can be converted to it."""
    type_, what, const = declaration
    if isinstance(type_, PtrType):
        if element_of(x) != type_:
            hint = "write the cast: (type *)p" if is_pointer(x) else None
            raise KernelTypeError(say("{} must be of the type {}; got {}", what, type_, describe(x)), hint=hint)
    elif not is_number(x):
        raise KernelTypeError(say("{} must be a number of the type {}; got {}", what, type_, describe(x)))
    own_shape = shape_of(x)
    shape = own_shape if dims is None else checked_shape(Typing("declare", written=what), dims)
    _check_broadcasts(what, own_shape, shape)
    if const and isinstance(x, ConstantType) and isinstance(type_, ScalarType) and not shape:
        return constant(number_as(x.value, type_))
    return shaped(shape, type_)


def _declare(emit: Emitter, result: Type, x: Operand, *_: Any) -> Built:
    if isinstance(result, ConstantType):
        return None
    if is_pointer(result):
        return emit.spread(x.value, shape_of(result))
    return emit.convert(x, result, dense=True)


_CAST = RULES["cast"]


def _casted(call: Typing, x: Type, type_: ScalarType | PtrType) -> Type:
    if isinstance(x, ConstantType) and is_number(x) and isinstance(type_, ScalarType):
        return type_
    return _result_type(_CAST, call, "cast", x, type_)


def _cast(emit: Emitter, result: Type, x: Operand, type_: ScalarType | PtrType) -> Built:
    if isinstance(x.type, ConstantType):
        return emit.constant(x.type.value, result)
    return _built(_CAST, emit, result, x, type_)


# Memory.

_LOAD, _STORE = RULES["load"], RULES["store"]
_POLICY = ("", "", False)


def _pointers(call: Typing, p: Type, mask: Type | None) -> Type:
    """The type of pointers, broadcast with the mask."""
    if not is_pointer(p):
        raise KernelTypeError(
            say("{} takes a pointer or an array of pointers; got {}", call, describe(p)),
            hint="make the pointers to the elements: *(pointer + offsets)",
        )
    return p if mask is None else shaped(common_shape(str(call), p, mask), PtrType(pointee_of(p)))


def _takes(other: Type | None, pointers: Type) -> bool:
    """Whether a load can give `other` itself where the mask is false, without a conversion of what it loads."""
    pointee = pointee_of(pointers)
    if not isinstance(other, ConstantType) or not is_number(other) or scalar_type(other).rank > pointee.rank:
        return other is None
    return pointee.kind != "int" or pointee.limits[0] <= other.value <= pointee.limits[1]


def _loaded(call: Typing, p: Type, mask: Type | None, other: Type | None) -> Type:
    if mask is not None and not is_number(mask):
        raise KernelTypeError(say("the mask of {} must be numbers; got {}", call, describe(mask)))
    pointers = _pointers(call, p, mask)
    result_type = _result_type(_LOAD, call, "load", pointers, mask, None, *_POLICY)
    if _takes(other, pointers):
        return result_type
    assert mask is not None and other is not None
    return _result_type(_WHERE, call, "where", mask, result_type, other)


def _load(emit: Emitter, result: Type, p: Operand, mask: Operand | None, other: Operand | None) -> Built:
    pointers = _pointers(Typing("load"), p.type, None if mask is None else mask.type)
    spread = Operand(pointers, emit.spread(p.value, shape_of(pointers)))
    result_type = with_element(pointers, pointee_of(pointers))
    zero = Operand(constant(0), None)
    if mask is None or (isinstance(mask.type, ConstantType) and mask.type.value):
        return _built(_LOAD, emit, result_type, spread, None, None, *_POLICY)
    if _takes(None if other is None else other.type, pointers):
        return _built(_LOAD, emit, result_type, spread, mask, other or zero, *_POLICY)
    assert other is not None
    value = Operand(result_type, _built(_LOAD, emit, result_type, spread, mask, zero, *_POLICY))
    return _built(_WHERE, emit, result, mask, value, other)


def _stored(call: Typing, p: Type, value: Type, mask: Type | None) -> Type:
    pointers = _pointers(call, p, None)
    pointee = pointee_of(pointers)
    _declared(call, value, None, (pointee, "the value", False))
    _check_broadcasts("the value", shape_of(value), shape_of(pointers))
    return _result_type(_STORE, call, "store", pointers, with_element(pointers, pointee), mask, "", "")


def _store(emit: Emitter, result: Type, p: Operand, value: Operand, mask: Operand | None) -> Built:
    if mask is not None and isinstance(mask.type, ConstantType) and mask.type.value:
        mask = None
    return _built(_STORE, emit, NONE, p, value, mask, "", "")


def _as_pointee(call: Typing, p: Type, value: Type) -> Type:
    if not is_pointer(p):
        return value  # The call that takes both says so.
    return _declared(call, value, None, (pointee_of(_pointers(call, p, None)), "the value", False))


def _convert(emit: Emitter, result: Type, p: Operand, value: Operand) -> Built:
    return emit.convert(value, result, dense=True)


# Arrays.

_DOT, _ADD = RULES["dot"], RULES["add"]


def _factors(call: Typing, a: Type, b: Type) -> tuple[Type, Type]:
    """The types of the factors after promotion."""
    x, y = tensor(call, a), tensor(call, b)
    if x.element == y.element or not is_number(x) or not is_number(y):
        return x, y
    element = promote(x, y)
    return with_element(x, element), with_element(y, element)


def _adds(product: Type, acc: Type | None) -> bool:
    """Whether the product is accumulated into `acc` itself: it has the type that a product has by itself."""
    return acc is not None and product == acc


def _product(call: Typing, a: Type, b: Type, acc: Type | None) -> Type:
    x, y = _factors(call, a, b)
    product = _result_type(_DOT, call, "dot", x, y, None)
    return product if acc is None or _adds(product, acc) else _result_type(_ADD, call, "add", acc, product)


def _multiply(emit: Emitter, result: Type, a: Operand, b: Operand, acc: Operand | None) -> Built:
    x, y = _factors(Typing("dot"), a.type, b.type)
    factors = [Operand(type_, emit.convert(operand, type_)) for type_, operand in ((x, a), (y, b))]
    product = _result_type(_DOT, Typing("dot"), "dot", x, y, None)
    if acc is None or _adds(product, acc.type):
        return _built(_DOT, emit, product, *factors, acc)
    operand = Operand(product, _built(_DOT, emit, product, *factors, None))
    return _built(_ADD, emit, result, acc, operand)


def _ranked(call: Typing, x: Type, count: int) -> Type:
    if is_pointer(x) and not isinstance(x, TensorType):
        raise KernelTypeError(
            say("{} must follow an array; got the pointer {}", call, x),
            hint="write *(p + i) to read or write an element",
        )
    if not isinstance(x, TensorType):
        raise KernelTypeError(say("{} must follow an array; got {}", call, describe(x)))
    if x.rank != count:
        axes = f"{x.rank} {'axis' if x.rank == 1 else 'axes'}"
        raise KernelTypeError(
            say(
                "{} must have a ':', '+', max or min for each axis of the array; got {} for {}, {}",
                call,
                count,
                axes,
                x,
            )
        )
    return x


def _itself(emit: Emitter, result: Type, x: Operand, *_: Any) -> Built:
    return x.value


C_RULES: Final[dict[str, Rule]] = {
    "div": Rule(_divided, _division(_QUOTIENT)),
    "rem": Rule(_divided, _division(_REMAINDER)),
    "neg": Rule(_negated, _negate),
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "invert": Rule(_inverted, RULES["invert"].build),
    "truth": Rule(_truth, _is_nonzero),
    "choose": Rule(_choice, _chosen),
    "declare": Rule(_declared, _declare),
    "cast": Rule(_casted, _cast),
    "load": Rule(_loaded, _load),
    "store": Rule(_stored, _store),
    "pointee": Rule(_as_pointee, _convert),
    "dot": Rule(_product, _multiply),
    "ranked": Rule(_ranked, _itself),
}
C_CALLS: Final = CallTable(C_SIGNATURES, C_RULES, WRITTEN, PARAMETERS)
