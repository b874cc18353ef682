"""The article's spelling of 2024, translated to ours while reading.

Types are mapped by `type_reader.LEGACY_NAMES`. This file has the rest: numbers in quotes, function symbols that spell
old type names, masks typed as integers (ours are i1), and a `tt.dot` of two operands (ours has the accumulator as its
third).
"""

from __future__ import annotations

import re
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.type_reader import LEGACY_NAMES
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of, i1, i32, of_floats, with_element

_NAME = re.compile(
    r"(?<![A-Za-z0-9.$])("
    + "|".join(sorted(map(re.escape, LEGACY_NAMES), key=len, reverse=True))
    + r")(?![A-Za-z0-9.$])"
)
_SYMBOLS = {"tt.func": "sym_name", "tt.call": "callee"}
_FOLLOWS_OPERAND = {"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape"}


def upgrade_attributes(op_name: str, attributes: dict[str, Any], type_: Type) -> None:
    """Rewrite the attributes of an op in the old spelling, in place."""
    key = _SYMBOLS.get(op_name)
    if key is not None and isinstance(attributes.get(key), str):
        attributes[key] = _NAME.sub(lambda match: LEGACY_NAMES[match[0]].name, attributes[key])
    if op_name in ("arith.constant", "constant"):
        value = attributes.get("value")
        scalar = element_of(type_)
        if isinstance(value, str) and isinstance(scalar, ScalarType):
            attributes["value"] = _number(value, scalar)


def _number(text: str, scalar: ScalarType) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text.rstrip("fFdD")) if scalar.is_float else int(text.rstrip("lL"))
    except ValueError:
        return text


def upgrade_op(builder: Builder, op_name: str, operands: list[Value], type_: Type) -> tuple[list[Value], Type]:
    """The operands and the type of an op in the old spelling, as ours; may add ops before it."""
    if op_name in ("arith.cmpi", "arith.cmpf") and element_of(type_) == i32:
        return operands, with_element(type_, i1)
    if op_name in _FOLLOWS_OPERAND and operands and (element_of(type_), element_of(operands[0].type)) == (i32, i1):
        return operands, with_element(type_, i1)
    if op_name == "tt.dot" and len(operands) == 2 and isinstance(type_, TensorType):
        value = 0.0 if of_floats(type_) else 0
        zero = OPS["arith.constant"].SPEC.make([], [], {"value": value}, [], type_)
        return [*operands, builder.add(zero)], type_
    return operands, type_
