"""The variables of a model: which can become values, and where a load can still see what they hold. For `ssa`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from ziggurat.codemodel.dialects import core, scf
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.codemodel.traits import BlockTerminator, Isolated, Returns
from ziggurat.codemodel.types import Type, VarType

# The ops that can be made to hand on what is stored in their bodies.
EXTENSIBLE: Final = (scf.For, scf.While, scf.If)


def promotable(root: Op) -> dict[Value, core.Var]:
    """The variables that can become values, in the order of their declarations."""
    found: dict[Value, core.Var] = {}
    dropped: set[Value] = set()
    for op in root.walk():
        if isinstance(op, core.Var):
            if op.initial is None or _fits(op.type, op.initial):
                found[op.result] = op
            uses: Sequence[Value] = op.operands
        elif isinstance(op, core.VarLoad):
            continue
        elif isinstance(op, core.VarStore):
            if not (_fits(op.var.type, op.value) and _reachable(op.var, op)):
                dropped.add(op.var)
            uses = (op.value,)
        else:
            uses = op.all_operands()
        dropped.update(value for value in uses if isinstance(value.type, VarType))
    for value in dropped:
        found.pop(value, None)
    return found


def _fits(type_: Type, value: Value) -> bool:
    return isinstance(type_, VarType) and type_.value == value.type


def _reachable(variable: Value, store: Op) -> bool:
    """True when all ops between the store and the body of the variable can hand the value on."""
    home = variable.block
    here = store
    while here.parent is not None and home is not None:
        if here.parent.parent is home.parent:
            return True
        around = here.parent_op
        if not isinstance(around, EXTENSIBLE):
            return False
        here = around
    return False


class Flow(NamedTuple):
    """How liveness passes an op or a body backwards: live before are `reads`, and what is live after but not set."""

    reads: frozenset[Value]
    sets: frozenset[Value]


NOTHING: Final = Flow(frozenset(), frozenset())


class VariableLiveness:
    """Which variables a load can still see, at the places where that decides something.

    Bodies are summed up from the inside out, each as a `Flow`; then the sets are handed down from the outside in.
    """

    def __init__(self, variables: Iterable[Value]) -> None:
        self.variables = frozenset(variables)
        self._bodies: dict[Body, Flow] = {}

    def of_op(self, op: Op) -> Flow:
        """The flow through an op with all its bodies."""
        if isinstance(op, core.VarLoad):
            return Flow(frozenset((op.var,)), frozenset()) if op.var in self.variables else NOTHING
        if isinstance(op, core.VarStore):
            return Flow(frozenset(), frozenset((op.var,))) if op.var in self.variables else NOTHING
        if isinstance(op, core.Var):
            return Flow(frozenset(), frozenset((op.result,)))
        if not op.bodies or isinstance(op, Isolated):
            return NOTHING
        flows = [self.of_body(body) for body in op.bodies]
        if isinstance(op, scf.If):
            return Flow(flows[0].reads | flows[1].reads, flows[0].sets & flows[1].sets)
        if isinstance(op, scf.While):
            before, after = flows
            return Flow(before.reads | (after.reads - before.sets), before.sets)
        # Any other body may be skipped and may be repeated.
        return Flow(frozenset[Value]().union(*(flow.reads for flow in flows)), frozenset())

    def of_body(self, body: Body) -> Flow:
        """The flow from the end of a body, where it is left for its op, to its start."""
        flow = self._bodies.get(body)
        if flow is None:
            reads = self.live_in(body, frozenset())[body.entry]
            flow = Flow(reads, self.variables - self.live_in(body, self.variables)[body.entry])
            self._bodies[body] = flow
        return flow

    def live_in(self, body: Body, at_exit: frozenset[Value]) -> dict[Block, frozenset[Value]]:
        """The variables live at the start of each block, where those of `at_exit` are live when the body is left."""
        live: dict[Block, frozenset[Value]] = dict.fromkeys(body.blocks, frozenset())
        changed = True
        while changed:
            changed = False
            for block in reversed(body.blocks):
                now = self.live_out(block, live, at_exit)
                for op in reversed(block.ops):
                    flow = self.of_op(op)
                    if flow is not NOTHING:
                        now = flow.reads | (now - flow.sets)
                changed = changed or now != live[block]
                live[block] = now
            changed = changed and len(body.blocks) > 1
        return live

    @staticmethod
    def live_out(block: Block, live: dict[Block, frozenset[Value]], at_exit: frozenset[Value]) -> frozenset[Value]:
        """The variables live at the end of a block, from those live at the start of its successors."""
        terminator = block.terminator
        if isinstance(terminator, BlockTerminator):
            return frozenset[Value]().union(*(live[target] for target in block.successors))
        return frozenset() if isinstance(terminator, Returns | core.Unreachable) else at_exit

    def at_exits(self, op: Op, after: frozenset[Value]) -> list[frozenset[Value]]:
        """The variables live at the end of each body of an op, where those of `after` are live after the op."""
        if isinstance(op, scf.If):
            return [after, after]
        flows = [self.of_body(body) for body in op.bodies]
        if isinstance(op, scf.For):
            return [after | flows[0].reads]
        if isinstance(op, scf.While):
            before, behind = flows
            at_yield = before.reads | ((after | behind.reads) - before.sets)
            return [after | behind.reads | (at_yield - behind.sets), at_yield]
        # Of a body of another op no store gets out.
        return [frozenset[Value]()] * len(flows)


def set_by(op: Op, variables: Container[Value]) -> tuple[Value, ...]:
    """Those of the variables that the op changes, itself or in its bodies."""
    if isinstance(op, EXTENSIBLE):
        return stored_in(op, variables)
    if isinstance(op, core.VarStore):
        return (op.var,) if op.var in variables else ()
    return (op.result,) if op.result in variables else ()


def handed_on(op: scf.For | scf.While | scf.If) -> tuple[Type, ...] | None:
    """The types of the values that a loop or an if gives, one by one; None for an if that no yield leaves."""
    if not isinstance(op, scf.If):
        return tuple(value.type for value in op.initial)
    for body in op.bodies:
        for types in scf.terminator_types(body):
            return types
    return None


def stored_in(op: Op, variables: Container[Value]) -> tuple[Value, ...]:
    """Those of the variables that are declared outside of the op and stored to inside, by their first stores."""
    own: set[Value] = set()
    found: dict[Value, None] = {}
    for inner in op.walk():
        if isinstance(inner, core.Var):
            own.add(inner.result)
        elif isinstance(inner, core.VarStore) and inner.var in variables and inner.var not in own:
            found[inner.var] = None
    return tuple(found)
