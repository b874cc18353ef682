"""Reductions of large blocks, part by part: a loop along the reduced axis in place of code for each element.

    %1 = tt.make_range @start=0 @end=1024;            %7 = the elements of 0 … 15, loaded through narrower pointers;
    %2 = tt.addptr (splat %x) (… %1 … %columns);      %8 = scf.for 16 1024 16 %7 (%at, %9) {
    %3 = tt.load %2;                        becomes        %10 = the elements of %at … %at + 15;
    %4 = tt.reduce %3 @axis=0 (add);                       %11 = tt.reduce (tt.join %9 %10) @axis=2 (add);
                                                           scf.yield %11; }
                                                      %4 = tt.reduce %8 @axis=0 (add);

A thread's part of such a block is more than its registers: all of it would be spilled, and each element has its own
code, which takes LLVM and ptxas minutes. No store between a load and the reduction may be to what is loaded, so the
loads give the same at the reduction. What other ops compute from the block stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, Type, i32, shape_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.queries import constant, function_of, is_elementwise, tensor_of, unpacked
from ziggurat.transforms.simplify.dce import dce
from ziggurat.transforms.simplify.effects import may_write
from ziggurat.transforms.tiles.chunks import DIVIDE_BLOCKS, ELEMENTS, numbers_from

LEAST = 1024  # Elements of a thread with which a reduced block is divided: they would be spilled.


def divide_reductions(module: core.Module, num_warps: int) -> Op:
    """The prepared module whose reductions of blocks that are too large for registers are loops over parts of them."""
    threads, function = 32 * num_warps, function_of(module)

    def divided(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Reduce):
            return None
        shape, axis = shape_of(op.values[0].type), op.axis
        size, others = shape[axis], math.prod(shape) // shape[axis]
        part = max(1, ELEMENTS * threads // others)
        if math.prod(shape) < LEAST * threads or part >= size or not _is_divisible(op, function):
            return None
        first = _Part(builder, axis, part, constant(builder, 0)).all(op.values)
        types: list[Type] = [i32, *(value.type for value in first)]
        inner = builder.inside(types, packed(types[1:]))
        start, *sums = inner.parameters
        following = _Part(inner, axis, part, start).all(op.values)
        inner.add(scf.Yield(_combined(inner, op, sums, following)))
        begin, end, step = (constant(builder, number) for number in (part, size, part))
        loop = scf.For(begin, end, step, first, inner.finish())
        results = unpacked(builder, builder.add(loop, op.location), len(first))
        return builder.copy(op, results)

    if not any(isinstance(op, tt.Reduce) for op in module.walk()):
        return module
    result = transform(module, divided, pass_name=DIVIDE_BLOCKS)
    return result if result is module else dce(result)


def _is_divisible(op: tt.Reduce, function: tt.Func) -> bool:
    """Whether each part of the operands is computed from numbers, from what has no such axis, and from loads that give
    the same at the reduction."""
    visited: set[tuple[Value, int]] = set()
    loads: list[Op] = []

    def is_divisible(value: Value, axis: int) -> bool:
        if (value, axis) in visited or not _is_long(value, axis):
            return True
        visited.add((value, axis))
        source = value.op
        if isinstance(source, tt.MakeRange | tt.Splat | arith.ConstantOp):
            return True
        if isinstance(source, tt.ExpandDims):
            return is_divisible(source.value, axis - (axis > source.axis))
        if isinstance(source, tt.Load):
            loads.append(source)
            if source.volatile or source.parent is not op.parent:
                return False
        elif source is None or not (is_elementwise(source) or isinstance(source, tt.Broadcast)) or source.bodies:
            return False
        return all(is_divisible(operand, axis) for operand in source.operands)

    if not all(is_divisible(value, op.axis) for value in op.values):
        return False
    assert op.parent is not None
    ops = list(op.parent.ops)
    earlier = ops[min((ops.index(load) for load in loads), default=0) : ops.index(op)]
    memory, pointers = MemoryOrder(function), [load.operands[0] for load in loads]
    return not any(may_write(other) and memory.keeps_order(other, pointers) for other in earlier if loads)


def _is_long(value: Value, axis: int) -> bool:
    return isinstance(value.type, TensorType) and value.type.shape[axis] > 1


def _combined(builder: Rewriter, op: tt.Reduce, sums: Sequence[Value], following: Sequence[Value]) -> list[Value]:
    """The elements of two tensors each, combined as the reduction does."""
    pairs = [builder.add(tt.Join(a, b)) for a, b in zip(sums, following, strict=True)]
    reduced = builder.add(tt.Reduce(pairs, len(shape_of(sums[0].type)), builder.rewrite_body(op.combine)), op.location)
    return unpacked(builder, reduced, len(pairs))


class _Part:
    """Tensors from `start` on along an axis, `count` elements long there."""

    def __init__(self, builder: Rewriter, axis: int, count: int, start: Value) -> None:
        self.builder, self.axis, self.count, self.start = builder, axis, count, start
        self._parts: dict[tuple[Value, int], Value] = {}

    def all(self, values: Sequence[Value]) -> list[Value]:
        return [self.of(value, self.axis) for value in values]

    def of(self, value: Value, axis: int) -> Value:
        """The part of a tensor, of which the axis that is divided may be another one than that of the reduction."""
        if not _is_long(value, axis):
            return self.builder[value]
        key = (value, axis)
        if key not in self._parts:
            self._parts[key] = self._of(value, axis)
        return self._parts[key]

    def _of(self, value: Value, axis: int) -> Value:
        op, type_ = value.op, tensor_of(value)
        assert op is not None
        narrow = TensorType((*type_.shape[:axis], self.count, *type_.shape[axis + 1 :]), type_.element)
        if isinstance(op, tt.MakeRange):
            return numbers_from(self.builder, op, self.start, self.count)
        if isinstance(op, tt.ExpandDims):
            return self.builder.copy(op, [self.of(op.value, axis - (axis > op.axis))], narrow)
        return self.builder.copy(op, [self.of(operand, axis) for operand in op.operands], narrow)
