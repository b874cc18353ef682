"""The arguments of a launch from which an error of the types of a kernel comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelTypeError, ZigguratError, shown
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, PtrType, Type

_SUMS = ("zg.add", "zg.sub")


def name_arguments(error: ZigguratError, model: Op, arguments: Mapping[str, Any], types: Sequence[Type]) -> None:
    """Say in an error of types what the arguments are with which the op in error computes, itself or by sums: a pointer
    is the sum of an argument and offsets. `model` is the Python model, `arguments` has the values by name."""
    parameters = model.bodies[0].parameters
    for part in error.parts:
        place = part.location
        while place is not None and place.caller is not None:
            place = place.caller
        if place is None or not isinstance(part, KernelTypeError):
            continue
        operands = [value for op in model.walk() if op.location == place for value in op.operands]
        values = reached(operands, _summands)
        typed = zip(parameters, arguments.items(), types, strict=False)  # Macros follow the parameters.
        notes = [f"'{name}' is {_described(argument, type_)}" for p, (name, argument), type_ in typed if p in values]
        if notes:
            part.add(f"in this launch {', '.join(notes)}", model.location)


def _summands(value: Value) -> Sequence[Value]:
    """The values that a value is the sum of, or that a variable has."""
    op = value.op
    if isinstance(op, core.Var):
        return [*op.operands, *(use.value for use in value.uses if isinstance(use, core.VarStore))]
    adds = isinstance(op, core.VarLoad | py.Add | py.Sub) or (isinstance(op, py.Invoke) and op.callee in _SUMS)
    return op.operands if op is not None and adds else ()


def _described(argument: Any, type_: Type) -> str:
    """An argument in a message."""
    from ziggurat.transforms.calls.constant_arguments import HostObject  # `import ziggurat` loads no transforms.

    if isinstance(type_, PtrType):
        return f"an array of {type_.pointee}"
    if isinstance(type_, ConstantType) and type(argument) not in (list, bytes):
        argument = type_.value.value if isinstance(type_.value, HostObject) else type_.value
    if argument is None or isinstance(argument, Number | str):
        return shown(argument)
    if isinstance(argument, Type):
        return f"of type {argument}"
    name = type(argument).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
