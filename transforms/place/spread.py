"""Clusters: a kernel whose programs are several CTAs, each with a part of the program's tensors.

    %1 = tt.make_range @start=0 @end=131072;          %r = gpu.cluster_rank; %s = arith.muli %r 16384;
                                                      %1 = (tt.make_range @start=0 @end=16384) + splat %s;
    %2 = tt.load (tt.addptr (splat %x) %1);           %2 = tt.load (tt.addptr (splat %x) %1);
    %3 = tt.reduce %2 @axis=0 max;          becomes   %p = tt.reduce %2 @axis=0 max;
                                                      %g : tensor<x8, f32> = gpu.cluster_gather %p @8;
                                                      %3 = tt.reduce %g @axis=0 max;
    …                                                 …
    tt.store %y %3;                                   tt.store %y %3 (%r == 0);

A row that one CTA cannot hold in its registers is read once so. The size that is divided is that of the longest
reduction; all axes of this size are. Other tensors, and scalars, are computed by every CTA, and stored by the first.
Program numbers are those of clusters. Only kernels whose ops can be divided so are: `obstacle_to` has the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    DescriptorType,
    ScalarType,
    TensorType,
    Type,
    i1,
    shape_of,
    with_element,
)
from ziggurat.transforms.place.chunks import numbers_from
from ziggurat.transforms.place.components import component_types
from ziggurat.transforms.place.memory_order import MemoryOrder, may_order
from ziggurat.transforms.place.obstacle import Obstacle, warn
from ziggurat.transforms.place.queries import constant, is_elementwise, repacked, tensor_of, unpacked
from ziggurat.transforms.simplify.effects import is_pure, may_write

LONG = 65536  # Elements of a tensor from which on the compiler chooses clusters.
ELEMENTS_OF_CTA = 8192  # Of the largest tensor, then: 32 a thread of 8 warps (`choose`).
_LEAST = 32  # Elements that a CTA has of an axis that is divided.

_DIVISIBLE = (
    tt.MakeRange, tt.Splat, tt.Broadcast, tt.Poison, arith.ConstantOp, tt.ExpandDims, tt.Trans, tt.Join, tt.Split,
    tt.Load, tt.Store, tt.MapElementwise, tt.InlineAsm, tt.Assert, Structured, scf.Yield, scf.Condition,
    core.MakeTuple, core.TupleLoad,
)  # fmt: skip
_OF_ONE_CTA = (tt.SmId, tt.GlobalTimer, tt.Print, tt.Dot)


def spread(module: core.Module, options: CompileOptions) -> Op:
    """The prepared module whose programs are clusters of CTAs, if the options ask for that or it is expected to pay.

    Warns where it was asked for, and cannot be done.
    """
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    asked, size = options.num_ctas, _divided_size(func)
    if asked == 1 or (asked is None and size is None):
        return module
    most = TARGETS[options.target].cluster_ctas
    if asked is None:
        count = 1 if options.launch_cooperative_grid else min(most, _chosen(func))
        return module if count == 1 or obstacle_to(func, size, count) else _spread(module, func, size or 1, count)
    found = obstacle_to(func, size, asked)
    if asked > most:
        of_target = "no clusters" if most == 1 else f"clusters of at most {most} CTAs"
        found = Obstacle(f"{options.target} has {of_target}", func)
    if found is not None or size is None:
        why = "it has no tensors" if found is None else found.reason(func)
        warn(f"a program of '{func.sym_name}' is one CTA, not a cluster of num_ctas={asked}: {why}", func.location)
        return module
    return _spread(module, func, size, asked)


def _chosen(func: tt.Func) -> int:
    """The CTAs that a program has where the target allows as many, by the largest tensor that it reduces."""
    reduces = [op for op in func.walk() if isinstance(op, tt.Reduce)]
    largest = max((tensor_of(op.values[0]).numel for op in reduces), default=1)
    return 1 if largest < LONG else largest // ELEMENTS_OF_CTA


def _divided_size(func: tt.Func) -> int | None:
    """The size of the axes that are divided: that of the longest reduction, or else of the longest stored row."""
    reduced = [shape_of(op.values[0].type)[op.axis] for op in func.walk() if isinstance(op, tt.Reduce)]
    stored = [shape_of(op.value.type) for op in func.walk() if isinstance(op, tt.Store)]
    return max(reduced, default=max((shape[-1] for shape in stored if shape), default=None))


# The ops that can be divided.


def obstacle_to(func: tt.Func, size: int | None, count: int) -> Obstacle | None:
    """The first op of a prepared kernel that `count` CTAs cannot share, dividing the axes of a size."""
    if size is None:
        return Obstacle("it has no tensors", func)
    if size < _LEAST * count:
        return Obstacle(f"its longest axis has only {size} elements", func)
    for op in func.walk():
        why = _why_not(op, size)
        if why is not None:
            return Obstacle(why, op)
    store = _of_what_others_load(func, size)
    return None if store is None else Obstacle("it may store where the other CTAs have yet to load", store)


def _of_what_others_load(func: tt.Func, size: int) -> tt.Store | None:
    """A store by the first CTA to memory that a load before it reads in all CTAs, where they need it for their parts.

    Only a barrier makes all CTAs wait until such loads are done. One CTA needs none where each thread has its elements.
    """
    memory, loaded = MemoryOrder(func), list[Value]()
    for op in func.walk():
        if isinstance(op, tt.Barrier) and op.parent_op is func:
            loaded.clear()
        elif isinstance(op, tt.Load) and size not in shape_of(op.result.type) and _reaches_parts(op, size):
            loaded.append(op.ptr)
        elif isinstance(op, tt.Store) and size not in shape_of(op.ptr.type) and memory.keeps_order(op, loaded):
            return op
    return None


def _reaches_parts(op: Op, size: int) -> bool:
    """Whether anything but stores by the first CTA may depend on an op."""
    found = reached([op], lambda one: [] if isinstance(one, tt.Store) else one.result.uses)
    stays = (one for one in found if one is not op and not is_pure(one))
    return any(not isinstance(one, tt.Store) or size in shape_of(one.ptr.type) for one in stays)


def _types(op: Op) -> Iterator[Type]:
    for value in (op.result, *op.operands, *(parameter for body in op.bodies for parameter in body.parameters)):
        yield from component_types(value.type)


def _why_not(op: Op, size: int) -> str | None:
    """The reason why CTAs cannot share an op, as a clause."""
    shapes = [shape_of(type_) for type_ in _types(op)]
    if any(shape.count(size) > 1 for shape in shapes):
        return f"a tensor has two axes of {size}"
    if any(isinstance(type_, DescriptorType) for type_ in _types(op)):
        return "blocks of descriptors are not divided"
    reduced = shape_of(op.values[0].type) if isinstance(op, tt.Reduce) else ()
    if size in reduced and any(isinstance(outer, Loop) for outer in op.path()):
        return "a loop reduces what the CTAs share"
    if any(len(body.blocks) > 1 for body in op.bodies):
        return "control flow is not structured"
    if isinstance(op, _OF_ONE_CTA):
        return f"{op.NAME} is of one CTA"
    if isinstance(op, tt.Barrier):
        return None
    if may_order(op) or (not op.bodies and may_write(op) and not _is_shared(op)):
        return f"{op.NAME} would be done by each CTA"
    if not any(size in shape for shape in shapes):
        return None
    if isinstance(op, tt.Reshape):
        narrow = [tuple(one for one in shape if one > 1) for shape in shapes]
        return None if narrow[0] == narrow[1] else "a reshape moves elements between CTAs"
    if isinstance(op, tt.Reduce):
        good = all(isinstance(type_, ScalarType) for value in op.values for type_ in [tensor_of(value).element])
        return None if good else "pointers are reduced"
    return None if isinstance(op, _DIVISIBLE) or is_elementwise(op) else f"{op.NAME} moves elements between CTAs"


def _is_shared(op: Op) -> bool:
    """Whether an op with effects is right in each CTA for its elements, or can be done by the first one."""
    return isinstance(op, tt.Store | tt.Return | tt.GridDependencyWait | tt.GridDependencyLaunch)


# The division.


def _spread(module: core.Module, func: tt.Func, size: int, count: int) -> Op:
    part = size // count
    here: dict[str, Value] = {}  # The number of the first element of this CTA, and whether the CTA is the first.

    def small(type_: Type) -> Type:
        if not isinstance(type_, TensorType):
            return type_
        return TensorType(tuple(part if one == size else one for one in type_.shape), type_.element)

    def divided(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is func:
            return _function(builder, func, part, count, here)
        if isinstance(op, tt.Barrier):
            return builder.add(gpu.ClusterBarrier())
        if isinstance(op, tt.Store) and size not in shape_of(op.ptr.type):
            return _stored_by_first(builder, op, operands, here["is first"])
        if not any(size in shape_of(type_) for type_ in _types(op)):
            return None
        if isinstance(op, tt.MakeRange):
            return numbers_from(builder, op, here["start"], part)
        if isinstance(op, tt.Hint):
            axis = shape_of(op.result.type).index(size)
            return operands[0] if part % op.values[axis] else None
        if isinstance(op, tt.Reduce) and shape_of(op.values[0].type)[op.axis] == size:
            return _reduced(builder, op, operands, count)
        # The types of ops with bodies follow from those of their operands.
        return (
            None
            if op.bodies
            else builder.copy(op, operands, scf.packed([*map(small, component_types(op.result.type))]))
        )

    return transform(module, divided, pass_name="spread")


def _function(builder: Rewriter, func: tt.Func, part: int, count: int, here: dict[str, Value]) -> Value:
    body = func.body
    inner = builder.inside([parameter.type for parameter in body.parameters], body.yield_type, isolated=True)
    inner.mapping.values.update(zip(body.parameters, inner.parameters, strict=True))
    inner.location = func.location
    rank = inner.add(gpu.ClusterRank())
    here["start"] = inner.add(arith.MulI(rank, constant(inner, part)))
    here["is first"] = inner.add(arith.CmpI(rank, constant(inner, 0), arith.IntPredicate.EQ))
    inner.rewrite_ops(body.entry.ops)
    return builder.add(func.evolve(body=inner.finish(), num_ctas=count), func.location)


def _stored_by_first(builder: Rewriter, op: tt.Store, operands: tuple[Value, ...], is_first: Value) -> Value:
    """The store of a value that every CTA has, by the first one."""
    ptr, value, *given = operands
    type_ = with_element(ptr.type, i1)
    mask = builder.add(tt.Splat(is_first, type_)) if isinstance(type_, TensorType) else is_first
    if given:
        mask = builder.add(arith.AndI(given[0], mask))
    return builder.add(tt.Store(ptr, value, mask, cache=op.cache, eviction=op.eviction), op.location)


def _reduced(builder: Rewriter, op: tt.Reduce, operands: tuple[Value, ...], count: int) -> Value:
    """A reduction of the part of this CTA, and one of what the CTAs have."""
    parts = unpacked(builder, builder.copy(op, operands), len(operands))
    gathered = unpacked(builder, builder.add(gpu.ClusterGather(parts, count), op.location), len(parts))
    last = len(shape_of(gathered[0].type)) - 1
    made = builder.add(tt.Reduce(gathered, last, builder.rewrite_body(op.combine)), op.location)
    return repacked(builder, unpacked(builder, made, len(gathered)))
