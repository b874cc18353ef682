"""Prefetching: the small loads of a loop with dots are begun one iteration before their values are used.

    scf.for … (%i, %acc, %p) {                        %first = tt.load %p (if there is an iteration);
        %m = tt.load %p;                              scf.for … (%i, %acc, %p, %m) {
        %d = gpu.wgmma …;                  becomes        %next = tt.load %q (if there is a next iteration);
        … %m …                                            %d = gpu.wgmma …;
        %q = tt.addptr %p …;                              … %m …
        scf.yield %d %q;                                  scf.yield %d %q %next;

The dots' own operands become copies to shared memory (`pipeline_loads`). The loop waits for its other loads, such as
scales or the maxima of attention's rows, in the iteration that uses them: some hundred cycles without an MMA. Their
values fit in registers, so the loop carries them there.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, i1, with_element
from ziggurat.transforms.place.flow import users_of
from ziggurat.transforms.place.loop_plan import ahead_of, step_ahead
from ziggurat.transforms.place.obstacle import Obstacle
from ziggurat.transforms.place.pipeline_loads import carrying_loop, has_iteration
from ziggurat.transforms.place.pressure import value_registers

# Registers of a thread that the values of one load may take, those of all loads of a loop, and those that the loop may
# carry with them: the dots need some as well.
_OF_A_LOAD, _OF_A_LOOP, _CARRIED = 8, 16, 192


@attrs.frozen
class _Prefetch:
    """The loads of a loop that are prefetched, and what computes their operands: carried values, by their numbers, and
    ops, in order."""

    loop: scf.For
    loads: tuple[tt.Load, ...]
    carried: tuple[int, ...]
    ahead: tuple[Op, ...]


def prefetch_loads(module: gpu.Module, num_stages: int) -> Op:
    """The GPU model whose loops with dots begin their small loads one iteration ahead; `num_stages` below 2
    forbids it. A loop's own takes precedence."""
    found: dict[Value, _Prefetch] = {}
    for op in module.walk():
        if isinstance(op, scf.For) and (num_stages if op.num_stages is None else op.num_stages) > 1:
            prefetch = _prefetch_of(op)
            if prefetch is not None:
                found[op.result] = prefetch

    def prefetched(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return None if op.result not in found else _write(builder, found[op.result])

    return transform(module, prefetched, pass_name="prefetch_loads") if found else module


def _prefetch_of(loop: scf.For) -> _Prefetch | None:
    """The loads of a loop that can be prefetched; None if there are none."""
    block = loop.body.entry
    has_dot = any(isinstance(op, gpu.Wgmma | gpu.Mma) for op in block.ops)
    is_role = any(isinstance(owner, gpu.WarpSpecialize) for owner in loop.path())
    if not has_dot or is_role or isinstance(step_ahead(loop), Obstacle):
        return None
    loads: list[tt.Load] = []
    needed, numbers = set[Value](), set[int]()
    left = min(_OF_A_LOOP, _CARRIED - sum(value_registers(value.type) for value in loop.initial))
    for op in block.ops:
        if not isinstance(op, tt.Load) or op.volatile or op.cache is tt.CacheModifier.CV or _is_copied(op.result):
            continue
        registers, computed = value_registers(op.result.type), ahead_of(loop, op.operands)
        if registers <= min(_OF_A_LOAD, left) and computed is not None:
            left -= registers
            loads.append(op)
            needed |= computed[0]
            numbers.update(computed[1])
    ahead = tuple(op for op in block.ops if op.result in needed)
    return _Prefetch(loop, tuple(loads), tuple(sorted(numbers)), ahead) if loads else None


def _is_copied(value: Value) -> bool:
    """Whether a loaded tensor goes to shared memory: `pipeline_loads` copies it there."""
    return any(isinstance(user, gpu.LocalStore | tt.Trans) for user in users_of(value))


def _write(builder: Rewriter, prefetch: _Prefetch) -> Value:
    """Add the first loads and the loop; the value that stands for the loop's result."""
    loop = prefetch.loop
    parameters, yielded = loop.body.parameters, loop.body.entry.terminator.operands

    def body(inner: Rewriter, carried: Sequence[Value]) -> Sequence[Value]:
        index = inner[parameters[0]]
        now = _at(inner, prefetch, index, [inner[parameters[number + 1]] for number in prefetch.carried])
        following = inner.add(arith.AddI(index, inner[loop.step]))
        later = _at(inner, prefetch, following, [now[yielded[number]] for number in prefetch.carried])
        loaded = _loaded(later, prefetch, has_iteration(inner, loop, index, 1))
        for load, value in zip(prefetch.loads, carried, strict=True):
            inner[load.result] = value
        for op in loop.body.entry.ops[:-1]:
            if not any(op is load for load in prefetch.loads):
                inner.rewrite(op)
        return loaded

    initial, begin = [builder[value] for value in loop.initial], builder[loop.start]
    first = _at(builder, prefetch, begin, [initial[number] for number in prefetch.carried])
    loaded = _loaded(first, prefetch, has_iteration(builder, loop, begin, 0))
    made = carrying_loop(builder, loop, range(len(initial)), loaded, body, loop.attributes)
    return builder.add(core.TupleLoad(made, 0)) if len(initial) == 1 else made


def _at(builder: Rewriter, prefetch: _Prefetch, index: Value, carried: Sequence[Value]) -> Rewriter:
    """A rewriter in which the operands of the loads are those of the iteration of an index."""
    at, parameters = builder.scoped(), prefetch.loop.body.parameters
    at[parameters[0]] = index
    for number, value in zip(prefetch.carried, carried, strict=True):
        at[parameters[number + 1]] = value
    at.rewrite_ops(prefetch.ahead)
    return at


def _loaded(builder: Rewriter, prefetch: _Prefetch, condition: Value) -> list[Value]:
    """The loads, where a condition holds as well."""
    made: list[Value] = []
    for load in prefetch.loads:
        pointers, mask = builder[load.ptr], condition
        if isinstance(pointers.type, TensorType):
            mask = builder.add(tt.Splat(condition, with_element(pointers.type, i1)))
        if load.mask is not None:
            mask = builder.add(arith.AndI(builder[load.mask], mask))
        other = builder[load.other] if load.other is not None else None
        made.append(builder.add(tt.Load(pointers, mask, other, **load.attributes), load.location))
    return made
