"""Accesses of a kernel: the arrays that they may be to, the tables of these, and the elements of an access."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.graphs import inverse, reached
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, element_of, shape_of
from ziggurat.frontends.library import sanitizing
from ziggurat.transforms.analysis.queries import function_around
from ziggurat.transforms.kit.dataflow import Node, flow, nodes
from ziggurat.transforms.sanitize.code import Code
from ziggurat.transforms.sanitize.records import Array

LOADS: Final = (tt.Load, tt.DescriptorLoad, tt.DescriptorGather)
STORES: Final = (tt.Store, tt.DescriptorStore, tt.DescriptorScatter)
ATOMICS: Final = (tt.AtomicRMW, tt.AtomicCAS, tt.DescriptorReduce)
DESCRIBED: Final = (
    tt.DescriptorLoad, tt.DescriptorGather, tt.DescriptorStore, tt.DescriptorScatter, tt.DescriptorReduce
)  # fmt: skip


@attrs.frozen
class Tables:
    """The rows of the tables of a group of arrays; 0 for a row that there is not. Row 0 is that of stores."""

    read: int
    update: int
    time: int
    defined: int
    count: int


@attrs.frozen
class Accesses:
    """The accesses of a kernel, by op: the numbers of the parameters whose arrays they may be to. `tables` has those of
    each group of arrays that a program writes, and `arrays` the arrays of the kernel by parameter."""

    parameters: Mapping[Op, tuple[int, ...]]
    tables: Mapping[int, Tables]
    arrays: Mapping[int, Array]


def is_access(op: Op) -> bool:
    """Whether an op accesses global memory."""
    return isinstance(op, MemoryRead | MemoryWrite)


def access_size(op: Op) -> int:
    """The bytes of an element of an access."""
    type_ = op.operands[0].type
    if isinstance(type_, DescriptorType):
        return type_.element.bytes
    pointer = element_of(type_)
    assert isinstance(pointer, PtrType)
    return pointer.pointee.bytes


def polls(op: Op) -> bool:
    """Whether a load waits for what an atomic writes."""
    return isinstance(op, tt.Load) and op.volatile


def acquires(op: Op) -> bool:
    """Whether accesses after an access come after those before a release of its element. Many programs take a lock by
    a relaxed atomic: one whose result is used acquires."""
    return polls(op) or (isinstance(op, tt.AtomicRMW | tt.AtomicCAS) and (op.order.acquires or bool(op.result.uses)))


def releases(op: Op) -> bool:
    """Whether an access makes those before it visible. In a kernel with a fence any atomic is taken to: one that
    follows the fence does, whatever its own order is."""
    if not isinstance(op, tt.AtomicRMW | tt.AtomicCAS):
        return False
    function = function_around(op)
    fences = (inner for inner in function.walk() if isinstance(inner, tt.Barrier))
    return op.order.releases or any(fence.scope is not tt.MemScope.CTA for fence in fences)


def accesses_of(
    kernel: tt.Func, groups: Iterable[Sequence[int]], *, races: bool, unwritten: Collection[int]
) -> Accesses:
    """The accesses of a kernel without calls. `groups` are the parameters whose arrays may share memory; any other
    array has memory of its own. There are tables for `races`, and for the arrays of the parameters `unwritten`."""
    sources = inverse(flow(kernel, lambda op: not is_access(op)))
    all_arrays = [p.index for p in kernel.body.parameters if isinstance(p.type, PtrType | DescriptorType)]
    numbers: dict[Node, int] = {(kernel.body.parameters[index], 0): index for index in all_arrays}
    parameters: dict[Op, tuple[int, ...]] = {}
    for op in kernel.walk():
        if is_access(op):
            reaching = reached(nodes(op.operands[0]), lambda node: sources.get(node, ()))
            own = sorted(numbers[node] for node in reaching if node in numbers)
            parameters[op] = tuple(own or [index for index in all_arrays if _may_point(kernel, index)])
    group_of = {index: min(group) for group in groups for index in group}
    group_of = {index: group_of.get(index, index) for index in all_arrays}
    tables: dict[int, Tables] = {}
    waits = any(acquires(op) for op in parameters)
    for group in sorted(set(group_of.values())):
        own_ops = [op for op, several in parameters.items() if any(group_of[index] == group for index in several)]
        is_unwritten = any(group_of[index] == group for index in unwritten)
        if is_unwritten or (races and any(isinstance(op, MemoryWrite) for op in own_ops)):
            tables[group] = _tables(own_ops if races else [], waits and races, is_unwritten)
    arrays: dict[int, Array] = {}
    for index in all_arrays:
        sizes = [access_size(op) for op, several in parameters.items() if index in several]
        type_ = kernel.body.parameters[index].type
        own = type_.element if isinstance(type_, DescriptorType) else element_of(type_)
        size = own.pointee.bytes if isinstance(own, PtrType) else own.bytes if isinstance(own, ScalarType) else 1
        count = tables[group_of[index]].count if group_of[index] in tables else 0
        arrays[index] = Array(index, group_of[index], min([size, *sizes]), count)
    return Accesses(parameters, tables, arrays)


def _may_point(kernel: tt.Func, index: int) -> bool:
    """Whether addresses of unknown origin may be those of a parameter's array."""
    return isinstance(kernel.body.parameters[index].type, PtrType)


