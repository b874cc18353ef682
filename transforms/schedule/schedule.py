"""Schedules: a loop whose body is divided into stages becomes a loop in which iterations overlap.

    scf.for … (%i, %acc, %p) {                          %m = (is there an iteration?); %a = tt.load %p %m;
        %m = gpu.stage @0 @order=0;                     scf.for … (%i, %acc, %q, %a) {
        %a = tt.load %p %m;                                 %m = (is there an iteration %i + 1?);
        %q = tt.addptr %p …;                                %b = tt.load %q %m;
        gpu.stage @1 @order=1;            becomes           %r = tt.addptr %q …;
        %d = … %a %acc;                                     %d = … %a %acc;
        scf.yield %d %q; }                                  scf.yield %d %r %b; }

The body of an annotated loop is a program: its iterations one after the other. It begins with a `gpu.stage`, which says
to which stage the ops after it belong. In a step of the new loop, the ops of stage s run for the iteration s steps
before; first those of the least `order`, and those of one order as they stand. The loop's own stage is that of its
`scf.yield`. The values that it carries are used one by one after it.

* **Earlier stages** run ahead, also for iterations that the loop does not have, so their ops are pure and cannot trap,
  or take the result of `gpu.stage` as their predicate. The steps before the loop have only those ops.
* **The stage after the loop's own** runs once more after the loop, which then stands in a branch that runs if it has an
  iteration. A wait leaves in flight the wgmma that have begun since, and a release holds the slots that were waited for
  since. If the stage has only waits for wgmma whose values the loop carries, and releases, the branch keeps the
  in-flight accumulator out of a phi with the initial one: LLVM would copy it, and ptxas then waits for each wgmma (its
  warning C7515). Otherwise the first step, in which the stage has nothing to do, stands before the loop.
* **A value** is used in the stage that computes it, or in a later one: then the loop carries it. What an iteration
  hands to the next one is used at most one stage earlier than it is computed, and then after it in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ziggurat.codemodel.dialects import arith, scf
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import ScalarType, i1
from ziggurat.transforms.analysis.queries import constant, constant_of, unpacked
from ziggurat.transforms.simplify import dce

_At = tuple[Value, int]  # A value, as a stage uses it.


def expand(module: Op) -> Op:
    """The GPU model without stages. Raises `InternalError` for a loop whose stages cannot overlap."""

    def expanded(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, scf.For) and isinstance(op.body.entry.ops[0], gpu.Stage):
            return _Expansion(builder, op).write()
        return None

    if not module.holds(gpu.Stage):
        return module
    return dce(transform(module, expanded, pass_name="expand"))  # Only earlier stages may use what is handed on.


class _Expansion:
    """The writer of the loop of an annotated one, with the steps before it, and the end."""

    def __init__(self, builder: Rewriter, loop: scf.For) -> None:
        self.builder = builder
        self.loop = loop
        self.index, *self.parameters = loop.body.parameters
        self.stages: dict[Value, int] = {}  # Of the ops, by their results.
        stage, order, level = 0, 0, list[tuple[int, Op]]()
        for op in loop.body.entry.ops:
            stage, order = (op.stage, op.order) if isinstance(op, gpu.Stage) else (stage, order)
            self.stages[op.result] = stage
            level.append((order, op))
        _, end = level.pop()
        self.own = stage
        self.step = [op for _, op in sorted(level, key=itemgetter(0))]
        self.markers = [op.result for op in self.step if isinstance(op, gpu.Stage)]
        self.late = [op for _, op in level if self.stages[op.result] > stage and not isinstance(op, gpu.Stage)]
        # In the new loop, a late wait yields its wgmma, and waits for a carried value.
        self.yielded: dict[Value, Value] = dict(zip(self.parameters, end.operands, strict=True))
        self.waited: dict[Value, Value] = {}  # The carried values that late waits are for.
        for parameter, value in zip(self.parameters, end.operands, strict=True):
            for op in self.late:
                if isinstance(op, ResultWait) and op.result is value:
                    self.waited[value] = parameter
        # If the stage after the own one has other ops than such waits, the first step stands before the loop.
        self.peels = any(not isinstance(op, gpu.ChannelRelease) and op.result not in self.waited for op in self.late)
        self.last = stage + self.peels
        if not self.peels:
            self.yielded |= {self.waited[op.result]: op.value for op in self.late if isinstance(op, ResultWait)}
        elif any(self.index in inner.operands for op in self.late for inner in op.walk()):
            raise InternalError("an op of the stage after the loop's own uses the index", str(loop.root()))
        if any(self.stages[op.result] > self.own + 1 for op in self.late):
            raise InternalError("an op is more than one stage after the loop's own", str(loop.root()))
        by = constant_of(loop.step)
        assert isinstance(by, int)
        self.by = by
        self.crossing = self._crossing()

    def _crossing(self) -> dict[_At, _At]:
        """The values that come from the step before, and what they were there; the results of the loop come first."""
        block, crossing = self.loop.body.entry, dict[_At, _At]()
        parameters = [parameter for parameter in self.parameters if not self._is_deferred(parameter)]
        work: list[_At] = [(parameter, self.own) for parameter in parameters]
        for op in self.step:
            if self.stages[op.result] <= self.last:
                work += [(value, self.stages[op.result]) for inner in op.walk() for value in inner.operands]
        while work:
            value, stage = at = work.pop()
            if value.block is block and value is not self.index and at not in crossing:
                before = (self.yielded[value], stage) if value in self.yielded else (value, stage - 1)
                maker_stage = self.stages.get(before[0], -1)
                if maker_stage > before[1] + 1:
                    raise InternalError(f"stage {stage} uses a value of stage {maker_stage}", str(self.loop.root()))
                if maker_stage <= before[1]:  # Else the step itself has it.
                    crossing[at] = before
                    work.append(before)
        order = {value: at for at, value in enumerate((*self.parameters, *self.stages))}
        results = {(parameter, self.own): crossing[parameter, self.own] for parameter in parameters}
        return results | dict(sorted(crossing.items(), key=lambda item: (order[item[0][0]], item[0][1])))

    def _is_deferred(self, parameter: Value) -> bool:
        """Whether the value that an iteration hands on for a parameter is computed in the step after."""
        return self.peels and self.stages.get(self.yielded[parameter], -1) == self.last

    def write(self) -> Value:
        """Add everything; the value that stands for the result of the annotated loop."""
        builder, loop = self.builder, self.loop
        views: list[Rewriter] = []
        for ahead in range(self.own):
            views = self._step(builder, builder[loop.start], ahead, self._beginning(views, ahead))
        then = builder.inside([], loop.result.type) if self.late else builder
        start, values = builder[loop.start], self._beginning(views, self.own)
        if self.peels:
            values = self._beginning(self._step(then, start, self.own, values), self.last)
            start = self._second(then, start)
        initial = [values[at] for at in self.crossing]

        def body(inner: Rewriter, values: Sequence[Value]) -> list[Value]:
            views = self._step(inner, inner[self.index], self.last, dict(zip(self.crossing, values, strict=True)))
            following = self._beginning(views, self.last + 1)
            return [following[at] for at in self.crossing]

        new_loop = carrying_loop(then, loop, (), initial, body, loop.attributes, start=start)
        results = dict(zip(self.crossing, unpacked(then, new_loop, len(initial)), strict=True))
        if not self.late:
            return results[self.parameters[0], self.own] if len(self.parameters) == 1 else new_loop
        view = then.scoped()
        for (value, stage), new in results.items():
            if stage == self.last:
                view[value] = new
        view.mapping.values.update(dict.fromkeys(self.markers, constant(view, True, i1)))
        for op in self.late:
            if self.peels:
                view.rewrite(op)
            else:
                self._late(view, op, ())
        ends = {
            value: results[value, self.own] if self.peels else view[value]
            for value in self.parameters
            if not self._is_deferred(value)
        }
        then.add(scf.Yield([ends.get(value) or view[self.yielded[value]] for value in self.parameters]))
        otherwise = builder.inside([], loop.result.type)
        otherwise.add(scf.Yield([builder[value] for value in loop.initial]))
        less = arith.IntPredicate.SLT if self.by > 0 else arith.IntPredicate.SGT
        runs = builder.add(arith.CmpI(builder[loop.start], builder[loop.stop], less))
        return builder.add(scf.If(runs, then.finish(), otherwise.finish()))

    def _beginning(self, views: Sequence[Rewriter], ahead: int) -> dict[_At, Value]:
        """The values that the step `ahead` begins with, after the one in which the stages saw these views."""
        values = {at: views[stage][value] for at, (value, stage) in self.crossing.items() if stage < ahead}
        first = zip(self.parameters, self.loop.initial, strict=True)
        return values | {(parameter, ahead): self.builder[value] for parameter, value in first}

    def _step(self, builder: Rewriter, index: Value, ahead: int, values: Mapping[_At, Value]) -> list[Rewriter]:
        """Add the step that runs stage 0 for the iteration `ahead` after that of `index`; what each stage sees.

        The steps before the loop run only the stages whose iterations have come. The index is that of the loop's own
        stage, if this runs.
        """
        views = [builder.scoped() for _ in range(ahead + 1)]
        for (value, stage), new in values.items():
            views[stage][value] = new
        for number, op in enumerate(self.step):
            stage = self.stages[op.result]
            if stage <= ahead and isinstance(op, gpu.Stage):
                view, distance = views[stage], min(ahead, self.own) - stage
                if stage > self.own:
                    view[op.result] = constant(view, True, i1)
                elif op.result.uses:
                    view[op.result] = self._has_iteration(view, index, distance)
                if self.index not in view.mapping.values:
                    shift = constant(view, distance * self.by, index.type)
                    view[self.index] = view.add(arith.AddI(index, shift)) if distance else index
            elif stage <= ahead:
                if self.peels and isinstance(op, ResultWait):
                    self._wait(views[stage], op, [op for op in self.step[:number] if self.stages[op.result] <= ahead])
                else:
                    views[stage].rewrite(op)
                for parameter in [value for value in self.parameters if stage and self.yielded[value] is op.result]:
                    views[stage - 1][parameter] = views[stage][op.result]
            elif ahead == self.own and not self.peels and not isinstance(op, gpu.Stage):
                self._late(views[ahead], op, self.step[:number])
        return views

    def _wait(self, view: Rewriter, op: ResultWait, before: Sequence[Op]) -> None:
        """Add a wait that leaves in flight those wgmma of the ops `before` that have begun after its own."""
        at = next(at for at, other in enumerate(before) if other.result is op.value)
        self._complete(view, op, op.result, view[op.value], op.begun(before[at + 1 :]))

    def _late(self, view: Rewriter, op: Op, before: Sequence[Op]) -> None:
        """Add an op for the iteration before the loop's own, after the ops `before` of this step."""
        if isinstance(op, gpu.ChannelRelease):
            has_wait = any(isinstance(other, gpu.ChannelWait) and other.channel is op.channel for other in before)
            view.add(gpu.ChannelRelease(view[op.channel], held=op.held + has_wait))
        elif isinstance(op, ResultWait):
            # The wgmma of this iteration that have begun stay in flight. One adds to the same registers, maybe.
            value = op.value if any(other.result is op.value for other in before) else self.waited[op.result]
            self._complete(view, op, value, view[value], _in_flight(before))

    def _complete(self, view: Rewriter, wait: ResultWait, value: Value, begun: Value, pending: int) -> None:
        """Add a wait for what has `begun`, which leaves so many groups in flight, and gives a value."""
        view[value] = view.add(wait.evolve(value=begun, pending=pending, late=False), wait.location)

    def _second(self, builder: Rewriter, start: Value) -> Value:
        """The index of the second iteration; or one at which the loop ends, if the sum overflows."""
        assert isinstance(start.type, ScalarType)
        low, high = start.type.limits
        last = constant(builder, high - self.by if self.by > 0 else low - self.by, start.type)
        start = builder.add(arith.MinSI(start, last) if self.by > 0 else arith.MaxSI(start, last))
        return builder.add(arith.AddI(start, constant(builder, self.by, start.type)))

    def _has_iteration(self, builder: Rewriter, index: Value, distance: int) -> Value:
        """Whether there is the iteration `distance` after that of `index`: without a sum that may overflow."""
        shift, up = distance * self.by, self.by > 0
        assert isinstance(index.type, ScalarType)
        low, high = index.type.limits
        bound = builder[self.loop.stop]
        if shift:
            furthest = constant(builder, (low if up else high) + shift, index.type)
            bound = builder.add(arith.MaxSI(bound, furthest) if up else arith.MinSI(bound, furthest))
            bound = builder.add(arith.SubI(bound, constant(builder, shift, index.type)))
        return builder.add(arith.CmpI(index, bound, arith.IntPredicate.SLT if up else arith.IntPredicate.SGT))


