"""Writing MLIR op by op. What is written for an op of ours is a small function, registered for it with `emits`.

Such a function gets the `Emitter` and the op, writes lines, and returns the names of the MLIR values that stand for
the op's result: one, or none for `void`, or several for a Tuple. An op that is nothing in MLIR (a cast between i32
and u32) returns the names of its operand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import attrs

from ziggurat.backend.mlir.literals import location, number
from ziggurat.backend.mlir.types import mlir_type, mlir_types
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.codemodel.types import ScalarType, TensorType, Type, VoidType, element_of

Names = tuple[str, ...]
Attributes = dict[str, str | None]  # The text of each; None for one that is only there or not.
Emission = Callable[["Emitter", Any], Names]
EMITTERS: dict[type[Op], Emission] = {}
E_ = TypeVar("E_", bound=Emission)


def emits(*ops: type[Op]) -> Callable[[E_], E_]:
    """Registers a function as what writes these ops."""

    def register(function: E_) -> E_:
        for op in ops:
            if op in EMITTERS:
                raise ValueError(f"{op.NAME} has an emitter already")
            EMITTERS[op] = function
        return function

    return register


@attrs.define(eq=False)
class Line:
    """One line of the text: an op, or the first or last line of one. Attributes may be added until it is printed."""

    indent: int
    before: str
    after: str = ""
    attributes: Attributes = attrs.field(factory=lambda: Attributes())
    place: str = ""

    def __str__(self) -> str:
        inside = ", ".join(key if value is None else f"{key} = {value}" for key, value in self.attributes.items())
        marks = f" {{{inside}}}" if inside else ""
        return f"{'  ' * self.indent}{self.before}{marks}{self.after}{self.place}"


class Emitter:
    """The text under construction, and the names in it of the values of the model."""

    def __init__(self, symbols: dict[str, str], locations: bool) -> None:
        self.symbols = symbols
        self.lines: list[Line] = []
        self.values: dict[Value, Names] = {}
        self.labels: dict[Block, str] = {}
        # How a body is left that is written as blocks of the function: what its terminator does.
        self.exits: dict[Body, Callable[[Op], None]] = {}
        self.result_type: Type = VoidType()
        self._locations = locations
        self._indent = 0
        self._place = ""
        self._counts = {"%": 0, "%arg": 0, "^bb": 0}
        # The line that defines a name, and the block it stands in.
        self._defined: dict[str, tuple[Line, object]] = {}
        self._block: object = object()

    # Names.

    def fresh(self, prefix: str) -> str:
        """A name that the function does not have yet."""
        self._counts[prefix] += 1
        return f"{prefix}{self._counts[prefix] - 1}"

    def restart(self) -> None:
        """Count names from 0 again: a new function begins."""
        self._counts = dict.fromkeys(self._counts, 0)

    def name(self, value: Value) -> str:
        """The name of a value that is one in MLIR."""
        (name,) = self.values[value]
        return name

    def names(self, values: Sequence[Value]) -> Names:
        """The names of some values, Tuples laid out."""
        return tuple(name for value in values for name in self.values[value])

    def parameters(self, block: Block) -> list[tuple[str, str]]:
        """Names the parameters of a block. Gives name and type of each."""
        found: list[tuple[str, str]] = []
        for parameter in block.parameters:
            types = mlir_types(parameter.type)
            names = tuple(self.fresh("%arg") for _ in types)
            self.values[parameter] = names
            found += zip(names, types, strict=True)
        return found

    # Lines.

    def line(self, before: str, after: str = "", results: int = 0, attributes: Attributes | None = None) -> Names:
        """Write a line and return the names of its results. Attributes are printed between the two parts."""
        base = self.fresh("%") if results else ""
        names = (base,) if results == 1 else tuple(f"{base}#{index}" for index in range(results))
        head = f"{base}:{results} = " if results > 1 else f"{base} = " if results else ""
        line = Line(self._indent, head + before, after, {**(attributes or {})}, self._place)
        self.lines.append(line)
        for name in names:
            self._defined[name] = (line, self._block)
        return names

    def value(self, before: str, after: str = "", attributes: Attributes | None = None) -> str:
        """Write a line that has one result, and return its name."""
        return self.line(before, after, 1, attributes)[0]

    def opening(self, before: str, results: int = 0) -> Names:
        """Write the first line of an op with a region; hints on its results are not possible."""
        names = self.line(before, " {", results)
        self.lines[-1].place = ""
        for name in names:
            del self._defined[name]
        return names

    def closing(self, text: str, *, last: bool = True, attributes: Attributes | None = None) -> None:
        """Write the line that ends a region, and the op unless it goes on."""
        self.line(text, attributes=attributes)
        if not last:
            self.lines[-1].place = ""

    def note(self, text: str) -> None:
        """Write a remark."""
        self.lines.append(Line(self._indent, f"// note: {text}"))

    def hint(self, name: str, key: str, value: str) -> bool:
        """Put an attribute on the op that defines a name, where that op is in this block; False where it is not."""
        line, block = self._defined.get(name, (None, None))
        if line is None or block is not self._block:
            return False
        line.attributes[key] = value
        return True

    def constant(self, value: object, type_: Type) -> str:
        """A number, or a tensor of which every element is it."""
        scalar = element_of(type_)
        assert isinstance(scalar, ScalarType)
        text = number(value, scalar)
        if isinstance(type_, TensorType):
            return self.value("arith.constant", f" dense<{text}> : {mlir_type(type_)}")
        return self.value("arith.constant", f" {text}" if scalar.bits == 1 else f" {text} : {mlir_type(type_)}")

    def poison(self, type_: Type) -> Names:
        """Values of which nothing is known."""
        return tuple(self.value("ub.poison", f" : {text}") for text in mlir_types(type_))

    # Ops.

    def op(self, op: Op) -> None:
        """Write an op of the model."""
        emitter = EMITTERS.get(type(op))
        if emitter is None:
            raise TargetError(f"to_mlir writes Triton models; {op.NAME} is not an op of one", op.location)
        if self._locations:
            self._place = location(op.location)
        try:
            self.values[op.result] = emitter(self, op)
        except TargetError as error:
            if error.location is None:
                error.location = op.location
            raise

    def block(self, block: Block) -> None:
        """Write the ops of a block."""
        for op in block.ops:
            self.op(op)

    def region(self, body: Body, label: bool = False) -> None:
        """Write the ops of a body of one block, indented, as a block of their own; labelled with its parameters if
        asked."""
        if len(body.blocks) != 1:
            owner = body.parent
            raise TargetError(f"the body of {owner.NAME if owner else 'an op'} has several blocks; MLIR allows one")
        outer, place = self._block, self._place
        self._block = object()
        if label:
            self.label("^bb0", self.parameters(body.entry))
        with self.nested():
            self.block(body.entry)
        self._block, self._place = outer, place

    def blocks(self, body: Body) -> None:
        """Write the blocks of a body one after the other, the entry going on from the line before."""
        for block in body.blocks[1:]:
            self.labels[block] = self.fresh("^bb")
        for block in body.blocks:
            if block is not body.entry:
                self.label(self.labels[block], self.parameters(block))
            self.block(block)

    def restart_blocks(self) -> None:
        """A new block begins: hints on values of the one before are no longer possible."""
        self._block = object()

    def label(self, name: str, parameters: Sequence[tuple[str, str]] = ()) -> None:
        """Write the line that begins a block."""
        self.restart_blocks()
        listed = ", ".join(f"{parameter}: {type_}" for parameter, type_ in parameters)
        shift = 0 if name == "^bb0" else -1
        self.lines.append(Line(self._indent + shift, f"{name}({listed}):" if listed else f"{name}:"))

    @contextlib.contextmanager
    def nested(self) -> Generator[None]:
        """Lines written inside stand further right."""
        self._indent += 1
        yield
        self._indent -= 1

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines)) + "\n"
