"""Functions of numbers, element by element; named as in MLIR's math dialect."""

from __future__ import annotations

from ziggurat.codemodel.declare import operand, operation, template
from ziggurat.codemodel.dialects.arith import same_types, scalar_of
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import Type, element_of, i1


@template
class FloatUnary(Op, Pure):
    """A float to a float of the same type."""

    operand: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.operand, "float")
        return self.operand.type


@operation("math.exp")
class Exp(FloatUnary):
    """e to the power of the operand."""


@operation("math.exp2")
class Exp2(FloatUnary):
    """2 to the power of the operand."""


@operation("math.log")
class Log(FloatUnary):
    """Natural logarithm."""


@operation("math.log2")
class Log2(FloatUnary):
    """Logarithm to the base 2."""


@operation("math.sqrt")
class Sqrt(FloatUnary):
    """Square root."""


@operation("math.rsqrt")
class Rsqrt(FloatUnary):
    """1 over the square root."""


@operation("math.sin")
class Sin(FloatUnary):
    """Sine of an angle in radians."""


@operation("math.cos")
class Cos(FloatUnary):
    """Cosine of an angle in radians."""


@operation("math.tanh")
class Tanh(FloatUnary):
    """Hyperbolic tangent."""


@operation("math.erf")
class Erf(FloatUnary):
    """The error function."""


@operation("math.floor")
class Floor(FloatUnary):
    """The largest whole number not above the operand."""


@operation("math.ceil")
class Ceil(FloatUnary):
    """The smallest whole number not below the operand."""


@operation("math.absf")
class AbsF(FloatUnary):
    """The operand without its sign."""


@template
class IntUnary(Op, Pure):
    """An integer to an integer of the same type."""

    operand: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.operand, "int")
        return self.operand.type


@template
class BitUnary(IntUnary):
    """A function of the bits of an integer; an i1 has only one."""

    def check(self) -> None:
        require(element_of(self.operand.type) != i1, f"{self.NAME} takes integers; got {self.operand.type}")


@operation("math.absi")
class AbsI(IntUnary):
    """The magnitude of an integer; the smallest number is its own."""


@operation("math.ctpop")
class CtPop(BitUnary):
    """The number of bits that are set."""


@operation("math.ctlz")
class CtLz(BitUnary):
    """The number of zero bits above the highest bit that is set; the width for zero."""


@operation("math.bitreverse")
class BitReverse(BitUnary):
    """The bits in the opposite order. MLIR has no such op; LLVM has the intrinsic."""


@operation("math.fma")
class Fma(Op, Pure):
    """a · b + c, rounded once."""

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()

    def infer_type(self) -> Type:
        scalar_of(self, self.a, "float")
        return self.a.type

    def check(self) -> None:
        same_types(self, self.a, self.b, self.c)
