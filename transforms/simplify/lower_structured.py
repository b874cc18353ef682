"""From structured control flow to blocks and branches, for `scf` and for the Python dialect.

An `scf` op is replaced by `cf.br` and `cf.cond_br`, a Python construct by `branch` and `cbranch`. Its bodies become
blocks of the body that it stands in; values that its bodies used from outside are still visible there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.codemodel.dialects import arith, cf, core, py, scf
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Successor, Value
from ziggurat.codemodel.traits import Constant
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import ScalarType, pyobject

# Writes the counterpart of a body's terminator.
Ending = Callable[[Rewriter, tuple[Value, ...]], None]


def lower_structured(op: Op, chosen: Callable[[Op], bool] = lambda op: True) -> Op:
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

    A Python `for` is lowered when it runs over a range; `cand` and `cor` give what Python's `and` and `or` give. Only
    ops that are `chosen` are lowered; an op around a chosen one must be chosen, too. Gives `op` itself where
    there is nothing to lower.
    """
    return transform(op, _Lowering(chosen), pass_name="lower_structured")


class _Lowering:
    """The transformer. The ops of a lowered body go to the builder of the op itself."""

    def __init__(self, chosen: Callable[[Op], bool]) -> None:
        self._chosen = chosen
        self._endings: dict[Body, Ending] = {}
        # By the result of a Python loop that is being lowered: what its `continue` and its `break` become.
        self._leaving: dict[Value | None, tuple[Ending, Ending]] = {}
        self._components: dict[Value, Sequence[Value]] = {}

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, scf.Yield | scf.Condition | core.Yield):
            ending = self._endings.get(op.parent.parent) if op.parent is not None else None
            if ending is None:
                return None
            ending(builder, operands)
            return DROP
        if isinstance(op, py.Break | py.Continue):
            ends = self._leaving.get(_loop_around(op))
            if ends is None:
                return None
            ends[isinstance(op, py.Break)](builder, ())
            return DROP
        if isinstance(op, core.TupleLoad):
            components = self._components.get(op.tuple)
            return None if components is None else components[op.index]
        lower = _LOWER.get(type(op))
        if lower is None or (isinstance(op, py.For) and _range_of(op) is None) or not self._chosen(op):
            return None
        return lower(self, builder, op, operands)

    def into(self, builder: Rewriter, block: Block, body: Body, parameters: Sequence[Value], ending: Ending) -> None:
        """Append the ops of a body at the block, its parameters being these values."""
        self._endings[body] = ending
        builder.move_to(block)
        builder.mapping.values.update(zip(body.parameters, parameters, strict=True))
        builder.rewrite_blocks(body)

    def suite(
        self, builder: Rewriter, block: Block, loop: py.For | py.While, parameters: Sequence[Value], *ends: Ending
    ) -> None:
        """Append the suite of a loop. `ends` are what its end or a `continue`, and what a `break` becomes."""
        following, leaving = ends
        self._leaving[loop.result] = following, leaving
        self.into(builder, block, loop.suite, parameters, following)

    def results(self, builder: Rewriter, op: Op, values: Sequence[Value]) -> Outcome:
        """The results of a lowered `scf` op, packed; a `tuple.load` of it finds its component directly."""
        if len(values) < 2:
            return values[0] if values else DROP
        self._components[op.result] = values
        if all(isinstance(user, core.TupleLoad) for user in op.result.uses):
            return values[0]  # A stand-in for the Tuple, which nothing uses.
        return builder.add(core.MakeTuple(values))


def _loop_around(op: Op) -> Value | None:
    """The result of the innermost Python loop around an op."""
    here = op.parent_op
    while here is not None and not isinstance(here, py.For | py.While):
        here = here.parent_op
    return None if here is None else here.result


