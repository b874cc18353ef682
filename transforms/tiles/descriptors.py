"""Tensor descriptors as pointers: for targets without TMA, and for accesses that TMA does not do.

    %5 : descriptor<x64, x64, f16> =               (the base, the sizes and the strides themselves)
        tt.make_tensor_descriptor %0 %1 %2 %3 %4;
    %8 : tensor<x64, x64, f16> =                   %20 : ptr<f16> = tt.addptr %0 %19;      base + Σ offset · stride
        tt.descriptor_load %5 %6 %7;               …                                       + Σ range · stride
                                                   %31 : tensor<x64, x64, f16> = tt.load %28 %30 %29;

Scalars are added before ranges, so that only one pointer changes in a loop. An element is inside if its index is below
the size as an unsigned number: then it is neither negative nor too large, even if the i32 sum wrapped around.

A descriptor parameter of a kernel becomes its base, sizes and strides, except for the last stride, which is 1. For the
accesses that TMA does (`tma`), which do not change, it becomes the tensor map. A descriptor that a loop, a branch or a
block carries becomes its parts as well; before `tma` decides, those that the kernel makes are made anew from these. The
base and the strides of a descriptor are multiples of 16 bytes: a launch checks it for parameters, and kernels may not
make others. If the rows are too (`zg.divisible`), 16 bytes of a row are inside together, or outside.

TMA stores only to rows that are multiples of 16 bytes. Where these are not known to be, the kernel finds out:

                                                %14 : i1 = arith.cmpi … @eq;            columns · bytes % 16 == 0
    tt.descriptor_store %5 %9 %6 %7;            scf.if %14 ()void -> {
                                                    tt.descriptor_store %5 %9 %6 %7;
                                                } ()void -> {
                                                    scf.for …            parts of the block: tt.gather, tt.store
                                                };
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.dialects.tt import Padding
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import BlockParameter, Body, Op, Successor, Value, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    TensorType,
    Type,
    component_types,
    i1,
    i32,
    i64,
    scalar_element,
    shape_of,
    u32,
    void,
)
from ziggurat.transforms.analysis.components import groups_of
from ziggurat.transforms.analysis.queries import (
    constant_of,
    descriptor_of,
    function_of,
    is_contiguous,
    repacked,
    tensor_of,
    unpacked,
)
from ziggurat.transforms.simplify import dce

_UNIT = 16  # Bytes: the base and the strides of a descriptor are multiples of this.
_PARTS = 8  # The iterations of a store in parts.
_NONE: Mapping[Value, bool] = {}


def lower_descriptors(
    module: core.Module, keeps: Mapping[Value, bool] = _NONE, disjoint: tuple[int, ...] = (),
    shared: Mapping[Value, int] = _NONE,
) -> core.Module:  # fmt: skip
    """The prepared module with pointers instead of descriptors, except for the accesses whose results `keeps` has.

    Those go through descriptors that are parameters of the kernel, or that ops of it make. A parameter becomes the
    tensor map, if an access is kept, and the base, sizes and strides, if one is not; `parts` of the function says which
    parameter is what. A store for which `keeps` has true is kept where the rows of the tensor are multiples of 16
    bytes. `disjoint` becomes an attribute of the function. The blocks of the descriptors in `shared` are loaded in
    parts.
    """
    func = function_of(module)
    makes = func.holds(tt.MakeTensorDescriptor)
    if not makes and not _has_descriptor(func.body.parameters):
        return module
    maps: dict[Value, Value] = {}  # The tensor map of a parameter, for the accesses that are kept.

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        match op:
            case tt.Func():
                return _function(builder, op, keeps, disjoint, maps, shared)
            case cf.Br() | cf.CondBr() if any(_has_descriptor(s.arguments) for s in op.successors):
                blocks = builder.mapping.blocks
                successors = [
                    Successor(blocks[s.block], _parts([builder[v] for v in s.arguments])) for s in op.successors
                ]
                return builder.add(rebuilt(op, operands, (), successors))
            case tt.MakeTensorDescriptor():
                return _with_hints(builder, op, operands, shared.get(op.result, 1))
            case tt.DescriptorLoad() | tt.DescriptorStore() | tt.DescriptorReduce() if op.result in keeps:
                operands = (maps.get(op.descriptor, operands[0]), *operands[1:])
                if keeps[op.result]:
                    return _store_to_whole_rows(builder, expect(op, tt.DescriptorStore), operands)
                return builder.copy(op, operands)
            case tt.DescriptorLoad() | tt.DescriptorGather():
                return _load(builder, op, operands)
            case tt.DescriptorStore() | tt.DescriptorScatter():
                pointers, inside = _address(builder, _maker(operands[0]), operands[2:])
                value = operands[1]
                if isinstance(op, tt.DescriptorStore):
                    value = _reshaped(builder, value, shape_of(inside.type))
                builder.add(tt.Store(pointers, value, inside))
                return DROP
            case tt.DescriptorReduce():
                pointers, inside = _address(builder, _maker(operands[0]), operands[2:])
                builder.add(tt.AtomicRMW(pointers, operands[1], inside, kind=op.kind, sem=tt.MemSemantic.RELAXED))
                return DROP
            case tt.DescriptorPadding():
                return builder.add(tt.DescriptorPadding(_maker(operands[0]).result, operands[1]))
            case tt.DescriptorSize():
                return _maker(operands[0]).shape[op.axis]
            case tt.DescriptorStride():
                return _maker(operands[0]).strides[op.axis]
            case _:
                return _in_parts(builder, op, operands)

    return expect(dce(transform(module, lowered, pass_name="descriptors")), core.Module)


def make_chosen(module: core.Module) -> core.Module:
    """The prepared module in which each descriptor that control flow passes on is made after that, from its parts.

    Then TMA can have a tensor map for it. A module in which some are parameters of the kernel does not change.
    """
    (func,) = module.functions().values()
    groups = groups_of(func)
    chosen = [(value, at) for value, at in groups if isinstance(component_types(value.type)[at], DescriptorType)]
    sources = {source for component in chosen for _, source in groups[component].sources}
    if not chosen or not all(s in groups or isinstance(s[0].op, tt.MakeTensorDescriptor) for s in sources):
        return module
    if any(op.jumps for op in func.walk()):
        return module
    rewritten = transform(module, _in_parts, pass_name="descriptors")
    assert isinstance(rewritten, core.Module)
    return rewritten


def _in_parts(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """Control flow that passes on the parts of descriptors."""
    match op:
        case Structured() if any(isinstance(type_, DescriptorType) for type_ in op.value_types):
            return _structured(builder, op, operands)
        case scf.Yield() | scf.Condition() if _has_descriptor(op.handed):
            return builder.add(op.SPEC.make(_parts(operands), (), {}, (), op.result.type))
        case core.TupleLoad() if isinstance(maker := operands[0].op, core.MakeTuple):
            return maker.operands[op.index]
        case _:
            return None


def _has_descriptor(values: Sequence[Value]) -> bool:
    return any(isinstance(value.type, DescriptorType) for value in values)


def _expanded(types: Iterable[Type]) -> list[Type]:
    """The types, with each descriptor replaced by the types of its parts."""
    parts: list[Type] = []
    for type_ in types:
        if isinstance(type_, DescriptorType):
            rank = len(type_.block)
            parts += [PtrType(type_.element), *[i32] * rank, *[i64] * rank, *[i1] * (type_.padding == "either")]
        else:
            parts.append(type_)
    return parts


def _maker(value: Value) -> tt.MakeTensorDescriptor:
    """The op that makes a descriptor of the new model, whose padding may be replaced."""
    if isinstance(value.op, tt.DescriptorPadding):
        value = value.op.descriptor
    return expect(value.op, tt.MakeTensorDescriptor)


def _chosen_padding(value: Value) -> list[Value]:
    """Whether a descriptor of the new model pads with NaN, if that is chosen at run time; otherwise nothing."""
    return [value.op.nan] if isinstance(value.op, tt.DescriptorPadding) else []


def _parts(values: Sequence[Value]) -> list[Value]:
    """The values, with each descriptor replaced by its parts."""
    results: list[Value] = []
    for value in values:
        parts = isinstance(value.type, DescriptorType) and [*_maker(value).operands, *_chosen_padding(value)]
        results += parts or [value]
    return results


def _joined(builder: Builder, types: Iterable[Type], parts: Iterable[Value]) -> list[Value]:
    """Values of these types: the inverse of `_parts`."""
    values: list[Value] = []
    rest = iter(parts)
    for type_ in types:
        if isinstance(type_, DescriptorType):
            base, *sizes = islice(rest, 1 + 2 * len(type_.block))
            rank = len(type_.block)
            padding = Padding.NAN if type_.padding == "nan" else Padding.ZERO
            type_with_padding = attrs.evolve(type_, padding=padding.value)
            op: Op = tt.MakeTensorDescriptor(base, sizes[:rank], sizes[rank:], type_with_padding, padding=padding)
            if type_.padding == "either":
                op = tt.DescriptorPadding(builder.add(op), next(rest))
            values.append(builder.add(op))
        else:
            values.append(next(rest))
    return values


def _function(
    builder: Rewriter, op: tt.Func, keeps: Mapping[Value, bool], disjoint: tuple[int, ...], maps: dict[Value, Value],
    shared: Mapping[Value, int],
) -> Outcome:  # fmt: skip
    """The function with parts for parameters. `maps` gets the tensor maps."""
    old = op.body
    divisors: Sequence[int] = op.divisibility or (1,) * len(old.parameters)
    columns = [
        _columns(parameter, divisor, keeps, shared.get(parameter, 1))
        for parameter, divisor in zip(old.parameters, divisors, strict=True)
    ]
    for column, part in zip(columns, op.parts, strict=False):
        column[:] = [(part, type_, divisor) for _, type_, divisor in column]
    new = [column for mine in columns for column in mine]
    inner = builder.inside([type_ for _, type_, _ in new], old.yield_type, isolated=True)
    inner.location = op.location
    parameters = iter(inner.parameters)
    for parameter, mine in zip(old.parameters, columns, strict=True):
        arguments: list[Value] = list(islice(parameters, len(mine)))
        if mine[0][0].endswith(".map"):
            maps[parameter] = inner[parameter] = arguments.pop(0)
        if len(arguments) > 1:
            arguments.append(inner.add(arith.ConstantOp(1, i64)))
        if arguments:
            (inner[parameter],) = _joined(inner, [parameter.type], arguments)
    for block in old.blocks[1:]:
        inner.mapping.blocks[block] = inner.new_block(_expanded(parameter.type for parameter in block.parameters))
    for block in old.blocks:
        if block is not old.entry:
            inner.move_to(inner.mapping.blocks[block])
            _map_parameters(inner, block.parameters)
        inner.rewrite_ops(block.ops)
    parts = tuple(part for part, _, _ in new)
    divisibility = tuple(divisor for _, _, divisor in new)
    divisibility = divisibility if any(number > 1 for number in divisibility) else ()
    numbers = [parameter.index for parameter, mine in zip(old.parameters, columns, strict=True) for _ in mine]
    small = tuple(at for at, number in enumerate(numbers) if number in op.small)
    parts = parts if op.parts or any("." in part for part in parts) else ()
    function = op.evolve(body=inner.finish(), divisibility=divisibility, small=small, parts=parts, disjoint=disjoint)
    return builder.add(function, op.location)


def _columns(
    parameter: BlockParameter, divisor: int, keeps: Mapping[Value, bool], parts: int
) -> list[tuple[str, Type, int]]:
    """The parameters that replace one: for each of them the part, the type, the divisibility."""
    number, type_ = parameter.index, parameter.type
    if not isinstance(type_, DescriptorType):
        return [(str(number), type_, divisor)]
    if type_.padding == "either":
        raise KernelTypeError(f"a descriptor that a kernel takes must be padded with zeros or with NaN; got {type_}")
    through_map = [user.result in keeps for user in parameter.uses]
    columns: list[tuple[str, Type, int]] = []
    if any(through_map) or not through_map:
        columns.append((f"{number}.map", attrs.evolve(type_, parts=parts), 1))
    if not all(through_map):
        # The host has checked that the base and all strides but the last are multiples of 16 bytes. A known divisor
        # of the bytes of a row is one of the last size.
        rank, size = len(type_.block), type_.element.bytes
        row, even = max(1, divisor // size), max(1, _UNIT // size)
        columns.append((f"{number}.base", PtrType(type_.element), _UNIT))
        columns += [(f"{number}.shape{axis}", i32, row if axis == rank - 1 else 1) for axis in range(rank)]
        columns += [(f"{number}.stride{axis}", i64, even) for axis in range(rank - 1)]
    return columns


def _map_parameters(inner: Rewriter, old: Sequence[BlockParameter]) -> None:
    """Map the parameters of an old block to those of the block that `inner` writes, which takes their parts."""
    values = _joined(inner, [parameter.type for parameter in old], inner.parameters)
    inner.mapping.values.update(zip(old, values, strict=True))


def _structured(builder: Rewriter, op: Structured, operands: tuple[Value, ...]) -> Outcome:
    """A loop or a branch that takes and yields descriptors in parts. Several results become a Tuple again, whose
    components later uses take directly."""
    parts = _expanded(op.value_types)
    bodies: list[Body] = []
    for body in op.bodies:
        inner = builder.inside(_expanded(parameter.type for parameter in body.parameters), scf.packed(parts))
        _map_parameters(inner, body.parameters)
        inner.rewrite_ops(body.entry.ops)
        bodies.append(inner.finish())
    result = builder.add(op.SPEC.make(_parts(operands), (), dict(op.attributes), bodies, scf.packed(parts)))
    values = _joined(builder, op.value_types, unpacked(builder, result, len(parts)))
    return repacked(builder, values)


def _with_hints(builder: Builder, op: tt.MakeTensorDescriptor, operands: Sequence[Value], parts: int) -> Outcome:
    """The descriptor, with hints about its base, its strides, and the length of rows that are as long as they are
    apart: multiples of 16 bytes."""
    base, *numbers = operands
    type_, rank = attrs.evolve(descriptor_of(op.result), parts=parts), len(op.shape)
    hinted = [rank + axis for axis in range(rank - 1)] + [rank - 1] * is_contiguous(op)
    for at in hinted if type_.element.bytes < _UNIT else ():
        if constant_of(numbers[at]) is None:
            numbers[at] = builder.add(tt.MultipleOf(numbers[at], (_UNIT // type_.element.bytes,)))
    base = builder.add(tt.MultipleOf(base, (_UNIT,)))
    return builder.add(
        tt.MakeTensorDescriptor(
            base, numbers[:rank], numbers[rank:], type_, padding=Padding(type_.padding), at_launch=op.at_launch
        )
    )


# The accesses.


def _spread(builder: Builder, value: Value, axis: int, block: tuple[int, ...]) -> Value:
    """A tensor of one axis, broadcast along the other axes of the block."""
    type_ = tensor_of(value)
    for at in range(len(block)):
        if at != axis:
            value = builder.add(tt.ExpandDims(value, at))
    wide = TensorType(block, type_.element)
    return value if value.type == wide else builder.add(tt.Broadcast(value, wide))


def _address(builder: Builder, maker: tt.MakeTensorDescriptor, offsets: Sequence[Value]) -> tuple[Value, Value]:
    """The pointers to the elements of a block, and the mask of those that are inside of the tensor.

    `offsets` has the first index of the block along each axis, or a tensor of all its indices along the axis.
    """
    type_ = descriptor_of(maker.result)
    rows = [tensor_of(offset).numel if isinstance(offset.type, TensorType) else 1 for offset in offsets]
    block = tuple(map(operator.mul, type_.block, rows))
    base: Value = maker.base
    steps: Value | None = None
    inside: Value | None = None
    for axis, (size, offset) in enumerate(zip(block, offsets, strict=True)):
        wide, narrow, unsigned = (TensorType((size,), element) for element in (i64, i32, u32))
        stride = maker.strides[axis]
        strided = constant_of(stride) != 1
        if isinstance(offset.type, TensorType):
            numbers = index = offset
        else:
            start: Value = builder.add(arith.ExtSI(offset, i64))
            if strided:
                start = builder.add(arith.MulI(start, stride))
            base = builder.add(tt.AddPtr(base, start))
            numbers = builder.add(tt.MakeRange(0, size))
            index = builder.add(arith.AddI(builder.add(tt.Splat(offset, narrow)), numbers))
        step: Value = builder.add(arith.ExtSI(numbers, wide))
        if strided:
            step = builder.add(arith.MulI(step, builder.add(tt.Splat(stride, wide))))
        step = _spread(builder, step, axis, block)
        steps = step if steps is None else builder.add(arith.AddI(steps, step))
        limit = builder.add(tt.Splat(maker.shape[axis], narrow))
        index, limit = (builder.add(arith.Bitcast(value, unsigned)) for value in (index, limit))
        below = _spread(builder, builder.add(arith.CmpI(index, limit, arith.IntPredicate.ULT)), axis, block)
        inside = below if inside is None else builder.add(arith.AndI(inside, below))
    assert steps is not None and inside is not None
    pointers = builder.add(tt.Splat(base, TensorType(block, PtrType(type_.element))))
    return builder.add(tt.AddPtr(pointers, steps)), inside


def _load(builder: Builder, op: tt.DescriptorLoad | tt.DescriptorGather, operands: tuple[Value, ...]) -> Outcome:
    maker = _maker(operands[0])
    pointers, inside = _address(builder, maker, operands[1:])
    element = descriptor_of(maker.result).element
    type_ = TensorType(shape_of(inside.type), element)
    zero = element.zero
    nan = _chosen_padding(operands[0])
    other = builder.add(arith.ConstantOp(math.nan if maker.padding is Padding.NAN and not nan else zero, type_))
    for use_nan in nan:
        other = builder.add(arith.Select(use_nan, builder.add(arith.ConstantOp(math.nan, type_)), other))
    if isinstance(op, tt.DescriptorGather):
        return builder.add(tt.Load(pointers, inside, other))
    block = builder.add(tt.Load(pointers, inside, other, cache=op.cache, eviction=op.eviction))
    return _reshaped(builder, block, shape_of(op.result.type))


def _reshaped(builder: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    type_ = TensorType(shape, scalar_element(value.type))
    return value if value.type == type_ else builder.add(tt.Reshape(value, type_))


def _store_to_whole_rows(builder: Rewriter, op: tt.DescriptorStore, operands: tuple[Value, ...]) -> Outcome:
    """A store by TMA where the rows of the tensor are multiples of 16 bytes, and through pointers elsewhere."""
    maker = _maker(operands[0])
    unit = _UNIT // descriptor_of(maker.result).element.bytes
    rest = builder.add(arith.AndI(maker.shape[-1], builder.add(arith.ConstantOp(unit - 1, i32))))
    whole = builder.add(arith.CmpI(rest, builder.add(arith.ConstantOp(0, i32)), arith.IntPredicate.EQ))
    by_tma, by_pointers = builder.inside([], void), builder.inside([], void)
    by_tma.copy(op, operands)
    _store_in_parts(by_pointers, maker, operands[1], operands[2:])
    for body in (by_tma, by_pointers):
        body.add(scf.Yield([]))
    return builder.add(scf.If(whole, by_tma.finish(), by_pointers.finish()))


def _store_in_parts(builder: Rewriter, maker: tt.MakeTensorDescriptor, value: Value, offsets: Sequence[Value]) -> None:
    """Store a block in a loop, a part at a time.

    The addresses of all elements at once would take most registers of the kernel, for a branch that is hardly taken.
    """
    type_ = tensor_of(value)
    size = max(1, type_.numel // _PARTS)
    flat = builder.add(tt.Reshape(value, TensorType((type_.numel,), type_.element)))
    start, stop, step = (builder.add(arith.ConstantOp(number, i32)) for number in (0, type_.numel, size))
    body = builder.inside([i32], void)
    narrow, wide, unsigned = (TensorType((size,), element) for element in (i32, i64, u32))
    first = body.add(tt.Splat(body.parameters[0], narrow))
    number = body.add(arith.AddI(first, body.add(tt.MakeRange(0, size))))
    elements = body.add(tt.Gather(flat, number, 0))
    pointers: Value = body.add(tt.Splat(maker.base, TensorType((size,), PtrType(scalar_element(type_)))))
    inside: Value | None = None
    for axis in reversed(range(type_.rank)):
        along = body.add(arith.ConstantOp(type_.shape[axis], narrow))
        index = body.add(arith.RemSI(number, along))
        number = body.add(arith.DivSI(number, along))
        index = body.add(arith.AddI(index, body.add(tt.Splat(offsets[axis], narrow))))
        limit = body.add(tt.Splat(maker.shape[axis], narrow))
        a, b = (body.add(arith.Bitcast(bound, unsigned)) for bound in (index, limit))
        below = body.add(arith.CmpI(a, b, arith.IntPredicate.ULT))
        inside = below if inside is None else body.add(arith.AndI(inside, below))
        stride = body.add(tt.Splat(maker.strides[axis], wide))
        pointers = body.add(tt.AddPtr(pointers, body.add(arith.MulI(body.add(arith.ExtSI(index, wide)), stride))))
    body.add(tt.Store(pointers, elements, inside))
    body.add(scf.Yield([]))
    builder.add(scf.For(start, stop, step, [], body.finish()))
