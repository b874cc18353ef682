"""Functions, classes and comprehensions inside of a function: ops whose suites are scopes of their own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.op import Body, Value
from ziggurat.codemodel.python_parameters import FunctionNode, parameters_of
from ziggurat.codemodel.types import pyobject
from ziggurat.frontends.python.expressions import VARIABLE, Expressions
from ziggurat.frontends.python.scopes import CLASS, COMPREHENSION, FUNCTION, Binds, Scope, binds_of, target_names

_KINDS = {ast.ListComp: "list", ast.SetComp: "set", ast.DictComp: "dict", ast.GeneratorExp: "generator"}
# From this version on Python evaluates annotations when they are asked for.
_LATE_ANNOTATIONS = sys.version_info >= (3, 14)


def kind_of(node: FunctionNode, is_generator: bool) -> str:
    """The kind of a function, as in `function`."""
    if isinstance(node, ast.Lambda):
        return "lambda"
    if isinstance(node, ast.AsyncFunctionDef):
        return "async generator" if is_generator else "async"
    return "generator" if is_generator else "def"


def type_parameters_of(node: Any) -> str:
    """The type parameters of a function, a class or an alias, as written between the brackets."""
    return ", ".join(map(ast.unparse, getattr(node, "type_params", ())))


class Definitions(Expressions):
    """Reads the parts of a function that are scopes of their own."""

    # Whether annotations are texts: `from __future__ import annotations`.
    late_annotations = _LATE_ANNOTATIONS
    # Whether Python evaluates these texts in their scope when it is asked for annotations.
    evaluates_late = _LATE_ANNOTATIONS

    def suite(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements."""
        raise NotImplementedError

    def visit_Lambda(self, node: ast.Lambda) -> Value:
        return self.function(node, "<lambda>")

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        decorators = [self.expression(decorator) for decorator in node.decorator_list]
        value = self.function(node, node.name)
        self.decorated(value, decorators, node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def decorated(self, value: Value, decorators: Sequence[Value], node: Any) -> None:
        """Give what decorators make of a function or a class to its name."""
        for decorator, place in zip(reversed(decorators), reversed(node.decorator_list), strict=True):
            value = self.add(py.Call(decorator, (value,)), place)
        self.store(node.name, value, node)

    def function(self, node: FunctionNode, name: str) -> Value:
        """A function that is made where its definition stands."""
        values: list[Value] = []
        notes: list[Value] = []
        texts: list[str] = []
        defaults = {id(default): self.expression(default) for _, _, default in parameters_of(node) if default}
        for mark, parameter, default in parameters_of(node):
            text = mark if parameter is None else mark + self.scope.renamed(parameter.arg)
            if parameter is not None and parameter.annotation is not None:
                notes.append(self.annotation(parameter.annotation))
                text += ":"
            if default is not None:
                values.append(defaults[id(default)])
                text += "="
            texts.append(text)
        if not isinstance(node, ast.Lambda) and node.returns is not None:
            notes.append(self.annotation(node.returns))
            texts.append("->")
        suite, binds = self.function_suite(node)
        kind = kind_of(node, binds.has_yield)
        define = suites.Define(
            (*values, *notes),
            name,
            suite,
            kind=kind,
            parameters=tuple(texts),
            type_parameters=type_parameters_of(node),
            late=bool(notes) and self.evaluates_late,
        )
        return self.add(define, node)

    def annotation(self, node: ast.expr) -> Value:
        """The value of an annotation, or its text where Python does not evaluate it."""
        return self.constant(ast.unparse(node), node) if self.late_annotations else self.expression(node)

    def function_suite(self, node: FunctionNode) -> tuple[Body, Binds]:
        """The body of a function, and the names that it binds."""
        arguments = [parameter for _, parameter, _ in parameters_of(node) if parameter is not None]
        parts = [node.body] if isinstance(node, ast.Lambda) else node.body
        owner = self.scope.owner
        binds = self.owned(binds_of(parts, [parameter.arg for parameter in arguments]))

        def fill() -> None:
            for parameter, value in zip(arguments, self.builder.parameters, strict=True):
                name = self.scope.renamed(parameter.arg)
                self.scope.variables[name] = self.add(core.Var(value, name=name, type=VARIABLE), parameter)
            if isinstance(node, ast.Lambda):
                self.add(core.Return((self.expression(node.body),)), node.body)
            else:
                self.suite(node.body)
                if not self.builder.terminated:
                    self.add(core.Return(()), node)

        body = self.scoped(FUNCTION, binds, owner, node, fill, (pyobject,) * len(arguments))
        return body, binds

    def owned(self, binds: Binds) -> Binds:
        """The names as Python renames them in the class around."""
        renamed = self.scope.renamed
        if not self.scope.owner:
            return binds
        names = (binds.names, binds.from_module, binds.from_around)
        own, from_module, from_around = ({renamed(name) for name in group} for group in names)
        return Binds(own, from_module, from_around, binds.has_yield)

    def scoped(self, kind: str, binds: Binds, owner: str, node: Any, fill: Any, parameters: Sequence[Any] = ()) -> Body:
        """A body that is a scope of its own."""
        around = self.scope

        def inside() -> Value | None:
            self.scope = Scope(kind, binds, self.builder, around, owner)
            try:
                return fill()
            finally:
                self.scope = around

        return self.body(node, inside, parameters)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        decorators = [self.expression(decorator) for decorator in node.decorator_list]
        arguments, keywords, starred = self.arguments(node.bases, node.keywords)
        owner = node.name.lstrip("_") or self.scope.owner
        around, self.scope = self.scope, Scope(CLASS, Binds(), self.builder, self.scope, owner)
        binds = self.owned(binds_of(node.body))
        self.scope = around
        suite = self.scoped(CLASS, binds, owner, node, lambda: self.suite(node.body))
        text = type_parameters_of(node)
        op = suites.Class(arguments, node.name, suite, keywords=keywords, starred=starred, type_parameters=text)
        value = self.add(op, node)
        self.decorated(value, decorators, node)

    # Comprehensions.

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        first = node.generators[0]
        iterable = self.expression(first.iter)
        binds = self.owned(Binds(target_names(node.generators)))
        body = self.scoped(COMPREHENSION, binds, self.scope.owner, node, lambda: self.generate(node, 0), (pyobject,))
        kind = _KINDS[type(node)]
        return self.add(suites.Collect(iterable, kind, body, is_async=bool(first.is_async)), node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def generate(self, node: Any, index: int) -> None:
        """The conditions of a `for` of a comprehension, and what stands inside of it, for the parameter of the body."""
        generator = node.generators[index]
        self.assign(generator.target, self.builder.parameters[0], generator.target)
        self.filter(node, index, list(generator.ifs))

    def filter(self, node: Any, index: int, conditions: list[ast.expr]) -> None:
        if conditions:
            first, *others = conditions
            value = self.expression(first)
            then = self.body(first, lambda: self.filter(node, index, others))
            self.add(py.If(value, then, self.body(first, lambda: None)), first)
            return
        if index + 1 < len(node.generators):
            following = node.generators[index + 1]
            iterable = self.part(following.iter)
            suite = self.body(node, lambda: self.generate(node, index + 1), (pyobject,))
            self.add(py.For(iterable, suite, is_async=bool(following.is_async)), following.target)
            return
        nodes = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.add(suites.Element(tuple(map(self.expression, nodes))), nodes[0])

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        """Give `value` to a target. The store models `node`."""
        match target:
            case ast.Name(id=name):
                self.store(name, value, node)
            case ast.Attribute(value=owner, attr=name):
                place = self.expression(owner)
                self.add(objects.StoreAttribute(place, value, self.scope.renamed(name)), node)
            case ast.Subscript(value=owner, slice=index):
                place = self.expression(owner)
                self.add(objects.StoreItem(place, self.expression(index), value), node)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                star = next((index for index, item in enumerate(targets) if isinstance(item, ast.Starred)), -1)
                items = self.add(objects.Spread(value, len(targets), star=star), target)
                for index, item in enumerate(targets):
                    part = self.add(py.Unpack(items, index, len(targets)), item)
                    self.assign(item.value if isinstance(item, ast.Starred) else item, part, item)
            case _:
                self.generic_visit(target)
