"""Loads of blocks through pointers as loads through descriptors, which TMA does: where addresses are affine.

    %33 : tensor<x128, i32> = …                        %9 : descriptor<x128, x64, f16> = tt.make_tensor_descriptor
    %40 : tensor<x128, i32> = arith.remsi %33 %3;          %0 %3 %5 %6 %1 @at_launch=true;      M × K, rows %6 apart
    …   %a + (%40 · %6)[:, None] + range               …
    scf.for … (%k, %c, %p) {                           scf.for … (%k, %c) {
        %81 = tt.load %p (range < %5 - 64 · %k) 0;         %81 = tt.descriptor_load %9 %row (64 · %k);
        … tt.dot %81 …                       becomes       … tt.dot %81 …
        %87 = tt.addptr %p 64; …                           …

The pointers of a block are a parameter of the kernel plus a sum of index · stride (`affine`), where one stride is 1 and
the other is a parameter.

A descriptor gives zeros outside of the tensor, so the sizes of the tensor must be those that the mask compares with. An
index may be taken modulo the size, if every store of what is computed from the rows beyond is masked: then it does not
matter what they hold. Along an axis without either, the tensor has no end.

TMA reads memory by a proxy of its own, which nothing orders with the stores of the kernel. So no op that may write
comes before a load, or stands in a loop with it. Arrays may overlap as before.

The launch makes the tensor maps, from the values of the parameters; loads from a matrix without elements give zeros.
For values that no map can have (a stride that is not positive) it takes the kernel that was compiled without this pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import DescriptorType, ScalarType, TensorType, i1, i32, i64, shape_of
from ziggurat.transforms.analysis.affine import ONE, Forms, Poly, sum_of
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.analysis.components import component_of
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import (
    constant,
    constant_of,
    feeds_dot,
    function_of,
    is_elementwise,
    tensor_of,
)
from ziggurat.transforms.gpu.dots import Wgmma, is_chained, mma_of
from ziggurat.transforms.gpu.tma import tma_decisions
from ziggurat.transforms.simplify import simplify
from ziggurat.transforms.simplify.effects import is_read, may_write

_UNIT = 16  # Bytes: the base and the strides of a tensor map are multiples of this.
_ENDLESS = (1 << 31) - 1  # The size of a tensor along an axis without a bound.


Bound = Value | int


def raise_pointers(module: core.Module, options: CompileOptions) -> core.Module:
    """The prepared module in which loads for dots of a loop go through descriptors that a launch makes.

    A loop's loads are raised if TMA then does them all.
    """
    return _raised(module, options, {})


def why_not_raised(module: core.Module, options: CompileOptions) -> Mapping[Value, Obstacle]:
    """The obstacles to raising loads for dots of a loop, by the loads' results."""
    obstacles: dict[Value, Obstacle] = {}
    _raised(module, options, obstacles)
    return obstacles


def _raised(module: core.Module, options: CompileOptions, obstacles: dict[Value, Obstacle]) -> core.Module:
    """The module of `raise_pointers`. `obstacles` gets those of the loads that are not raised."""
    func = function_of(module)
    if not options.raise_pointers or not func.holds(tt.Dot) or any(op.jumps for op in func.walk()):
        return module
    analysis = _Analysis(func)
    loads = [op for op in func.walk() if isinstance(op, tt.Load) and feeds_dot(op.result)]
    loads = [op for op in loads if _is_pipelined(op.parent_op, options.num_stages)]
    converted = [] if _has_wgmma(module, options) else _converted_loads(func)
    plans: dict[Value, _Raised] = {}
    for op in [*loads, *analysis.lone_store()]:
        plan = analysis.raised(op)
        if not isinstance(plan, Obstacle):
            plans[op.result] = plan
        elif isinstance(op, tt.Load):
            obstacles[op.result] = plan
    while any(isinstance(plan.access, tt.Load) for plan in plans.values()):
        # The loads of a loop are pipelined alike.
        others = {op.parent_op: op for op in [*loads, *converted] if op.result not in plans}
        for value, plan in [*plans.items()]:
            if (other := others.get(plan.access.parent_op)) is not None:
                obstacles[value] = Obstacle("another load for the dots of its loop is not done by TMA", other)
                del plans[value]
        rewritten = _rewritten(module, analysis, plans)
        decisions = tma_decisions(rewritten, options.target, options.warps, options.launch_pdl, roles=True)
        accesses = [op for op in rewritten.walk() if isinstance(op, tt.DescriptorLoad | tt.DescriptorStore)]
        through = [op for op in accesses if _is_made_at_launch(op.descriptor)]
        unserved = [
            (value, decision)
            for value, op in zip(plans, through, strict=True)
            if not isinstance(decision := decisions.get(op.result), bool)
        ]
        if not unserved:
            return expect(simplify(rewritten), core.Module)
        # Without the store of the same memory, a load may be done by TMA.
        stores = [value for value, _ in unserved if isinstance(plans[value].access, tt.Store)]
        for value, decision in unserved:
            if value in stores or not stores:
                access = plans.pop(value).access
                obstacles[value] = Obstacle("the target has no TMA", access) if decision is None else decision[1]
    return module


