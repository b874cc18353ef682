"""Functions of LLVM text that work on memory, share it with other threads, and call functions of C.

A definition is a function of Python that writes the body, with the arguments as numbers:

    @define("i64", "ptr i64")
    def total(f: Function, values: Number, count: Number) -> None:
        result = f.local("i64", 0)
        with f.count(count) as loop:
            result.set(result.get() + f.load("i64", values, loop.index << 3))
        f.give(result.get())

`module(definitions, signatures)` is the text of these and of all that they use. Calls and stores check the types of
their operands while the text is written. Local variables are in memory until LLVM makes phis of them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ziggurat.backend.llvm.routines import Code, Number

_BYTES: Final = {"i1": 1, "i8": 1, "i32": 4, "i64": 8, "ptr": 8, "float": 4, "double": 8}
_LETTERS: Final = {"i32": "i", "i64": "q", "ptr": "Q"}  # Of Python's `struct`.

# A result, and the types of the parameters: "..." is the last one of a function that takes more.
Signature = tuple[str, tuple[str, ...]]


def signatures(text: str) -> dict[str, Signature]:
    """The signatures of functions by their names, from lines such as "i64 read(i32, ptr, i64)"."""
    rows = re.findall(r"(\w+) ([\w.]+)\((.*)\)", text)
    return {name: (result, tuple(filter(None, parameters.split(", ")))) for result, name, parameters in rows}


class Struct:
    """A structure of fields that follow each other without gaps, by their names. `packer` is Python's `struct`."""

    def __init__(self, **fields: str) -> None:
        self.kinds: Final = fields
        self.packer: Final = struct.Struct("=" + "".join(_LETTERS[kind] for kind in fields.values()))
        self.size: Final = self.packer.size
        self.type: Final = f"{{ {', '.join(fields.values())} }}"
        self.offsets: dict[str, int] = {}
        offset = 0
        for name, kind in fields.items():
            self.offsets[name] = offset
            offset += _BYTES[kind]

    def at(self, pointer: Number, *, align: int = 0) -> Record:
        """The structure at an address. With `align`, that alone is known of the addresses of its fields."""
        return Record(self, pointer, align)


class Record:
    """A structure in memory: `record["field"]` loads and stores."""

    def __init__(self, struct: Struct, pointer: Number, align: int) -> None:
        self.struct, self.pointer, self.align = struct, pointer, align

    def place(self, name: str) -> Place:
        """The place of a field."""
        kind = self.struct.kinds[name]
        return Place(moved(self.pointer, self.struct.offsets[name]), kind, self.align or _BYTES[kind])

    def __getitem__(self, name: str) -> Number:
        return self.place(name).get()

    def __setitem__(self, name: str, value: Number | int | None) -> None:
        self.place(name).set(value)


class Global:
    """A variable of a module, or a constant. `initial` are numbers and definitions, as many as `kind` has fields, or
    the text of the value."""

    def __init__(
        self, symbol: str, kind: str | Struct, *initial: int | str | Definition, constant: bool = False,
        exported: bool = False,
    ) -> None:  # fmt: skip
        self.symbol, self.kind = symbol, kind
        self.initial, self.constant, self.exported = initial, constant, exported

    @property
    def uses(self) -> Iterable[Definition]:
        """The functions whose addresses it has."""
        return (value for value in self.initial if isinstance(value, Definition))

    @property
    def text(self) -> str:
        words = [f"@{value.symbol}" if isinstance(value, Definition) else str(value) for value in self.initial]
        if isinstance(self.kind, Struct):
            type_ = self.kind.type
            pairs = zip(self.kind.kinds.values(), words, strict=True) if words else ()
            value = f"{{ {', '.join(map(' '.join, pairs))} }}" if words else "zeroinitializer"
        else:
            type_, value = self.kind, words[0] if words else "zeroinitializer"
        linkage = "" if self.exported else "internal "
        return f"@{self.symbol} = {linkage}{'constant' if self.constant else 'global'} {type_} {value}, align 8"


