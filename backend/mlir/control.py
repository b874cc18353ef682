"""Calls and returns, tuples, branches, and structured control flow.

MLIR's structured ops have bodies of one block each, and no return inside: `to_mlir` has turned others into blocks.
MLIR's loops count upward only; others become loops over the number of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.mlir.arithmetic import cast, choose, compare
from ziggurat.backend.mlir.emitter import (
    Attributes,
    MlirEmitter,
    Names,
    emits,
    leaves,
    listed,
    mlir_type,
    mlir_types,
    own_type,
    result_list,
)
from ziggurat.backend.mlir.reader import MlirReader, plain, reads
from ziggurat.backend.mlir.syntax import Statement
from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Body, Successor, Value, expect
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import ScalarType, Type, i64, scalar_element

# Tuples: the names of the components, in order.


@emits(core.MakeTuple)
def make_tuple(e: MlirEmitter, op: core.MakeTuple) -> Names:
    return e.names(op.components)


def _place(tuple_: Value, index: int) -> slice:
    components = [len(leaves(type_)) for type_ in getattr(tuple_.type, "components", ())]
    start = sum(components[:index])
    return slice(start, start + components[index])


@emits(core.TupleLoad)
def load_component(e: MlirEmitter, op: core.TupleLoad) -> Names:
    return e.values[op.tuple][_place(op.tuple, op.index)]


@emits(core.TupleWith)
def replace_component(e: MlirEmitter, op: core.TupleWith) -> Names:
    names, place = e.values[op.tuple], _place(op.tuple, op.index)
    return (*names[: place.start], *e.values[op.value], *names[place.stop :])


# Calls and returns.


@emits(tt.Call)
def call(e: MlirEmitter, op: tt.Call) -> Names:
    if op.callee not in e.symbols:
        raise TargetError(f"tt.call must name a function of the module; got '{op.callee}'")
    results = mlir_types(op.type)
    types = f" : ({listed(op.arguments)}) -> {result_list(results)}"
    return e.line(f"{op.NAME} {e.symbols[op.callee]}({', '.join(e.names(op.arguments))})", types, len(results))


@emits(tt.Return, core.Return)
def leave(e: MlirEmitter, op: tt.Return | core.Return) -> Names:
    return _hand(e, "tt.return", e.names(op.values), listed(op.values))


@emits(core.Unreachable)
def unreachable(e: MlirEmitter, op: core.Unreachable) -> Names:
    """A terminator with undefined values: Triton's MLIR has no `unreachable`."""
    owner = op.parent_op
    if not isinstance(owner, scf.If | tt.Func):
        raise TargetError(f"unreachable in the body of {owner.NAME if owner else 'no op'}")
    name, type_ = (
        ("scf.yield", owner.result.type) if isinstance(owner, scf.If) else ("tt.return", owner.body.yield_type)
    )
    return _hand(e, name, e.poison(type_), ", ".join(mlir_types(type_)))


def _hand(e: MlirEmitter, op: str, names: Names, types: str) -> Names:
    """A terminator that hands values on."""
    return e.line(f"{op} {', '.join(names)}", f" : {types}") if names else e.line(op)


# Branches.


def _target(e: MlirEmitter, successor: Successor) -> str:
    label, names = e.labels[successor.block], e.names(successor.arguments)
    return f"{label}({', '.join(names)} : {listed(successor.arguments)})" if names else label


@emits(cf.Br, core.Branch)
def branch(e: MlirEmitter, op: cf.Br | core.Branch) -> Names:
    return e.line(f"cf.br {_target(e, op.target)}")


@emits(cf.CondBr, core.CondBranch)
def conditional_branch(e: MlirEmitter, op: cf.CondBr | core.CondBranch) -> Names:
    return e.line(f"cf.cond_br {e.name(op.condition)}, {_target(e, op.then)}, {_target(e, op.otherwise)}")


# Structured control flow.


