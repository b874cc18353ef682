"""Read MLIR op by op, with a small function for each op, registered by `reads`.

Such a function gets the `MlirReader` and the `Statement`, adds ops of the model, and gives the value for the op's
results: a Tuple for several, None for none. MLIR's integers have no sign, ours do: a value keeps the sign it was made
with, and an op that needs the other one gets an `arith.bitcast` (`MlirReader.as_type`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ziggurat.backend.mlir.emitter import OP, STEP, TYPE, leaves
from ziggurat.backend.mlir.statements import statement
from ziggurat.backend.mlir.syntax import Cursor, Dense, Raw, Statement
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import BuildError, ParseError
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.text.parser import parse_values
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    scalar_element,
    shape_of,
    with_element,
)
from ziggurat.transforms.calls.promotion import constant
from ziggurat.transforms.mirror import library_model

Reading = Callable[["MlirReader", Statement], Value | None]
READERS: dict[str, Reading] = {}
DEFAULTS = OpTable[Reading]("reader of MLIR")  # By the op of ours that has the same name, if READERS has no reader.


def reads(*names: str) -> Callable[[Reading], Reading]:
    """Register the reader of these ops of MLIR."""

    def register(read: Reading) -> Reading:
        for name in names:
            if name in READERS:
                raise ValueError(f"'{name}' has a reader already")
            READERS[name] = read
        return read

    return register


def signed(type_: Type, sign: bool = True) -> Type:
    """The type with integers of this sign."""
    element = element_of(type_)
    if isinstance(element, ScalarType) and element.kind == "int" and element.signed is not sign:
        return with_element(type_, SCALARS[f"{'i' if sign else 'u'}{element.bits}"])
    return type_


class MlirReader:
    """The model under construction, and the values in it that stand for the names of the text."""

    def __init__(self, cursor: Cursor, steps: bool) -> None:
        self.cursor = cursor
        self._steps = steps  # Whether to go past the steps around ops of ours.
        self.steps: dict[str, Statement] = {}  # Those steps, by the names of their results.
        # By their names in the text: the symbols in the model, the types of the parameters and of the result.
        self.functions: dict[str, tuple[str, Sequence[Type], Type]] = {}
        self.library_functions: dict[str, tt.Func] = {}
        self._labels: dict[str, int] = {}  # The first token of each block of the function.
        self._blocks: dict[str, Block] = {}  # Those that a branch goes to.
        self.b = Builder.root()
        self.yields: Sequence[Type] = ()  # The types that the terminator of the region hands on.
        self._around: tuple[Sequence[Value], Sequence[Value]] = (), ()
        self._values: dict[str, Value] = {}
        self._s = Statement("", 0)

    # Errors.

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise `ParseError` at the current op."""
        self.cursor.fail(message, self._s.at, hint)

    def unsupported(self, what: str, hint: str | None = None) -> NoReturn:
        """Raise `ParseError` for something that the Triton model lacks."""
        self.fail(f"{self._s.name}: {what} is not supported", hint)

    # Values.

    def value(self, name: str) -> Value:
        """The value that a name stands for."""
        value = self._values.get(name)
        if value is None:
            self.fail(f"the value {name} is not defined before this op")
        return value

    def values(self, names: Sequence[str]) -> list[Value]:
        return [self.value(name) for name in names]

    def operands(self, s: Statement, *counts: int) -> list[Value]:
        """The operands, after checking how many there are. Constants of steps around an op of ours do not count."""
        names = [name for name in s.operands if name not in self.steps or name in self._values]
        if counts and len(names) not in counts:
            expected = " or ".join(map(str, counts))
            self.fail(f"{s.name} takes {expected} operand(s); got {len(names)}")
        return [self.value(name) for name in names]

    def add(self, op: Op) -> Value:
        """Add an op at the location of the current one. Gives its result."""
        return self.b.add(op, self._s.location)

    def as_type(self, value: Value, type_: Type) -> Value:
        """The value as one of a type that is the same in MLIR."""
        if value.type == type_:
            return value
        if signed(value.type) == signed(type_) and shape_of(value.type) == shape_of(type_):
            return self.add(arith.Bitcast(value, type=type_))
        here, there = element_of(value.type), element_of(type_)
        same = (
            isinstance(here, PtrType) and isinstance(there, PtrType) and signed(here.pointee) == signed(there.pointee)
        )
        if same and shape_of(value.type) == shape_of(type_):
            return self.add(tt.Bitcast(value, type=type_))
        self.fail(f"{self._s.name}: a value must be of type {type_}; got {value.type}")

    def as_types(self, values: Sequence[Value], types: Sequence[Type]) -> list[Value]:
        if len(values) != len(types):
            self.fail(f"{self._s.name} must have {len(types)} value(s) here; got {len(values)}")
        return [self.as_type(value, type_) for value, type_ in zip(values, types, strict=True)]

    def alike(self, values: Sequence[Value], sign: bool | None = None) -> list[Value]:
        """The values with integers of one sign: this one, or that of the first value."""
        type_ = values[0].type if sign is None else signed(values[0].type, sign)
        return [self.as_type(value, type_) for value in values]

    def require_type(self, s: Statement, values: Sequence[Value]) -> None:
        """Require that values have the one type that the text states, which is also that of the result."""
        if len(s.types) == 1 and not s.result_types and not self.in_steps(s):
            for value in values:
                if plain(value.type) != plain(s.types[0]):
                    self.fail(f"{s.name} gets {value.type} here; the text says {s.types[0]}")

    def constant(self, number: Any, type_: Type) -> Value:
        """A number, or a tensor with the number as every element."""
        return self.add(arith.ConstantOp(number, type=type_))

    # Attributes.

    def own_type(self, text: object) -> Type:
        """The type that the attribute `zg.type` spells."""
        return own_type(self.cursor, str(text), self._s.at)

    def choice(
        self, s: Statement, key: str, table: dict[str, Any], *, word: int | None = None, default: Any = None
    ) -> Any:
        """A member of a table by an attribute, or by a word of the op's own form. Numbers count the table's entries."""
        value = s.attributes.get(key)
        if value is None and word is not None and word < len(s.words):
            value = s.words[word]
        if value is None:
            if default is None:
                self.fail(f"{s.name} needs '{key}'")
            return default
        if isinstance(value, Raw):
            value = value.words[-2] if value.words[-1] == ">" else value.words[-1]
        if isinstance(value, int):
            names = list(table)
            value = names[value] if 0 <= value < len(names) else value
        if value not in table:
            self.fail(f"{s.name}: {key} must be one of {', '.join(table)}; got {value}")
        return table[value]

    def numbers(self, s: Statement, key: str) -> tuple[int, ...]:
        """A list of integers that is an attribute."""
        value = s.attributes.get(key)
        numbers: Any = value.elements if isinstance(value, Dense) else value
        if not isinstance(numbers, tuple):
            self.fail(f"{s.name} needs a list of integers as '{key}'")
        return tuple(map(int, numbers))  # pyright: ignore[reportUnknownArgumentType]

    def integer(self, s: Statement, key: str, default: int | None = None) -> int:
        """An integer that is an attribute."""
        value = s.attributes.get(key, default)
        if not isinstance(value, int):
            self.fail(f"{s.name} needs an integer as '{key}'")
        return value

    # Ops.

    def statement(self) -> None:
        """Read an op and build it."""
        s = statement(self.cursor)
        outer, self._s = self._s, s
        name = str(s.attributes.get(OP, s.name)) if self._steps else s.name
        read = READERS.get(name) or DEFAULTS.get(OPS.get(name, Op))
        if read is None:
            self.fail(f"the op {s.name} is not supported")
        if STEP in s.attributes and self._steps:
            self._past(s)
            self._s = outer
            return
        if TYPE in s.attributes:
            s.result_types = list(leaves(self.own_type(s.attributes[TYPE])))
        try:
            result = read(self, s)
            self._s = s
            self._bind(s, result)
        except BuildError as error:
            self.fail(error.summary, error.hint)
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError):
            self.fail(f"{s.name} does not have the operands, attributes, regions and types that it must have")
        self._s = outer

    def _past(self, s: Statement) -> None:
        """Go past a step around an op of ours: its result stands for its first operand, or for nothing."""
        if s.operands and s.results and s.operands[0] in self._values:
            self._values[s.results[0][0]] = self.value(s.operands[0])
        if s.results:
            self.steps[s.results[0][0]] = s

    def in_steps(self, s: Statement) -> bool:
        """Whether an op has operands that steps around it give."""
        return any(name in self.steps for name in s.operands)

    def _bind(self, s: Statement, result: Value | None) -> None:
        count, types = s.count, leaves(result.type) if result is not None else ()
        if count not in (0, len(types)):
            self.fail(f"{s.name} gives {len(types)} value(s); got names for {count}")
        if result is None or count == 0:
            return
        if count == 1:
            result = self._hinted(s, result)
            if not self.in_steps(s) and OP not in s.attributes:
                self._stated(s, result)
            self._values[s.results[0][0]] = result
            return
        names = [f"{name}#{i}" if many > 1 else name for name, many in s.results for i in range(many)]
        for index, name in enumerate(names):
            self._values[name] = self.add(core.TupleLoad(result, index))

    def _stated(self, s: Statement, value: Value) -> None:
        """Require that the type of the result is the one that the text states; without operands, it is the only one."""
        for type_ in s.result_types or (() if s.operands else s.types):
            if value.type != type_ and plain(value.type) != plain(type_):
                self.fail(f"{s.name} gives {value.type} here; the text says {type_}")

    def _hinted(self, s: Statement, value: Value) -> Value:
        for key, attribute in s.attributes.items():
            if key in HINTS and isinstance(attribute, Dense):
                rank = max(1, len(shape_of(value.type)))
                numbers = attribute.elements * rank if len(attribute.elements) == 1 else attribute.elements
                value = self.add(HINTS[key](value, numbers))
        return value

    def library(self, name: str, arguments: Sequence[Any]) -> Value | None:
        """A call of a function of the language's library, on values and constants; None if it has none of this name."""
        types = [argument.type if isinstance(argument, Value) else constant(argument) for argument in arguments]
        model = library_model(name, types)
        if model is None:
            return None
        operands = [argument for argument in arguments if isinstance(argument, Value)]
        functions = [op for op in model.body.entry.ops if isinstance(op, tt.Func)]
        for function in functions:
            self.library_functions.setdefault(function.sym_name, function)
        return self.add(tt.Call(operands, functions[-1].sym_name, type=functions[-1].body.yield_type))

    # Regions and blocks.

    def add_to(self, builder: Builder, op: Op) -> None:
        """Add an op to another body at the location of the current one."""
        builder.add(op, self._s.location)

    def region(
        self,
        at: int,
        builder: Builder,
        names: Sequence[str] | None,
        yields: Sequence[Type],
        *,
        arguments: Sequence[Value] | None = None,
        around: tuple[Sequence[Value], Sequence[Value]] = ((), ()),
    ) -> None:
        """Read the one block of a region, which hands on values of these types, into a body under construction.

        The parameters of the region are those of the body, or `arguments`. The body hands on the values `around`
        those of the region too: some before, some after them.
        """
        c = self.cursor
        back, end, outer, values = c.at, c.closing[at], self.b, dict(self._values)
        yields_and_around, beside = self.yields, self._around
        c.at, self.b, self.yields, self._around = at + 1, builder, yields, around
        if c.token[:1] == "^":
            names = [name for name, _ in self.label()]
        self._name(names or (), builder.parameters if arguments is None else arguments)
        with c.deeper("regions"):
            while c.at < end:
                if c.token[:1] == "^":
                    c.fail(f"the region of {self._s.name} must have one block")
                self.statement()
        c.at, self.b, self._values, self.yields, self._around = back, outer, values, yields_and_around, beside

    def handed(self, values: Sequence[Value]) -> list[Value]:
        """The values that the terminator of the region hands on, for those of the text."""
        return [*self._around[0], *self.as_types(values, self.yields), *self._around[1]]

    def _name(self, names: Sequence[str], values: Sequence[Value]) -> None:
        if len(names) != len(values):
            self.fail(f"{self._s.name} must have {len(values)} parameter(s) of a region; got {len(names)}")
        self._values.update(zip(names, values, strict=True))

    def label(self) -> list[tuple[str, Type]]:
        """`^bb1(%a: f32, %b: f32):`: the names and types of the parameters."""
        c = self.cursor
        c.next()
        parameters: list[tuple[str, Type]] = []
        if c.take("("):
            while not c.take(")"):
                name = c.value()
                c.expect(":")
                parameters.append((name, c.type()))
                c.location()
                c.take(",")
        c.expect(":")
        return parameters

    def body(self, at: int, builder: Builder, names: Sequence[str], values: Sequence[Value]) -> None:
        """Read the blocks of a function, each after one that branches to it. `values` has those of the parameters.

        So a block comes after the one that dominates it, and blocks that are never reached are not read.
        """
        c = self.cursor
        self._values, self.b, entry = {}, builder, at + 1
        if c.tokens[entry][:1] == "^":
            c.at = entry
            names = [name for name, _ in self.label()]
            entry = c.at
        self._name(names, values)
        self._labels, self._blocks = self._found_labels(entry, c.closing[at]), {}
        c.at = entry
        self._block()
        done = 0
        while done < len(self._blocks):
            name = list(self._blocks)[done]
            done += 1
            c.at = self._labels[name]
            builder.move_to(self._blocks[name])
            self._name([parameter for parameter, _ in self.label()], builder.parameters)
            self._block()

    def _block(self) -> None:
        c = self.cursor
        while c.token != "}" and c.token[:1] != "^":
            self.statement()

    def _found_labels(self, at: int, end: int) -> dict[str, int]:
        c = self.cursor
        labels: dict[str, int] = {}
        while at < end:
            token = c.tokens[at]
            if token == "{":
                at = c.closing[at]
            elif token[:1] == "^" and c.tokens[at - 1] not in ("cf.br", ",", "["):
                labels[token] = at
            at += 1
        return labels

    def block(self, name: str, arguments: Sequence[Value]) -> Block:
        """A block of the function, for a branch to it. The first branch gives the sign of its parameters."""
        if name not in self._labels:
            self.fail(f"the block {name} is not defined")
        if name not in self._blocks:
            back, self.cursor.at = self.cursor.at, self._labels[name]
            types = [type_ for _, type_ in self.label()]
            self.cursor.at = back
            argument_types = [value.type for value in arguments]
            same = [plain(type_) for type_ in types] == [plain(type_) for type_ in argument_types]
            self._blocks[name] = self.b.new_block(argument_types if same else types)
        return self._blocks[name]


def own_type(c: Cursor, text: str, at: int) -> Type:
    """The type that `to_mlir` has kept as text. Raises `ParseError` at a token."""
    try:
        (type_,) = parse_values(text)
    except (ParseError, ValueError):
        type_ = None
    if not isinstance(type_, Type):
        c.fail(f"{TYPE} must be a type such as 'u32'; got '{text}'", at)
    return type_


HINTS: dict[str, type[tt.Hint]] = {
    "tt.divisibility": tt.MultipleOf,
    "tt.contiguity": tt.MaxContiguous,
    "tt.constancy": tt.MaxConstancy,
}


def plain(type_: Type) -> Type:
    """The type as MLIR has it: integers without a sign."""
    element = element_of(type_)
    if isinstance(element, PtrType):
        element = PtrType(scalar_element(signed(element.pointee)))
        return TensorType(type_.shape, element) if isinstance(type_, TensorType) else element
    if isinstance(type_, DescriptorType):
        return DescriptorType(type_.block, scalar_element(signed(type_.element)))
    return signed(type_)
