"""Early exits of functions and loops as flags and `if`s: a transform of the Python model.

After it a function ends in its last `return`, and a body of an `if` or a loop at its end. A `break` makes the flag of
its loop false. Where control leaves on one path of an `if`, the ops after it move into the other path:

    if n > 4:                if n > 4:
        return                   pass
    store(p, n)              else:
                                 store(p, n)

Where several paths lead to these ops, a flag says whether control has left, and the ops stand under an `if` of it:

    if n > 4:                leaves = False
        if n > 8:            if n > 4:
            return               if n > 8:
        n = n - 4                    leaves = True
    store(p, n)                  else:
                                     n = n - 4
                             if leaves:
                                 pass
                             else:
                                 store(p, n)
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import BlockParameter, Body, Op, Value
from ziggurat.codemodel.traits import LeavesIteration
from ziggurat.codemodel.transform import Outcome, Rewriter, rebuilt, transform
from ziggurat.codemodel.types import VarType, constexpr_type, pyobject, void

# The ops of a body, then those after the `if` that the body belongs to, and so on outwards.
Parts = Sequence[Sequence[Op]]

# The largest number of ops that is copied into several paths rather than put under an `if` of a flag.
_SHORT = 3


def early_exits(model: Op) -> Op:
    """The Python model, a function or a module, without early exits; `model` itself where there are none."""
    if not any(_exits(op) for op in model.walk() if isinstance(op, core.Func)):
        return model
    return transform(model, _function, pass_name="early_exits")


def _exits(function: core.Func) -> list[Op]:
    """The ops inside of the statements of a function that leave an iteration or return."""
    statements = function.body.entry.ops[:-1]
    nested = (inner for statement in statements if statement.bodies for inner in statement.walk())
    return [inner for inner in nested if isinstance(inner, core.Return | LeavesIteration)]


def _function(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """A function without early exits. None for one that has none."""
    if not isinstance(op, core.Func):
        return None
    *ops, last = op.body.entry.ops
    if not (exits := _exits(op)):
        return None
    inner = builder.replacing(op.body)
    frame = _Frame()
    if any(isinstance(exit, core.Return) for exit in exits):
        inner.location = op.location
        if any(exit.operands for exit in (*exits, last) if isinstance(exit, core.Return)):
            frame.result = inner.add(py.Result(name="result", type=VarType(constexpr_type)))
            ops.append(last)
    _sequence(inner, [ops], [frame])
    inner.location = last.location
    if frame.result is None:
        inner.rewrite(last)
    else:
        inner.add(core.Return([inner.add(core.VarLoad(frame.result))]))
    return builder.add(rebuilt(op, operands, [inner.finish()]), op.location)


@attrs.define
class _Frame:
    """The function, or a loop inside of it, whose ops are rewritten. The innermost is the last of a list of frames.

    `goes_on` of a loop is the flag that says whether it goes on, and `leaves` the one that says whether control has
    left the iteration or the function, where one is needed. `result` of the function holds what it returns.
    """

    goes_on: Value | None = None
    leaves: Value | None = None
    result: Value | None = None


def _sequence(builder: Rewriter, parts: Parts, frames: Sequence[_Frame]) -> None:
    """Append the counterparts of ops, part after part unless control leaves."""
    if not parts:
        return
    ops, *rest = parts
    for index, op in enumerate(ops):
        after = [other for other in ops[index + 1 :] if not isinstance(other, core.Yield)]
        following = [after, *rest] if after else rest
        if isinstance(op, core.Return | LeavesIteration):
            _exit(builder, op, frames)
            return
        if not _leaves(op) or not following:
            _statement(builder, op, [], frames)
        elif isinstance(op, py.If) and (_ways_through([op]) <= 1 or _is_short(following)):
            _statement(builder, op, following, frames)
            return
        else:
            frame, around = frames[-1], frames[-1].leaves
            frame.leaves = leaves = around or _flag(builder, op, "leaves", False)
            _statement(builder, op, [], frames)
            builder.location = op.location
            _if(builder, builder.add(core.VarLoad(leaves)), ([], following), frames)
            frame.leaves = around
            return
    _sequence(builder, rest, frames)


def _exit(builder: Rewriter, op: Op, frames: Sequence[_Frame]) -> None:
    """Set the flags of the loops and the function that control leaves, and what the function returns."""
    builder.location = op.location
    if isinstance(op, core.Return) and frames[0].result is not None:
        value = builder[op.values[0]] if op.values else builder.add(core.ConstantOp(None, type=pyobject))
        builder.add(core.VarStore(frames[0].result, value))
    for frame in frames if isinstance(op, core.Return) else frames[-1:]:
        goes_on = None if isinstance(op, py.Continue) else frame.goes_on
        for flag, value in ((goes_on, False), (frame.leaves, True)):
            if flag is not None:
                builder.add(core.VarStore(flag, builder.add(core.ConstantOp(value, type=pyobject))))


def _statement(builder: Rewriter, op: Op, rest: Parts, frames: Sequence[_Frame]) -> None:
    """Append the counterpart of an op. The rest follows in each body of an `if`."""
    if isinstance(op, py.If):
        _if(builder, builder[op.condition], [[body.entry.ops, *rest] for body in op.bodies], frames, op.location)
    elif isinstance(op, py.For | py.While):
        frame = _Frame()
        if any(map(_ends_loop, op.suite.entry.ops)):
            frame.goes_on = _flag(builder, op, "goes_on", True)
        head = builder.rewrite_body(op.bodies[0])
        suite = _body(builder, op.suite.parameters, [op.suite.entry.ops], [*frames, frame], isinstance(op, py.For))
        builder.add(type(op)(head, suite, flag=frame.goes_on), op.location)
    elif not isinstance(op, core.Yield):
        builder.rewrite(op)


def _if(
    builder: Rewriter, condition: Value, bodies: Sequence[Parts], frames: Sequence[_Frame], at: Location | None = None
) -> None:
    """Append an `if` whose bodies have these parts."""
    builder.add(py.If(condition, *(_body(builder, (), part, frames) for part in bodies)), at)


def _body(
    builder: Rewriter, parameters: Sequence[BlockParameter], parts: Parts, frames: Sequence[_Frame], tests: bool = False
) -> Body:
    """A body of ops in parts. One that `tests` runs them only where its loop goes on: an unrolled loop runs it after a
    `break`."""
    inner = builder.inside([parameter.type for parameter in parameters], void)
    inner.mapping.values.update(zip(parameters, inner.parameters, strict=True))
    if tests and frames[-1].goes_on is not None:
        _if(inner, inner.add(core.VarLoad(frames[-1].goes_on)), (parts, []), frames)
    else:
        _sequence(inner, parts, frames)
    inner.add(core.Yield([]))
    return inner.finish()


def _flag(builder: Rewriter, op: Op, name: str, value: bool) -> Value:
    """Declare a flag before the op."""
    builder.location = op.location
    initial = builder.add(core.ConstantOp(value, type=pyobject))
    return builder.add(py.Flag(initial, name=name, type=VarType(constexpr_type)))


def _leaves(op: Op) -> bool:
    """Whether control may leave, from inside the op, the function or the iteration that the op stands in."""
    return py.leaves_iteration(op) or op.holds(core.Return)


def _ends_loop(op: Op) -> bool:
    """Whether control may leave, from inside the op, the loop that the op stands in."""
    if isinstance(op, py.For | py.While):
        return op.holds(core.Return)
    return isinstance(op, py.Break | core.Return) or any(_ends_loop(o) for body in op.bodies for o in body.entry.ops)


def _ways_through(ops: Sequence[Op]) -> int:
    """The number of paths through ops to those after them."""
    count = 1
    for op in ops:
        if isinstance(op, core.Return | LeavesIteration):
            return 0
        if _leaves(op):
            count *= sum(_ways_through(body.entry.ops) for body in op.bodies)
    return count


def _is_short(parts: Parts) -> bool:
    """True of a sequence of ops that is little more than an exit."""
    trivial = (core.ConstantOp, core.VarLoad, py.Pack, core.Return, LeavesIteration)
    ops = [op for part in parts for op in part]
    return len(ops) <= _SHORT and all(isinstance(op, trivial) for op in ops)