@emits(scf.Yield, core.Yield, scf.Condition)
def hand_over(e: MlirEmitter, op: scf.Yield | core.Yield | scf.Condition) -> Names:
    names, types = e.names(op.values), listed(op.values)
    if isinstance(op, scf.Condition):
        return _hand(e, f"scf.condition({e.name(op.condition)})", names, types)
    if not names and not isinstance(op.parent_op, scf.While):
        return ()  # MLIR adds an empty yield by itself, except in a while loop.
    return _hand(e, "scf.yield", names, types)


@emits(scf.If)
def if_(e: MlirEmitter, op: scf.If) -> Names:
    types = mlir_types(op.result.type)
    arrow = f" -> ({', '.join(types)})" if types else ""
    names = e.opening(f"scf.if {e.name(op.condition)}{arrow}", len(types))
    e.region(op.then)
    if types or len(op.otherwise.entry.ops) > 1:
        e.closing("} else {", last=False)
        e.region(op.otherwise)
    e.closing("}", attributes=own_type(op.result.type))
    return names


@emits(scf.While)
def while_(e: MlirEmitter, op: scf.While) -> Names:
    types = mlir_types(op.result.type)
    first = e.names(op.initial)
    parameters = [name for name, _ in e.parameters(op.before.entry)]
    arguments = ", ".join(f"{parameter} = {name}" for parameter, name in zip(parameters, first, strict=True))
    head = (
        f"scf.while ({arguments}) : ({', '.join(types)}) -> {result_list(types)}" if types else "scf.while : () -> ()"
    )
    names = e.opening(head, len(types))
    e.region(op.before)
    e.closing("} do {", last=False)
    e.region(op.after, label=True)
    e.closing("}")
    return names


_LICM_OFF = "#llvm.loop_annotation<licm = <disable = true, versioningDisable = true>>"


def _options(op: scf.For) -> Attributes:
    attributes: Attributes = {"llvm.loop_annotation": _LICM_OFF} if op.disable_licm else {}
    attributes |= {f"tt.{name}": None for name in ("disallow_acc_multi_buffer", "flatten") if getattr(op, name)}
    for name in ("loop_unroll_factor", "num_stages"):
        if getattr(op, name) is not None:
            attributes[f"tt.{name}"] = f"{getattr(op, name)} : i32"
    return {**attributes, "tt.warp_specialize": None} if op.warp_specialize else attributes


@emits(scf.For)
def for_(e: MlirEmitter, op: scf.For) -> Names:
    type_ = expect(op.start.type, ScalarType)
    start, stop, step = (e.name(value) for value in (op.start, op.stop, op.step))
    sign = step_sign(op.step)
    counted = sign != 1 or not (type_.signed or e.has("unsigned loops"))
    unsigned = "unsigned " if counted or not type_.signed else ""
    bounds, index_type = (start, stop, step), type_
    if counted:
        with e.steps():
            count = trip_count(e, bounds, sign, type_)
            if not e.has("unsigned loops"):  # The number of iterations fits in a signed i64.
                unsigned, index_type = "", i64
                count = cast(e, "arith.extui", count, type_, i64)
            bounds = (e.constant(0, index_type), count, e.constant(1, index_type))
    first = e.names(op.initial)
    (index, _), *parameters = e.parameters(op.body.entry)
    head = f"scf.for {unsigned}{index} = {bounds[0]} to {bounds[1]} step {bounds[2]}"
    types = mlir_types(op.result.type)
    if types:
        arguments = ", ".join(f"{parameter} = {name}" for (parameter, _), name in zip(parameters, first, strict=True))
        head += f" iter_args({arguments}) -> ({', '.join(types)})"
    names = e.opening(f"{head} : {mlir_type(index_type)}", len(types))
    if counted:
        with e.nested(), e.steps():
            index = cast(e, "arith.trunci", index, index_type, type_)
            offset = e.compute("arith.muli", type_, index, step)
            e.values[op.body.parameters[0]] = (e.compute("arith.addi", type_, offset, start),)
    e.region(op.body)
    e.closing("}", attributes=_options(op))
    return names


