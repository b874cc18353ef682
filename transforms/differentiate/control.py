"""Gradients of branches and counted loops.

The reverse of `scf.if` is one on the same condition: each branch computes its values again, and then their adjoints.

The reverse of `scf.for` computes the values of an iteration again, and then their adjoints.

* If the loop only adds to the floats that it carries, as to the accumulators of sums and of `tt.dot`, their adjoints
  are the same in all iterations. Then the reverse runs the iterations in their order, and carries the same values.
* Otherwise it runs the last iteration first, and carries the adjoints of the carried values. Integers and pointers
  that move by a step that the loop does not change are computed from the number of the iteration (`recurrences`). Other
  values that the reverse needs are computed by running the loop from its start up to the iteration: that is quadratic
  in the number of iterations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import Body, Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.codemodel.types import component_types
from ziggurat.transforms.differentiate.adjoint import Reverse, adjoint_type, gradients, no_gradient
from ziggurat.transforms.differentiate.recurrences import steps_of, value_at
from ziggurat.transforms.kit.dataflow import Node
from ziggurat.transforms.trip_count import trip_count

Adjoints = list[Value | None]


def _seed(inside: Reverse, body: Body, adjoints: Adjoints) -> None:
    """Give the values that a body hands on their adjoints."""
    for value, adjoint in zip(body.entry.terminator.operands, adjoints, strict=True):
        if adjoint is not None:
            inside.add(value, adjoint)


@gradients.of(scf.If)
def _if(at: Reverse, op: scf.If, adjoints: Adjoints) -> None:
    outside = list(dict.fromkeys(node for body in op.bodies for node in at.wanted(body.captured())))
    types = [adjoint_type(component_types(value.type)[component]) for value, component in outside]
    bodies: list[Body] = []
    for body in op.bodies:
        inside = at.inside(at.builder.inside((), packed(types)))
        _recompute(inside, body)
        _seed(inside, body, adjoints)
        inside.sweep(body.entry.ops[:-1])
        inside.emit(scf.Yield([inside.take(node) for node in outside]))
        bodies.append(inside.builder.finish())
    result = at.emit(scf.If(at.value(op.condition), *bodies))
    for (value, component), adjoint in zip(outside, at.components(result, len(outside)), strict=True):
        at.add(value, adjoint, component)


@gradients.of(scf.For)
def _for(at: Reverse, op: scf.For, adjoints: Adjoints) -> None:
    parameters = op.entry_arguments(op.body)
    own = [index for index, value in enumerate(parameters) if at.wants((value, 0)) or at.wants((op.result, index))]
    outside = at.wanted(op.body.captured())
    gradients = [adjoints[index] or at.zero(parameters[index].type) for index in own]
    before = [at.take(node) for node in outside]
    if all(_only_added_to(op, index) for index in own):
        after = _in_order(at, op, dict(zip(own, gradients, strict=True)), outside, before)
    else:
        gradients, after = _backwards(at, op, dict(zip(own, gradients, strict=True)), outside, before)
    at.adjoints.update(zip(outside, after, strict=True))
    for index, adjoint in zip(own, gradients, strict=True):
        at.add(op.inits[index], adjoint)


def _only_added_to(op: scf.For, index: int) -> bool:
    """Whether an iteration only adds to carried value `index`: its adjoint is the same in all iterations."""
    (end,) = op.terminators(op.body)
    value: Value = op.entry_arguments(op.body)[index]
    while True:
        if len(value.uses) != 1 or value.uses[0].operands.count(value) != 1:
            return False
        (user,) = value.uses
        if isinstance(user, BodyTerminator):
            return user is end and end.handed[index] is value
        is_added = user.operands[-1] is value if isinstance(user, tt.Dot) else isinstance(user, arith.AddF)
        if user.parent is not op.body.entry or not is_added:
            return False
        value = user.result


def _in_order(
    at: Reverse, op: scf.For, own: Mapping[int, Value], outside: Sequence[Node], before: Sequence[Value]
) -> list[Value]:
    """The reverse of a loop that only adds to its carried floats: its iterations run in the order of the loop.

    `own` has the adjoints of carried values by index, and `before` those of the values from outside before the reverse
    of the loop. Returns the adjoints of the values from outside after it.
    """
    entry_parameters = op.entry_arguments(op.body)
    types = [value.type for value in (*entry_parameters, *before)]
    inside = at.inside(at.builder.inside([op.body.parameters[0].type, *types], packed(types)))
    parameters = inside.builder.parameters
    inside.builder.mapping.values.update(zip(op.body.parameters, parameters, strict=False))
    inside.adjoints.update(zip(outside, parameters[1 + len(entry_parameters) :], strict=True))
    _recompute(inside, op.body)
    _seed(inside, op.body, [own.get(index) for index in range(len(entry_parameters))])
    inside.sweep(op.body.entry.ops[:-1])
    ends = [inside.value(value) for value in op.body.entry.terminator.operands]
    inside.emit(scf.Yield([*ends, *(inside.take(node) for node in outside)]))
    operands = (*(at.value(value) for value in op.operands), *before)
    result = at.emit(op.SPEC.copy(op, operands, (), [inside.builder.finish()], packed(types)))
    return at.components(result, len(types))[len(entry_parameters) :]


def _backwards(
    at: Reverse, op: scf.For, own: Mapping[int, Value], outside: Sequence[Node], before: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    """The reverse of a loop, the last iteration first; for the arguments see `_in_order`.

    Returns the adjoints of the initial values, and those of the values from outside.
    """
    parameters = op.entry_arguments(op.body)
    start, stop, step = (at.value(control) for control in op.controls)
    count = trip_count(at.emit, start, stop, step)
    initial = [*own.values(), *before]
    types = [value.type for value in initial]
    inside = at.inside(at.builder.inside([start.type, *types], packed(types)))
    reversed_count, *begun = inside.builder.parameters
    last = inside.emit(arith.SubI(count, inside.emit(arith.ConstantOp(1, type=start.type))))
    number = inside.emit(arith.SubI(last, reversed_count))
    index = inside.emit(arith.AddI(start, inside.emit(arith.MulI(number, step))))
    _enter_iteration(inside, op, number, index)
    of_body: Adjoints = [None] * len(parameters)
    for place, adjoint in zip(own, begun, strict=False):
        of_body[place] = adjoint
    inside.adjoints.update(zip(outside, begun[len(own) :], strict=True))
    _seed(inside, op.body, of_body)
    inside.sweep(op.body.entry.ops[:-1])
    inside.emit(scf.Yield([inside.take(node) for node in (*((parameters[place], 0) for place in own), *outside)]))
    zero, unit = (at.emit(arith.ConstantOp(number, type=start.type)) for number in (0, 1))
    result = at.emit(scf.For(zero, count, unit, initial, inside.builder.finish(), num_stages=op.num_stages))
    results = at.components(result, len(initial))
    return results[: len(own)], results[len(own) :]


def _enter_iteration(inside: Reverse, op: scf.For, number: Value, index: Value) -> None:
    """Compute the values of an iteration from its number and the value of the loop's index."""
    parameters = op.entry_arguments(op.body)
    steps_by_place = {place: steps for place in range(len(parameters)) if (steps := steps_of(op, place)) is not None}
    begun: dict[int, Value] = {
        place: value_at(inside, op, place, steps, number) for place, steps in steps_by_place.items()
    }
    if len(steps_by_place) < len(parameters):
        operands = tuple(inside.value(value) for value in op.operands)
        body = inside.builder.rewrite_body(op.body)
        operands = (operands[0], index, *operands[2:])
        before = inside.emit(op.SPEC.copy(op, operands, (), [body], op.result.type))
        begun = dict(enumerate(inside.components(before, len(parameters)))) | begun
    inside.builder.mapping.values[op.body.parameters[0]] = index
    inside.builder.mapping.values.update({parameters[place]: value for place, value in begun.items()})
    _recompute(inside, op.body)


def _recompute(inside: Reverse, body: Body) -> None:
    """Compute the values of a body, whose parameters are known."""
    location = inside.builder.location
    inside.builder.rewrite_ops(body.entry.ops[:-1])
    inside.builder.location = location


@gradients.of(scf.While)
def _while(at: Reverse, op: scf.While, adjoints: Adjoints) -> None:
    raise no_gradient(
        op, "the number of its iterations is not known before it runs", "use a for loop over a range, without break"
    )
