"""The LLVM text of signed divisions gives the quotient and the remainder, for all operands but a divisor of 0.

z3 can't decide equations of quotients of 16 bits and more. In the first proofs they are unknown functions, of which no
more is facts than x / -1 = -x and x % -1 = 0. In the others, of quotients by an inverse, there are three steps:

1. bits: the text computes the inverse by these float operations, m from it, and the quotient from the upper bits of a
   product with m, whatever these operations give;
2. real numbers: with the rounding errors of the operations, m - 1 is the floor of a number that is larger than
   2^(31 + l) / |d|, by less than 2^-49 of it;
3. integers: so the upper bits of the product are the quotient.

CPUs divide vectors of integers through f64: the text's quotient is a function of nothing but its operands in the first
proofs, and the last ones prove that it is the quotient, by its bits and in real numbers.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import z3
from emission import Operation, emit_ptx
from emitted_terms import REGISTERS, Emitted, number_of, on_cpu, on_gpu
from llvm_numbers import NEAREST, Value, lanes_of, sort_of, symbol
from llvm_text import Execution
from meanings import Divisions, meaning
from planted import edit, must_find
from proving import prove

from ziggurat.backend.cpu import elementwise_ops as cpu_ops
from ziggurat.backend.llvm import elementwise
from ziggurat.backend.llvm.routines import Number, Routine
from ziggurat.backend.ptx import divisions
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, i8, i16, i32, i64, u8, u16, u32, u64

SIGNED = (i8, i16, i32, i64)
UNSIGNED = (u8, u16, u32, u64)
CLASSES = (arith.DivSI, arith.RemSI)
NAMES = (("udiv", "urem"), ("sdiv", "srem"))


# Divisions that LLVM does.


def unknown(bits: int) -> dict[str, Any]:
    """Division as functions of which nothing is facts."""
    sort = z3.BitVecSort(bits)
    return {name: z3.Function(f"{name}{bits}", sort, sort, sort) for name in ("sdiv", "srem", "udiv", "urem")}


@pytest.mark.parametrize("scalar", SIGNED, ids=str)
def test_what_is_known_of_unknown_divisions(scalar: ScalarType) -> None:
    x, unit = z3.BitVec("x", scalar.bits), z3.BitVecVal(-1, scalar.bits)
    prove(z3.And(x / unit == -x, z3.SRem(x, unit) == 0))


def forms(operation: Operation, functions: dict[str, Any]) -> Iterator[Emitted]:
    yield on_gpu(operation, Execution(functions))
    yield on_cpu(operation, Execution(functions))
    yield vectors_on_cpu(operation, functions)


def vectors_on_cpu(operation: Operation, functions: dict[str, Any], *, tolerant: bool = False) -> Emitted:
    """An op on vectors, with calls of the unknown quotients in place of those through f64."""

    def quotient(a: Number, b: Number, *, signed: bool) -> Number:
        return a.call("llvm.sdiv" if signed else "llvm.udiv", b)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_ops, "_quotient_of_vectors", quotient)
        return on_cpu(operation, Execution({**functions, "mul": product}), lanes=2, tolerant=tolerant)


def remainder_facts(functions: dict[str, Any], a: Any, b: Any) -> list[Any]:
    """Remainders by their quotients, as vectors compute them."""
    return [functions[f"{s}rem"](a, b) == a - product(functions[f"{s}div"](a, b), b) for s in "su"]


def prove_rule(cls: type[arith.SignedDivision], scalar: ScalarType, divisor: ScalarType | int) -> None:
    operation = Operation(cls.NAME, (scalar, divisor), scalar)
    functions, op = unknown(scalar.bits), operation.op()
    domain = Divisions(functions["sdiv"], functions["srem"])

    def assumptions(a: Any, b: Any) -> list[Any]:
        by_minus_one = z3.And(functions["sdiv"](a, b) == -a, functions["srem"](a, b) == 0)
        return [b != 0, z3.Implies(b == -1, by_minus_one), *remainder_facts(functions, a, b)]

    for text in forms(operation, functions):
        text.prove(lambda a, b: meaning(op, a, b, domain=domain), assumptions)


@pytest.mark.parametrize("scalar", SIGNED, ids=str)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.NAME)
def test_divisions(cls: type[arith.SignedDivision], scalar: ScalarType) -> None:
    """By a number, and by constants. The smallest number by -1 is defined."""
    for divisor in (scalar, -1, 7):
        prove_rule(cls, scalar, divisor)


@pytest.mark.parametrize("scalar", UNSIGNED, ids=str)
@pytest.mark.parametrize("cls", [arith.DivUI, arith.RemUI], ids=lambda cls: cls.NAME)
def test_unsigned_divisions_of_vectors(cls: type[Op], scalar: ScalarType) -> None:
    operation, functions = Operation(cls.NAME, (scalar, scalar), scalar), unknown(scalar.bits)
    op, domain = operation.op(), Divisions(functions["udiv"], functions["urem"])
    vectors_on_cpu(operation, functions).prove(
        lambda a, b: meaning(op, a, b, domain=domain), lambda a, b: [b != 0, *remainder_facts(functions, a, b)]
    )


@pytest.mark.parametrize("lanes", [0, 2])
@pytest.mark.parametrize("scalar", [i32, u32], ids=str)
def test_divisions_of_tolerant_kernels(scalar: ScalarType, lanes: int) -> None:
    """Those by 0 have all bits set."""
    functions = unknown(32)
    for cls, quotient in zip(
        CLASSES if scalar.signed else (arith.DivUI, arith.RemUI), NAMES[scalar.signed], strict=True
    ):
        operation = Operation(cls.NAME, (scalar, scalar), scalar)
        if lanes:
            text = vectors_on_cpu(operation, functions, tolerant=True)
        else:
            text = on_cpu(operation, Execution(functions), tolerant=True)

        def meaning_of(a: Any, b: Any, quotient: str = quotient) -> Any:
            by_minus_one = -a if quotient == "sdiv" else z3.BitVecVal(0, 32)
            result = functions[quotient](a, b)
            result = z3.If(b == -1, by_minus_one, result) if scalar.signed else result
            return z3.If(b == 0, z3.BitVecVal(-1, 32), result)

        def facts(a: Any, b: Any) -> list[Any]:
            by_minus_one = z3.And(functions["sdiv"](a, b) == -a, functions["srem"](a, b) == 0)
            return [z3.Implies(b == -1, by_minus_one), *remainder_facts(functions, a, b)]

        text.prove(meaning_of, facts)


@pytest.mark.parametrize("run", [1, 2, 4])
@pytest.mark.parametrize("scalar", [i16, i64], ids=str)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.NAME)
def test_divisions_of_numbers_that_are_not_negative(
    cls: type[arith.SignedDivision], scalar: ScalarType, run: int
) -> None:
    """Without a guard, and in runs of unit quotient."""
    operation = Operation(cls.NAME, (scalar, scalar), scalar, f"@nonnegative=true @runs=[{run}]")
    functions, op = unknown(scalar.bits), operation.op()
    domain, quotient = Divisions(functions["sdiv"], functions["srem"]), functions["sdiv"]
    text = on_gpu(operation, Execution(functions), tensors=True)
    pairs = [[value.term for value in row] for row in text.rows]
    same = [quotient(*pair) == quotient(*pairs[at - at % run]) for at, pair in enumerate(pairs)]
    text.prove(lambda a, b: meaning(op, a, b, domain=domain), lambda a, b: [a >= 0, b != 0, *same])


# 1. Quotients by an inverse, as bits.

DOUBLE, WORD, LONG = sort_of("double"), z3.BitVecSort(32), z3.BitVecSort(64)
PRODUCTS = {size: z3.Function(f"product{size}", *[z3.BitVecSort(size)] * 3) for size in (8, 16, 32, 64)}


def product(a: Any, b: Any) -> Any:
    """A product, of which nothing is facts but the factors 1 and -1."""
    return z3.If(b == 1, a, z3.If(b == -1, -a, PRODUCTS[a.size()](a, b)))


def newton(fma: Any, wide: Any, inverse: Any, unit: Any) -> Any:
    """The inverse of a number, by two steps of Newton's method from a rough one."""
    for _ in range(2):
        inverse = fma(inverse, fma(-wide, inverse, unit), inverse)
    return inverse