class Place:
    """A value in memory. `get` and `set` are plain; the others are atomic, by default sequentially consistent."""

    def __init__(self, pointer: Number, kind: str, align: int) -> None:
        self.pointer, self.kind, self.align = pointer, kind, align

    def get(self) -> Number:
        return self.pointer.made(self.kind, f"load {self.kind}, {self.pointer.typed}, align {self.align}", 0)

    def set(self, value: Number | int | None) -> None:
        self._line(f"store {self._typed(value)}, {self.pointer.typed}, align {self.align}")

    def load(self, order: str = "seq_cst") -> Number:
        text = f"load atomic {self.kind}, {self.pointer.typed} {order}, align {self.align}"
        return self.pointer.made(self.kind, text, 0)

    def store(self, value: Number | int, order: str = "seq_cst") -> None:
        self._line(f"store atomic {self._typed(value)}, {self.pointer.typed} {order}, align {self.align}")

    def update(self, operation: str, value: Number | int) -> Number:
        """Apply an operation of `atomicrmw`; the value before."""
        return self.pointer.made(
            self.kind, f"atomicrmw {operation} {self.pointer.typed}, {self._typed(value)} seq_cst", 0
        )

    def claim(self, before: Number | int, after: Number | int, order: str = "seq_cst") -> Number:
        """Whether the value was `before`; it is `after` then."""
        text = f"cmpxchg {self.pointer.typed}, {self._typed(before)}, {self._typed(after)} {order} {order}"
        name = self.pointer.code.emit(text)
        return self.pointer.made("i1", f"extractvalue {{ {self.kind}, i1 }} {name}, 1", 0)

    def _line(self, text: str) -> None:
        self.pointer.code.line(text)

    def _typed(self, value: Number | int | None) -> str:
        return _function(self.pointer).value(self.kind, value).typed


class Loop:
    """A loop that is being written. `index` counts the iterations of `Function.count`."""

    def __init__(self, function: Function, index: Number | None = None) -> None:
        self._function, self._index = function, index
        self.next_label, self.after_label = function.name("next"), function.name("after")

    @property
    def index(self) -> Number:
        assert self._index is not None
        return self._index

    def stop(self, condition: Number | None = None) -> None:
        """Leave the loop, if a condition is true."""
        self._function.go(self.after_label, condition)

    def next(self, condition: Number | None = None) -> None:
        """Begin the next iteration, if a condition is true."""
        self._function.go(self.next_label, condition)


