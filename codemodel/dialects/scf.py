"""Structured control flow. The result of a loop or a branch is one value, a Tuple of several, or nothing (`void`)."""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects.arith import Conditional
from ziggurat.codemodel.fields import attribute, body, operand, operands
from ziggurat.codemodel.op import Body, Op, Value, require
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.structured import packed as packed
from ziggurat.codemodel.traits import BodyTerminator, Loop, MayReturn
from ziggurat.codemodel.types import ScalarType, Type, i1

NEVER_ENDS = "nothing in the loop's condition changes, so the loop never ends"  # The error of a program.


def _handed(op: Structured, *bodies: Body) -> list[list[Type]]:
    """The types of the values that each terminator of the bodies hands on."""
    return [[value.type for value in terminator.handed] for terminator in op.terminators(*bodies)]


def _same(types: Sequence[Type], expected: Sequence[Type], what: str) -> None:
    require(
        tuple(types) == tuple(expected),
        f"{what}: expected ({', '.join(map(str, expected))}), got ({', '.join(map(str, types))})",
    )


class Yield(Op, BodyTerminator, name="scf.yield"):
    """Hand values to the op that owns the body."""

    values: Sequence[Value] = operands()


class Condition(Conditional, BodyTerminator, name="scf.condition"):
    """Go on with the values while the condition holds; otherwise they are the result of the loop."""

    values: Sequence[Value] = operands()

    @property
    def handed(self) -> tuple[Value, ...]:
        return self.operands[1:]


class For(Structured, Loop, MayReturn, name="scf.for"):
    """Count from `start` up to but not including `stop` by `step`, which may be negative (then down to, not including).

    The body takes the index and the loop-carried values, and yields the next ones. The result is the last ones, packed.
    The other attributes are the options of `zg.range`; None means that the compiler decides.
    """

    CONTROLS = 3
    LEADING = 1

    start: Value = operand()
    stop: Value = operand()
    step: Value = operand()
    initial: Sequence[Value] = operands()
    body: Body = body(ends=Yield)
    num_stages: int | None = attribute(object, default=None)
    loop_unroll_factor: int | None = attribute(object, default=None)
    disallow_acc_multi_buffer: bool = attribute(bool, default=False)
    flatten: bool = attribute(bool, default=False)
    warp_specialize: bool = attribute(bool, default=False)
    disable_licm: bool = attribute(bool, default=False)

    def infer_type(self) -> Type:
        return packed([value.type for value in self.initial])

    def following(self, body: Body | None) -> Sequence[Body | None]:
        return self.body, None

    def check(self) -> None:
        index = self.start.type
        require(
            isinstance(index, ScalarType) and index.kind == "int" and index == self.stop.type == self.step.type,
            f"scf.for counts with one integer type; got {index}, {self.stop.type}, {self.step.type}",
        )
        carried_types = [value.type for value in self.initial]
        _same(
            [p.type for p in self.body.parameters],
            [index, *carried_types],
            "the body of scf.for takes the index and the carried",
        )
        for types in _handed(self):
            _same(types, carried_types, "scf.for yields its carried values")


class If(Structured, MayReturn, name="scf.if"):
    """Run one of two bodies. The result is the values that it yields, packed."""

    CONTROLS = 1

    condition: Value = operand(type=i1)
    then: Body = body(ends=Yield)
    otherwise: Body = body(ends=Yield)

    def infer_type(self) -> Type:
        return self.then.yield_type

    def following(self, body: Body | None) -> Sequence[Body | None]:
        return (self.then, self.otherwise) if body is None else (None,)

    def check(self) -> None:
        require(not any(part.parameters for part in self.bodies), "the bodies of scf.if take no parameters")
        yields = _handed(self)
        for types in yields:
            require(
                packed(types) == self.then.yield_type,
                f"the bodies of scf.if yield {self.then.yield_type}; one yields {packed(types)}",
            )
        # Two values and one Tuple of two pack to the same type.
        require(len(set(map(len, yields))) < 2, "the bodies of scf.if yield different numbers of values")


class While(Structured, Loop, MayReturn, name="scf.while"):
    """While the first body's `scf.condition` holds, run the second.

    Both bodies take the loop-carried values. The result is the values at the end, packed.
    """

    initial: Sequence[Value] = operands()
    before: Body = body(ends=Condition)
    after: Body = body(ends=Yield)

    def infer_type(self) -> Type:
        return packed([value.type for value in self.initial])

    def following(self, body: Body | None) -> Sequence[Body | None]:
        return (self.after, None) if body is self.before else (self.before,)

    def check(self) -> None:
        carried_types = [value.type for value in self.initial]
        for part in (self.before, self.after):
            _same([p.type for p in part.parameters], carried_types, "the bodies of scf.while take the carried values")
        for types in _handed(self, self.before):
            _same(types, carried_types, "scf.condition hands on the carried values")
        for types in _handed(self, self.after):
            _same(types, carried_types, "scf.while yields its carried values")
