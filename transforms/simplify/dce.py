"""Dead code elimination. `dce` removes all dead code; `remove_unused` keeps the shape of loops, branches and modules.

`demand.py` finds the ops and values that are needed, by its memory model.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value
from ziggurat.codemodel.structured import Structured, packed
from ziggurat.codemodel.traits import BodyTerminator, Isolated, Returns
from ziggurat.transforms.simplify.demand import Demand, value_count


def dce(op: Op) -> Op:
    """Remove, to a fixpoint, everything that is not needed.

    That is: unused pure ops and reads; variables never loaded, with their stores; loop-carried values and results of
    `scf.if` that are unused or only used to compute themselves; `scf.if` and `scf.for` without effects; calls of
    functions without effects; functions of a module that no kernel reaches.

        func: (%0 : i32, %1 : i32)…                          (%0 : i32, %1 : i32)…
            %2 : i32 = arith.constant @0;                        %2 : i32 = arith.constant @0;
            %3 : i32 = arith.constant @1;                        %3 : i32 = arith.constant @1;
            %4 : i32 = arith.addi %0 %1;
            %5 : Tuple<i32, i32> = scf.for %2 %0 %3 %2 %2 …      %4 : i32 = scf.for %2 %0 %3 %2 …
                (%6 : i32, %7 : i32, %8 : i32)…                      (%5 : i32, %6 : i32)…
                    %9 : i32 = arith.addi %7 %6;                         %7 : i32 = arith.addi %6 %5;
                    %10 : i32 = arith.muli %8 %6;                        scf.yield %7;
                    scf.yield %9 %10;
            %11 : i32 = tuple.load %5 @0;

    Gives `op` itself where there is nothing to remove. A model remembers that it was looked through.
    """
    if "_is_swept" in op.__dict__:
        return op
    swept = _swept(op, Demand(op))
    swept.__dict__["_is_swept"] = True
    return swept


def remove_unused(op: Op) -> Op:
    """Remove, to a fixpoint, unused pure ops and reads, and variables never loaded.

        %2 : i32 = arith.constant @2;                %2 : i32 = arith.constant @2;
        %3 : i32 = arith.muli %0 %2;                 %3 : i32 = arith.muli %0 %2;
        %4 : i32 = arith.addi %3 %2;                 tt.return %3;
        %5 : tensor<x4, i32> = tt.splat %4;
        tt.return %3;

    Loops and branches keep the values they carry, and the `tuple.load`s that take them apart; modules keep their
    functions. The steps from Python to Triton models use it: the article's models are of this form.
    """
    return _swept(op, Demand(op, structure=False))


def _swept(root: Op, demand: Demand) -> Op:
    sweep = Sweep(root, demand)
    return sweep.copy() if sweep.removes else root


class Sweep:
    """Copies the ops of a model that are needed, with narrower loops and branches."""

    def __init__(self, root: Op, demand: Demand) -> None:
        self.root = root
        self.kept = demand.kept
        self.narrowed: dict[Value, list[int]] = {}
        self.values: dict[Value, Value] = {}
        self.blocks: dict[Block, Block] = {}
        self.removes = False
        for op in root.walk():
            if op.result not in self.kept:
                self.removes = True
            elif op.bodies and (count := value_count(op)):
                indices = demand.of(op)
                if len(indices) < count:
                    self.removes = True
                    self.narrowed[op.result] = indices

    def copy(self) -> Op:
        """The copy of the whole model."""
        op = self.root
        bodies = [self.body(body, _begin(None, body)) for body in op.bodies]
        return op.SPEC.copy(op, (), (), bodies, op.result.type)

    def body(self, old: Body, builder: Builder, parameters: Sequence[Value] | None = None) -> Body:
        """The new body, in a builder at its start; `parameters` are the old ones that the new ones stand for."""
        values = self.values
        values.update(zip(old.parameters if parameters is None else parameters, builder.parameters, strict=True))
        for block in old.blocks[1:]:
            copy = builder.new_block([p.type for p in block.parameters])
            self.blocks[block] = copy
            values.update(zip(block.parameters, copy.parameters, strict=True))
        for block in old.blocks:
            if block is not old.blocks[0]:
                builder.move_to(self.blocks[block])
            self.ops(block.ops, builder)
        return builder.finish()

    def ops(self, ops: Sequence[Op], builder: Builder) -> None:
        values, live, narrowed = self.values, self.kept, self.narrowed
        for op in ops:
            result = op.result
            if result not in live:
                continue
            if narrowed:
                if result in narrowed:
                    values[result] = builder.add(self.narrow(op, narrowed[result], builder))
                    continue
                cls = op.__class__
                if cls is core.TupleLoad and op.operands[0] in narrowed:
                    values[result] = self.component(op, narrowed[op.operands[0]], builder)
                    continue
                if isinstance(op, BodyTerminator) and not isinstance(op, Returns | core.Unreachable):
                    owner = op.parent_op
                    if owner is not None and owner.result in narrowed:
                        builder.add(self.narrow_terminator(op, op.handed, narrowed[owner.result]))
                        continue
            operands = tuple([values[value] for value in op.operands])
            if not op.successors and not op.bodies:
                values[result] = builder.add_copy(op, operands)
                continue
            successors: Sequence[Successor] = ()
            bodies: Sequence[Body] = ()
            if op.successors:
                successors = [Successor(self.blocks[s.block], [values[v] for v in s.arguments]) for s in op.successors]
            if op.bodies:
                around = None if isinstance(op, Isolated) else builder
                bodies = [self.body(body, _begin(around, body)) for body in op.bodies]
            values[result] = builder.add(op.SPEC.copy(op, operands, successors, bodies, result.type))

    def narrow(self, op: Op, indices: list[int], builder: Builder) -> Op:
        """The loop or branch with only the needed values."""
        assert isinstance(op, Structured)
        yields = packed([op.value_types[index] for index in indices])
        bodies: list[Body] = []
        for body in op.bodies:
            old_parameters = op.entry_arguments(body)
            parameters = [
                *body.parameters[: op.LEADING],
                *(old_parameters[index] for index in indices if old_parameters),
            ]
            inner = builder.nested(
                [p.type for p in parameters], yields if body.yield_type == op.result.type else body.yield_type
            )
            bodies.append(self.body(body, inner, parameters))
        # Initial values that are not needed may be gone.
        operands = [*op.controls, *(op.inits[index] for index in indices if op.inits)]
        return op.SPEC.copy(op, tuple([self.values[value] for value in operands]), (), bodies, yields)

    def narrow_terminator(self, op: Op, values: tuple[Value, ...], indices: list[int]) -> Op:
        """The terminator of a narrowed loop or branch."""
        operands = [*op.operands[: len(op.operands) - len(values)], *(values[index] for index in indices)]
        return op.SPEC.copy(op, tuple([self.values[value] for value in operands]), (), (), op.result.type)

    def component(self, op: Op, indices: list[int], builder: Builder) -> Value:
        """The counterpart of a `tuple.load` from a narrowed op."""
        source = self.values[op.operands[0]]
        if len(indices) == 1:
            return source
        index = indices.index(op.attributes["index"])
        return builder.add(core.TupleLoad(source, index), op.location)


def _begin(around: Builder | None, body: Body) -> Builder:
    types = [p.type for p in body.parameters]
    return Builder.root(types, body.yield_type) if around is None else around.nested(types, body.yield_type)
