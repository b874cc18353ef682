"""A smaller model that still shows a fault: delta debugging on ops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator, Pure
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, Transformer, transform
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of, i1, of_floats
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.simplify import dce


def reduced(model: Op, fails: Callable[[Op], bool], seconds: float, keep_addresses: bool = False) -> Op:
    """A model of fewer ops that fails as well. `fails` takes a valid model. It tries to leave out stores, loops and
    branches, and to put constants and operands in the place of results, from the last op to the first, until nothing
    more goes or the time is over. With `keep_addresses`, only results that are floats are replaced."""
    until = time.monotonic() + seconds
    while True:
        smaller = _pass_over(model, fails, until, keep_addresses)
        if smaller is model or time.monotonic() > until:
            return smaller
        model = smaller


def _pass_over(model: Op, fails: Callable[[Op], bool], until: float, keep_addresses: bool) -> Op:
    """The model after one attempt at each op."""
    number = len(list(model.walk()))
    while number > 0:
        number -= 1
        ops = list(model.walk())
        if number >= len(ops) or time.monotonic() > until:
            continue
        for change in _changes(ops[number], keep_addresses):
            try:
                candidate = dce(change(model))
                if len(list(candidate.walk())) >= len(ops):
                    continue
                verify(candidate)
                if fails(candidate):
                    model = candidate
                    break
            except ZigguratError:  # The change does not fit there.
                continue
    return model


def _changes(target: Op, keep_addresses: bool) -> Iterator[Callable[[Op], Op]]:
    """What could stand for an op, the most drastic change first."""
    if isinstance(target, BodyTerminator | tt.Func) or target.parent_op is None:
        return
    changes: list[Transformer] = []
    if not isinstance(target, Pure) and not target.result.uses:
        changes.append(lambda builder, op, operands: DROP if op is target else None)
    is_kept = keep_addresses and not of_floats(target.result.type)
    if target.result.uses and not isinstance(target, arith.ConstantOp) and not is_kept:
        changes += [_replacing(target, operand) for operand in _alike(target)]
        if _constant_type(target.result.type):
            changes.append(_zeroing(target))
    if isinstance(target, scf.If):
        changes += [_inlining(target, body) for body in target.bodies]
    for change in changes:
        yield _transformed_by(change)


def _transformed_by(change: Transformer) -> Callable[[Op], Op]:
    return lambda model: transform(model, change)


def _alike(op: Op) -> Iterator[int]:
    """The numbers of the operands, of a loop those of its carried values, that have the type of the result."""
    if isinstance(op, Structured) or op.bodies:
        return
    for number, operand in enumerate(op.operands):
        if operand.type == op.result.type:
            yield number


def _constant_type(type_: Type) -> bool:
    return isinstance(type_, ScalarType | TensorType) and isinstance(element_of(type_), ScalarType)


def _replacing(target: Op, number: int) -> Transformer:
    return lambda builder, op, operands: operands[number] if op is target else None


def _zeroing(target: Op) -> Transformer:
    """A constant for the result of an op: true for bits, which are masks as a rule, and 1 otherwise."""

    def change(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is not target:
            return None
        element = element_of(op.result.type)
        assert isinstance(element, ScalarType)
        return builder.add(arith.ConstantOp(True if element == i1 else 1.0 if element.is_float else 1, op.result.type))

    return change


def _inlining(target: Op, body: Body) -> Transformer:
    """The ops of a branch in the place of an `scf.if` without results."""

    def change(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is not target:
            return None
        if target.result.uses or len(body.blocks) > 1:
            return None
        for inner in body.entry.ops[:-1]:
            builder.rewrite(inner)
        return DROP

    return change
