"""The text form of models. The grammar is in docs/reference/text-grammar.md; `parser.py` reads it back.

Values are numbered in the order in which they are written, anew in each isolated op; blocks by their place in the body.
So equal models have equal text.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Iterable

from ziggurat.codemodel.declare import ENUMS
from ziggurat.codemodel.op import Block, Body, Op, Value, require_model
from ziggurat.codemodel.traits import Isolated
from ziggurat.codemodel.types import Type, void

_INDENT = "    "
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def to_text(
    op: Op, *, locations: bool = False, remark: Callable[[Op], Iterable[str]] | None = None, defaults: bool = False
) -> str:
    """The model rooted at `op` as text.

    `locations` adds to each op its location, which the parser reads back. `remark` gives lines of comment to put under
    an op. `defaults` prints attributes that have their default value, too.
    """
    require_model(op, "to_text")
    writer = _Writer(locations, remark, defaults)
    writer.op(op, "", root=True)
    return "".join(writer.out)


def summary(op: Op) -> str:
    """One line for one op, numbered as in the text of its model; bodies are left out."""
    writer = _Writer(False, None, False)
    root = op.root()
    writer.number(root)
    writer.out.clear()
    writer.head(op)
    if op.bodies:
        writer.out.append(" {…}")
    return "".join(writer.out)


def lines_of(model: Op) -> tuple[list[tuple[str, Op | None]], dict[Value, tuple[str, int]]]:
    """The text of a model by lines, each with the op that begins there; and the name of each value, with the number of
    the line that declares it, counted from 0."""
    writer = _LineWriter(False, None, False)
    writer.op(model, "", root=True)
    before = [0, *itertools.accumulate(piece.count("\n") for piece in writer.out)]  # Ends of lines before each piece.
    first = {before[piece]: op for piece, op in writer.first}
    lines = [(line, first.get(number)) for number, line in enumerate("".join(writer.out).splitlines())]
    return lines, {value: (name, before[piece]) for value, (name, piece) in writer.places.items()}


def structure(op: Op) -> tuple[str | Value | Block, ...]:
    """The text of an op, and the values and blocks from outside that it names, in order."""
    writer = _Writer(False, None, False)
    writer.op(op, "", root=True)
    return "".join(writer.out), *writer.outside


def attribute_text(value: object) -> str:
    """An attribute value as text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        kind = type(value).__name__
        return f"{kind}.{value.name}" if kind in ENUMS or not isinstance(value.value, str) else value.value
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, tuple):
        return f"[{', '.join(attribute_text(item) for item in value)}]"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, Type):
        return str(value)
    raise TypeError(f"an attribute cannot hold {value!r}")


def string_text(value: str) -> str:
    """A quoted string, with escapes."""
    text = value.translate(_ESCAPES)
    if text.isprintable():
        return f'"{text}"'
    return (
        '"'
        + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 65536 else f"\\U{ord(c):08x}" for c in text)
        + '"'
    )


class _Writer:
    def __init__(self, locations: bool, remark: Callable[[Op], Iterable[str]] | None, defaults: bool) -> None:
        self.out: list[str] = []
        self.names: dict[Value, str] = {}
        self.blocks: dict[Block, str] = {}
        self.outside: list[Value | Block] = []
        self.count = 0
        self.locations = locations
        self.remark = remark
        self.defaults = defaults
        self.types: dict[Type, str] = {}

    def type_text(self, type_: Type) -> str:
        text = self.types.get(type_)
        if text is None:
            text = self.types[type_] = str(type_)
        return text

    def declare(self, value: Value) -> str:
        name = f"%{self.count}"
        self.count += 1
        self.names[value] = name
        return name

    def use(self, value: Value) -> str:
        name = self.names.get(value)
        if name is None:  # A value from outside of what is printed.
            name = self.names[value] = f"%free_{len(self.outside)}"
            self.outside.append(value)
        return name

    def number(self, op: Op) -> None:
        """Give names to all values of the model without keeping its text."""
        self.op(op, "", root=True)

    def head(self, op: Op) -> None:
        """The op up to its bodies, without its result."""
        out = self.out
        out.append(op.NAME)
        for value in op.operands:
            out.append(f" {self.use(value)}")
        for target in op.successors:
            if target.block not in self.blocks:
                self.outside.append(target.block)
            out.append(f" {self.blocks.get(target.block, '^outside')}")
            if target.arguments:
                out.append(f"({', '.join(self.use(value) for value in target.arguments)})")
        if self.locations and op.location is not None:
            place = op.location
            span = f"{place.line}:{place.column}:{place.end_line}:{place.end_column}:{place.file}"
            out.append(f" @loc={string_text(span)}")
            if place.by is not None:
                out.append(f" @by={string_text(place.by)}")
        fields = op.__dict__
        for field in op.SPEC.attributes:
            value = fields[field.name]
            usual = value is field.default or (type(value) is type(field.default) and value == field.default)
            if usual and not self.defaults:
                continue
            text = attribute_text(value)
            out.append(f" @{text}" if field.unnamed else f" @{field.name}={text}")

    def op(self, op: Op, indent: str, root: bool = False) -> None:
        out = self.out
        out.append(indent)
        type_ = op.result.type
        if not root and type_ is not void:
            out.append(f"{self.declare(op.result)} : {self.type_text(type_)} = ")
        elif root and type_ is not void:
            out.append(f"%result : {self.type_text(type_)} = ")
            self.names[op.result] = "%result"
        self.head(op)
        if op.bodies:
            outer, outer_names = self.count, self.names
            if isinstance(op, Isolated):
                self.count, self.names = 0, {}
            if len(op.bodies) == 1:
                out.append(" ")
                self.body(op.bodies[0], indent)
            else:
                for body in op.bodies:
                    out.append(f"\n{indent}{_INDENT}")
                    self.body(body, indent + _INDENT)
            if isinstance(op, Isolated):
                self.names.update(outer_names)
                self.count, self.names = outer, self.names
        out.append(";\n")
        if self.remark is not None:
            for line in self.remark(op):
                out.append(f"{indent}// {line}\n")

    def body(self, body: Body, indent: str) -> None:
        out = self.out
        for index, block in enumerate(body.blocks):
            self.blocks[block] = f"^block_{index}"
        inner = indent + _INDENT
        for index, block in enumerate(body.blocks):
            parameters = ", ".join(f"{self.declare(p)} : {self.type_text(p.type)}" for p in block.parameters)
            if index == 0:
                out.append(f"({parameters}){self.type_text(body.yield_type)} -> {{\n")
            else:
                out.append(f"\n{indent}  ^block_{index}{f'({parameters})' if parameters else ''}:\n")
            for op in block.ops:
                self.op(op, inner)
        out.append(f"{indent}}}")


class _LineWriter(_Writer):
    """A writer that keeps the pieces of text at which ops begin, and at which values are declared, with their names."""

    def __init__(self, locations: bool, remark: Callable[[Op], Iterable[str]] | None, defaults: bool) -> None:
        super().__init__(locations, remark, defaults)
        self.first: list[tuple[int, Op]] = []
        self.places: dict[Value, tuple[str, int]] = {}

    def op(self, op: Op, indent: str, root: bool = False) -> None:
        self.first.append((len(self.out), op))
        super().op(op, indent, root)

    def declare(self, value: Value) -> str:
        name = super().declare(value)
        self.places[value] = name, len(self.out)
        return name
