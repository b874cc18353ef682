"""Arithmetic on scalars and, element by element, on tensors; named as in MLIR's arith dialect.

Signedness is in the type (`i32`, `u32`) as well as in the name of the op; the verifier checks that they agree where it
matters.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any, ClassVar

from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.fields import attribute, operand, result_type
from ziggurat.codemodel.messages import op_text, say
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import Commutative, Constant, MayTrap, Pure
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, element_of, i1, shape_of, with_element


class IntPredicate(enum.Enum):
    """The predicates of `arith.cmpi`; s is signed, u unsigned."""

    EQ = "eq"
    NE = "ne"
    SLT = "slt"
    SLE = "sle"
    SGT = "sgt"
    SGE = "sge"
    ULT = "ult"
    ULE = "ule"
    UGT = "ugt"
    UGE = "uge"


class FloatPredicate(enum.Enum):
    """The predicates of `arith.cmpf`: ordered (false with a NaN), except for UNE, which is true with one."""

    OEQ = "oeq"
    UNE = "une"
    OLT = "olt"
    OLE = "ole"
    OGT = "ogt"
    OGE = "oge"


# The kinds of numbers that ops take: the words for each in messages, and its scalar types.
_KINDS: dict[str, tuple[str, Callable[[ScalarType], bool]]] = {
    "any": ("numbers", lambda scalar: True),
    "float": ("floats", lambda scalar: scalar.is_float),
    "int": ("integers", lambda scalar: scalar.is_int),
    "signed": ("signed integers", lambda scalar: scalar.is_int and scalar.signed),
    "unsigned": ("unsigned integers", lambda scalar: scalar.is_int and not scalar.signed),
    "bits": ("integers", lambda scalar: scalar.kind == "int"),
}


def scalar_of(op: Op, value: Value | Type, kind: str, which: str = "the operands") -> ScalarType:
    """The scalar type of a number or of a tensor of numbers. Kind is any, float, int (with i1), signed, unsigned (with
    i1), or bits (int without i1)."""
    type_ = value.type if isinstance(value, Value) else value
    scalar = element_of(type_)
    noun, holds = _KINDS[kind]
    if isinstance(scalar, ScalarType) and holds(scalar):
        return scalar
    raise BuildError(say("{}: {} must be {}; got {}", op_text(op.NAME), which, noun, type_))


def require_of(op: Op, condition: bool, template: str, *parts: Any) -> None:
    """Raise `BuildError` unless the condition holds: the template of `say`, with the op as the first part."""
    if not condition:
        raise BuildError(say(template, op_text(op.NAME), *parts))


def tensor_of(op: Op, value: Value) -> TensorType:
    """The type of a tensor operand."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        raise BuildError(say("{}: the operand must be {a_tensor}; got {}", op_text(op.NAME), type_))
    return type_


def axis_of(op: Op, axis: int, rank: int) -> None:
    """Require that `axis` is at least 0 and less than `rank`."""
    require_of(op, 0 <= axis < rank, "{}: axis {} is not one of the {} axes", axis, rank)


def same_types(op: Op, *values: Value) -> None:
    """All values have the type of the first."""
    first = values[0].type
    for value in values[1:]:
        if value.type is not first and value.type != first:
            raise BuildError(
                say("{}: the operands must be of one type; got {} and {}", op_text(op.NAME), first, value.type)
            )


class ConstantOp(Op, Pure, Constant, name="arith.constant"):
    """A number; a constant of a tensor type has it as every element."""

    value: Any = attribute(object, unnamed=True)
    type: Type = result_type()

    def check(self) -> None:
        scalar = scalar_of(self, self.type, "any", "the result")
        value = self.value
        if scalar.is_float:
            require(isinstance(value, float), f"a constant of {self.type} must hold a float; got {value!r}")
        elif scalar == i1:
            require(isinstance(value, bool), f"a constant of {self.type} must hold true or false; got {value!r}")
        else:
            require(type(value) is int, f"a constant of {self.type} must hold an integer; got {value!r}")
            low, high = scalar.limits
            require(low <= value <= high, f"{value} does not fit in {scalar}")


class Conditional(Op):
    """An op that an i1 steers."""

    condition: Value = operand(type=i1)


class Elementwise(Op, Pure):
    """Numbers of one type to another of the same."""

    TAKES: ClassVar[str] = "float"

    def infer_type(self) -> Type:
        scalar_of(self, self.operands[0], self.TAKES)
        return self.operands[0].type

    def check(self) -> None:
        same_types(self, *self.operands)


class UnaryElementwise(Elementwise):
    """A number to another of the same type."""

    operand: Value = operand()


