"""The LLVM text of each op on integers, for GPUs and for CPUs, gives what the op means for all operands: no result is
poison, and no behaviour is undefined. The remainders and quotients of `test_emitted_divisions.py` are apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import z3
from emission import Operation, emit_ptx
from emitted_terms import REGISTERS, Emitted, number_of, on_cpu, on_gpu
from llvm_numbers import Value, symbol
from llvm_text import Execution
from meanings import meaning
from planted import Fault, edit, entry, must_find
from proving import prove

from ziggurat.backend.cpu import elementwise_ops as cpu_ops
from ziggurat.backend.llvm import elementwise
from ziggurat.backend.ptx import bytes_in_words, elementwise_ops, packed_words
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, i1, i8, i16, i32, i64, u8, u16, u32, u64
from ziggurat.transforms.analysis.queries import function_of

SIGNED, UNSIGNED = (i8, i16, i32, i64), (u8, u16, u32, u64)
ALL = (i1, *SIGNED, *UNSIGNED)


def takes(cls: type[Op], scalar: ScalarType) -> bool:
    """Whether an op takes numbers of this type."""
    signed = scalar in SIGNED
    return not issubclass(cls, arith.UnsignedBinary if signed else arith.SignedBinary)


BINARY = (
    arith.AddI, arith.SubI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI, arith.ShlI, arith.ShrSI, arith.ShrUI,
    arith.DivUI, arith.RemUI, arith.MaxSI, arith.MinSI, arith.MaxUI, arith.MinUI,
)  # fmt: skip
UNARY = (maths.AbsI, maths.CtPop, maths.CtLz, maths.BitReverse)


def operations() -> Iterator[Operation]:
    for cls, scalar in itertools.product(BINARY, ALL):
        if takes(cls, scalar):
            yield Operation(cls.NAME, (scalar, scalar), scalar)
    for cls, scalar in itertools.product(UNARY, (*SIGNED, *UNSIGNED)):
        yield Operation(cls.NAME, (scalar,), scalar)
    for scalar in UNSIGNED:
        yield Operation(tt.MulHiUI.NAME, (scalar, scalar), scalar)
    for predicate, scalar in itertools.product(arith.IntPredicate, ALL):
        if predicate.value[0] not in "su" or (predicate.value[0] == "s") == (scalar in SIGNED):
            yield Operation(arith.CmpI.NAME, (scalar, scalar), i1, f"@{predicate.value}")
    for scalar in ALL:
        yield Operation(arith.Select.NAME, (i1, scalar, scalar), scalar)
    for source, target in itertools.product((i1, *SIGNED), (i1, *SIGNED)):
        if source.bits < target.bits:
            yield from (Operation(cls.NAME, (source,), target) for cls in (arith.ExtSI, arith.ExtUI))
        elif source.bits > target.bits:
            yield Operation(arith.TruncI.NAME, (source,), target)
    for source, target in zip(SIGNED, UNSIGNED, strict=True):
        yield Operation(arith.Bitcast.NAME, (source,), target)


OPERATIONS = list(operations())
# The forms in which each machine writes ops: of numbers, and of more of them where that is not the same again.
FORMS: dict[str, Callable[[Operation], Iterator[Emitted]]] = {}


def form(machine: str) -> Callable[[Any], Any]:
    return lambda function: FORMS.setdefault(machine, function)


@form("gpu")
def on_gpus(operation: Operation) -> Iterator[Emitted]:
    yield on_gpu(operation, Execution())
    if operation.name in (arith.AddI.NAME, arith.MulI.NAME) or operation.operands[0] in (i8, u8):
        yield on_gpu(operation, Execution(), tensors=True)
    if operation.operands[0] in (i8, u8):  # The bytes of words are computed with in fours.
        yield on_gpu(operation, Execution(), tensors=True, words=True)
        if len(operation.operands) == 2:
            for number in (0, 3, 7, 8, 127):
                with_constant = attrs.evolve(operation, operands=(operation.operands[0], number))
                yield on_gpu(with_constant, Execution(), tensors=True, words=True)


@form("cpu")
def on_cpus(operation: Operation) -> Iterator[Emitted]:
    yield on_cpu(operation, Execution())
    divides = operation.name in (arith.DivUI.NAME, arith.RemUI.NAME)  # Of vectors, in test_emitted_divisions.py.
    if operation.operands[-1] in (i32, u32) and not divides:
        yield on_cpu(operation, Execution(), lanes=2)
        if operation.name == tt.MulHiUI.NAME:
            yield on_cpu(operation, Execution(), lanes=8)


def is_defined(operation: Operation, *values: Any) -> list[Any]:
    """Division by 0 is undefined."""
    return [values[1] != 0] if operation.name in (arith.DivUI.NAME, arith.RemUI.NAME) else []


def prove_emission(machine: str, operation: Operation) -> None:
    op = operation.op()
    for text in FORMS[machine](operation):
        text.prove(lambda *values: meaning(op, *values), lambda *values: is_defined(operation, *values))


NAMES = list(dict.fromkeys(operation.name for operation in OPERATIONS))


@pytest.mark.parametrize("machine", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_the_text_means_the_op(name: str, machine: str) -> None:
    """At all widths."""
    for operation in OPERATIONS:
        if operation.name == name:
            prove_emission(machine, operation)


# What registers share is computed once: indices of a tensor are a value of the thread and constants.

LAYOUT = "1 2 | 4 8 16 32 64 |"  # A thread has four neighbours.
PROGRAMS = (
    "%s : T = tt.splat %0; %r : T = arith.addi %i %s;",
    "%c : T = arith.constant @-7; %d : T = arith.addi %i %c; %e : T = arith.addi %d %i; %r : T = arith.addi %e %c;",
    "%s : T = tt.splat %0; %d : T = arith.addi %s %i; %e : T = arith.addi %i %d; %r : T = arith.addi %e %s;",
    "%c : T = arith.constant @12; %d : T = arith.muli %i %c; %e : T = arith.addi %d %d; %r : T = arith.muli %c %e;",
    "%s : T = tt.splat %0; %r : T = arith.muli %i %s;",
    "%s : T = tt.splat %0; %c : T = arith.constant @64; %d : T = arith.addi %i %c; %r : T = arith.muli %s %d;",
    "%s : T = tt.splat %0; %d : T = arith.muli %i %s; %r : T = arith.muli %d %s;",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_registers_share_values(program: str) -> None:
    prove_program(program)


def prove_program(program: str) -> None:
    """Prove that each value of a program of tensors is what its op makes of its operands. %i has the indices."""
    lines = f"%i : T = tt.make_range @start=0 @end=128; {program}"
    emitter, names = emit_ptx(lines.replace(": T", f': tensor<x128, i32, "{LAYOUT}">'), "%0 : i32")
    thread, values = z3.BitVec("thread", 32), dict[str, Value]({"%p0": symbol("%p0", "i32")})
    execution = Execution({"read": lambda: thread})
    execution.run([*emitter.preamble, *emitter.lines], values)
    func = function_of(emitter.module)
    terms: dict[Any, list[Any]] = {func.body.parameters[0]: [z3.BitVec("%p0", 32)] * REGISTERS}
    for op, registers in zip(func.body.entry.ops, names, strict=False):
        terms[op.result] = [number_of(values, "i32", name).term for name in registers]
        for register, (name, term) in enumerate(zip(registers, terms[op.result], strict=True)):
            match op:
                case tt.MakeRange():
                    expected = REGISTERS * (thread & 31) + register
                case tt.Splat():
                    expected = terms[op.value][register]
                case arith.ConstantOp():
                    expected = z3.BitVecVal(op.value, 32)
                case _:
                    expected = meaning(op, *(terms[operand][register] for operand in op.operands))
            prove(z3.And(term == expected, z3.Not(number_of(values, "i32", name).poison)))


# Faults, each of which a proof above finds.


def rule(machine: str, cls: type[Op], scalar: ScalarType, *more: ScalarType) -> Callable[[], None]:
    operands = (scalar,) * (1 if cls in UNARY or more else 2)
    return lambda: prove_emission(machine, Operation(cls.NAME, operands, *(more or [scalar])))


FAULTS: list[tuple[Fault, Callable[[], object]]] = [
    (edit(elementwise._shift, "int(by.name) < bits", "int(by.name) <= bits"), rule("gpu", arith.ShlI, i8)),
    (edit(elementwise._shift, "bits - 1)", "bits)"), rule("cpu", arith.ShrSI, i32)),
    (edit(elementwise._shift, '"ult"', '"ule"'), rule("gpu", arith.ShrUI, u64)),
    (edit(elementwise._shift, '.select(instruction(opcode, a, by), 0)', '.select(instruction(opcode, a, by), a)'),
     rule("cpu", arith.ShlI, i16)),
    (edit(elementwise._high, ">> bits)", ">> bits - 1)"), rule("gpu", tt.MulHiUI, u8)),
    (edit(elementwise._absolute, "scalar_element(op.operand.type).signed", "True"), rule("cpu", maths.AbsI, u16)),
    (entry(elementwise._RESIZED, arith.ExtSI, "zext"), rule("cpu", arith.ExtSI, i8, i64)),
    (entry(elementwise.INSTRUCTIONS, arith.MaxUI, "llvm.smax"), rule("gpu", arith.MaxUI, u64)),
    (entry(elementwise.INSTRUCTIONS, arith.DivUI, "urem"), rule("cpu", arith.DivUI, u32)),
    (edit(bytes_in_words._sum, "(a & _LOW)", "a"), rule("gpu", arith.AddI, i8)),
    (edit(bytes_in_words._difference, "(a | _HIGH)", "a"), rule("gpu", arith.SubI, u8)),
    (edit(bytes_in_words._word, "(0xFF >> by)", "0xFF"), rule("gpu", arith.ShrUI, u8)),
    (edit(packed_words.unpack, "8 * size * index", "8 * index + 1"), rule("gpu", arith.XOrI, i8)),
    (edit(cpu_ops._upper_half, "& 0xFFFFFFFF00000000", "& 0xFFFFFFFFF0000000"), rule("cpu", tt.MulHiUI, u32)),
    (edit(elementwise_ops._add, "emitter.offset(kind, sums[x, y], i + j)", "emitter.offset(kind, sums[x, y], i | j)"),
     lambda: prove_program(PROGRAMS[1])),
    (edit(elementwise_ops._multiply, "last[x, b] = i,", "last[x, b] = before,"), lambda: prove_program(PROGRAMS[4])),
    (edit(elementwise_ops._multiply, "i * j)", "i + j)"), lambda: prove_program(PROGRAMS[3])),
]  # fmt: skip

test_planted_faults = must_find(FAULTS)
