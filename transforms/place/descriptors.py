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
block carries becomes its parts as well. The base and the strides of a parameter are known to be multiples of 16 bytes.
If the rows are too (`zg.divisible`; a launch checks it), 16 bytes of a row are inside together, or outside.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.dialects.tt import Padding
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.op import Body, Op, OpResult, Successor, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    i1,
    i32,
    i64,
    u32,
)
from ziggurat.transforms.place.queries import constant_of, descriptor_of, tensor_of
from ziggurat.transforms.simplify import dce


def lower_descriptors(module: core.Module, kept: Container[Value] = (), disjoint: tuple[int, ...] = ()) -> core.Module:
    """The prepared module with pointers instead of descriptors, except for accesses whose results are `kept`.

    Those go through descriptors that are parameters of the kernel. Each of these becomes the tensor map, if an access
    is kept, and the base, sizes and strides, if one is not; `parts` of the function says which parameter is what.
    `disjoint` becomes an attribute of the function. Raises `InternalError` where descriptors of unlike padding meet.
    """
    if not any(isinstance(value.type, DescriptorType) for op in module.walk() for value in _values(op)):
        return module
    lowering = _Lowering(kept, disjoint)
    made = dce(transform(module, lowering.rewrite, pass_name="descriptors"))
    assert isinstance(made, core.Module)
    return made


def _values(op: Op) -> list[Value]:
    return [op.result, *(p for body in op.bodies for block in body.blocks for p in block.parameters)]


def _expanded(type_: Type) -> list[Type]:
    """The types of the parts of a descriptor; of another type, itself."""
    if not isinstance(type_, DescriptorType):
        return [type_]
    rank = len(type_.block)
    return [PtrType(type_.element), *[i32] * rank, *[i64] * rank]


def _maker(value: Value) -> tt.MakeTensorDescriptor:
    """The op that makes a descriptor of the new model."""
    assert isinstance(value, OpResult) and isinstance(value.op, tt.MakeTensorDescriptor)
    return value.op


def _parts(values: Sequence[Value]) -> list[Value]:
    """The values, with each descriptor replaced by its parts."""
    found: list[Value] = []
    for value in values:
        found += _maker(value).operands if isinstance(value.type, DescriptorType) else [value]
    return found


def _joined(
    builder: Builder, types: Sequence[Type], parts: Sequence[Value], paddings: Sequence[Padding]
) -> list[Value]:
    """The inverse of `_parts`; `paddings` has one for each value."""
    found: list[Value] = []
    at = 0
    for type_, padding in zip(types, paddings, strict=True):
        count = len(_expanded(type_))
        mine = parts[at : at + count]
        at += count
        if isinstance(type_, DescriptorType):
            rank = len(type_.block)
            op = tt.MakeTensorDescriptor(mine[0], mine[1 : 1 + rank], mine[1 + rank :], type_, padding=padding)
            found.append(builder.add(op))
        else:
            found.append(mine[0])
    return found


def _paddings(values: Sequence[Value]) -> list[Padding]:
    return [_maker(v).padding if isinstance(v.type, DescriptorType) else Padding.ZERO for v in values]


def _agree(op: Op, first: Sequence[Padding], second: Sequence[Padding]) -> None:
    if list(first) != list(second):
        raise InternalError(f"descriptors of unlike padding meet at {op.NAME}", str(op.root()))