class Function(Code):
    """The body of a definition while it is written, for a result of a type and functions of C by their names."""

    def __init__(self, result: str, available: Mapping[str, Signature]) -> None:
        super().__init__()
        self.result = result
        self.uses: dict[Definition | Global, None] = {}
        self._available = available
        self._locals: list[str] = []
        self._has_ended = False

    @property
    def text(self) -> str:
        """The blocks. One that is not ended returns, if there is no result."""
        lines = [*self.lines]
        if not self._has_ended:
            lines.append("  ret void" if self.result == "void" else "  unreachable")
        return "\n".join(["entry:", *self._locals, *lines])

    def line(self, text: str) -> None:
        assert not self._has_ended, f"nothing runs after the end of a block: {text}"
        super().line(text)

    def emit(self, text: str) -> str:
        assert not self._has_ended, f"nothing runs after the end of a block: {text}"
        return super().emit(text)

    def start(self, label: str) -> None:
        self._has_ended = False
        super().start(label)

    # Values.

    def value(self, kind: str, value: Number | Global | Definition | int | None) -> Number:
        """A value of a type: a constant, an address, or a number, which must have it. `None` is the null pointer."""
        if isinstance(value, Global | Definition):
            self.uses[value] = None
            value = Number(self, "ptr", f"@{value.symbol}")
        if isinstance(value, Number):
            assert value.type == kind, f"{value.typed} must be of type {kind}"
            return value
        assert (value is None) == (kind == "ptr"), f"{value} must be of type {kind}"
        return Number(self, kind, "null" if value is None else str(value).lower())

    def call(self, callee: Definition | str, *arguments: Number | Global | Definition | int | None) -> Number:
        """Call a definition, or a function of C by its name. Arguments beyond the parameters must be numbers."""
        if isinstance(callee, Definition):
            self.uses[callee] = None
            symbol, (result, parameters) = callee.symbol, callee.signature
        else:
            symbol, (result, parameters) = callee, self._available[callee]
            self.declarations[f"declare {result} @{symbol}({', '.join(parameters)})"] = None
        type_ = result
        if parameters[-1:] == ("...",):
            type_ = f"{result} ({', '.join(parameters)})"
            more = arguments[len(parameters) - 1 :]
            parameters = (*parameters[:-1], *(x.kind if isinstance(x, Number) else "ptr" for x in more))
        operands = [self.value(kind, x) for kind, x in zip(parameters, arguments, strict=True)]
        return self._called(result, f"call {type_} @{symbol}", operands)

    def call_at(self, result: str, pointer: Number, *arguments: Number) -> Number:
        """Call the function at an address."""
        return self._called(result, f"call {result} {pointer}", arguments)

    def _called(self, result: str, callee: str, operands: Sequence[Number]) -> Number:
        text = f"{callee}({', '.join(operand.typed for operand in operands)})"
        if result == "void":
            self.line(text)
            return Number(self, result, "")
        return Number(self, result, self.emit(text))

    # Memory.

    def room(self, size: int | Number, align: int = 8) -> Number:
        """The address of as many bytes on the stack. Inside of a loop, a number of bytes may not be a variable."""
        if isinstance(size, Number):
            return Number(self, "ptr", self.emit(f"alloca i8, {size.typed}, align {align}"))
        name = f"%{self.name('room')}"
        self._locals.append(f"  {name} = alloca [{size} x i8], align {align}")
        return Number(self, "ptr", name)

    def local(self, kind: str, initial: Number | int | None = None) -> Place:
        """A variable on the stack. It has a value if one is given, or if it is a pointer: null."""
        place = Place(self.room(_BYTES[kind], _BYTES[kind]), kind, _BYTES[kind])
        if initial is not None or kind == "ptr":
            place.set(initial)
        return place

    def place(self, variable: Global) -> Place:
        """The place of a variable of the module."""
        assert isinstance(variable.kind, str)
        return Place(self.value("ptr", variable), variable.kind, _BYTES[variable.kind])

    def load(self, kind: str, pointer: Number, offset: Number | int = 0) -> Number:
        """The value at an offset in bytes from an address."""
        return Place(moved(pointer, offset), kind, _BYTES[kind]).get()

    def copy(self, target: Number, source: Number, size: Number | int) -> None:
        """Copy bytes."""
        self._intrinsic("llvm.memcpy.p0.p0.i64", target, source, self.value("i64", size))

    def clear(self, target: Number, size: Number | int) -> None:
        """Set bytes to 0."""
        self._intrinsic("llvm.memset.p0.i64", target, self.value("i8", 0), self.value("i64", size))

    def _intrinsic(self, name: str, *operands: Number) -> None:
        self.line(self.called("void", name, *operands, Number(self, "i1", "false")))

    # Control flow.

    def go(self, label: str, condition: Number | None = None) -> None:
        """Go to a block, if a condition is true."""
        if condition is None:
            self.line(f"br label %{label}")
            self._has_ended = True
            return
        rest = self.name("rest")
        self.line(f"br {condition.typed}, label %{label}, label %{rest}")
        self.start(rest)

    def give(self, value: Number | int | None = None) -> None:
        """End the function with its result."""
        self.line("ret void" if self.result == "void" else f"ret {self.value(self.result, value).typed}")
        self._has_ended = True

    @contextmanager
    def when(self, condition: Number) -> Generator[None, None, None]:
        """Run what follows if a condition is true."""
        then, after = self.name("then"), self.name("after")
        self.line(f"br {condition.typed}, label %{then}, label %{after}")
        with self._block(then, after):
            yield

    @contextmanager
    def unless(self, condition: Number) -> Generator[None, None, None]:
        """Run what follows if a condition is false."""
        then, after = self.name("then"), self.name("after")
        self.line(f"br {condition.typed}, label %{after}, label %{then}")
        with self._block(then, after):
            yield

    @contextmanager
    def loop(self) -> Generator[Loop, None, None]:
        """Run what follows again and again."""
        loop = Loop(self)
        self.go(loop.next_label)
        with self._block(loop.next_label, loop.after_label, again=loop.next_label):
            yield loop

    @contextmanager
    def count(self, end: Number, start: Number | int = 0) -> Generator[Loop, None, None]:
        """Run what follows for each number from `start` to `end`, exclusive."""
        number = self.local("i64", start)
        head, body = self.name("head"), self.name("body")
        self.go(head)
        self.start(head)
        loop = Loop(self, number.get())
        self.line(f"br {loop.index.test('slt', end).typed}, label %{body}, label %{loop.after_label}")
        with self._block(body, loop.next_label):
            yield loop
        number.set(loop.index + 1)
        self.go(head)
        self.start(loop.after_label)

    @contextmanager
    def _block(self, label: str, after: str, *, again: str = "") -> Generator[None, None, None]:
        self.start(label)
        yield
        if not self._has_ended:
            self.go(again or after)
        self.start(after)


