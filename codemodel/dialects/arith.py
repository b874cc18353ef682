"""Arithmetic on scalars and, element by element, on tensors; named as in MLIR's arith dialect.

Signedness is in the type (`i32`, `u32`) as well as in the name of the op; the verifier checks that they agree where it
matters.
"""

from __future__ import annotations

import enum
from typing import Any

from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.fields import attribute, operand, result_type
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import Commutative, Constant, MayTrap, Pure
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    i1,
    shape_of,
    with_element,
)


class IntPredicate(enum.Enum):
    """How `arith.cmpi` compares; s is signed, u unsigned."""

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
    """How `arith.cmpf` compares: ordered (false with a NaN), but for UNE, which is true with one."""

    OEQ = "oeq"
    UNE = "une"
    OLT = "olt"
    OLE = "ole"
    OGT = "ogt"
    OGE = "oge"


_NOUNS = {"any": "numbers", "int": "integers", "float": "floats"}


def scalar_of(op: Op, value: Value, kind: str) -> ScalarType:
    """The scalar type of a number or of a tensor of numbers. Kind is int (with i1), float or any."""
    scalar = element_of(value.type)
    if isinstance(scalar, ScalarType) and (kind == "any" or scalar.is_float == (kind == "float")):
        return scalar
    raise BuildError(f"{op.NAME} takes {_NOUNS[kind]}; got {value.type}")


def tensor_of(op: Op, value: Value) -> TensorType:
    """The type of a tensor operand."""
    type_ = value.type
    require(isinstance(type_, TensorType), f"{op.NAME} takes a tensor; got {type_}")
    assert isinstance(type_, TensorType)
    return type_


def same_types(op: Op, *values: Value) -> None:
    """All values have the type of the first."""
    first = values[0].type
    for value in values[1:]:
        if value.type is not first and value.type != first:
            raise BuildError(f"{op.NAME} takes operands of one type; got {first} and {value.type}")


class ConstantOp(Op, Pure, Constant, name="arith.constant"):
    """A number; of a tensor type, every element is it."""

    value: Any = attribute(object, unnamed=True)
    type: Type = result_type()

    def check(self) -> None:
        scalar = element_of(self.type)
        value = self.value
        if not isinstance(scalar, ScalarType):
            require(False, f"arith.constant gives numbers; got {self.type}")
        elif scalar.is_float:
            require(isinstance(value, float), f"a constant of {self.type} must hold a float; got {value!r}")
        elif scalar == i1:
            require(isinstance(value, bool), f"a constant of {self.type} must hold true or false; got {value!r}")
        else:
            require(type(value) is int, f"a constant of {self.type} must hold an integer; got {value!r}")
            low, high = scalar.limits
            require(low <= value <= high, f"{value} does not fit in {scalar}")


class IntBinary(Op, Pure):
    """Two integers of one type to a third of the same."""

    lhs: Value = operand()
    rhs: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.lhs, "int")
        return self.lhs.type

    def check(self) -> None:
        same_types(self, self.lhs, self.rhs)


class FloatBinary(Op, Pure):
    """Two floats of one type to a third of the same."""

    lhs: Value = operand()
    rhs: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.lhs, "float")
        return self.lhs.type

    def check(self) -> None:
        same_types(self, self.lhs, self.rhs)


def _signed(op: IntBinary, signed: bool) -> None:
    same_types(op, op.lhs, op.rhs)
    scalar = scalar_of(op, op.lhs, "int")
    require(
        scalar.signed == signed, f"{op.NAME} takes {'signed' if signed else 'unsigned'} integers; got {op.lhs.type}"
    )


class SignedBinary(IntBinary):
    """Two signed integers."""

    def check(self) -> None:
        _signed(self, True)


class UnsignedBinary(IntBinary):
    """Two unsigned integers, or i1."""

    def check(self) -> None:
        _signed(self, False)


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


class DivSI(SignedBinary, MayTrap, name="arith.divsi"):
    """Quotient rounded toward zero; undefined for a divisor of zero and for the smallest number by -1."""


class RemSI(SignedBinary, MayTrap, name="arith.remsi"):
    """Remainder with the sign of the dividend; undefined for a divisor of zero."""


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