# Trip counts.


def step_sign(step: Value) -> int:
    """1 for a step known to be positive, -1 for a negative step, 0 for a step of unknown sign."""
    if isinstance(step.type, ScalarType) and not step.type.signed:
        return 1
    if isinstance(step.op, arith.ConstantOp) and step.op.value != 0:
        return 1 if step.op.value > 0 else -1
    return 0


def trip_count(e: MlirEmitter, loop: tuple[str, str, str], sign: int, type_: Type) -> str:
    """The number of iterations of a loop, unsigned.

    The distance between start and stop is computed unsigned, so it never overflows. `sign` is the step's; 0 if unknown.
    A loop of signed integers with a positive step needs no count: it is written as MLIR's own loop.
    """
    start, stop, step = loop
    zero, unit = e.constant(0, type_), e.constant(1, type_)
    if sign == 1:
        low, high, size = start, stop, step
    else:
        low, high, size = stop, start, e.compute("arith.subi", type_, zero, step)
    if sign == 0:
        up = compare(e, "sgt", step, zero, type_)
        low, high = choose(e, up, start, stop, type_), choose(e, up, stop, start, type_)
        size = choose(e, up, step, size, type_)
    runs = compare(e, "slt" if scalar_element(type_).signed else "ult", low, high, type_)
    distance = e.compute("arith.subi", type_, high, low)
    last = e.compute("arith.subi", type_, distance, unit)
    whole = e.compute("arith.divui", type_, last, size)
    count = e.compute("arith.addi", type_, whole, unit)
    return choose(e, runs, count, zero, type_)


# Reading.


@reads("ub.poison")
def read_poison(r: MlirReader, s: Statement) -> Value:
    return r.add(tt.Poison(type=s.result_types[0] if s.result_types else s.types[0]))


@reads("tt.call")
def read_call(r: MlirReader, s: Statement) -> Value:
    callee = s.attributes["callee"] if "callee" in s.attributes else s.strings[0] if s.strings else ""
    if callee not in r.functions:
        r.fail(f"tt.call must name a function of the module; got '{callee}'")
    symbol, parameters, result = r.functions[callee]
    return r.add(tt.Call(r.as_types(r.operands(s), parameters), symbol, type=result))


@reads("tt.return")
def read_return(r: MlirReader, s: Statement) -> None:
    r.add(tt.Return(r.as_types(r.operands(s), leaves(r.b.body.yield_type))))


def _successor(r: MlirReader, name: str, arguments: Sequence[str]) -> Successor:
    values = r.values(arguments)
    block = r.block(name, values)
    return Successor(block, r.as_types(values, [parameter.type for parameter in block.parameters]))


@reads("cf.br")
def read_branch(r: MlirReader, s: Statement) -> None:
    if not s.successors[0][1]:  # The generic form has the arguments among the operands.
        s.successors[0] = (s.successors[0][0], s.operands)
    r.add(cf.Br(_successor(r, *s.successors[0])))


@reads("cf.cond_br")
def read_conditional_branch(r: MlirReader, s: Statement) -> None:
    if "operandSegmentSizes" in s.attributes:
        _, first, _ = r.numbers(s, "operandSegmentSizes")
        (then, _), (otherwise, _) = s.successors
        s.successors = [(then, s.operands[1 : 1 + first]), (otherwise, s.operands[1 + first :])]
    then, otherwise = s.successors
    r.add(cf.CondBr(r.value(s.operands[0]), _successor(r, *then), _successor(r, *otherwise)))


@reads("cf.assert")
def read_assertion(r: MlirReader, s: Statement) -> None:
    message = s.attributes["msg"] if "msg" in s.attributes else s.strings[0]
    (condition,) = r.operands(s, 1)
    r.add(cf.AssertOp(condition, message))


