"""Write MLIR op by op, with a small function for each op or family of ops, registered by `emits`.

Such a function gets the `MlirEmitter` and the op, writes lines, and returns the names of the MLIR values for the op's
result: one, none for `void`, several for a Tuple, with the components of nested Tuples in order. An op that MLIR does
not need returns the names of its operand: a cast between i32 and u32, as MLIR's integers have no sign.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

import attrs

from ziggurat.backend.mlir.releases import NEWEST, SINCE
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.numbers import bits_of_number, rounded_number
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    scalar_element,
    void,
)

Names = tuple[str, ...]
Attributes = dict[str, str | None]  # The text of each; None for a unit attribute.

# Attributes of ours, for what MLIR lacks: a type, the symbol of a kernel, and a divisor that Triton has no form for.
TYPE = "zg.type"
SYMBOL = "zg.symbol"
DIVISIBILITY = "zg.divisibility"
# On the ops around the one that stands for an op of ours, in a type that Triton has: `from_mlir` goes past them.
STEP = "zg.step"
# On the parameters that follow a descriptor: which size or stride of its tensor it is.
FACTS = {"zg.descriptor_size": tt.DescriptorSize, "zg.descriptor_stride": tt.DescriptorStride}
_FACT_NAMES = {tt.DescriptorSize: "shape", tt.DescriptorStride: "stride"}  # In Triton's names of these parameters.
OP = "zg.op"  # The op of ours, where that op has another name in the text.

_DESCRIPTOR = re.compile(r"!tt\.tensordesc<([^<>]+)>")
_BARE_SYMBOL = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)


def number(value: object, scalar: ScalarType) -> str:
    """A constant of a scalar type, without the type. Integers are signed, as MLIR prints them.

    A float is written in decimal; NaN, the infinities, and what is rounded to one, by their bits.
    """
    if scalar.is_float:
        assert isinstance(value, float)
        return _float(value, scalar)
    if scalar.bits == 1:
        return "true" if value else "false"
    assert isinstance(value, int)
    return str(value - (1 << scalar.bits) if value >> (scalar.bits - 1) == 1 else value)


def _float(value: float, scalar: ScalarType) -> str:
    exact = rounded_number(value, scalar)
    if not math.isfinite(exact):
        return f"0x{bits_of_number(value, scalar):0{scalar.bits // 4}X}"
    if abs(value) <= scalar.format.largest:
        exact = value  # MLIR rounds it as we do, and it is read back as it was.
    mantissa, mark, exponent = repr(exact).partition("e")
    if "." not in mantissa:  # MLIR reads 1e-05 as the integer 1 and an identifier.
        mantissa += ".0"
    return mantissa + mark + exponent


def quoted(text: str) -> str:
    """A string literal. Characters other than printable ASCII are written as the bytes of their UTF-8."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode())
    return f'"{"".join(plain)}"'


def symbol(name: str) -> str:
    """A reference to a symbol, quoted if it is no identifier."""
    return f"@{name}" if _BARE_SYMBOL.fullmatch(name) else f"@{quoted(name)}"


def _is_own(type_: Type) -> bool:
    if isinstance(type_, PtrType):
        return _is_own(type_.pointee)
    if isinstance(type_, DescriptorType):
        return type_.padding != "zero" or _is_own(type_.element)
    element = element_of(type_)
    if element is not type_:
        return _is_own(element)
    return isinstance(type_, ScalarType) and type_.kind == "int" and not type_.signed


def own_type(type_: Type) -> Attributes:
    """The attribute that keeps a type which MLIR lacks: Triton passes it on, and `from_mlir` reads it."""
    return {TYPE: quoted(str(type_))} if any(map(_is_own, leaves(type_))) else {}


def location(place: Location | None) -> str:
    """The source location that follows an op; empty if it is not known. Columns count from 0, as Triton's do."""
    return "" if place is None else f" loc({_place(place)})"


def _place(place: Location) -> str:
    here = f"{quoted(place.file)}:{place.line}:{place.column}"
    return here if place.caller is None else f"callsite({here} at {_place(place.caller)})"


@functools.cache
def mlir_type(type_: Type) -> str:
    """The spelling of a type of one value. Raises `TargetError` for a type that Triton's MLIR lacks."""
    if isinstance(type_, ScalarType):
        return type_.mlir
    if isinstance(type_, PtrType):
        return f"!tt.ptr<{mlir_type(type_.pointee)}>"
    if isinstance(type_, TensorType):
        return f"tensor<{_dimensions(type_.shape)}{mlir_type(type_.element)}>"
    if isinstance(type_, DescriptorType):
        return f"!tt.tensordesc<{_dimensions(type_.block)}{mlir_type(type_.element)}>"
    raise TargetError(f"a value of type {type_} has no form in Triton's MLIR")