def has_shift(magnitude: Any, shift: int, least: int) -> Any:
    """Whether l is `shift`: 2^l is the first power of two that is no less than the magnitude, from 2^least on."""
    above = z3.UGT(magnitude, 1 << shift - 1) if shift > least else z3.UGT(magnitude, 0)
    return z3.And(above, z3.ULE(magnitude, 1 << shift))


def run_routine(
    routine: Routine, functions: dict[str, Any], results: Sequence[Number], assumptions: Sequence[Any] = ()
) -> list[Any]:
    """The terms of results, which are proved not to be poison, for the arguments a0, a1 and so on."""
    values: dict[str, Value] = {f"%a{at}": symbol(f"a{at}", kind) for at, kind in enumerate(routine.parameters)}
    execution = Execution(functions)
    execution.run(routine.lines, values)
    numbers = [number_of(values, number.kind, number.name) for number in results]
    prove(z3.Not(z3.Or(*execution.undefined, *(number.poison for number in numbers))), assumptions)
    return [number.term for number in numbers]


@pytest.mark.parametrize("least", [0, 1])
def test_the_bits_of_an_inverse(least: int) -> None:
    """m is 1 more than the floor of the inverse, times 2^(31 + l) · (1 + 2^-50)."""
    r = Routine("inverse", "i32", ["i32"])
    inverse = divisions.inverse_of(r.argument(), least)
    factors: list[Any] = []
    rough, floor = z3.Function("rcp", DOUBLE, DOUBLE), z3.BitVec("floor", 64)

    def multiply(a: Any, b: Any) -> Any:
        factors.extend([a, b])
        return z3.FP("product", DOUBLE)

    functions = {"fmul": multiply, "fptoui": lambda x: floor, "rcp.approx.ftz.f64 $0, $1;": rough}
    magnitude, m, shift = run_routine(r, functions, inverse)
    d = z3.BitVec("a0", 32)
    wide = z3.fpUnsignedToFP(NEAREST, magnitude, DOUBLE)
    fused = functools.partial(z3.fpFMA, NEAREST)
    assert factors[0].eq(newton(fused, wide, rough(wide), z3.FPVal(1.0, DOUBLE)))
    prove(z3.And(magnitude == z3.If(d < 0, -d, d), m == z3.Extract(31, 0, floor) + 1))
    for number in range(least, 32):
        power = struct.unpack("<q", struct.pack("<d", 2.0 ** (31 + number) * (1 + 2.0**-50)))[0]
        prove(z3.And(shift == number, factors[1].arg(0) == power), [has_shift(magnitude, number, least)])


