"""The syntax of MLIR's text: tokens, types, attributes, locations, and the parts of an op before they have a meaning.

Every op is read into a `Statement`, from its own form (`tt.load %p, %m : …`) as from the generic one
(`"tt.load"(%p, %m) <{…}> : (…) -> …`). The forms of most ops need no grammar each: operands, words, `key = value`,
brackets and attributes come in the order of the text up to the types. Only ops with regions, branches, functions and
constants have readers of their own (`statements.py`). A grammar for `lark` was not made: its tables would state each
op's form, which changes from release to release, and it reads 20 thousand lines in minutes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NoReturn

import attrs

from ziggurat.codemodel.errors import ParseError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.numbers import number_of_bits
from ziggurat.codemodel.text.limits import MAX_DEPTH, MAX_TOKEN, TOO_DEEP
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    shape_of,
)

_SPACE = r"(?:\s+|//[^\n]*)*+"  # Possessive: other ways to divide what it matches are not tried.
_TOKENS = re.compile(
    _SPACE
    + r"""(
    "(?:[^"\\]|\\.)*"                                                # a string
    | (?:!tt\.\w+|tensor)<(?:[^<>]|<(?:[^<>]|<(?:[^<>])*>)*>)*>       # a type with arguments
    | [%^@#!][\w.$-]+(?:\#\d+)? | @"(?:[^"\\]|\\.)*"                  # a value, block, symbol, alias or other type
    | [A-Za-z_][\w.$]*                                               # a word
    | 0x[0-9A-Fa-f]+ | \d+(?:x\d+)*x[\w!.<]+ | \d+\.\d*(?:[eE][-+]?\d+)? | \d+
    | -> | <\{ | \}> | \S | \Z
    )""",
    re.VERBOSE,
)
_END = ""  # The token after the last one.
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)")
_MLIR_SCALARS: dict[str, ScalarType] = {
    **{type_.mlir: type_ for type_ in SCALARS.values() if type_.kind != "int" or type_.signed},
    **{f"{'s' if t.signed else 'u'}i{t.bits}": t for t in SCALARS.values() if t.kind == "int"},
}
BLOCK_POINTER_HINT = "read the IR after Triton's first passes (.ttir), or write the kernel with tensor descriptors"
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][-+]?\d+)?)?")
_DIMENSIONS = re.compile(r"((?:\d+x)*)(.*)")


@attrs.frozen
class Raw:
    """An attribute whose parts have no meaning here: `#tt.cache_policy<…>`, with its text and its words."""

    text: str
    words: tuple[str, ...]

    def after(self, key: str) -> str | None:
        """The word after `key =`; None if the attribute has no such part."""
        for at, word in enumerate(self.words[:-2]):
            if word == key and self.words[at + 1] == "=":
                return self.words[at + 2]
        return None


@attrs.frozen
class Dense:
    """`dense<…> : type`: the elements in order, or one for all of them."""

    elements: tuple[Any, ...]
    type: Type


@attrs.define(eq=False)
class Statement:
    """An op of the text, before it has a meaning."""

    name: str
    at: int  # The token of the name.
    results: list[tuple[str, int]] = attrs.field(
        factory=list[tuple[str, int]]
    )  # The names, each with its number of values.
    operands: list[str] = attrs.field(factory=list[str])
    words: list[str] = attrs.field(factory=list[str])
    strings: list[str] = attrs.field(factory=list[str])
    attributes: dict[str, Any] = attrs.field(factory=dict[str, Any])
    types: list[Type] = attrs.field(factory=list[Type])
    result_types: list[Type] = attrs.field(factory=list[Type])
    successors: list[tuple[str, list[str]]] = attrs.field(factory=list[tuple[str, list[str]]])
    regions: list[int] = attrs.field(factory=list[int])  # The token of each opening brace.
    parameters: list[str] | None = None  # The names of the first region's parameters, if the op's own form has them.
    location: Location | None = None

    @property
    def count(self) -> int:
        """The number of values that the op gives."""
        return sum(count for _, count in self.results)


class Cursor:
    """A place in the tokens of a text, and the reading of what stands there. Errors are `ParseError`s at a token."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.tokens: list[str] = [*filter(None, _TOKENS.findall(text)), _END]
        self.at = 0
        self._places: dict[str, int] = {}  # The token of the location that each alias stands for.
        self._attributes: dict[str, int] = {}
        self._locations: dict[str, Location | None] = {}
        self._values: dict[str, Any] = {}  # The attributes that aliases stand for.
        self._depth = 0
        self._types: dict[str, Type] = {}
        self.closing = self._pairs()

    def _pairs(self) -> dict[int, int]:
        """The token of the closing brace for that of each opening one; notes the aliases on the way."""
        pairs: dict[int, int] = {}
        opened: list[int] = []
        tokens = self.tokens
        for at, token in enumerate(tokens):
            if len(token) > MAX_TOKEN and token[0] != '"':
                self.fail(f"a token is longer than {MAX_TOKEN} characters", at)
            if token == "{":
                opened.append(at)
            elif token == "}":
                if not opened:
                    self.fail("this brace closes nothing", at)
                pairs[opened.pop()] = at
            elif token == "=" and tokens[at - 1][0] == "#":
                table = self._places if tokens[at + 1] == "loc" else self._attributes
                table[tokens[at - 1]] = at + 1
        if opened:
            self.fail("this brace is never closed", opened[-1])
        return pairs

    # Errors.

    def fail(self, message: str, at: int | None = None, hint: str | None = None) -> NoReturn:
        """Raise `ParseError` at a token, by default the current one."""
        number = self.at if at is None else at
        match = next(itertools.islice(_TOKENS.finditer(self.text), number, None), None)
        raise ParseError.at(len(self.text) if match is None else match.start(1), self.text, self.file, message, hint)

    @contextmanager
    def deeper(self, what: str) -> Generator[None]:
        """One more level of what is nested: regions, attributes, locations."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"{what} are {TOO_DEEP}")
        yield
        self._depth -= 1

    # Tokens.

    @property
    def token(self) -> str:
        return self.tokens[self.at]

    def next(self) -> str:
        """The current token; goes to the one after it."""
        if self.at == len(self.tokens) - 1:
            self.fail("the text ends here, in the middle of something")
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, token: str) -> bool:
        """Whether the current token is this one; goes past it if so."""
        if self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Go past this token. Raises `ParseError` for another one."""
        if not self.take(token):
            self.fail(f"expected '{token}', got {self.shown()}")

    def shown(self, at: int | None = None) -> str:
        """A token in a message."""
        token = self.tokens[self.at if at is None else at]
        return f"'{token}'" if token else "the end of the text"

    def word(self, what: str) -> str:
        """A word. Raises `ParseError` for another token; `what` says what it must be."""
        if not (self.token[:1].isalpha() or self.token[:1] == "_"):
            self.fail(f"expected {what}, got {self.shown()}")
        return self.next()

    def value(self) -> str:
        """The name of a value."""
        if self.token[:1] != "%":
            self.fail(f"expected a value such as '%0', got {self.shown()}")
        return self.next()

    def values(self) -> list[str]:
        """Names of values, separated by commas; there may be none."""
        names: list[str] = []
        if self.token[:1] == "%":
            names.append(self.value())
            while self.take(","):
                names.append(self.value())
        return names

    def string(self) -> str:
        """A string literal."""
        if self.token[:1] != '"':
            self.fail(f"expected a string, got {self.shown()}")
        return unquoted(self.next())

    def symbol(self) -> str:
        """The name of a function: `@name` or `@"name"`."""
        if self.token[:1] != "@":
            self.fail(f"expected a symbol such as '@kernel', got {self.shown()}")
        name = self.next()[1:]
        return unquoted(name) if name[:1] == '"' else name

    def integer(self) -> int:
        """A number without a sign and a fraction."""
        if not self.token.isdecimal():
            self.fail(f"expected an integer, got {self.shown()}")
        return int(self.next())

    # Types.

    def type(self) -> Type:
        """A type."""
        token = self.next()
        type_ = self._types.get(token)
        if type_ is None:
            type_ = self._types[token] = self._read_type(token, self.at - 1)
        return type_

    def short_type(self, name: str) -> Type:
        """A type whose name may be left out: `<f16>` for `!tt.ptr<f16>`."""
        if not self.take("<"):
            return self.type()
        start, depth = self.at - 1, 1
        while depth:
            token = self.next()
            if not token:
                self.fail("this type has no end", start)
            depth += token.count("<") - token.count(">")
        return self._read_type(f"!tt.{name}{''.join(self.tokens[start : self.at])}", start)

    def _read_type(self, text: str, at: int) -> Type:
        scalar = _MLIR_SCALARS.get(text)
        if scalar is not None:
            return scalar
        name, _, rest = text.partition("<")
        inner = rest[:-1].strip()
        if text in ("tensor", "!tt.ptr", "!tt.tensordesc"):
            self.fail(f"type {text}<…> has no arguments or no end, or is nested too deeply", at)
        if name == "!tt.ptr":
            pointee, _, space = inner.partition(",")
            if space.strip() not in ("", "1"):
                self.fail(f"pointers must point to global memory (space 1); got {text}", at)
            to = self._read_type(pointee.strip(), at)
            if not isinstance(to, ScalarType):
                self.fail(f"a block pointer, {text}, is not supported", at, BLOCK_POINTER_HINT)
            return PtrType(to)
        if name in ("tensor", "!tt.tensordesc"):
            return self._read_shaped(name, inner, text, at)
        if text == "<" and self.tokens[at + 1].startswith("tensor"):
            self.fail("block pointers, <tensor<…>>, are not supported", at, BLOCK_POINTER_HINT)
        if text == "<":
            self.fail("a type must have its name here; got '<'", at, "write !tt.ptr<f32> for <f32>")
        self.fail(
            f"type {text or 'missing'} is not supported", at,
            f"the types of numbers are {', '.join(_MLIR_SCALARS)}" if name[:1] != "!" else None,
        )  # fmt: skip

    def _read_shaped(self, name: str, inner: str, text: str, at: int) -> Type:
        if name == "!tt.tensordesc" and inner.startswith("tensor<"):
            inner = inner[len("tensor<") : -1].strip()
        if "#" in inner:
            self.fail(
                f"type {text} has a layout",
                at,
                "from_mlir reads Triton's IR before layouts (.ttir), not after (.ttgir)",
            )
        match = _DIMENSIONS.fullmatch(inner)
        if match is None:
            self.fail(f"type {text} is not supported", at)
        shape = tuple(map(int, match[1].split("x")[:-1]))
        if 0 in shape:
            self.fail(f"type {text} has no elements", at)
        element = self._read_type(match[2], at)
        if name == "!tt.tensordesc" and isinstance(element, ScalarType):
            return DescriptorType(shape, element)
        if not shape or not isinstance(element, ScalarType | PtrType):
            self.fail(f"type {text} is not supported", at, "a tensor has a constant shape, of numbers or pointers")
        return TensorType(shape, element)

    def type_list(self, into: list[Type], results: list[Type]) -> None:
        """Types after a colon, `A, B`, `(A, B) -> C`, `A * B -> C` or `A to B`, into the two lists."""
        while self.token != "->":
            into += self.one_or_more_types()
            if not (self.take(",") or self.take("*")):
                break
        if self.take("->") or self.take("to"):
            self.type_list(results, results)

    def one_or_more_types(self) -> list[Type]:
        """`A` or `(A, B)`."""
        if not self.take("("):
            return [self.type()]
        types: list[Type] = []
        while not self.take(")"):
            if types:
                self.expect(",")
            types.append(self.type())
        return types

    def function_type(self) -> tuple[list[Type], list[Type]]:
        """`(A, B) -> C` or `(A, B) -> (C, D)`."""
        parameters = self.one_or_more_types()
        self.expect("->")
        return parameters, self.one_or_more_types()

    # Attributes.

    def dictionary(self, close: str = "}") -> dict[str, Any]:
        """Attributes by name, after the opening brace. One without a value is True."""
        entries: dict[str, Any] = {}
        while not self.take(close):
            if entries and not self.take(","):
                self.fail(f"expected ',' or '{close}', got {self.shown()}")
            key = self.string() if self.token[:1] == '"' else self.word("the name of an attribute")
            entries[key] = self.attribute() if self.take("=") else True
        return entries

    def attribute(self) -> Any:
        """An attribute: a number, a string, a list, or a `Raw` one."""
        with self.deeper("attributes"):
            return self._attribute()

    def _attribute(self) -> Any:
        token = self.token
        if token in self._attributes:
            back = self.at + 1
            if token not in self._values:
                self.at = self._attributes[token]
                self._values[token] = self.attribute()
            self.at = back
            return self._values[token]
        if token[:1] == '"':
            return self.string()
        if token in ("true", "false"):
            return self.next() == "true"
        if token == "-" or token[:1].isdigit():
            return self._number()
        if token == "dense":
            return self.dense()
        if token == "array":
            return self._array()
        if token == "unit":
            self.at += 1
            return True
        if token == "[":
            return self._list()
        if token == "{":
            self.at += 1
            return self.dictionary()
        if token == "(":
            return self.function_type()
        if token[:1] == "@":
            return self.symbol()
        if token[:1] in ("#", "!") or token[:1].isalpha():
            value = self.raw()
            if self.take(":"):
                self.type()
            return value
        self.fail(f"expected an attribute, got {self.shown()}")

    def _number(self) -> int | float:
        start = self.at
        number = self.plain_number()
        type_ = self.type() if self.take(":") else None
        if isinstance(type_, ScalarType) and type_.is_float:
            return self.scalar(number, type_, start)
        return int(number, 0) if "." not in number else float(number)

    def plain_number(self) -> str:
        """The text of a number, with its sign."""
        sign = "-" if self.take("-") else ""
        if not (_NUMBER.fullmatch(self.token) or self.token in ("true", "false")):
            self.fail(f"expected a number, got {self.shown()}")
        return sign + self.next()

    def literal(self, number: str, type_: Type, at: int) -> Any:
        """The Python number for a literal of a type. A float in hexadecimal has the bits of its type."""
        if not isinstance(type_, ScalarType):
            self.fail(f"a constant must be a number, or 'dense<…>' for a tensor; got {type_}", at)
        return self.scalar(number, type_, at)

    def scalar(self, number: str, type_: ScalarType, at: int) -> Any:
        """The same for a scalar type."""
        if number in ("true", "false"):
            return number == "true"
        if type_.is_float and not number.startswith("0x"):
            return float(number)
        if "." in number:
            self.fail(f"a constant of {type_} must be an integer; got {number}", at)
        value = int(number, 0)
        if not -(1 << (type_.bits - 1)) <= value < 1 << type_.bits:
            self.fail(f"{number} does not fit in {type_}", at)
        if type_.is_float:
            return number_of_bits(value, type_)
        if type_.bits == 1:
            return bool(value)
        return value - (1 << type_.bits) if value >> (type_.bits - 1) == 1 else value

    def dense(self) -> Dense:
        """`dense<…> : type`."""
        self.expect("dense")
        self.expect("<")
        start = self.at
        literals: list[tuple[str, int]] = []
        text = self.string() if self.token[:1] == '"' else None
        shape = self._numbers(literals) if text is None else ()
        self.expect(">")
        self.expect(":")
        type_ = self.type()
        element = element_of(type_)
        if not isinstance(element, ScalarType):
            self.fail(f"a constant must be of numbers; got {type_}", start)
        if text is not None:
            return Dense(self._packed(text, element, start), type_)
        if shape not in ((), shape_of(type_)):
            self.fail(f"a constant of {type_} must have its shape; got numbers of shape {shape}", start)
        return Dense(tuple(self.scalar(number, element, at) for number, at in literals), type_)

    def _numbers(self, into: list[tuple[str, int]]) -> tuple[int, ...]:
        """Add a number, or those in brackets, to the list. Gives their shape."""
        start = self.at
        if not self.take("["):
            into.append((self.plain_number(), start))
            return ()
        shapes: list[tuple[int, ...]] = []
        with self.deeper("constants"):
            while not self.take("]"):
                if shapes:
                    self.expect(",")
                shapes.append(self._numbers(into))
        if len(set(shapes)) > 1:
            self.fail("the rows of a constant must have one shape", start)
        return (len(shapes), *(shapes[0] if shapes else ()))

    def _packed(self, text: str, element: ScalarType, at: int) -> tuple[Any, ...]:
        """The numbers of `dense<"0x…">`: their bytes, little end first."""
        try:
            data = bytes.fromhex(text.removeprefix("0x"))
        except ValueError:
            self.fail("a constant in quotes must be hexadecimal", at)
        if element.bits == 1:
            return tuple(bool(byte) for byte in data)
        size = element.bytes
        bits = [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]
        return tuple(self.scalar(f"0x{number:x}" if element.is_float else str(number), element, at) for number in bits)

    def _array(self) -> tuple[Any, ...]:
        """`array<i32: 1, 0>`."""
        self.expect("array")
        self.expect("<")
        self.type()
        elements: list[Any] = []
        if self.take(":"):
            elements.append(self._number_or_flag())
            while self.take(","):
                elements.append(self._number_or_flag())
        self.expect(">")
        return tuple(elements)

    def _number_or_flag(self) -> Any:
        return self.next() == "true" if self.token in ("true", "false") else self._number()

    def _list(self) -> tuple[Any, ...]:
        self.expect("[")
        items: list[Any] = []
        while not self.take("]"):
            if items:
                self.expect(",")
            items.append(self.attribute())
        return tuple(items)

    def raw(self) -> Raw:
        """A word or an alias, and what stands in `<…>` after it."""
        start = self.at
        self.at += 1
        if self.token == "<":
            depth = 0
            while True:
                token = self.next()
                if not token:
                    self.fail("this attribute has no end", start)
                depth += token.count("<") - token.count(">")
                if depth == 0:
                    break
        words = tuple(self.tokens[start : self.at])
        return Raw("".join(words), words)

    # Locations.

    def location(self) -> Location | None:
        """The location after an op, if there is one."""
        if self.token != "loc":
            return None
        self.at += 1
        self.expect("(")
        place = self._place()
        self.expect(")")
        return place

    def _place(self) -> Location | None:
        with self.deeper("locations"):
            return self._inner_place()

    def _inner_place(self) -> Location | None:
        token = self.next()
        if token[:1] == "#":
            return self._alias(token)
        if token == "unknown":
            return None
        if token == "callsite":
            self.expect("(")
            callee = self._place()
            self.expect("at")
            caller = self._place()
            self.expect(")")
            return callee.called_from(caller) if callee is not None else caller
        if token == "fused":
            if self.token == "<":
                self.at -= 1
                self.raw()
            self.expect("[")
            parts = [self._place()]
            while self.take(","):
                parts.append(self._place())
            self.expect("]")
            return next((part for part in parts if part is not None), None)
        if token[:1] != '"':
            self.fail(f"expected a location, got {self.shown(self.at - 1)}", self.at - 1)
        if self.take("("):  # A name, for what stands at a place.
            inner = self._place()
            self.expect(")")
            return inner
        if not self.take(":"):
            return None
        line = self.integer()
        self.expect(":")
        column = self.integer()
        if self.take("to"):
            while self.token == ":" or self.token.isdecimal():
                self.at += 1
        return Location(unquoted(token), line, column) if line > 0 else None

    def _alias(self, name: str) -> Location | None:
        if name not in self._locations:
            if name not in self._places:
                self.fail(f"the location {name} is not defined", self.at - 1)
            self._locations[name] = None  # Of an alias that stands for itself.
            back, self.at = self.at, self._places[name]
            self._locations[name] = self.location()
            self.at = back
        return self._locations[name]


def unquoted(text: str) -> str:
    """The text that a string literal stands for."""
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    return _ESCAPE.sub(_unescaped, inner.encode()).decode(errors="replace")


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 2:
        return bytes([int(code, 16)])
    return {b"n": b"\n", b"t": b"\t"}.get(code, code)
