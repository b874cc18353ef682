"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

from ziggurat.codemodel.dominance import Dominance
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.traits import Commutative, Isolated
from ziggurat.codemodel.transform import Rewriter, transform
from ziggurat.codemodel.types import constant_key
from ziggurat.transforms.simplify.effects import is_pure, is_read, may_write


def cse(op: Op) -> Op:
    """Use the result of an equal pure op that has surely run before, instead of computing it again.

        %2 : i32 = arith.addi %0 %1;                  %2 : i32 = arith.addi %0 %1;
        %3 : i32 = arith.addi %1 %0;                  scf.if %c
        scf.if %c                                         ()void -> {
            ()void -> {                                       tt.print %2 @"";
                %4 : i32 = arith.addi %0 %1;                  scf.yield;
                tt.print %4 @"";                          }
                scf.yield;                                …
            }
            …

    The operands of a commutative op are equal in either order. A read of memory is shared with one before it in the
    same block, when nothing between them may write memory. Gives `op` itself where there is nothing to share.
    """
    same = _Sharing(op).same

    def counterpart(builder: Rewriter, inner: Op, _: tuple[Value, ...]) -> Value | None:
        return builder[same[inner.result]] if inner.result in same else None

    return transform(op, counterpart) if same else op


Key = tuple[Hashable, ...]


class _Sharing:
    """Finds, in `same`, the earlier value that each shared op's result becomes. It keeps, for each block, the values
    computed so far, by their keys."""

    def __init__(self, op: Op) -> None:
        self.same: dict[Value, Value] = {}
        self._values: dict[Block, dict[Key, Value]] = {}
        self._read: dict[Block, dict[Key, Value]] = {}
        self._dominance = Dominance()
        for inner in op.walk():
            if inner.parent is not None:
                self._visit(inner, inner.parent)

    def _visit(self, op: Op, block: Block) -> None:
        if is_pure(op):
            if op.captured_values():
                return
            key = self._key(op)
            values, value = self._values, self._find(block, key)
        elif is_read(op):
            key = self._key(op)
            values, value = self._read, self._read.get(block, {}).get(key)
        else:
            if self._read.get(block) and may_write(op):
                del self._read[block]
            return
        if value is None:
            values.setdefault(block, {})[key] = op.result
        else:
            self.same[op.result] = value

    def _find(self, block: Block, key: Key) -> Value | None:
        """An equal op in the block or in one that dominates it."""
        here: Block | None = block
        while here is not None:
            value = self._values.get(here, {}).get(key)
            if value is not None:
                return value
            here = self._above(here)
        return None

    def _above(self, block: Block) -> Block | None:
        """The next block whose ops have surely run: the dominator, or the block that the body stands in."""
        body = block.parent
        if block is not body.blocks[0]:
            return self._dominance.tree(body).parent[block]
        owner = body.parent
        return None if owner is None or isinstance(owner, Isolated) else owner.parent

    def _key(self, op: Op) -> Key:
        operands = tuple([self.same.get(value, value) for value in op.operands])
        if isinstance(op, Commutative):
            first, second, *rest = operands
            operands = (first, second, *rest) if id(first) <= id(second) else (second, first, *rest)
        fields = op.__dict__
        attributes = tuple([constant_key(fields[field.name]) for field in op.SPEC.attributes])
        bodies = op.structure[0] if op.bodies else ()
        return (op.NAME, op.result.type, operands, attributes, bodies)