def upper_bits(n: Any, m: Any, shift: Any, *, nonnegative: bool) -> Any:
    """The bits of n · m from 31 + l on, rounded toward zero; of numbers of both signs, m has 33 bits."""
    if nonnegative:
        bits = product(z3.ZeroExt(32, n), z3.ZeroExt(32, m))
        return z3.Extract(31, 0, z3.LShR(bits, 31 + z3.ZeroExt(32, shift)))
    high = z3.Extract(31, 0, z3.LShR(product(z3.SignExt(32, n), z3.SignExt(32, m)), 32)) + n
    return (high >> shift - 1) + z3.LShR(n, 31)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_bits_of_a_quotient(nonnegative: bool) -> None:
    r = Routine("quotient", "i32", ["i32", "i32", "i5"])
    n, m, shift = map(r.argument, range(3))
    quotient = divisions.unsigned_quotient if nonnegative else divisions.signed_quotient
    result = quotient(n, divisions.Inverse(n, m, shift.to("zext", "i32")))
    n, m, shift = z3.BitVec("a0", 32), z3.BitVec("a1", 32), z3.ZeroExt(27, z3.BitVec("a2", 5))
    assumptions = [] if nonnegative else [shift != 0]
    (term,) = run_routine(r, {"mul": product}, [result], assumptions)
    prove(term == upper_bits(n, m, shift, nonnegative=nonnegative), assumptions)


CONSTANTS = (1, 2, 3, 7, 10, 64, 641, 65535, 1 << 30, (1 << 30) + 1, (1 << 31) - 1)


