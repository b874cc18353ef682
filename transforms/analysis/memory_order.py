"""The order of accesses to global memory: which ops an access must not be moved across.

A barrier orders all accesses, a volatile load or an atomic that acquires those after it, and an atomic that releases
those before it: other threads and CTAs rely on it. A store and a relaxed atomic matter only to accesses of the memory
that they write. The argument that a pointer comes from tells which memory that is. Two arguments may be the same
memory, but a program is sure to read there what it has stored only after a `debug_barrier`. `barriers` keeps the warps
of a program in this order.
"""

from __future__ import annotations

from collections.abc import Iterable

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import BlockParameter, Op, Value
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import DescriptorType, PtrType, element_of
from ziggurat.transforms.analysis.components import Component, component_of, groups_of
from ziggurat.transforms.simplify.effects import may_write

ATOMICS = (tt.AtomicRMW, tt.AtomicCAS, tt.Wait)
_BLOCK_STORES = (tt.DescriptorStore, tt.DescriptorReduce, gpu.TmaStore)
_ACQUIRE = (tt.MemSemantic.ACQUIRE, tt.MemSemantic.ACQ_REL)
_RELEASE = (tt.MemSemantic.RELEASE, tt.MemSemantic.ACQ_REL)
Origins = frozenset[Component]


def may_order(op: Op) -> bool:
    """Whether an op may order accesses of other threads or CTAs: a barrier, an atomic, a volatile load, assembly."""
    if isinstance(op, tt.Load):
        return op.volatile or op.cache is tt.CacheModifier.CV
    return isinstance(op, (tt.Barrier, gpu.ClusterBarrier, *ATOMICS)) or (
        isinstance(op, tt.InlineAsm) and not op.is_pure
    )


def acquires(op: Op) -> bool:
    """Whether an op orders all accesses after it, of any memory."""
    return op.order in _ACQUIRE if isinstance(op, ATOMICS) else may_order(op)


def releases(op: Op) -> bool:
    """Whether an op orders all accesses before it, of any memory."""
    return op.order in _RELEASE if isinstance(op, ATOMICS) else may_order(op) and not isinstance(op, tt.Load)


class MemoryOrder:
    """The origins of the pointers and descriptors of a function, and what must keep its place among accesses."""

    def __init__(self, func: tt.Func) -> None:
        self.func = func
        self.groups = groups_of(func)
        self._arguments_of: dict[Value, frozenset[str | None]] = {}

    def origins(self, value: Value) -> Origins:
        """The values that a pointer, tensor of pointers or descriptor is computed from, through control flow:
        parameters of the function, or results of ops that compute pointers from no other ones."""
        origins = reached([component_of(value)], self._sources)
        return frozenset(origin for origin in origins if not self._sources(origin))

    def _sources(self, component: Component) -> list[Component]:
        """The pointers that a pointer comes from; none for an origin."""
        if component in self.groups:
            return [source for _, source in self.groups[component].sources]
        op = component[0].op
        if isinstance(op, gpu.MakeTensorMap):
            return [component_of(op.base)]
        return [component_of(value) for value in op.operands if _points(value)] if isinstance(op, Pure) else []

    def keeps_order(self, op: Op, accesses: Iterable[Value], *, before: bool = True, after: bool = True) -> bool:
        """Whether accesses through these pointers or descriptors have to stay `before` or `after` an op that stands so:
        it orders all such accesses, or may write their memory."""
        if not isinstance(op, (tt.Store, *_BLOCK_STORES, *ATOMICS)):
            return after or not isinstance(op, tt.Load)
        if (before and releases(op)) or (after and acquires(op)):
            return True
        if isinstance(op, tt.Wait):
            return False
        target = op.descriptor if isinstance(op, _BLOCK_STORES) else op.ptr
        return any(self.may_share(target, access) for access in accesses)

    def stays(self, load: tt.Load) -> bool:
        """Whether no op of the function may change what a load reads, or order it: it may be read at any time."""
        return not any(self._changes(op, load) for op in self.func.walk())

    def _changes(self, op: Op, load: tt.Load) -> bool:
        if isinstance(op, _BLOCK_STORES):
            return self.may_share(op.descriptor, load.ptr)
        writes = not op.bodies and not op.NAME.startswith("gpu.") and may_write(op)
        return (writes or may_order(op) or isinstance(op, tt.Call)) and self.keeps_order(op, [load.ptr])

    def may_share(self, first: Value, other: Value) -> bool:
        """Whether memory of two pointers or descriptors may be the same. Only that of arguments is known to differ."""
        numbers = self._arguments(first), self._arguments(other)
        return None in numbers[0] | numbers[1] or not numbers[0].isdisjoint(numbers[1])

    def _arguments(self, value: Value) -> frozenset[str | None]:
        """The numbers of the arguments that a pointer is computed from, with None for other origins."""
        if value not in self._arguments_of:
            self._arguments_of[value] = frozenset(self._argument(origin) for origin, _ in self.origins(value))
        return self._arguments_of[value]

    def _argument(self, value: Value) -> str | None:
        """The number of the argument that a parameter of the function is a part of; None for another value."""
        if not isinstance(value, BlockParameter) or value.block is not self.func.body.entry:
            return None
        return self.func.parts[value.index].partition(".")[0] if self.func.parts else str(value.index)


def _points(value: Value) -> bool:
    return isinstance(value.type, DescriptorType) or isinstance(element_of(value.type), PtrType)
