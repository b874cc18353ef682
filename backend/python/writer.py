"""From the ops of a body to statements of Python's syntax tree.

An op's value is used once and at once, as a rule, so ops are read as by a stack machine: an op with a value pushes an
expression, one that takes values pops theirs. The order of the expressions on the stack is the order in which Python
computes them. Where the values that an op takes are not on top, or one is used again, the expressions on the stack are
assigned to variables first, in their order (`flush`); so a transformed model is written as well.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.backend.python.names import FunctionNames
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import Constant, Routine, Symbol

WRITERS = OpTable[Callable[["Writer", Any], None]]("form in Python's source")
writes = WRITERS.of

# Makes the node of a target from the nodes of the values that it needs.
MakeTarget = Callable[[list[ast.expr]], ast.expr]


def name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def dotted(text: str) -> ast.expr:
    """A name, or an attribute of one, from its text."""
    first, *others = text.split(".")
    node: ast.expr = name(first)
    for other in others:
        node = ast.Attribute(node, other, ast.Load())
    return node


def target(node: ast.expr) -> ast.expr:
    """The node as one that is assigned to."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Tuple | ast.Starred):
        node.ctx = ast.Store()
    return node


class Entry:
    """An expression on the stack. `uses` counts the ops that have still to take it; `targets` are assigned already."""

    def __init__(self, value: Value, node: ast.expr | None, uses: int, op: Op) -> None:
        self.value, self.node, self.uses, self.op = value, node, uses, op
        self.targets: list[ast.expr] = []
        # The target of an augmented assignment, which waits for the op that stores to it.
        self.place: ast.expr | None = None

    def expression(self) -> ast.expr | None:
        """The expression for the one op that takes it; None where it cannot be one."""
        node = self.node
        for item in self.targets:
            if node is None or not isinstance(item, ast.Name):
                return None
            node = ast.NamedExpr(item, node)
        return node

    def finish(self, writer: Writer) -> None:
        """Write the statement of an expression all of whose uses are assignments."""
        assert self.node is not None
        writer.emit(ast.Assign(self.targets, self.node) if self.targets else ast.Expr(self.node), self.op)

    def spill(self, writer: Writer) -> None:
        """Write the statement that computes the expression now, and let later uses read a variable."""
        if self.uses == 0:
            self.finish(writer)
            return
        if not self.targets and (isinstance(self.node, ast.Constant) or is_steady(self.op)):
            assert self.node is not None
            writer.values[self.value] = self.node
            return
        temporary = writer.temporary(self.value)
        assert self.node is not None
        writer.emit(ast.Assign([*self.targets, target(temporary)], self.node), self.op)

    def resolve(self, writer: Writer) -> None:
        """Settle what waits to become a part of an entry below."""