@pytest.mark.parametrize("divisor", CONSTANTS)
def test_the_bits_of_a_quotient_by_a_constant(divisor: int) -> None:
    r = Routine("quotient", "i32", ["i32"])
    (term,) = run_routine(r, {"mul": product}, [divisions.quotient_by(r.argument(), divisor)])
    n, shift = z3.BitVec("a0", 32), (divisor - 1).bit_length()
    m = z3.BitVecVal((1 << 31 + shift) // divisor + 1, 64)
    if divisor == 1 << shift:
        prove(term == z3.LShR(n, shift))
    else:
        prove(term == z3.Extract(31, 0, z3.LShR(product(z3.ZeroExt(32, n), m), 31 + shift)))


QUOTIENT = z3.Function("quotient", WORD, WORD, WORD)  # By a magnitude, which is unsigned.


@contextmanager
def open_quotients() -> Iterator[None]:
    """Emit calls of `QUOTIENT` in place of quotients by numbers and constants."""

    def quotient(dividend: Number, inverse: divisions.Inverse | int) -> Number:
        magnitude = dividend.like(inverse) if isinstance(inverse, int) else inverse.magnitude
        text = dividend.code.called("i32", "llvm.quotient", dividend, magnitude)
        return dividend.made("i32", text, 0)

    def inverse_of(divisor: Number, least: int) -> divisions.Inverse:
        return divisions.Inverse(divisor.call("llvm.abs", False), divisor, divisor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divisions, "inverse_of", inverse_of)
        for name in ("signed_quotient", "unsigned_quotient", "quotient_by"):
            patch.setattr(divisions, name, quotient)
        yield


@open_quotients()
def prove_division(cls: type[arith.SignedDivision], *, nonnegative: bool, run: int, divisor: int = 0) -> None:
    """Prove that a tensor is divided by a number, or by a constant, by these quotients."""
    type_ = f'tensor<x{32 * REGISTERS}, i32, "1 2 | 4 8 16 32 64 |">'
    attributes = f"@nonnegative={str(nonnegative).lower()} @runs=[{run}]"
    number = f"arith.constant @{divisor}" if divisor else "tt.splat %1"
    lines = f"%d : {type_} = {number}; %r : {type_} = {cls.NAME} %0 %d {attributes};"
    emitter, (_, names) = emit_ptx(lines, f"%0 : {type_}, %1 : i32")
    dividends, d = z3.BitVecs([f"%p0.{at}" for at in range(REGISTERS)], 32), z3.BitVec("%p1", 32)
    values: dict[str, Value] = {str(n): symbol(str(n), "i32") for n in (*dividends, d)}
    execution = Execution({"quotient": QUOTIENT, "mul": product})
    execution.run(emitter.lines, values)
    d = z3.BitVecVal(divisor, 32) if divisor else d
    magnitude = z3.If(d < 0, -d, d)
    claims = [z3.Not(z3.Or(*execution.undefined))]
    for at, (n, name) in enumerate(zip(dividends, names, strict=True)):
        quotient_ = QUOTIENT(dividends[at - at % run], magnitude)
        expected = z3.If(d < 0, -quotient_, quotient_)
        expected = expected if cls is arith.DivSI else n - product(quotient_, magnitude)
        result = number_of(values, "i32", name)
        claims += [result.term == expected, z3.Not(result.poison)]
    prove(z3.And(*claims))


DIVISIONS = [(False, 1, 0), (False, 2, 0), (True, 1, 0), (True, 2, 0), (True, 1, 48), (True, 4, 48)]


@pytest.mark.parametrize(("nonnegative", "run", "divisor"), DIVISIONS)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.NAME)
def test_tensors_divided_by_a_number(
    cls: type[arith.SignedDivision], nonnegative: bool, run: int, divisor: int
) -> None:
    """The sign is that of the divisor, and numbers of a run have the quotient of its first one."""
    prove_division(cls, nonnegative=nonnegative, run=run, divisor=divisor)


# 2. The inverse in real numbers. Each operation has an error of at most 2^-53 of its result. All are normal numbers, as
# the divisor is an integer of at most 31 digits. Numbers are those of the code, times the divisor.