class BinaryElementwise(Elementwise):
    """Two numbers of one type to a third of the same."""

    lhs: Value = operand()
    rhs: Value = operand()


class FloatBinary(BinaryElementwise):
    """Two floats."""


class IntBinary(BinaryElementwise):
    """Two integers."""

    TAKES = "int"


class SignedBinary(IntBinary):
    """Two signed integers."""

    TAKES = "signed"


class UnsignedBinary(IntBinary):
    """Two unsigned integers, or i1."""

    TAKES = "unsigned"


class AddI(IntBinary, Commutative, name="arith.addi"):
    """Sum, wrapping around."""


class SubI(IntBinary, name="arith.subi"):
    """Difference, wrapping around."""


class MulI(IntBinary, Commutative, name="arith.muli"):
    """Product, wrapping around."""


class AndI(IntBinary, Commutative, name="arith.andi"):
    """Bitwise and."""


class OrI(IntBinary, Commutative, name="arith.ori"):
    """Bitwise or."""


class XOrI(IntBinary, Commutative, name="arith.xori"):
    """Bitwise exclusive or."""


class ShlI(IntBinary, name="arith.shli"):
    """Shift left; undefined for a shift by the width or more, or by a negative number."""


class SignedDivision(SignedBinary, MayTrap):
    """A division of two signed integers."""

    nonnegative: bool = attribute(bool, default=False)
    runs: tuple[int, ...] = attribute([int], default=())


class DivSI(SignedDivision, name="arith.divsi"):
    """Quotient rounded toward zero; undefined for a divisor of zero. The smallest number by -1 is itself.

    In a GPU model, `nonnegative` says that no dividend is below zero. Along each axis, aligned runs of `runs` elements
    have one quotient: a thread computes one for those of a run.
    """


class RemSI(SignedDivision, name="arith.remsi"):
    """Remainder with the sign of the dividend, 0 for a divisor of -1; undefined for one of zero.

    The attributes are those of `arith.divsi`.
    """


class ShrSI(SignedBinary, name="arith.shrsi"):
    """Shift right, the sign bit shifted in."""


class MaxSI(SignedBinary, Commutative, name="arith.maxsi"):
    """The larger."""


class MinSI(SignedBinary, Commutative, name="arith.minsi"):
    """The smaller."""


class DivUI(UnsignedBinary, MayTrap, name="arith.divui"):
    """Quotient; undefined for a divisor of zero."""


class RemUI(UnsignedBinary, MayTrap, name="arith.remui"):
    """Remainder; undefined for a divisor of zero."""


class ShrUI(UnsignedBinary, name="arith.shrui"):
    """Shift right, zeros shifted in."""


class MaxUI(UnsignedBinary, Commutative, name="arith.maxui"):
    """The larger."""


class MinUI(UnsignedBinary, Commutative, name="arith.minui"):
    """The smaller."""


class AddF(FloatBinary, Commutative, name="arith.addf"):
    """Sum."""


class SubF(FloatBinary, name="arith.subf"):
    """Difference."""


class MulF(FloatBinary, Commutative, name="arith.mulf"):
    """Product."""


class DivF(FloatBinary, name="arith.divf"):
    """Quotient; division by zero follows IEEE 754."""


class RemF(FloatBinary, name="arith.remf"):
    """Remainder with the sign of the dividend, as C's fmod."""


class MaximumF(FloatBinary, Commutative, name="arith.maximumf"):
    """The larger; NaN if either is NaN; -0.0 is less than 0.0."""


class MinimumF(FloatBinary, Commutative, name="arith.minimumf"):
    """The smaller; NaN if either is NaN; -0.0 is less than 0.0."""


class MaxNumF(FloatBinary, Commutative, name="arith.maxnumf"):
    """The larger; the other operand if one is NaN; -0.0 is less than 0.0."""


class MinNumF(FloatBinary, Commutative, name="arith.minnumf"):
    """The smaller; the other operand if one is NaN; -0.0 is less than 0.0."""


class NegF(UnaryElementwise, name="arith.negf"):
    """The number with its sign changed."""


def require_fitting(op: Op, predicate: IntPredicate, value: Value) -> None:
    """Raise `BuildError` unless a predicate compares integers of the signedness of `value`."""
    signed = scalar_of(op, value, "int").signed
    fits = predicate in (IntPredicate.EQ, IntPredicate.NE) or (predicate.value[0] == "s") == signed
    require(fits, f"predicate {predicate.value} does not fit {value.type}")


