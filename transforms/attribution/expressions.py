"""Attribution of variables, operators and tuples."""

from __future__ import annotations

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import (
    KernelNameError,
    KernelTypeError,
    KernelValueError,
    ZigguratError,
)
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    TensorType,
    TupleType,
    Type,
    i1,
    shape_of,
)
from ziggurat.transforms.attribution.elementwise import folded
from ziggurat.transforms.attribution.lattice import (
    ERROR,
    UNASSIGNED,
    ErrorType,
    Unusable,
    components,
)
from ziggurat.transforms.attribution.operators import COMPARISONS, OPERATORS, operator_error
from ziggurat.transforms.attribution.promotion import (
    NONE,
    constant,
    is_number,
)
from ziggurat.transforms.attribution.walk import FunctionAttributor, handles
from ziggurat.transforms.attribution.wording import CHOSEN_FUNCTION, describe, is_function, show


@handles(core.ConstantOp)
def constant_op(walk: FunctionAttributor, op: core.ConstantOp) -> Type:
    return constant(op.value)


@handles(core.Var)
def var(walk: FunctionAttributor, op: core.Var) -> Type:
    walk.names[op.result] = op.name
    walk.state[op.result] = UNASSIGNED if op.initial is None else walk.scope.type_of(op.initial)
    return op.result.type


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
        hint = "a variable carried around a loop keeps its type; cast it, or give it its final type before the loop"
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
            f"'{name}' changes its type in the loop: {first} before it, {second} after an iteration", hint=hint
        )
    if any(map(is_function, type_.types)):
        hint = CHOSEN_FUNCTION
    else:
        hint = "assign values of one type on both paths, or use two names"
    return KernelTypeError(
        f"'{name}' differs between the branches: {first} on one path, {second} on the other", hint=hint
    )


@handles(core.VarStore)
def var_store(walk: FunctionAttributor, op: core.VarStore) -> Type:
    var, value = op.operands
    new = walk.scope.type_of(value)
    old = walk.state.get(var, UNASSIGNED)
    if not isinstance(old, Unusable | ErrorType) and not isinstance(old, ConstantType):
        before, after = shape_of(old), shape_of(new)
        if before != after and isinstance(old, TensorType) and isinstance(new, TensorType):
            walk.state[var] = ERROR
            raise KernelTypeError(
                f"'{walk.names.get(var, '?')}' has the type {old}; it cannot be assigned {new}",
                hint="a variable keeps its shape; use another name for a tensor of another shape",
            )
    walk.state[var] = new
    return NONE


@handles(*OPERATORS, *COMPARISONS, py.Is, py.IsNot, py.In, py.NotIn, py.Not, py.Pos)
def operator(walk: FunctionAttributor, op: Op) -> Type:
    types = [walk.scope.type_of(operand) for operand in op.operands]
    is_known = isinstance(op, py.Is | py.IsNot) and any(isinstance(t, ConstantType) for t in types)
    for type_ in types:
        # What is computed is nothing that is known: `bias is not None` asks whether there is one.
        if isinstance(type_, TensorType) and not is_known:
            raise operator_error(op, type_)
    if isinstance(op, py.Is | py.IsNot):
        same = types[0] == types[1] if all(isinstance(t, ConstantType) for t in types) else False
        return constant(same == isinstance(op, py.Is))
    if isinstance(op, py.In | py.NotIn):
        item, items = types
        if not isinstance(item, ConstantType) or not isinstance(items, ConstantType):
            raise KernelTypeError("'in' is for constants in a kernel")
        try:
            return constant((item.value in items.value) == isinstance(op, py.In))
        except TypeError:
            raise KernelTypeError(f"'in' does not work on {describe(item)} and {describe(items)}") from None
    if isinstance(op, py.Not):
        if isinstance(types[0], ConstantType):
            return constant(not types[0].value)
        truth(walk, types[0], "not", op.operands[0])
        return i1
    if isinstance(op, py.Pos):
        return types[0]
    comparison = COMPARISONS.get(type(op))
    if comparison is not None:
        return walk.rules._comparison(comparison, *types)  # pyright: ignore[reportPrivateUsage]
    name = OPERATORS[type(op)]
    values = [type_.value for type_ in types if isinstance(type_, ConstantType)]
    if len(values) == len(types):
        return folded(name, *values)
    if name == "pow":
        raise KernelTypeError(
            "'**' is for constants in a kernel",
            hint="zg.mul for small powers, zg.exp2(zg.mul(b, zg.log2(a))) otherwise",
        )
    return getattr(walk.rules, name)(*types)


def truth(walk: FunctionAttributor, type_: Type, what: str, value: Value) -> None:
    """Check that a value can be a condition. An error is at the place of the value."""
    if isinstance(type_, TensorType):
        raise KernelTypeError(
            f"the condition of '{what}' is a tensor, {type_}",
            walk.place_of(value),
            "a condition is a scalar; use zg.where to choose element by element, or reduce it first (zg.max)",
        )
    if not is_number(type_):
        hint = "pointers are never null here; compare integers" if isinstance(type_, PtrType) else None
        raise KernelTypeError(
            f"the condition of '{what}' is a number, got {describe(type_)}", walk.place_of(value), hint
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
            f"{describe(type_)} is not a tuple; it cannot be unpacked into {op.count} names",
            walk.place_of(op.value),
        )
    if len(parts) != op.count:
        raise KernelTypeError(
            f"a tuple of {len(parts)} cannot be unpacked into {op.count} names", walk.place_of(op.value)
        )
    return parts[op.index]


@handles(py.Subscript)
def subscript(walk: FunctionAttributor, op: py.Subscript) -> Type:
    value, index = (walk.scope.type_of(operand) for operand in op.operands)
    parts = components(value)
    if parts is None:
        hint = "zg.expand adds an axis, zg.gather picks elements" if isinstance(value, TensorType) else None
        if isinstance(value, PtrType):
            hint = "zg.load(p + i) reads an element, zg.store(p + i, x) writes one"
        raise KernelTypeError(f"{describe(value)} cannot be indexed in a kernel", hint=hint)
    if not isinstance(index, ConstantType) or not isinstance(index.value, int):
        raise KernelTypeError(f"a tuple is indexed by a constant integer, got {describe(index)}")
    if not -len(parts) <= index.value < len(parts):
        raise KernelValueError(f"index {index.value} is outside a tuple of {len(parts)}")
    return parts[index.value]


@handles(py.Attribute)
def property(walk: FunctionAttributor, op: py.Attribute) -> Type:
    return walk.rules.property(walk.scope.type_of(op.operands[0]), op.attributes["name"])