def _has_wgmma(module: core.Module, options: CompileOptions) -> bool:
    """Whether wgmma computes a dot."""
    dots = (op for op in module.walk() if isinstance(op, tt.Dot))
    units = (mma_of(op, options.target, options.warps, rows_first=is_chained(module)) for op in dots)
    return any(isinstance(unit, Wgmma) for unit in units)


def _converted_loads(func: tt.Func) -> list[tt.Load]:
    """The loads of blocks that threads compute operands of dots from: they copy these themselves. Beside them, mma.sync
    would gain nothing by TMA, and wait for two kinds of copies."""

    def following(value: Value) -> Sequence[Value]:
        return [user.result for user in value.uses if not isinstance(user, tt.Dot) and not user.bodies]

    loads = [op for op in func.walk() if isinstance(op, tt.Load) and not feeds_dot(op.result)]
    blocks = [op for op in loads if isinstance(op.result.type, TensorType) and op.result.type.rank == 2]
    return [op for op in blocks if any(feeds_dot(value) for value in reached([op.result], following))]


def _is_pipelined(loop: Op | None, num_stages: int | None) -> bool:
    if not isinstance(loop, scf.For):
        return False
    stages = num_stages if loop.num_stages is None else loop.num_stages
    return stages is None or stages > 1


def _is_made_at_launch(descriptor: Value) -> bool:
    maker = descriptor.op
    return isinstance(maker, tt.MakeTensorDescriptor) and maker.at_launch


