"""Dots: each `tt.dot` gets the unit that computes it, and its operands go where that unit reads them.

    %9 : tensor<x128, x128, f32, L> = tt.dot %6 %7 %8;

becomes, on sm_90a,

    %9 : shared<x128, x64, f16, …> = gpu.local_alloc @alignment=1024;
    gpu.local_store %9 %6;
    …
    gpu.fence_async;
    %11 : tensor<x128, x128, f32, L> = gpu.wgmma %9 %10 %8;
    %12 : tensor<x128, x128, f32, L> = gpu.wgmma_wait %11 @0;

On other targets, for smaller tiles and for batches, it becomes a `gpu.mma` that reads such buffers (for f64, and for a
k of less than 32 bytes, a `tt.dot` whose operands are in the fragments of mma.sync), also where the tile has fewer rows
or columns than mma.sync; and if no matrix unit can do it, a `gpu.dot_fma`. `anchors` tells the layout assignment the
layouts of the accumulators, so that they stay in registers through loops; `place_dots` converts those that have others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import (
    WGMMA_COLUMNS,
    Panels,
    Shape,
    Unit,
    WarpGrid,
    accumulator,
    fragment_of,
    unit_for,
    warps_of,
    with_runs,
)
from ziggurat.codemodel.gpu.scope import WARP_GROUP
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.layout import LANE_BITS, Layout, axis_bases, bits_of, filled, inverted, moved
from ziggurat.codemodel.numbers import bits_of_number
from ziggurat.codemodel.op import Block, Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    ScalarType,
    SharedType,
    TensorType,
    bf16,
    element_bytes,
    f16,
    f32,
    scalar_element,
    shape_of,
)
from ziggurat.transforms.analysis.queries import (
    constant_of,
    converted,
    is_elementwise,
    is_shaping,
    layout_of,
    stored,
    tensor_of,
    with_layout,
)
from ziggurat.transforms.casts import cast
from ziggurat.transforms.gpu.computed_operands import OperandChoice
from ziggurat.transforms.layouts.accesses import Accesses
from ziggurat.transforms.layouts.layout_plan import Anchor, OperandLayouts, Operands, PrimaryLayouts
from ziggurat.transforms.layouts.swizzle import LINE, VECTOR, copied_bases, moves, stores_matrices
from ziggurat.transforms.layouts.tma_blocks import block_axis
from ziggurat.transforms.simplify.hoist import hoist

_ROW_BYTES = 32  # Along k, which ldmatrix and wgmma read at once.
# The type of the parts of an f32, where it is not tf32.
_PARTS = {tt.InputPrecision.BF16X3: bf16, tt.InputPrecision.BF16X6: bf16}


@attrs.frozen
class MmaChoice:
    """The unit for a dot: of the subclasses, one for each kind of unit.

    The operands are multiplied as `elements`; the accumulator has the type `accumulator` and the layout `layout`.
    `products` has the parts of f32 that are multiplied, where it is split into parts.
    """

    elements: tuple[ScalarType, ScalarType]
    accumulator: ScalarType
    layout: Layout
    products: tuple[tuple[int, int], ...] = attrs.field(default=(), kw_only=True)

    def operand(self, builder: Builder, value: Value, k_axis: int) -> Value:
        """An operand where the unit reads it: a (with k_axis 1), or b (with k_axis 0)."""
        raise NotImplementedError

    def multiplied(self, builder: Builder, a: Value, b: Value, c: Value, *, accumulate: bool) -> Value:
        """a · b + c; c is zero unless `accumulate`."""
        raise NotImplementedError


@attrs.frozen
class Fma(MmaChoice):
    """No matrix unit: the threads multiply, with both operands in shared memory."""

    def operand(self, builder: Builder, value: Value, k_axis: int) -> Value:
        type_ = tensor_of(value)
        along_k = k_axis == 1 and _is_k_major(value, k_axis)
        return stored(builder, value, (_by_depths if along_k else _by_lines)(type_, k_axis))

    def multiplied(self, builder: Builder, a: Value, b: Value, c: Value, *, accumulate: bool) -> Value:
        return builder.add(gpu.DotFma(a, b, c))


@attrs.frozen
class MmaSync(MmaChoice):
    """mma.sync, the matrix instruction of a warp. `by_rows` says that its operands are rows of 32 bytes along k, which
    may be in shared memory."""

    unit: Unit
    warps: WarpGrid
    by_rows: bool

    def operand(self, builder: Builder, value: Value, k_axis: int) -> Value:
        """a in registers if no element has to move, else in shared memory; b in shared memory, if its rows are long
        enough for it."""
        type_ = tensor_of(value)
        fragment = fragment_of(self.unit, type_.shape, self.warps, k_axis)
        stays = k_axis == 1 and block_axis(value) is None and moved(layout_of(type_), fragment, type_.numel) is not None
        if (stays and not self.warps.paired) or not self.by_rows:
            return converted(builder, value, fragment) if stays else _through_buffer(builder, value, fragment, k_axis)
        value = self.arranged(builder, value, k_axis)
        panels = _panels_for(value, k_axis, self.lines(type_.shape[-1 - k_axis], k_axis))
        offsets = panels.offsets(type_.shape, k_axis, scalar_element(type_).bytes)
        return stored(builder, value, offsets, panels.alignment)

    def placed_in(self, layout: Layout, shape: Shape) -> MmaSync:
        """The same unit as the layout of its accumulator says: for the transposed product, or with rows in pairs."""
        warps = warps_of(layout, self.unit, shape)
        if warps is None or not (warps.paired or warps.swapped):
            return self
        return attrs.evolve(self, layout=layout, warps=warps)

    def reading(self, a: Value, b: Value) -> MmaSync:
        """The same unit, with both operands in registers if they are its fragments already, have rows in pairs, or one
        has few lines that do not lie along k."""

        def is_fragment(unit: Unit, value: Value, k_axis: int) -> bool:
            return fragment_of(unit, tensor_of(value).shape, self.warps, k_axis) == layout_of(value.type)

        def is_turned(value: Value, k_axis: int) -> bool:
            return tensor_of(value).shape[-1 - k_axis] < self.unit.n and not _is_k_major(value, k_axis)

        units = with_runs(self.unit, tensor_of(b).shape[-2])
        unit = next((unit for unit in units if is_fragment(unit, a, 1) and is_fragment(unit, b, 0)), None)
        if unit is None and not self.warps.paired and not is_turned(a, 1) and not is_turned(b, 0):
            return self
        return attrs.evolve(self, unit=unit or self.unit, by_rows=False)

    def arranged(self, builder: Builder, value: Value, k_axis: int) -> Value:
        """An operand as it goes to shared memory."""
        return value

    def lines(self, count: int, k_axis: int) -> int:
        """Of the `count` lines of an operand along m or n, those that must be in one panel if its neighbours lie along
        them: all, as every warp reads its own by ldmatrix."""
        return count

    def multiplied(self, builder: Builder, a: Value, b: Value, c: Value, *, accumulate: bool) -> Value:
        in_shared = isinstance(b.type, SharedType)
        return builder.add(gpu.Mma(a, b, c) if in_shared else tt.Dot(a, b, c))


@attrs.frozen
class Wgmma(MmaSync):
    """wgmma, the matrix instruction of a warp group.

    `imprecise`, if it is not 0, is the size of the steps along k that are added in f32, as wgmma adds 8-bit floats with
    fewer bits.
    """

    imprecise: int

    def operand(self, builder: Builder, value: Value, k_axis: int) -> Value:
        """As for mma.sync; the operand whose rows are paired in threads lies in shared memory as in global memory."""
        if not self.warps.paired or self.warps.swapped != (k_axis == 0):
            return super().operand(builder, value, k_axis)
        type_ = tensor_of(value)
        size = scalar_element(type_).bytes
        panels = Panels.widest(type_.shape[-1 - k_axis] * size, k_major=False)
        assert panels is not None
        return stored(builder, value, panels.offsets(type_.shape, k_axis, size), panels.alignment)

    def reading(self, a: Value, b: Value) -> MmaSync:
        return self  # b is always in shared memory.

    def arranged(self, builder: Builder, value: Value, k_axis: int) -> Value:
        turns = scalar_element(tensor_of(value)).bytes != 2 and not _is_k_major(value, k_axis)
        return _turned(builder, value, k_axis) if turns else value

    def lines(self, count: int, k_axis: int) -> int:
        """Those that an instruction reads."""
        return 64 if k_axis == 1 else min(WGMMA_COLUMNS, count // self.warps.columns)

    def multiplied(self, builder: Builder, a: Value, b: Value, c: Value, *, accumulate: bool) -> Value:
        builder.add(gpu.FenceAsync())
        assert isinstance(b.type, SharedType)
        k = b.type.shape[0]
        parts: list[tuple[int, ...]] = [()]
        if self.warps.paired and k > self.unit.k:
            # Threads read one half while the matrix units multiply the other.
            parts = [(0, k // 2), (k // 2, k)]
        for part in parts:
            c, accumulate = builder.add(gpu.Wgmma(a, b, c, accumulate=accumulate, within=part)), True
        return builder.add(gpu.WgmmaWait(c, pending=0))


def mma_of(
    op: tt.Dot, target: str, num_warps: int, *, rows_first: bool,
    inner: Callable[[Value], int | None] = lambda value: None, swapped: bool = False, paired: bool = False,
) -> MmaChoice:  # fmt: skip
    """The unit for a dot on a target. With `rows_first`, each warp has whole rows, if there are enough rows.

    `inner` says along which axis an operand has its neighbours in memory. Operand a of wgmma may come from registers,
    so neighbours along m need no buffer in which they lie along k. If those of b lie along n, the transposed product
    has b as its first operand. With `swapped`, mma.sync computes the transposed product, `paired` with rows in pairs.
    """
    a, c = tensor_of(op.a), tensor_of(op.c)
    element, of_c = scalar_element(a), scalar_element(c)
    total = f32 if of_c == f16 else of_c
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    factors, products = (element,), ()
    if element == f32:
        precision, products = op.input_precision, op.input_precision.products
        factors = () if precision is tt.InputPrecision.IEEE else (_PARTS.get(precision, f32),)
    if element.is_fp8:
        factors = (element, f16) if TARGETS[target].has_fp8_mma else (f16,)
    for factor in factors:
        unit = unit_for(factor, (m, n, k), target)
        if unit is None:
            continue
        # The warps of a group share the rows of one wgmma, which does not suit a batch of small matrices.
        by_rows = factor.bits < 64 and unit.k * factor.bytes == _ROW_BYTES
        grouped = unit.m == 16 and m >= 64 and n >= unit.n and num_warps >= WARP_GROUP and by_rows and c.rank == 2
        wgmma = TARGETS[target].has_wgmma and grouped
        start = WarpGrid(WARP_GROUP if wgmma else 1, 1, num_warps, min(num_warps, math.prod(c.shape[:-2])))
        if wgmma and factor.bytes != 2 and not products and not rows_first:
            of_a, of_b = inner(op.a) == 0, inner(op.b) == 1 and n >= 64
            # One of two such operands takes a buffer: the smaller one.
            start = attrs.evolve(start, paired=of_a or of_b, swapped=of_b and not (of_a and m >= n))
        if not wgmma and (swapped or m < unit.m == 16) and c.rank == 2 and n >= unit.m:
            start = attrs.evolve(start, swapped=True)
        down, across = (n, m) if start.swapped else (m, n)
        warps = _divided(unit, down, across, start, rows_first=wgmma or rows_first)
        if warps.swapped and paired and factor.bytes == 2 and warps.columns == 1:
            warps = attrs.evolve(warps, paired=True)
        layout = accumulator(unit, c.shape, warps)
        elements = (factor, scalar_element(op.b.type) if factor.bits == 8 else factor)
        if not wgmma:
            return MmaSync(elements, total, layout, unit, warps, by_rows, products=products)
        # 0 where the products along k may all be added at once; else a multiple of the k of an instruction.
        steps = op.max_num_imprecise_acc if factor.is_fp8 and op.max_num_imprecise_acc <= k else 0
        steps = max(unit.k, steps // unit.k * unit.k) if steps else 0
        return Wgmma(elements, total, layout, unit, warps, by_rows, steps, products=products)
    return Fma((total, total), total, fma_layout(c.shape, num_warps))


def _divided(unit: Unit, m: int, n: int, warps: WarpGrid, *, rows_first: bool) -> WarpGrid:
    """Share a tile among the warps, until each has the smallest tile: as square as possible, or with all columns."""
    rows, columns = warps.rows, warps.columns
    while rows * columns * warps.batches < warps.count:
        down, across = m // rows > unit.m, n // columns > unit.n
        if down and (rows_first or not across or m // rows >= n // columns):
            rows *= 2
        elif across:
            columns *= 2
        else:
            break
    return attrs.evolve(warps, rows=rows, columns=columns)


def fma_layout(shape: tuple[int, ...], num_warps: int) -> Layout:
    """A layout of an accumulator without matrix units: each thread has blocks of up to 4 × 4 neighbours."""
    *batch, down, across = (axis_bases(shape, axis) for axis in range(len(shape)))
    spare = max(0, sum(map(bits_of, shape)) - LANE_BITS - bits_of(num_warps))
    of_n = min(2, len(across), (spare + 1) // 2)
    of_m = min(2, len(down), spare - of_n)
    threads = [*across[of_n : of_n + 3], *down[of_m:], *across[of_n + 3 :], *chain(*reversed(batch))]
    return filled([*across[:of_n], *down[:of_m]], threads, num_warps)


def anchors(module: Op, target: str, num_warps: int) -> Anchor:
    """The layout of the result of each dot of a module, for the layout assignment; None for other ops."""
    rows_first = is_chained(module)

    def anchor(op: Op, accesses: Accesses) -> Layout | None:
        if not isinstance(op, tt.Dot):
            return None
        swapped = not rows_first and _is_only_b_widened(op, num_warps)
        return mma_of(
            op, target, num_warps, rows_first=rows_first, inner=partial(block_axis, accesses=accesses),
            swapped=swapped, paired=swapped and _axis_of_bytes(op.b, accesses, {}) == 1,
        ).layout  # fmt: skip

    return anchor


def _is_only_b_widened(dot: tt.Dot, num_warps: int) -> bool:
    """Whether threads compute b from narrower elements, and a is loaded as it is multiplied.

    Then b is better the first operand of mma.sync, of which two rows alternate in a thread's registers: numbers may be
    computed to any registers, while vectors of a would have to be moved there.
    """

    def sources(value: Value) -> Sequence[Value]:
        op = value.op
        passes = op is not None and (is_elementwise(op) or is_shaping(op) or isinstance(op, tt.Join))
        return op.operands if op is not None and passes else ()

    a, tensors = dot.a, [value for value in reached([dot.b], sources) if isinstance(value.op, tt.Load)]
    while isinstance(a.op, tt.Trans):
        a = a.op.value
    loads = [tensor_of(value) for value in tensors if math.prod(shape_of(value.type)) > 32 * num_warps]
    size = element_bytes(dot.b.type)
    return isinstance(a.op, tt.Load) and any(element_bytes(type_) < size for type_ in loads)


def _axis_of_bytes(value: Value, accesses: Accesses, axes: dict[Value, int | None]) -> int | None:
    """The axis along which bytes that an operand is computed from have their neighbours in memory; None for others.

    `axes` has those of values that were seen."""
    op = value.op
    if value not in axes and op is not None:
        axes[value] = None
        if isinstance(op, tt.Load) and element_bytes(value.type) == 1 and accesses.vector(op) > 1:
            axes[value] = accesses.order(op)[0]
        elif isinstance(op, tt.Trans):
            inner = _axis_of_bytes(op.value, accesses, axes)
            axes[value] = None if inner is None else list(op.order).index(inner)
        elif is_elementwise(op):
            inner_axes = (_axis_of_bytes(operand, accesses, axes) for operand in op.operands)
            axes[value] = next((axis for axis in inner_axes if axis is not None), None)
    return axes.get(value)


def operands_of_dots(module: Op, target: str, num_warps: int) -> Operands:
    """The layouts of the operands of each dot of a module, for the layout assignment; None where mma.sync does not
    read them from the registers of the threads that compute them."""
    rows_first = is_chained(module)

    def operands(dot: tt.Dot, plan: PrimaryLayouts) -> OperandLayouts | None:
        mma = mma_of(dot, target, num_warps, rows_first=rows_first)
        if isinstance(mma, Wgmma) or not isinstance(mma, MmaSync) or mma.products:
            return None
        layout = plan.of((dot.result, 0))
        assert layout is not None
        mma = mma.placed_in(layout, tensor_of(dot.c).shape)
        return OperandChoice(dot, mma.elements, mma.warps, plan).best(
            mma.unit, by_rows=mma.by_rows and not mma.warps.paired
        )

    return operands


def place_dots(module: gpu.Module) -> Op:
    """The GPU model in which each dot can be emitted, with its operands where its unit reads them.

    Every value keeps its type, so its uses do not change.
    """
    if not module.holds(tt.Dot):
        return module
    rows_first = is_chained(module)

    def placed(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Dot):
            return None
        mma = mma_of(op, module.target, module.num_warps, rows_first=rows_first)
        a, b, c = operands
        if isinstance(mma, MmaSync):
            mma = mma.placed_in(layout_of(op.result.type), tensor_of(op.c).shape)
            mma = mma.reading(a, b)
        start = None
        if not isinstance(mma, Wgmma) or constant_of(op.c) != 0:
            start = cast(builder, converted(builder, c, mma.layout), mma.accumulator)
        total = TensorType(tensor_of(c).shape, mma.accumulator, mma.layout)
        if mma.products:
            result = _in_parts(builder, mma, a, b, start, total)
        else:
            a, b = cast(builder, a, mma.elements[0]), cast(builder, b, mma.elements[1])
            if mma.elements[0] == f32 and not isinstance(mma, Fma):
                a, b = (
                    new if _is_copied(old, k_axis, op, mma) or is_tf32(old) else builder.add(gpu.RoundTf32(new))
                    for old, new, k_axis in ((op.a, a, 1), (op.b, b, 0))
                )
            a, b = mma.operand(builder, a, 1), mma.operand(builder, b, 0)
            if isinstance(mma, Wgmma) and mma.imprecise:
                result = _in_steps(builder, mma, a, b, start, total)
            else:
                result = _multiplied(builder, mma, a, b, start, total)
        return converted(builder, cast(builder, result, scalar_element(tensor_of(c))), layout_of(op.result.type))

    return hoist(transform(module, placed, pass_name="dots"), _invariant_stores)


def _invariant_stores(loop: scf.For | scf.While) -> list[Op]:
    """The buffers of a loop's body, and the stores, that are filled once, with a value from before the loop, and the
    roundings of such values. Those in branches are among them.

    All iterations share such an operand: attention's queries, for example.
    """
    if isinstance(loop, scf.While):
        return []
    ops = [*_with_branches(loop.body.entry)]
    inside = {*loop.body.entry.parameters, *(op.result for op in ops)}
    roundings: list[Op] = [op for op in ops if isinstance(op, gpu.RoundTf32) and op.value not in inside]
    stores: list[Op] = [
        op
        for store in ops
        if isinstance(store, gpu.LocalStore)
        and store.value not in inside
        and isinstance(store.buffer.op, gpu.LocalAlloc)
        and store.buffer in inside
        and not any(isinstance(user, gpu.LocalStore) and user is not store for user in store.buffer.uses)
        for op in (store.buffer.op, store)
    ]
    return roundings + stores


def _with_branches(block: Block) -> Iterator[Op]:
    """The ops of a block and those in its branches; not those in loops."""
    for op in block.ops:
        yield op
        if isinstance(op, scf.If):
            for body in op.bodies:
                yield from _with_branches(body.entry)


def _in_parts(builder: Builder, mma: MmaChoice, a: Value, b: Value, start: Value | None, total: TensorType) -> Value:
    """a · b of f32 as dots of tf32 or bf16: what rounding an operand leaves is a part of it, too."""
    count = 1 + max(max(pair) for pair in mma.products)
    parts = [_parts(builder, value, mma.elements[0], count) for value in (a, b)]
    of_a = [mma.operand(builder, value, 1) for value in parts[0]]
    of_b = [mma.operand(builder, value, 0) for value in parts[1]]
    *smaller, (i, j) = mma.products
    small: Value | None = None
    for first, second in smaller:
        small = _multiplied(builder, mma, of_a[first], of_b[second], small, total)
    assert small is not None
    # What rounding leaves of an infinity is a NaN: then the dot of the first parts alone is right.
    zero = builder.add(arith.ConstantOp(0.0, total))
    ordered = builder.add(arith.CmpF(small, small, arith.FloatPredicate.OEQ))
    small = builder.add(arith.Select(ordered, small, zero))
    if start is not None:
        small = builder.add(arith.AddF(start, small))
    return _multiplied(builder, mma, of_a[i], of_b[j], small, total)


def _in_steps(builder: Builder, mma: Wgmma, a: Value, b: Value, start: Value | None, total: TensorType) -> Value:
    """a · b + c by wgmma in steps along k, which are added in f32."""
    assert isinstance(b.type, SharedType)
    k, accumulator = b.type.shape[0], start
    zero = builder.add(arith.ConstantOp(0.0, total))
    for first in range(0, k, mma.imprecise):
        within = (first, min(k, first + mma.imprecise))
        builder.add(gpu.FenceAsync())
        begun = builder.add(gpu.Wgmma(a, b, zero, accumulate=False, within=within))
        step = builder.add(gpu.WgmmaWait(begun, pending=0))
        accumulator = step if accumulator is None else builder.add(arith.AddF(accumulator, step))
    assert accumulator is not None
    return accumulator


def _parts(builder: Builder, value: Value, element: ScalarType, count: int) -> list[Value]:
    """Numbers of f32 as `count` parts of an element type (tf32, of f32): each is what the ones before it leave."""
    parts: list[Value] = []
    for _ in range(count):
        parts.append(builder.add(gpu.RoundTf32(value)) if element == f32 else cast(builder, value, element))
        value = builder.add(arith.SubF(value, cast(builder, parts[-1], f32)))
    return parts


def _multiplied(builder: Builder, mma: MmaChoice, a: Value, b: Value, c: Value | None, total: TensorType) -> Value:
    """a · b + c by the chosen unit; without c, from zero."""
    accumulate = c is not None
    if c is None:
        c = builder.add(arith.ConstantOp(0.0 if mma.accumulator.is_float else 0, total))
    return mma.multiplied(builder, a, b, c, accumulate=accumulate)


def _panels_for(value: Value, k_axis: int, per_instruction: int) -> Panels:
    """The form of an operand, or a batch, in shared memory: neighbours in a thread or in a descriptor's block are
    neighbours in the buffer, but threads store what they compute in the form that takes fewer cycles. Only elements of
    16 bits may have their neighbours along m or n."""
    type_ = tensor_of(value)
    first, size, source = type_.rank - 2, scalar_element(type_).bytes, value
    while isinstance(source.op, tt.Trans):
        source = source.op.value
    is_loaded = isinstance(source.op, tt.Load | tt.DescriptorLoad)
    forms = [True] if size != 2 else [False, True]
    if _is_k_major(value, k_axis):
        forms = [True] if is_loaded else forms[::-1]
    bytes_ = {True: type_.shape[first + k_axis] * size, False: per_instruction * size}
    panels = [each for form in forms if (each := Panels.widest(bytes_[form], k_major=form)) is not None]
    if is_loaded:
        return panels[0]  # k is long enough for the narrowest.
    layout = layout_of(type_)
    return min(
        panels,
        key=lambda each: moves(layout, each.offsets(type_.shape, k_axis, size), size, stores_matrices(layout)).cost,
    )


def _is_k_major(value: Value, k_axis: int) -> bool:
    """Whether an operand has its neighbours along k, in a descriptor's block or in a thread."""
    type_ = tensor_of(value)
    inner, first = block_axis(value), type_.rank - 2
    if inner is not None:
        return inner == first + k_axis
    layout = layout_of(type_)
    contiguous_sizes = [layout.contiguous(type_.shape, first + axis) for axis in (0, 1)]
    if (
        contiguous_sizes[0] == contiguous_sizes[1] and scalar_element(type_).bytes == 2
    ):  # Elements of 16 bits may lie as the lanes hold them.
        return not layout.lanes[0] or layout.lanes[0] in axis_bases(type_.shape, first + k_axis)
    return contiguous_sizes[k_axis] >= contiguous_sizes[1 - k_axis]


