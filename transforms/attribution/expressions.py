"""Attribution of variables, operators and tuples."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelNameError, KernelTypeError, KernelValueError, ZigguratError
from ziggurat.codemodel.messages import call_text, operator_text, say
from ziggurat.codemodel.op import Op, OpResult, Value, expect
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    TensorType,
    TupleType,
    Type,
    VarType,
    constexpr_type,
    i1,
    pyobject,
    shape_of,
    shaped,
    value_element,
    with_element,
)
from ziggurat.frontends.language.languages import Language
from ziggurat.frontends.language.phrases import (
    CHOOSE,
    FINAL_TYPE,
    INDEX_POINTER,
    INDEX_TENSOR,
    POWER,
    UNLIKE_IN_BRANCHES,
    UNLIKE_IN_LOOP,
)
from ziggurat.frontends.language.phrases import UNASSIGNED as UNASSIGNED_NAME
from ziggurat.transforms.attribution.attribute import FunctionAttributor, handles, is_result
from ziggurat.transforms.attribution.attribution import packed_values
from ziggurat.transforms.attribution.objects import attribute_of_host, plain_constant, special_method
from ziggurat.transforms.attribution.operators import CALLS, SPECIAL, folded, sign_of
from ziggurat.transforms.calls import RULES, Typing
from ziggurat.transforms.calls.builtins import property_of
from ziggurat.transforms.calls.constant_arguments import (
    CHOSEN_FUNCTION,
    HostObject,
    describe,
    describe_all,
    is_function,
    show,
)
from ziggurat.transforms.calls.lattice import (
    ERROR,
    UNASSIGNED,
    RecordType,
    Split,
    Unusable,
    at_run_time,
    component,
    component_count,
    components,
    is_aggregate,
    items_of,
    known_value,
    outer_constant,
)
from ziggurat.transforms.calls.operands import operand_types
from ziggurat.transforms.calls.promotion import NONE, constant, is_number, to_load


@handles(core.ConstantOp)
def constant_op(context: FunctionAttributor, op: core.ConstantOp) -> Type:
    return constant(op.value)


@handles(core.Var)
def var(context: FunctionAttributor, op: core.Var) -> Type:
    context.names[op.result] = op.name
    if is_result(op.result):
        context.state[op.result] = pyobject  # Its type is that of the function's result, known at the end.
        return op.result.type
    context.state[op.result] = UNASSIGNED if op.initial is None else assigned(context, op.result, op.initial)
    return op.result.type


def assigned(context: FunctionAttributor, var: Value, value: Value) -> Type:
    """The type that a variable has after an assignment."""
    type_ = context.scope.type_of(value)
    return at_run_time(type_, context.language) if becomes_run_time(context.language, var, value) else type_


def becomes_run_time(language: Language, var: Value, value: Value) -> bool:
    """Whether a number that is assigned becomes a run-time value; see `Language.run_time_numbers`. A parameter, and the
    item of a loop, are what they are given."""
    return language.run_time_numbers and isinstance(value, OpResult) and var.type != VarType(constexpr_type)


@handles(core.VarLoad)
def var_load(context: FunctionAttributor, op: core.VarLoad) -> Type:
    var = op.operands[0]
    type_ = context.state.get(var, UNASSIGNED)
    if isinstance(type_, Split):
        return i1  # Of a flag: the types of others depend on it.
    if isinstance(type_, Unusable):
        raise unusable(context, var, type_)
    return type_


def unusable(context: FunctionAttributor, var: Value, type_: Unusable) -> ZigguratError:
    """The error of reading a variable that has no one value."""
    name = context.names.get(var, "?")
    if not type_.types and not type_.partly:
        return KernelNameError(
            UNASSIGNED_NAME(name=name),
            hint=f"assign '{name}' first; an 'if' that is decided at compile time and not taken assigns nothing",
        )
    if not type_.types:
        return KernelNameError(
            f"'{name}' is not defined on every path to here",
            hint=f"assign '{name}' before the loop or the if, so that it has a value whichever way is taken",
        )
    before, after = type_.types
    place = type_.place if context.language.is_triton else None  # Triton's place is the loop or the branch.
    parts = {"name": name, "first": describe(before), "second": describe(after)}
    if not type_.loop:
        hint = "assign values of one type on both paths, or use two names"
        if is_function(before) or is_function(after):
            hint = CHOSEN_FUNCTION
        return KernelTypeError(UNLIKE_IN_BRANCHES(**parts), place, hint)
    hint = "cast it, or give it its final type before the loop"
    if isinstance(before, ConstantType) and is_number(before) and isinstance(after, TensorType) and is_number(after):
        literal = {"shape": show(after.shape), "sizes": [*after.shape], "value": show(before.value)}
        hint = FINAL_TYPE(name=name, dtype=after.element, **literal)
    return KernelTypeError(UNLIKE_IN_LOOP(**parts), place, hint)


@handles(core.VarStore)
def var_store(context: FunctionAttributor, op: core.VarStore) -> Type:
    var, value = op.operands
    new = assigned(context, var, value)
    if is_result(var):
        context.returned(op, new)
        return NONE
    context.state[var] = new
    return NONE


@handles(*SPECIAL)
def operator(context: FunctionAttributor, op: Op) -> Type:
    types = [context.scope.type_of(operand) for operand in op.operands]
    constants = [type_ for type_ in types if isinstance(type_, ConstantType)]
    is_identity = isinstance(op, py.Is | py.IsNot)
    if is_aggregate(types[0]) and not is_identity:
        return special_method(context, op, SPECIAL[type(op)])
    if len(constants) == len(types):
        return folded(type(op), *(type_.value for type_ in constants), written=sign_of(op))
    if isinstance(op, py.Pos):
        return types[0]
    if is_identity:  # A tensor is never None, so `bias is not None` is decided at compile time.
        return constant(isinstance(op, py.IsNot))
    if any(isinstance(type_, TupleType) for type_ in types) and (len(types) == 2 or isinstance(op, py.Not)):
        return tuple_operator(op, types)
    if isinstance(op, py.In | py.NotIn):
        raise KernelTypeError("'in' is for constants in a kernel")
    if isinstance(op, py.Not):
        if isinstance(types[0], TensorType):
            return with_element(types[0], i1)
        truth(context, types[0], "not", op.operands[0])
        return i1
    call = CALLS.get(type(op))
    if call is None:
        raise KernelTypeError(f"'{sign_of(op)}' is for constants in a kernel", hint=POWER())
    typing = Typing(call, context, operator_text(sign_of(op)))
    return expect(RULES[call].type(typing, *operand_types(call, context.language, types)), Type)


def tuple_operator(op: Op, types: list[Type]) -> Type:
    """The type of an operator on tuples with run-time values in them."""
    constants = [known_value(type_) for type_ in types]
    if all(good for good, _ in constants):
        return folded(type(op), *(value for _, value in constants), written=sign_of(op))
    parts = [items_of(type_) for type_ in types]
    if isinstance(op, py.Not):
        return constant(not parts[0])
    if isinstance(op, py.Add) and parts[0] is not None and parts[1] is not None:
        return packed_values((*parts[0], *parts[1]))
    if isinstance(op, py.Mul) and isinstance(types[1], ConstantType) and isinstance(types[1].value, int):
        return packed_values((parts[0] or ()) * types[1].value)
    if isinstance(op, py.Eq | py.Ne) and (None in parts or len(parts[0] or ()) != len(parts[1] or ())):
        return constant(isinstance(op, py.Ne))
    raise KernelTypeError(
        say("'{}' does not work on {}", sign_of(op), describe_all(types)),
        hint="compare or combine the items of the tuples",
    )


def truth(context: FunctionAttributor, type_: Type, what: str, value: Value) -> None:
    """Check that a value can be a condition. An error is at the place of the value."""
    if isinstance(type_, TensorType) and type_.numel == 1:
        return
    if isinstance(type_, TensorType):
        start = "Boolean value of Tensor with more than one value is ambiguous: " if context.language.is_triton else ""
        raise KernelTypeError(
            say("{}the condition of '{}' must be a scalar; got {}", start, what, type_),
            context.place_of(value),
            CHOOSE(),
        )
    if not is_number(type_) and not isinstance(type_, PtrType):
        raise KernelTypeError(
            say("the condition of '{}' must be a number; got {}", what, describe(type_)), context.place_of(value)
        )


@handles(py.Pack)
def pack(context: FunctionAttributor, op: py.Pack) -> Type:
    return packed_values([context.scope.type_of(operand) for operand in op.operands])


@handles(py.Format)
def formatted(context: FunctionAttributor, op: py.Format) -> Type:
    values: list[Any] = []
    for operand in op.operands:
        is_constant, value = known_value(context.scope.type_of(operand))
        if not is_constant:
            raise KernelTypeError(
                say(
                    "Cannot evaluate f-string containing non-constexpr conversion values, found conversion of type {}",
                    describe(context.scope.type_of(operand)),
                ),
                context.place_of(operand),
                say("print run-time values as further arguments of {}", call_text("device_print")),
            )
        values.append(value.value if isinstance(value, HostObject) else value)
    try:
        return constant(op.template.format(*values))
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise KernelValueError(f"cannot compute the f-string: {error}") from None


@handles(py.Outer)
def outer(context: FunctionAttributor, op: py.Outer) -> Type:
    function = context.function.function
    if function is None or op.name not in function.objects:
        raise KernelNameError(f"there is no object '{op.name}' outside of the function")
    return outer_constant(function.objects[op.name])


@handles(py.Unpack)
def unpack(context: FunctionAttributor, op: py.Unpack) -> Type:
    type_ = context.scope.type_of(op.value)
    parts = items_of(type_)
    if (parts is None or len(parts) != op.count) and op.index > 0:
        return ERROR  # It is reported at the first name.
    if parts is None:
        raise KernelTypeError(
            say("{} is not a tuple; it cannot be unpacked into {} names", describe(type_), op.count),
            context.place_of(op.value),
        )
    if len(parts) != op.count:
        raise KernelTypeError(
            f"a tuple of {len(parts)} cannot be unpacked into {op.count} names", context.place_of(op.value)
        )
    return parts[op.index]


@handles(py.Subscript)
def subscript(context: FunctionAttributor, op: py.Subscript) -> Type:
    value, index = (context.scope.type_of(operand) for operand in op.operands)
    if is_aggregate(value):
        return special_method(context, op, "__getitem__")
    result = python_subscript(value, index)
    if result is not None:
        return result
    if isinstance(value, TensorType | PtrType) or is_number(value):
        return with_new_axes(value, index)
    count = component_count(value)
    if count is None:
        raise KernelTypeError(say("{} cannot be indexed in a kernel", describe(value)), hint=to_load(value))
    if not isinstance(index, ConstantType) or not isinstance(index.value, int):
        raise KernelTypeError(say("a tuple must be indexed by a constant integer; got {}", describe(index)))
    if not -count <= index.value < count:
        raise KernelValueError(f"index {index.value} is outside a tuple of {count}")
    return component(value, index.value)


def python_subscript(value: Type, index: Type) -> Type | None:
    """The type of a slice of a tuple, or of an item of an object of Python's; None for another subscript."""
    position = index.value if isinstance(index, ConstantType) else None
    whole = slice(None) if position == (":",) else position.value if isinstance(position, HostObject) else None
    if isinstance(whole, slice) and (parts := components(value)) is not None:
        return packed_values(parts[whole])
    thing = value.value if isinstance(value, ConstantType) else None
    if isinstance(thing, HostObject | str) and position is not None:
        try:
            item = position.value if isinstance(position, HostObject) else position
            return outer_constant((thing.value if isinstance(thing, HostObject) else thing)[item])
        except (TypeError, LookupError) as error:
            raise KernelTypeError(say("{} has no item {}: {}", show(thing), show(position), error)) from None
    return None