class _Lowering:
    """The transformer; it keeps the paddings of the descriptors that each loop or block takes."""

    def __init__(self, kept: Container[Value], disjoint: tuple[int, ...]) -> None:
        self.kept = kept
        self.disjoint = disjoint
        self.maps: dict[Value, Value] = {}  # The tensor map of a parameter, for the accesses that are kept.
        self.carried: list[list[Padding]] = []  # For each op with bodies around, from the outside.
        self.blocks: dict[object, list[Padding]] = {}

    def rewrite(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        match op:
            case tt.Func():
                return self._function(builder, op)
            case Structured() if any(isinstance(type_, DescriptorType) for type_ in op.value_types):
                return self._structured(builder, op, operands)
            case scf.Yield() | scf.Condition() if _has_descriptor(op.handed):
                if self.carried:
                    paddings = _paddings(operands[len(operands) - len(op.handed) :])
                    _agree(op, self.carried[-1] or paddings, paddings)
                    self.carried[-1] = paddings
                return builder.add(op.SPEC.make(_parts(operands), (), {}, (), op.result.type))
            case cf.Br() | cf.CondBr() if any(_has_descriptor(s.arguments) for s in op.successors):
                return self._jump(builder, op, operands)
            case core.TupleLoad() if isinstance(made := operands[0], OpResult) and isinstance(made.op, core.MakeTuple):
                return made.op.operands[op.index]
            case tt.DescriptorLoad() | tt.DescriptorStore() if op.result in self.kept:
                return builder.copy(op, (self.maps[op.descriptor], *operands[1:]))
            case tt.DescriptorLoad():
                return _load(builder, op, operands)
            case tt.DescriptorStore():
                return _store(builder, op, operands)
            case _:
                return None

    def _function(self, builder: Rewriter, op: tt.Func) -> Outcome:
        old = op.body
        known: Sequence[int] = op.divisibility or (1,) * len(old.parameters)
        columns: list[tuple[str, Type, int]] = []  # For each new parameter: the part, the type, the divisibility.
        for number, (parameter, divisor) in enumerate(zip(old.parameters, known, strict=True)):
            type_ = parameter.type
            if not isinstance(type_, DescriptorType):
                columns.append((str(number), type_, divisor))
                continue
            through_map = [user.result in self.kept for user in parameter.uses]
            if any(through_map) or not through_map:
                columns.append((f"{number}.map", type_, 1))
            if not all(through_map):
                # The host has checked that the base and all strides but the last are multiples of 16 bytes. A known
                # divisor of the bytes of a row is one of the last size.
                rank, size = len(type_.block), type_.element.bytes
                row, even = max(1, divisor // size), max(1, 16 // size)
                columns.append((f"{number}.base", PtrType(type_.element), 16))
                columns += [(f"{number}.shape{axis}", i32, row if axis == rank - 1 else 1) for axis in range(rank)]
                columns += [(f"{number}.stride{axis}", i64, even) for axis in range(rank - 1)]
        parts = tuple(part for part, _, _ in columns)
        divisibility = tuple(divisor for _, _, divisor in columns)
        inner = builder.inside([type_ for _, type_, _ in columns], old.yield_type, isolated=True)
        inner.location = op.location
        given = dict(zip(parts, inner.parameters, strict=True))
        for number, parameter in enumerate(old.parameters):
            fields = [new for part, new in given.items() if part.startswith(f"{number}.") and not part.endswith(".map")]
            tensor_map = given.get(f"{number}.map")
            if tensor_map is not None:
                self.maps[parameter] = tensor_map
            if fields:
                values = [*fields, inner.add(arith.ConstantOp(1, i64))]
                padding = Padding(descriptor_of(parameter).padding)
                (inner[parameter],) = _joined(inner, [parameter.type], values, [padding])
            else:
                inner[parameter] = given[str(number)] if tensor_map is None else tensor_map
        self._all_blocks(inner, old)
        made = tt.Func(
            op.sym_name,
            inner.finish(),
            divisibility=divisibility if any(number > 1 for number in divisibility) else (),
            noinline=op.noinline,
            parts=parts if any("." in part for part in parts) else (),
            disjoint=self.disjoint,
        )
        return builder.add(made, op.location)

    def _all_blocks(self, inner: Rewriter, old: Body) -> None:
        """The blocks of a body whose first parameters are mapped. In reverse postorder, a jump comes before its block,
        and says the padding."""
        for block in old.blocks[1:]:
            types = [part for parameter in block.parameters for part in _expanded(parameter.type)]
            inner.mapping.blocks[block] = inner.new_block(types)
        for block in old.blocks:
            if block is not old.entry:
                inner.move_to(inner.mapping.blocks[block])
                old_types = [parameter.type for parameter in block.parameters]
                paddings = self.blocks.get(block) or [Padding.ZERO] * len(old_types)
                joined = _joined(inner, old_types, inner.parameters, paddings)
                inner.mapping.values.update(zip(block.parameters, joined, strict=True))
            inner.rewrite_ops(block.ops)

    def _jump(self, builder: Rewriter, op: cf.Br | cf.CondBr, operands: tuple[Value, ...]) -> Outcome:
        successors: list[Successor] = []
        for successor in op.successors:
            values = [builder[value] for value in successor.arguments]
            _agree(op, self.blocks.setdefault(successor.block, _paddings(values)), _paddings(values))
            successors.append(Successor(builder.mapping.blocks[successor.block], _parts(values)))
        if isinstance(op, cf.Br):
            return builder.add(cf.Br(successors[0]))
        return builder.add(cf.CondBr(operands[0], successors[0], successors[1]))

    def _structured(self, builder: Rewriter, op: Structured, operands: tuple[Value, ...]) -> Outcome:
        """A loop or a branch that takes and yields descriptors in parts. Of several results, a Tuple is put together
        again, which uses then look through."""
        types, controls = op.value_types, operands[: len(op.controls)]
        initial = operands[len(controls) :]
        parts, taken = _parts(initial), _paddings(initial)
        packed = scf.packed([part for type_ in types for part in _expanded(type_)])
        paddings: list[Padding] = taken
        bodies: list[Body] = []
        for body in op.bodies:
            own = body.parameters[: len(body.parameters) - len(op.entry_arguments(body))]
            given = [parameter.type for parameter in body.parameters]
            inner = builder.inside([part for type_ in given for part in _expanded(type_)], packed)
            joined = _joined(inner, given, inner.parameters, [*(Padding.ZERO for _ in own), *taken])
            inner.mapping.values.update(zip(body.parameters, joined, strict=True))
            self.carried.append([])
            inner.rewrite_ops(body.entry.ops)
            bodies.append(inner.finish())
            yielded = self.carried.pop() or paddings
            _agree(op, yielded, paddings or yielded)
            paddings = yielded
        result = builder.add(op.SPEC.make((*controls, *parts), (), dict(op.attributes), bodies, packed))
        count = sum(len(_expanded(type_)) for type_ in types)
        components = [builder.add(core.TupleLoad(result, at)) for at in range(count)] if count > 1 else [result]
        values = _joined(builder, types, components, paddings)
        return values[0] if len(values) == 1 else builder.add(core.MakeTuple(values))


def _has_descriptor(values: Sequence[Value]) -> bool:
    return any(isinstance(value.type, DescriptorType) for value in values)


# The accesses.


def _spread(builder: Builder, value: Value, axis: int, block: tuple[int, ...]) -> Value:
    """A tensor of one axis, broadcast along the other axes of the block."""
    type_ = tensor_of(value)
    for at in range(len(block)):
        if at != axis:
            value = builder.add(tt.ExpandDims(value, at))
    wide = TensorType(block, type_.element)
    return value if value.type == wide else builder.add(tt.Broadcast(value, wide))


def _address(builder: Builder, made: tt.MakeTensorDescriptor, offsets: Sequence[Value]) -> tuple[Value, Value]:
    """The pointers to the elements of a block, and the mask of those that are inside of the tensor."""
    type_ = descriptor_of(made.result)
    block = type_.block
    base: Value = made.base
    steps: Value | None = None
    inside: Value | None = None
    for axis, (size, offset) in enumerate(zip(block, offsets, strict=True)):
        stride = made.strides[axis]
        start: Value = builder.add(arith.ExtSI(offset, i64))
        if constant_of(stride) != 1:
            start = builder.add(arith.MulI(start, stride))
        base = builder.add(tt.AddPtr(base, start))
        numbers = builder.add(tt.MakeRange(0, size))
        step: Value = builder.add(arith.ExtSI(numbers, TensorType((size,), i64)))
        if constant_of(stride) != 1:
            step = builder.add(arith.MulI(step, builder.add(tt.Splat(stride, TensorType((size,), i64)))))
        step = _spread(builder, step, axis, block)
        steps = step if steps is None else builder.add(arith.AddI(steps, step))
        index = builder.add(arith.AddI(builder.add(tt.Splat(offset, TensorType((size,), i32))), numbers))
        unsigned = TensorType((size,), u32)
        limit = builder.add(tt.Splat(made.shape[axis], TensorType((size,), i32)))
        below = builder.add(
            arith.CmpI(
                builder.add(arith.Bitcast(index, unsigned)),
                builder.add(arith.Bitcast(limit, unsigned)),
                predicate=IntPredicate.ULT,
            )
        )
        below = _spread(builder, below, axis, block)
        inside = below if inside is None else builder.add(arith.AndI(inside, below))
    assert steps is not None and inside is not None
    pointers = builder.add(tt.Splat(base, TensorType(block, PtrType(type_.element))))
    return builder.add(tt.AddPtr(pointers, steps)), inside


def _fill(element: ScalarType, padding: Padding) -> float | int | bool:
    if element.is_float:
        return float("nan") if padding is Padding.NAN else 0.0
    return False if element == i1 else 0


def _load(builder: Builder, op: tt.DescriptorLoad, operands: tuple[Value, ...]) -> Outcome:
    made = _maker(operands[0])
    pointers, inside = _address(builder, made, operands[1:])
    type_ = op.result.type
    assert isinstance(type_, TensorType) and isinstance(type_.element, ScalarType)
    other = builder.add(arith.ConstantOp(_fill(type_.element, made.padding), type_))
    return builder.add(tt.Load(pointers, inside, other, cache=op.cache, eviction=op.eviction))


def _store(builder: Builder, op: tt.DescriptorStore, operands: tuple[Value, ...]) -> Outcome:
    pointers, inside = _address(builder, _maker(operands[0]), operands[2:])
    builder.add(tt.Store(pointers, operands[1], inside))
    return DROP