def _go(block: Block) -> Ending:
    """The ending that branches to the block with the values."""

    def end(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.add(cf.Br(Successor(block, values)))

    return end


def _lower_if(lowering: _Lowering, builder: Rewriter, op: scf.If, operands: tuple[Value, ...]) -> Outcome:
    then, otherwise = builder.new_block(), builder.new_block()
    rest = builder.new_block(op.value_types if op.terminators() else ())
    builder.add(cf.CondBr(operands[0], Successor(then), Successor(otherwise)))
    lowering.into(builder, then, op.then, (), _go(rest))
    lowering.into(builder, otherwise, op.otherwise, (), _go(rest))
    builder.move_to(rest)
    return lowering.results(builder, op, rest.parameters)


def _lower_for(lowering: _Lowering, builder: Rewriter, op: scf.For, operands: tuple[Value, ...]) -> Outcome:
    start, stop, step, *initial = operands
    place = builder.location
    header = builder.new_block([start.type, *(value.type for value in initial)])
    inside, rest = builder.new_block(), builder.new_block()
    positive = None if _sign(step) != 0 else _greater(builder, step, builder.add(arith.ConstantOp(0, type=step.type)))
    builder.add(cf.Br(Successor(header, (start, *initial))))
    builder.move_to(header)
    index, *carried = header.parameters
    if positive is not None:
        up, down = _less(builder, index, stop), _greater(builder, index, stop)
        going = builder.add(arith.Select(positive, up, down))
    else:
        going = _less(builder, index, stop) if _sign(step) > 0 else _greater(builder, index, stop)
    builder.add(cf.CondBr(going, Successor(inside), Successor(rest)))

    def end(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.location = place
        following = builder.add(arith.AddI(index, step))
        builder.add(cf.Br(Successor(header, (following, *values))))

    lowering.into(builder, inside, op.body, header.parameters, end)
    builder.move_to(rest)
    return lowering.results(builder, op, carried)


def _sign(step: Value) -> int:
    """The sign of a step, 1 or -1; 0 where it is not known."""
    type_ = step.type
    if isinstance(type_, ScalarType) and not type_.signed:
        return 1
    if isinstance(step, OpResult) and isinstance(step.op, Constant):
        value = step.op.attributes["value"]
        return 0 if type(value) is not int else 1 if value >= 0 else -1
    return 0


def _less(builder: Rewriter, a: Value, b: Value) -> Value:
    signed = isinstance(a.type, ScalarType) and a.type.signed
    return builder.add(arith.CmpI(a, b, arith.IntPredicate.SLT if signed else arith.IntPredicate.ULT))


def _greater(builder: Rewriter, a: Value, b: Value) -> Value:
    return builder.add(arith.CmpI(a, b, arith.IntPredicate.SGT))


def _lower_while(lowering: _Lowering, builder: Rewriter, op: scf.While, operands: tuple[Value, ...]) -> Outcome:
    types = [value.type for value in operands]
    before, after, rest = (builder.new_block(types) for _ in range(3))
    builder.add(cf.Br(Successor(before, operands)))

    def decide(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.add(cf.CondBr(values[0], Successor(after, values[1:]), Successor(rest, values[1:])))

    lowering.into(builder, before, op.before, before.parameters, decide)
    lowering.into(builder, after, op.after, after.parameters, _go(before))
    builder.move_to(rest)
    return lowering.results(builder, op, rest.parameters)


# Python's constructs.


def _branch(block: Block, *, give: bool = False) -> Ending:
    """The ending that branches to the block, with the value if `give` is set."""

    def end(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.add(core.Branch(Successor(block, values if give else ())))

    return end


def _choose(then: Block, otherwise: Block, rest: Block | None = None) -> Ending:
    """The ending that branches on its value; to `rest`, if that is one of the two, with the value."""

    def end(builder: Rewriter, values: tuple[Value, ...]) -> None:
        first, second = (Successor(block, values if block is rest else ()) for block in (then, otherwise))
        builder.add(core.CondBranch(values[0], first, second))

    return end


def _lower_py_if(
    lowering: _Lowering, builder: Rewriter, op: py.If | py.CondExpression, operands: tuple[Value, ...]
) -> Outcome:
    gives = isinstance(op, py.CondExpression)
    then, otherwise = builder.new_block(), builder.new_block()
    rest = builder.new_block([pyobject] if gives else [])
    builder.add(core.CondBranch(operands[0], Successor(then), Successor(otherwise)))
    lowering.into(builder, then, op.then, (), _branch(rest, give=gives))
    lowering.into(builder, otherwise, op.otherwise, (), _branch(rest, give=gives))
    builder.move_to(rest)
    return rest.parameters[0] if gives else DROP


def _lower_shortcut(
    lowering: _Lowering, builder: Rewriter, op: py.CondAnd | py.CondOr, operands: tuple[Value, ...]
) -> Outcome:
    *firsts, last = op.parts
    rest = builder.new_block([pyobject])
    for part in firsts:
        following = builder.new_block()
        choose = (following, rest) if isinstance(op, py.CondAnd) else (rest, following)
        lowering.into(builder, builder.block, part, (), _choose(*choose, rest))
        builder.move_to(following)
    lowering.into(builder, builder.block, last, (), _branch(rest, give=True))
    builder.move_to(rest)
    return rest.parameters[0]


def _lower_py_while(lowering: _Lowering, builder: Rewriter, op: py.While, operands: tuple[Value, ...]) -> Outcome:
    header, suite, rest = (builder.new_block() for _ in range(3))
    builder.add(core.Branch(Successor(header)))
    lowering.into(builder, header, op.condition, (), _choose(suite, rest))
    lowering.suite(builder, suite, op, (), _branch(header), _branch(rest))
    builder.move_to(rest)
    return DROP


_RANGES = ("builtins.range", "zg.range", "zg.static_range")


def _range_of(op: py.For) -> py.Invoke | None:
    """The call of `range` that a `for` runs over, if it is one whose bounds are known to be bounds."""
    if len(op.iterable.blocks) > 1:
        return None
    terminator = op.iterable.entry.terminator
    given = terminator.operands[0] if terminator.operands else None
    found = given.op if isinstance(given, OpResult) else None
    if not isinstance(found, py.Invoke) or found.callee not in _RANGES or found.parent is not op.iterable.entry:
        return None
    positional = len(found.arguments) - len(found.keywords)
    bounds = set(("start", "stop", "step")[:positional] if positional > 1 else ("stop",)[:positional])
    return None if bounds & set(found.keywords) or found.result.uses != (terminator,) else found


def _bounds(builder: Rewriter, call: py.Invoke) -> tuple[Value, Value, Value]:
    """Start, stop and step of a range, as values of the new model. Its other arguments are options."""
    positional = len(call.arguments) - len(call.keywords)
    names = ("stop",) if positional == 1 else ("start", "stop", "step")
    given = dict(zip((*names[:positional], *call.keywords), call.arguments, strict=False))
    values = {name: builder[value] for name, value in given.items()}
    for name, default in (("start", 0), ("step", 1)):
        if name not in values:
            values[name] = builder.add(core.ConstantOp(default, type=pyobject))
    return values["start"], values["stop"], values["step"]


def _lower_py_for(lowering: _Lowering, builder: Rewriter, op: py.For, operands: tuple[Value, ...]) -> Outcome:
    call = _range_of(op)
    assert call is not None
    place = builder.location
    builder.rewrite_ops([inner for inner in op.iterable.entry.ops[:-1] if inner is not call])
    builder.location = place
    start, stop, step = _bounds(builder, call)
    sign = _sign(step)
    header = builder.new_block([pyobject])
    suite, rest = builder.new_block(), builder.new_block()
    index = header.parameters[0]
    positive = None
    if sign == 0:
        positive = builder.add(py.Gt(step, builder.add(core.ConstantOp(0, type=pyobject))))
    builder.add(core.Branch(Successor(header, (start,))))
    builder.move_to(header)
    if positive is not None:
        up, down = builder.new_block(), builder.new_block()
        builder.add(core.CondBranch(positive, Successor(up), Successor(down)))
        for block, compare in ((up, py.Lt), (down, py.Gt)):
            builder.move_to(block)
            builder.add(core.CondBranch(builder.add(compare(index, stop)), Successor(suite), Successor(rest)))
    else:
        going = builder.add(py.Lt(index, stop) if sign > 0 else py.Gt(index, stop))
        builder.add(core.CondBranch(going, Successor(suite), Successor(rest)))

    def end(builder: Rewriter, values: tuple[Value, ...]) -> None:
        builder.location = place
        builder.add(core.Branch(Successor(header, (builder.add(py.Add(index, step)),))))

    lowering.suite(builder, suite, op, (index,), end, _branch(rest))
    builder.move_to(rest)
    return DROP


_LOWER: dict[type[Op], Callable[..., Outcome]] = {
    scf.If: _lower_if,
    scf.For: _lower_for,
    scf.While: _lower_while,
    py.If: _lower_py_if,
    py.CondExpression: _lower_py_if,
    py.CondAnd: _lower_shortcut,
    py.CondOr: _lower_shortcut,
    py.For: _lower_py_for,
    py.While: _lower_py_while,
}
