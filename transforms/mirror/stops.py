"""Building the places at which a debugger can stop, with the variables that have a value there."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import core, debug
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ConstantType, ScalarType, TupleType
from ziggurat.transforms.attribution.attribute import is_flag, is_result
from ziggurat.transforms.calls.emit import VALUELESS, Built, Operand, split_operand
from ziggurat.transforms.calls.lattice import BlockPtrType, RecordType, Split
from ziggurat.transforms.mirror.mirror import FunctionMirror, handles

_PLAIN = (bool, int, float, str, type(None), ScalarType)


@handles(debug.Statement)
def statement(context: FunctionMirror, op: debug.Statement) -> Built:
    values: list[Value] = []
    names: list[str] = []
    constants: list[tuple[str, Any]] = []

    def add(name: str, operand: Operand) -> None:
        type_, value = operand.type, operand.value
        if isinstance(type_, ConstantType):
            constants.append((name, type_.value if _is_plain(type_.value) else str(type_.value)))
        elif isinstance(type_, Split):
            usable = [part for part in split_operand(operand) if not isinstance(part.type, VALUELESS)]
            if len(usable) == 1:
                add(name, usable[0])
        elif isinstance(type_, TupleType | BlockPtrType):
            fields = type_.record.fields if isinstance(type_, RecordType) else ()
            for number, part in enumerate(split_operand(operand)):
                add(f"{name}.{fields[number] if fields else number}", part)
        elif isinstance(value, Value):
            values.append(value)
            names.append(name)

    for variable, operand in context.variables.items():
        if isinstance(variable.op, core.Var) and not is_flag(variable) and not is_result(variable) and variable.op.name:
            add(variable.op.name, operand)
    name = str(context.instance.func.attributes["sym_name"]).rpartition(".")[2]
    context.emit.add(debug.Stop(values, name, names=tuple(names), constants=tuple(constants), breaks=op.breaks))
    return None


def _is_plain(value: Any) -> bool:
    """Whether a value can be an attribute of an op, and shown as it is."""
    if type(value) is tuple:
        return all(map(_is_plain, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return type(value) in _PLAIN
