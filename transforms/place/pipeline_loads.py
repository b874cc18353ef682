"""Pipelining: the loads that feed the dots of a loop become copies that are under way while earlier ones are used.

    scf.for … (%i, %acc, %p) {                        prologue: the copies of the first iterations
        %a = tt.load %p @width=8;                     scf.for … (%i, %acc, %p, %r, %q) {
        %b = gpu.local_alloc;                             gpu.async_wait @1;
        gpu.local_store %b %a;             becomes        gpu.async_copy %q %buffers[before %r] (if …) @width=8;
        %d = gpu.wgmma %b … %acc;                         gpu.async_commit;
        …                                                 %d = gpu.wgmma %buffers[%r] … %acc;

With `num_stages` buffers, the copies of `num_stages - 1` iterations are under way before the loop. Each iteration waits
for its own copies, then begins those of the iteration that many ahead, into the buffer that the iteration before has
read. One barrier between the two, which `barriers` finds, orders both. Where there is no such iteration the copies'
masks are false. What the addresses are computed from is carried a second time, ahead by as many iterations.

A load is pipelined where a copy does the same: it goes only into buffers, at least 4 bytes at a time; what masks leave
out is undefined or zero; its address follows from what the loop carries; and nothing in the loop writes memory.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, gpu, scf, tt
from ziggurat.codemodel.layout import bits_of, combine, inverted
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import PtrType, ScalarType, SharedType, TensorType, Type, i1, i32, i64, with_element
from ziggurat.transforms.place.allocate import limit_of
from ziggurat.transforms.simplify.effects import is_pure, may_trap, may_write

_READERS = (gpu.Wgmma, gpu.Mma, gpu.DotFma)
_COPIED_BYTES = (4, 8, 16)  # What one cp.async moves.
_KEPT_BYTES = 8192  # Shared memory that is left to what the lowering needs.

Uses = Mapping[Value, tuple[Op, ...]]


@attrs.frozen(eq=False)
class _Copy:
    """A load that becomes copies: through `transposed`, stored by `store` to `buffer`, `width` elements at a time."""

    load: tt.Load
    transposed: tuple[tt.Trans, ...]
    store: gpu.LocalStore
    buffer: gpu.LocalAlloc
    width: int


@attrs.frozen(eq=False)
class _Plan:
    """How a loop is pipelined.

    `ahead` are the ops that compute the addresses and what they need of the next iteration, in order; `carried` the
    numbers of the carried values that they start from.
    """

    copies: tuple[_Copy, ...]
    stages: int
    step: int
    ahead: tuple[Op, ...]
    carried: tuple[int, ...]

    @property
    def distance(self) -> int:
        """By how many iterations the copies are ahead."""
        return self.stages - 1


def pipeline_loads(module: Op, num_stages: int) -> Op:
    """The GPU model whose loops with dots copy their operands ahead, to up to `num_stages` buffers; 1 changes nothing.

    The `num_stages` of a loop counts for it. There are fewer buffers where shared memory would not do.
    """
    assert isinstance(module, gpu.Module)
    uses = module.use_map()
    # Other buffers, such as those of operands that the loop does not change, need their place as well.
    limit = limit_of(module.target) - _KEPT_BYTES
    limit -= sum(_shared(op).bytes for op in module.walk() if isinstance(op, gpu.LocalAlloc))
    plans = {
        op.result: plan
        for op in module.walk()
        if isinstance(op, scf.For)
        and (plan := _planned(op, op.num_stages if op.num_stages is not None else num_stages, uses, limit)) is not None
    }
    if not plans:
        return module

    def pipelined(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        plan = plans.get(op.result)
        if plan is None:
            return None
        assert isinstance(op, scf.For)
        return _Loop(builder, op, operands, plan).made()

    return transform(module, pipelined, pass_name="pipeline_loads")


# What can be pipelined.


def _planned(loop: scf.For, num_stages: int, uses: Uses, limit: int) -> _Plan | None:
    """How to pipeline a loop with up to `limit` bytes for further buffers."""
    step = _constant(loop.step)
    if num_stages < 2 or not step or loop.start.type not in (i32, i64) or len(loop.body.blocks) != 1:
        return None
    if not all(isinstance(op, core.TupleLoad) for op in uses.get(loop.result, ())) and len(loop.initial) > 1:
        return None
    if any(_orders_memory(op) for op in loop.body.entry.ops):
        return None
    copies = [copy for op in loop.body.entry.ops if (copy := _copy_of(op, uses)) is not None]
    stores = {copy.store.result for copy in copies}
    copies = [copy for copy in copies if _only_stored(copy.load, uses, stores)]
    traced = [(copy, found) for copy in copies if (found := _ahead(loop, _addresses(copy))) is not None]
    if not traced:
        return None
    ahead = {op.result for _, (ops, _) in traced for op in ops}
    carried = sorted({number for _, (_, numbers) in traced for number in numbers})
    each = sum(_shared(copy.buffer).bytes for copy, _ in traced)
    stages = min(num_stages, limit // each + 1)
    if stages < 2 or abs(step) * stages >= 1 << 30:
        return None
    in_order = tuple(op for op in loop.body.entry.ops if op.result in ahead)
    return _Plan(tuple(copy for copy, _ in traced), stages, step, in_order, tuple(carried))


def _orders_memory(op: Op) -> bool:
    """Whether a load may not be moved before this op, which stands in the loop."""
    for inner in op.walk():
        if inner.NAME.startswith("gpu.") and not isinstance(inner, gpu.TmaStore):
            continue
        if isinstance(inner, tt.Barrier | tt.Call) or (not inner.bodies and may_write(inner)):
            return True
    return False


def _copy_of(op: Op, uses: Uses) -> _Copy | None:
    """How the tensor that an op stores to a buffer can be copied there instead."""
    if not isinstance(op, gpu.LocalStore) or not isinstance(op.buffer, OpResult):
        return None
    alloc, block = op.buffer.op, op.parent
    if not isinstance(alloc, gpu.LocalAlloc) or alloc.parent is not block or _shared(alloc).count != 1:
        return None
    users = [user for user in uses[op.buffer] if user is not op]
    if not all(isinstance(user, _READERS) and user.parent is block for user in users):
        return None
    transposed: list[tt.Trans] = []
    value = op.value
    while isinstance(value, OpResult) and isinstance(value.op, tt.Trans) and value.op.parent is block:
        transposed.append(value.op)
        value = value.op.value
    if not isinstance(value, OpResult) or not isinstance(value.op, tt.Load) or value.op.parent is not block:
        return None
    load = value.op
    element = _shared(alloc).element
    if load.volatile or load.cache is tt.CacheModifier.CV or element == i1 or not _is_nothing(load.other):
        return None
    width = _width(op, load.width)
    if width * element.bytes not in _COPIED_BYTES:
        return None
    return _Copy(load, tuple(reversed(transposed)), op, alloc, width)


def _width(store: gpu.LocalStore, width: int) -> int:
    """How many of the neighbours that a load takes together are neighbours in the buffer, too."""
    assert isinstance(store.value.type, TensorType) and store.value.type.layout is not None
    places = inverted(_type(store.buffer).offsets)
    bases = store.value.type.layout.registers[: bits_of(width)]
    together = 0
    while together < len(bases) and combine(places, bases[together]) == 1 << together:
        together += 1
    return 1 << together


def _only_stored(value: Op, uses: Uses, stores: Container[Value]) -> bool:
    """Whether a load goes nowhere but into the buffers."""
    return all(
        _only_stored(user, uses, stores) if isinstance(user, tt.Trans) else user.result in stores
        for user in uses.get(value.result, ())
    )


def _addresses(copy: _Copy) -> list[Value]:
    return [copy.load.ptr] if copy.load.mask is None else [copy.load.ptr, copy.load.mask]


def _ahead(loop: scf.For, wanted: Sequence[Value]) -> tuple[list[Op], set[int]] | None:
    """The ops of a loop that compute these values, and their like in later iterations, from what it carries.

    None where they may not be run ahead.
    """
    block = loop.body.entry
    yielded = block.terminator.operands
    ops: dict[Value, Op] = {}
    carried: set[int] = set()
    work = list(wanted)
    while work:
        value = work.pop()
        if value.block is not block or value in ops:
            continue
        if isinstance(value, BlockParameter):
            number = loop.body.parameters.index(value) - 1
            if number >= 0 and number not in carried:
                carried.add(number)
                work.append(yielded[number])
            continue
        assert isinstance(value, OpResult)
        op = value.op
        if not is_pure(op) or op.bodies or may_trap(op):
            return None
        ops[value] = op
        work += op.operands
    return list(ops.values()), carried


def _is_nothing(other: Value | None) -> bool:
    """Whether what a load gives for false masks is undefined, or zeros."""
    while isinstance(other, OpResult) and isinstance(other.op, tt.Splat | tt.Broadcast | gpu.ConvertLayout):
        other = other.op.value
    if other is None:
        return True
    if not isinstance(other, OpResult) or not isinstance(other.op, arith.ConstantOp):
        return False
    return str(other.op.value) in ("0", "0.0")  # Not -0.0, whose bits are others.


def _constant(value: Value) -> int | None:
    return value.op.value if isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp) else None


def _type(value: Value) -> SharedType:
    assert isinstance(value.type, SharedType)
    return value.type


def _shared(alloc: gpu.LocalAlloc) -> SharedType:
    return _type(alloc.result)


# The new loop.


class _Loop:
    """Writes a pipelined loop, what comes before it and after it."""

    def __init__(self, builder: Rewriter, loop: scf.For, operands: tuple[Value, ...], plan: _Plan) -> None:
        self.builder = builder
        self.loop = loop
        self.plan = plan
        self.start, self.stop, self.step = operands[:3]
        self.initial = operands[3:]
        assert isinstance(loop.start.type, ScalarType)
        self.index: ScalarType = loop.start.type
        self.buffers: dict[Value, Value] = {}
        for copy in plan.copies:
            type_ = attrs.evolve(_shared(copy.buffer), count=plan.stages)
            made = builder.add(gpu.LocalAlloc(type_, alignment=copy.buffer.alignment), copy.buffer.location)
            self.buffers[copy.buffer.result] = made

    def made(self) -> Value:
        """Add everything to the builder; the value that stands for the loop's result."""
        builder, plan, loop = self.builder, self.plan, self.loop
        ahead: Sequence[Value] = [self.initial[number] for number in plan.carried]
        for number in range(plan.distance):
            ahead = self._begin(builder, self.start, number, ahead, _number(builder, number, i32))
        own = [value.type for value in self.initial]
        initial = [*self.initial, _number(builder, 0, i32), *ahead]
        types = [value.type for value in initial]
        nested = builder.nested([self.index, *types], scf.packed(types))
        inner = Rewriter.over(nested, builder.transformers, builder.pass_name, builder.caller)
        inner.mapping.parent = builder.mapping
        index, *carried = inner.parameters
        for old, new in zip(loop.body.parameters, [index, *carried[: len(own)]], strict=True):
            inner[old] = new
        self._body(inner, index, carried[len(own)], carried[len(own) + 1 :])
        options = dict(loop.attributes)
        made = builder.add(scf.For(self.start, self.stop, self.step, initial, inner.finish(), **options), loop.location)
        # The copies of the last iterations, which copied nothing, still hold the buffers.
        builder.add(gpu.AsyncWait(0))
        return builder.add(core.TupleLoad(made, 0)) if len(own) == 1 else made

    def _body(self, inner: Rewriter, index: Value, turn: Value, ahead: Sequence[Value]) -> None:
        plan, loop = self.plan, self.loop
        inner.add(gpu.AsyncWait(plan.distance - 1))
        if any(isinstance(op, gpu.Wgmma) for op in loop.body.entry.ops):
            # What this thread has copied is for the matrix units, behind the barrier that follows.
            inner.add(gpu.FenceAsync())
        first, last = _number(inner, 0, i32), _number(inner, plan.distance, i32)
        one = _number(inner, 1, i32)
        at_first = inner.add(arith.CmpI(turn, first, arith.IntPredicate.EQ))
        before = inner.add(arith.Select(at_first, last, inner.add(arith.SubI(turn, one))))
        ahead = self._begin(inner, index, plan.distance, ahead, before)
        gone = {op.result for copy in plan.copies for op in (copy.load, copy.store, *copy.transposed)}
        gone |= _superfluous_fences(loop, gone)
        *ops, end = loop.body.entry.ops
        for op in ops:
            if op.result in gone:
                continue
            if op.result in self.buffers:
                inner[op.result] = inner.add(gpu.LocalView(self.buffers[op.result], turn), op.location)
            else:
                inner.rewrite(op)
        at_last = inner.add(arith.CmpI(turn, last, arith.IntPredicate.EQ))
        following = inner.add(arith.Select(at_last, first, inner.add(arith.AddI(turn, one))))
        inner.add(scf.Yield([*(inner[value] for value in end.operands), following, *ahead]), end.location)

    def _begin(
        self, builder: Rewriter, index: Value, distance: int, ahead: Sequence[Value], turn: Value
    ) -> list[Value]:
        """Begin the copies of the iteration `distance` after that of `index`, into the buffers of number `turn`.

        `ahead` are the carried values of that iteration; gives those of the next.
        """
        plan, loop = self.plan, self.loop
        body = loop.body
        goes_on = self._goes_on(builder, index, distance)
        known: dict[Value, Value] = {}
        shift = _number(builder, distance * plan.step, self.index)
        known[body.parameters[0]] = builder.add(arith.AddI(index, shift)) if distance else index
        for number, value in zip(plan.carried, ahead, strict=True):
            known[body.parameters[number + 1]] = value

        def new(value: Value) -> Value:
            return known[value] if value.block is body.entry else builder[value]

        for op in plan.ahead:
            known[op.result] = builder.add(rebuilt(op, [new(value) for value in op.operands], ()), op.location)
        for copy in plan.copies:
            pointers = new(copy.load.ptr)
            given = new(copy.load.mask) if copy.load.mask is not None else None
            mask = _masked(builder, pointers, given, goes_on)
            for step in copy.transposed:
                pointers, mask = (builder.add(tt.Trans(value, step.order)) for value in (pointers, mask))
            view = builder.add(gpu.LocalView(self.buffers[copy.buffer.result], turn))
            builder.add(gpu.AsyncCopy(pointers, view, mask, width=copy.width), copy.load.location)
        builder.add(gpu.AsyncCommit())
        yielded = body.entry.terminator.operands
        return [new(yielded[number]) for number in plan.carried]

    def _goes_on(self, builder: Builder, index: Value, distance: int) -> Value:
        """Whether the loop has the iteration `distance` after that of `index`: without a sum that may overflow."""
        shift = distance * self.plan.step
        low, high = self.index.limits
        up = shift > 0 or self.plan.step > 0
        bound = self.stop
        if shift:
            furthest = _number(builder, (low if up else high) + shift, self.index)
            bound = builder.add(arith.MaxSI(bound, furthest) if up else arith.MinSI(bound, furthest))
            bound = builder.add(arith.SubI(bound, _number(builder, shift, self.index)))
        predicate = arith.IntPredicate.SLT if up else arith.IntPredicate.SGT
        return builder.add(arith.CmpI(index, bound, predicate))


def _masked(builder: Builder, pointers: Value, mask: Value | None, condition: Value) -> Value:
    """A mask that holds where the given one does and the condition, a scalar, holds."""
    assert isinstance(pointers.type, TensorType) and isinstance(pointers.type.element, PtrType)
    wide = builder.add(tt.Splat(condition, with_element(pointers.type, i1)))
    return wide if mask is None else builder.add(arith.AndI(mask, wide))


def _superfluous_fences(loop: scf.For, gone: Container[Value]) -> set[OpResult]:
    """The fences of a loop's body before products none of whose operands the body writes, but for what is `gone`.

    They come after the fence that the loop begins with.
    """
    stores = [op for op in loop.body.walk() if isinstance(op, gpu.LocalStore)]
    written = {op.buffer for op in stores if op.result not in gone}
    found: set[OpResult] = set()
    since: list[OpResult] = []
    for op in loop.body.entry.ops:
        if isinstance(op, gpu.FenceAsync):
            since.append(op.result)
        elif isinstance(op, gpu.Wgmma):
            if op.a not in written and op.b not in written:
                found.update(since)
            since = []
    return found


def _number(builder: Builder, value: int, type_: Type) -> Value:
    return builder.add(arith.ConstantOp(value, type_))
