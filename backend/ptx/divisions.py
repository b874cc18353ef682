"""Emission of signed quotients and remainders.

LLVM divides by constants with a product and shifts, and leaves other divisions to ptxas, which corrects an estimate for
each dividend. Where a thread divides several integers of 32 bits by one number, or a tensor in a loop, the inverse
of that number is computed once, so exactly that no quotient is corrected (Granlund and Montgomery, "Division by
invariant integers using multiplication", 1994):

    l = ⌈log2 |d|⌉      m = ⌊2^(31 + l) / |d|⌋ + 1      ⌊n / |d|⌋ = ⌊n · m / 2^(31 + l)⌋  for 0 ≤ n < 2^31

LLVM merges equal inverses and quotients, and moves inverses out of loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ziggurat.backend.llvm.elementwise import RULES, is_known
from ziggurat.backend.llvm.routines import Number, instruction
from ziggurat.backend.ptx.emitter import Emitted, PtxEmitter, emits
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import TensorType, scalar_element
from ziggurat.transforms.analysis.queries import registers_alike


class Inverse(NamedTuple):
    """The magnitude of a divisor, and m and l, with m modulo 2^32."""

    magnitude: Number
    factor: Number
    shift: Number


@emits(arith.DivSI, arith.RemSI)
def _division(emitter: PtxEmitter, op: arith.SignedDivision) -> Emitted:
    type_, kind = op.result.type, f"i{scalar_element(op.result.type).bits}"
    registers = emitter.layout(type_).unique_registers
    alike = registers_alike(type_, op.runs) if isinstance(type_, TensorType) and op.runs else 0
    pairs = {register: tuple(emitter.at(value, register) for value in op.operands) for register in registers}
    firsts = {pairs[register & ~alike] for register in registers}
    several = len(firsts) > len({divisor for _, divisor in firsts})
    several = several or (isinstance(type_, TensorType) and _is_invariant(op, op.rhs))

    @cache
    def quotient(a: str, b: str) -> tuple[Number, Number] | None:
        """The quotient by a divisor's magnitude, or by a constant, and that magnitude; None where LLVM divides."""
        dividend, divisor = emitter.of(kind, a), emitter.of(kind, b)
        if kind == "i32" and is_known(divisor):
            return (quotient_by(dividend, int(b)), divisor) if op.nonnegative and int(b) > 0 else None
        if kind != "i32" or not several:
            return None
        inverse = inverse_of(divisor, 0 if op.nonnegative else 1)
        return (unsigned_quotient if op.nonnegative else signed_quotient)(dividend, inverse), inverse.magnitude

    def result(register: int) -> str:
        same = pairs[register] if isinstance(op, arith.RemSI) else pairs[register & ~alike]
        dividend, divisor = (emitter.of(kind, name) for name in same)
        parts = quotient(*pairs[register & ~alike])
        if parts is None:
            # Only the smallest number by -1 needs the rule's guard.
            opcode = "srem" if isinstance(op, arith.RemSI) else "sdiv"
            value = instruction(opcode, dividend, divisor) if op.nonnegative else RULES[op](op, dividend, divisor)
        elif isinstance(op, arith.RemSI):
            value = dividend - parts[0] * parts[1]
        else:
            value = parts[0] if is_known(divisor) else parts[0] * (divisor.ashr(31) | 1)
        return value.name

    return emitter.value(type_, {register: result(register) for register in registers})


def _is_invariant(op: Op, value: Value) -> bool:
    """Whether an op is in a loop that what a tensor consists of is defined outside of."""
    while isinstance(value.op, tt.Splat | tt.Broadcast | tt.ExpandDims | gpu.ConvertLayout):
        value = value.op.value
    block = value.block
    outside = set(_owners(block.parent.parent)) if block is not None else set[Op]()
    return any(isinstance(owner, Loop) and owner not in outside for owner in _owners(op.parent_op))


def _owners(op: Op | None) -> Iterator[Op]:
    """An op, and the ops in whose bodies it stands."""
    while op is not None:
        yield op
        op = op.parent_op


def inverse_of(divisor: Number, least: int) -> Inverse:
    """The inverse of a divisor, with l at least 0 or 1.

    The instruction gives 19 digits of 1 / |d|, and two steps of Newton's at least 51. The quotient is made larger by
    2^-50 of it, so that it is not below the exact one: where that is a whole number, its floor is not less. Where a
    quotient that is too large has another floor, m is larger by 1 than it should be, but then |d| is so much less than
    2^l that the products are still exact.
    """
    magnitude = divisor.call("llvm.abs", False)
    shift = 32 - (magnitude - 1).call("llvm.ctlz", False)
    if least:
        shift = shift.call("llvm.umax", least)
    wide = magnitude.to("uitofp", "double")
    inverse = wide.approximate("rcp")
    for _ in range(2):
        error = (-wide).call("llvm.fma", inverse, 1.0)
        inverse = inverse.call("llvm.fma", error, inverse)
    power = (((shift + (1023 + 31)).to("zext", "i64") << 52) | 4).to("bitcast", "double")  # 2^(31 + l) · (1 + 2^-50)
    factor = (inverse * power).to("fptoui", "i64").to("trunc", "i32") + 1
    return Inverse(magnitude, factor, shift)


def unsigned_quotient(dividend: Number, inverse: Inverse) -> Number:
    """The quotient of a number that is not negative."""
    product = dividend.to("zext", "i64") * inverse.factor.to("zext", "i64")
    return (product >> (inverse.shift + 31).to("zext", "i64")).to("trunc", "i32")


def signed_quotient(dividend: Number, inverse: Inverse) -> Number:
    """The quotient of any number, rounded toward zero: the floor, and 1 more for a negative number.

    The upper half of the product with m, which has 33 digits, is the number and that of the product with m - 2^32.
    """
    high = ((dividend.to("sext", "i64") * inverse.factor.to("sext", "i64")) >> 32).to("trunc", "i32")
    return (high + dividend).ashr(inverse.shift - 1) + (dividend >> 31)


def quotient_by(dividend: Number, divisor: int) -> Number:
    """The quotient of a number that is not negative by a positive constant."""
    shift = (divisor - 1).bit_length()
    if divisor == 1 << shift:
        return dividend >> shift
    factor = (1 << 31 + shift) // divisor + 1
    return ((dividend.to("zext", "i64") * factor) >> 31 + shift).to("trunc", "i32")
