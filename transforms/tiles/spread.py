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

In a kernel with dots, the CTAs divide the rows or the columns of a dot's result, and all axes that these are axes of:
of operands, accumulators, blocks of descriptors and stored tensors. The other operand is the same in all CTAs, which
load it together (`multicast`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, OpResult, Value, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    DescriptorType,
    ScalarType,
    TensorType,
    Type,
    component_types,
    i1,
    shape_of,
    with_element,
)
from ziggurat.transforms.analysis.affine import Forms
from ziggurat.transforms.analysis.apart import are_apart, iterations_are_apart
from ziggurat.transforms.analysis.components import Component, component_of, components_of, groups_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder, may_order
from ziggurat.transforms.analysis.obstacle import Obstacle, warn
from ziggurat.transforms.analysis.queries import constant, is_elementwise, is_root, repacked, tensor_of, unpacked
from ziggurat.transforms.simplify import cse, dce
from ziggurat.transforms.simplify.demand import first_kernel
from ziggurat.transforms.simplify.effects import is_pure, may_write
from ziggurat.transforms.tiles.chunks import numbers_from

LONG = 65536  # Elements of a tensor from which on the compiler chooses clusters.
ELEMENTS_OF_CTA = 8192  # Of the largest tensor, then: 32 a thread of 8 warps (`choose`).
_LEAST_ELEMENTS = 32  # Elements that a CTA has of an axis that is divided.
_LEAST_DOT_ROWS = 64  # Of the rows of a dot's result: those of a wgmma.

_DIVISIBLE = (
    tt.MakeRange, tt.Splat, tt.Broadcast, tt.Poison, arith.ConstantOp, tt.ExpandDims, tt.Trans, tt.Join, tt.Split,
    tt.Load, tt.Store, tt.MapElementwise, tt.InlineAsm, tt.Assert, Structured, scf.Yield, scf.Condition,
    core.MakeTuple, core.TupleLoad, tt.Func, tt.Dot, tt.MakeTensorDescriptor, tt.DescriptorLoad, tt.DescriptorStore,
)  # fmt: skip
_LOADS, _STORES = (tt.Load, tt.DescriptorLoad), (tt.Store, tt.DescriptorStore)
_OF_ONE_CTA = (tt.SmId, tt.GlobalTimer, tt.Print)

Axis = tuple[Component, int]


@attrs.frozen
class Division:
    """The axes of tensors that the CTAs of a cluster divide: those of a size, or, of a kernel with dots, `axes`."""

    size: int
    axes: Collection[Axis] | None = None

    def of(self, component: Component) -> list[int]:
        """The axes of a tensor, or of the blocks of a descriptor, that are divided."""
        value, sides = component[0], _sides(component)
        if len(component_types(value.type)) == 1:
            component = component_of(value)
        if self.axes is None:
            return [axis for axis, side in enumerate(sides) if side == self.size]
        return [axis for axis in range(len(sides)) if (component, axis) in self.axes]

    def axis(self, value: Value) -> int | None:
        """The axis of a value that is divided."""
        return next(iter(self.of(component_of(value))), None)


def _sides(component: Component) -> tuple[int, ...]:
    """The shape of a tensor, or of the blocks of a descriptor."""
    type_ = component_types(component[0].type)[component[1]]
    return type_.block if isinstance(type_, DescriptorType) else shape_of(type_)


def spread(module: core.Module, options: CompileOptions) -> Op:
    """The prepared module whose programs are clusters of CTAs, if the options ask for that or it is expected to pay.

    Warns where it was asked for, and cannot be done.
    """
    func, has_dots = first_kernel(module), module.holds(tt.Dot)
    num_ctas, most = options.num_ctas, TARGETS[options.target].cluster_ctas
    if num_ctas == 1:
        return module
    if num_ctas is None:
        count = 1 if options.launch_cooperative_grid or has_dots else min(most, _chosen(func))
        division = division_by(func, count) if count > 1 else None
        return _spread(module, func, division, count) if isinstance(division, Division) else module
    apart = _with_roots_apart(module) if has_dots else module
    func = first_kernel(apart)
    division = division_by(func, num_ctas)
    if num_ctas > most:
        of_target = "no clusters" if most == 1 else f"clusters of at most {most} CTAs"
        division = Obstacle(f"{options.target} has {of_target}", func)
    if isinstance(division, Obstacle):
        why = division.reason(func)
        warn(f"a program of '{func.sym_name}' is one CTA, not a cluster of num_ctas={num_ctas}: {why}", func.location)
        return module
    rewritten = _spread(apart, func, division, num_ctas)
    return cse(dce(rewritten)) if has_dots else rewritten