@functools.cache
def mlir_types(type_: Type) -> tuple[str, ...]:
    """The spellings of the MLIR values for a value of this type: none for `void`, several for a Tuple."""
    return tuple(mlir_type(leaf) for leaf in leaves(type_))


def listed(values: Sequence[Value]) -> str:
    """The MLIR types of some values, with the components of Tuples in order."""
    return ", ".join(text for value in values for text in mlir_types(value.type))


@functools.cache
def leaves(type_: Type) -> tuple[Type, ...]:
    """The types of the MLIR values for a value of this type."""
    if type_ == void:
        return ()
    if isinstance(type_, TupleType):
        return tuple(leaf for component in type_.components for leaf in leaves(component))
    return (type_,)


def _dimensions(shape: tuple[int, ...]) -> str:
    return "".join(f"{size}x" for size in shape)


def result_list(types: tuple[str, ...]) -> str:
    """The result types after an arrow: `t` for one, `(t, u)` for several, `()` for none."""
    return types[0] if len(types) == 1 else f"({', '.join(types)})"


Emission = Callable[["MlirEmitter", Any], Names]
EMITTERS = OpTable[Emission]("emitter for MLIR")
emits = EMITTERS.of


def dictionary(attributes: Attributes) -> str:
    """Attributes in braces, after a blank; nothing for none."""
    inside = ", ".join(key if value is None else f"{key} = {value}" for key, value in attributes.items())
    return f" {{{inside}}}" if inside else ""


@attrs.define(eq=False)
class Line:
    """One line of the text: an op, or the first or last line of one. Hints add attributes to it later."""

    indent: int
    before: str
    after: str = ""
    attributes: Attributes = attrs.field(factory=lambda: Attributes())
    place: str = ""

    def __str__(self) -> str:
        return f"{'  ' * self.indent}{self.before}{dictionary(self.attributes)}{self.after}{self.place}"