def _turned(builder: Builder, value: Value, k_axis: int) -> Value:
    """An operand with neighbours along m or n, by way of a buffer, in a layout in which a thread holds words along k.

    A thread reads 16 bytes of each of as many rows as elements fit in a word. Lanes that differ along k read other
    banks, by the swizzle of the buffer, and write the words of one row. In a loop, `copies` fills the buffer.
    """
    type_ = tensor_of(value)
    size, num_warps = scalar_element(type_).bytes, layout_of(type_).num_warps
    k, other = axis_bases(type_.shape, k_axis), axis_bases(type_.shape, 1 - k_axis)
    panels = Panels.widest(type_.shape[1 - k_axis] * size, k_major=False)
    if size == 1 and panels is not None:
        # By ldmatrix and stmatrix: rows 8 apart go to other banks, as half of the lanes have the odd row first.
        lanes = [*k[2:4], *other[1:3], other[3] ^ other[0]]
        layout = filled([*k[:2], other[0], k[4]], [*lanes, *other[4:], *k[5:]], num_warps)
        buffer = stored(builder, value, panels.offsets(type_.shape, k_axis, size), panels.alignment)
        return builder.add(gpu.LocalLoad(buffer, TensorType(type_.shape, type_.element, layout)))
    run, word = bits_of(VECTOR // size), bits_of(4 // size)
    layout = filled([*other[:run], *k[:word]], [*k[word:], *other[run:]], num_warps)
    places = dict(zip(other, (1 << bit for bit in range(len(other))), strict=True))
    for bit, basis in enumerate(k):
        chunk = run + bit - word
        swizzle = 1 << chunk if word <= bit < word + 3 and chunk < len(other) else 0
        places[basis] = 1 << len(other) + bit | swizzle
    buffer = stored(builder, value, inverted(tuple(places[1 << bit] for bit in range(len(places)))))
    return builder.add(gpu.LocalLoad(buffer, TensorType(type_.shape, type_.element, layout)))


def _through_buffer(builder: Builder, value: Value, layout: Layout, k_axis: int) -> Value:
    """An operand in a layout; one that is loaded goes through a buffer of the model, which copies may fill."""
    type_, own = tensor_of(value), layout_of(value.type)
    if own == layout or not isinstance(value.op, tt.Load):
        return converted(builder, value, layout)
    size, vector = scalar_element(type_).bytes, own.registers[: bits_of(value.op.width)]
    choices = (copied_bases(own, layout, type_.numel, size, value.op.width), _by_fours(type_, k_axis))
    offsets = min(
        (choice for choice in choices if choice[: len(vector)] == vector),
        key=lambda choice: moves(layout, choice, size, True).cost,
    )
    return builder.add(gpu.LocalLoad(stored(builder, value, offsets), with_layout(type_, layout)))


def _by_fours(type_: TensorType, k_axis: int) -> tuple[int, ...]:
    """The offsets of a buffer of an operand that keeps its neighbours.

    Neighbouring lanes read four elements along k of neighbouring lines, so fours are swizzled within a line of the
    banks.
    """
    lines, deep, batch = _bases_of(type_, k_axis)
    along, across = (deep, lines) if deep[:1] == list(layout_of(type_).registers[:1]) else (lines, deep)
    return _swizzled(along, across, along[2 : bits_of(LINE // scalar_element(type_).bytes)], batch)


def _by_lines(type_: TensorType, k_axis: int) -> tuple[int, ...]:
    """The offsets of a buffer of an operand with neighbours along m or n, because neighbouring threads read its lines.

    Vectors of them are swizzled within a line of the banks, because neighbouring threads may write along k.
    """
    lines, deep, batch = _bases_of(type_, k_axis)
    size = scalar_element(type_).bytes
    vectors = lines[bits_of(VECTOR // size) : bits_of(LINE // size)]
    return _swizzled(lines, deep, vectors[::-1], batch)


def _by_depths(type_: TensorType, k_axis: int) -> tuple[int, ...]:
    """The offsets of a buffer of an operand that has its neighbours along k, and keeps them.

    Threads read vectors along k, of lines that lie four apart, so vectors of these lines are swizzled.
    """
    lines, deep, batch = _bases_of(type_, k_axis)
    vectors = deep[bits_of(VECTOR // scalar_element(type_).bytes) :]
    return _swizzled([*deep, *lines[:2]], lines[2:], vectors, batch)


def _swizzled(
    along: Sequence[int], across: Sequence[int], groups: Sequence[int], batch: Sequence[int]
) -> tuple[int, ...]:
    """Offsets with the bases `along` in order, then those `across`, of which each of the first moves a group."""
    moving = [basis ^ group for basis, group in zip(across, groups, strict=False)]
    return (*along, *moving, *across[len(moving) :], *batch)


def _bases_of(type_: TensorType, k_axis: int) -> tuple[list[int], list[int], list[int]]:
    """The bases of an operand's lines, along m or n, of its depths along k, and of its batch."""
    *batch, down, across = (list(axis_bases(type_.shape, axis)) for axis in range(type_.rank))
    lines, deep = (down, across) if k_axis == 1 else (across, down)
    return lines, deep, [*chain(*reversed(batch))]


def is_chained(module: Op) -> bool:
    """Whether the first operand of a dot comes from another dot, so that each warp should have whole rows of both."""

    def sources(value: Value) -> Sequence[Value]:
        if not isinstance(value, OpResult) or isinstance(value.op, tt.Load | tt.DescriptorLoad | tt.Dot):
            return ()
        return value.op.operands

    dots = reached((op.a for op in module.walk() if isinstance(op, tt.Dot)), sources)
    return any(isinstance(value.op, tt.Dot) for value in dots)


# Ops whose result is one of their operands, but for its sign or its place.
_KEEPS_DIGITS = (
    arith.NegF, maths.AbsF, arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF, tt.Join, tt.Cat, tt.Gather,
    gpu.ConvertLayout,
)  # fmt: skip


def is_tf32(value: Value) -> bool:
    """Whether all numbers of an f32 are certain to have at most the 10 mantissa bits that the matrix units read."""
    op = value.op
    if op is None:
        return False
    number = constant_of(value)
    if isinstance(number, float):
        return not bits_of_number(number, f32) & 0x1FFF
    if isinstance(op, arith.ExtF):
        return scalar_element(op.operand.type).bits <= 16
    if isinstance(op, arith.SIToFP | arith.UIToFP):
        return scalar_element(op.operand.type).bits <= 8
    if isinstance(op, arith.Select):
        return is_tf32(op.then) and is_tf32(op.otherwise)
    if is_shaping(op) or isinstance(op, _KEEPS_DIGITS):
        return all(is_tf32(operand) for operand in op.operands if scalar_element(operand.type) == f32)
    return False


def _is_copied(value: Value, k_axis: int, dot: tt.Dot, mma: MmaChoice) -> bool:
    """Whether an operand of f32 can be copied from global memory to where the matrix units read it, without registers.

    Then it is not rounded to tf32: the matrix units read the upper bits. The loop is several times as fast.
    """
    # Threads that copy across k copy 4 bytes at a time, to a line of the buffer each.
    copies_rows = isinstance(mma, Wgmma) or (isinstance(mma, MmaSync) and _is_k_major(value, k_axis))
    while isinstance(value.op, tt.Trans | gpu.ConvertLayout):
        value = value.op.value
    is_load = isinstance(value.op, tt.Load | tt.DescriptorLoad)
    return copies_rows and is_load and isinstance(dot.parent_op, scf.For) and value.block is dot.parent