def with_new_axes(value: Type, index: Type) -> Type:
    """The type of a tensor that is indexed by `None` and `:`."""
    items = axes_of(index.value if isinstance(index, ConstantType) else index)
    if not all(item in ("None", ":", None) for item in items):
        raise KernelTypeError(
            say("unsupported tensor index: {}", describe(index)),
            hint=INDEX_POINTER() if isinstance(value, PtrType) else INDEX_TENSOR(),
        )
    shape = list(shape_of(value))
    for place, item in enumerate(items):
        if item == ":":
            continue  # Triton asks for no axis there: `x[:, :]` is `x`, and a scalar has `x[:, None]`.
        if place > len(shape) > 0:
            raise KernelTypeError(say("{} has too few axes for {} indices", describe(value), len(items)))
        shape.insert(place, 1)
    return shaped(tuple(shape), value_element(value.type if isinstance(value, ConstantType) else value))


def axes_of(index: Any) -> tuple[Any, ...]:
    """The indices of a subscript of a tensor: one for each axis of the result."""
    return index if isinstance(index, tuple) else (index,)  # pyright: ignore[reportUnknownVariableType]


@handles(py.Attribute)
def property(context: FunctionAttributor, op: py.Attribute) -> Type:
    return attribute_of(context, context.scope.type_of(op.operands[0]), op.name)


def attribute_of(context: FunctionAttributor, value: Type, name: str) -> Type:
    """The type of `value.name`."""
    if isinstance(value, RecordType):
        index = value.field(name)
        if index is not None:
            return value.components[index]
        return outer_constant(attribute_of_host(value.record.cls, name))
    if isinstance(value, ConstantType) and isinstance(value.value, HostObject):
        return outer_constant(attribute_of_host(value.value.value, name))
    if name == "T":
        transposed = RULES["trans"].type(Typing("trans", context), value, ())
        assert transposed is not None
        return transposed
    plain = plain_constant(value)
    if plain is not None and hasattr(plain, name):
        return outer_constant(getattr(plain, name))
    return property_of(value, name, context.language)
