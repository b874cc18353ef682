"""Read a module of MLIR into a Triton model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

# The readers register themselves when these are imported.
from ziggurat.backend.mlir import arithmetic, control, memory, tensors  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ziggurat.backend.mlir.emitter import DIVISIBILITY, FACTS, STEP, SYMBOL, TYPE, leaves
from ziggurat.backend.mlir.reader import MlirReader, own_type
from ziggurat.backend.mlir.syntax import Cursor
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import BuildError, ParseError, shown
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.recursion import deep_recursion
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.subnormals import keep_subnormals
from ziggurat.codemodel.text.limits import TOO_DEEP
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import DescriptorType, Type


def from_mlir(text: str, file: str = "<mlir>") -> core.Module:
    """The Triton model of a module that the C++ Triton, or `to_mlir`, has written: the text of a `.ttir` file.

    `file` is its name in errors. Integers have no sign in MLIR: those of the model are signed, and the operands of an
    op on unsigned ones are cast. Run `verify` on the result to check it.

    Raises `ParseError` with line, column and caret for text that is malformed, and for what Triton models lack.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParseError(
            f"from_mlir: 'text' must be the text of an MLIR module; got {shown(text)}", hint="read the file first"
        )
    c = Cursor(text, file)
    try:
        with deep_recursion(), keep_subnormals():
            headers = _headers(c)
            try:
                return _module(MlirReader(c, steps=True), headers)
            except ParseError:
                if STEP not in text:
                    raise
                # A pass of Triton has moved the steps around ops of ours, so that they are read like other ops.
                return _module(MlirReader(c, steps=False), headers)
    except RecursionError:
        c.fail(f"the text is {TOO_DEEP}")
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, AssertionError):
        c.fail("the text does not have the form that it must have here")


def _module(r: MlirReader, headers: Sequence[_Header]) -> core.Module:
    r.functions = {header.name: (header.symbol, header.types, header.result) for header in headers}
    outside = Builder.root()
    functions = [_function(r, header, outside) for header in headers]
    library = Rewriter.over(outside)
    for name, function in r.library_functions.items():
        if name in r.functions:
            r.cursor.fail(
                f"'{name}' is the name of a function of the library", hint="rename the function of the module"
            )
        library.rewrite(function)
    for header, function in zip(headers, functions, strict=True):
        outside.add(function, header.location)
    outside.add(core.Unreachable())
    return core.Module(outside.finish())


@attrs.define
class _Header:
    """A function of the module before its body is read."""

    name: str
    at: int
    names: list[str] = attrs.field(factory=list[str])
    types: list[Type] = attrs.field(factory=list[Type])
    divisibility: list[int] = attrs.field(factory=list[int])
    results: list[Type] = attrs.field(factory=list[Type])
    symbol: str = ""  # In the model.
    noinline: bool = False
    # The parameters that are the size or the stride, along an axis, of the descriptor before them.
    facts: dict[int, tuple[type[tt.DescriptorFact], int]] = attrs.field(factory=lambda: {})
    region: int = 0
    location: Location | None = None

    @property
    def result(self) -> Type:
        return packed(self.results)


def _headers(c: Cursor) -> list[_Header]:
    """The functions of the module, in order."""
    end = _opened(c)
    headers: list[_Header] = []
    while c.at < end:
        if c.token[:1] == "#":
            _skip_alias(c)
        elif c.take("tt.func"):
            headers.append(_own_form(c))
        elif c.take('"tt.func"'):
            headers.append(_generic_form(c))
        else:
            c.fail(f"expected a function, tt.func, got {c.shown()}", hint="from_mlir reads modules of Triton (.ttir)")
    if not headers:
        c.fail("the module must have a function, tt.func")
    names = [header.name for header in headers]
    for number, header in enumerate(headers):
        if header.name in names[:number]:
            c.fail(f"the function '{header.name}' is defined twice", header.at)
    return headers


def _opened(c: Cursor) -> int:
    """Go past the beginning of the module. Gives the token at which the functions end."""
    while c.token[:1] == "#":
        _skip_alias(c)
    if c.take('"builtin.module"'):
        while c.token not in ("{", ""):  # `() <{…}> ({`
            c.at += 1
    elif c.take("module") or c.take("builtin.module"):
        if c.token[:1] == "@":
            c.at += 1
        if c.take("attributes"):
            c.expect("{")
            c.dictionary()
        if c.token != "{":
            c.fail(f"expected the body of the module, in braces, got {c.shown()}")
    else:
        return len(c.tokens) - 1
    end = c.closing.get(c.at, 0)
    c.at += 1
    return end


