"""Functions, classes and comprehensions of a model in Python's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.python.expressions import call
from ziggurat.backend.python.names import FunctionNames
from ziggurat.backend.python.suites import Item
from ziggurat.backend.python.writer import Entry, Writer, name, writes
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Body, Op
from ziggurat.codemodel.python_parameters import written_names
from ziggurat.codemodel.python_texts import expression_of, statement_of


class Definition(Entry):
    """A function or a class, with its decorators, that waits for the assignment to its name."""

    def __init__(self, op: Op, statement: Any) -> None:
        super().__init__(op.result, None, len(op.result.uses), op)
        self.statement = statement

    def expression(self) -> None:
        return None

    def finish(self, writer: Writer) -> None:
        place, *others = self.targets or [name(self.statement.name)]
        if isinstance(place, ast.Name) and not others and _same_name(place.id, self.statement.name):
            self.statement.name = place.id if writer.owner is None else self.statement.name
            writer.emit(self.statement, self.op)
        else:
            self.spill(writer)

    def spill(self, writer: Writer) -> None:
        text = self.statement.name = writer.names.fresh(self.statement.name.strip("<>"))
        writer.names.function().bound.add(text)
        writer.values[self.value] = name(text)
        writer.emit(self.statement, self.op)
        if self.targets:
            writer.emit(ast.Assign(self.targets, name(text)), self.op)


def _same_name(target_name: str, own_name: str) -> bool:
    if target_name == own_name:
        return True
    return target_name.endswith(own_name) and own_name.startswith("__") and target_name[0] == "_"


def decorate(writer: Writer, op: py.Call) -> bool:
    """Make a call of a decorator, of which the argument is the definition on top of the stack, a part of that."""
    if len(op.arguments) != 1 or op.keywords or op.starred or len(writer.stack) < 2:
        return False
    below, entry = writer.stack[-2:]
    if not isinstance(entry, Definition) or entry.value is not op.arguments[0] or entry.uses != 1 or entry.targets:
        return False
    node = below.expression()
    if below.value is not op.callee or below.uses != 1 or node is None:
        return False
    writer.pop()
    writer.pop()
    entry.statement.decorator_list.insert(0, node)
    entry.value, entry.uses = op.result, len(op.result.uses)
    writer.push_entry(entry)
    return True


@writes(suites.Define)
def define(writer: Writer, op: suites.Define) -> None:
    names = FunctionNames(op.suite, writer.names)
    parts = function_parts(op.suite, names, writer, op.kind, op.parameters)
    values = writer.take(op.values)
    defaults = sum(text.endswith("=") for text in op.parameters)
    notes = iter(values[defaults:])
    if op.late:
        notes = (expression_of(str(getattr(node, "value", "")), op, "an annotation") for node in notes)
    default_nodes = iter(values[:defaults])
    arguments, returns = arguments_of(op.parameters, parts.parameters, default_nodes, notes)
    if op.kind == "lambda" and parts.value is not None:
        writer.push(op, ast.Lambda(arguments, parts.value))
        return
    statement = definition(op.name, arguments, parts.statements, returns, op.kind)
    statement.type_params = type_parameters(op)
    writer.push_entry(Definition(op, writer.located(statement, op)))
    if not op.result.uses:
        writer.flush()


def definition(
    text: str, arguments: ast.arguments, statements: list[ast.stmt], returns: ast.expr | None, kind: str
) -> Any:
    """The definition of a function."""
    cls: Any = ast.AsyncFunctionDef if kind.startswith("async") else ast.FunctionDef
    statement = cls(text, arguments, statements, [], returns)
    statement.type_params = []
    return statement


def type_parameters(op: suites.Define | suites.Class) -> list[Any]:
    """The type parameters of a function or a class."""
    text = op.type_parameters
    return statement_of(f"class _[{text}]: pass", op, "type parameters", text).type_params if text else []


class FunctionParts:
    """The names of a function's parameters, its statements, and the one value that it returns, if it does no more."""

    def __init__(self, parameters: list[str], statements: list[ast.stmt]) -> None:
        self.parameters, self.statements = parameters, statements
        self.value: ast.expr | None = None
        if len(statements) == 1 and isinstance(statements[0], ast.Return):
            self.value = statements[0].value or ast.Constant(None)