def _with_roots_apart(module: core.Module) -> core.Module:
    """The module whose ranges, splats and constants, and their views, have one use each: rows and columns may be
    ranges of one size, and only one of them is divided."""

    def copied(builder: Rewriter, value: Value) -> Value:
        if not isinstance(value, OpResult) or not isinstance(value.type, TensorType):
            return builder[value]
        if is_root(value.op) or isinstance(value.op, tt.ExpandDims | tt.Broadcast):
            return builder.copy(value.op, [copied(builder, operand) for operand in value.op.operands])
        return builder[value]

    def apart(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        own = tuple(copied(builder, operand) for operand in op.operands)
        return None if own == operands else builder.copy(op, own)

    return expect(dce(transform(module, apart)), core.Module)


def _chosen(func: tt.Func) -> int:
    """The CTAs that a program has where the target allows as many, by the largest tensor that it reduces."""
    reduces = [op for op in func.walk() if isinstance(op, tt.Reduce)]
    largest = max((tensor_of(op.values[0]).numel for op in reduces), default=1)
    return 1 if largest < LONG else largest // ELEMENTS_OF_CTA


def _divided_size(func: tt.Func) -> int | None:
    """The size of the axes that are divided: that of the longest reduction, or else of the longest stored row."""
    reduced = [shape_of(op.values[0].type)[op.axis] for op in func.walk() if isinstance(op, tt.Reduce)]
    shapes = [shape_of(op.value.type) for op in func.walk() if isinstance(op, tt.Store)]
    return max(reduced, default=max((shape[-1] for shape in shapes if shape), default=None))


# The ops that can be divided.


def division_by(func: tt.Func, count: int) -> Division | Obstacle:
    """The axes of a prepared kernel that `count` CTAs divide, or the first op that they cannot share."""
    if has_dots := func.holds(tt.Dot):
        divisions = _divisions_of_dots(func, count)
    else:
        size = _divided_size(func)
        divisions = [] if size is None else [Division(size)]
    first: Obstacle | None = None
    for division in divisions:
        obstacle = obstacle_to(func, division, count)
        if obstacle is None:
            return division
        first = first or obstacle
    return first or Obstacle("all of its dots are batched" if has_dots else "it has no tensors", func)


def _divisions_of_dots(func: tt.Func, count: int) -> list[Division]:
    """The rows and the columns of the results of dots, with what is divided with them.

    The reads of the L2 are the same for all, as the CTAs load together what they do not divide. First come those that
    leave a CTA the fewest elements of operands in shared memory, then rows: so an instruction has many columns.
    """
    links: dict[Axis, list[Axis]] = {}

    def link(axis: Axis, other: Axis) -> None:
        links.setdefault(axis, []).append(other)
        links.setdefault(other, []).append(axis)

    for group in groups_of(func).values():
        for other in (*group.members[1:], *(source for _, source in group.sources)):
            for axis in range(len(_sides(group.members[0]))):
                link((group.members[0], axis), (other, axis))
    for op in func.walk():
        for pair, other in _linked(op):
            link(pair, other)
    visited: set[Axis] = set()
    dots = [op for op in func.walk() if isinstance(op, tt.Dot)]
    operands = {component_of(value): tensor_of(value).numel for op in dots for value in (op.a, op.b)}
    divisions: list[tuple[int, int, Division]] = []
    for op in dots:
        for axis in range(2) if tensor_of(op.result).rank == 2 else ():
            start: Axis = (op.result, 0), axis
            if start not in visited:
                axes: set[Axis] = reached([start], lambda operand: links.get(operand, ()))
                visited |= axes
                division = Division(tensor_of(op.result).shape[axis], frozenset(axes))
                size = sum(size // (count if division.of(operand) else 1) for operand, size in operands.items())
                divisions.append((size, axis, division))
    return [division for _, _, division in sorted(divisions, key=lambda candidate: candidate[:2])]


def _linked(op: Op) -> Iterator[tuple[Axis, Axis]]:
    """The axes of the operands and results of an op that are divided together."""
    components = [component_of(value) for value in op.operands if len(component_types(value.type)) == 1]
    results = list(components_of(op.result))
    match op:
        case tt.Dot() if tensor_of(op.result).rank == 2:
            a, b, c = components[:3]
            rows, columns = ((results[0], axis) for axis in range(2))
            yield from ((rows, (a, 0)), (rows, (c, 0)), (columns, (b, 1)), (columns, (c, 1)), ((a, 1), (b, 0)))
        case tt.Trans():
            yield from (((results[0], at), (components[0], axis)) for at, axis in enumerate(op.order))
        case tt.ExpandDims():
            for axis in range(len(_sides(components[0]))):
                yield (components[0], axis), (results[0], axis + (axis >= op.axis))
        case tt.Reduce():
            for axis in range(len(_sides(components[0]))):
                for component in components[1:]:
                    yield (components[0], axis), (component, axis)
                for component in results if axis != op.axis else ():
                    yield (components[0], axis), (component, axis - (axis > op.axis))
        case Structured() | scf.Yield() | scf.Condition() | core.TupleLoad():
            pass  # Control flow joins whole values.
        case _:
            # Axes of one size are the same; a broadcast makes an axis of 1 another one.
            tensors = [component for component in (*components, *results) if _sides(component)]
            for component in tensors[1:]:
                for axis, (a, b) in enumerate(zip(_sides(tensors[0]), _sides(component), strict=False)):
                    if a == b:
                        yield (tensors[0], axis), (component, axis)


def obstacle_to(func: tt.Func, division: Division, count: int) -> Obstacle | None:
    """The first op of a prepared kernel that `count` CTAs cannot share, dividing these axes."""
    if division.size < _LEAST_ELEMENTS * count:
        return Obstacle(f"its longest axis has only {division.size} elements", func)
    for op in func.walk():
        why = _why_not(op, division, count)
        if why is not None:
            return Obstacle(why, op)
    if division.axes is None:
        why, store = "it may store where the other CTAs have yet to load", _of_what_others_load(func, division)
    else:
        why, store = "it may store where another CTA loads or stores, in any order", _unordered(func, division)
    return None if store is None else Obstacle(why, store)


def _of_what_others_load(func: tt.Func, division: Division) -> Op | None:
    """A store to memory that a load before it reads in another CTA.

    Only a barrier makes all CTAs wait until such loads are done. One CTA needs none, or has one (`gpu.barriers`).
    """
    memory, loads = MemoryOrder(func), list[tt.Load]()

    def is_ordered(load: tt.Load, store: tt.Store) -> bool:
        """Whether only the first CTA does both, or the same CTA does both for each element."""
        if _is_of_first(load, division) or _is_of_first(store, division):
            return _is_of_first(load, division) and _is_of_first(store, division)
        return division.axis(load.result) is not None and _place(load) == _place(store)

    for op in func.walk():
        if isinstance(op, tt.Barrier) and op.parent_op is func:
            loads.clear()
        elif isinstance(op, tt.Load):
            loads.append(op)
        elif isinstance(op, tt.Store) and any(
            memory.keeps_order(op, [load.ptr]) and not is_ordered(load, op) for load in loads
        ):
            return op
    return None


def _unordered(func: tt.Func, division: Division) -> Op | None:
    """A store of a kernel with dots that may change what another CTA loads or stores before it, or in another iteration
    of a loop. The threads of one CTA wait for each other at each dot; the CTAs of a cluster do not.

    The blocks that a kernel stores through one descriptor are taken not to overlap, as in `divide`.
    """
    memory, forms = MemoryOrder(func), Forms(func)
    accesses = [op for op in func.walk() if isinstance(op, _LOADS + _STORES)]

    def is_ordered(op: Op, store: Op) -> bool:
        """Whether only one CTA does both, or the same CTA does both for each element."""
        if _is_of_first(store, division) or _is_of_first(op, division):
            return _is_of_first(store, division) and _is_of_first(op, division)
        if isinstance(op, tt.DescriptorStore) and isinstance(store, tt.DescriptorStore):
            return True
        if _place(op) == _place(store):
            return not isinstance(store, tt.Store) or iterations_are_apart(forms, store)
        return isinstance(op, tt.Store) and isinstance(store, tt.Store) and are_apart(forms, op, store, ())

    for at, store in enumerate(accesses):
        loops = {op for op in store.path() if isinstance(op, Loop)}
        others = [other_access for other_access in accesses[at + 1 :] if not loops.isdisjoint(other_access.path())]
        for other_access in (*accesses[: at + 1], *others) if isinstance(store, _STORES) else ():
            if memory.keeps_order(store, [other_access.operands[0]]) and not is_ordered(other_access, store):
                return store
    return None


def _place(op: Op) -> Sequence[Value]:
    """The operands that say which elements a load or a store accesses."""
    uses_descriptor = isinstance(op, tt.DescriptorLoad | tt.DescriptorStore)
    return (op.operands[0], *op.offsets) if uses_descriptor else op.operands[:1]


def _is_of_first(op: Op, division: Division) -> bool:
    """Whether only the first CTA does a store, or needs what a load gives."""
    if isinstance(op, _STORES):
        return division.axis(op.operands[0]) is None
    return division.axis(op.result) is None and not _reaches_parts(op, division)


def _reaches_parts(op: Op, division: Division) -> bool:
    """Whether anything but stores by the first CTA may depend on an op."""
    ops = reached([op], lambda user: [] if isinstance(user, tt.Store) else user.result.uses)
    stays = (user for user in ops if user is not op and not is_pure(user))
    return any(not isinstance(user, tt.Store) or division.axis(user.ptr) is not None for user in stays)


def _components(op: Op) -> Iterator[Component]:
    """The tensors, descriptors and scalars of an op: its results, operands and parameters."""
    for value in op.operands:
        yield from [component_of(value)] if len(component_types(value.type)) == 1 else components_of(value)
    for value in (op.result, *(parameter for body in op.bodies for parameter in body.parameters)):
        yield from components_of(value)


def _is_described(component: Component) -> bool:
    return isinstance(component_types(component[0].type)[component[1]], DescriptorType)


def _why_not(op: Op, division: Division, count: int) -> str | None:
    """The reason why CTAs cannot share an op, as a clause."""
    axes = {component: division.of(component) for component in _components(op)}
    if any(len(own) > 1 for own in axes.values()):
        return f"a tensor has two axes of {division.size}"
    if division.axes is None and any(map(_is_described, axes)):
        return "blocks of descriptors are not divided"
    reduced = division.axis(op.values[0]) if isinstance(op, tt.Reduce) else None
    if isinstance(op, tt.Reduce) and division.axes is not None and reduced == op.axis:
        return "the CTAs divide what it reduces"
    if reduced is not None and division.axes is None and any(isinstance(outer, Loop) for outer in op.path()):
        return "a loop reduces what the CTAs share"
    if isinstance(op, tt.Dot):
        if division.axes is None or (tensor_of(op.result).rank > 2 and any(axes.values())):
            return f"{op.NAME} is of one CTA"
        if division.axis(op.a) == 1:
            return "the CTAs divide the sums of a dot"
        if division.axis(op.result) == 0 and division.size < _LEAST_DOT_ROWS * count:
            return f"the result of a dot has only {division.size} rows"
    if isinstance(op, tt.DescriptorStore | tt.DescriptorReduce) and division.axis(op.descriptor) is None:
        return f"{op.NAME} would be done by each CTA"
    if op.jumps:
        return "control flow is not structured"
    if isinstance(op, _OF_ONE_CTA):
        return f"{op.NAME} is of one CTA"
    if isinstance(op, tt.Barrier):
        return None if division.axes is None else "roles have no barrier of all CTAs"
    if may_order(op) or (not op.bodies and may_write(op) and not _is_shared(op)):
        return f"{op.NAME} would be done by each CTA"
    if not any(axes.values()):
        return None
    if isinstance(op, tt.Reshape):
        shapes = [shape_of(value.type) for value in (op.result, op.value)]
        narrow = [tuple(size for size in shape if size > 1) for shape in shapes]
        same = narrow[0] == narrow[1] and (division.axes is None or shapes[0] == shapes[1])
        return None if same else "a reshape moves elements between CTAs"
    if isinstance(op, tt.Reduce):
        good = all(isinstance(type_, ScalarType) for value in op.values for type_ in [tensor_of(value).element])
        return None if good else "pointers are reduced"
    return None if isinstance(op, _DIVISIBLE) or is_elementwise(op) else f"{op.NAME} moves elements between CTAs"


def _is_shared(op: Op) -> bool:
    """Whether an op with effects is right in each CTA for its elements, or can be done by the first one."""
    return isinstance(op, tt.Store | tt.DescriptorStore | tt.Return | tt.GridDependencyWait | tt.GridDependencyLaunch)


# The division.


def _spread(module: core.Module, func: tt.Func, division: Division, count: int) -> Op:
    part = division.size // count
    here: dict[str, Value] = {}  # The number of the first element of this CTA, and whether the CTA is the first.

    def small(component: Component) -> Type:
        type_, axes = component_types(component[0].type)[component[1]], division.of(component)
        sides = tuple(part if axis in axes else side for axis, side in enumerate(_sides(component)))
        if isinstance(type_, DescriptorType):
            return attrs.evolve(type_, block=sides)
        return TensorType(sides, type_.element) if isinstance(type_, TensorType) else type_

    def divided(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is func:
            types = [small((parameter, 0)) for parameter in func.body.parameters]
            return _function(builder, func, types, part, count, here)
        if isinstance(op, tt.Barrier):
            return builder.add(gpu.ClusterBarrier())
        if isinstance(op, tt.Store) and division.axis(op.ptr) is None:
            return _stored_by_first(builder, op, operands, here["is first"])
        if not any(map(division.of, _components(op))):
            return None
        if isinstance(op, tt.MakeRange):
            return numbers_from(builder, op, here["start"], part)
        if isinstance(op, tt.Hint):
            axis = division.axis(op.result)
            assert axis is not None
            return operands[0] if part % op.values[axis] else None
        if isinstance(op, tt.Reduce) and division.axis(op.values[0]) == op.axis:
            return _reduced(builder, op, operands, count)
        if isinstance(op, tt.DescriptorLoad | tt.DescriptorStore):
            axis = division.axis(op.descriptor)
            assert axis is not None
            first = len(operands) - len(op.offsets)
            offset = builder.add(arith.AddI(operands[first + axis], here["start"]))
            operands = (*operands[: first + axis], offset, *operands[first + axis + 1 :])
        # The types of ops with bodies follow from those of their operands.
        types = [*map(small, components_of(op.result))]
        return None if op.bodies else builder.copy(op, operands, scf.packed(types))

    return transform(module, divided, pass_name="spread")


def _function(
    builder: Rewriter, func: tt.Func, types: Sequence[Type], part: int, count: int, here: dict[str, Value]
) -> Value:
    body = func.body
    inner = builder.inside(types, body.yield_type, isolated=True)
    inner.mapping.values.update(zip(body.parameters, inner.parameters, strict=True))
    inner.location = func.location
    rank = inner.add(gpu.ClusterRank())
    here["start"] = inner.add(arith.MulI(rank, constant(inner, part)))
    here["is first"] = inner.add(arith.CmpI(rank, constant(inner, 0), arith.IntPredicate.EQ))
    inner.rewrite_ops(body.entry.ops)
    return builder.add(func.evolve(body=inner.finish(), num_ctas=count), func.location)


def _stored_by_first(builder: Rewriter, op: tt.Store, operands: tuple[Value, ...], is_first: Value) -> Value:
    """The store of a value that every CTA has, by the first one."""
    ptr, value, *values = operands
    type_ = with_element(ptr.type, i1)
    mask = builder.add(tt.Splat(is_first, type_)) if isinstance(type_, TensorType) else is_first
    if values:
        mask = builder.add(arith.AndI(values[0], mask))
    return builder.add(tt.Store(ptr, value, mask, cache=op.cache, eviction=op.eviction), op.location)


def _reduced(builder: Rewriter, op: tt.Reduce, operands: tuple[Value, ...], count: int) -> Value:
    """A reduction of the part of this CTA, and one of what the CTAs have."""
    parts = unpacked(builder, builder.copy(op, operands), len(operands))
    gathered = unpacked(builder, builder.add(gpu.ClusterGather(parts, count), op.location), len(parts))
    last = len(shape_of(gathered[0].type)) - 1
    result = builder.add(tt.Reduce(gathered, last, builder.rewrite_body(op.combine)), op.location)
    return repacked(builder, unpacked(builder, result, len(gathered)))