ERROR = z3.Q(1, 1 << 53)


class Rounded:
    """Operations with errors of their own."""

    def __init__(self) -> None:
        self.errors: list[Any] = []

    def __call__(self, exact: Any) -> Any:
        self.errors.append(z3.Real(f"error {len(self.errors)}"))
        return exact * (1 + self.errors[-1])

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self(a * b + c)

    def bounds(self) -> list[Any]:
        return [z3.And(error <= ERROR, error >= -ERROR) for error in self.errors]


def near_one(x: Any, digits: int) -> Any:
    distance = z3.Q(1, 1 << digits)
    return z3.And(x - 1 <= distance, 1 - x <= distance)


# The instruction cuts the operand and the result to 20 digits after the first (PTX ISA, "rcp.approx.ftz.f64").
DIGITS = (18, 35, 52)


@pytest.mark.parametrize("step", [0, 1])
def test_a_step_doubles_the_digits(step: int) -> None:
    rounded, x = Rounded(), z3.Real("x")
    unit = z3.RealVal(1)
    better = rounded.fma(x, rounded.fma(-unit, x, unit), x)
    prove(near_one(better, DIGITS[step + 1]), [near_one(x, DIGITS[step]), *rounded.bounds()])


def test_the_inverse_is_a_little_too_large() -> None:
    rounded, x = Rounded(), z3.Real("x")
    larger = rounded(x * (1 + z3.Q(1, 1 << 50)))
    prove(z3.And(larger > 1, larger <= 1 + z3.Q(1, 1 << 49)), [near_one(x, DIGITS[-1]), *rounded.bounds()])


# 3. Integers. T is 2^l, the first power of two that is no less than d, and P = 2^31 · T. m is 1 more than the floor f
# of a number between P / d and that times 1 + 2^-49. z3 decides equations with products of variables slowly. So each
# step of an argument by hand is a claim of its own, in which most products are variables: f_d is f · d.

HALF, WORD_SIZE = 1 << 31, 1 << 32
d, T, c, f, m, n, q, r, e, g, h = z3.Ints("d T c f m n q r e g h")
f_d, m_d, n_m = z3.Ints("f_d m_d n_m")
P = HALF * T


def bounds_of(m_d: Any) -> Any:
    """What makes n · m / P have the floor of n / d (Granlund and Montgomery, theorem 4.2)."""
    return z3.And(m_d > P, m_d <= P + T)


def test_m_is_no_more_than_a_little_too_large() -> None:
    j, t, u, t_d, t_j, t_T, u_T, room = z3.Ints("j t u t_d t_j t_T u_T room")
    floor = [room * (1 << 18) <= T, T < (room + 1) * (1 << 18)]  # room = ⌊T / 2^18⌋.
    prove(f_d <= P + room, [f_d * (1 << 49) <= P * ((1 << 49) + 1), *floor])
    assumptions = [d > 0, d <= T, f_d <= P + room, f_d + d > P]
    prove(bounds_of(f_d + d), [*assumptions, d + room <= T])
    # Else d is T - j, for a small j. With f = 2^31 + t and t = 2^31 / T · j + u, f · d is P + u · T - t · j.
    small = [d == T - j, j >= 0, j < room]
    prove((f + 1) * (T - d) >= 0, [(f + 1) * d > 0, d > 0, d <= T])
    prove(f >= HALF, [(f + 1) * T > P, T > 0])
    prove(t * (2 * d - T) >= 0, [t >= 0, 2 * d > T])
    rest = [f_d == HALF * d + t_d, f_d <= P + room, 2 * t_d >= t_T]
    prove(t_T * (1 << 18) <= (WORD_SIZE + 2) * T, [*small, *floor, *rest])
    prove(t <= 1 << 14, [t * T * (1 << 18) <= (WORD_SIZE + 2) * T, T > 0])
    prove(t * j <= (1 << 14) * j, [t <= 1 << 14, j >= 0])
    prove(f * d == P + u * T - t * j, [f == HALF + t, t == c * j + u, d == T - j, c * T == HALF])
    product_ = [f_d == P + u_T - t_j, t_j >= 0, t_j <= (1 << 14) * j]
    prove(u_T < T, [*floor, *small, *product_, f_d <= P + room])
    prove(u * T <= 0, [u * T < T, T > 0])
    prove(bounds_of(f_d + d), [*assumptions, *small, *product_, u_T <= 0])


