"""Reading models from text. The grammar is in docs/reference/text-grammar.md; `writer.py` prints it.

The parser checks the form: known ops, counts of operands, declared values and blocks, terminators. It does not check
types: the verifier does, so that a wrong model can be read and shown with its violations marked. The article's spelling
of 2024 is read as well (`legacy.py`).
"""

from __future__ import annotations

import enum
import math
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

import ziggurat.codemodel.dialects  # pyright: ignore[reportUnusedImport]  # It declares the ops.
import ziggurat.codemodel.gpu.dialect  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS, convert_attribute
from ziggurat.codemodel.errors import BuildError, ParseError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, Successor, Value, fill
from ziggurat.codemodel.subnormals import keep_subnormals
from ziggurat.codemodel.text.legacy import upgrade_attributes, upgrade_op
from ziggurat.codemodel.text.limits import MAX_DEPTH, MAX_TOKEN, TOO_DEEP
from ziggurat.codemodel.traits import Isolated
from ziggurat.codemodel.type_reader import LEGACY_NAMES, TypeSyntaxError, read_type
from ziggurat.codemodel.types import Type, TypeSyntax, void

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?://[^\n]*[ \t\r\n]*)*
      (?: (?P<value>%[\w.]+)
      | (?P<block>\^[\w.]+)
      | (?P<number>-?(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?)|-inf\b)
      | (?P<ident>[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)
      | (?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*")
      | (?P<arrow>->)
      | (?P<punct>[@=():;,<>{}\[\]])
      | (?P<end>\Z)
      | (?P<wrong>.) )""",
    re.VERBOSE,
)


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
# line:column[:end_line:end_column][:file]; Babylon's form is without an end.
_PLACE = re.compile(r"(\d{1,9}):(\d{1,9})(?::(\d{1,9}):(\d{1,9}))?(?::(.*))?", re.DOTALL)
_FRACTION = re.compile(r"^(?!-?0[xX]).*[.eE]")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "'": "'", "\\": "\\"}


T_ = TypeVar("T_")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


# Faster than calling the class, which takes its fields by name as well.
_new_token = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@keep_subnormals()
def parse(text: str, file: str = "<text>") -> Op:
    """The model that `text` holds: one op with all that is inside it.

    Raises `ParseError` with line, column and caret. Run `verify` on the result to check its types.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParseError(
            f"parse: 'text' must be the text of a model; got {text!r}", hint="give the text of a model: str(model)"
        )
    return _Parser(text, file).model()


def parse_values(text: str, file: str = "<text>") -> list[Any]:
    """The constants and types, separated by commas, that `text` holds: `ptr<f32>, i32, 64`.

    Raises `ParseError` with line, column and caret.
    """
    return _Parser(text, file).value_list()


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.tokens = self._tokenize()
        self.position = 0
        self.types: dict[TypeSyntax, Type] = {}
        self.depth = 0
        # Set when a type is spelt as in 2024. A symbol such as `double` means itself otherwise.
        self.legacy = False

    def _tokenize(self) -> list[_Token]:
        tokens: list[_Token] = []
        for token in _TOKEN.finditer(self.text):
            kind, index = token.lastgroup, token.lastindex
            assert kind is not None and index is not None
            start, end = token.span(index)
            if kind == "wrong":
                text = token[index]
                self.fail("unterminated string" if text == '"' else f"unexpected character {text!r}", start)
            if end - start > MAX_TOKEN and kind != "string":
                self.fail(f"a token is longer than {MAX_TOKEN} characters", start)
            tokens.append(_new_token(_Token, (kind, token[index] or "end of text", start)))
            if kind == "end":
                break
        return tokens

    def fail(self, message: str, start: int | None = None, hint: str | None = None) -> NoReturn:
        at = self.tokens[self.position].start if start is None else start
        raise ParseError.at(at, self.text, self.file, message, hint)

    # Tokens.

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    def peek(self, text: str) -> bool:
        token = self.tokens[self.position]
        return token.text == text and token.kind in ("punct", "arrow")

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.fail(f"expected '{text}', got '{self.token.text}'")

    def take_kind(self, kind: str, what: str) -> _Token:
        token = self.tokens[self.position]
        if token.kind != kind:
            self.fail(f"expected {what}, got '{token.text}'")
        self.position += 1
        return token

    def items(self, closing: str, read: Callable[[], T_]) -> list[T_]:
        """The items that `read` reads, separated by commas, up to the closing bracket."""
        elements: list[T_] = []
        while not self.take(closing):
            if elements:
                self.expect(",")
            elements.append(read())
        return elements

    # Models.

    def model(self) -> Op:
        builder = Builder.root()
        op = self.op(builder, _Scope({}, builder), root=True)
        if self.token.kind != "end":
            self.fail("expected the end of the text: a model is one op")
        return op

    def value_list(self) -> list[Any]:
        values: list[Any] = []
        while self.token.kind != "end":
            if values:
                self.expect(",")
            start = self.token.start
            value = self.attribute_value()
            try:
                values.append(convert_attribute(value, object, "value"))
            except BuildError as error:
                self.fail(error.summary, start)
        return values

    def op(self, builder: Builder, scope: _Scope, root: bool = False) -> Op:
        start = self.position
        name: str | None = None
        type_: Type = void
        if self.token.kind == "value":
            name = self.token.text
            self.position += 1
            self.expect(":")
            type_ = self.type()
            self.expect("=")
        op_name = self.take_kind("ident", "the name of an op")
        cls = OPS.get(op_name.text)
        if cls is None:
            import difflib

            near = difflib.get_close_matches(op_name.text, OPS, 1)
            hint = f"did you mean '{near[0]}'?" if near else None
            self.fail(f"unknown op '{op_name.text}'", op_name.start, hint)
        operands: list[Value] = []
        while self.token.kind == "value":
            operands.append(self.use(scope))
        successors: list[Successor] = []
        while self.token.kind == "block":
            successors.append(self.successor(scope))
        attributes, starts, location = self.attributes(cls)
        bodies: list[Body] = []
        while self.peek("(") or self.token.kind == "block":
            bodies.append(self.body(builder, scope, issubclass(cls, Isolated)))
        self.expect(";")
        if self.legacy or op_name.text == "arith.constant":
            upgrade_attributes(op_name.text, attributes, type_)
        at = op_name.start
        try:
            for field_name, value in attributes.items():
                at = starts[field_name]
                field = cls.SPEC.by_name[field_name]
                attributes[field_name] = convert_attribute(value, field.kind, f"attribute '{field_name}'")
            at = op_name.start
            if self.legacy:
                operands, type_ = upgrade_op(builder, op_name.text, operands, type_)
            op = cls.SPEC.make(operands, successors, attributes, bodies, type_)
        except BuildError as error:
            self.fail(error.summary, at, error.hint)
        op.__dict__["location"] = location
        if root:
            return op
        try:
            builder.add(op)
        except BuildError as error:
            self.fail(error.summary, op_name.start, error.hint)
        if name is not None:
            if op.result.type is void:
                self.fail("an op of type void gives no value", self.tokens[start].start)
            scope.declare(self, name, op.result, self.tokens[start].start)
        return op

    def use(self, scope: _Scope) -> Value:
        token = self.take_kind("value", "a value")
        value = scope.values.get(token.text)
        if value is None:
            self.fail(f"undeclared value '{token.text}'", token.start)
        return value

    def successor(self, scope: _Scope) -> Successor:
        token = self.take_kind("block", "a block")
        arguments = self.items(")", lambda: self.use(scope)) if self.take("(") else []
        return Successor(scope.block(token), arguments)

    def attributes(self, cls: type[Op]) -> tuple[dict[str, Any], dict[str, int], Location | None]:
        """The attributes as they are spelt, where each stands, and the location."""
        spec = cls.SPEC
        entries: dict[str, Any] = {}
        starts: dict[str, int] = {}
        while self.peek("@"):
            start = self.token.start
            self.position += 1
            if self.token.kind == "ident" and self.tokens[self.position + 1].text == "=":
                key = self.token.text
                self.position += 2
            elif spec.unnamed is not None:
                key = spec.unnamed.name
            else:
                self.fail(f"{cls.NAME} has no unnamed attribute", start)
            field = spec.by_name.get(key)
            if field is None and key not in ("loc", "by"):
                self.fail(f"{cls.NAME} has no attribute '{key}'; it has {', '.join(spec.by_name) or 'none'}", start)
            if key in entries:
                self.fail(f"attribute '{key}' is given twice", start)
            starts[key] = self.token.start if field is not None else start
            entries[key] = self.attribute_value(words=field is not None and _is_enum(field.kind))
        place, maker = (None if key in spec.by_name else entries.pop(key, None) for key in ("loc", "by"))
        location = None if place is None else self.location(str(place), starts["loc"])
        return (
            entries,
            starts,
            location.made_by(str(maker)) if location is not None and maker is not None else location,
        )

    def location(self, text: str, start: int) -> Location:
        match = _PLACE.fullmatch(text)
        if match is None:
            self.fail(f"malformed location {text!r}", start)
        line, column, end_line, end_column = map(int, (match[1], match[2], match[3] or match[1], match[4] or match[2]))
        return Location(self.file if match[5] is None else match[5], line, column, end_line, end_column)

    def attribute_value(self, *, words: bool = False) -> Any:
        """A constant as it is spelt. With `words`, a word is one even if it could be a number (`nan`)."""
        token = self.token
        if token.kind == "string":
            self.position += 1
            return self.string(token)
        if token.kind == "number":
            self.position += 1
            if token.text == "-inf":
                return -math.inf
            try:
                return float(token.text) if _FRACTION.search(token.text) else int(token.text, 0)
            except ValueError:
                self.fail(f"malformed number '{token.text}'", token.start)
        if token.kind == "ident":
            constants: dict[str, Any] = {"null": None, "true": True, "false": False, "inf": math.inf, "nan": math.nan}
            if token.text in constants and not words:
                self.position += 1
                return constants[token.text]
            return self.type_syntax()
        if self.take("["):
            self.deeper("values")
            items = self.items("]", lambda: self.attribute_value(words=words))
            self.depth -= 1
            return tuple(items)
        self.fail(f"expected an attribute value, got '{token.text}'")

    def deeper(self, what: str) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"{what} are {TOO_DEEP}")

    def string(self, token: _Token) -> str:
        def character(match: re.Match[str]) -> str:
            code = match[1] or match[2] or match[3]
            if code is None and match[4] in _ESCAPED:
                return _ESCAPED[match[4]]
            if code is None or int(code, 16) > sys.maxunicode:
                self.fail(f"unknown escape '{match[0]}' in a string", token.start + 1 + match.start())
            return chr(int(code, 16))

        return _ESCAPE.sub(character, token.text[1:-1])

    def body(self, builder: Builder, scope: _Scope, isolated: bool) -> Body:
        self.deeper("bodies")
        if self.token.kind == "block":  # Babylon names the entry block; nothing refers to it.
            self.position += 1
        self.expect("(")
        parameters = self.items(")", self.parameter)
        yield_type = self.type()
        self.expect("->")
        opening = self.token.start
        self.expect("{")
        types = [type_ for _, type_, _ in parameters]
        inner = Builder.root(types, yield_type) if isolated else builder.nested(types, yield_type)
        values = {} if isolated else dict(scope.values)
        inner_scope = _Scope(values, inner)
        inner_scope.declare_all(self, parameters, inner.block)
        while not self.peek("}"):
            if self.token.kind == "block":
                if not inner.terminated:
                    self.fail("the block before this one has no terminator")
                self.label(inner_scope)
            elif self.token.kind == "end":
                self.fail("expected '}' before the end of the text", opening)
            else:
                self.op(inner, inner_scope)
        if not inner.terminated:
            self.fail("expected a terminator (return, yield, branch …) at the end of the block")
        for token in inner_scope.undeclared.values():
            self.fail(f"undeclared block '{token.text}'", token.start)
        self.position += 1
        self.depth -= 1
        try:
            return inner.finish()
        except BuildError as error:
            self.fail(error.summary, opening)

    def label(self, scope: _Scope) -> None:
        """Go to the block that is declared here."""
        token = self.take_kind("block", "a block")
        block = scope.block(token)
        if scope.undeclared.pop(token.text, None) is None:
            self.fail(f"block '{token.text}' is declared twice", token.start)
        parameters = self.items(")", self.parameter) if self.take("(") else []
        types = enumerate(type_ for _, type_, _ in parameters)
        fill(block, "parameters", tuple(BlockParameter(type_, block, index) for index, type_ in types))
        scope.declare_all(self, parameters, block)
        scope.builder.move_to(block)
        self.expect(":")

    def parameter(self) -> tuple[str, Type, int]:
        token = self.take_kind("value", "a parameter such as '%0 : i32'")
        self.expect(":")
        return token.text, self.type(), token.start

    # Types.

    def type(self) -> Type:
        start = self.token.start
        syntax = self.type_syntax()
        type_ = self.types.get(syntax)
        if type_ is None:
            try:
                type_ = self.types[syntax] = read_type(syntax)
            except TypeSyntaxError as error:
                self.fail(str(error), start)
        return type_

    def type_syntax(self) -> TypeSyntax:
        token = self.token
        if token.kind == "string":
            self.position += 1
            return TypeSyntax(self.string(token), quoted=True)
        name = self.take_kind("ident", "a type").text
        if name in LEGACY_NAMES or name == "java.type":
            self.legacy = True
        if name == "java.type" and self.peek(":"):  # Babylon's later spelling: java.type:"int".
            self.position += 1
            quoted = self.take_kind("string", "a quoted Java type")
            return TypeSyntax("java.type", (TypeSyntax(self.string(quoted)),))
        arguments: list[TypeSyntax] = []
        if self.take("<"):
            self.deeper("types")
            while True:
                arguments.append(self.type_syntax())
                if not self.take(","):
                    break
            if not self.take(">"):
                self.fail(f"expected ',' or '>' in a type, got '{self.token.text}'")
            self.depth -= 1
        return TypeSyntax(name, tuple(arguments))


def _is_enum(kind: Any) -> bool:
    inner: Any = kind[0] if isinstance(kind, list) else kind  # pyright: ignore[reportUnknownVariableType]
    return isinstance(inner, type) and issubclass(inner, enum.Enum)


class _Scope:
    """The values and blocks that names stand for, in one body."""

    def __init__(self, values: dict[str, Value], builder: Builder) -> None:
        self.values = values
        self.builder = builder
        self.blocks: dict[str, Block] = {}
        self.undeclared: dict[str, _Token] = {}  # Where the blocks are named that have no label so far.
        self.own: set[str] = set()

    def block(self, token: _Token) -> Block:
        """The block of this name. Its parameters are known from its label on."""
        if token.text not in self.blocks:
            self.blocks[token.text] = self.builder.new_block()
            self.undeclared[token.text] = token
        return self.blocks[token.text]

    def declare(self, parser: _Parser, name: str, value: Value, start: int) -> None:
        if name in self.own:
            parser.fail(f"value '{name}' is declared twice", start)
        self.own.add(name)
        self.values[name] = value

    def declare_all(self, parser: _Parser, parameters: list[tuple[str, Type, int]], block: Block) -> None:
        for (name, _, start), value in zip(parameters, block.parameters, strict=True):
            self.declare(parser, name, value, start)
