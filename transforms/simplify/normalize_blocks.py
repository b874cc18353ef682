"""Normalisation of blocks: the fewest blocks and block parameters for the same control flow."""

from __future__ import annotations

from ziggurat.codemodel.dialects import cf, core
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, constant_of, require_model
from ziggurat.codemodel.traits import Isolated
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, rebuilt, transform


def normalize_blocks(op: Op) -> Op:
    """Simplify the blocks of each body, to a fixpoint.

    * A branch on a constant becomes an unconditional one. A branch to a block that only branches goes to the target of
      that block, if the target is known on this edge.
    * A block is merged into its only predecessor, when that has no other successor.
    * A block parameter is removed that is always the same value, or unused, or only used to compute itself.
    * Unreachable blocks are removed.

            cf.cond_br %c ^block_1 ^block_2;           cf.cond_br %c ^block_1 ^block_2(%0);
          ^block_1:                                  ^block_1:
            %1 : i32 = arith.addi %0 %0;               %1 : i32 = arith.addi %0 %0;
            cf.br ^block_3(%0, %1);                    cf.br ^block_2(%1);
          ^block_2:                                  ^block_2(%2 : i32):
            cf.br ^block_3(%0, %0);                    %3 : i32 = arith.muli %0 %2;
          ^block_3(%2 : i32, %3 : i32):                tt.return %3;
            cf.br ^block_4;
          ^block_4:
            %4 : i32 = arith.muli %2 %3;
            tt.return %4;

    Gives `op` itself where there is nothing to change.
    """
    require_model(op, "normalize_blocks")
    if all(len(body.blocks) < 2 for inner in op.walk() for body in inner.bodies):
        return op
    while (blocks := transform(transform(op, _redirected), _Shortening())) is not op:
        op = blocks
    return op


# The targets of branches.

_Edge = tuple[Block, tuple[Value, ...]]


def _redirected(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """The transformer: decide branches on constants, and pass over blocks that only branch."""
    edges = [_onward(edge) for edge in _edges(op, {})]
    if edges == [(successor.block, successor.arguments) for successor in op.successors]:
        return None
    blocks = builder.mapping.blocks
    successors = [Successor(blocks[block], [builder[value] for value in values]) for block, values in edges]
    if len(edges) == len(op.successors):
        return builder.add(rebuilt(op, operands, (), successors))
    return builder.add((core.Branch if isinstance(op, core.CondBranch) else cf.Br)(successors[0]))


def _edges(op: Op, values: dict[Value, Value]) -> list[_Edge]:
    """The edges that a branch may take where `values` has the values of the parameters of its block."""
    edges = [(s.block, tuple(values.get(value, value) for value in s.arguments)) for s in op.successors]
    if len(edges) < 2:
        return edges
    condition = op.operands[0]
    constant = constant_of(values.get(condition, condition))
    if constant is not None:
        return [edges[0 if constant else 1]]
    return edges[:1] if edges[0] == edges[1] else edges


def _onward(edge: _Edge) -> _Edge:
    """The edge past the blocks that only branch, as far as it determines their branches."""
    (block, values), edges = edge, set[Block]()
    while _only_branches(block):
        if block in edges:
            return edge  # These blocks are an endless loop.
        edges.add(block)
        following = _edges(block.terminator, dict(zip(block.parameters, values, strict=True)))
        if len(following) > 1:
            break
        [(block, values)] = following
    return block, values


def _only_branches(block: Block) -> bool:
    branch = block.terminator
    users = (user for parameter in block.parameters for user in parameter.uses)
    return len(block) == 1 and bool(branch.successors) and all(user is branch for user in users)


# Merged blocks, and parameters that are left out.


class _Shortening:
    """The transformer: merge blocks into their only predecessors, and leave out parameters."""

    def __init__(self) -> None:
        self.next: dict[Block, Block] = {}  # The block that is merged into another one, by that one.
        self.same: dict[Value, Value] = {}  # The parameters that are always one value, and that value.
        self.live: set[Value] = set()  # The values that an op needs, directly or through parameters.

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op.parent in self.next and op.successors:
            return DROP
        if any(len(s.arguments) > len(self.kept(s.block)) for s in op.successors):
            return builder.add(rebuilt(op, operands, (), [self.successor(builder, s) for s in op.successors]))
        shorter = [len(body.blocks) > 1 and self.plan(body) for body in op.bodies]
        if not any(shorter):
            return None
        isolated = isinstance(op, Isolated) or op.parent is None
        bodies = [self.write(builder, body, isolated) for body in op.bodies]
        return builder.add(rebuilt(op, operands, bodies), op.location)

    def plan(self, body: Body) -> bool:
        """Find what the body can do without. False when it needs all it has."""
        arguments: dict[Value, list[Value]] = {p: [] for block in body.blocks[1:] for p in block.parameters}
        before: dict[Block, list[Op]] = {block: [] for block in body.blocks[1:]}
        operands: set[Value] = set()
        for block in body.blocks:
            for op in block.ops:
                operands.update(op.operands if op.successors else op.used_values())
            for successor in block.terminator.successors:
                before[successor.block].append(block.terminator)
                for parameter, value in zip(successor.block.parameters, successor.arguments, strict=True):
                    arguments[parameter].append(value)
        for parameter, values in arguments.items():
            others = {self.same.get(value, value) for value in values} - {parameter}
            if len(others) == 1:
                self.same[parameter] = others.pop()
        self.live |= reached(operands, lambda value: arguments.get(value, ()))
        merged = [(branches[0].parent, block) for block, branches in before.items() if len(branches) == 1]
        self.next.update((first, block) for first, block in merged if first and len(first.successors) == 1)
        return any(block in self.next for block in body.blocks) or any(
            len(self.kept(block)) < len(block.parameters) for block in body.blocks[1:]
        )

    def kept(self, block: Block) -> list[int]:
        """The indices of the parameters that a block keeps."""
        return [p.index for p in block.parameters if p in self.live and p not in self.same]

    def successor(self, builder: Rewriter, old: Successor) -> Successor:
        return Successor(
            builder.mapping.blocks[old.block], [builder[old.arguments[index]] for index in self.kept(old.block)]
        )

    def write(self, builder: Rewriter, body: Body, isolated: bool) -> Body:
        """The body without what it does not need."""
        inner = builder.inside([p.type for p in body.parameters], body.yield_type, isolated=isolated)
        values, blocks = inner.mapping.values, inner.mapping.blocks
        values.update(zip(body.parameters, inner.parameters, strict=True))
        merged = {self.next[block] for block in body.blocks if block in self.next}
        heads = [block for block in body.blocks if block not in merged]
        for head in heads[1:]:
            parameters = [head.parameters[index] for index in self.kept(head)]
            blocks[head] = inner.new_block([p.type for p in parameters])
            values.update(zip(parameters, blocks[head].parameters, strict=True))
        for head in heads:
            inner.move_to(blocks.get(head, inner.entry))
            block: Block | None = head
            while block is not None:
                for parameter in block.parameters:
                    if parameter in self.live and parameter in self.same:
                        values[parameter] = inner[self.same[parameter]]
                inner.rewrite_ops(block.ops)
                block = self.next.get(block)
        return inner.finish()