class MlirEmitter:
    """The text under construction, and the names in it of the values of the model."""

    def __init__(self, symbols: dict[str, str], locations: bool, release: tuple[int, int] = NEWEST) -> None:
        self.release = release
        self.symbols = symbols
        self.lines: list[Line] = []
        self.values: dict[Value, Names] = {}
        # The parameters that have the sizes and strides of a descriptor, by op and axis.
        self.facts: dict[Value, dict[tuple[type[Op], int], str]] = {}
        self.labels: dict[Block, str] = {}
        self._locations = locations
        self._indent = 0
        self._place = ""
        self._step: Attributes = {}
        self._counts = {"%": 0, "%arg": 0, "^bb": 0}
        # The line that defines a name, and its block.
        self._defined: dict[str, tuple[Line, object]] = {}
        self._block: object = object()

    def has(self, feature: str) -> bool:
        """Whether the release that is written for has a feature of `SINCE`."""
        return self.release >= SINCE[feature]

    def require(self, feature: str, what: str) -> None:
        """Raise `TargetError` if the release that is written for lacks a feature of `SINCE`."""
        if not self.has(feature):
            major, minor = self.release
            raise TargetError(f"Triton {major}.{minor} has no {what}", hint="give to_mlir a later release")

    # Names.

    def fresh(self, prefix: str) -> str:
        """A new name in the function."""
        self._counts[prefix] += 1
        return f"{prefix}{self._counts[prefix] - 1}"

    def restart(self) -> None:
        """Begin a new function: count names from 0 again."""
        self._counts = dict.fromkeys(self._counts, 0)
        self._block = object()

    def name(self, value: Value) -> str:
        """The name of a value that is one value in MLIR."""
        (name,) = self.values[value]
        return name

    def names(self, values: Sequence[Value]) -> Names:
        """The names of some values, with the components of Tuples in order."""
        return tuple(name for value in values for name in self.values[value])

    def tell(self, parameter: Value, rank: int) -> list[str]:
        """Name the parameters for the sizes and strides of a descriptor, as Triton has them; how each is declared."""
        lines: list[str] = []
        names = self.facts[parameter] = {}
        for key, cls in FACTS.items():
            for axis in range(rank):
                name = names[cls, axis] = f"{self.name(parameter)}.{_FACT_NAMES[cls]}.{axis}"
                lines.append(f"{name}: {mlir_type(cls.RESULT)}{dictionary({key: f'{axis} : i32'})}")
        return lines

    def parameters(self, block: Block) -> list[tuple[str, str]]:
        """Name the parameters of a block. Returns the name and type of each."""
        names_and_types: list[tuple[str, str]] = []
        for parameter in block.parameters:
            types = mlir_types(parameter.type)
            names = tuple(self.fresh("%arg") for _ in types)
            self.values[parameter] = names
            names_and_types += zip(names, types, strict=True)
        return names_and_types

    # Lines.

    def line(self, before: str, after: str = "", results: int = 0, attributes: Attributes | None = None) -> Names:
        """Write a line and return the names of its results. Attributes are printed between the two parts."""
        base = self.fresh("%") if results else ""
        names = (base,) if results == 1 else tuple(f"{base}#{index}" for index in range(results))
        head = f"{base}:{results} = " if results > 1 else f"{base} = " if results else ""
        line = Line(self._indent, head + before, after, {**(attributes or {}), **self._step}, self._place)
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
        """Write the line that ends a region; `last` if it ends the op too."""
        self.line(text, attributes=attributes)
        if not last:
            self.lines[-1].place = ""

    def note(self, text: str) -> None:
        """Write a comment."""
        self.lines.append(Line(self._indent, f"// note: {text}"))

    def hint(self, name: str, key: str, value: str) -> bool:
        """Put an attribute on the op that defines a name. False if that op is not in this block."""
        line, block = self._defined.get(name, (None, None))
        if line is None or block is not self._block:
            return False
        line.attributes[key] = value
        return True

    def compute(self, op: str, type_: Type, *names: str) -> str:
        """Write an op on operands of one type with a result of that type."""
        return self.value(f"{op} {', '.join(names)}", f" : {mlir_type(type_)}")

    def constant(self, value: object, type_: Type) -> str:
        """A number, or a tensor with the number as every element."""
        scalar = scalar_element(type_)
        text = number(value, scalar)
        if isinstance(type_, TensorType):
            return self.value("arith.constant", f" dense<{text}> : {mlir_type(type_)}", own_type(type_))
        after = f" {text}" if scalar.bits == 1 else f" {text} : {mlir_type(type_)}"
        return self.value("arith.constant", after, own_type(type_))

    def poison(self, type_: Type) -> Names:
        """Undefined values."""
        return tuple(self.value("ub.poison", f" : {text}") for text in mlir_types(type_))

    # Ops.

    def plain(self, op: Op, types: str, attributes: Attributes | None = None) -> Names:
        """Write an op of one result as its name and operands. In `types`, {0} is the first operand's type, {r} the
        result's."""
        names = ", ".join(self.names(op.operands))
        type_text = types.format(*(mlir_type(value.type) for value in op.operands), r=mlir_type(op.result.type))
        return self.line(f"{op.NAME} {names}".rstrip(), f" : {type_text}", 1, attributes)

    def op(self, op: Op) -> None:
        """Write an op of the model."""
        emit = EMITTERS.get(type(op))
        if emit is None:
            raise TargetError(f"the model must be a Triton model; '{op.NAME}' is an op of another tier", op.location)
        if self._locations:
            self._place = location(op.location)
        try:
            names = self.values[op.result] = emit(self, op)
            if op.SPEC.result_type and not op.SPEC.follows and len(names) == 1:
                for key, text in own_type(op.result.type).items():
                    self.hint(names[0], key, text or "")
        except TargetError as error:
            if error.location is None:
                error.location = op.location
            raise

    def block(self, block: Block) -> None:
        """Write the ops of a block."""
        for op in block.ops:
            self.op(op)

    def region(self, body: Body, label: bool = False) -> None:
        """Write the ops of a body of one block, indented; with `label`, below a line of the block's parameters."""
        if len(body.blocks) != 1:
            owner = body.parent
            raise TargetError(f"the body of {owner.NAME if owner else 'an op'} must be one block for MLIR")
        outer, place = self._block, self._place
        self._block = object()
        if label:
            self.label("^bb0", self.parameters(body.entry))
        with self.nested():
            self.block(body.entry)
        self._block, self._place = outer, place

    def blocks(self, body: Body) -> None:
        """Write the blocks of a body one after the other. The entry continues the block of the line before."""
        for block in body.blocks[1:]:
            self.labels[block] = self.fresh("^bb")
        for block in body.blocks:
            if block is not body.entry:
                self.label(self.labels[block], self.parameters(block))
            self.block(block)

    def label(self, name: str, parameters: Sequence[tuple[str, str]] = ()) -> None:
        """Write the line that begins a block. Hints on values of the block before are no longer possible."""
        self._block = object()
        parameters_text = ", ".join(f"{parameter}: {type_}" for parameter, type_ in parameters)
        shift = 0 if name == "^bb0" else -1
        self.lines.append(Line(self._indent + shift, f"{name}({parameters_text}):" if parameters_text else f"{name}:"))

    @contextlib.contextmanager
    def steps(self) -> Generator[None]:
        """Mark the lines written inside as steps around an op of the model (`STEP`)."""
        outer = self._step
        self._step = {STEP: None}
        yield
        self._step = outer

    @contextlib.contextmanager
    def nested(self) -> Generator[None]:
        """Indent the lines written inside."""
        self._indent += 1
        yield
        self._indent -= 1

    def __str__(self) -> str:
        text = "\n".join(map(str, self.lines)) + "\n"
        return text if self.has("blocks of descriptors") else _DESCRIPTOR.sub(r"!tt.tensordesc<tensor<\1>>", text)