def _skip_alias(c: Cursor) -> None:
    """Go past `#name = …`."""
    c.at += 1
    c.expect("=")
    if c.token == "loc":
        c.location()
    else:
        c.attribute()


def _own_form(c: Cursor) -> _Header:
    """`public @name(%a: T {…}, …) -> R attributes {…} {`."""
    if c.token in ("public", "private", "nested"):
        c.at += 1
    at = c.at
    header = _Header(c.symbol(), at)
    c.expect("(")
    while not c.take(")"):
        if header.names:
            c.expect(",")
        header.names.append(c.value())
        c.expect(":")
        header.types.append(c.type())
        _describe(c, header, c.dictionary() if c.take("{") else {})
        c.location()
    if c.take("->"):
        header.results = c.one_or_more_types()
    attributes: Mapping[str, Any] = {}
    if c.take("attributes"):
        c.expect("{")
        attributes = c.dictionary()
    _finish(c, header, attributes)
    if c.token != "{":
        c.fail(f"the function '{header.name}' must have a body, in braces; got {c.shown()}")
    header.region = c.at
    c.at = c.closing[c.at] + 1
    header.location = c.location()
    return header


def _describe(c: Cursor, header: _Header, attributes: Mapping[str, Any]) -> None:
    """The attributes of the next parameter, whose type is known."""
    number = len(header.divisibility)
    fact = next(((cls, attributes[key]) for key, cls in FACTS.items() if key in attributes), None)
    if fact is not None:
        header.facts[number] = fact
    divisibility = attributes.get(DIVISIBILITY, attributes.get("tt.divisibility", 1))
    header.divisibility.append(divisibility if isinstance(divisibility, int) else 1)
    if TYPE in attributes:
        header.types[number] = own_type(c, str(attributes[TYPE]), header.at)


def _finish(c: Cursor, header: _Header, attributes: Mapping[str, Any]) -> None:
    """The attributes of a function."""
    header.noinline = attributes.get("noinline", False) is True
    header.symbol = str(attributes.get(SYMBOL, header.name))
    if TYPE in attributes:
        header.results = list(leaves(own_type(c, str(attributes[TYPE]), header.at)))


def _generic_form(c: Cursor) -> _Header:
    """`"tt.func"() <{function_type = …, sym_name = …}> ({ ^bb0(…): … }) : () -> ()`."""
    at = c.at
    c.expect("(")
    c.expect(")")
    properties: dict[str, Any] = c.dictionary("}>") if c.take("<{") else {}
    c.expect("(")
    region = c.at
    if c.token != "{":
        c.fail(f"a function must have a body, in braces; got {c.shown()}")
    c.at = c.closing[c.at] + 1
    c.expect(")")
    if c.take("{"):
        properties |= c.dictionary()
    c.expect(":")
    c.function_type()
    types, results = properties.get("function_type", ([], []))
    header = _Header(str(properties.get("sym_name")), at, [], types, [], results, region=region)
    for attributes in properties.get("arg_attrs", ({},) * len(types)):
        _describe(c, header, attributes)
    _finish(c, header, properties)
    header.location = c.location()
    return header


def _function(r: MlirReader, header: _Header, outside: Builder) -> tt.Func:
    numbers = [number for number in range(len(header.types)) if number not in header.facts]
    inner = outside.nested([header.types[number] for number in numbers], header.result)
    try:
        r.body(header.region, inner, header.names, _arguments(r, header, inner))
        divisors = tuple(header.divisibility[number] for number in numbers)
        divisibility = divisors if any(by != 1 for by in divisors) else ()
        return tt.Func(header.symbol, inner.finish(), divisibility=divisibility, noinline=header.noinline)
    except BuildError as error:
        r.cursor.fail(error.summary, header.at, error.hint)


def _arguments(r: MlirReader, header: _Header, inner: Builder) -> list[Value]:
    """The values that the parameters of the text stand for: those of the function, and facts about descriptors."""
    parameters = iter(inner.parameters)
    values: list[Value] = []
    descriptor: Value | None = None
    for number, type_ in enumerate(header.types):
        if number not in header.facts:
            values.append(next(parameters))
            descriptor = values[-1] if isinstance(type_, DescriptorType) else descriptor
        elif descriptor is None:
            r.cursor.fail(f"parameter {number} of '{header.name}' must follow a descriptor", header.at)
        else:
            cls, axis = header.facts[number]
            values.append(inner.add(cls(descriptor, axis)))
    return values
