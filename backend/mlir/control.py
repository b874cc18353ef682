"""Calls and returns, tuples, branches, and structured control flow.

MLIR's structured ops have bodies of one block each, and no return inside: `to_mlir` has turned others into blocks.
MLIR's loops count upward only; others become loops over the number of iterations.
"""

from __future__ import annotations

from ziggurat.backend.mlir.arithmetic import choose, compare
from ziggurat.backend.mlir.emitter import Attributes, Emitter, Names, emits, leaves, mlir_type, mlir_types, result_list
from ziggurat.backend.mlir.tensors import listed
from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import OpResult, Successor, Value
from ziggurat.codemodel.types import ScalarType, Type

# Tuples: the names of the components, in order.


@emits(core.MakeTuple)
def make_tuple(e: Emitter, op: core.MakeTuple) -> Names:
    return e.names(op.components)


def _place(tuple_: Value, index: int) -> slice:
    components = [len(leaves(type_)) for type_ in getattr(tuple_.type, "components", ())]
    start = sum(components[:index])
    return slice(start, start + components[index])


@emits(core.TupleLoad)
def load_component(e: Emitter, op: core.TupleLoad) -> Names:
    return e.values[op.tuple][_place(op.tuple, op.index)]


@emits(core.TupleWith)
def replace_component(e: Emitter, op: core.TupleWith) -> Names:
    names, place = e.values[op.tuple], _place(op.tuple, op.index)
    return (*names[: place.start], *e.values[op.value], *names[place.stop :])


# Calls and returns.


@emits(tt.Call)
def call(e: Emitter, op: tt.Call) -> Names:
    if op.callee not in e.symbols:
        raise TargetError(f"tt.call must name a function of the module; got '{op.callee}'")
    results = mlir_types(op.type)
    types = f" : ({listed(op.arguments)}) -> {result_list(results)}"
    return e.line(f"{op.NAME} {e.symbols[op.callee]}({', '.join(e.names(op.arguments))})", types, len(results))


@emits(tt.Return, core.Return)
def leave(e: Emitter, op: tt.Return | core.Return) -> Names:
    return _return(e, e.names(op.values), listed(op.values))


def _return(e: Emitter, names: Names, types: str) -> Names:
    return e.line(f"tt.return {', '.join(names)} : {types}" if names else "tt.return")


@emits(core.Unreachable)
def unreachable(e: Emitter, op: core.Unreachable) -> Names:
    """A terminator with undefined values: Triton's MLIR has no `unreachable`."""
    body = op.parent.parent if op.parent is not None else None
    owner = body.parent if body is not None else None
    if isinstance(owner, scf.If):
        return e.line(*_handing("scf.yield", e.poison(owner.result.type), ", ".join(mlir_types(owner.result.type))))
    if not isinstance(owner, tt.Func):
        raise TargetError(f"unreachable in the body of {owner.NAME if owner else 'no op'}")
    return _return(e, e.poison(e.result_type), ", ".join(mlir_types(e.result_type)))


def _handing(op: str, names: Names, types: str) -> tuple[str, str]:
    return (f"{op} {', '.join(names)}", f" : {types}") if names else (op, "")


# Branches.


def _target(e: Emitter, successor: Successor) -> str:
    label, names = e.labels[successor.block], e.names(successor.arguments)
    return f"{label}({', '.join(names)} : {listed(successor.arguments)})" if names else label


@emits(cf.Br, core.Branch)
def branch(e: Emitter, op: cf.Br | core.Branch) -> Names:
    return e.line(f"cf.br {_target(e, op.target)}")


@emits(cf.CondBr, core.CondBranch)
def conditional_branch(e: Emitter, op: cf.CondBr | core.CondBranch) -> Names:
    return e.line(f"cf.cond_br {e.name(op.condition)}, {_target(e, op.then)}, {_target(e, op.otherwise)}")


# Structured control flow.


@emits(scf.Yield, core.Yield, scf.Condition)
def hand_over(e: Emitter, op: scf.Yield | core.Yield | scf.Condition) -> Names:
    names, types = e.names(op.values), listed(op.values)
    if isinstance(op, scf.Condition):
        return e.line(*_handing(f"scf.condition({e.name(op.condition)})", names, types))
    if not names and not isinstance(op.parent_op, scf.While):
        return ()  # MLIR adds an empty yield by itself, except in a while loop.
    return e.line(*_handing("scf.yield", names, types))