def test_m_of_a_constant() -> None:
    """m is 1 more than the floor of P / d."""
    prove(bounds_of(f_d + d), [d > 0, d <= T, f_d + r == P, r >= 0, r < d])


def test_m_has_as_many_digits_as_the_text_keeps() -> None:
    """m is below 2^32 for numbers that are not negative; m - 2^32 is an i32 otherwise, where l is 1 for d = 1."""
    prove(m * (T - d) >= 0, [m > 0, d <= T])
    prove(m > HALF, [m * T > P, T > 0])
    prove(m * (2 * d - T - 2) >= 0, [m > 0, 2 * d >= T + 2])  # T is even.
    prove(m < WORD_SIZE, [m * (T + 2) <= 2 * (P + T), T > 0, T <= HALF])
    prove(m < WORD_SIZE, [bounds_of(m), T == 1])
    prove(z3.And(m > WORD_SIZE, m < WORD_SIZE + HALF), [bounds_of(m), T == 2])


def test_upper_bits_are_the_quotient() -> None:
    """That of n = q · d + r, up to 2^31, and of -n. m · d is P + e. Products are compared after multiplication by d."""
    x, x_d, y_d, n_e, r_P = z3.Ints("x x_d y_d n_e r_P")
    parts = [m * d == P + e, n == q * d + r]
    prove((n * m - q * P) * d == n * e + r * P, parts)
    prove(((q + 1) * P - n * m) * d == (d - r) * P - n * e, parts)
    prove(z3.And(n * e >= 0, n * (T - e) >= 0), [n >= 0, e > 0, e <= T])
    prove(z3.And(z3.Implies(n > 0, n * e > 0), z3.Implies(n < HALF, (HALF - n) * T > 0)), [e > 0, T > 0])
    prove(z3.And(r * P >= 0, (d - r - 1) * P >= 0), [r >= 0, r < d, T > 0])
    facts = [n_e >= 0, n_e <= n * T, r_P >= 0, x_d == n_e + r_P, y_d >= P - n_e, n >= 0, n <= HALF, T > 0]
    facts += [z3.Implies(n > 0, n_e > 0), z3.Implies(n < HALF, (HALF - n) * T > 0)]
    prove(z3.And(x_d >= 0, y_d >= 0, z3.Implies(n > 0, x_d > 0), z3.Implies(n < HALF, y_d > 0)), facts)
    prove(z3.And(z3.Implies(x * d >= 0, x >= 0), z3.Implies(x * d > 0, x > 0)), [d > 0])
    # So x = n · m - q · P and y = (q + 1) · P - n · m are not negative. g is the floor of n · m / P, or of -n · m / P.
    signs = [q * P <= n_m, n_m <= (q + 1) * P]
    signs += [z3.Implies(n > 0, q * P < n_m), z3.Implies(n < HALF, n_m < (q + 1) * P)]
    prove(g == q, [*signs, T > 0, n >= 0, n < HALF, g * P <= n_m, n_m < (g + 1) * P])
    prove(g + 1 == -q, [*signs, T > 0, n > 0, g * P <= -n_m, -n_m < (g + 1) * P])


def test_upper_bits_of_numbers_of_both_signs() -> None:
    """The upper word of n · (m - 2^32), and n, are h, that of n · m: an i32, unless l is 1, where all bits are kept."""
    upper = [(h - n) * WORD_SIZE <= n_m - n * WORD_SIZE, n_m - n * WORD_SIZE < (h - n + 1) * WORD_SIZE]
    prove(z3.And(h * WORD_SIZE <= n_m, n_m < (h + 1) * WORD_SIZE), upper)
    inside = [n >= -HALF, n < HALF]
    prove(z3.And(n * m >= -HALF * WORD_SIZE, n * m < HALF * WORD_SIZE), [m > 0, m < WORD_SIZE, *inside])
    prove(z3.And(h >= -HALF, h < HALF), [*upper, n_m >= -HALF * WORD_SIZE, n_m < HALF * WORD_SIZE])
    for shift in range(1, 32):
        unit = 1 << shift - 1
        shifted = [h * WORD_SIZE <= n_m, n_m < (h + 1) * WORD_SIZE, g * unit <= h, h < (g + 1) * unit]
        power = 1 << 31 + shift
        prove(z3.And(g * power <= n_m, n_m < (g + 1) * power), shifted)