class Writer:
    """Writes the ops of one body. `around` writes the body that the op stands in."""

    def __init__(self, names: FunctionNames, around: Writer | None = None) -> None:
        self.names = names
        self.around = around
        self.statements: list[ast.stmt] = []
        self.stack: list[Entry] = []
        self.pending: dict[Value, Entry] = {}
        self.values: dict[Value, ast.expr] = {}
        self.spreads: dict[Value, Any] = {}
        self.result: ast.expr | None = None
        self.op: Op | None = None
        # The class whose suite this is.
        self.owner: str | None = None

    # Bodies.

    def run(self, body: Body) -> Writer:
        """Write the ops of a body."""
        if len(body.blocks) != 1:
            raise TargetError("a body of several blocks has no form in Python's source", body.entry.ops[0].location)
        for op in body.entry.ops:
            self.op = op
            write = WRITERS.get(type(op))
            if write is None:
                raise TargetError(f"'{op.NAME}' has no form in Python's source", op.location)
            write(self, op)
        self.flush()
        return self

    def nested(self) -> Writer:
        return Writer(self.names, self)

    def suite(self, body: Body, *before: Entry) -> list[ast.stmt]:
        """The statements of a body; `before` are expressions for its parameters. At least `pass`."""
        return self.statements_of(body, *before) or [ast.Pass()]

    def statements_of(self, body: Body, *before: Entry) -> list[ast.stmt]:
        inner = self.nested()
        for entry in before:
            inner.push_entry(entry)
        return inner.run(body).statements

    def part(self, body: Body) -> Writer:
        """The writer of a body that gives a value, after it has run. `result` is the value."""
        return self.nested().run(body)

    def expression(self, body: Body, what: str) -> ast.expr:
        """A body as an expression. Raises `TargetError` where it has statements."""
        inner = self.part(body)
        if inner.statements or inner.result is None:
            raise TargetError(
                f"{what} has statements in this model, which Python's has not", body.entry.ops[0].location
            )
        return inner.result

    # The stack.

    def uses(self, value: Value) -> int:
        return len(value.uses)

    def push(self, op: Op, node: ast.expr) -> None:
        """Put the expression of an op's value on the stack; one that is not used is a statement."""
        self.located(node, op)
        entry = Entry(op.result, node, self.uses(op.result), op)
        if entry.uses == 0:
            if self.stack and (isinstance(op, Constant) or is_steady(op)):
                return  # A transform has left it over: as a statement it would only break up an expression.
            self.emit(ast.Expr(node), op)
        else:
            self.push_entry(entry)

    def push_entry(self, entry: Entry) -> None:
        self.stack.append(entry)
        self.pending[entry.value] = entry

    def pop(self) -> Entry:
        entry = self.stack[-1]
        self.drop(entry)
        return entry

    def drop(self, entry: Entry) -> None:
        """Take an entry off the stack, wherever it is."""
        self.stack.remove(entry)
        if self.pending.get(entry.value) is entry:
            del self.pending[entry.value]

    def take(self, values: Sequence[Value]) -> list[ast.expr]:
        """The expressions of the values that an op takes, in order."""
        nodes = self.top(values)
        if nodes is None:
            self.flush()
            nodes = [self.read(value) for value in values]
        return nodes

    def top(self, values: Sequence[Value], again: Value | None = None) -> list[ast.expr] | None:
        """The expressions of these values, if those on the stack are on its top in this order; they are popped.

        A value must not be used again, but for `again`, of which the top of the stack has the expression already.
        """
        on_stack = [value for value in values if value in self.pending]
        if not on_stack:
            return [self.read(value) for value in values]
        entries = self.stack[-len(on_stack) :]
        if [entry.value for entry in entries] != on_stack:
            return None
        if any(entry.uses != 1 and entry.value is not again for entry in entries):
            return None
        nodes = [entry.expression() for entry in entries]
        if any(node is None for node in nodes):
            return None
        for _ in entries:
            self.pop()
        by_value = dict(zip(on_stack, nodes, strict=True))
        return [by_value.get(value) or self.read(value) for value in values]

    def flush(self) -> None:
        """Compute all expressions on the stack now, in their order."""
        if not self.stack:
            return
        for entry in reversed(list(self.stack)):
            entry.resolve(self)
        entries, self.stack = self.stack, []
        self.pending.clear()
        for entry in entries:
            entry.spill(self)

    def temporary(self, value: Value) -> ast.Name:
        """A variable that later uses of a value read."""
        text = self.names.fresh()
        self.values[value] = name(text)
        return name(text)

    def read(self, value: Value) -> ast.expr:
        """The expression by which a value that was computed before is read."""
        writer: Writer | None = self
        while writer is not None:
            if value in writer.pending:
                writer.flush()
            node = writer.values.get(value)
            if node is not None:
                return copy.deepcopy(node)
            writer = writer.around
        raise TargetError(f"{value!r} has no form in Python's source", self.op.location if self.op else None)

    # Statements.

    def emit(self, statement: ast.stmt, op: Op) -> None:
        """Write a statement, after what is on the stack."""
        self.flush()
        self.statements.append(self.located(statement, op))

    def located(self, node: Any, op: Op) -> Any:
        """Give a node the place of an op."""
        place = op.location
        if place is not None and "lineno" not in node.__dict__:
            node.lineno, node.col_offset = place.line, place.column
            node.end_lineno, node.end_col_offset = place.end_line or place.line, place.end_column
        return node

    def assign(self, op: Op, value: Value, make: MakeTarget, others: Sequence[Value] = ()) -> None:
        """Assign a value to the target that `make` makes from the values `others`, which are computed after it."""
        entry = self.pending.get(value)
        if entry is not None and entry.place is not None and self.stack[-1] is entry:
            self.add_target(entry, entry.place, op)
            return
        below = sum(other in self.pending for other in others) + 1
        if entry is not None and len(self.stack) >= below and self.stack[-below] is entry:
            nodes = self.top(others)
            if nodes is not None and self.stack[-1] is entry:
                self.add_target(entry, self.located(target(make(nodes)), op), op)
                return
        self.flush()
        place = self.located(target(make([self.read(other) for other in others])), op)
        self.emit(ast.Assign([place], self.read(value)), op)

    def add_target(self, entry: Entry, place: ast.expr, op: Op) -> None:
        """Add a target to an expression on top of the stack."""
        entry.targets.append(place)
        entry.uses -= 1
        if entry.uses <= 0:
            self.pop()
            entry.op = op
            entry.finish(self)


def is_steady(op: Op) -> bool:
    """Whether an op loads a variable that has the same value at all uses of the load: they may read it again.

    As a block runs through from the load to its uses, only what stands between them may store to the variable.
    """
    if not isinstance(op, core.VarLoad) or not isinstance(op.var.op, core.Var) or op.parent is None:
        return False
    stores = [user for user in op.var.uses if not isinstance(user, core.VarLoad)]
    if not stores:
        return op.var.op.initial is not None
    places = {id(inner): index for index, inner in enumerate(op.parent.ops)}
    first, last = places[id(op)], max((_place(user, places) for user in op.result.uses), default=-1)
    before = [store for store in stores if isinstance(store, core.VarStore) and places.get(id(store), first) < first]
    if op.var.op.initial is None and not before:
        return False  # It may have no value: the load may raise an error.
    for store in stores:
        place = _place(store, places)
        if not isinstance(store, core.VarStore) or _function(store) is not _function(op):
            return False
        if first < place and (place < last or (place == last and id(store) not in places)):
            return False
    return True


def _place(op: Op, places: dict[int, int]) -> int:
    """The index in a block of the op that an op stands in; -1 for one that stands elsewhere."""
    return next((places[id(around)] for around in op.path() if id(around) in places), -1)


def _function(op: Op) -> Op | None:
    """The function that an op stands in."""
    return next((around for around in op.path() if isinstance(around, Routine | Symbol) and around is not op), None)


def variable_target(writer: Writer, variable: Value) -> MakeTarget:
    """The target of a variable."""
    text = writer.names.stored(variable)
    return lambda _: name(text)


@writes(core.Yield)
def yielded(writer: Writer, op: core.Yield) -> None:
    if op.values:
        (writer.result,) = writer.take(op.values)
