"""Normalisation of blocks: the fewest blocks and block parameters for the same control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ziggurat.codemodel.builder import reverse_postorder
from ziggurat.codemodel.dialects import cf, core
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, constant_of
from ziggurat.codemodel.traits import Isolated
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform


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
    return transform(op, _normalized)


def _normalized(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """The transformer: an op with the bodies that have several blocks simplified."""
    graphs = {body: _Graph(body) for body in op.bodies if len(body.blocks) > 1}
    changed = [graph.simplify() for graph in graphs.values()]
    if not any(changed):
        return None
    isolated = isinstance(op, Isolated) or op.parent is None
    bodies = [
        _written(builder, graphs[body], isolated) if body in graphs else builder.rewrite_body(body, isolated=isolated)
        for body in op.bodies
    ]
    return builder.add(rebuilt(op, operands, bodies), op.location)


def _written(builder: Rewriter, graph: _Graph, isolated: bool) -> Body:
    """The body that a simplified graph stands for."""
    body = graph.body
    inner = builder.inside([p.type for p in body.parameters], body.yield_type, isolated=isolated)
    graph.write(inner)
    return inner.finish()


@attrs.define(eq=False)
class _Edge:
    """A successor: its target, and the old values that are its arguments."""

    target: _Node
    arguments: list[Value]


@attrs.define(eq=False)
class _Node:
    """A block that can be changed. `terminator` is an old op; `edges` and `operands` are what it has now."""

    parameters: list[Value]
    ops: list[Op]
    terminator: Op
    operands: Sequence[Value]
    edges: list[_Edge]

    @property
    def branches(self) -> bool:
        """Whether the block ends in a branch without a condition."""
        return len(self.edges) == 1 and isinstance(self.terminator, cf.Br | core.Branch | cf.CondBr | core.CondBranch)

    @property
    def chooses(self) -> bool:
        """Whether the block ends in a branch with a condition."""
        return len(self.edges) == 2 and isinstance(self.terminator, cf.CondBr | core.CondBranch)


class _Graph:
    """The blocks of a body while they are simplified. Values are old ones; `same` maps removed parameters to values."""

    def __init__(self, body: Body) -> None:
        nodes: dict[Block, _Node] = {}
        for block in body.blocks:
            *ops, terminator = block.ops
            nodes[block] = _Node(list(block.parameters), ops, terminator, terminator.operands, [])
        for block, node in nodes.items():
            node.edges = [_Edge(nodes[s.block], list(s.arguments)) for s in block.terminator.successors]
        self.body = body
        self.entry = nodes[body.entry]
        self.same: dict[Value, Value] = {}
        self.nodes = self.reached()
        self.dropped = len(self.nodes) < len(nodes)
        self._used: dict[Value, tuple[Value, ...]] = {}

    def simplify(self) -> bool:
        """Apply all the rules until none applies. True when one did."""
        changed = self.dropped
        rules = (self.decide, self.merge, self.forward, self.unify, self.drop_unused)
        while sum(rule() for rule in rules):
            self.nodes = self.reached()
            changed = True
        return changed

    def resolve(self, value: Value) -> Value:
        """The value that stands for this one."""
        while value in self.same:
            value = self.same[value]
        return value

    def reached(self) -> tuple[_Node, ...]:
        """The reachable nodes, in reverse postorder."""
        return reverse_postorder(self.entry, lambda node: [edge.target for edge in node.edges])

    def incoming(self) -> dict[_Node, list[_Edge]]:
        """The edges to each node."""
        found: dict[_Node, list[_Edge]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for edge in node.edges:
                found[edge.target].append(edge)
        return found

    def used_by(self, op: Op) -> tuple[Value, ...]:
        """The values from outside that an op or one inside it uses."""
        found = self._used.get(op.result)
        if found is None:
            found = self._used[op.result] = op.used_values()
        return found

    # The rules. Each is True when it changed something.

    def decide(self) -> bool:
        """Make branches on constants, and branches with two equal edges, unconditional."""
        changed = False
        for node in self.nodes:
            if not node.chooses:
                continue
            then, otherwise = node.edges
            known = constant_of(self.resolve(node.operands[0]))
            alike = then.target is otherwise.target and self.alike(then.arguments, otherwise.arguments)
            if known is not None or alike:
                node.edges, node.operands = [then if known or alike else otherwise], ()
                changed = True
        return changed

    def alike(self, first: Sequence[Value], second: Sequence[Value]) -> bool:
        return all(self.resolve(a) is self.resolve(b) for a, b in zip(first, second, strict=True))

    def merge(self) -> bool:
        """Merge each block into its only predecessor that has no other successor."""
        changed = False
        self.nodes = self.reached()
        incoming = self.incoming()
        gone: set[_Node] = set()
        for node in self.nodes:
            while node not in gone and node.branches:
                edge = node.edges[0]
                target = edge.target
                if target is node or target is self.entry or len(incoming[target]) != 1:
                    break
                self.same.update(zip(target.parameters, edge.arguments, strict=True))
                node.ops += target.ops
                node.terminator, node.operands, node.edges = target.terminator, target.operands, target.edges
                gone.add(target)
                changed = True
        if changed:
            self.nodes = self.reached()
        return changed

    def forward(self) -> bool:
        """Redirect edges to a block that only branches to the target of that block, if the edge determines it."""
        for node in self.nodes:
            if node is self.entry or node.ops or not (node.branches or node.chooses):
                continue
            if any(edge.target is node for edge in node.edges) or self.used_elsewhere(node):
                continue
            changed = False
            for edge in self.incoming()[node]:
                given = dict(zip(node.parameters, edge.arguments, strict=True))
                onward = node.edges[0]
                if node.chooses:
                    condition = self.resolve(node.operands[0])
                    known = constant_of(self.resolve(given.get(condition, condition)))
                    if known is None:
                        continue
                    onward = node.edges[0 if known else 1]
                arguments = [self.resolve(value) for value in onward.arguments]
                edge.target = onward.target
                edge.arguments = [given.get(value, value) for value in arguments]
                changed = True
            if changed:
                self.nodes = self.reached()
                return True
        return False

    def used_elsewhere(self, node: _Node) -> bool:
        """Whether a parameter of the block is used in another one."""
        mine = set(node.parameters)
        if not mine:
            return False
        for other in self.nodes:
            if other is node:
                continue
            used = [value for op in other.ops for value in self.used_by(op)]
            used += other.operands
            used += [value for edge in other.edges for value in edge.arguments]
            if any(self.resolve(value) in mine for value in used):
                return True
        return False

    def unify(self) -> bool:
        """Remove the parameters that are always one value, or their own previous value."""

        def one_value(parameter: Value, arguments: Sequence[Value]) -> bool:
            values = {self.resolve(value) for value in arguments} - {parameter}
            if len(values) == 1:
                self.same[parameter] = values.pop()
            return parameter in self.same

        return self.take_out(one_value)

    def drop_unused(self) -> bool:
        """Remove the parameters that no op needs, directly or through other parameters."""
        needed: set[Value] = set()
        flows: dict[Value, list[Value]] = {}
        work: list[Value] = []
        for node in self.nodes:
            work += [self.resolve(value) for op in node.ops for value in self.used_by(op)]
            work += [self.resolve(value) for value in node.operands]
            for edge in node.edges:
                for parameter, value in zip(edge.target.parameters, edge.arguments, strict=True):
                    flows.setdefault(parameter, []).append(self.resolve(value))
        while work:
            value = work.pop()
            if value not in needed:
                needed.add(value)
                work += flows.get(value, ())
        return self.take_out(lambda parameter, arguments: parameter not in needed)

    def take_out(self, useless: Callable[[Value, Sequence[Value]], bool]) -> bool:
        """Remove the parameters of which `useless` holds, given the arguments of all edges for them."""
        changed = False
        for node, edges in self.incoming().items():
            if node is self.entry:
                continue
            for index in reversed(range(len(node.parameters))):
                if useless(node.parameters[index], [edge.arguments[index] for edge in edges]):
                    del node.parameters[index]
                    for edge in edges:
                        del edge.arguments[index]
                    changed = True
        return changed

    # The result.

    def write(self, builder: Rewriter) -> None:
        """Append the blocks to a builder at the start of the new body."""
        made: dict[_Node, Block] = {}
        builder.mapping.values.update(zip(self.body.parameters, builder.parameters, strict=True))
        for node in self.nodes:
            if node is self.entry:
                made[node] = builder.block
                continue
            made[node] = builder.new_block([p.type for p in node.parameters])
            builder.mapping.values.update(zip(node.parameters, made[node].parameters, strict=True))
        for node in self.nodes:
            builder.move_to(made[node])
            for op in node.ops:
                self.map(builder, self.used_by(op))
                builder.rewrite(op)
            builder.add(self.terminator(builder, node, made), node.terminator.location)

    def map(self, builder: Rewriter, values: Sequence[Value]) -> None:
        for value in values:
            if value in self.same:
                builder[value] = builder[self.resolve(value)]

    def terminator(self, builder: Rewriter, node: _Node, made: dict[_Node, Block]) -> Op:
        successors: list[Successor] = []
        for edge in node.edges:
            successors.append(Successor(made[edge.target], [builder[self.resolve(v)] for v in edge.arguments]))
        if node.branches:
            core_dialect = isinstance(node.terminator, core.Branch | core.CondBranch)
            return core.Branch(successors[0]) if core_dialect else cf.Br(successors[0])
        operands = [builder[self.resolve(value)] for value in node.operands]
        return rebuilt(node.terminator, operands, (), successors)