def _tables(ops: Sequence[Op], waits: bool, is_unwritten: bool) -> Tables:
    reads = any(isinstance(op, LOADS) and not polls(op) for op in ops)
    updates = any(isinstance(op, ATOMICS) for op in ops)
    row = 1
    read, row = (row, row + 2) if reads else (0, row)
    update, row = (row, row + 2) if updates else (0, row)
    time, row = (row, row + 2) if waits else (0, row)
    defined, row = (row, row + 1) if is_unwritten else (0, row)
    return Tables(read, update, time, defined, row)


@attrs.frozen
class Facts:
    """The values of an array at the start of a kernel: its parameter, the lowest byte and the one after its highest,
    from the address of the argument; the pointer to its first element in the tables; the words of a row."""

    parameter: Value
    low: Value
    high: Value
    table: Value
    rows: Value


@attrs.frozen
class Elements:
    """The elements of an access that are of one array: the distance of each from the start of the array, in bytes, and
    the lanes that access one."""

    facts: Facts
    parameter: int
    distance: Value
    mask: Value


def block_of(code: Code, op: Op, operands: Sequence[Value]) -> tuple[Value, Value]:
    """For a block of a descriptor: the distance of each element from the start of the tensor, in bytes, and whether it
    is in the tensor."""
    descriptor = operands[0]
    type_ = descriptor.type
    assert isinstance(type_, DescriptorType)
    gathers = isinstance(op, tt.DescriptorGather | tt.DescriptorScatter)
    offsets = operands[1:] if isinstance(op, LOADS) else operands[2:]
    shape = shape_of(op.result.type if isinstance(op, LOADS) else operands[1].type)
    distance: Value | None = None
    inside: Value | None = None
    for axis in range(len(shape)):
        if gathers and axis == 0:
            index = code.add(tt.ExpandDims(offsets[0], 1))
        else:
            index = code.indices(shape, axis)
            index = code.add(arith.AddI(index, code.spread(offsets[axis], shape_of(index.type))))
        own = shape_of(index.type)
        size = code.spread(code.add(tt.DescriptorSize(descriptor, axis)), own)
        above = code.add(arith.CmpI(index, code.constant(0, index.type), arith.IntPredicate.SGE))
        below = code.add(arith.CmpI(index, size, arith.IntPredicate.SLT))
        inside = code.both(inside, code.spread(code.add(arith.AndI(above, below)), shape))
        stride = code.spread(code.add(tt.DescriptorStride(descriptor, axis)), own)
        step = code.spread(code.add(arith.MulI(code.wide(index), stride)), shape)
        distance = step if distance is None else code.add(arith.AddI(distance, step))
    assert distance is not None and inside is not None
    width = code.constant(type_.element.bytes, distance.type)
    return code.add(arith.MulI(distance, width)), inside


def cells(code: Code, elements: Elements, unit: int) -> Value:
    """Pointers to the words of elements in row 0 of the tables."""
    shift = code.constant(unit.bit_length() - 1, elements.distance.type)
    index = code.add(arith.ShrSI(elements.distance, shift))
    return code.add(tt.AddPtr(code.spread(elements.facts.table, shape_of(index.type)), index))


def inside(code: Code, facts: Facts, distance: Value, size: int) -> Value:
    """Whether elements are in an array."""
    return code.call_check(sanitizing.sanitize_inside, distance, facts.low, facts.high, size)
