"""Large blocks of elementwise kernels, chunk by chunk: a loop in place of code for each element of a thread.

    %1 = tt.make_range @start=0 @end=65536;           scf.for 0 65536 8192 (%at) {
    %2 = tt.addptr (splat %x) %1;                          %1 = (tt.make_range @start=0 @end=8192) + splat %at;
    %3 = tt.load %2;                        becomes        %2 = tt.addptr (splat %x) %1;
    %4 = arith.mulf %3 %3;                                 %3 = tt.load %2; %4 = arith.mulf %3 %3;
    tt.store (tt.addptr (splat %y) %1) %4;                 tt.store (tt.addptr (splat %y) %1) %4; }

Each element of a thread has its own code, and each load of a block its registers: with 1024 elements a thread, LLVM and
ptxas take 2 s, and the values of most elements are spilled.

A chunk stores before the next one loads. So the accesses must be through other arguments than each store, or through
the same pointers, if these are pointers to different elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, Type, i32, void
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.analysis.components import component_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder, may_order
from ziggurat.transforms.analysis.queries import constant, function_of, is_elementwise
from ziggurat.transforms.simplify.effects import may_write

DIVIDE_BLOCKS = "divide_blocks"  # The name of the pass, in the locations of what it makes.
ELEMENTS = 64  # Of a thread in a chunk: enough loads in flight, and registers for some tensors.
LEAST = 256  # Elements of a thread with which a block is divided.

_MEMORY = (tt.Load, tt.Store)
_ROOTS = (tt.MakeRange, tt.Splat, arith.ConstantOp)


def divide_blocks(module: core.Module, num_warps: int) -> core.Module:
    """The prepared module whose kernel, if it is elementwise and has large blocks, is a loop over chunks of them."""
    func = function_of(module)
    size = _size(func)
    chunk = 32 * num_warps * ELEMENTS
    if size is None or size < 32 * num_warps * LEAST or not _are_apart(func, size):
        return module

    def divided(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is not func:
            return None
        body, ops = func.body, func.body.entry.ops
        inner = builder.inside([parameter.type for parameter in body.parameters], body.yield_type)
        for old, new in zip(body.parameters, inner.parameters, strict=True):
            inner[old] = new
        inner.rewrite_ops([op for op in ops[:-1] if not _is_of_block(op)])
        start, stop, step = (constant(inner, number) for number in (0, size, chunk))
        loop = inner.inside([i32], void)
        for of_block in ops:
            if _is_of_block(of_block):
                loop[of_block.result] = _of_chunk(loop, of_block, chunk)
        loop.add(scf.Yield([]))
        inner.add(scf.For(start, stop, step, [], loop.finish()))
        inner.rewrite(ops[-1])
        return builder.add(func.SPEC.copy(func, operands, (), [inner.finish()], func.result.type), func.location)

    return expect(transform(module, divided, pass_name=DIVIDE_BLOCKS), core.Module)


def _is_of_block(op: Op) -> bool:
    return isinstance(op.result.type, TensorType) or isinstance(op, tt.Store)


def _size(func: tt.Func) -> int | None:
    """The elements of the tensors of a function, if they have one axis of one size, and all ops are elementwise."""
    if len(func.body.blocks) > 1:
        return None
    ops = func.body.entry.ops[:-1]
    tensors: set[Type] = {value.type for op in ops for value in (op.result, *op.operands)}
    shapes = {type_.shape for type_ in tensors if isinstance(type_, TensorType)}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 1 or not any(isinstance(op, tt.Store) for op in ops):
        return None
    for op in ops:
        if op.bodies or may_order(op) or isinstance(op, tt.InlineAsm):
            return None
        if not _is_of_block(op):
            good = isinstance(op, Pure)
        elif isinstance(op, tt.Store):
            good = isinstance(op.value.type, TensorType)
        else:
            good = isinstance(op, (*_ROOTS, tt.Load)) or is_elementwise(op)
        if not good or (may_write(op) and not isinstance(op, tt.Store)):
            return None
    return shape[0]


def _are_apart(func: tt.Func, size: int) -> bool:
    """Whether the memory of each store is that of no other access, but for accesses through the same pointers, if these
    are the pointers of `size` neighbours."""
    memory, infos = MemoryOrder(func), analyse(func)
    accesses = [op for op in func.body.entry.ops if isinstance(op, _MEMORY)]

    def apart(store: tt.Store, other: tt.Load | tt.Store) -> bool:
        if other.ptr is store.ptr:
            return infos[component_of(store.ptr)].contiguity == (size,)
        return not memory.keeps_order(store, [other.ptr])

    stores = [op for op in accesses if isinstance(op, tt.Store)]
    return all(apart(store, other) for store in stores for other in accesses if other is not store)


def _of_chunk(loop: Rewriter, op: Op, chunk: int) -> Value:
    """Add an op for the elements of a chunk; the loop's parameter is the number of the first one."""
    operands: Sequence[Value] = [loop[operand] for operand in op.operands]
    if isinstance(op, tt.Store):
        return loop.copy(op, operands)
    type_ = op.result.type
    assert isinstance(type_, TensorType)
    small = TensorType((chunk,), type_.element)
    if isinstance(op, tt.MakeRange):
        return numbers_from(loop, op, loop.parameters[0], chunk)
    return loop.copy(op, operands, small)


def numbers_from(builder: Builder, op: tt.MakeRange, start: Value, count: int) -> Value:
    """The `count` numbers of a range from the one at the index `start` on."""
    numbers = builder.add(tt.MakeRange(op.start, op.start + count), op.location)
    return builder.add(arith.AddI(numbers, builder.add(tt.Splat(start, TensorType((count,), i32)))), op.location)
