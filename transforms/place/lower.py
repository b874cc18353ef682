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
from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.layout import Layout, bits_of, blocked, moved, replicated
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, i32, scalar_element, with_element
from ziggurat.transforms.place.components import component_types
from ziggurat.transforms.place.queries import converted, layout_of, repacked, stored, tensor_of, unpacked, with_layout
from ziggurat.transforms.place.reduction_layouts import Stage, in_lanes, reduction_stages, run_of_warps, scan_layout
from ziggurat.transforms.place.shuffles import by_shuffles
from ziggurat.transforms.place.swizzle import buffer_bases, conversion_buffer, row_major

_LOWERINGS: OpTable[Callable[[Any, Any, tuple[Value, ...]], Outcome]] = OpTable("lowering")


def lower(module: gpu.Module) -> Op:
    """The GPU model in which conversions, reductions, scans, gathers and histograms are primitives.

    Every value keeps its type, so its uses do not change.
    """

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        lowering = _LOWERINGS.get(type(op))
        return None if lowering is None else lowering(builder, op, operands)

    made = transform(module, lowered, pass_name="lower")
    if not any(isinstance(op, gpu.ConvertLayout) for op in made.walk()):
        return made
    stmatrix = TARGETS[module.target].has_stmatrix

    def crossing(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, gpu.ConvertLayout):
            return None
        return _across(builder, operands[0], layout_of(op.type), stmatrix)

    return transform(made, crossing, pass_name="lower")


def _across(builder: Builder, value: Value, layout: Layout, stmatrix: bool) -> Value:
    """A conversion within the registers of a thread, by shuffles, or through shared memory."""
    type_ = tensor_of(value)
    source = layout_of(type_)
    if source == layout:
        return value
    size = type_.element.bytes if isinstance(type_.element, ScalarType) else 8
    if moved(source, layout, type_.numel) is not None or by_shuffles(source, layout, type_.numel, size):
        return builder.add(gpu.ConvertLayout(value, with_layout(type_, layout)))
    if isinstance(type_.element, PtrType):
        numbers = _across(builder, builder.add(tt.PtrToInt(value)), layout, stmatrix)
        return builder.add(tt.IntToPtr(numbers, with_layout(type_, layout)))
    offsets = conversion_buffer(source, layout, type_.numel, size, stmatrix)
    return builder.add(gpu.LocalLoad(stored(builder, value, offsets), with_layout(type_, layout)))


# Reductions and scans.


def _together(builder: Rewriter, values: tuple[Value, ...], layout: Layout) -> list[Value]:
    return [converted(builder, value, layout) for value in values]


@_LOWERINGS.of(tt.Reduce)
def _reduce(builder: Rewriter, op: tt.Reduce, operands: tuple[Value, ...]) -> Outcome:
    """A reduction: first within each warp, then of the partial results, which every warp holds by then."""
    type_ = tensor_of(operands[0])
    layout, stages = reduction_stages(layout_of(type_), type_.shape, op.axis)
    values = _together(builder, operands, layout)
    for stage in stages:
        values = [_staged(builder, value, stage) for value in values]
        body = builder.rewrite_body(op.combine)
        values = unpacked(builder, builder.add(tt.Reduce(values, stage.axis, body)), len(values))
    types = component_types(op.result.type)
    if isinstance(types[0], TensorType):
        values = [converted(builder, value, layout_of(t)) for value, t in zip(values, types, strict=True)]
    return repacked(builder, values)


def _staged(builder: Builder, value: Value, stage: Stage) -> Value:
    """The operand of a stage: reshaped, transposed, reshaped again and converted, where these change anything."""
    for shape, order in stage.moves:
        value = reshaped(builder, value, shape)
        if order != tuple(range(len(order))):
            value = builder.add(tt.Trans(value, order))
    value = reshaped(builder, value, stage.shape)
    return value if stage.layout is None else converted(builder, value, stage.layout)


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

    The runs are scanned first. Then the last values of all runs, which are few, go through shared memory to one warp
    and are scanned; and go through it again to the next run, which is combined with them.
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
    prefixes = [_gathered(builder, value, other, axis) for value in sums]
    pairs: list[Value] = []
    for prefix, value in zip(prefixes, values, strict=True):
        narrow = reshaped(builder, prefix, (*before, count, 1, *after))
        pairs.append(builder.add(tt.Join(builder.add(tt.Broadcast(narrow, value.type)), value)))
    both = _picked(builder, _scanned(builder, op, pairs, len(inner), reverse=False), len(inner), last=True)
    number = _number_along(builder, values[0].type, axis)
    first = builder.add(arith.ConstantOp(count - 1 if reverse else 0, number.type))
    alone = builder.add(arith.CmpI(number, first, arith.IntPredicate.EQ))
    both = [converted(builder, value, within) for value in both]
    made = [builder.add(arith.Select(alone, own, new)) for own, new in zip(values, both, strict=True)]
    return [reshaped(builder, value, type_.shape) for value in made]


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


@_LOWERINGS.of(tt.Gather)
def _gather(builder: Builder, op: tt.Gather, operands: tuple[Value, ...]) -> Outcome:
    source, index = operands
    type_ = tensor_of(source)
    if isinstance(type_.element, PtrType):
        numbers = builder.add(tt.PtrToInt(source))
        found = _gathered(builder, numbers, index, op.axis)
        return builder.add(tt.IntToPtr(found, op.result.type))
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
        wanted = layout_of(target).narrowed(target.shape, source.shape)
    except ValueError:
        # The narrow tensor would need bases that are no layout: take a detour through one that keeps the axes apart.
        order = tuple(reversed(range(len(target.shape))))
        clean = blocked(target.shape, order, 1, layout_of(target).num_warps)
        type_ = with_layout(target, clean)
        made = builder.add(tt.Broadcast(converted(builder, value, clean.narrowed(target.shape, source.shape)), type_))
        return converted(builder, made, layout_of(target))
    if moved(layout_of(source), wanted, source.numel) is not None:
        return None
    return builder.add(tt.Broadcast(converted(builder, value, wanted), target))


# Atomics: one of the threads that hold copies does the access, and passes the result to the others.


@_LOWERINGS.of(tt.AtomicRMW, tt.AtomicCAS)
def _atomic(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    if not op.result.uses:
        return None
    type_ = op.result.type
    made = builder.copy(op, operands)
    if isinstance(type_, TensorType):
        layout = layout_of(type_)
        if not any(layout.free[1:]):
            return made
        return _from_first(builder, made, layout)
    assert isinstance(type_, ScalarType)
    module = op.root()
    assert isinstance(module, gpu.Module)
    one = replicated(1, module.num_warps)
    shared = _from_first(builder, builder.add(tt.Splat(made, TensorType((1,), type_, one))), one)
    inner = builder.nested([type_, type_], type_)
    inner.add(tt.ReduceReturn([inner.parameters[0]]))
    return builder.add(tt.Reduce([shared], 0, inner.finish()))


def _from_first(builder: Builder, value: Value, layout: Layout) -> Value:
    """The tensor in which all copies of an element are that of the first thread that holds it."""
    type_ = tensor_of(value)
    offsets = buffer_bases(layout, layout, type_.numel, scalar_element(type_).bytes)
    return builder.add(gpu.LocalLoad(stored(builder, value, offsets), type_))