@reads("scf.yield", "scf.condition")
def read_yield(r: MlirReader, s: Statement) -> None:
    if s.name == "scf.yield":
        r.add(scf.Yield(r.handed(r.operands(s))))
        return
    condition, *values = r.operands(s)
    r.add(scf.Condition(condition, r.handed(values)))


def _finished(r: MlirReader, s: Statement, number: int, types: Sequence[Type], parameters: Sequence[Type] = ()) -> Body:
    """The body for a region, by its number, that yields these types; an empty one if there is no such region."""
    inner = r.b.nested(parameters, packed(types))
    if number < len(s.regions):
        r.region(s.regions[number], inner, None if number else s.parameters, yields=types)
    if not inner.terminated:  # MLIR's own form leaves out a yield of nothing.
        r.add_to(inner, scf.Yield(r.as_types([], types)))
    return inner.finish()


@reads("scf.if")
def read_if(r: MlirReader, s: Statement) -> Value:
    (condition,) = r.operands(s, 1)
    return r.add(scf.If(condition, *(_finished(r, s, number, s.result_types) for number in range(2))))


@reads("scf.for")
def read_for(r: MlirReader, s: Statement) -> Value:
    if s.operands[1] in r.steps:
        bounds = r.values(_counted(r, s.operands[1]))
    else:
        bounds = r.alike(r.values(s.operands[:3]), not s.attributes.get("unsignedCmp", False))
    if len(bounds) < 3:
        r.fail("scf.for needs a start, a stop and a step")
    start, stop, step = bounds
    initial = r.values(s.operands[3:])
    carried_types = [value.type for value in initial]
    body = _finished(r, s, 0, carried_types, [start.type, *carried_types])
    options = {name: s.attributes[f"tt.{name}"] for name in _LOOP if f"tt.{name}" in s.attributes}
    if "llvm.loop_annotation" in s.attributes:
        options["disable_licm"] = True
    return r.add(scf.For(start, stop, step, initial, body, **options))


def _counted(r: MlirReader, count: str) -> tuple[str, str, str]:
    """The start, stop and step of a loop over its number of iterations, as `trip_count` has written them."""
    if r.steps[count].name == "arith.extui":
        count = r.steps[count].operands[0]
    runs, iterations, _ = r.steps[count].operands
    low, high = r.steps[runs].operands
    size = r.steps[r.steps[iterations].operands[0]].operands[1]
    if low in r.steps:  # By the sign of the step, `low` and `high` are chosen from start and stop.
        up, start, stop = r.steps[low].operands
        return start, stop, r.steps[up].operands[0]
    if size in r.steps:
        return high, low, r.steps[size].operands[1]
    return low, high, size


_LOOP = ("disallow_acc_multi_buffer", "flatten", "loop_unroll_factor", "num_stages", "warp_specialize")


@reads("scf.while")
def read_while(r: MlirReader, s: Statement) -> Value:
    """MLIR's condition may hand on values of other types than the loop is given: then the model's loop carries both."""
    initial = r.operands(s)
    before_types = [value.type for value in initial]
    if [plain(type_) for type_ in before_types] == [plain(type_) for type_ in s.result_types]:
        before = _finished(r, s, 0, before_types, before_types)
        return r.add(scf.While(initial, before, _finished(r, s, 1, before_types, before_types)))
    after_types = s.result_types
    types = [*before_types, *after_types]
    initial = [*initial, *(r.add(tt.Poison(type=type_)) for type_ in after_types)]
    before, after = (r.b.nested(types, packed(types)) for _ in range(2))
    count = len(before_types)
    outer, arguments = before.parameters[:count], after.parameters[count:]
    r.region(s.regions[0], before, s.parameters, after_types, arguments=outer, around=(outer, ()))
    r.region(s.regions[1], after, None, before_types, arguments=arguments, around=((), arguments))
    loop = r.add(scf.While(initial, before.finish(), after.finish()))
    results = [r.add(core.TupleLoad(loop, index)) for index in range(count, len(types))]
    return results[0] if len(results) == 1 else r.add(core.MakeTuple(results))