@emits(scf.If)
def if_(e: Emitter, op: scf.If) -> Names:
    types = mlir_types(op.result.type)
    arrow = f" -> ({', '.join(types)})" if types else ""
    names = e.opening(f"scf.if {e.name(op.condition)}{arrow}", len(types))
    e.region(op.then)
    if types or len(op.otherwise.entry.ops) > 1:
        e.closing("} else {", last=False)
        e.region(op.otherwise)
    e.closing("}")
    return names


@emits(scf.While)
def while_(e: Emitter, op: scf.While) -> Names:
    types = mlir_types(op.result.type)
    first = e.names(op.initial)
    parameters = [name for name, _ in e.parameters(op.before.entry)]
    carried = ", ".join(f"{parameter} = {name}" for parameter, name in zip(parameters, first, strict=True))
    head = f"scf.while ({carried}) : ({', '.join(types)}) -> {result_list(types)}" if types else "scf.while : () -> ()"
    names = e.opening(head, len(types))
    e.region(op.before)
    e.closing("} do {", last=False)
    e.region(op.after, label=True)
    e.closing("}")
    return names


_LICM_OFF = "#llvm.loop_annotation<licm = <disable = true, versioningDisable = true>>"


def _options(op: scf.For) -> Attributes:
    found: Attributes = {"llvm.loop_annotation": _LICM_OFF} if op.disable_licm else {}
    found |= {f"tt.{name}": None for name in ("disallow_acc_multi_buffer", "flatten") if getattr(op, name)}
    for name in ("loop_unroll_factor", "num_stages"):
        if getattr(op, name) is not None:
            found[f"tt.{name}"] = f"{getattr(op, name)} : i32"
    return {**found, "tt.warp_specialize": None} if op.warp_specialize else found


@emits(scf.For)
def for_(e: Emitter, op: scf.For) -> Names:
    type_ = op.start.type
    assert isinstance(type_, ScalarType)
    start, stop, step = (e.name(value) for value in (op.start, op.stop, op.step))
    sign = step_sign(op.step)
    counted = sign != 1
    if counted:
        bounds = (e.constant(0, type_), trip_count(e, (start, stop, step), sign, type_), e.constant(1, type_))
    else:
        bounds = (start, stop, step)
    unsigned = "unsigned " if counted or not type_.signed else ""
    first = e.names(op.initial)
    (index, _), *parameters = e.parameters(op.body.entry)
    head = f"scf.for {unsigned}{index} = {bounds[0]} to {bounds[1]} step {bounds[2]}"
    types = mlir_types(op.result.type)
    if types:
        carried = ", ".join(f"{parameter} = {name}" for (parameter, _), name in zip(parameters, first, strict=True))
        head += f" iter_args({carried}) -> ({', '.join(types)})"
    names = e.opening(f"{head} : {mlir_type(type_)}", len(types))
    if counted:
        with e.nested():
            moved = e.compute("arith.muli", type_, index, step)
            e.values[op.body.parameters[0]] = (e.compute("arith.addi", type_, start, moved),)
    e.region(op.body)
    e.closing("}", attributes=_options(op))
    return names


# Trip counts.


def step_sign(step: Value) -> int:
    """1 for a step known to be positive, -1 for a negative step, 0 for a step of unknown sign."""
    if isinstance(step.type, ScalarType) and not step.type.signed:
        return 1
    if isinstance(step, OpResult) and isinstance(step.op, arith.ConstantOp) and step.op.value != 0:
        return 1 if step.op.value > 0 else -1
    return 0


def trip_count(e: Emitter, loop: tuple[str, str, str], sign: int, type_: Type) -> str:
    """The number of iterations of a loop, unsigned.

    The distance between start and stop is computed unsigned, so it never overflows. `sign` is the step's: -1, or 0 if
    unknown. A loop with a positive step needs no count: it is written as MLIR's own loop.
    """
    start, stop, step = loop
    zero, one = e.constant(0, type_), e.constant(1, type_)
    size = e.compute("arith.subi", type_, zero, step)
    low, high = stop, start
    if sign == 0:
        up = compare(e, "sgt", step, zero, type_)
        low, high = choose(e, up, start, stop, type_), choose(e, up, stop, start, type_)
        size = choose(e, up, step, size, type_)
    runs = compare(e, "slt", low, high, type_)
    distance = e.compute("arith.subi", type_, high, low)
    last = e.compute("arith.subi", type_, distance, one)
    whole = e.compute("arith.divui", type_, last, size)
    count = e.compute("arith.addi", type_, whole, one)
    return choose(e, runs, count, zero, type_)
