"""Attribution of variables, operators and tuples."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelNameError, KernelTypeError, KernelValueError, ZigguratError
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    VarType,
    constexpr_type,
    element_of,
    i1,
    shape_of,
    shaped,
    with_element,
)
from ziggurat.frontends.language.policy import Policy
from ziggurat.transforms.attribution.attribute import FunctionAttributor, handles
from ziggurat.transforms.attribution.operators import OPERATORS, folded, operator_error
from ziggurat.transforms.calls import RULES, Typing
from ziggurat.transforms.calls.builtins import property_of
from ziggurat.transforms.calls.constants import CHOSEN_FUNCTION, describe, is_function, show
from ziggurat.transforms.calls.lattice import ERROR, UNASSIGNED, ErrorType, Unusable, components
from ziggurat.transforms.calls.promotion import NONE, constant, is_number

# The calls that combine conditions element by element, by Python's operator.
_LOGICAL = {"and": "and_(a, b)", "or": "or_(a, b)", "not": "invert(x)"}


@handles(core.ConstantOp)
def constant_op(walk: FunctionAttributor, op: core.ConstantOp) -> Type:
    return constant(op.value)


@handles(core.Var)
def var(walk: FunctionAttributor, op: core.Var) -> Type:
    walk.names[op.result] = op.name
    walk.state[op.result] = UNASSIGNED if op.initial is None else assigned(walk, op.result, op.initial)
    return op.result.type


def assigned(walk: FunctionAttributor, var: Value, value: Value) -> Type:
    """The type that a variable has after an assignment."""
    type_ = walk.scope.type_of(value)
    return at_run_time(type_) if becomes_run_time(walk.policy, var, value) else type_


def becomes_run_time(policy: Policy, var: Value, value: Value) -> bool:
    """Whether a number that is assigned becomes a run-time value; see `Policy.assigned_numbers`. A parameter, and the
    item of a loop, are what they are given."""
    return policy.assigned_numbers and isinstance(value, OpResult) and var.type != VarType(constexpr_type)


def at_run_time(type_: Type) -> Type:
    """The type with the numbers that are known at compile time in it as scalars."""
    parts = components(type_)
    if parts is not None:
        inner = tuple(map(at_run_time, parts))
        return type_ if all(isinstance(part, ConstantType) for part in inner) else TupleType(inner)
    return type_.type if isinstance(type_, ConstantType) and is_number(type_) else type_


@handles(core.VarLoad)
def var_load(walk: FunctionAttributor, op: core.VarLoad) -> Type:
    var = op.operands[0]
    type_ = walk.state.get(var, UNASSIGNED)
    if isinstance(type_, Unusable):
        raise unusable(walk, var, type_)
    return type_


def unusable(walk: FunctionAttributor, var: Value, type_: Unusable) -> ZigguratError:
    """The error of reading a variable that has no one value."""
    name = walk.names.get(var, "?")
    if not type_.types and not type_.partly:
        return KernelNameError(
            f"'{name}' is used before it is assigned",
            hint=f"assign '{name}' first; an 'if' that is decided at compile time and not taken assigns nothing",
        )
    if not type_.types:
        return KernelNameError(
            f"'{name}' is not defined on every path to here",
            hint=f"assign '{name}' before the loop or the if, so that it has a value whichever way is taken",
        )
    first, second = (describe(one) for one in type_.types)
    if type_.loop:
        hint = "cast it, or give it its final type before the loop"
        before, after = type_.types
        if (
            isinstance(before, ConstantType)
            and is_number(before)
            and isinstance(after, TensorType)
            and is_number(after)
        ):
            made = f"zg.full({show(after.shape)}, {show(before.value)}, {show(after.element)})"
            hint = f"give it its final type before the loop: {name} = {made}"
        return KernelTypeError(
            f"'{name}' must keep its type in the loop; got {first} before it and {second} after an iteration", hint=hint
        )
    if any(map(is_function, type_.types)):
        hint = CHOSEN_FUNCTION
    else:
        hint = "assign values of one type on both paths, or use two names"
    return KernelTypeError(
        f"'{name}' must have one type on both paths; got {first} on one and {second} on the other", hint=hint
    )


@handles(core.VarStore)
def var_store(walk: FunctionAttributor, op: core.VarStore) -> Type:
    var, value = op.operands
    new = assigned(walk, var, value)
    old = walk.state.get(var, UNASSIGNED)
    if not walk.policy.rebinding and not isinstance(old, Unusable | ErrorType) and not isinstance(old, ConstantType):
        before, after = shape_of(old), shape_of(new)
        if before != after and isinstance(old, TensorType) and isinstance(new, TensorType):
            walk.state[var] = ERROR
            raise KernelTypeError(
                f"'{walk.names.get(var, '?')}' must keep its shape, that of {old}; got {new}",
                hint="use another name for a tensor of another shape",
            )
    walk.state[var] = new
    return NONE


@handles(*OPERATORS)
def operator(walk: FunctionAttributor, op: Op) -> Type:
    types = [walk.scope.type_of(operand) for operand in op.operands]
    known = [type_ for type_ in types if isinstance(type_, ConstantType)]
    is_identity = isinstance(op, py.Is | py.IsNot)
    for type_ in types:
        # A tensor is never None, so `bias is not None` is decided at compile time.
        if isinstance(type_, TensorType) and not (is_identity and known) and not walk.policy.tensor_operators:
            raise operator_error(op, type_)
    if isinstance(op, py.Pos):
        return types[0]
    if len(known) == len(types):
        return folded(type(op), *(type_.value for type_ in known))
    if is_identity:
        return constant(isinstance(op, py.IsNot))
    if isinstance(op, py.In | py.NotIn):
        raise KernelTypeError("'in' is for constants in a kernel")
    if isinstance(op, py.Not):
        if isinstance(types[0], TensorType):
            return with_element(types[0], i1)
        truth(walk, types[0], "not", op.operands[0])
        return i1
    call = OPERATORS[type(op)].call
    if call is None:
        raise KernelTypeError(
            "'**' is for constants in a kernel",
            hint="use zg.mul for small powers, zg.exp2(zg.mul(b, zg.log2(a))) otherwise",
        )
    result = RULES[call].type(Typing(call, policy=walk.policy), *types)
    assert result is not None
    return result


def truth(walk: FunctionAttributor, type_: Type, what: str, value: Value) -> None:
    """Check that a value can be a condition. An error is at the place of the value."""
    if isinstance(type_, TensorType):
        call = _LOGICAL.get(what)
        hint = "use zg.where to choose element by element, or reduce it to a scalar first (zg.any, zg.all)"
        if call is not None:
            hint = f"use zg.{call} to combine conditions element by element, or reduce them first (zg.any, zg.all)"
        raise KernelTypeError(f"the condition of '{what}' must be a scalar; got {type_}", walk.place_of(value), hint)
    if not is_number(type_):
        hint = "compare integers: a pointer is never null here" if isinstance(type_, PtrType) else None
        raise KernelTypeError(
            f"the condition of '{what}' must be a number; got {describe(type_)}", walk.place_of(value), hint
        )


@handles(py.Pack)
def pack(walk: FunctionAttributor, op: py.Pack) -> Type:
    types = [walk.scope.type_of(operand) for operand in op.operands]
    values = [t.value for t in types if isinstance(t, ConstantType)]
    return constant(tuple(values)) if len(values) == len(types) else TupleType(tuple(types))


@handles(py.Unpack)
def unpack(walk: FunctionAttributor, op: py.Unpack) -> Type:
    type_ = walk.scope.type_of(op.value)
    parts = components(type_)
    if (parts is None or len(parts) != op.count) and op.index > 0:
        return ERROR  # It is reported at the first name.
    if parts is None:
        raise KernelTypeError(
            f"{describe(type_)} is not a tuple; it cannot be unpacked into {op.count} names", walk.place_of(op.value)
        )
    if len(parts) != op.count:
        raise KernelTypeError(
            f"a tuple of {len(parts)} cannot be unpacked into {op.count} names", walk.place_of(op.value)
        )
    return parts[op.index]


@handles(py.Subscript)
def subscript(walk: FunctionAttributor, op: py.Subscript) -> Type:
    value, index = (walk.scope.type_of(operand) for operand in op.operands)
    if walk.policy.tensor_operators and (isinstance(value, TensorType | PtrType) or is_number(value)):
        return with_new_axes(value, index)
    parts = components(value)
    if parts is None:
        hint = "use zg.expand to add an axis, zg.gather to pick elements" if isinstance(value, TensorType) else None
        if isinstance(value, PtrType):
            hint = "write zg.load(p + i) to read an element, zg.store(p + i, x) to write one"
        raise KernelTypeError(f"{describe(value)} cannot be indexed in a kernel", hint=hint)
    if not isinstance(index, ConstantType) or not isinstance(index.value, int):
        raise KernelTypeError(f"a tuple must be indexed by a constant integer; got {describe(index)}")
    if not -len(parts) <= index.value < len(parts):
        raise KernelValueError(f"index {index.value} is outside a tuple of {len(parts)}")
    return parts[index.value]


def with_new_axes(value: Type, index: Type) -> Type:
    """The type of a tensor that is indexed by `None` and `:`."""
    items = axes_of(index.value if isinstance(index, ConstantType) else index)
    if not all(item in ("None", ":", None) for item in items):
        raise KernelTypeError(
            f"unsupported tensor index: {describe(index)}", hint="a tensor is indexed by None and ':'"
        )
    shape = list(shape_of(value))
    for place, item in enumerate(items):
        if item != ":":
            shape.insert(place, 1)
        elif place >= len(shape):
            raise KernelTypeError(f"{describe(value)} has too few axes for {len(items)} indices")
    element = element_of(value.type if isinstance(value, ConstantType) else value)
    assert isinstance(element, ScalarType | PtrType)
    return shaped(tuple(shape), element)


def axes_of(index: Any) -> tuple[Any, ...]:
    """The indices of a subscript of a tensor: one for each axis of the result."""
    return index if isinstance(index, tuple) else (index,)  # pyright: ignore[reportUnknownVariableType]


@handles(py.Attribute)
def property(walk: FunctionAttributor, op: py.Attribute) -> Type:
    value = walk.scope.type_of(op.operands[0])
    if walk.policy.tensor_operators and op.name == "T":
        transposed = RULES["trans"].type(Typing("trans", policy=walk.policy), value, ())
        assert transposed is not None
        return transposed
    return property_of(value, op.name, walk.policy)
