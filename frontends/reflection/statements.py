"""Statements as ops. Reading goes on after an error, so that all errors of a function are found."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import BuildError, KernelErrors, KernelTypeError, ZigguratError, source_order
from ziggurat.codemodel.op import Body, Value
from ziggurat.codemodel.types import VarType, constexpr_type, pyobject
from ziggurat.frontends.language.aggregates import PartialObject, annotations_of
from ziggurat.frontends.language.languages import Spelling
from ziggurat.frontends.language.programs import HINTS
from ziggurat.frontends.language.signature import Call
from ziggurat.frontends.python.source import Source
from ziggurat.frontends.reflection.annotations import annotated_type
from ziggurat.frontends.reflection.expressions import Expressions, OuterObjects
from ziggurat.frontends.reflection.names import Names
from ziggurat.frontends.reflection.scopes import Declaration, assigned_names, constant_names, declarations, returns

_VARIABLE = VarType(pyobject)
_CONSTANT = VarType(constexpr_type)


class Statements(Expressions):
    """Reflects statements at the place of `builder`."""

    def __init__(self, names: Names, source: Source, builder: Builder, outer: OuterObjects) -> None:
        super().__init__(names, source, builder, outer)
        self.loops = 0
        # The name of the object that an `__init__` makes.
        self.object: str | None = None
        self.cls: type[Any] | None = None
        self.declarations: dict[ast.stmt, list[Declaration]] = {}
        # The variables that are annotated as constants, in a language where others hold run-time values.
        self.constants: set[str] = set()
        # The parameters that are constants.
        self.fixed: set[str] = set()

    def function_body(self, parameters: Sequence[ast.arg], cls: type[Any] | None = None) -> Body:
        """The body of the function. The builder has a value for each parameter. An `__init__` makes an object of
        the class `cls`, its first parameter.

        Raises the error of the function, or `KernelErrors` for several. Errors in branches, which may never run, become
        ops of the body, unless there are errors outside of branches as well.
        """
        node = self.source.node
        self.declarations = declarations(node.body, {p.arg for p in parameters}, self.names.locals)
        if self.language.run_time_numbers:
            self.constants = set(constant_names(node.body))
        for parameter, value in zip(parameters, self.builder.parameters, strict=True):
            self.declare(parameter.arg, parameter, value)
            if value.type == constexpr_type:
                self.fixed.add(parameter.arg)
        self.cls = cls
        fields = () if cls is None else tuple(annotations_of(cls))
        if cls is not None:
            self.object = node.args.args[0].arg
            # Fields that are annotated as constants are constants; so is what is not assigned a number.
            self.constants |= {f"{self.object}.{field}" for field in fields}
        self.suite(node.body)
        if cls is not None and not self.errors and not self.is_refused and not self.builder.terminated:
            self.made_object(fields, node)
        if not self.builder.terminated:
            self.add(core.Return(()), node)
        if self.errors:
            error = KernelErrors.of(sorted([*self.errors, *self.deferred], key=source_order))
            error.plain = tuple(self.plain)
            raise error
        return self.builder.finish()

    def suite(self, statements: Sequence[ast.stmt]) -> None:
        """The statements of a suite, in the current body."""
        last = statements[-1] if statements else None
        for index, statement in enumerate(statements):
            if statement is not last and isinstance(statement, ast.Break | ast.Continue):
                after = statements[index + 1]
                self.report(self.unsupported(after, "after break"), after)
            for declaration in self.declarations.get(statement, ()):
                if not declaration.by_assignment:
                    self.declare(declaration.name, declaration.node)
            try:
                self.visit(statement)
            except BuildError:
                raise
            except ZigguratError as error:
                self.spoil(statement, self.report(error, statement))
            if self.builder.terminated:
                return

    def spoil(self, node: ast.AST, value: Value) -> None:
        """Give `value`, which is in error, to the variables and the returns that `node` should have given a value."""
        for name, at in assigned_names(node):
            self.give(name, value, at)
        if self.choices and not self.loops and returns(node):
            self.add(core.Return((value,)), node)

    def nested_suite(self, node: ast.stmt, statements: Sequence[ast.stmt]) -> Body:
        """A body with the statements of a suite of `node` that may never run."""
        self.choices += 1
        body = self.body(node, lambda: self.suite(statements))
        self.choices -= 1
        return body

    # Assignments.

    def declare(self, name: str, node: ast.AST, value: Value | None = None) -> None:
        type_ = _CONSTANT if name in self.constants else _VARIABLE
        self.variables[name] = self.add(core.Var(value, name=name, type=type_), node)

    def give(self, name: str, value: Value, node: ast.AST) -> None:
        """Store `value` in a variable, which is declared if it is new."""
        variable = self.variables.get(name)
        if variable is None:
            self.declare(name, node, value)
        else:
            self.add(core.VarStore(variable, value), node)

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        """Give `value` to a target. The store models `node`."""
        match target:
            case ast.Name(id=name):
                self.give(name, value, node)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for item in targets:
                    if isinstance(item, ast.Starred):
                        raise self.unsupported(item, "starred target")
                for index, item in enumerate(targets):
                    part = self.add(py.Unpack(value, index, len(targets)), item)
                    self.assign(item, part, item)
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name == self.object:
                self.assign(ast.copy_location(ast.Name(f"{name}.{field}", ast.Store()), target), value, node)
            case ast.Subscript():
                raise self.unsupported(target, "store subscript")
            case ast.Attribute():
                raise self.unsupported(target, "store attribute")
            case _:
                raise self.unsupported(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        value, note = self.expression(node.value), node.annotation
        if not self.language.launch_annotations:
            text = note.value if isinstance(note, ast.Constant) else ast.unparse(note)
            inner = any(isinstance(part, ast.Name) and part.id in self.names.locals for part in ast.walk(note))
            type_ = None if inner else annotated_type(ast.unparse(node.target), text, note, self.names)
            if type_ not in (constexpr_type, pyobject):
                dtype = self.expression(note) if type_ is None else self.constant(type_, note)
                value = self.add(py.Invoke((value, dtype), "zg.cast"), note)
        self.assign(node.target, value, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if not isinstance(target, ast.Name) and not (isinstance(target, ast.Attribute) and self.is_field(target)):
            form = "store subscript" if isinstance(target, ast.Subscript) else "store attribute"
            raise self.unsupported(target, form)
        op = self.operator(node.op, node)
        current = self.expression(target)
        self.assign(target, self.add(op(current, self.expression(node.value)), node), node)

    # The fields of the object that an `__init__` makes are variables; it returns a tuple of them.

    def is_field(self, node: ast.Attribute) -> bool:
        return isinstance(node.value, ast.Name) and node.value.id == self.object

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        variable = self.variables.get(f"{self.object}.{node.attr}") if self.is_field(node) else None
        return super().visit_Attribute(node) if variable is None else self.add(core.VarLoad(variable), node)

    def visit_Name(self, node: ast.Name) -> Value:
        if self.cls is None or node.id != self.object or node.id in self.variables:
            return super().visit_Name(node)
        fields = [name for name in annotations_of(self.cls) if f"{node.id}.{name}" in self.variables]
        values = [self.add(core.VarLoad(self.variables[f"{node.id}.{name}"]), node) for name in fields]
        target = self.host_object(PartialObject(self.cls, tuple(fields)), node)
        return self.add(py.Call(target, tuple(values)), node)

    def made_object(self, fields: Sequence[str], node: ast.AST) -> None:
        """Return the fields of the object that an `__init__` makes."""
        for field in fields:
            if f"{self.object}.{field}" not in self.variables:
                raise KernelTypeError(
                    f"constructor did not initialize attribute '{field}'",
                    self.source.span(node),
                    f"assign self.{field}",
                )
        values = [self.add(core.VarLoad(self.variables[f"{self.object}.{field}"]), node) for field in fields]
        self.add(core.Return((self.add(py.Pack(tuple(values)), node),)), node)

    # Control flow.

    def visit_For(self, node: ast.For) -> None:
        self.heads = (node.iter,)
        iterable = self.body(node.iter, lambda: self.attempt(node.iter))

        def iteration() -> None:
            try:
                self.assign(node.target, self.builder.parameters[0], node.target)
            except BuildError:
                raise
            except ZigguratError as error:
                self.spoil(node.target, self.report(error, node.target))
            self.suite(node.body)

        self.loops += 1
        suite = self.body(node, iteration, (pyobject,))
        self.loops -= 1
        self.add(py.For(iterable, suite), node)
        if node.orelse:
            if any(py.leaves_iteration(op) for op in suite.entry.ops):
                self.report(self.unsupported(node.orelse[0], "loop else"), node.orelse[0])
            self.suite(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        if node.orelse:
            self.report(self.unsupported(node.orelse[0], "loop else"), node.orelse[0])
        test, statements = node.test, node.body
        if any(isinstance(part, ast.NamedExpr) for part in ast.walk(test)):
            # The body of a condition stores to no variable that outlives it, so `while (x := e): …` is read as
            # `while True: if (x := e): … else: break`, with the statements after the `if`.
            check = ast.copy_location(ast.If(test, [], [ast.copy_location(ast.Break(), test)]), test)
            test, statements = ast.copy_location(ast.Constant(True), test), [check, *statements]
        condition = self.body(test, lambda: self.attempt(test))
        self.loops += 1
        suite = self.nested_suite(node, statements)
        self.loops -= 1
        self.add(py.While(condition, suite), node)

    def visit_If(self, node: ast.If) -> None:
        condition = self.attempt(node.test)
        then = self.nested_suite(node, node.body)
        self.add(py.If(condition, then, self.nested_suite(node, node.orelse)), node)

    def visit_Break(self, node: ast.Break | ast.Continue) -> None:
        """`break` or `continue`. Python itself refuses one outside of a loop."""
        self.add(py.Break() if isinstance(node, ast.Break) else py.Continue(), node)

    visit_Continue = visit_Break

    def visit_Return(self, node: ast.Return) -> None:
        if self.loops:
            raise self.unsupported(node, "return in loop")
        value = node.value
        is_none = isinstance(value, ast.Constant) and value.value is None
        self.add(core.Return(() if value is None or is_none else (self.expression(value),)), node)

    # The rest.

    def visit_Assert(self, node: ast.Assert) -> None:
        condition = self.expression(node.test)
        message = None if node.msg is None else self.expression(node.msg)
        self.add(py.Assert(condition, message), node)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant) and (isinstance(value.value, str) or value.value is ...):
            return  # A docstring, a string used as a comment, or `...` for an empty suite.
        result = self.expression(value)
        variable = self.hint_target(value)
        if variable is not None:
            self.add(core.VarStore(variable, result), node)

    def hint_target(self, node: ast.expr) -> Value | None:
        """The variable of which a statement gives a hint: `tl.multiple_of(x, 16)`."""
        match node:
            case ast.Call(func=callee, args=[ast.Name(id=name), *_]) if name in self.variables:
                target = self.names.static(callee)
                call = target.signature.name if isinstance(target, Call | Spelling) else None
                return self.variables[name] if call in HINTS and name not in self.constants | self.fixed else None
            case _:
                return None
