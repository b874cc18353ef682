"""Blocks that the CTAs of a cluster load together: each of them a part, into the shared memory of all (TMA multicast).

    tt.func @num_ctas=2 …                                      %b : descriptor<n2, x256, x64, f16>
        %a = tt.descriptor_load %A (%row + 128 · %rank) %i;    CTA r loads rows 128 · r to 128 · r + 127 of a block,
        %b = tt.descriptor_load %B %column %i;                 and both CTAs get the whole block
        %d = tt.dot %a (tt.trans %b) %c;

In a cluster whose CTAs divide the rows of a dot (`spread`), all of them need the same blocks of b. So each CTA loads a
part of such a block, and one read of the L2 serves all.

A block is the same in all CTAs if the offsets of its load, and the control flow around it, do not depend on the CTA's
rank. The type of its descriptor says in how many parts it is loaded: boxes of TMA are parts of blocks. `specialize`
makes channels of the cluster of such loads; loads that are in no role are each CTA's own.
"""

from __future__ import annotations

from collections.abc import Container

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.graphs import by_key, reached
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.transforms.analysis.components import Component, component_of, groups_of
from ziggurat.transforms.analysis.queries import descriptor_of

_LEAST_PART_ROWS = 8  # The swizzle of shared memory repeats after as many.
_DIFFERING = (gpu.ClusterRank, scf.While, tt.SmId, tt.GlobalTimer, tt.InlineAsm)  # Results may differ between CTAs.


class Ranks:
    """The facts of a function about which values and ops are the same in all CTAs of a cluster."""

    def __init__(self, func: Op) -> None:
        self.groups = groups_of(func)
        structured = [op for op in func.walk() if isinstance(op, Structured)]
        self.owners = {member: op for op in structured for member in _members(op)}

    def is_equal(self, *values: Value) -> bool:
        """Whether these values are the same in all CTAs."""
        components = reached(map(component_of, values), self._sources)
        return not any(isinstance(value.op, _DIFFERING) for value, _ in components)

    def runs_equally(self, op: Op) -> bool:
        """Whether an op runs equally often in all CTAs, by the control flow around it."""
        around = [outer for outer in op.path() if isinstance(outer, Structured) and outer is not op]
        return self.is_equal(*(value for outer in around for value in outer.controls)) and not any(
            isinstance(outer, scf.While) for outer in around
        )

    def _sources(self, component: Component) -> list[Component]:
        """The components that one is computed from, through control flow."""
        value, owner = component[0], self.owners.get(component)
        controls = [] if owner is None else [component_of(control) for control in owner.controls]
        if component in self.groups:
            return [*controls, *(source for _, source in self.groups[component].sources)]
        if isinstance(value, BlockParameter):
            return controls
        assert isinstance(value, OpResult)
        return [*controls, *(component_of(operand) for operand in value.op.operands)]


def _members(op: Structured) -> list[Component]:
    """The values that a loop or a branch gives, in its bodies and as its results."""
    results: list[Component] = [(op.result, index) for index in range(max(1, len(op.value_types)))]
    return [*results, *((parameter, 0) for body in op.bodies for parameter in body.parameters)]


def shared_blocks(func: tt.Func, by_tma: Container[Value]) -> dict[Value, int]:
    """The descriptors whose blocks the CTAs of a cluster load together, and the number of parts.

    `by_tma` has the results of the loads that TMA does. Others, and loads that differ between CTAs, are each CTA's own.
    """
    ctas = func.num_ctas
    if ctas == 1:
        return {}
    ranks = Ranks(func)
    loads = by_key((op.descriptor, op) for op in func.walk() if isinstance(op, tt.DescriptorLoad))
    return {
        descriptor: ctas
        for descriptor, ops in loads.items()
        if len(ops) == len(descriptor.uses)
        and _has_parts(descriptor, ctas)
        and all(
            op.result in by_tma
            and isinstance(op.parent_op, scf.For)
            and ranks.is_equal(*op.offsets)
            and ranks.runs_equally(op)
            for op in ops
        )
    }


def _has_parts(descriptor: Value, ctas: int) -> bool:
    """Whether boxes of TMA are parts of the blocks of a descriptor."""
    type_ = descriptor_of(descriptor)
    inner = min(type_.block[-1], 128 // type_.element.bytes)
    return len(type_.block) == 2 and (type_.block[1] // inner % ctas == 0 or type_.block[0] >= ctas * _LEAST_PART_ROWS)