def _in_flight(ops: Iterable[Op]) -> int:
    """The number of wgmma that these ops leave in flight: late waits are for those of the step before."""
    count = 0
    for op in ops:
        if isinstance(op, ResultWait):
            count = count if op.late else min(count, op.pending)
        count += isinstance(op, ResultInFlight)
    return count


def carrying_loop(
    builder: Rewriter,
    loop: scf.For,
    numbers: Sequence[int],
    further: Sequence[Value],
    write: Callable[[Rewriter, Sequence[Value]], Iterable[Value]],
    attributes: Mapping[str, Any],
    *,
    start: Value | None = None,
) -> Value:
    """Add a loop like `loop` that carries its values of these numbers, and after them `further`; the packed result.

    `write` adds the body but for its end. It gets the body's parameters for `further`, and returns their next values.
    `start` takes the place of the loop's own.
    """
    first, stop, step = (builder[value] for value in loop.controls)
    start = first if start is None else start
    initial = [*(builder[loop.initial[number]] for number in numbers), *further]
    types = [value.type for value in initial]
    inner = builder.inside([start.type, *types], scf.packed(types))
    arguments, end = loop.body.parameters, loop.body.entry.terminator
    for old, new in zip((0, *(number + 1 for number in numbers)), inner.parameters, strict=False):
        inner[arguments[old]] = new
    following = write(inner, inner.parameters[1 + len(numbers) :])
    inner.add(scf.Yield([*(inner[end.operands[number]] for number in numbers), *following]), end.location)
    return builder.add(scf.For(start, stop, step, initial, inner.finish(), **attributes), loop.location)
