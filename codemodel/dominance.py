"""Dominators of blocks and values, and dominance frontiers.

Block a dominates block b when every path from the entry of the body to b passes a; it post-dominates b when every path
from b to an exit passes a. A value may be used where it dominates: after its op, in blocks that its block dominates,
and in the bodies nested there. The algorithm is that of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance
Algorithm" (2001).
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value


def immediate_dominators(successors: Sequence[Sequence[int]], entry: int = 0) -> list[int | None]:
    """The immediate dominator of each node of a graph; None for the entry and for unreachable nodes.

    >>> immediate_dominators([[1, 2], [3], [3], []])
    [None, 0, 0, 0]
    """
    order = _reverse_postorder(successors, entry)
    rank = {node: index for index, node in enumerate(order)}
    before: list[list[int]] = [[] for _ in successors]
    for node in order:
        for following in successors[node]:
            before[following].append(node)
    found: list[int | None] = [None] * len(successors)
    found[entry] = entry  # The entry is its own dominator while the algorithm runs: this ends the walks upward.
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            best: int | None = None
            for other in before[node]:
                if found[other] is not None:
                    best = other if best is None else _meet(found, rank, best, other)
            if best != found[node]:
                found[node] = best
                changed = True
    found[entry] = None
    return found


def _meet(found: list[int | None], rank: dict[int, int], a: int, b: int) -> int:
    """The closest node that dominates both."""
    while a != b:
        if rank[a] < rank[b]:
            a, b = b, a
        above = found[a]
        assert above is not None
        a = above
    return a


def _reverse_postorder(successors: Sequence[Sequence[int]], entry: int) -> list[int]:
    order: list[int] = []
    seen = {entry}
    stack = [(entry, iter(successors[entry]))]
    while stack:
        node, rest = stack[-1]
        for following in rest:
            if following not in seen:
                seen.add(following)
                stack.append((following, iter(successors[following])))
                break
        else:
            order.append(node)
            stack.pop()
    order.reverse()
    return order


class DominatorTree:
    """The dominators of the blocks of a body. `parent` maps a block to its immediate dominator, `children` back.

    An interval numbering of the tree answers queries in constant time.
    """

    def __init__(self, body: Body) -> None:
        blocks, successors = _graph(body)
        parents = immediate_dominators(successors)
        self.blocks = blocks
        self._successors = successors
        self._frontiers: dict[Block, tuple[Block, ...]] | None = None
        self.parent: dict[Block, Block | None] = {
            block: None if parent is None else blocks[parent] for block, parent in zip(blocks, parents, strict=True)
        }
        inner: list[list[int]] = [[] for _ in blocks]
        for node, parent in enumerate(parents):
            if parent is not None:
                inner[parent].append(node)
        self.children: dict[Block, tuple[Block, ...]] = {
            block: tuple(blocks[child] for child in inner[node]) for node, block in enumerate(blocks)
        }
        self._span: dict[Block, tuple[int, int]] = {}
        clock = 0
        stack = [(0, False)]
        while stack:
            node, done = stack.pop()
            block = blocks[node]
            if done:
                self._span[block] = (self._span[block][0], clock)
                continue
            self._span[block] = (clock, clock)
            clock += 1
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(inner[node]))

    def dominates(self, a: Block, b: Block) -> bool:
        """True when every path from the entry to b passes a. A block dominates itself.

        An unreachable block is dominated by itself only.
        """
        if a is b:
            return True
        outer, inner = self._span.get(a), self._span.get(b)
        return outer is not None and inner is not None and outer[0] <= inner[0] < outer[1]

    def reachable(self, block: Block) -> bool:
        """True when the block can be reached from the entry."""
        return block in self._span

    def frontier(self, block: Block) -> tuple[Block, ...]:
        """The blocks that `block` does not strictly dominate but that have a predecessor it dominates, in order."""
        if self._frontiers is None:
            self._frontiers = self._all_frontiers()
        return self._frontiers[block]

    def iterated_frontier(self, blocks: Sequence[Block]) -> set[Block]:
        """The iterated frontier of `blocks`, where values that are set in them meet: their frontier, its frontier …"""
        found: set[Block] = set()
        work = list(blocks)
        while work:
            for block in self.frontier(work.pop()):
                if block not in found:
                    found.add(block)
                    work.append(block)
        return found

    def _all_frontiers(self) -> dict[Block, tuple[Block, ...]]:
        blocks = self.blocks
        found: dict[Block, dict[Block, None]] = {block: {} for block in blocks}
        before: list[list[Block]] = [[] for _ in blocks]
        for node, following in enumerate(self._successors):
            for other in following:
                before[other].append(blocks[node])
        for node, block in enumerate(blocks):
            if block not in self._span:
                continue
            for predecessor in before[node]:
                here: Block | None = predecessor if predecessor in self._span else None
                while here is not None and here is not self.parent[block]:
                    found[here][block] = None
                    here = self.parent[here]
        return {block: tuple(frontier) for block, frontier in found.items()}


def _graph(body: Body) -> tuple[tuple[Block, ...], list[list[int]]]:
    numbers = {block: index for index, block in enumerate(body.blocks)}
    # A successor in another body is an error that the verifier reports; it is no edge here.
    return body.blocks, [[numbers[s] for s in block.successors if s in numbers] for block in body.blocks]


class Dominance:
    """Dominance of values over ops in a whole model. The trees of its bodies are made at first use."""

    def __init__(self) -> None:
        self._trees: dict[Body, DominatorTree] = {}
        self._positions: dict[Block, dict[Value, int]] = {}

    def tree(self, body: Body) -> DominatorTree:
        """The dominator tree of a body."""
        tree = self._trees.get(body)
        if tree is None:
            tree = self._trees[body] = DominatorTree(body)
        return tree

    def position(self, op: Op) -> int:
        """The index of a placed op in its block."""
        block = op.parent
        assert block is not None
        positions = self._positions.get(block)
        if positions is None:
            positions = self._positions[block] = {}
            positions.update((other.result, index) for index, other in enumerate(block.ops))
        return positions[op.result]

    def dominates(self, value: Value, user: Op) -> bool:
        """True when `value` is computed whenever `user` runs, so that `user` may have it as an operand.

        Isolation is not considered. An op's own result and values declared in its bodies do not dominate it.
        """
        home = value.block
        if home is None:
            return False
        here: Op | None = user
        while here is not None and here.parent is not None and here.parent.parent is not home.parent:
            here = here.parent_op
        if here is None or here.parent is None:
            return False
        if here.parent is home:
            return not isinstance(value, OpResult) or self.position(value.op) < self.position(here)
        return self.tree(home.parent).dominates(home, here.parent)

    def op_dominates(self, a: Op, b: Op) -> bool:
        """True when `a` has run whenever `b` starts: `a` is before `b`, or before an op that `b` is nested in; False
        for `a` itself."""
        return a.parent is not None and self.dominates(a.result, b)
