"""The order of stores by TMA and other writes of the same program to the same memory.

TMA writes a block some time after its instruction, and its writes have no order among themselves (PTX manual,
"Async proxy"). The last write of a program has to win, so a write comes after the stores by TMA that it may overwrite:

    %8 = tt.descriptor_store %4 …;                     gpu.tma_store …; gpu.tma_store_wait @0;
    %9 = tt.descriptor_store %4 …;         becomes     gpu.tma_store_wait @0 @written=true;
                                                       gpu.tma_store …; gpu.tma_store_wait @0;

Two blocks of one descriptor are apart where their offsets along an axis differ by a constant that is no less than the
block. Blocks of several iterations are taken to be apart if their place varies in the loop: a wait for the last tile
would cost little, but a persistent kernel that stores a tile in parts would wait for each.

`tma` asks for the order of a model whose stores are still ops of descriptors, and `in_flight` for that of a placed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import BlockParameter, Body, Op, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import Pure
from ziggurat.transforms.analysis.components import Component, component_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.queries import constant_of, descriptor_of, loops_around

_TmaStore = tt.DescriptorStore | tt.DescriptorReduce | gpu.TmaStore
_OtherWrite = tt.Store | tt.AtomicRMW | tt.AtomicCAS


@attrs.frozen
class StoreOrder:
    """The writes that need one: those `after` a store by TMA of the same memory, and those through pointers `before`
    one."""

    after: frozenset[Op] = frozenset()
    before: frozenset[Op] = frozenset()


def store_order(ops: Sequence[Op], memory: MemoryOrder) -> StoreOrder:
    """The order that the writes among the ops of a model need, whose stores through descriptors TMA does."""
    stores = [op for op in ops if isinstance(op, _TmaStore)]
    if not stores:
        return StoreOrder()
    order = {op: at for at, op in enumerate(ops)}
    after, before = set[Op](), set[Op]()
    for write in ops:
        if isinstance(write, _TmaStore):
            if any(_overwrites(write, store, order, memory) for store in stores):
                after.add(write)
        elif isinstance(write, _OtherWrite):
            shared = [op for op in stores if memory.keeps_order(op, [write.ptr]) and not _exclude(op, write, memory)]
            if any(_runs_after(write, store, order) for store in shared if _role(store) is _role(write)):
                after.add(write)
            if any(_runs_after(store, write, order) for store in shared):
                before.add(write)
    return StoreOrder(frozenset(after), frozenset(before))


def _exclude(op: Op, other: Op, memory: MemoryOrder) -> bool:
    """Whether a program runs only one of two ops, always the same: they are in branches whose condition is the same in
    all iterations of the loops around them."""
    branches = set(_branches(other))
    for owner, body in _branches(op):
        if any((owner, branch) in branches for branch in owner.bodies if branch is not body):
            return not any(_varies([owner.condition], loop, memory) for loop in loops_around(owner))
    return False


def _branches(op: Op) -> Iterator[tuple[scf.If, Body]]:
    """The branches that an op is in."""
    for inner in op.path():
        owner = inner.parent_op
        if isinstance(owner, scf.If) and inner.parent is not None:
            yield owner, inner.parent.parent


def _role(op: Op) -> Body | None:
    """The role that an op is in. Nothing orders the writes of two roles: a program is divided where they need no order
    (docs/design/009-channels-schedules-scopes.md)."""
    while (owner := op.parent_op) is not None and not isinstance(owner, gpu.WarpSpecialize):
        op = owner
    return op.parent.parent if owner is not None and op.parent is not None else None


def _runs_after(op: Op, other: Op, order: Mapping[Op, int]) -> bool:
    return order[other] < order[op] or bool(loops_around(op) & loops_around(other))


def _overwrites(write: _TmaStore, store: _TmaStore, order: Mapping[Op, int], memory: MemoryOrder) -> bool:
    """Whether a store by TMA may write elements that another one, or itself in an earlier iteration, has written."""
    if (
        (_adds(write) and _adds(store))
        or not _runs_after(write, store, order)
        or _role(write) is not _role(store)
        or not memory.keeps_order(store, [write.descriptor], before=False)
    ):
        return False
    loops = loops_around(write) & loops_around(store)
    if not all(_varies([write.descriptor, *write.offsets], loop, memory) for loop in loops):
        return True
    return order[store] < order[write] and not _are_apart(write, store)


def _adds(store: _TmaStore) -> bool:
    return isinstance(store, tt.DescriptorReduce) or (isinstance(store, gpu.TmaStore) and store.adds)


def _are_apart(write: _TmaStore, store: _TmaStore) -> bool:
    """Whether two blocks of one descriptor have no element in common, for the same values of what is not constant."""
    if write.descriptor is not store.descriptor:
        return False
    pairs = zip(
        map(_terms, write.offsets), map(_terms, store.offsets), descriptor_of(write.descriptor).block, strict=True
    )
    return any(first[0] is other[0] and abs(first[1] - other[1]) >= size for first, other, size in pairs)


def _terms(offset: Value) -> tuple[Value | None, int]:
    """A value, or None, and the constant that is added to it."""
    number = constant_of(offset)
    if isinstance(number, int):
        return None, number
    if isinstance(offset.op, arith.AddI):
        for value, addend in (offset.op.operands, reversed(offset.op.operands)):
            number = constant_of(addend)
            if isinstance(number, int):
                base, rest = _terms(value)
                return base, rest + number
    return offset, 0


def _varies(values: Sequence[Value], loop: Op, memory: MemoryOrder) -> bool:
    """Whether values depend on what a loop counts, carries or reads."""

    def sources(component: Component) -> list[Component]:
        if component in memory.groups:
            return [source for _, source in memory.groups[component].sources]
        value, _ = component
        operands = value.op.operands if value.op is not None else _bounds(value)
        return [component_of(operand) for operand in operands]

    components = reached(map(component_of, values), sources)
    reads = (
        value.op for value, _ in components if value.op is not None and not isinstance(value.op, Pure | Structured)
    )
    return any(_owner(value) is loop for value, _ in components) or any(loop in op.path() for op in reads)


def _owner(value: Value) -> Op | None:
    """The op whose body has a value as a parameter."""
    return value.owner if isinstance(value, BlockParameter) else None


def _bounds(value: Value) -> Sequence[Value]:
    """What the index of a loop is computed from."""
    loop = _owner(value)
    return loop.operands[: loop.CONTROLS] if isinstance(loop, scf.For) else ()
