"""Lowering: data that crosses threads goes through shared memory, and only primitive ops are left.

    %2 : tensor<x64, f32, "1 | 2 4 8 16 32 | 0"> = gpu.convert_layout %1;

becomes, if threads need elements of other warps,

    %2 : shared<x64, f32, "1 2 4 8 16 32"> = gpu.local_alloc;
    gpu.local_store %2 %1;
    %3 : tensor<x64, f32, "1 | 2 4 8 16 32 | 0"> = gpu.local_load %2;

Within a warp it stays as it is, if shuffles are cheaper. Afterwards every other op that reshapes moves elements only
within threads; a `tt.reduce` combines only within warps; a `tt.scan` runs along the registers and lanes of one warp.
`barriers` adds the barriers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.scope import scope_of
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.layout import LANE_BITS, Layout, axis_bases, bits_of, blocked, filled, moved, replicated
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    Type,
    component_types,
    element_bytes,
    i32,
    scalar_element,
    with_element,
)
from ziggurat.transforms.analysis.intervals import SMALL
from ziggurat.transforms.analysis.queries import (
    converted,
    layout_of,
    repacked,
    stored,
    tensor_of,
    unpacked,
    with_layout,
)
from ziggurat.transforms.layouts.shuffle_rounds import is_within_warps
from ziggurat.transforms.layouts.swizzle import buffer_bases, conversion_buffer, row_major

_LOWERINGS: OpTable[Callable[[Any, Any, tuple[Value, ...]], Outcome]] = OpTable("lowering")


def lower(module: gpu.Module) -> Op:
    """The GPU model in which conversions, reductions, scans, gathers and histograms are primitives.

    Every value keeps its type, so its uses do not change.
    """

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        lowering = _LOWERINGS.get(type(op))
        return None if lowering is None else lowering(builder, op, operands)

    rewritten: Op = module
    if any(type(op) in _LOWERINGS for op in module.walk()):
        rewritten = transform(module, lowered, pass_name="lower")
    if not rewritten.holds(gpu.ConvertLayout):
        return rewritten
    stmatrix = TARGETS[module.target].has_stmatrix
    neighbours, buffers = _neighbours(rewritten), dict[Op, Value]()

    def crossing(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, gpu.ConvertLayout):
            return None
        for other in neighbours.get(op, ()):
            value, layout = builder.mapping.get(other.value), layout_of(other.type)
            if value is not None and not is_within_warps(value, layout):
                buffers[other] = _stored_for(builder, value, layout, stmatrix)
        if op in buffers:
            return builder.add(gpu.LocalLoad(buffers[op], with_layout(operands[0].type, layout_of(op.type))))
        return _across(builder, operands[0], layout_of(op.type), stmatrix)

    return transform(rewritten, crossing, pass_name="lower")


def _neighbours(model: Op) -> dict[Op, list[gpu.ConvertLayout]]:
    """Neighbouring conversions of small tensors, by the first: one barrier is enough for all of them."""

    def is_small(op: Op) -> bool:
        if not isinstance(op, gpu.ConvertLayout):
            return False
        type_ = tensor_of(op.value)
        return isinstance(type_.element, ScalarType) and type_.numel * element_bytes(type_) <= SMALL

    neighbours: dict[Op, list[gpu.ConvertLayout]] = {}
    for block in (block for op in model.walk() for body in op.bodies for block in body.blocks):
        for small, run in groupby(block.ops, is_small):
            ops = [op for op in run if isinstance(op, gpu.ConvertLayout)] if small else []
            if len(ops) > 1 and not {op.value for op in ops} & {op.result for op in ops}:
                neighbours[ops[0]] = ops
    return neighbours


def _across(builder: Builder, value: Value, layout: Layout, stmatrix: bool) -> Value:
    """A conversion within the registers of a thread, by shuffles, or through shared memory."""
    type_ = tensor_of(value)
    if layout_of(type_) == layout:
        return value
    if is_within_warps(value, layout):
        return builder.add(gpu.ConvertLayout(value, with_layout(type_, layout)))
    if isinstance(type_.element, PtrType):
        numbers = _across(builder, builder.add(tt.PtrToInt(value)), layout, stmatrix)
        return builder.add(tt.IntToPtr(numbers, with_layout(type_, layout)))
    return builder.add(gpu.LocalLoad(_stored_for(builder, value, layout, stmatrix), with_layout(type_, layout)))


def _stored_for(builder: Builder, value: Value, layout: Layout, stmatrix: bool) -> Value:
    """A buffer that holds the tensor, to be loaded in a layout."""
    type_ = tensor_of(value)
    return stored(
        builder, value, conversion_buffer(layout_of(type_), layout, type_.numel, element_bytes(type_), stmatrix)
    )


# The layouts in which reductions and scans run within a warp. Both combine the elements that each warp holds first, and
# then one value of each warp, or of each run of neighbours that a warp holds. The whole tensor goes to other warps only
# for a scan along an axis of which no warp holds neighbours.


@attrs.frozen
class ReductionStage:
    """A reduction along one axis, and the moves that make its operand from the result of the stage before.

    `moves` are pairs (shape, order): reshape to the shape, then transpose. Then the tensor is reshaped to `shape`, and
    converted to `layout`, if that is not None.
    """

    moves: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    shape: tuple[int, ...]
    axis: int
    layout: Layout | None = None


def _mask(shape: Sequence[int], axis: int) -> int:
    """The bits of element numbers that belong to an axis."""
    return sum(axis_bases(shape, axis))


def _held(bases: Sequence[int], mask: int) -> list[int]:
    """The bases with bits of an axis."""
    return [basis for basis in bases if basis & mask]


def _is_apart(layout: Layout, mask: int) -> bool:
    """Whether each basis is a single bit of an axis, or has no bit of it."""
    return all(basis & (basis - 1) == 0 for basis in _held(layout.bases, mask))


def in_lanes(shape: Sequence[int], axis: int, num_warps: int) -> Layout:
    """A layout with the axis in the lanes, and its lowest bits in registers; the other axes fill the rest."""
    along = axis_bases(shape, axis)
    rest = [1 << bit for bit in range(bits_of(math.prod(shape))) if 1 << bit not in along]
    # Low bits of the axis are in registers, so that a scan runs over neighbours first.
    serial = max(0, len(along) - LANE_BITS)
    return filled(along[:serial], [*along[serial:], *rest], num_warps)


# Partial results, times the warps that read all of them, above which each warp reads those of some columns, and the
# results go through shared memory once more. Shared memory gives 32 of them a cycle; a barrier takes some 50 cycles.
_MANY_READS = 8192


def reduction_stages(layout: Layout, shape: tuple[int, ...], axis: int) -> tuple[Layout, tuple[ReductionStage, ...]]:
    """The reduction of a tensor along an axis: the layout to begin in, and one or two stages.

    Each stage combines elements in the registers and lanes of one warp.
    """
    mask, stride = _mask(shape, axis), math.prod(shape[axis + 1 :])
    if not _is_apart(layout, mask):
        layout = in_lanes(shape, axis, layout.num_warps)
    in_warps = _held(layout.warps, mask)
    if not in_warps:
        return layout, (ReductionStage((), shape, axis),)
    before, after = shape[:axis], shape[axis + 1 :]
    runs = _runs(sum(in_warps) // stride, bits_of(shape[axis]))  # Bits that warps hold, and bits that they do not.
    count = 1 << len(in_warps)
    small = (*before, count, *after)
    gathered = layout.dropped(shape, axis).widened((*before, 1, *after), small, in_warps=False)
    if layout.num_warps * math.prod(small) > _MANY_READS:
        gathered = _shared_out(gathered, _mask(small, axis))
    last = ReductionStage((), small, axis, gathered)
    if count == shape[axis]:
        return layout, (last,)
    split = (*before, *(1 << width for _, width in runs), *after)
    first, end = len(before), len(before) + len(runs)
    ours = [first + at for at, (by_warps, _) in enumerate(runs) if by_warps]
    others = [first + at for at, (by_warps, _) in enumerate(runs) if not by_warps]
    order = (*range(first), *ours, *others, *range(end, len(split)))
    inner = (*before, count, shape[axis] // count, *after)
    return layout, (ReductionStage(((split, order),), inner, axis + 1), last)


def _shared_out(layout: Layout, mask: int) -> Layout:
    """A layout whose warps hold the same elements, with elements of each thread that are not along the axis of `mask`
    in different warps instead."""
    registers, warps = list(layout.registers), list(layout.warps)
    for at, basis in enumerate(warps):
        own = [register for register in registers if register and not register & mask]
        if not basis and own:
            warps[at] = max(own)
            registers.remove(warps[at])
    return Layout(tuple(registers), layout.lanes, tuple(warps))


def _runs(mask: int, count: int) -> list[tuple[bool, int]]:
    """The runs of equal bits of a mask, from the highest: (bit, length)."""
    bits = (bool(mask >> bit & 1) for bit in reversed(range(count)))
    return [(value, len(list(run))) for value, run in groupby(bits)]


def scans_within_warps(layout: Layout, shape: Sequence[int], axis: int) -> bool:
    """Whether a scan can run in a layout: from the lowest bit, the axis is in registers, then lanes, then registers."""
    mask = _mask(shape, axis)
    if not _is_apart(layout, mask) or _held(layout.warps, mask):
        return False
    lanes = _held(layout.lanes, mask)
    # No register bit is between two lane bits.
    between = (basis for basis in _held(layout.registers, mask) if lanes and lanes[0] < basis < lanes[-1])
    return lanes == sorted(lanes) and not any(between)


def _in_order(layout: Layout, mask: int) -> Layout:
    """The layout with the same elements in each warp, and the lowest bits of the axis in registers, then in lanes."""
    along = sorted(_held((*layout.registers, *layout.lanes), mask))
    count = len(_held(layout.registers, mask))
    rest = iter(along[count:])
    lanes = tuple(next(rest) if basis & mask else basis for basis in layout.lanes)
    # Registers with the lowest bits come first, as in vectors.
    others = [basis for basis in layout.registers if not basis & mask]
    first = layout.registers and layout.registers[0] & mask
    registers = [*along[:count], *others] if first else [*others, *along[:count]]
    return Layout(tuple(registers), lanes, layout.warps)


def run_of_warps(layout: Layout, shape: Sequence[int], axis: int) -> int:
    """The length of the aligned runs along an axis that one warp holds: those of a scan's first stage.

    1 if neighbours are in different warps, or if each warp holds the whole axis.
    """
    mask = _mask(shape, axis)
    in_warps = _held(layout.warps, mask)
    return min(in_warps) // math.prod(shape[axis + 1 :]) if in_warps and _is_apart(layout, mask) else 1


def scan_layout(layout: Layout, shape: tuple[int, ...], axis: int) -> Layout:
    """A layout, close to the given one, in which a scan along the axis can run."""
    if scans_within_warps(layout, shape, axis):
        return layout
    mask = _mask(shape, axis)
    if not _is_apart(layout, mask):
        return in_lanes(shape, axis, layout.num_warps)
    # Bits of the axis go from warps to registers, and bits of other axes from registers to warps in exchange.
    registers, warps = list(layout.registers), list(layout.warps)
    for at, basis in enumerate(warps):
        if basis & mask:
            warps[at] = next((r for r in reversed(registers) if r and not r & mask), 0)
            if warps[at]:
                registers.remove(warps[at])
            registers.append(basis)
    near = Layout(tuple(registers), layout.lanes, tuple(warps))
    return near if scans_within_warps(near, shape, axis) else _in_order(near, mask)


# Reductions and scans.


def _together(builder: Rewriter, values: Sequence[Value], layout: Layout) -> list[Value]:
    return [converted(builder, value, layout) for value in values]


@_LOWERINGS.of(tt.Reduce)
def _reduce(builder: Rewriter, op: tt.Reduce, operands: tuple[Value, ...]) -> Outcome:
    """A reduction: first within each warp, then of the partial results, which every warp holds by then."""
    type_ = tensor_of(operands[0])
    layout, stages = reduction_stages(layout_of(type_), type_.shape, op.axis)
    values = _together(builder, operands, layout)
    for stage in stages:
        values = [_moved(builder, value, stage) for value in values]
        if stage.layout is not None:
            values = _together(builder, values, stage.layout)
        body = builder.rewrite_body(op.combine)
        values = unpacked(builder, builder.add(tt.Reduce(values, stage.axis, body)), len(values))
    types = component_types(op.result.type)
    if isinstance(types[0], TensorType):
        values = [converted(builder, value, layout_of(t)) for value, t in zip(values, types, strict=True)]
    return repacked(builder, values)


def _moved(builder: Builder, value: Value, stage: ReductionStage) -> Value:
    """The operand of a stage: reshaped, transposed and reshaped again, where these change anything."""
    for shape, order in stage.moves:
        value = reshaped(builder, value, shape)
        if order != tuple(range(len(order))):
            value = builder.add(tt.Trans(value, order))
    return reshaped(builder, value, stage.shape)


def reshaped(builder: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    """The tensor in another shape; no element moves."""
    type_ = tensor_of(value)
    if type_.shape == shape:
        return value
    return builder.add(tt.Reshape(value, TensorType(shape, type_.element, type_.layout)))


@_LOWERINGS.of(tt.Scan)
def _scan(builder: Rewriter, op: tt.Scan, operands: tuple[Value, ...]) -> Outcome:
    """A scan within warps; if a warp holds only a run of the axis, with a scan of the last values of all runs."""
    type_ = tensor_of(operands[0])
    layout = layout_of(type_)
    run = run_of_warps(layout, type_.shape, op.axis)
    if run > 1 and all(isinstance(tensor_of(value).element, ScalarType) for value in operands):
        results = _scan_of_runs(builder, op, _together(builder, operands, layout), run)
    else:
        values = _together(builder, operands, scan_layout(layout, type_.shape, op.axis))
        results = _scanned(builder, op, values, op.axis, reverse=op.reverse)
    return repacked(
        builder, [converted(builder, value, layout_of(old.type)) for value, old in zip(results, op.values, strict=True)]
    )


def _scanned(builder: Rewriter, op: tt.Scan, values: list[Value], axis: int, *, reverse: bool) -> list[Value]:
    """The results of a scan of values along another axis."""
    body = builder.rewrite_body(op.combine)
    return unpacked(builder, builder.add(tt.Scan(values, axis, body, reverse=reverse)), len(values))


def _scan_of_runs(builder: Rewriter, op: tt.Scan, values: list[Value], run: int) -> list[Value]:
    """A scan of tensors of which each warp holds runs of `run` neighbours.

    The runs are scanned first. Then the last values of all runs, which are few, go through shared memory to the lanes
    of each warp and are scanned. From there they go to the next run, which is combined with them: by shuffles if the
    lanes of a warp hold all of them, and through shared memory otherwise.
    """
    type_, axis, reverse = tensor_of(values[0]), op.axis, op.reverse
    layout, (before, after) = layout_of(type_), (type_.shape[:axis], type_.shape[axis + 1 :])
    count = type_.shape[axis] // run
    inner = (*before, count, run, *after)
    within = scan_layout(layout, inner, axis + 1)
    values = _together(builder, tuple(reshaped(builder, value, inner) for value in values), within)
    values = _scanned(builder, op, values, axis + 1, reverse=reverse)
    lasts = _picked(builder, values, axis + 1, last=not reverse)
    outer = layout_of(lasts[0].type)
    short = in_lanes((*before, count, *after), axis, outer.num_warps)
    sums = _scanned(builder, op, _together(builder, tuple(lasts), short), axis, reverse=reverse)
    # For each run, the number of the one before it. It wraps around for the first run, which does not use it.
    number = _number_along(builder, lasts[0].type, axis)
    step = builder.add(arith.ConstantOp(1, number.type))
    mask = builder.add(arith.ConstantOp(count - 1, number.type))
    other = builder.add((arith.AddI if reverse else arith.SubI)(number, step))
    other = builder.add(arith.AndI(other, mask))
    prefixes = [
        builder.add(tt.Gather(value, other, axis))
        if is_in_lanes(value.type, axis)
        else _gathered(builder, value, other, axis)
        for value in sums
    ]
    pairs: list[Value] = []
    for prefix, value in zip(prefixes, values, strict=True):
        narrow = reshaped(builder, prefix, (*before, count, 1, *after))
        pairs.append(builder.add(tt.Join(builder.add(tt.Broadcast(narrow, value.type)), value)))
    both = _picked(builder, _scanned(builder, op, pairs, len(inner), reverse=False), len(inner), last=True)
    number = _number_along(builder, values[0].type, axis)
    first = builder.add(arith.ConstantOp(count - 1 if reverse else 0, number.type))
    alone = builder.add(arith.CmpI(number, first, arith.IntPredicate.EQ))
    both = [converted(builder, value, within) for value in both]
    selected = [builder.add(arith.Select(alone, own, new)) for own, new in zip(values, both, strict=True)]
    return [reshaped(builder, value, type_.shape) for value in selected]


def _picked(builder: Rewriter, values: list[Value], axis: int, *, last: bool) -> list[Value]:
    """The first or last values along an axis: a reduction that takes one of its two operands."""
    types = [tensor_of(value).element for value in values]
    body = builder.nested([*types, *types], scf.packed(types))
    body.add(tt.ReduceReturn(list(body.parameters[len(types) if last else 0 :][: len(types)])))
    return unpacked(builder, builder.add(tt.Reduce(values, axis, body.finish())), len(values))


def _number_along(builder: Builder, type_: Type, axis: int) -> Value:
    """For each element of a tensor, its index along an axis."""
    assert isinstance(type_, TensorType)
    flat = TensorType((type_.numel,), i32, type_.layout)
    number = reshaped(builder, builder.add(rebuilt(tt.MakeRange(0, type_.numel), (), (), (), flat)), type_.shape)
    below = math.prod(type_.shape[axis + 1 :])
    if below > 1:
        bits = builder.add(arith.ConstantOp(bits_of(below), number.type))
        number = builder.add(arith.ShrSI(number, bits))
    if math.prod(type_.shape[:axis]) > 1:
        mask = builder.add(arith.ConstantOp(type_.shape[axis] - 1, number.type))
        number = builder.add(arith.AndI(number, mask))
    return number


# Gathers and histograms.


def is_in_lanes(type_: Type, axis: int) -> bool:
    """Whether lane k of every warp holds element k along an axis, and no other: shuffles can gather from them."""
    assert isinstance(type_, TensorType)
    layout = layout_of(type_)
    lanes = tuple(1 << bit if 1 << bit < type_.numel else 0 for bit in range(LANE_BITS))
    is_alone = type_.shape[axis] == type_.numel
    return is_alone and layout.lanes == lanes and not any((*layout.registers, *layout.warps))


@_LOWERINGS.of(tt.Gather)
def _gather(builder: Builder, op: tt.Gather, operands: tuple[Value, ...]) -> Outcome:
    source, index = operands
    type_ = tensor_of(source)
    if is_in_lanes(type_, op.axis):
        return None
    if isinstance(type_.element, PtrType):
        numbers = builder.add(tt.PtrToInt(source))
        gathered = _gathered(builder, numbers, index, op.axis)
        return builder.add(tt.IntToPtr(gathered, op.result.type))
    return _gathered(builder, source, index, op.axis)


def _gathered(builder: Builder, source: Value, index: Value, axis: int) -> Value:
    type_ = tensor_of(source)
    buffer = stored(builder, source, row_major(type_.numel))
    return builder.add(gpu.LocalGather(buffer, index, axis))


@_LOWERINGS.of(tt.Histogram)
def _histogram(builder: Builder, op: tt.Histogram, operands: tuple[Value, ...]) -> Outcome:
    """A histogram: counters in shared memory, set to zero, counted up by all threads, and read."""
    result = op.result.type
    layout_of(result)
    zeros = builder.add(arith.ConstantOp(0, with_element(result, i32)))
    buffer = stored(builder, zeros, row_major(op.bins))
    builder.add(gpu.LocalAtomicAdd(buffer, *operands))
    return builder.add(gpu.LocalLoad(buffer, result))


@_LOWERINGS.of(tt.Reshape)
def _reshape(builder: Builder, op: tt.Reshape, operands: tuple[Value, ...]) -> Outcome:
    """A reshape, after a conversion to the layout of the result, which the other shape does not change."""
    (value,) = operands
    source, target = tensor_of(value), op.type
    if moved(layout_of(source), layout_of(target), source.numel) is not None:
        return None
    value = converted(builder, value, layout_of(target))
    return builder.add(tt.Reshape(value, target, allow_reorder=op.allow_reorder))


@_LOWERINGS.of(tt.Broadcast)
def _broadcast(builder: Builder, op: tt.Broadcast, operands: tuple[Value, ...]) -> Outcome:
    """A broadcast, after a conversion to the layout of the result without the new sizes."""
    (value,) = operands
    source, target = tensor_of(value), tensor_of(op.result)
    try:
        layout = layout_of(target).narrowed(target.shape, source.shape)
    except ValueError:
        # The narrow tensor would need bases that are no layout: take a detour through one that keeps the axes apart.
        order = tuple(reversed(range(len(target.shape))))
        clean = blocked(target.shape, order, 1, layout_of(target).num_warps)
        type_ = with_layout(target, clean)
        broadcast = builder.add(
            tt.Broadcast(converted(builder, value, clean.narrowed(target.shape, source.shape)), type_)
        )
        return converted(builder, broadcast, layout_of(target))
    if moved(layout_of(source), layout, source.numel) is not None:
        return None
    return builder.add(tt.Broadcast(converted(builder, value, layout), target))


# Atomics: one of the threads that hold copies does the access, and passes the result to the others.


@_LOWERINGS.of(tt.AtomicRMW, tt.AtomicCAS, tt.Wait)
def _atomic(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """Give the result to all threads that hold copies of it: one of them alone accesses memory."""
    if not op.result.uses or (isinstance(op, tt.Wait) and op.timeout is None):
        return None
    type_ = op.result.type
    copy = builder.copy(op, operands)
    if isinstance(type_, TensorType):
        layout = layout_of(type_)
        if not any(layout.free[1:]):
            return copy
        return _from_first(builder, copy, layout)
    assert isinstance(type_, ScalarType)
    # A scalar is shared as a tensor of one element, which a reduction turns back.
    single = replicated(1, scope_of(op).warps)
    shared = _from_first(builder, builder.add(tt.Splat(copy, TensorType((1,), type_, single))), single)
    inner = builder.nested([type_, type_], type_)
    inner.add(tt.ReduceReturn([inner.parameters[0]]))
    return builder.add(tt.Reduce([shared], 0, inner.finish()))


def _from_first(builder: Builder, value: Value, layout: Layout) -> Value:
    """The tensor in which all copies of an element are that of the first thread that holds it."""
    type_ = tensor_of(value)
    offsets = buffer_bases(layout, layout, type_.numel, scalar_element(type_).bytes)
    return builder.add(gpu.LocalLoad(stored(builder, value, offsets), type_))
