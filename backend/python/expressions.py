"""The expressions of a model in Python's syntax tree."""

from __future__ import annotations

import ast
import enum
import math
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ziggurat.backend.python.augmented import begin_augmented
from ziggurat.backend.python.writer import Writer, dotted, is_steady, name, writes
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.messages import EXPLICIT_WORDS, Words
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.python_operators import BY_SIGN, OPERATORS
from ziggurat.codemodel.types import PtrType, ScalarType, Type


def constant(value: Any, words: Words = EXPLICIT_WORDS, is_lifted: bool = False) -> ast.expr:
    """A constant of a model as Python writes it. Raises `TargetError` for one that it has no name for."""
    if isinstance(value, enum.Enum):
        return dotted(f"zg.{type(value).__name__}.{value.name}")
    if isinstance(value, ScalarType | PtrType):
        return ast.parse(words.dtype(value), mode="eval").body
    if isinstance(value, Type):
        raise TargetError(f"the type {value} has no form in Python's source")
    if isinstance(value, tuple):
        items = [constant(item, words, is_lifted) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return ast.Tuple(items, ast.Load())
    if isinstance(value, float) and (math.isnan(value) or (is_lifted and math.isinf(value))):
        return ast.Call(name("float"), [ast.Constant(str(value))], [])
    if isinstance(value, int | float | complex) and not isinstance(value, bool):
        negative = isinstance(value, int | float) and (value < 0 or str(value)[0] == "-")
        return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if negative else ast.Constant(value)
    return ast.Constant(value)


@writes(core.ConstantOp, objects.Literal)
def constant_op(writer: Writer, op: Any) -> None:
    node = constant(op.value, writer.names.words, writer.names.is_lifted)
    if writer.names.is_lifted and op.result.uses:
        writer.values[op.result] = writer.located(node, op)
    else:
        writer.push(op, node)


@writes(core.VarLoad)
def load(writer: Writer, op: core.VarLoad) -> None:
    if begin_augmented(writer, op):
        return
    node = name(writer.names.of(op.var))
    if writer.names.is_lifted and op.result.uses and is_steady(op):
        writer.values[op.result] = writer.located(node, op)
    else:
        writer.push(op, node)


@writes(py.Outer)
def outer(writer: Writer, op: py.Outer) -> None:
    if begin_augmented(writer, op):
        return
    writer.push(op, named(writer, op.name))


@writes(objects.LoadName)
def load_name(writer: Writer, op: objects.LoadName) -> None:
    if begin_augmented(writer, op):
        return
    writer.push(op, name(op.name))


@writes(core.FuncRef)
def reference(writer: Writer, op: core.FuncRef) -> None:
    writer.push(op, named(writer, op.callee))


def named(writer: Writer, text: str) -> ast.expr:
    """A name from outside, which may be dotted."""
    writer.names.outer(text.partition(".")[0])
    return dotted(text)


@writes(*OPERATORS)
def operator(writer: Writer, op: Op) -> None:
    syntax = OPERATORS[type(op)].syntax()
    first, *rest = writer.take(op.operands)
    if isinstance(syntax, ast.unaryop):
        writer.push(op, ast.UnaryOp(syntax, first))
    elif isinstance(syntax, ast.cmpop):
        writer.push(op, ast.Compare(first, [syntax], rest))
    else:
        writer.push(op, ast.BinOp(first, syntax, *rest))


@writes(py.Attribute)
def attribute(writer: Writer, op: py.Attribute) -> None:
    if begin_augmented(writer, op):
        return
    (value,) = writer.take(op.operands)
    writer.push(op, ast.Attribute(value, op.name, ast.Load()))


@writes(py.Subscript)
def subscript(writer: Writer, op: py.Subscript) -> None:
    if begin_augmented(writer, op):
        return
    value, index = writer.take(op.operands)
    writer.push(op, ast.Subscript(value, new_axes(op) or index, ast.Load()))


def new_axes(op: py.Subscript) -> ast.expr | None:
    """The index of a tensor in a kernel, of `:` and `None`; None for another index."""
    axes = op.index.op.value if isinstance(op.index.op, core.ConstantOp) else None
    if not isinstance(axes, tuple) or not axes or not set(axes) <= {":", "None"}:  # pyright: ignore[reportUnknownArgumentType]
        return None
    nodes: list[ast.expr] = [ast.Slice() if axis == ":" else ast.Constant(None) for axis in axes]  # pyright: ignore[reportUnknownVariableType]
    return nodes[0] if len(nodes) == 1 else ast.Tuple(nodes, ast.Load())


@writes(objects.Slice)
def slice_(writer: Writer, op: objects.Slice) -> None:
    writer.push(op, slice_of(writer.take(op.ends)))


def slice_of(ends: Sequence[ast.expr]) -> ast.Slice:
    lower, upper, *step = [None if isinstance(end, ast.Constant) and end.value is None else end for end in ends]
    return ast.Slice(lower, upper, ends[2] if step else None)


def starred(nodes: Sequence[ast.expr], indices: Sequence[int]) -> list[ast.expr]:
    return [ast.Starred(node, ast.Load()) if index in indices else node for index, node in enumerate(nodes)]


@writes(py.Pack, objects.Tuple)
def pack(writer: Writer, op: Any) -> None:
    indices = op.starred if isinstance(op, objects.Tuple) else ()
    writer.push(op, ast.Tuple(starred(writer.take(op.operands), indices), ast.Load()))


@writes(objects.List)
def list_(writer: Writer, op: objects.List) -> None:
    writer.push(op, ast.List(starred(writer.take(op.items), op.starred), ast.Load()))


@writes(objects.Set)
def set_(writer: Writer, op: objects.Set) -> None:
    writer.push(op, ast.Set(starred(writer.take(op.items), op.starred)))


@writes(objects.Dict)
def dict_(writer: Writer, op: objects.Dict) -> None:
    nodes = iter(enumerate(writer.take(op.entries)))
    keys: list[ast.expr | None] = []
    values: list[ast.expr] = []
    for index, node in nodes:
        is_merged = index in op.merged
        keys.append(None if is_merged else node)
        values.append(node if is_merged else next(nodes)[1])
    writer.push(op, ast.Dict(keys, values))


@writes(py.Format)
def formatted(writer: Writer, op: py.Format) -> None:
    writer.push(op, ast.JoinedStr(list(_parts(op.template, writer.take(op.values), ast.FormattedValue))))


@writes(objects.Template)
def template(writer: Writer, op: objects.Template) -> None:
    if not hasattr(ast, "TemplateStr"):
        raise TargetError("Python before 3.14 has no template strings", op.location)
    texts = iter(op.expressions)

    def interpolation(node: ast.expr, conversion: int, specification: ast.expr | None) -> ast.expr:
        text, new = next(texts, ""), ast.unparse(node)
        is_same = text.isascii() and new == _unparsed(text)  # A transform may have put another value there.
        return ast.Interpolation(node, text if is_same else new, conversion, specification)  # type: ignore[attr-defined]

    parts = list(_parts(op.template, writer.take(op.values), interpolation))
    writer.push(op, ast.TemplateStr(parts))  # type: ignore[attr-defined]


def _unparsed(text: str) -> str:
    try:
        return ast.unparse(ast.parse(f"({text})", mode="eval"))
    except (SyntaxError, ValueError):
        return ""


def _parts(template: str, nodes: Sequence[ast.expr], make: Callable[..., ast.expr]) -> Iterator[ast.expr]:
    """The parts of an f-string or a template string. `make` gets a value, its conversion, and its specification."""
    text = ""
    for literal, field, specification, conversion in string.Formatter().parse(template):
        text += literal  # A brace ends a literal of the formatter, but none of Python's.
        if field is not None:
            if text:
                yield ast.Constant(text)
            text = ""
            parts = list(_parts(specification, nodes, ast.FormattedValue)) if specification else []
            yield make(
                nodes[int(field)], ord(conversion) if conversion else -1, ast.JoinedStr(parts) if parts else None
            )
    if text:
        yield ast.Constant(text)


@writes(py.Invoke)
def invoke(writer: Writer, op: py.Invoke) -> None:
    nodes = writer.take(op.arguments)
    callee = op.callee
    if callee == "builtins.slice":
        writer.push(op, slice_of(nodes))
    elif callee[0] == ".":
        function: ast.expr = ast.Attribute(nodes[0], callee[1:], ast.Load())
        starred_others = [index - 1 for index in op.starred]
        writer.push(op, call(function, nodes[1:], op.keywords, starred_others))
    else:
        function = named(writer, callee.removeprefix("builtins."))
        writer.push(op, call(function, nodes, op.keywords, op.starred))


@writes(py.Call)
def call_value(writer: Writer, op: py.Call) -> None:
    from ziggurat.backend.python.definitions import decorate

    if not decorate(writer, op):
        callee, *nodes = writer.take(op.operands)
        writer.push(op, call(callee, nodes, op.keywords, op.starred))


@writes(core.FuncCall)
def call_function(writer: Writer, op: core.FuncCall) -> None:
    writer.push(op, call(named(writer, op.callee), writer.take(op.arguments), op.keywords, ()))


def call(function: ast.expr, nodes: Sequence[ast.expr], keywords: Sequence[str], indices: Sequence[int]) -> ast.Call:
    """A call of a function with these arguments, the last of which are named."""
    count = len(nodes) - len(keywords)
    named_nodes = zip(keywords, nodes[count:], strict=True)
    return ast.Call(
        function,
        starred(nodes[:count], indices),
        [ast.keyword(None if text == "**" else text, node) for text, node in named_nodes],
    )


# Expressions whose parts may not be computed.


@writes(py.CondAnd, py.CondOr)
def conditional(writer: Writer, op: py.CondAnd | py.CondOr) -> None:
    parts = [writer.part(body) for body in op.parts]
    is_and = isinstance(op, py.CondAnd)
    if not any(part.statements for part in parts):
        nodes = [part.result for part in parts]
        writer.push(op, ast.BoolOp(ast.And() if is_and else ast.Or(), nodes))  # pyright: ignore[reportArgumentType]
        return
    variable = writer.names.fresh()

    def chain(index: int) -> list[ast.stmt]:
        part = parts[index]
        assert part.result is not None
        statements = [*part.statements, ast.Assign([ast.Name(variable, ast.Store())], part.result)]
        if index + 1 < len(parts):
            test = name(variable) if is_and else ast.UnaryOp(ast.Not(), name(variable))
            statements.append(ast.If(test, chain(index + 1), []))
        return statements

    in_statements(writer, op, variable, lambda: chain(0))


@writes(py.CondExpression)
def choice(writer: Writer, op: py.CondExpression) -> None:
    then, otherwise = writer.part(op.then), writer.part(op.otherwise)
    if not then.statements and not otherwise.statements:
        assert then.result is not None and otherwise.result is not None
        (condition,) = writer.take(op.operands)
        writer.push(op, ast.IfExp(condition, then.result, otherwise.result))
        return
    variable = writer.names.fresh()

    def suite(part: Writer) -> list[ast.stmt]:
        assert part.result is not None
        return [*part.statements, ast.Assign([ast.Name(variable, ast.Store())], part.result)]

    (condition,) = writer.take(op.operands)
    in_statements(writer, op, variable, lambda: [ast.If(condition, suite(then), suite(otherwise))])


def in_statements(writer: Writer, op: Op, variable: str, make: Callable[[], list[ast.stmt]]) -> None:
    """Compute the value of an expression by statements, which give it to a variable."""
    for statement in make():
        writer.emit(statement, op)
    writer.values[op.result] = name(variable)


@writes(objects.Chain)
def chain(writer: Writer, op: objects.Chain) -> None:
    parts = [writer.part(body) for body in op.others]
    operators: list[ast.cmpop] = [BY_SIGN[text].syntax() for text in op.operators]
    left, right = writer.take(op.operands)
    if not any(part.statements for part in parts):
        writer.push(op, ast.Compare(left, operators, [right, *(part.result for part in parts)]))  # pyright: ignore[reportArgumentType]
        return
    variable, last = writer.names.fresh(), writer.names.fresh()

    def store(text: str, node: ast.expr) -> ast.stmt:
        return ast.Assign([ast.Name(text, ast.Store())], node)

    def following(index: int) -> list[ast.stmt]:
        if index == len(parts):
            return []
        part, after = parts[index], writer.names.fresh()
        assert part.result is not None
        nonlocal last
        test = ast.Compare(name(last), [operators[index + 1]], [name(after)])
        last = after
        inner = [*part.statements, store(after, part.result), store(variable, test), *following(index + 1)]
        return [ast.If(name(variable), inner, [])]

    first = [store(variable, left), store(last, right)]
    first.append(store(variable, ast.Compare(name(variable), [operators[0]], [name(last)])))
    in_statements(writer, op, variable, lambda: [*first, *following(0)])


# Generators and coroutines.


@writes(suites.YieldValue)
def yield_value(writer: Writer, op: suites.YieldValue) -> None:
    nodes = writer.take(op.operands)
    writer.push(op, ast.Yield(nodes[0] if nodes else None))


@writes(suites.YieldFrom)
def yield_from(writer: Writer, op: suites.YieldFrom) -> None:
    writer.push(op, ast.YieldFrom(writer.take(op.operands)[0]))


@writes(suites.Await)
def await_(writer: Writer, op: suites.Await) -> None:
    writer.push(op, ast.Await(writer.take(op.operands)[0]))
