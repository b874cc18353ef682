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

Blocks come by the copy engine: mbarriers tell when, one for each buffer, whose phase is carried beside the buffer's
number `%r`. The last product of an iteration need not be complete at its end:

    scf.for … (%i, %acc) {                            scf.for … (%i, %acc, %r, %phase, %q) {
        …                                                 gpu.mbarrier_wait %full[%r] %phase;
        %d = gpu.wgmma %b … %acc;          becomes        %d = gpu.wgmma %buffers[%r] … %acc;
        %e = gpu.wgmma_wait %d @0;                        %e = gpu.wgmma_wait %d @1;
        scf.yield %e;                                     gpu.mbarrier_expect %full[before %r] …;
                                                          gpu.tma_load %0 %buffers[before %r] … %q;
                                                          scf.yield %e …;

The product of the iteration before is complete behind the wait for all but one, so its buffer can be filled again. In
attention's loop, that is the wait for the product of queries and keys.

Where threads copy, this takes a second barrier: the other warps' products must be complete as well. With one buffer
more, what is filled is the buffer that was read two iterations before, and the barrier behind the wait for the copies
does for both: that is done where a multiprocessor holds as many programs with it. `pipeline_plan` decides all this.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Block, Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import PtrType, ScalarType, SharedType, TensorType, Type, i1, i32, with_element
from ziggurat.transforms.place.allocate import limit_of
from ziggurat.transforms.place.loop_plan import LoopPlan, planned
from ziggurat.transforms.place.pressure import FILE
from ziggurat.transforms.place.tma import forget_mbarriers, mbarriers

_KEPT_BYTES = 8192  # Shared memory that is left to what the lowering needs.
_RESERVED_BYTES = 1024  # What the driver takes of it for each program.
_OTHER_REGISTERS = 64  # Of a thread, beside the sum of a product.


def pipeline_loads(module: Op, num_stages: int) -> Op:
    """The GPU model whose loops with dots copy their operands ahead, to up to `num_stages` buffers; 1 changes nothing.

    The `num_stages` of a loop counts for it. There are fewer buffers where shared memory would not do.
    """
    assert isinstance(module, gpu.Module)
    uses = module.use_map()
    allocs = [op for op in module.walk() if isinstance(op, gpu.LocalAlloc)]
    plans: dict[Value, LoopPlan] = {}
    for op in module.walk():
        if isinstance(op, scf.For):
            # Other buffers, such as those of operands that the loop does not change, need their place as well.
            others = sum(_shared_type(alloc).bytes for alloc in allocs if _lives_with(alloc, op))
            limit = limit_of(module.target) - _KEPT_BYTES - others
            programs = partial(_programs, module, others)
            plan = planned(op, op.num_stages if op.num_stages is not None else num_stages, uses, limit, programs)
            if plan is not None:
                plans[op.result] = plan
    if not plans:
        return module

    def pipelined(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        plan = plans.get(op.result)
        if plan is None:
            return None
        assert isinstance(op, scf.For)
        return _Loop(builder, op, operands, plan).made()

    return transform(module, pipelined, pass_name="pipeline_loads")


def _programs(module: gpu.Module, others: int, further: int, registers: int) -> int:
    """How many programs a multiprocessor holds, about, if a loop's buffers take `further` bytes beside `others`, and
    its sum takes so many registers of a thread."""
    by_memory = (limit_of(module.target) + _RESERVED_BYTES) // (others + further + _RESERVED_BYTES)
    by_registers = FILE // (32 * module.num_warps * (registers + _OTHER_REGISTERS))
    return max(1, min(by_memory, by_registers))


def _lives_with(alloc: gpu.LocalAlloc, loop: scf.For) -> bool:
    """Whether a buffer may be needed while a loop runs: it is made in it, or in a block that the loop is in as well."""
    return any(alloc.parent is block for block in _blocks_around(loop)) or any(
        block is loop.body.entry for block in _blocks_around(alloc)
    )


def _blocks_around(op: Op) -> Iterator[Block]:
    owner: Op | None = op
    while owner is not None and owner.parent is not None:
        yield owner.parent
        owner = owner.parent_op


# The new loop.


class _Loop:
    """Writes a pipelined loop, what comes before it and after it."""

    def __init__(self, builder: Rewriter, loop: scf.For, operands: tuple[Value, ...], plan: LoopPlan) -> None:
        self.builder = builder
        self.loop = loop
        self.plan = plan
        self.start, self.stop, self.step = operands[:3]
        self.initial = operands[3:]
        assert isinstance(loop.start.type, ScalarType)
        self.index: ScalarType = loop.start.type
        self.buffers: dict[Value, Value] = {}
        for copy in plan.copies:
            type_ = attrs.evolve(_shared_type(copy.buffer), count=plan.stages)
            made = builder.add(gpu.LocalAlloc(type_, alignment=copy.buffer.alignment), copy.buffer.location)
            self.buffers[copy.buffer.result] = made
        self.groups = plan.groups()
        made = mbarriers(builder, len(self.groups), plan.stages) if self.groups else []
        self.full = dict(zip(self.groups, made, strict=True))
        self.copied = [copy for copy in plan.copies if not copy.by_engine]

    def made(self) -> Value:
        """Add everything to the builder; the value that stands for the loop's result."""
        builder, plan = self.builder, self.plan
        ahead: Sequence[Value] = [self.initial[number] for number in plan.carried]
        for number in range(plan.distance):
            ahead = self._begin(builder, self.start, number, ahead, _number(builder, number, i32))
        own = [value.type for value in self.initial]
        if plan.late is None:
            made = self._loop(builder, ahead)
            self._end(builder)
            return builder.add(core.TupleLoad(made, 0)) if len(own) == 1 else made
        late = plan.late

        def inside(inner: Rewriter) -> Sequence[Value]:
            made = self._loop(inner, ahead)
            values = [inner.add(core.TupleLoad(made, at)) for at in range(len(own))]
            values[late.position] = inner.add(gpu.WgmmaWait(values[late.position], 0), late.wait.location)
            return values

        made = where_it_runs(builder, (self.start, self.stop, plan.step), self.initial, inside)
        self._end(builder)
        return made

    def _loop(self, builder: Rewriter, ahead: Sequence[Value]) -> Value:
        loop, count = self.loop, len(self.initial)
        turns = [_number(builder, 0, i32)] * (2 if self.groups else 1)
        initial = [*self.initial, *turns, *ahead]
        types = [value.type for value in initial]
        nested = builder.nested([self.index, *types], scf.packed(types))
        inner = Rewriter.over(nested, builder.transformers, builder.pass_name, builder.caller)
        inner.mapping.parent = builder.mapping
        index, *carried = inner.parameters
        for old, new in zip(loop.body.parameters, [index, *carried[:count]], strict=True):
            inner[old] = new
        rest = count + len(turns)
        self._body(inner, index, carried[count:rest], carried[rest:])
        options = dict(loop.attributes)
        return builder.add(scf.For(self.start, self.stop, self.step, initial, inner.finish(), **options), loop.location)

    def _end(self, builder: Builder) -> None:
        if self.copied:
            # The copies of the last iterations, which copied nothing, still hold the buffers.
            builder.add(gpu.AsyncWait(0))
        if self.groups:
            forget_mbarriers(builder, self.full.values())

    def _body(self, inner: Rewriter, index: Value, turns: Sequence[Value], ahead: Sequence[Value]) -> None:
        plan, loop, late = self.plan, self.loop, self.plan.late
        turn = turns[0]
        if self.copied:
            inner.add(gpu.AsyncWait(plan.distance - 1))
            if any(isinstance(op, gpu.Wgmma) for op in loop.body.entry.ops):
                # What this thread has copied is for the matrix units, behind the barrier that follows.
                inner.add(gpu.FenceAsync())
        first, last = _number(inner, 0, i32), _number(inner, plan.stages - 1, i32)
        one = _number(inner, 1, i32)
        if plan.behind == 1:
            wraps = inner.add(arith.CmpI(turn, first, arith.IntPredicate.EQ))
            over = last
        else:
            wraps = inner.add(arith.CmpI(turn, _number(inner, plan.behind, i32), arith.IntPredicate.SLT))
            over = inner.add(arith.AddI(turn, _number(inner, plan.distance, i32)))
        less = inner.add(arith.SubI(turn, _number(inner, plan.behind, i32) if plan.behind > 1 else one))
        before = inner.add(arith.Select(wraps, over, less))
        # Where the barrier behind the wait above does: all products that read this buffer are complete.
        at_once = late is None or plan.behind > 1
        if at_once:
            ahead = self._begin(inner, index, plan.distance, ahead, before)
        for op in rewritten(inner, loop, plan, self.buffers, self.full, (turn, turns[-1])):
            if not at_once and late is not None and op is late.covered:
                ahead = self._begin(inner, index, plan.distance, ahead, before)
        end = loop.body.entry.terminator
        at_last = inner.add(arith.CmpI(turn, last, arith.IntPredicate.EQ))
        following = [inner.add(arith.Select(at_last, first, inner.add(arith.AddI(turn, one))))]
        if self.groups:
            # The mbarriers' phases take turns, too.
            wraps = inner.add(arith.Select(at_last, one, first))
            following.append(inner.add(arith.XOrI(turns[1], wraps)))
        inner.add(scf.Yield([*(inner[value] for value in end.operands), *following, *ahead]), end.location)

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
        for reader, copies in self.groups.items():
            full = builder.add(gpu.LocalView(self.full[reader], turn))
            total = sum(_shared_type(copy.buffer).bytes for copy in copies)
            builder.add(gpu.MbarrierExpect(full, goes_on, bytes=total))
            for copy in copies:
                assert isinstance(copy.load, tt.DescriptorLoad)
                view = builder.add(gpu.LocalView(self.buffers[copy.buffer.result], turn))
                offsets = [new(offset) for offset in copy.load.offsets]
                builder.add(gpu.TmaLoad(new(copy.load.descriptor), view, full, goes_on, offsets), copy.load.location)
        for copy in self.copied:
            assert isinstance(copy.load, tt.Load)
            pointers = new(copy.load.ptr)
            given = new(copy.load.mask) if copy.load.mask is not None else None
            mask = _masked(builder, pointers, given, goes_on)
            for step in copy.transposed:
                pointers, mask = (builder.add(tt.Trans(value, step.order)) for value in (pointers, mask))
            view = builder.add(gpu.LocalView(self.buffers[copy.buffer.result], turn))
            builder.add(gpu.AsyncCopy(pointers, view, mask, width=copy.width), copy.load.location)
        if self.copied:
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


def rewritten(
    inner: Rewriter,
    loop: scf.For,
    plan: LoopPlan,
    buffers: Mapping[Value, Value],
    full: Mapping[Value, Value],
    turns: tuple[Value, Value],
) -> Iterator[Op]:
    """Write what a loop's body does with what has been copied, op by op: each is given when it, and what waits for the
    product of the iteration before, has been written.

    `buffers` has those in turn for each of the loop's own, `full` the mbarriers for each first reader; `turns` are the
    number of the buffer whose turn it is, and the phase.
    """
    turn, phase = turns
    late = plan.late
    gone = {op.result for copy in plan.copies for op in (copy.load, copy.store, *copy.transposed)}
    gone |= _superfluous_fences(loop, gone)
    for op in loop.body.entry.ops[:-1]:
        if op.result in gone:
            continue
        if op.result in full:
            inner.add(gpu.MbarrierWait(inner.add(gpu.LocalView(full[op.result], turn)), phase))
        if op.result in buffers:
            inner[op.result] = inner.add(gpu.LocalView(buffers[op.result], turn), op.location)
        elif late is not None and op is late.wait:
            inner[op.result] = inner[late.wait.value]
        else:
            inner.rewrite(op)
        if late is not None and op is late.covered:
            value = late.wait.value if late.chained else loop.body.parameters[late.position + 1]
            inner[value] = inner.add(gpu.WgmmaWait(inner[value], int(late.chained)), late.wait.location)
        yield op


def where_it_runs(
    builder: Rewriter,
    bounds: tuple[Value, Value, int],
    initial: Sequence[Value],
    inside: Callable[[Rewriter], Sequence[Value]],
) -> Value:
    """What `inside` gives, packed, if a loop with these bounds (start, stop, step) has an iteration; else `initial`.

    So the sum of a product that is under way at the loop's end meets the initial one only behind its wait: LLVM makes
    copies where values meet, and of a sum under way that would have ptxas wait for each product.
    """
    start, stop, step = bounds
    ran = builder.add(arith.CmpI(start, stop, arith.IntPredicate.SLT if step > 0 else arith.IntPredicate.SGT))
    yields = scf.packed([value.type for value in initial])
    then = Rewriter.over(builder.nested([], yields), builder.transformers, builder.pass_name, builder.caller)
    then.mapping.parent = builder.mapping
    then.add(scf.Yield(inside(then)))
    otherwise = builder.nested([], yields)
    otherwise.add(scf.Yield(list(initial)))
    return builder.add(scf.If(ran, then.finish(), otherwise.finish()))


def _masked(builder: Builder, pointers: Value, mask: Value | None, condition: Value) -> Value:
    """A mask that holds where the given one does and the condition, a scalar, holds."""
    assert isinstance(pointers.type, TensorType) and isinstance(pointers.type.element, PtrType)
    wide = builder.add(tt.Splat(condition, with_element(pointers.type, i1)))
    return wide if mask is None else builder.add(arith.AndI(mask, wide))


def _superfluous_fences(loop: scf.For, gone: Container[Value]) -> set[OpResult]:
    """The fences of a loop's body before products none of whose operands the body writes, but for what is `gone`.

    They come after the fence that the loop begins with, or read what the copy engine has brought.
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


def _shared_type(alloc: gpu.LocalAlloc) -> SharedType:
    assert isinstance(alloc.type, SharedType)
    return alloc.type