@attrs.frozen(eq=False)
class _Raised:
    """A load or a store as one of a block at `offsets` of a matrix in memory: rows of `shape` are `pitch` apart, in
    elements. The tensor is the transpose of the block if `turned`.
    """

    access: tt.Load | tt.Store
    base: Value
    shape: tuple[Bound, Bound]
    pitch: Bound
    offsets: tuple[Poly, Poly]
    turned: bool

    @property
    def type(self) -> DescriptorType:
        """The type of the descriptor."""
        type_ = tensor_of(_moved_by(self.access))
        assert isinstance(type_.element, ScalarType)
        return DescriptorType(type_.shape[::-1] if self.turned else type_.shape, type_.element)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for loads that can go through one descriptor."""
        return self.base, self.shape, self.pitch, self.type


def _rewritten(module: core.Module, analysis: _Analysis, plans: Mapping[Value, _Raised]) -> core.Module:
    """The module with these loads raised, in their order."""
    descriptors: dict[tuple[object, ...], Value] = {}

    def rewrite(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Func):
            inner = builder.replacing(op.body)
            inner.location = op.location
            for plan in plans.values():
                if plan.key not in descriptors:
                    descriptors[plan.key] = _descriptor(inner, plan)
            inner.rewrite_blocks(op.body)
            return builder.add(op.SPEC.copy(op, (), (), [inner.finish()], op.result.type))
        plan = plans.get(op.result)
        if plan is None:
            return None
        offsets = [analysis.value(builder, offset) for offset in plan.offsets]
        if isinstance(plan.access, tt.Store):
            value = builder[plan.access.value]
            value = builder.add(tt.Trans(value, (1, 0))) if plan.turned else value
            builder.add(tt.DescriptorStore(descriptors[plan.key], value, offsets))
            return DROP
        block = builder.add(tt.DescriptorLoad(descriptors[plan.key], offsets, eviction=plan.access.eviction))
        return builder.add(tt.Trans(block, (1, 0))) if plan.turned else block

    return expect(transform(module, rewrite, pass_name="raise_pointers"), core.Module)


def _moved_by(access: tt.Load | tt.Store) -> Value:
    """The value that an access loads or stores."""
    return access.value if isinstance(access, tt.Store) else access.result


def _descriptor(builder: Rewriter, plan: _Raised) -> Value:
    """A descriptor, at the beginning of the function."""
    shape = [constant(builder, size) if isinstance(size, int) else builder[size] for size in plan.shape]
    pitch = plan.pitch
    wide = constant(builder, pitch, i64) if isinstance(pitch, int) else builder.add(arith.ExtSI(builder[pitch], i64))
    strides = [wide, constant(builder, 1, i64)]
    return builder.add(tt.MakeTensorDescriptor(builder[plan.base], shape, strides, plan.type, at_launch=True))


class _Analysis(Forms):
    """The forms of the values of a function, and its loads and stores as those of blocks."""

    def __init__(self, func: tt.Func) -> None:
        super().__init__(func)
        self.infos = analyse(func)
        self.divisors: dict[Value, int] = dict(zip(func.body.parameters, func.divisibility, strict=False))
        self.writers = [op for op in func.walk() if not op.bodies and may_write(op)]
        self.order = {op: at for at, op in enumerate(func.walk())}

    def value(self, builder: Rewriter, poly: Poly) -> Value:
        """A polynomial as an i32 of the new model."""
        total: Value | None = None
        for product, coefficient in poly.items():
            factors = [builder[self.atoms[number]] for number in product]
            if coefficient != 1 or not factors:
                factors.append(constant(builder, coefficient))
            term = factors[0]
            for factor in factors[1:]:
                term = builder.add(arith.MulI(term, factor))
            total = term if total is None else builder.add(arith.AddI(total, term))
        return constant(builder, 0) if total is None else total

    # Loads and stores.

    def lone_store(self) -> list[tt.Store]:
        """The store of the function, if it is the only op that writes, and nothing is read after it."""
        if len(self.writers) != 1 or not isinstance(store := self.writers[0], tt.Store):
            return []
        in_loop = any(isinstance(op, scf.For | scf.While) for op in store.path())
        reads = [op for op in self.func.walk() if is_read(op) and self.order[op] > self.order[store]]
        hinted = store.eviction is not tt.EvictionPolicy.NORMAL
        return [] if in_loop or reads or hinted else [store]

    def raised(self, access: tt.Load | tt.Store) -> _Raised | Obstacle:
        """A load or a store through a descriptor, or the obstacle."""
        type_, form = _moved_by(access).type, self.form(access.ptr)
        why = "its addresses are not known to be those of a block of a tensor, as a descriptor's are"
        scattered = Obstacle(why, access)
        if not isinstance(type_, TensorType) or type_.rank != 2 or form is None or form.origin is None:
            return scattered
        volatile = isinstance(access, tt.Load) and access.volatile
        if volatile or access.cache not in (tt.CacheModifier.NONE, tt.CacheModifier.CA, tt.CacheModifier.CG):
            return Obstacle("it is volatile, or has a cache modifier that TMA has not", access)
        other = access.other if isinstance(access, tt.Load) else None
        if other is not None and str(constant_of(other)) not in ("0", "0.0"):
            return Obstacle("its value where the mask is false is not zero", access)
        if type_.element == i1 or not isinstance(type_.element, ScalarType):
            return Obstacle("TMA moves numbers of 8 bits or more", access)
        if isinstance(access, tt.Load) and (writer := self._writer(access)) is not None:
            return Obstacle("an op that may write comes before it, or is in a loop with it", writer)
        along = next((axis for axis in (1, 0) if form.axes[axis].stride == ONE), None)
        pitch = None if along is None else self._bound(form.axes[1 - along].stride)
        if along is None or pitch is None:
            return scattered
        if not self._is_even(form.origin, 1) or not self._is_even(pitch, type_.element.bytes):
            return Obstacle("its base and the distance of its rows are not known to be multiples of 16 bytes", access)
        starts: dict[int, Poly] = dict(zip((1 - along, along), self._split(form.base, pitch), strict=True))
        if self._split(form.wide, pitch)[1]:
            return Obstacle("its columns are not known to be within 32 bits", access)
        masked = Obstacle("its mask is not known to be that of a block, index < size on each axis", access)
        limits, exact = self.limits(access.mask, 2)
        shape: list[Bound] = []
        for axis in (1 - along, along):
            wrap = form.axes[axis].wrap
            sizes = [sum_of(starts[axis], number, -1) for at, number in limits if at == axis]
            if wrap is not None:
                hidden = isinstance(access, tt.Load) and not sizes and not starts[axis]
                if not hidden or not self._is_hidden(access.result, axis, sum_of(wrap[0], wrap[1], -1)):
                    return Obstacle("its index is taken modulo a size, and rows beyond the size may be stored", access)
                starts[axis], sizes = wrap[0], [wrap[1]]
            size = self._bound(sizes[0]) if len(sizes) == 1 else None if sizes else _ENDLESS
            if size is None:
                return masked
            if not self.is_index(starts[axis]):
                return Obstacle("an index of the block is not known to be an i32 of 0 or more", access)
            shape.append(size)
        if not exact:
            return masked
        rows, columns = shape
        if isinstance(access, tt.Store) and not self._is_even(columns, type_.element.bytes):
            return Obstacle("the rows of the tensor are not known to be multiples of 16 bytes", access)
        offsets = starts[1 - along], starts[along]
        return _Raised(access, form.origin, (rows, columns), pitch, offsets, along == 0)

    def _writer(self, load: tt.Load) -> Op | None:
        """An op that may write, and comes before a load or stands in a loop with it."""
        loops = {op for op in load.path() if isinstance(op, scf.For | scf.While)}
        before = (op for op in self.writers if self.order[op] < self.order[load])
        return next(before, None) or next((op for op in self.writers if not loops.isdisjoint(op.path())), None)

    def _bound(self, poly: Poly) -> Bound | None:
        """A polynomial that is an i32 parameter of the function, or a constant of 1 or more."""
        if list(poly) == [()]:
            return poly[()] if 1 <= poly[()] <= _ENDLESS else None
        ((product, coefficient),) = poly.items() if len(poly) == 1 else [((), 0)]
        value = self.atoms[product[0]] if len(product) == 1 and coefficient == 1 else None
        return value if value in self.func.body.parameters and value.type == i32 else None

    def _is_even(self, number: Bound, size: int) -> bool:
        """Whether a number of units of `size` bytes is a multiple of 16 bytes."""
        divisor = number if isinstance(number, int) else self.divisors.get(number, 1)
        return divisor * size % _UNIT == 0

    def is_index(self, poly: Poly) -> bool:
        """Whether a polynomial is an i32 that is known not to be negative, and not to wrap around."""
        largest = 0
        for product, coefficient in poly.items():
            infos = [self.infos.get(component_of(self.atoms[number])) for number in product]
            magnitudes = [info.magnitude for info in infos if info is not None and info.nonnegative]
            if coefficient <= 0 or len(magnitudes) < len(product) or any(self.atoms[n].type != i32 for n in product):
                return False
            largest += coefficient * math.prod(magnitudes)
        return largest <= _ENDLESS

    def _split(self, base: Poly, pitch: Bound) -> tuple[Poly, Poly]:
        """The rows and the columns of an offset, for a pitch."""
        rows: dict[tuple[int, ...], int] = {}
        columns: dict[tuple[int, ...], int] = {}
        number = -1 if isinstance(pitch, int) else self.atoms.index(pitch)
        for product, coefficient in base.items():
            if isinstance(pitch, int) and coefficient % pitch == 0:
                rows[product] = coefficient // pitch
            elif number in product:
                at = product.index(number)
                rows[(*product[:at], *product[at + 1 :])] = coefficient
            else:
                columns[product] = coefficient
        return rows, columns

    # Rows that wrap around.

    def _is_hidden(self, value: Value, axis: int, limit: Poly) -> bool:
        """Whether nothing can be seen of the elements of a tensor whose index along an axis, plus `limit`, is not
        negative: all stores of what is computed from them are masked."""
        work, visited = [(value, axis)], set[tuple[Value, int]]()
        while work:
            item = work.pop()
            if item in visited:
                continue
            visited.add(item)
            for user in item[0].uses:
                following = self._follow(user, *item, limit)
                if following is None:
                    return False
                work += following
        return True

    def _follow(self, user: Op, value: Value, axis: int, limit: Poly) -> list[tuple[Value, int]] | None:
        """The values that depend on such elements of a value by its user, each with the axis; None if others do."""
        match user:
            case tt.Dot() if len(tensor_of(user.result).shape) == 2:
                along = [at for operand, at in ((user.a, 0), (user.b, 1)) if operand is value]
                is_k = any(at != axis for at in along)
                return None if is_k else [(user.result, axis)]
            case tt.Trans():
                return [(user.result, user.order.index(axis))]
            case tt.Store():
                limits, _ = self.limits(user.mask, len(shape_of(value.type)))
                only = user.value is value and user.ptr is not value and user.mask is not value
                return [] if only and (axis, limit) in limits else None
            case scf.Yield() if isinstance(user.parent_op, scf.For | scf.If):
                return [
                    (follower, axis)
                    for number, operand in enumerate(user.operands)
                    if operand is value
                    for follower in _carried(user.parent_op, number)
                ]
            case core.TupleLoad():
                return []  # `_carried` has the right one.
            case scf.For():
                return [
                    (follower, axis)
                    for number, initial in enumerate(user.initial)
                    if initial is value
                    for follower in _carried(user, number)
                ]
            case _:
                is_alike = is_elementwise(user) and shape_of(user.result.type) == shape_of(value.type)
                return [(user.result, axis)] if is_alike else None


def _carried(owner: Structured, number: int) -> list[Value]:
    """The values that are a value which the bodies of an op hand on."""
    inside: list[Value] = [body.parameters[number + 1] for body in owner.bodies if isinstance(owner, scf.For)]
    if len(owner.value_types) == 1:
        return [*inside, owner.result]
    return [*inside, *(op.result for op in owner.result.uses if isinstance(op, core.TupleLoad) and op.index == number)]
