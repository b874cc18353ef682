"""Functions of numbers, element by element; named as in MLIR's math dialect."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ziggurat.codemodel.dialects.arith import Elementwise, UnaryElementwise, require_of, scalar_of
from ziggurat.codemodel.fields import attribute, operand, operands
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import f32


class FloatUnary(UnaryElementwise):
    """A float to a float of the same type."""


class Exp(FloatUnary, name="math.exp"):
    """e to the power of the operand."""


class Exp2(FloatUnary, name="math.exp2"):
    """2 to the power of the operand."""


class Log(FloatUnary, name="math.log"):
    """Natural logarithm."""


class Log2(FloatUnary, name="math.log2"):
    """Logarithm to the base 2."""


class Sqrt(FloatUnary, name="math.sqrt"):
    """Square root."""


class Rsqrt(FloatUnary, name="math.rsqrt"):
    """1 over the square root."""


class Sin(FloatUnary, name="math.sin"):
    """Sine of an angle in radians."""


class Cos(FloatUnary, name="math.cos"):
    """Cosine of an angle in radians."""


class Tanh(FloatUnary, name="math.tanh"):
    """Hyperbolic tangent."""


class Erf(FloatUnary, name="math.erf"):
    """The error function."""


class Floor(FloatUnary, name="math.floor"):
    """The largest whole number not above the operand."""


class Ceil(FloatUnary, name="math.ceil"):
    """The smallest whole number not below the operand."""


class Trunc(FloatUnary, name="math.trunc"):
    """The whole number nearest to the operand toward zero."""


class RoundEven(FloatUnary, name="math.roundeven"):
    """The whole number nearest to the operand; of two equally near ones the even one."""


class AbsF(FloatUnary, name="math.absf"):
    """The operand without its sign."""


class IntUnary(UnaryElementwise):
    """An integer to an integer of the same type."""

    TAKES = "int"


class BitUnary(IntUnary):
    """A function of the bits of an integer; an i1 has only one."""

    TAKES = "bits"


class AbsI(IntUnary, name="math.absi"):
    """The magnitude of an integer; the smallest number is its own."""


class CtPop(BitUnary, name="math.ctpop"):
    """The number of bits that are set."""


class CtLz(BitUnary, name="math.ctlz"):
    """The number of zero bits above the highest bit that is set; the width for zero."""


class BitReverse(BitUnary, name="math.bitreverse"):
    """The bits in the opposite order. MLIR has no such op; LLVM has the intrinsic."""


class Fma(Elementwise, name="math.fma"):
    """a · b + c, rounded once."""

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()


class Operation(enum.Enum):
    """The operations of `math.directed`."""

    ADD = "add"
    MUL = "mul"
    DIV = "div"
    SQRT = "sqrt"
    FMA = "fma"


class Direction(enum.Enum):
    """The number of a float type that stands for an exact result between two: toward zero, down, or up."""

    ZERO = "rz"
    DOWN = "rd"
    UP = "ru"


class Function(enum.Enum):
    """The functions that GPUs approximate by one instruction."""

    LOG2 = "log2"
    SIN = "sin"
    COS = "cos"
    TANH = "tanh"


class Approximate(FloatUnary, name="math.approximate"):
    """A function of f32 as the machine approximates it, with the absolute errors that the PTX manual states.

    Machines that have no instruction for it compute the function as its own op does, and so does the interpreter.
    """

    function: Function = attribute(Function, unnamed=True)

    def check(self) -> None:
        super().check()
        is_f32 = scalar_of(self, self.operand, "float") == f32
        require_of(self, is_f32, "{}: the operands must be f32; got {}", self.operand.type)

    @property
    def accurate(self) -> FloatUnary:
        """The op that computes the function accurately."""
        return _ACCURATE[self.function](self.operand)


_ACCURATE = {Function.LOG2: Log2, Function.SIN: Sin, Function.COS: Cos, Function.TANH: Tanh}


class Directed(Elementwise, name="math.directed"):
    """A sum, product, quotient, root or a · b + c of f32 or f64, rounded once, in one direction.

    A finite result that is too large becomes the largest number or infinite, by the direction. A sum of zero of unlike
    operands is -0.0 if it is rounded down.
    """

    values: Sequence[Value] = operands()
    operation: Operation = attribute(Operation, unnamed=True)
    direction: Direction = attribute(Direction)

    def check(self) -> None:
        super().check()
        bits = scalar_of(self, self.values[0], "float").bits
        require_of(self, bits >= 32, "{}: the operands must be floats of 32 or 64 bits; got {}", self.values[0].type)
        count = {Operation.SQRT: 1, Operation.FMA: 3}.get(self.operation, 2)
        arity = len(self.values)
        require_of(self, arity == count, "{}: {} takes {} operands; got {}", self.operation.value, count, arity)
