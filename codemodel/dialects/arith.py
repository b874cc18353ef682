"""Arithmetic on scalars and, element by element, on tensors; named as in MLIR's arith dialect.

Signedness is in the type (`i32`, `u32`) as well as in the name of the op; the verifier checks that they agree where it
matters.
"""

from __future__ import annotations

import enum
from typing import Any

from ziggurat.codemodel.declare import attribute, operand, operation, result_type, template
from ziggurat.codemodel.errors import BuildError
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


@operation("arith.constant")
class ConstantOp(Op, Pure, Constant):
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


@template
class IntBinary(Op, Pure):
    """Two integers of one type to a third of the same."""

    lhs: Value = operand()
    rhs: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.lhs, "int")
        return self.lhs.type

    def check(self) -> None:
        same_types(self, self.lhs, self.rhs)


@template
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


@template
class SignedBinary(IntBinary):
    """Two signed integers."""

    def check(self) -> None:
        _signed(self, True)


@template
class UnsignedBinary(IntBinary):
    """Two unsigned integers, or i1."""

    def check(self) -> None:
        _signed(self, False)


@operation("arith.addi")
class AddI(IntBinary, Commutative):
    """Sum, wrapping around."""


@operation("arith.subi")
class SubI(IntBinary):
    """Difference, wrapping around."""


@operation("arith.muli")
class MulI(IntBinary, Commutative):
    """Product, wrapping around."""


@operation("arith.andi")
class AndI(IntBinary, Commutative):
    """Bitwise and."""


@operation("arith.ori")
class OrI(IntBinary, Commutative):
    """Bitwise or."""


@operation("arith.xori")
class XOrI(IntBinary, Commutative):
    """Bitwise exclusive or."""


@operation("arith.shli")
class ShlI(IntBinary):
    """Shift left; undefined for a shift by the width or more, or by a negative number."""


@operation("arith.divsi")
class DivSI(SignedBinary, MayTrap):
    """Quotient rounded toward zero; undefined for a divisor of zero and for the smallest number by -1."""


@operation("arith.remsi")
class RemSI(SignedBinary, MayTrap):
    """Remainder with the sign of the dividend; undefined for a divisor of zero."""


@operation("arith.shrsi")
class ShrSI(SignedBinary):
    """Shift right, the sign bit shifted in."""


@operation("arith.maxsi")
class MaxSI(SignedBinary, Commutative):
    """The larger."""


@operation("arith.minsi")
class MinSI(SignedBinary, Commutative):
    """The smaller."""


@operation("arith.divui")
class DivUI(UnsignedBinary, MayTrap):
    """Quotient; undefined for a divisor of zero."""


@operation("arith.remui")
class RemUI(UnsignedBinary, MayTrap):
    """Remainder; undefined for a divisor of zero."""


@operation("arith.shrui")
class ShrUI(UnsignedBinary):
    """Shift right, zeros shifted in."""


@operation("arith.maxui")
class MaxUI(UnsignedBinary, Commutative):
    """The larger."""


@operation("arith.minui")
class MinUI(UnsignedBinary, Commutative):
    """The smaller."""


@operation("arith.addf")
class AddF(FloatBinary, Commutative):
    """Sum."""


@operation("arith.subf")
class SubF(FloatBinary):
    """Difference."""


@operation("arith.mulf")
class MulF(FloatBinary, Commutative):
    """Product."""


@operation("arith.divf")
class DivF(FloatBinary):
    """Quotient; division by zero follows IEEE 754."""


@operation("arith.remf")
class RemF(FloatBinary):
    """Remainder with the sign of the dividend, as C's fmod."""


@operation("arith.maximumf")
class MaximumF(FloatBinary, Commutative):
    """The larger; NaN if either is NaN; -0.0 is less than 0.0."""


@operation("arith.minimumf")
class MinimumF(FloatBinary, Commutative):
    """The smaller; NaN if either is NaN; -0.0 is less than 0.0."""


@operation("arith.maxnumf")
class MaxNumF(FloatBinary, Commutative):
    """The larger; the other operand if one is NaN; -0.0 is less than 0.0."""


@operation("arith.minnumf")
class MinNumF(FloatBinary, Commutative):
    """The smaller; the other operand if one is NaN; -0.0 is less than 0.0."""


@operation("arith.negf")
class NegF(Op, Pure):
    """The number with its sign changed."""

    operand: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.operand, "float")
        return self.operand.type


@operation("arith.cmpi")
class CmpI(Op, Pure):
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


@operation("arith.cmpf")
class CmpF(Op, Pure):
    """Compare floats."""

    lhs: Value = operand()
    rhs: Value = operand()
    predicate: FloatPredicate = attribute(FloatPredicate, unnamed=True)

    def infer_type(self) -> Type:
        scalar_of(self, self.lhs, "float")
        return with_element(self.lhs.type, i1)

    def check(self) -> None:
        same_types(self, self.lhs, self.rhs)


@operation("arith.select")
class Select(Op, Pure):
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


@template
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


@operation("arith.extf")
class ExtF(Cast):
    """To a wider float, exactly."""

    def check(self) -> None:
        source, target = self._types("float", "float")
        require(source.bits < target.bits, f"arith.extf widens; {source} to {target} does not")


class Rounding(enum.Enum):
    """How a number that has no exact counterpart is rounded: to nearest, ties to even; or toward zero."""

    NEAREST = "rtne"
    ZERO = "rtz"


@operation("arith.truncf")
class TruncF(Cast):
    """To a narrower float. Values too large become infinite.

    In f8e4m3 and f8e5m2 they, and infinities, become the largest number, as in PTX's `cvt.satfinite`. NaN stays NaN.
    """

    rounding: Rounding = attribute(Rounding, default=Rounding.NEAREST)

    def check(self) -> None:
        source, target = self._types("float", "float")
        require(source.bits > target.bits, f"arith.truncf narrows; {source} to {target} does not")


@operation("arith.extsi")
class ExtSI(Cast):
    """To a wider integer, the sign bit repeated."""

    def check(self) -> None:
        source, target = self._types("int", "int")
        require(source.bits < target.bits, f"arith.extsi widens; {source} to {target} does not")


@operation("arith.extui")
class ExtUI(Cast):
    """To a wider integer, filled up with zeros."""

    def check(self) -> None:
        source, target = self._types("int", "int")
        require(source.bits < target.bits, f"arith.extui widens; {source} to {target} does not")


@operation("arith.trunci")
class TruncI(Cast):
    """To a narrower integer: the low bits."""

    def check(self) -> None:
        source, target = self._types("int", "int")
        require(source.bits > target.bits, f"arith.trunci narrows; {source} to {target} does not")


@operation("arith.sitofp")
class SIToFP(Cast):
    """A signed integer as a float, rounded to nearest."""

    def check(self) -> None:
        self._types("int", "float")


@operation("arith.uitofp")
class UIToFP(Cast):
    """An unsigned integer as a float, rounded to nearest."""

    def check(self) -> None:
        self._types("int", "float")


@operation("arith.fptosi")
class FPToSI(Cast):
    """A float as a signed integer, rounded toward zero; undefined where it does not fit."""

    def check(self) -> None:
        self._types("float", "int")


@operation("arith.fptoui")
class FPToUI(Cast):
    """A float as an unsigned integer, rounded toward zero; undefined where it does not fit."""

    def check(self) -> None:
        self._types("float", "int")


@operation("arith.bitcast")
class Bitcast(Cast):
    """The same bits as another type of the same width."""

    def check(self) -> None:
        source, target = self._types("any", "any")
        require(source.bits == target.bits, f"arith.bitcast keeps the width; {source} to {target} does not")
