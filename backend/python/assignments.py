"""Assignments, deletions and imports of a model in Python's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.python.writer import Entry, Writer, name, target, variable_target, writes
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import BlockParameter, Op, Value
from ziggurat.codemodel.python_texts import expression_of, statement_of


@writes(core.Var)
def var(writer: Writer, op: core.Var) -> None:
    if op.initial is not None and not is_parameter(op.initial):
        writer.assign(op, op.initial, variable_target(writer, op.result))


def is_parameter(value: Value) -> bool:
    """True of the argument of a function."""
    if not isinstance(value, BlockParameter):
        return False
    return isinstance(value.owner, core.Func | suites.Define)


@writes(core.VarStore)
def store(writer: Writer, op: core.VarStore) -> None:
    writer.assign(op, op.value, variable_target(writer, op.var))


@writes(objects.StoreOuter)
def store_outer(writer: Writer, op: objects.StoreOuter) -> None:
    writer.names.outer(op.name, is_stored=True)
    writer.assign(op, op.value, lambda _: name(op.name))


@writes(objects.StoreName)
def store_name(writer: Writer, op: objects.StoreName) -> None:
    writer.assign(op, op.value, lambda _: name(op.name))


@writes(objects.StoreAttribute)
def store_attribute(writer: Writer, op: objects.StoreAttribute) -> None:
    writer.assign(op, op.value, lambda nodes: ast.Attribute(nodes[0], op.name, ast.Store()), (op.object,))


@writes(objects.StoreItem)
def store_item(writer: Writer, op: objects.StoreItem) -> None:
    def make(nodes: list[ast.expr]) -> ast.expr:
        return ast.Subscript(nodes[0], nodes[1], ast.Store())

    writer.assign(op, op.value, make, (op.object, op.index))


# Unpacking: `a, b = value`.


class Spread(Entry):
    """The targets of an unpacking, on the stack above the expression that is unpacked."""

    def __init__(self, op: Op, value: Value, of: Value, count: int, star: int, users: Sequence[Op]) -> None:
        super().__init__(value, None, len(users), op)
        self.of, self.star, self.users = of, star, users
        self.slots: list[ast.expr | None] = [None] * count

    def expression(self) -> None:
        return None

    def fill(self, writer: Writer, index: int, node: ast.expr) -> None:
        self.slots[index] = node
        self.uses -= 1
        if self.uses <= 0 and writer.stack[-1] is self:
            writer.pop()
            writer.add_target(writer.pending[self.of], self.together(writer), self.op)

    def together(self, writer: Writer) -> ast.expr:
        """The target that the components make together."""
        slots = [target(slot or name(writer.names.fresh())) for slot in self.slots]
        items = [ast.Starred(slot, ast.Store()) if index == self.star else slot for index, slot in enumerate(slots)]
        return writer.located(ast.Tuple(items, ast.Store()), self.op)

    def resolve(self, writer: Writer) -> None:
        """Give variables to the components that have no targets yet."""
        for user in self.users:
            if isinstance(user, py.Unpack) and self.slots[user.index] is None:
                self.slots[user.index] = writer.temporary(user.result)
        writer.drop(self)
        entry = writer.pending[self.of]
        entry.targets.append(self.together(writer))
        entry.uses -= 1


class Component(Entry):
    """A component of an unpacking that waits for its target."""

    def __init__(self, op: py.Unpack, spread: Spread) -> None:
        super().__init__(op.result, None, len(op.result.uses), op)
        self.spread, self.index = spread, op.index

    def expression(self) -> None:
        return None

    def finish(self, writer: Writer) -> None:
        place, *others = self.targets
        if not others:
            self.spread.fill(writer, self.index, place)
            return
        text = writer.names.fresh()
        self.spread.fill(writer, self.index, name(text))
        writer.emit(ast.Assign(self.targets, name(text)), self.op)

    def resolve(self, writer: Writer) -> None:
        if len(self.targets) == 1 and self.uses <= 0:
            self.spread.slots[self.index] = self.targets[0]
            writer.drop(self)
            return
        self.spread.slots[self.index] = writer.temporary(self.value)
        if not self.targets:
            writer.drop(self)

    def spill(self, writer: Writer) -> None:
        writer.emit(ast.Assign(self.targets, writer.read(self.value)), self.op)


@writes(objects.Spread)
def spread(writer: Writer, op: objects.Spread) -> None:
    for user in op.result.uses:
        if isinstance(user, py.Unpack) and user.count != op.count:
            raise TargetError(f"a spread of {op.count} cannot be unpacked into {user.count}", user.location)
    entry = writer.pending.get(op.value)
    if entry is None or writer.stack[-1] is not entry:
        writer.flush()
        writer.push_entry(Entry(op.value, writer.read(op.value), 1, op))
    created = Spread(op, op.result, op.value, op.count, op.star, op.result.uses)
    writer.push_entry(created)
    if not created.uses:
        created.uses = 1
        created.fill(writer, 0, name(writer.names.fresh()))


@writes(py.Unpack)
def unpack(writer: Writer, op: py.Unpack) -> None:
    if op.result in writer.values:
        return
    entry = writer.pending.get(op.value)
    if entry is not None and not isinstance(entry, Spread) and writer.stack[-1] is entry:
        users = op.value.uses  # A kernel's model unpacks a value without a `spread`.
        if all(isinstance(user, py.Unpack) and user.parent is op.parent for user in users):
            entry.uses = 1
            created = Spread(op, op.result, op.value, op.count, -1, users)
            writer.spreads[op.value] = created
            writer.stack.append(created)
    entry = writer.spreads.get(op.value, entry)
    if not isinstance(entry, Spread):
        writer.push(op, ast.Subscript(writer.take([op.value])[0], ast.Constant(op.index), ast.Load()))
    elif op.result.uses:
        writer.push_entry(Component(op, entry))
    else:
        entry.fill(writer, op.index, name(writer.names.fresh()))


# Deletions and annotations.


@writes(objects.DeleteVar)
def delete_var(writer: Writer, op: objects.DeleteVar) -> None:
    delete(writer, op, name(writer.names.stored(op.var)))


@writes(objects.DeleteOuter)
def delete_outer(writer: Writer, op: objects.DeleteOuter) -> None:
    delete(writer, op, name(writer.names.outer(op.name, is_stored=True)))


@writes(objects.DeleteName)
def delete_name(writer: Writer, op: objects.DeleteName) -> None:
    delete(writer, op, name(op.name))


@writes(objects.DeleteAttribute)
def delete_attribute(writer: Writer, op: objects.DeleteAttribute) -> None:
    delete(writer, op, ast.Attribute(writer.take(op.operands)[0], op.name, ast.Load()))


@writes(objects.DeleteItem)
def delete_item(writer: Writer, op: objects.DeleteItem) -> None:
    value, index = writer.take(op.operands)
    delete(writer, op, ast.Subscript(value, index, ast.Load()))


def delete(writer: Writer, op: Op, node: Any) -> None:
    node.ctx = ast.Del()
    writer.emit(ast.Delete([node]), op)


@writes(objects.Note)
def note(writer: Writer, op: objects.Note) -> None:
    annotation = expression_of(op.text, op, "the annotation of a variable")
    writer.emit(ast.AnnAssign(ast.Name(op.name, ast.Store()), annotation, None, 1), op)
    writer.names.function().bound.add(op.name)


@writes(objects.Annotate)
def annotate(writer: Writer, op: objects.Annotate) -> None:
    (node,) = writer.take(op.operands)
    writer.emit(ast.AnnAssign(ast.Name(op.name, ast.Store()), node, None, 1), op)


# Imports.


class Module(Entry):
    """The module of an `import`, or of a `from … import` with the names that have their targets."""

    def __init__(self, op: suites.Import, uses: int) -> None:
        super().__init__(op.result, None, uses, op)
        self.imported = op
        self.aliases: list[ast.alias] = []

    def expression(self) -> None:
        return None

    def finish(self, writer: Writer) -> None:
        op = self.imported
        if op.names:
            writer.emit(ast.ImportFrom(op.name or None, self.aliases, op.level), op)
            return
        for place in self.targets:
            assert isinstance(place, ast.Name)
            writer.emit(ast.Import([_alias(op, place.id)]), op)

    def spill(self, writer: Writer) -> None:
        if self.imported.names:
            if self.aliases:
                writer.emit(ast.ImportFrom(self.imported.name or None, self.aliases, self.imported.level), self.op)
            return
        temporary = writer.temporary(self.value)
        writer.emit(ast.Import([_alias(self.imported, temporary.id)]), self.op)


def _alias(op: suites.Import, text: str) -> ast.alias:
    first = op.name.partition(".")[0]
    if text == first and not op.whole:
        return ast.alias(op.name, None)
    return ast.alias(op.name if op.whole else first, text)


class Alias(Entry):
    """A name of a `from … import` that waits for its target."""

    def __init__(self, op: suites.ImportFrom, module: Module) -> None:
        super().__init__(op.result, None, len(op.result.uses), op)
        self.module, self.name = module, op.name

    def expression(self) -> None:
        return None

    def finish(self, writer: Writer) -> None:
        (place,) = self.targets
        assert isinstance(place, ast.Name)
        self.add(writer, place.id)

    def add(self, writer: Writer, text: str) -> None:
        module = self.module
        module.aliases.append(ast.alias(self.name, None if text == self.name else text))
        module.uses -= 1
        if module.uses <= 0 and writer.stack and writer.stack[-1] is module:
            writer.pop()
            module.finish(writer)

    def resolve(self, writer: Writer) -> None:
        self.module.aliases.append(ast.alias(self.name, writer.temporary(self.value).id))
        writer.drop(self)


@writes(suites.Import)
def import_(writer: Writer, op: suites.Import) -> None:
    if op.result.uses:
        writer.push_entry(Module(op, len(op.result.uses)))


@writes(suites.ImportFrom)
def import_from(writer: Writer, op: suites.ImportFrom) -> None:
    entry = writer.pending.get(op.module)
    if isinstance(entry, Module) and writer.stack[-1] is entry:
        writer.push_entry(Alias(op, entry))
        return
    source = op.module.op
    assert isinstance(source, suites.Import)
    temporary = writer.temporary(op.result)
    writer.emit(ast.ImportFrom(source.name or None, [ast.alias(op.name, temporary.id)], source.level), op)


# Aliases of types.


class TypeStatement(Entry):
    """A `type` statement, which waits for the assignment to its name."""

    def expression(self) -> None:
        return None

    def finish(self, writer: Writer) -> None:
        writer.emit(self.statement(), self.op)

    def spill(self, writer: Writer) -> None:
        writer.values[self.value] = name(self.alias.name)
        writer.emit(self.statement(), self.op)

    def statement(self) -> ast.stmt:
        op = self.alias
        brackets = f"[{op.type_parameters}]" if op.type_parameters else ""
        return statement_of(f"type {op.name}{brackets} = {op.text}", op, "the alias of a type", op.text)

    @property
    def alias(self) -> suites.TypeAlias:
        op = self.value.op
        assert isinstance(op, suites.TypeAlias)
        return op


@writes(suites.TypeAlias)
def type_alias(writer: Writer, op: suites.TypeAlias) -> None:
    writer.push_entry(TypeStatement(op.result, None, len(op.result.uses), op))
