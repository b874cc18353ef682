"""Augmented assignments of a model in Python's syntax tree: `a += b` reads its target, and computes and stores once."""

from __future__ import annotations

import ast
from typing import Any

from ziggurat.backend.python.writer import Entry, Writer, name, target, writes
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.python_operators import BY_SIGN


class Augmented(Entry):
    """The target of an augmented assignment; with `right`, the assignment itself, which waits for its store."""

    def __init__(self, op: Op, node: ast.expr, values: list[tuple[Value, ast.expr]]) -> None:
        super().__init__(op.result, node, 1, op)
        self.values = values
        self.right: tuple[str, ast.expr] | None = None

    def expression(self) -> None:
        return None

    def finish(self, writer: Writer) -> None:
        assert self.right is not None and self.node is not None
        operator, right = self.right
        place: Any = target(self.node)
        writer.emit(ast.AugAssign(place, BY_SIGN[operator].syntax(), right), self.op)

    def spill(self, writer: Writer) -> None:
        """Compute the object and the index of the target, then the value, apart."""
        node = self.node
        names: list[ast.expr] = []
        for value, part in self.values:
            temporary = writer.temporary(value)
            writer.emit(ast.Assign([target(temporary)], part), self.op)
            names.append(writer.read(value))
        if isinstance(node, ast.Attribute):
            node.value = names[0]
        elif isinstance(node, ast.Subscript):
            node.value, node.slice = names
        assert node is not None
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            node.ctx = ast.Load()
        temporary = writer.temporary(self.value)
        writer.emit(ast.Assign([target(temporary)], node), self.op)
        if self.right is not None:
            operator, right = self.right
            writer.emit(ast.AugAssign(ast.Name(temporary.id, ast.Store()), BY_SIGN[operator].syntax(), right), self.op)


def augmented_store(op: Op) -> Op | None:
    """The store of the augmented assignment that reads its target by this op, if it does."""
    inplace = single_user(op)
    if not isinstance(inplace, objects.InPlace) or inplace.lhs is not op.result:
        return None
    store = single_user(inplace)
    if store is None or store.parent is not op.parent or inplace.parent is not op.parent:
        return None
    match op, store:
        case core.VarLoad(), core.VarStore() if store.var is op.var and store.value is inplace.result:
            return store
        case py.Outer(), objects.StoreOuter() if store.name == op.name:
            return store
        case objects.LoadName(), objects.StoreName() if store.name == op.name:
            return store
        case py.Attribute(), objects.StoreAttribute() if (store.object, store.name) == (op.value, op.name):
            return store if store.value is inplace.result else None
        case py.Subscript(), objects.StoreItem() if (store.object, store.index) == (op.value, op.index):
            return store if store.value is inplace.result and op.value is not op.index else None
        case _:
            return None


def single_user(op: Op) -> Op | None:
    uses = op.result.uses
    return uses[0] if len(uses) == 1 else None


def begin_augmented(writer: Writer, op: Op) -> bool:
    """Put the target of an augmented assignment on the stack. False where the op reads a value for another reason."""
    if augmented_store(op) is None:
        return False
    entries = [writer.pending.get(value) for value in op.operands if not isinstance(op, core.VarLoad)]
    if any(entry is None or entry.uses != 2 or entry.targets or entry.node is None for entry in entries):
        return False
    count = len(entries)
    if count and writer.stack[-count:] != entries:
        return False
    nodes = [entry.node for entry in entries if entry is not None and entry.node is not None]
    for _ in entries:
        writer.pop()
    match op:
        case core.VarLoad():
            node: ast.expr = name(writer.names.stored(op.var))
        case py.Outer() | objects.LoadName():
            if isinstance(op, py.Outer):
                writer.names.outer(op.name, is_stored=True)
            node = name(op.name)
        case py.Attribute():
            node = ast.Attribute(nodes[0], op.name, ast.Load())
        case _:
            node = ast.Subscript(nodes[0], nodes[1], ast.Load())
    entry = Augmented(op, writer.located(node, op), list(zip(op.operands, nodes, strict=False)))
    writer.push_entry(entry)
    return True


@writes(objects.InPlace)
def inplace(writer: Writer, op: objects.InPlace) -> None:
    entry = writer.pending.get(op.lhs)
    below = 2 if op.rhs in writer.pending else 1
    if isinstance(entry, Augmented) and len(writer.stack) >= below and writer.stack[-below] is entry:
        nodes = writer.top([op.rhs])
        if nodes is not None and writer.stack[-1] is entry:
            writer.pop()
            entry.value, entry.right, entry.op = op.result, (op.operator, nodes[0]), op
            entry.place = entry.node
            writer.push_entry(entry)
            return
    left, right = writer.take(op.operands)
    temporary = writer.temporary(op.result)
    writer.emit(ast.Assign([target(temporary)], left), op)
    writer.emit(ast.AugAssign(ast.Name(temporary.id, ast.Store()), BY_SIGN[op.operator].syntax(), right), op)
