"""Dominators of blocks and values, and dominance frontiers.

Block a dominates block b when every path from the entry of the body to b passes a. A value may be used where it
dominates: after its op, in blocks that its block dominates, and in the bodies nested there. The algorithm is that of
Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ziggurat.codemodel.graphs import reached, reverse_postorder
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value


class DominatorTree:
    """The dominators of the blocks of a body. `parent` maps each reachable block to its immediate dominator."""

    def __init__(self, body: Body) -> None:
        entry, *order = reverse_postorder(body.entry, lambda block: block.successors)
        self._rank = {block: index for index, block in enumerate((entry, *order))}
        self._before: dict[Block, list[Block]] = {block: [] for block in self._rank}
        for block in self._rank:
            for following in block.successors:
                self._before[following].append(block)
        self.parent: dict[Block, Block | None] = {entry: None}
        changed = True
        while changed:
            changed = False
            for block in order:
                best: Block | None = None
                for other in self._before[block]:
                    if other in self.parent:
                        best = other if best is None else self._meet(best, other)
                if best is not self.parent.get(block):
                    self.parent[block] = best
                    changed = True

    def _meet(self, a: Block, b: Block) -> Block:
        """The closest block that dominates both."""
        while a is not b:
            if self._rank[a] < self._rank[b]:
                a, b = b, a
            above = self.parent[a]
            assert above is not None
            a = above
        return a

    def dominates(self, a: Block, b: Block) -> bool:
        """True when every path from the entry to b passes a. A block dominates itself.

        An unreachable block is dominated by itself only.
        """
        if a is b:
            return True
        return a in self._rank and b in self._rank and self._meet(a, b) is a

    def reachable(self, block: Block) -> bool:
        """True when the block can be reached from the entry."""
        return block in self._rank

    @functools.cached_property
    def frontiers(self) -> dict[Block, dict[Block, None]]:
        """For each block, those it does not strictly dominate but that have a predecessor it dominates, in order."""
        result: dict[Block, dict[Block, None]] = {block: {} for block in self._rank}
        for block, predecessors in self._before.items():
            for predecessor in predecessors:
                here: Block | None = predecessor
                while here is not None and here is not self.parent[block]:
                    result[here][block] = None
                    here = self.parent[here]
        return result

    def iterated_frontier(self, blocks: Sequence[Block]) -> set[Block]:
        """The iterated frontier of `blocks`, where values that are set in them meet: their frontier, its frontier …"""
        return reached([block for origin in blocks for block in self.frontiers[origin]], self.frontiers.__getitem__)


class Dominance:
    """Dominance of values over ops in a whole model. `tree` gives the tree of a body, which is made at first use."""

    def __init__(self) -> None:
        self.tree = functools.cache(DominatorTree)
        self._positions = functools.cache(_positions)

    def position(self, op: Op) -> int:
        """The index of a placed op in its block."""
        assert op.parent is not None
        return self._positions(op.parent)[op.result]

    def dominates(self, value: Value, user: Op) -> bool:
        """True when `value` is computed whenever `user` runs, so that `user` may have it as an operand.

        Isolation is not considered. An op's own result and values declared in its bodies do not dominate it.
        """
        home = value.block
        if home is None:
            return False
        here = next((op for op in user.path() if op.parent is not None and op.parent.parent is home.parent), None)
        if here is None or here.parent is None:
            return False
        if here.parent is home:
            return not isinstance(value, OpResult) or self.position(value.op) < self.position(here)
        return self.tree(home.parent).dominates(home, here.parent)


def _positions(block: Block) -> dict[Value, int]:
    return {op.result: index for index, op in enumerate(block.ops)}