# Quotients of vectors, through f64. Operands are numbers of f64.


@pytest.mark.parametrize("by_one", [False, True])
@pytest.mark.parametrize("scalar", [*SIGNED[:3], *UNSIGNED[:3]], ids=str)
def test_the_bits_of_a_quotient_of_vectors(scalar: ScalarType, by_one: bool) -> None:
    """The operands of the float operations; and from a whole number on, the integer, modulo a power of two."""
    kind = f"i{scalar.bits}"
    r = Routine("quotient", kind, [kind, kind], 2)
    a, b = r.argument(), Number(r, kind, "%a1", 0 if by_one else 2)
    result = cpu_ops._quotient_of_vectors(a, b, signed=scalar.signed)
    values: dict[str, Value] = {"%a0": (symbol("a", kind),) * 2, "%a1": symbol("b", kind)}
    if not by_one:
        values["%a1"] = (symbol("b", kind),) * 2
    factors: list[Any] = []
    quotients: list[Any] = []

    def multiply(x: Any, y: Any) -> Any:
        factors.extend([x, y])
        return z3.FP("product", DOUBLE)

    number, minus_zero = z3.BitVec("number", 34), z3.Bool("minus zero")
    whole = z3.If(minus_zero, z3.fpMinusZero(DOUBLE), z3.fpSignedToFP(NEAREST, number, DOUBLE))

    def truncated(x: Any) -> Any:
        if not z3.is_fp(x):
            return z3.Extract(scalar.bits - 1, 0, x)
        quotients.append(x)
        return whole

    divide = z3.Function("quotient of f64", DOUBLE, DOUBLE, DOUBLE)
    execution = Execution({"fdiv": divide, "fmul": multiply, "trunc": truncated})
    execution.run(r.lines, values)
    first = lanes_of(values[result.name])[0]
    prove(z3.Not(z3.Or(*execution.undefined, first.poison)))
    prove(first.term == z3.Extract(scalar.bits - 1, 0, number), [z3.Implies(minus_zero, number == 0)])
    to_float = z3.fpSignedToFP if scalar.signed else z3.fpUnsignedToFP
    a_wide, b_wide = (to_float(NEAREST, z3.BitVec(name, scalar.bits), DOUBLE) for name in "ab")
    if not by_one:
        assert quotients[0].eq(divide(a_wide, b_wide))
        return
    half = z3.FPVal(0.5, DOUBLE)
    if scalar.signed:
        half = z3.If(z3.fpIsNegative(a_wide), z3.fpNeg(half), half)
    prove(factors[0] == z3.fpAdd(NEAREST, a_wide, half))
    assert factors[1].eq(divide(z3.FPVal(1.0, DOUBLE), b_wide))


def test_quotients_of_f64_have_the_whole_part_of_the_exact_ones() -> None:
    """n = q · d + r is a magnitude of 32 bits, and so a number of f64, as q is. Rounding is monotonic: from q on, no
    quotient is rounded to less. f is the rounded quotient, f_d is f · d, which differs from n by n_e."""
    f, f_d, n_e, error = z3.Reals("f f_d n_e error")
    size, whole = [n >= 0, n <= WORD_SIZE], [n == q * d + r, r >= 0, r < d]
    prove(n * error < 1, [*size, error <= ERROR])
    prove(n + 1 <= (q + 1) * d, whole)
    prove((f - (q + 1)) * d < 0, [f * d == f_d, f_d == n + n_e, n_e < 1, n + 1 <= (q + 1) * d])
    prove(f < q + 1, [(f - (q + 1)) * d < 0, d > 0])