class Definition:
    """A function that `write` writes, with the types of its result and parameters."""

    def __init__(
        self, write: Callable[..., None], symbol: str, signature: Signature, linkage: str, attributes: str
    ) -> None:
        self._write, self.symbol, self.signature = write, symbol, signature
        self._head, self._attributes = f"define {linkage} {signature[0]} @{symbol}", attributes

    def written(self, available: Mapping[str, Signature]) -> tuple[Function, str]:
        """The function as it was written, and its text."""
        result, parameters = self.signature
        function = Function(result, available)
        arguments = [Number(function, kind, f"%a{number}") for number, kind in enumerate(parameters)]
        self._write(function, *arguments)
        given = ", ".join(argument.typed for argument in arguments)
        return function, f"{self._head}({given}) {self._attributes} {{\n{function.text}\n}}"


def define(
    result: str, parameters: str = "", *, symbol: str = "", linkage: str = "internal", attributes: str = ""
) -> Callable[[Callable[..., None]], Definition]:
    """Make a definition of a function of Python, which has its name unless there is a `symbol`. With the `linkage`
    "external", others than the module's functions can call it."""

    def defined(write: Callable[..., None]) -> Definition:
        signature = result, tuple(parameters.split())
        return Definition(write, symbol or write.__name__, signature, linkage, attributes)

    return defined


def module(roots: Iterable[Definition | Global], available: Mapping[str, Signature]) -> str:
    """The LLVM text of functions and variables, with all that they use. `available` has the functions of C."""
    declarations: dict[str, None] = {}
    texts: dict[str, str] = {}
    owners: dict[str, Definition | Global] = {}
    waiting: list[Definition | Global] = [*roots]
    while waiting:
        item = waiting.pop()
        owner = owners.setdefault(item.symbol, item)
        assert owner is item, f"two functions or variables have the name '{item.symbol}'"
        if item.symbol in texts:
            continue
        if isinstance(item, Global):
            texts[item.symbol] = item.text
            waiting += item.uses
        else:
            function, texts[item.symbol] = item.written(available)
            declarations |= function.declarations
            waiting += function.uses
    return "\n\n".join([*texts.values(), "\n".join(sorted(declarations)), ""])


def moved(pointer: Number, offset: Number | int) -> Number:
    """An address, moved by bytes."""
    if isinstance(offset, int) and not offset:
        return pointer
    return pointer.made("ptr", f"getelementptr i8, {pointer.typed}, i64 {offset}", 0)


def _function(number: Number) -> Function:
    assert isinstance(number.code, Function)
    return number.code