def function_parts(
    body: Body, names: FunctionNames, around: Writer | None, kind: str, texts: Sequence[str] = ()
) -> FunctionParts:
    """The parameters and the statements of a function, with the declarations that its names need. `texts` are its
    parameters as they are written."""
    own_names = written_names(texts) or [""] * len(body.parameters)
    variables = {op.initial: op.result for op in body.entry.ops if isinstance(op, core.Var) and op.initial is not None}
    inner = Writer(names, around)
    parameters: list[str] = []
    for parameter, own_name in zip(body.parameters, own_names, strict=True):
        variable = variables.get(parameter)
        text = names.parameter(own_name) if variable is None else names.of(variable)
        names.bound.add(text)
        parameters.append(text)
        inner.values[parameter] = name(text)
    inner.run(body)
    statements = inner.statements
    last = body.entry.terminator
    if statements and isinstance(last, core.Return) and not last.values:
        statements.pop()
    is_generator = kind in ("generator", "async generator")
    if is_generator and not any(_yields(statement) for statement in statements):
        statements.append(ast.If(ast.Constant(False), [ast.Expr(ast.Yield(None))], []))
    return FunctionParts(parameters, _declared(names, statements) or [ast.Pass()])


def _declared(names: FunctionNames, statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements after those that declare names: of the module, of functions around, and local ones without
    an assignment."""
    declarations: list[ast.stmt] = []
    for variable, text in names.names.items():
        if text not in names.bound and variable.uses:
            declarations.append(ast.AnnAssign(ast.Name(text, ast.Store()), ast.Constant(None), None, 1))
    if names.from_around:
        declarations.append(ast.Nonlocal(sorted(names.from_around)))
    if names.from_module:
        declarations.append(ast.Global(sorted(names.from_module)))
    first = statements[:1]
    is_documented = bool(first) and isinstance(first[0], ast.Expr) and isinstance(first[0].value, ast.Constant)
    return [*first, *declarations, *statements[1:]] if is_documented else [*declarations, *statements]


def _yields(node: ast.AST) -> bool:
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return True
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    return not isinstance(node, inner) and any(map(_yields, ast.iter_child_nodes(node)))


def arguments_of(
    texts: Sequence[str], names: Sequence[str], defaults: Any, notes: Any
) -> tuple[ast.arguments, ast.expr | None]:
    """The parameters of a function inside of another, written as in `function`, with these names."""
    arguments = ast.arguments([], [], None, [], [], None, [])
    returns: ast.expr | None = None
    following = iter(names)
    place = arguments.args
    for text in texts or names:
        if text == "->":
            returns = next(notes)
        elif text == "/":
            arguments.posonlyargs, arguments.args = arguments.args, []
            place = arguments.args
        elif text == "*":
            place = arguments.kwonlyargs
        else:
            note = next(notes) if text.rstrip("=").endswith(":") else None
            parameter = ast.arg(next(following), note)
            if text.startswith("**"):
                arguments.kwarg = parameter
            elif text.startswith("*"):
                arguments.vararg, place = parameter, arguments.kwonlyargs
            else:
                default = next(defaults) if text.endswith("=") else None
                place.append(parameter)
                if place is arguments.kwonlyargs:
                    arguments.kw_defaults.append(default)
                elif default is not None:
                    arguments.defaults.append(default)
    return arguments, returns


@writes(suites.Class)
def class_(writer: Writer, op: suites.Class) -> None:
    names = FunctionNames(op.suite, writer.names)
    names.is_class = True
    inner = Writer(names, writer)
    inner.owner = op.name
    statements = _declared(names, inner.run(op.suite).statements) or [ast.Pass()]
    arguments = call(name(op.name), writer.take(op.arguments), op.keywords, op.starred)
    statement: Any = ast.ClassDef(op.name, arguments.args, arguments.keywords, statements, [])
    statement.type_params = type_parameters(op)
    writer.push_entry(Definition(op, writer.located(statement, op)))
    if not op.result.uses:
        writer.flush()


# Comprehensions.


class _Element(ast.Expr):
    """The statement in a comprehension's suite that gives an element."""

    def __init__(self, nodes: list[ast.expr]) -> None:
        super().__init__(nodes[0])
        self.nodes = nodes


@writes(suites.Element)
def element(writer: Writer, op: suites.Element) -> None:
    writer.emit(_Element(writer.take(op.values)), op)


@writes(suites.Collect)
def collect(writer: Writer, op: suites.Collect) -> None:
    names = FunctionNames(op.suite, writer.names)
    names.comprehension_of = writer.names
    inner = Writer(names, writer)
    item = Item(op.suite, op)
    if item.uses:
        inner.push_entry(item)
    statements = inner.run(op.suite).statements
    (iterable,) = writer.take(op.operands)
    first = ast.comprehension(item.as_target(inner), iterable, [], int(op.is_async))
    generators = [first]
    nodes = _generators(statements, generators)
    if nodes is None:
        raise TargetError("a comprehension has statements in this model, which Python's has not", op.location)
    if op.kind == "dict":
        writer.push(op, ast.DictComp(nodes[0], nodes[1], generators))
    else:
        cls: Any = {"list": ast.ListComp, "set": ast.SetComp}.get(op.kind, ast.GeneratorExp)
        writer.push(op, cls(nodes[0], generators))


def _generators(statements: list[ast.stmt], generators: list[ast.comprehension]) -> list[ast.expr] | None:
    """The nodes of the element, after the `for`s and `if`s that are its only statements; None where it has others."""
    if len(statements) != 1:
        return None
    (statement,) = statements
    match statement:
        case _Element():
            return statement.nodes
        case ast.If(test=test, body=body, orelse=[]):
            generators[-1].ifs.append(test)
            return _generators(body, generators)
        case ast.For(target=place, iter=iterable, body=body, orelse=[]):
            generators.append(ast.comprehension(place, iterable, [], 0))
            return _generators(body, generators)
        case ast.AsyncFor(target=place, iter=iterable, body=body, orelse=[]):
            generators.append(ast.comprehension(place, iterable, [], 1))
            return _generators(body, generators)
        case _:
            return None


@writes(py.Comprehension)
def comprehension(writer: Writer, op: py.Comprehension) -> None:
    """The comprehension of a kernel, whose condition and element take the item each."""
    iterable = writer.expression(op.iterable, "the head of a comprehension")
    (target, condition), (other, element) = (_of_item(writer, op, body) for body in (op.condition, op.element))
    if ast.dump(target) != ast.dump(other) and op.condition.parameters[0].uses:
        raise TargetError("the variables of a comprehension have two names in this model", op.location)
    always = isinstance(condition, ast.Constant) and condition.value is True
    generator = ast.comprehension(other, iterable, [] if always else [condition], 0)
    writer.push(op, ast.ListComp(element, [generator]))


def _of_item(writer: Writer, op: Op, body: Body) -> tuple[ast.expr, ast.expr]:
    """The target that takes an item, and the expression of it."""
    names = FunctionNames(body, writer.names)
    names.comprehension_of = writer.names
    inner = Writer(names, writer)
    item = Item(body, op)
    if item.uses:
        inner.push_entry(item)
    inner.run(body)
    if inner.statements or inner.result is None:
        raise TargetError("a comprehension has statements in this model, which Python's has not", op.location)
    return item.as_target(inner), inner.result