class CmpI(Op, Pure, name="arith.cmpi"):
    """Compare integers, or pointers."""

    lhs: Value = operand()
    rhs: Value = operand()
    predicate: IntPredicate = attribute(IntPredicate, unnamed=True)

    def infer_type(self) -> Type:
        return with_element(self.lhs.type, i1)

    def check(self) -> None:
        same_types(self, self.lhs, self.rhs)
        scalar = element_of(self.lhs.type)
        if isinstance(scalar, PtrType):
            return
        require_fitting(self, self.predicate, self.lhs)


class CmpF(Op, Pure, name="arith.cmpf"):
    """Compare floats."""

    lhs: Value = operand()
    rhs: Value = operand()
    predicate: FloatPredicate = attribute(FloatPredicate, unnamed=True)

    def infer_type(self) -> Type:
        scalar_of(self, self.lhs, "float")
        return with_element(self.lhs.type, i1)

    def check(self) -> None:
        same_types(self, self.lhs, self.rhs)


class Select(Op, Pure, name="arith.select"):
    """The second operand where the condition holds, the third where not. A scalar condition chooses whole tensors."""

    condition: Value = operand()
    then: Value = operand()
    otherwise: Value = operand()

    def infer_type(self) -> Type:
        return self.then.type

    def check(self) -> None:
        same_types(self, self.then, self.otherwise)
        element = element_of(self.then.type)
        require(isinstance(element, ScalarType | PtrType), f"arith.select chooses numbers or pointers; got {element}")
        condition = self.condition.type
        require(element_of(condition) == i1, f"arith.select chooses by i1; got {condition}")
        require(
            shape_of(condition) in ((), shape_of(self.then.type)),
            f"arith.select chooses among {self.then.type} by {condition}",
        )


_WIDTHS = {"widens": operator.lt, "narrows": operator.gt, "keeps the width": operator.eq}


class Cast(Op, Pure):
    """To another element type, the shape unchanged."""

    SOURCE: ClassVar[str] = "any"
    TARGET: ClassVar[str] = "any"
    WIDTH: ClassVar[str] = ""  # A key of `_WIDTHS`, or "" for any width.

    operand: Value = operand()
    type: Type = result_type()

    def check(self) -> None:
        before, after = self.operand.type, self.type
        source, target = scalar_of(self, before, self.SOURCE), scalar_of(self, after, self.TARGET, "the result")
        same = shape_of(before) == shape_of(after) and isinstance(before, TensorType) == isinstance(after, TensorType)
        require(same, f"{self.NAME} keeps the shape of {before}")
        if self.WIDTH:
            fits = _WIDTHS[self.WIDTH](source.bits, target.bits)
            require(fits, f"{self.NAME} {self.WIDTH}; {source} to {target} does not")


class Rounding(enum.Enum):
    """The rounding of a number without an exact counterpart: to nearest, ties to even; or toward zero."""

    NEAREST = "rtne"
    ZERO = "rtz"


class ExtF(Cast, name="arith.extf"):
    """To a wider float, exactly."""

    SOURCE, TARGET, WIDTH = "float", "float", "widens"


class TruncF(Cast, name="arith.truncf"):
    """To a narrower float. Values too large become infinite.

    In f8e4m3 and f8e5m2 they, and infinities, become the largest number, as in PTX's `cvt.satfinite`. NaN stays NaN.
    """

    SOURCE, TARGET, WIDTH = "float", "float", "narrows"

    rounding: Rounding = attribute(Rounding, default=Rounding.NEAREST)


class ExtSI(Cast, name="arith.extsi"):
    """To a wider integer, the sign bit repeated."""

    SOURCE, TARGET, WIDTH = "int", "int", "widens"


class ExtUI(Cast, name="arith.extui"):
    """To a wider integer, filled up with zeros."""

    SOURCE, TARGET, WIDTH = "int", "int", "widens"


class TruncI(Cast, name="arith.trunci"):
    """To a narrower integer: the low bits."""

    SOURCE, TARGET, WIDTH = "int", "int", "narrows"


class SIToFP(Cast, name="arith.sitofp"):
    """A signed integer as a float, rounded to nearest."""

    SOURCE, TARGET = "int", "float"


class UIToFP(Cast, name="arith.uitofp"):
    """An unsigned integer as a float, rounded to nearest."""

    SOURCE, TARGET = "int", "float"


class FPToSI(Cast, name="arith.fptosi"):
    """A float as a signed integer, rounded toward zero; undefined where it does not fit."""

    SOURCE, TARGET = "float", "int"


class FPToUI(Cast, name="arith.fptoui"):
    """A float as an unsigned integer, rounded toward zero; undefined where it does not fit."""

    SOURCE, TARGET = "float", "int"


class Bitcast(Cast, name="arith.bitcast"):
    """The same bits as another type of the same width."""

    WIDTH = "keeps the width"
