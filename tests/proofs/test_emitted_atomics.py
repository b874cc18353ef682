"""The PTX of atomic accesses: each is an update of one cell by one thread, by the instruction that means its op.

What is in memory before is unknown, as the order of the threads is open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import z3
from emitted_threads import THREAD, Atomic, memory_bits, prove_defined, run
from llvm_numbers import of_bits
from planted import Fault, edit, entry, must_find
from proving import Refuted, prove

from ziggurat.backend.llvm.routines import llvm_type
from ziggurat.backend.ptx import atomics
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.layout import Layout, parse_layout
from ziggurat.codemodel.types import SCALARS, PtrType, ScalarType, TensorType, i1

RUNS = parse_layout("1 2 | 4 8 16 32 64 |")
COPIES = parse_layout("1 | 2 4 0 8 16 |")  # Two lanes have the same elements.

# The words after an instruction, by its name (PTX ISA, "atom"), of those before it and of the operands.
INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "add.u": lambda old, word: old + word, "and.b": lambda old, word: old & word, "or.b": lambda old, word: old | word,
    "xor.b": lambda old, word: old ^ word, "exch.b": lambda old, word: word, "st.b": lambda old, word: word,
    "ld.b": lambda old: old, "max.s": lambda old, word: z3.If(old > word, old, word),
    "min.s": lambda old, word: z3.If(old < word, old, word),
    "max.u": lambda old, word: z3.If(z3.UGT(old, word), old, word),
    "min.u": lambda old, word: z3.If(z3.ULT(old, word), old, word),
    "cas.b": lambda old, compare, word: z3.If(old == compare, word, old),
}  # fmt: skip
# The element after an op, of integers.
MEANINGS: dict[AtomicKind, Callable[[Any, Any], Any]] = {
    AtomicKind.ADD: lambda a, b: a + b, AtomicKind.AND: lambda a, b: a & b, AtomicKind.OR: lambda a, b: a | b,
    AtomicKind.XOR: lambda a, b: a ^ b, AtomicKind.XCHG: lambda a, b: b,
    AtomicKind.MAX: lambda a, b: z3.If(a >= b, a, b), AtomicKind.MIN: lambda a, b: z3.If(a <= b, a, b),
    AtomicKind.UMAX: lambda a, b: z3.If(z3.UGE(a, b), a, b), AtomicKind.UMIN: lambda a, b: z3.If(z3.ULE(a, b), a, b),
}  # fmt: skip


def after(atomic: Atomic, old: Any) -> Any:
    """The word in memory after an instruction."""
    name = atomic.name.rstrip("0123456789")
    assert atomic.name == f"{name}{old.size()}", atomic.name
    return z3.If(atomic.condition, INSTRUCTIONS[name](old, *atomic.words), old)


def typed(scalar: Any, layout: Layout) -> TensorType:
    return TensorType((layout.numel,), scalar, layout)


def owns(layout: Layout) -> Any:
    return THREAD & layout.free[1] == 0


def prove_cells(
    text: Any,
    layout: Layout,
    scalar: ScalarType,
    meaning: Callable[..., Any],
    *,
    masked: bool,
    has_result: bool,
    count: int = 1,
) -> None:
    """Prove that each element is updated once, as it is meant, by the thread that owns it, and that all threads with a
    copy of the element get what was there. There are `count` instructions for an element, at most one of which runs."""
    pointers, *values = text.parameters
    masks = values.pop() if masked else [z3.BitVecVal(1, 1)] * len(pointers)
    facts = [z3.ULT(THREAD, 32), *(pointer & memory_bits(scalar) // 8 - 1 == 0 for pointer in pointers)]
    prove_defined(text.execution, facts)
    cells = [atomic for atomic in text.execution.atomics if atomic.address is not None]
    registers = layout.unique_registers
    if len(cells) != count * len(registers):
        raise Refuted(f"{len(cells)} accesses of {len(registers)} elements")
    for at, register in enumerate(registers):
        own, pointer = cells[count * at : count * (at + 1)], pointers[register]
        holds = z3.And(owns(layout), masks[register] == 1)
        old = z3.BitVec("old", memory_bits(scalar))
        for cell in own:
            prove(z3.And(cell.address == pointer, z3.Implies(cell.condition, holds)), facts)
        new = old
        for cell in own:
            new = after(cell, new)
        prove(z3.Implies(z3.Not(holds), new == old), facts)
        prove(z3.Implies(holds, meaning(old, new, *(value[register] for value in values))), facts)
        if has_result:
            place = z3.Function(str(own[0].old[0].decl()), z3.BitVecSort(64), z3.BitVecSort(old.size()))(pointer)
            result = text.results[register]
            prove(z3.Implies(masks[register] == 1, z3.And(z3.Not(result.poison), result.bits() == place)), facts)


def prove_update(
    kind: AtomicKind, scalar: ScalarType, layout: Layout = RUNS, *, masked: bool = True, has_result: bool = True,
    order: str = "relaxed", target: str = "sm_90a",
) -> None:  # fmt: skip
    types = {"%0": typed(PtrType(scalar), layout), "%1": typed(scalar, layout)}
    types |= {"%2": typed(i1, layout)} if masked else {}
    type_ = typed(scalar, layout)
    lines = f"%r : {type_} = tt.atomic_rmw {' '.join(types)} @{kind.value} @sem={order} @scope=gpu;"
    lines += f" %s : {type_} = tt.reshape %r;" if has_result else ""
    text = run(lines, types, target)
    if scalar.is_float and kind in (AtomicKind.FMAX, AtomicKind.FMIN):

        def meaning(old: Any, new: Any, value: Any) -> Any:
            a, b, c = (of_bits(llvm_type(scalar), bits).term for bits in (old, value, new))
            better = z3.fpGEQ if kind is AtomicKind.FMAX else z3.fpLEQ
            is_better = z3.And(z3.Or(new == old, new == value), better(c, a), better(c, b))
            numbers = z3.And(z3.Not(z3.fpIsNaN(a)), z3.Not(z3.fpIsNaN(b)))
            return z3.And(z3.Implies(numbers, is_better), z3.Implies(z3.fpIsNaN(b), z3.Or(new == old, z3.fpIsNaN(a))))

        prove_cells(text, layout, scalar, meaning, masked=masked, has_result=False, count=2)
    else:
        prove_cells(
            text,
            layout,
            scalar,
            lambda old, new, value: new == MEANINGS[kind](old, value),
            masked=masked,
            has_result=has_result,
        )
    prove_order(text, order, len(layout.unique_registers), has_result=has_result, layout=layout)


def prove_order(text: Any, order: str, count: int, *, has_result: bool, layout: Layout) -> None:
    """One access has its order; several have fences before and after, of the threads that access."""
    cells = [atomic for atomic in text.execution.atomics if atomic.address is not None]
    barriers = [atomic for atomic in text.execution.atomics if atomic.name.startswith("bar.")]
    fences = [atomic for atomic in text.execution.atomics if atomic.name.startswith("fence.")]
    if any(atomic.scope != "gpu" for atomic in cells) or not all(fence.name.endswith(".gpu") for fence in fences):
        raise Refuted("another scope")
    releases, acquires = order in ("release", "acq_rel"), order in ("acquire", "acq_rel")
    acquires = acquires and has_result
    if releases and text.execution.atomics[:1] != barriers[:1]:
        raise Refuted("no barrier before a release")
    steps = [atomic for atomic in text.execution.atomics if atomic not in barriers]
    first, last = steps[0], steps[-1]
    ordered = [atomic.order for atomic in cells]
    if count > 1:
        right = (first in fences) >= releases and (last in fences) >= acquires
        for fence in fences:
            prove(z3.Implies(owns(layout), fence.condition))
    else:
        right = all(
            (not releases or each in ("release", "acq_rel")) and (not acquires or each in ("acquire", "acq_rel"))
            for each in ordered
        )
    if not right:
        raise Refuted(f"{order}: {[atomic.name for atomic in text.execution.atomics]} {ordered}")


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("kind", MEANINGS)
def test_updates_of_integers(kind: AtomicKind, name: str) -> None:
    for layout in (RUNS, COPIES):
        for masked in (False, True):
            prove_update(kind, SCALARS[name], layout, masked=masked)
    prove_update(kind, SCALARS[name], has_result=False)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("kind", [AtomicKind.FMAX, AtomicKind.FMIN])
def test_extremes_of_floats(kind: AtomicKind, name: str) -> None:
    """By two instructions on integers, of which one runs. A NaN that is passed changes nothing."""
    prove_update(kind, SCALARS[name], parse_layout("| 1 2 4 8 16 |"), has_result=False)


@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel"])
def test_orders(order: str) -> None:
    for has_result in (False, True):
        prove_update(AtomicKind.ADD, SCALARS["i32"], RUNS, has_result=has_result, order=order)
        prove_update(AtomicKind.ADD, SCALARS["i32"], parse_layout("| 1 2 4 8 16 |"), has_result=has_result, order=order)


def prove_swap(scalar: ScalarType, layout: Layout = RUNS) -> None:
    type_ = typed(scalar, layout)
    types = {"%0": typed(PtrType(scalar), layout), "%1": type_, "%2": type_}
    lines = f"%r : {type_} = tt.atomic_cas %0 %1 %2 @sem=relaxed @scope=gpu; %s : {type_} = tt.reshape %r;"
    text = run(lines, types)

    def meaning(old: Any, new: Any, compare: Any, value: Any) -> Any:
        return new == z3.If(old == compare, value, old)

    prove_cells(text, layout, scalar, meaning, masked=False, has_result=True)


@pytest.mark.parametrize("name", ["i16", "i32", "i64", "f32"])
def test_swaps(name: str) -> None:
    for layout in (RUNS, COPIES):
        prove_swap(SCALARS[name], layout)


# Faults, each of which a proof above finds.


def all_orders() -> None:
    for order in ("acquire", "release", "acq_rel"):
        test_orders(order)


I32 = SCALARS["i32"]
FAULTS: list[tuple[Fault, Callable[[], object]]] = [
    (entry(atomics._INTEGERS, AtomicKind.MAX, "max.u"), lambda: prove_update(AtomicKind.MAX, I32)),
    (entry(atomics._INTEGERS, AtomicKind.OR, "xor.b"), lambda: prove_update(AtomicKind.OR, I32)),
    (edit(atomics._rmw, "emitter.both(owner, emitter.mask(op.mask, first))", "emitter.mask(op.mask, first)"),
     lambda: prove_update(AtomicKind.ADD, I32, COPIES)),
    (edit(atomics._rmw, "emitter.mask(op.mask, first)", "emitter.mask(op.mask, 0)"),
     lambda: prove_update(AtomicKind.ADD, I32)),
    (edit(atomics._rmw, "emitter.at(op.ptr, first)", "emitter.at(op.ptr, 0)"),
     lambda: prove_update(AtomicKind.ADD, I32)),
    (edit(atomics._rmw, "emitter.at(op.value, first)", "emitter.at(op.value, 0)"),
     lambda: prove_update(AtomicKind.ADD, I32)),
    (edit(atomics._float_choice, '("sge", "slt")', '("slt", "sge")'),
     lambda: prove_update(AtomicKind.FMAX, SCALARS["f32"], has_result=False)),
    (edit(atomics._float_choice, "-math.inf if kind is AtomicKind.FMAX else math.inf", "math.inf"),
     lambda: prove_update(AtomicKind.FMAX, SCALARS["f32"], has_result=False)),
    (edit(atomics._float_choice, "emitter.both(mask, negative)", "mask"),
     lambda: prove_update(AtomicKind.FMIN, SCALARS["f32"], has_result=False)),
    (edit(atomics._cas, "[expected], [new]", "[new], [expected]"), lambda: prove_swap(I32)),
    (edit(atomics._cas, "(op.compare, op.value)", "(op.compare, op.compare)"), lambda: prove_swap(I32)),
    (edit(atomics._Access.by_owners, "if self.sem is not order and order.releases:", "if False:"), all_orders),
    (edit(atomics._Access.by_owners, "if self.sem is not order and order.acquires:", "if False:"), all_orders),
    (edit(atomics._Access.fence, "{self.op.scope.value}", "cta"), all_orders),
    (edit(atomics._Access.by_owners, "shared_out(emitter, type_, self.scalar, registers)",
          "emitter.value(type_, registers)"), lambda: prove_update(AtomicKind.ADD, I32, COPIES)),
]  # fmt: skip

test_planted_faults = must_find(FAULTS)