def test_products_with_rounded_reciprocals_have_the_whole_part_of_quotients() -> None:
    """The product is that of n + 1/2, a number of f64. `error` is that of reciprocal and product together."""
    rounded, f, f_d, error, n_e = Rounded(), *z3.Reals("f f_d error n_e")
    bound = z3.Q(1, 1 << 51)
    exact = rounded(rounded(z3.RealVal(1)))
    prove(z3.And(exact - 1 <= bound, 1 - exact <= bound), rounded.bounds())
    size = [n >= 0, n <= WORD_SIZE, error <= bound, error >= -bound]
    prove((n + z3.Q(1, 2)) * error < z3.Q(1, 2), size)
    prove((n + z3.Q(1, 2)) * error > -z3.Q(1, 2), size)
    inside = [f_d == n + z3.Q(1, 2) + n_e, n_e < z3.Q(1, 2), n_e > -z3.Q(1, 2)]
    prove(z3.And(n < f_d, f_d < n + 1), inside)
    prove(z3.And(q * d <= n, n + 1 <= (q + 1) * d), [n == q * d + r, r >= 0, r < d])
    between = [f * d == f_d, f_d > n, f_d < n + 1, q * d <= n, n + 1 <= (q + 1) * d, d > 0]
    prove(z3.And((f - q) * d > 0, (f - (q + 1)) * d < 0), between)
    prove(f > q, [(f - q) * d > 0, d > 0])
    prove(f < q + 1, [(f - (q + 1)) * d < 0, d > 0])


# Faults, each of which a proof above finds.

FAULTS: list[tuple[Any, str, str, Callable[[], object]]] = [
    (elementwise._signed_quotient, "if is_known(b) and b.name", "if is_known(b) or b.name",
     lambda: prove_rule(arith.DivSI, i32, i32)),
    (elementwise._signed_quotient, "inverts.select(1, b)", "b", lambda: prove_rule(arith.RemSI, i64, i64)),
    (elementwise._signed_quotient, "0 - a if", "a if", lambda: prove_rule(arith.DivSI, i16, i16)),
    (cpu_ops._divided, "by_zero.select(1, b)", "b", lambda: test_divisions_of_tolerant_kernels(i32, 0)),
    (cpu_ops._division, "a - quotient * b", "a - quotient",
     lambda: test_unsigned_divisions_of_vectors(arith.RemUI, u8)),
    (cpu_ops._quotient_of_vectors, "1.5 * 2.0**52", "1.5 * 2.0**53",
     lambda: test_the_bits_of_a_quotient_of_vectors(i16, False)),
    (cpu_ops._quotient_of_vectors, "x.like(0.5).signed_as(x.spread(a.lanes)) if signed", "x.like(0.5) if signed",
     lambda: test_the_bits_of_a_quotient_of_vectors(i16, True)),
    (divisions.inverse_of, "(magnitude - 1)", "magnitude", lambda: test_the_bits_of_an_inverse(0)),
    (divisions.inverse_of, "| 4)", "| 0)", lambda: test_the_bits_of_an_inverse(1)),
    (divisions.inverse_of, '.to("trunc", "i32") + 1', '.to("trunc", "i32")',
     lambda: test_the_bits_of_an_inverse(1)),
    (divisions.unsigned_quotient, 'inverse.factor.to("zext"', 'inverse.factor.to("sext"',
     lambda: test_the_bits_of_a_quotient(True)),
    (divisions.signed_quotient, "(dividend >> 31)", "dividend.ashr(31)",
     lambda: test_the_bits_of_a_quotient(False)),
    (divisions.quotient_by, "// divisor + 1", "// divisor",
     lambda: test_the_bits_of_a_quotient_by_a_constant(3)),
    (divisions._division, "(divisor.ashr(31) | 1)", "(divisor >> 31 | 1)",
     lambda: prove_division(arith.DivSI, nonnegative=False, run=1)),
    (divisions._division, "parts[0] * parts[1]", "parts[0] * divisor",
     lambda: prove_division(arith.RemSI, nonnegative=False, run=1)),
    (divisions._division, "pairs[register] if isinstance", "pairs[register & ~alike] if isinstance",
     lambda: prove_division(arith.RemSI, nonnegative=True, run=2)),
]  # fmt: skip


test_planted_faults = must_find((edit(function, old, new), proof) for function, old, new, proof in FAULTS)
