"""Conversions between numbers are those of IEEE 754, for all inputs: the LLVM text for GPUs and for CPUs, and the
interpreter's functions.

An integer that becomes a float of few digits is first one with more digits, so there are two steps: the text rounds
the float with more digits, whatever it is; and the rounded float is that of the integer. The second claim of 64-bit
integers is split by the highest bit, which z3 then need not search for.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import z3
from conversions import INSTRUCTIONS, alike, is_converted, of_integer, rounded, sort_of
from emission import Operation
from emitted_terms import Emitted, on_cpu, on_gpu
from llvm_numbers import saturated
from llvm_text import Execution
from planted import edit, must_find
from proving import prove

from ziggurat.backend.cpu import casts as cpu_casts
from ziggurat.backend.llvm import elementwise
from ziggurat.backend.ptx import bytes_in_words, casts
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.types import (
    ScalarType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

STEPS = 30_000_000  # Of z3 for a claim; the hardest takes a fifth.
# Floats as bits, and these as the formulas of a circuit: z3 takes a fifth less time than by its own choice.
TACTICS = (
    "simplify", "propagate-values", "fpa2bv", "simplify", "solve-eqs", "max-bv-sharing", "simplify", "aig",
    "bit-blast", "sat",
)  # fmt: skip
FLOATS = (f8e4m3, f8e5m2, bf16, f16, f32, f64)
SIGNED, UNSIGNED = (i8, i16, i32, i64), (u8, u16, u32, u64)


def operations() -> Iterator[Operation]:
    for source, target in itertools.product(FLOATS, FLOATS):
        if source.bits < target.bits:
            yield Operation(arith.ExtF.NAME, (source,), target)
        elif source.bits > target.bits:
            for rounding in arith.Rounding:
                yield Operation(arith.TruncF.NAME, (source,), target, f"@rounding={rounding.value}")
    for scalar in FLOATS:
        integer = next(integer for integer in SIGNED if integer.bits == scalar.bits)
        yield from (Operation(arith.Bitcast.NAME, (a,), b) for a, b in ((scalar, integer), (integer, scalar)))
        yield from (Operation(arith.FPToSI.NAME, (scalar,), integer) for integer in SIGNED)
        yield from (Operation(arith.FPToUI.NAME, (scalar,), integer) for integer in UNSIGNED)
        yield from (Operation(arith.SIToFP.NAME, (integer,), scalar) for integer in (i1, *SIGNED))
        yield from (Operation(arith.UIToFP.NAME, (integer,), scalar) for integer in (i1, *UNSIGNED))


OPERATIONS = list(operations())


def forms(operation: Operation) -> Iterator[Emitted]:
    """The text for GPUs before and after Ada and Hopper, and for CPUs: of numbers, and of more at once."""
    yield on_gpu(operation, Execution(INSTRUCTIONS))
    yield on_gpu(operation, Execution(INSTRUCTIONS), tensors=True, target="sm_89")
    if operation.operands[0] in (f8e5m2, i8, u8):  # Pieces of a word are converted in pairs.
        yield on_gpu(operation, Execution(INSTRUCTIONS), tensors=True, words=True, target="sm_90")
    yield on_cpu(operation, Execution(INSTRUCTIONS))
    yield on_cpu(operation, Execution(INSTRUCTIONS), lanes=2)


class Claims:
    """Claims about any number of a type, each of which is proved once."""

    def __init__(self) -> None:
        self.proved: dict[int, Any] = {}

    def prove(self, claim: Any, *unknown: Any, cases: Sequence[Any] = ()) -> None:
        """Prove a claim about unknown values, of which the first may be split into `cases`."""
        names = [(value, z3.Const(f"unknown {at}", value.sort())) for at, value in enumerate(unknown)]
        claim = z3.substitute(claim, *names)
        nans = dict.fromkeys(re.findall(r"nan!\d+!\d+", claim.sexpr()))
        for at, nan in enumerate(nans):
            size = int(nan.rpartition("!")[2])
            claim = z3.substitute(claim, (z3.BitVec(nan, size), z3.BitVec(f"nan {at}", size)))
        claim = z3.simplify(claim)
        if claim.get_id() in self.proved:
            claim, cases = z3.BoolVal(True), ()
        for part in [z3.substitute(claim, (names[0][1], case)) for case in cases] or [claim]:
            prove(part, steps=STEPS, tactics=TACTICS)
        self.proved[claim.get_id()] = claim  # Its number is then not that of another one.


def subterms(term: Any) -> list[Any]:
    """The parts of a term, in one order."""
    parts: dict[int, Any] = {}
    waiting = [term]
    while waiting:
        part = waiting.pop()
        if part.get_id() not in parts:
            parts[part.get_id()] = part
            waiting += part.children()
    return list(parts.values())


@pytest.fixture(scope="module")
def claims() -> Claims:
    return Claims()


def prove_emission(claims: Claims, operation: Operation) -> None:
    op = operation.op()
    for text in forms(operation):
        every = [value.term if value.known_bits is None else value.known_bits for (value,) in text.rows]
        variables = [[x] if z3.is_const(x) else [] for x in every]
        for fault in text.undefined:
            claims.prove(z3.Not(fault), *(x for names in variables for x in names))
        for x, (value,), result, names in zip(every, text.rows, text.results, variables, strict=True):
            claims.prove(z3.Not(result.poison), *names)
            if isinstance(op, arith.SIToFP | arith.UIToFP):
                prove_from_integer(claims, op, x, result.term, names)
            else:
                claims.prove(is_converted(op, value.term, result.term), *names)


def prove_from_integer(claims: Claims, op: arith.Cast, x: Any, result: Any, names: list[Any]) -> None:
    """In two steps, where the text converts to another float type first."""
    target, signed = op.type, isinstance(op, arith.SIToFP)
    assert isinstance(target, ScalarType)
    first = [term for term in subterms(result) if z3.is_fp(term) and term.num_args() == 2 and z3.is_bv(term.arg(1))]
    if not first:
        claims.prove(is_converted(op, x, result), *names)
        return
    # The text of vectors may also look at other lanes.
    wide = next(term for term in first if any(part.eq(x) for part in subterms(term)))
    symbols = [z3.Const(f"wide {at}", term.sort()) for at, term in enumerate(first)]
    own = next(symbol for symbol, term in zip(symbols, first, strict=True) if term.eq(wide))
    narrow = z3.substitute(result, *zip(first, symbols, strict=True))
    others = [symbol for symbol in symbols if symbol is not own]
    claims.prove(alike(narrow, rounded(own, target), target), own, *others)
    claim = alike(rounded(wide, target), of_integer(x, target, signed=signed), target)
    cases = [] if x.size() < 64 else list(by_highest_bit(x.size(), signed=signed))
    claims.prove(claim, *names, cases=cases)
    if cases and signed:  # Of a negative one the text converts the negative, and rounding is symmetric.
        negative = z3.substitute(wide.arg(1), (x, -x))
        claims.prove(z3.Implies(x != 1 << 63, negative == -wide.arg(1)), *names)


def by_highest_bit(bits: int, *, signed: bool) -> Iterator[Any]:
    """All integers that are not negative, by their highest bit; and the smallest one."""
    yield z3.BitVecVal(0, bits)
    for place in range(bits):
        low = z3.BitVec("low", place) if place and not (signed and place == bits - 1) else None
        unit = z3.BitVecVal(1, bits - place)
        yield z3.BitVecVal(1 << place, bits) if low is None else z3.Concat(unit, low)


def name_of(operation: Operation) -> str:
    """The op, and the float type to or from which it converts."""
    first = operation.operands[0]
    scalar = first if first in FLOATS and operation.result not in FLOATS else operation.result
    return f"{operation.name.removeprefix('arith.')} {scalar}"


NAMES = list(dict.fromkeys(map(name_of, OPERATIONS)))


@pytest.mark.parametrize("name", NAMES)
def test_the_text_means_the_conversion(name: str, claims: Claims) -> None:
    for operation in OPERATIONS:
        if name_of(operation) == name:
            prove_emission(claims, operation)


def test_large_floats_of_few_digits_are_integers_of_many_bits() -> None:
    """An infinity is above all integers or below them, though those of 32 bits are more than f16 has."""
    claims = Claims()
    for number, integer in (("-oo", -(1 << 31)), ("+oo", (1 << 31) - 1)):
        infinite = z3.fpPlusInfinity(sort_of(f16)) if number[0] == "+" else z3.fpMinusInfinity(sort_of(f16))
        claims.prove(saturated(infinite, 32, signed=True) == integer)


# Faults, each of which a proof above finds.


def of(cls: type[arith.Cast], source: ScalarType, target: ScalarType, attributes: str = "") -> Operation:
    return Operation(cls.NAME, (source,), target, attributes)


ZERO = "@rounding=rtz"
FAULTS: list[tuple[Any, str, str, Operation]] = [
    (elementwise.half_of, "<< 8", "<< 7", of(arith.ExtF, f8e5m2, f32)),
    (elementwise.widen_e4m3, "* 256.0", "* 128.0", of(arith.ExtF, f8e4m3, f16)),
    (elementwise.widen_e4m3, 'magnitude.test("eq", 127)', 'magnitude.test("ugt", 127)', of(arith.ExtF, f8e4m3, f64)),
    (elementwise.narrow_to_8_bits, "+ last", "", of(arith.TruncF, f32, f8e5m2)),
    (elementwise.narrow_to_8_bits, 'code.test("ugt", largest)', 'code.test("ugt", largest + 1)',
     of(arith.TruncF, f32, f8e4m3)),
    (elementwise.narrow_to_8_bits, "(code | sign)", "code", of(arith.TruncF, bf16, f8e4m3)),
    (elementwise.narrow_to_8_bits, "bits >> 24 & 128", "bits >> 23 & 128", of(arith.TruncF, f16, f8e5m2, ZERO)),
    (elementwise.narrow_to_8_bits, "127 + digits - smallest", "126 + digits - smallest",
     of(arith.TruncF, f32, f8e4m3, ZERO)),
    (elementwise.to_odd, "bits + step | 1", "bits + step", of(arith.TruncF, f64, bf16)),
    (elementwise.to_odd, "bits + step | 1", "bits | 1", of(arith.TruncF, f64, f8e5m2)),
    (elementwise.from_integer, "9, 24, signed", "8, 24, signed", of(arith.UIToFP, u32, bf16)),
    (elementwise.from_integer, "53, signed", "54, signed", of(arith.UIToFP, u64, bf16)),
    (elementwise._sticky, ".select(1 << low - 1, 0, x.kind)", ".select(0, 0, x.kind)", of(arith.SIToFP, i64, bf16)),
    (elementwise._sticky, "(1 << limit)).test", "(1 << limit - 1)).test", of(arith.SIToFP, i32, bf16)),
    (elementwise.to_integer, "target.signed and", "not target.signed and", of(arith.FPToUI, f32, u16)),
    (cpu_casts._to_bf16, "0x7FFF", "0x8000", of(arith.TruncF, f32, bf16)),
    (cpu_casts._to_bf16, "bits >> 16 | 64", "bits >> 16", of(arith.TruncF, f32, bf16)),
    (cpu_casts._cut, '"ogt"', '"oge"', of(arith.TruncF, f64, f16, ZERO)),
    (cpu_casts.widen, "<< 16", "<< 15", of(arith.ExtF, bf16, f64)),
    (casts._cut, "0xFFFF0000", "0xFFFE0000", of(arith.TruncF, f32, bf16, ZERO)),
    (casts._cut, ".select(cut, x)", ".select(cut, cut)", of(arith.TruncF, f32, bf16, ZERO)),
    (casts._narrow_fp8, "reversed(pair)", "pair", of(arith.TruncF, f32, f8e4m3)),
    (casts._to_bytes, "integers[2:], integers[:2]", "integers[:2], integers[2:]", of(arith.FPToSI, f32, i8)),
    (casts._to_bytes, "'s' if target.signed else 'u'", "'u' if target.signed else 's'", of(arith.FPToUI, f16, u8)),
    (bytes_in_words.as_halves, "0xH6480", "0xH6400", of(arith.SIToFP, i8, f16)),
    (bytes_in_words.as_halves, "0xR4380", "0xR4300", of(arith.UIToFP, u8, bf16)),
    (bytes_in_words.as_halves, "0xFF80FF80", "0xFF00FF00", of(arith.SIToFP, i8, bf16)),
    (bytes_in_words._joined, "4 << 4 | high", "3 << 4 | high", of(arith.UIToFP, u8, f16)),
    (bytes_in_words.upper_halves, "4 | low << 4", "4 | high << 4", of(arith.ExtF, f8e5m2, f16)),
]  # fmt: skip
ROUTINES = (elementwise.widen_e4m3, elementwise.narrow_to_8_bits, elementwise.to_odd)


def prove_anew(operation: Operation) -> None:
    """Routines are written anew, before and after."""
    try:
        for function in ROUTINES:
            function.cache_clear()
        prove_emission(Claims(), operation)
    finally:
        for function in ROUTINES:
            function.cache_clear()


test_planted_faults = must_find(
    (edit(function, old, new), partial(prove_anew, operation)) for function, old, new, operation in FAULTS
)
