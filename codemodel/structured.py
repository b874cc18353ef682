"""Structured control flow: how values pass between an op and its bodies.

    for body in op.bodies:                         # any Structured op
        arguments = op.entry_arguments(body)       # the parameters that hold the carried values
        for terminator in op.terminators(body):
            handed = terminator.handed             # the values for the next body, or the results

A structured op carries values by index. Value `i` is `op.inits[i]` before the first body runs, `op.entry_arguments(
body)[i]` at the start of a body, `terminator.handed[i]` at its end, and component `i` of the result. `op.following`
says which bodies may run next. An op that carries nothing in, such as `scf.if`, has no inits and no entry arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ziggurat.codemodel.op import BlockParameter, Body, Op, Value
from ziggurat.codemodel.traits import BodyTerminator, Returns
from ziggurat.codemodel.types import TupleType, Type, void


def packed(types: Sequence[Type]) -> Type:
    """The type of several values as one: `void` for none, the type itself for one, a Tuple for more."""
    if not types:
        return void
    return types[0] if len(types) == 1 else TupleType(tuple(types))


def packed_values(values: Sequence[Any]) -> Any:
    """Several values as one, as `packed` packs their types: None for none, a value itself, a tuple of more."""
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def leaves_structure(op: Op) -> bool:
    """Whether control inside of an op may return from its function, or branches between blocks."""
    return any(isinstance(inner, Returns) or inner.jumps for inner in op.walk())


class Structured(Op):
    """An op that runs its bodies, and hands values from one to the next.

    The first `CONTROLS` operands steer the op (bounds, a condition); the others are the initial values. The first
    `LEADING` parameters of each body come from the op itself (the index of a loop); the others are carried.
    """

    CONTROLS: ClassVar[int] = 0
    LEADING: ClassVar[int] = 0

    @property
    def controls(self) -> tuple[Value, ...]:
        """The operands that steer the op."""
        return self.operands[: self.CONTROLS]

    @property
    def inits(self) -> tuple[Value, ...]:
        """The initial values of what the op carries."""
        return self.operands[self.CONTROLS :]

    def entry_types(self, operands: Sequence[Value]) -> Sequence[Type]:
        if not self.inits:
            return [parameter.type for parameter in self.bodies[0].parameters]
        return [value.type for value in (*operands[: self.LEADING], *operands[self.CONTROLS :])]

    def entry_arguments(self, body: Body) -> tuple[BlockParameter, ...]:
        """The parameters of a body that hold the carried values."""
        return body.parameters[self.LEADING :]

    def terminators(self, *bodies: Body) -> list[BodyTerminator]:
        """The terminators by which the bodies (without an argument, all) hand values on, in order."""
        ends = [self.SPEC.ends(index) for index in range(len(self.bodies))]
        return [
            block.terminator
            for body, end in zip(self.bodies, ends, strict=True)
            if not bodies or body in bodies
            for block in body.blocks
            if end is not None and isinstance(block.terminator, end) and isinstance(block.terminator, BodyTerminator)
        ]

    @property
    def value_types(self) -> tuple[Type, ...]:
        """The types of the values that the op gives, one by one."""
        if self.inits:
            return tuple(value.type for value in self.inits)
        for terminator in self.terminators():
            return tuple(value.type for value in terminator.handed)
        return () if self.result.type == void else (self.result.type,)

    def following(self, body: Body | None) -> Sequence[Body | None]:
        """The bodies that may run after `body` has handed on its values; first of all, for None.

        None among them stands for the end of the op.
        """
        raise NotImplementedError