class NegF(Op, Pure, name="arith.negf"):
    """The number with its sign changed."""

    operand: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.operand, "float")
        return self.operand.type


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
        scalar = scalar_of(self, self.lhs, "int")
        sign = self.predicate.value[0]
        if self.predicate not in (IntPredicate.EQ, IntPredicate.NE):
            require((sign == "s") == scalar.signed, f"predicate {self.predicate.value} does not fit {self.lhs.type}")


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
        condition = self.condition.type
        require(element_of(condition) == i1, f"arith.select chooses by i1; got {condition}")
        require(
            shape_of(condition) in ((), shape_of(self.then.type)),
            f"arith.select chooses among {self.then.type} by {condition}",
        )


class Cast(Op, Pure):
    """To another element type, the shape unchanged."""

    operand: Value = operand()
    type: Type = result_type()

    def _types(self, source: str, target: str) -> tuple[ScalarType, ScalarType]:
        found = scalar_of(self, self.operand, source)
        wanted = element_of(self.type)
        good = isinstance(wanted, ScalarType) and (target == "any" or wanted.is_float == (target == "float"))
        require(good, f"{self.NAME} gives {target}s; got {self.type}")
        require(
            shape_of(self.type) == shape_of(self.operand.type), f"{self.NAME} keeps the shape of {self.operand.type}"
        )
        require(
            isinstance(self.type, TensorType) == isinstance(self.operand.type, TensorType),
            f"{self.NAME} keeps the shape",
        )
        assert isinstance(wanted, ScalarType)
        return found, wanted


class ExtF(Cast, name="arith.extf"):
    """To a wider float, exactly."""

    def check(self) -> None:
        source, target = self._types("float", "float")
        require(source.bits < target.bits, f"arith.extf widens; {source} to {target} does not")


class Rounding(enum.Enum):
    """How a number that has no exact counterpart is rounded: to nearest, ties to even; or toward zero."""

    NEAREST = "rtne"
    ZERO = "rtz"


class TruncF(Cast, name="arith.truncf"):
    """To a narrower float. Values too large become infinite.

    In f8e4m3 and f8e5m2 they, and infinities, become the largest number, as in PTX's `cvt.satfinite`. NaN stays NaN.
    """

    rounding: Rounding = attribute(Rounding, default=Rounding.NEAREST)

    def check(self) -> None:
        source, target = self._types("float", "float")
        require(source.bits > target.bits, f"arith.truncf narrows; {source} to {target} does not")


class ExtSI(Cast, name="arith.extsi"):
    """To a wider integer, the sign bit repeated."""

    def check(self) -> None:
        source, target = self._types("int", "int")
        require(source.bits < target.bits, f"arith.extsi widens; {source} to {target} does not")


class ExtUI(Cast, name="arith.extui"):
    """To a wider integer, filled up with zeros."""

    def check(self) -> None:
        source, target = self._types("int", "int")
        require(source.bits < target.bits, f"arith.extui widens; {source} to {target} does not")


class TruncI(Cast, name="arith.trunci"):
    """To a narrower integer: the low bits."""

    def check(self) -> None:
        source, target = self._types("int", "int")
        require(source.bits > target.bits, f"arith.trunci narrows; {source} to {target} does not")


class SIToFP(Cast, name="arith.sitofp"):
    """A signed integer as a float, rounded to nearest."""

    def check(self) -> None:
        self._types("int", "float")


class UIToFP(Cast, name="arith.uitofp"):
    """An unsigned integer as a float, rounded to nearest."""

    def check(self) -> None:
        self._types("int", "float")


class FPToSI(Cast, name="arith.fptosi"):
    """A float as a signed integer, rounded toward zero; undefined where it does not fit."""

    def check(self) -> None:
        self._types("float", "int")


class FPToUI(Cast, name="arith.fptoui"):
    """A float as an unsigned integer, rounded toward zero; undefined where it does not fit."""

    def check(self) -> None:
        self._types("float", "int")


class Bitcast(Cast, name="arith.bitcast"):
    """The same bits as another type of the same width."""

    def check(self) -> None:
        source, target = self._types("any", "any")
        require(source.bits == target.bits, f"arith.bitcast keeps the width; {source} to {target} does not")
