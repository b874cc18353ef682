"""From structured control flow to blocks and branches, for `scf` and for the Python dialect.

An `scf` op is replaced by `cf.br` and `cf.cond_br`, a Python construct by `branch` and `cbranch`. Its bodies become
blocks of the body that it stands in; values that its bodies used from outside are still visible there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from ziggurat.codemodel.dialects import arith, cf, core, py, scf
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, constant_of
from ziggurat.codemodel.traits import PythonTier
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import ScalarType, Type, pyobject

# Writes the counterpart of a body's terminator.
Ending = Callable[[Rewriter, tuple[Value, ...]], None]


def lower_structured(op: Op, predicate: Callable[[Op], bool] = lambda op: True) -> Op:
    """Turn `scf.for`, `scf.if`, `scf.while`, and the control flow of the Python dialect, into blocks.

        %5 : i32 = scf.for %0 %1 %2 %3              cf.br ^block_1(%0, %3);
            (%6 : i32, %7 : i32)i32 -> {          ^block_1(%4 : i32, %5 : i32):
                %8 : i32 = arith.muli %7 %6;        %6 : i1 = arith.cmpi %4 %1 @slt;
                scf.yield %8;                       cf.cond_br %6 ^block_2 ^block_3;
            };                                    ^block_2:
        tt.return %5;                               %7 : i32 = arith.muli %5 %4;
                                                    %8 : i32 = arith.addi %4 %2;
                                                    cf.br ^block_1(%8, %7);
                                                  ^block_3:
                                                    tt.return %5;

    Above, the step is known to be positive. Where it is negative the loop goes on while the index is greater, and where
    the sign is not known, both are compared, and the sign selects. The index must not pass the limits of its type:
    `stop` is at least a step away from them. The options of a loop (`num_stages` and so on) are gone.

    A Python `for` over a range of a kernel counts; any other one advances an iterator. `cand` and `cor` give what
    Python's `and` and `or` give. `try`, `with` and `match` stay, with blocks in their suites: an exception may leave
    any op of theirs. So does an `async for`, and a loop that a `break` or a `continue` in such a suite leaves. Only ops
    for which `predicate` is true are lowered; it must be true of the ops around such an op, too. Gives `op` itself
    where there is nothing to lower.
    """
    fixed = _fixed_loops(op)
    if not any(type(inner) in _LOWER and inner not in fixed and predicate(inner) for inner in op.walk()):
        return op
    lowering = _Lowering(lambda inner: inner not in fixed and predicate(inner))
    return transform(op, lowering, pass_name="lower_structured")


def _fixed_loops(op: Op) -> set[Op]:
    """The Python loops that stay: asynchronous ones, and those that are left from inside of an op that stays."""
    fixed: set[Op] = {inner for inner in op.walk() if isinstance(inner, py.For) and inner.is_async}
    leaving = [(inner, _loop_around(inner)) for inner in op.walk() if isinstance(inner, py.Break | py.Continue)]
    count = -1
    while count != len(fixed):
        count = len(fixed)
        for inner, loop in leaving:
            between = itertools.takewhile(
                lambda around, loop=loop: around is not loop, (inner.parent_op or inner).path()
            )
            if loop is not None and any(type(other) not in _LOWER or other in fixed for other in between):
                fixed.add(loop)
    return fixed


class _Lowering:
    """The transformer. The ops of a lowered body go to the builder of the op itself."""

    def __init__(self, predicate: Callable[[Op], bool]) -> None:
        self._predicate = predicate
        self._endings: dict[Body, Ending] = {}
        # What `continue` and `break` become in a Python loop that is being lowered.
        self._leaving: dict[Op | None, tuple[Ending, Ending]] = {}
        self._components: dict[Value, Sequence[Value]] = {}

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        ending: Ending | None = None
        if isinstance(op, scf.Yield | scf.Condition | core.Yield) and op.parent is not None:
            ending = self._endings.get(op.parent.parent)
        elif isinstance(op, py.Break | py.Continue) and (ends := self._leaving.get(_loop_around(op))):
            ending = ends[isinstance(op, py.Break)]
        if ending is not None:
            ending(builder, operands)
            return DROP
        if isinstance(op, core.TupleLoad):
            components = self._components.get(op.tuple)
            return None if components is None else components[op.index]
        lower = _LOWER.get(type(op))
        if lower is None or not self._predicate(op):
            return None
        return lower(self, builder, op, operands)

    def into(self, builder: Rewriter, block: Block, body: Body, parameters: Sequence[Value], ending: Ending) -> None:
        """Append the ops of a body at the block, its parameters being these values."""
        self._endings[body] = ending
        builder.move_to(block)
        builder.mapping.values.update(zip(body.parameters, parameters, strict=True))
        builder.rewrite_blocks(body)

    def loop(
        self, builder: Rewriter, op: Op, block: Block, parameters: Sequence[Value], following: Ending, rest: Block
    ) -> None:
        """Append the last body of a loop. `following` is what its end becomes; a `break` goes to the block `rest`."""

        def test(builder: Rewriter, values: tuple[Value, ...]) -> None:
            onward = builder.new_block()
            holds = builder.add(core.VarLoad(builder[op.operands[-1]]))
            builder.add(_choose(op, holds, Successor(onward), Successor(rest)))
            builder.move_to(onward)
            following(builder, values)

        ending = test if isinstance(op, py.For | py.While) and op.flag is not None else following
        self._leaving[op] = ending, _go(op, rest)
        suite = op.suite if isinstance(op, py.For | py.While) else op.bodies[-1]
        self.into(builder, block, suite, parameters, ending)
        builder.move_to(rest)

    def exhausted(self, builder: Rewriter, op: Op, rest: Block) -> Block:
        """The block that follows the last iteration of a loop: the one of its `else`, or `rest`."""
        if not isinstance(op, suites.ForElse | suites.WhileElse):
            return rest
        outer, block = builder.block, builder.new_block()
        self.into(builder, block, op.otherwise, (), _go(op, rest))
        builder.move_to(outer)
        return block

    def results(self, builder: Rewriter, op: Op, values: Sequence[Value]) -> Outcome:
        """The results of a lowered op, packed; a `tuple.load` of it finds its component directly."""
        if len(values) < 2:
            return values[0] if values else DROP
        self._components[op.result] = values
        if all(isinstance(user, core.TupleLoad) for user in op.result.uses):
            return values[0]  # A stand-in for the Tuple, which nothing uses.
        return builder.add(core.MakeTuple(values))


_LOWER: OpTable[Callable[..., Outcome]] = OpTable("lowering to blocks")


def _loop_around(op: Op) -> Op | None:
    """The innermost Python loop in whose suite an op stands."""
    around = itertools.pairwise(op.path())
    loops = ((loop, inner) for inner, loop in around if isinstance(loop, py.For | py.While))
    return next((loop for loop, inner in loops if inner.parent is not None and inner.parent.parent is loop.suite), None)


def _jump(op: Op, block: Block, values: Sequence[Value] = ()) -> Op:
    """The branch of the dialect that an op is lowered to."""
    return (core.Branch if isinstance(op, PythonTier) else cf.Br)(Successor(block, values))


def _choose(op: Op, condition: Value, then: Successor, otherwise: Successor) -> Op:
    """The conditional branch of the dialect that an op is lowered to."""
    return (core.CondBranch if isinstance(op, PythonTier) else cf.CondBr)(condition, then, otherwise)


def _go(op: Op, block: Block) -> Ending:
    """The ending that branches to the block with the values."""

    def end(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.add(_jump(op, block, values))

    return end


@_LOWER.of(scf.If, py.If, py.CondExpression)
def _if(
    lowering: _Lowering, builder: Rewriter, op: scf.If | py.If | py.CondExpression, operands: tuple[Value, ...]
) -> Outcome:
    types: Sequence[Type] = [pyobject] if isinstance(op, py.CondExpression) else []
    if isinstance(op, scf.If) and op.terminators():
        types = op.value_types
    then, otherwise, rest = builder.new_block(), builder.new_block(), builder.new_block(types)
    builder.add(_choose(op, operands[0], Successor(then), Successor(otherwise)))
    lowering.into(builder, then, op.then, (), _go(op, rest))
    lowering.into(builder, otherwise, op.otherwise, (), _go(op, rest))
    builder.move_to(rest)
    return lowering.results(builder, op, rest.parameters)


@_LOWER.of(scf.While, py.While, suites.WhileElse)
def _while(lowering: _Lowering, builder: Rewriter, op: scf.While | py.While, operands: tuple[Value, ...]) -> Outcome:
    if isinstance(op, py.While):
        operands = ()  # The flag, which its loop tests.
    types = [value.type for value in operands]
    before, after, rest = (builder.new_block(types) for _ in range(3))
    builder.add(_jump(op, before, operands))
    finished = lowering.exhausted(builder, op, rest)

    def decide(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.add(_choose(op, values[0], Successor(after, values[1:]), Successor(finished, values[1:])))

    lowering.into(builder, before, op.bodies[0], before.parameters, decide)
    lowering.loop(builder, op, after, after.parameters, _go(op, before), rest)
    return lowering.results(builder, op, rest.parameters)


@_LOWER.of(py.CondAnd, py.CondOr)
def _shortcut(
    lowering: _Lowering, builder: Rewriter, op: py.CondAnd | py.CondOr, operands: tuple[Value, ...]
) -> Outcome:
    *firsts, last = op.parts
    rest = builder.new_block([pyobject])
    for part in firsts:
        following = builder.new_block()

        def decide(builder: Rewriter, values: tuple[Value, ...], following: Block = following) -> None:
            successors = Successor(following), Successor(rest, values)
            builder.add(_choose(op, values[0], *(successors if isinstance(op, py.CondAnd) else successors[::-1])))

        lowering.into(builder, builder.block, part, (), decide)
        builder.move_to(following)
    lowering.into(builder, builder.block, last, (), _go(op, rest))
    builder.move_to(rest)
    return rest.parameters[0]


def _iteration(lowering: _Lowering, builder: Rewriter, op: py.For) -> Outcome:
    """Lower a `for` over any object."""
    place = builder.location
    header, inside, rest = (builder.new_block() for _ in range(3))
    iterators: list[Value] = []

    def begin(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.location = place
        iterators.append(builder.add(py.Iterate(values[0])))
        builder.add(core.Branch(Successor(header)))

    lowering.into(builder, builder.block, op.iterable, (), begin)
    builder.location = place
    finished = lowering.exhausted(builder, op, rest)
    builder.move_to(header)
    builder.location = place
    item = builder.add(py.Advance(iterators[0]))
    is_over = builder.add(py.Exhausted(item))
    builder.add(core.CondBranch(is_over, Successor(finished), Successor(inside)))
    lowering.loop(builder, op, inside, (item,), _go(op, header), rest)
    return DROP


@_LOWER.of(scf.For, py.For, suites.ForElse)
def _for(lowering: _Lowering, builder: Rewriter, op: scf.For | py.For, operands: tuple[Value, ...]) -> Outcome:
    place = builder.location
    if isinstance(op, py.For) and (_range_of(op) is None or isinstance(op, suites.ForElse)):
        return _iteration(lowering, builder, op)
    if isinstance(op, py.For):
        operands = _bounds(builder, op)
        less, greater, plus = py.Lt, py.Gt, py.Add
        zero: Op = core.ConstantOp(0, type=pyobject)
    else:
        type_ = operands[0].type
        signed = isinstance(type_, ScalarType) and type_.signed
        less = partial(arith.CmpI, predicate=arith.IntPredicate.SLT if signed else arith.IntPredicate.ULT)
        greater, plus = partial(arith.CmpI, predicate=arith.IntPredicate.SGT), arith.AddI
        zero = arith.ConstantOp(0, type=operands[2].type)
    start, stop, step, *initial = operands
    sign = _sign(step)
    positive = None if sign else builder.add(greater(step, builder.add(zero)))
    index_type = pyobject if isinstance(op, py.For) else start.type
    header = builder.new_block([index_type, *(value.type for value in initial)])
    inside, rest = builder.new_block(), builder.new_block()
    builder.add(_jump(op, header, (start, *initial)))
    builder.move_to(header)
    index, *parameters = header.parameters
    if positive is None:
        going = builder.add(less(index, stop) if sign > 0 else greater(index, stop))
        builder.add(_choose(op, going, Successor(inside), Successor(rest)))
    elif isinstance(op, scf.For):
        up, down = builder.add(less(index, stop)), builder.add(greater(index, stop))
        going = builder.add(arith.Select(positive, up, down))
        builder.add(_choose(op, going, Successor(inside), Successor(rest)))
    else:
        upward, downward = builder.new_block(), builder.new_block()
        builder.add(_choose(op, positive, Successor(upward), Successor(downward)))
        for block, compare in ((upward, less), (downward, greater)):
            builder.move_to(block)
            builder.add(_choose(op, builder.add(compare(index, stop)), Successor(inside), Successor(rest)))

    def end(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.location = place
        builder.add(_jump(op, header, (builder.add(plus(index, step)), *values)))

    lowering.loop(builder, op, inside, header.parameters, end, rest)
    return lowering.results(builder, op, parameters)


def _sign(step: Value) -> int:
    """The sign of a step, 1 or -1; 0 where it is not known."""
    type_ = step.type
    if isinstance(type_, ScalarType) and not type_.signed:
        return 1
    value = constant_of(step)
    return 0 if type(value) is not int else 1 if value >= 0 else -1


_RANGES = ("builtins.range", "zg.range", "zg.static_range")


def _range_of(op: py.For) -> py.Invoke | None:
    """The call of `range` that a `for` iterates over, and nothing else uses; None if there is none.

    A call that names a bound by its keyword is none either: only positional arguments are read as bounds.
    """
    if len(op.iterable.blocks) > 1:
        return None
    terminator = op.iterable.entry.terminator
    call = terminator.operands[0].op if terminator.operands else None
    if not isinstance(call, py.Invoke) or call.callee not in _RANGES or call.parent is not op.iterable.entry:
        return None
    positional = len(call.arguments) - len(call.keywords)
    bounds = set(("start", "stop", "step")[:positional] if positional > 1 else ("stop",)[:positional])
    return None if bounds & set(call.keywords) or call.result.uses != (terminator,) else call


def _bounds(builder: Rewriter, op: py.For) -> tuple[Value, ...]:
    """Start, stop and step of a range, as values of the new model. Its other arguments are options."""
    call = _range_of(op)
    assert call is not None
    place = builder.location
    builder.rewrite_ops([inner for inner in op.iterable.entry.ops[:-1] if inner is not call])
    builder.location = place
    positional = len(call.arguments) - len(call.keywords)
    names = ("stop",) if positional == 1 else ("start", "stop", "step")
    arguments = dict(zip((*names[:positional], *call.keywords), call.arguments, strict=False))
    values = {name: builder[value] for name, value in arguments.items()}
    for name, default in (("start", 0), ("step", 1)):
        if name not in values:
            values[name] = builder.add(core.ConstantOp(default, type=pyobject))
    return values["start"], values["stop"], values["step"]
