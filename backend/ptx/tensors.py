"""Emission of ops that make, reshape and move tensors within a thread; most emit no instruction."""

from __future__ import annotations

import math

from ziggurat.backend.ptx.emitter import Emitted, Emitter, canonical, emits, emitted_type, is_tensor, layout_of
from ziggurat.codemodel import layout as layouts
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.types import TensorType, Type


@emits(tt.GetProgramId, tt.GetNumPrograms)
def _grid(emitter: Emitter, op: tt.Grid) -> Emitted:
    register = "ctaid" if isinstance(op, tt.GetProgramId) else "nctaid"
    name = f"llvm.nvvm.read.ptx.sreg.{register}.{'xyz'[op.axis]}"
    return emitter.once(name, lambda: emitter.call("i32", name))


@emits(tt.SmId)
def _smid(emitter: Emitter, op: tt.SmId) -> Emitted:
    name = "llvm.nvvm.read.ptx.sreg.smid"
    return emitter.once(name, lambda: emitter.call("i32", name))


@emits(tt.GlobalTimer)
def _globaltimer(emitter: Emitter, op: tt.GlobalTimer) -> Emitted:
    """Read the timer by assembly: LLVM may move loads and stores over its intrinsic."""
    return emitter.asm("i64", "mov.u64 $0, %globaltimer;", "=l,~{memory}", effect=True, convergent=False)


@emits(tt.MakeRange)
def _make_range(emitter: Emitter, op: tt.MakeRange) -> Emitted:
    layout = layout_of(op.result.type)
    bases = emitter.thread_bases(layout)
    thread = emitter.linear(bases)
    spread = 0
    for basis in bases:
        spread |= basis
    values: list[str] = []
    for register in range(layout.num_registers):
        constant = layout.element(register)
        if constant & spread:
            number = emitter.emit(f"xor i32 {thread}, {constant}")
            number = emitter.emit(f"add i32 {number}, {op.start}") if op.start else number
        elif constant + op.start:
            # A range that begins below zero wraps as an unsigned sum.
            flags = "nuw nsw" if constant + op.start > 0 else "nsw"
            number = emitter.emit(f"add {flags} i32 {thread}, {constant + op.start}")
        else:
            number = thread
        values.append(number)
    return values


@emits(tt.Splat)
def _splat(emitter: Emitter, op: tt.Splat) -> Emitted:
    return [emitter.scalar(op.value)] * layout_of(op.type).num_registers


def moved(values: list[str], source: Layout, target: Layout, numel: int) -> list[str] | None:
    """The registers of the target layout, from those of the source layout in the same thread; None where some are in
    another thread."""
    registers = layouts.moved(source, target, numel)
    return None if registers is None else [values[register] for register in registers]


@emits(tt.Broadcast)
def _broadcast(emitter: Emitter, op: tt.Broadcast) -> Emitted:
    """Look elements up by the target's coordinates without the axes of size 1."""
    source, target = op.value.type, op.type
    assert isinstance(source, TensorType) and isinstance(target, TensorType)
    narrow = layout_of(target).narrowed(target.shape, source.shape)
    made = moved(emitter.tensor(op.value), layout_of(source), narrow, source.numel)
    if made is None:
        raise InternalError("a broadcast between threads is left; it should have been converted", str(op.root()))
    return made


@emits(tt.Reshape, tt.ExpandDims, tt.Trans)
def _reshape(emitter: Emitter, op: tt.Reshape | tt.ExpandDims | tt.Trans) -> Emitted:
    """Keep the registers; only the numbers of the elements change. A scalar result is the one element."""
    values = emitter.tensor(op.value)
    if not is_tensor(op.result.type):
        return values[0]
    target, source = op.result.type, op.value.type
    assert isinstance(target, TensorType) and isinstance(source, TensorType)
    if isinstance(op, tt.Reshape) and layout_of(target) != layout_of(source):
        made = moved(values, layout_of(source), layout_of(target), source.numel)
        if made is None:
            raise InternalError("a reshape between threads is left; it should have been converted", str(op.root()))
        return made
    return values


@emits(tt.Join)
def _join(emitter: Emitter, op: tt.Join) -> Emitted:
    if not is_tensor(op.lhs.type):
        pair = [emitter.scalar(op.lhs), emitter.scalar(op.rhs)]
        return _placed(pair, layout_of(op.result.type), emitter, op.lhs.type)
    pairs = zip(emitter.tensor(op.lhs), emitter.tensor(op.rhs), strict=True)
    return [value for pair in pairs for value in pair]


def _placed(values: list[str], layout: Layout, emitter: Emitter, type_: Type) -> list[str]:
    """Values that every thread has, as a tensor in a layout: each register chooses by the thread's number."""
    kind = emitted_type(type_)
    thread = emitter.linear(emitter.thread_bases(layout))
    chosen: list[str] = []
    for register in range(layout.num_registers):
        number = emitter.emit(f"xor i32 {thread}, {layout.element(register)}")
        result = values[0]
        for index, value in enumerate(values[1:], 1):
            test = emitter.emit(f"icmp eq i32 {number}, {index}")
            result = emitter.emit(f"select i1 {test}, {kind} {value}, {kind} {result}")
        chosen.append(result)
    return chosen


@emits(tt.Split)
def _split(emitter: Emitter, op: tt.Split) -> Emitted:
    layout = layout_of(op.value.type)
    bit = layout.registers.index(1)
    values = emitter.tensor(op.value)
    halves: list[list[str]] = [[], []]
    for register, value in enumerate(values):
        halves[register >> bit & 1].append(value)
    if len(op.value.type.shape) == 1:  # type: ignore[attr-defined]
        return halves[0][0], halves[1][0]  # Two scalars. (Two elements in more axes give two tensors of one.)
    return halves[0], halves[1]


@emits(tt.Cat)
def _cat(emitter: Emitter, op: tt.Cat) -> Emitted:
    return [*emitter.tensor(op.lhs), *emitter.tensor(op.rhs)]


@emits(tt.MultipleOf, tt.MaxContiguous)
def _hint(emitter: Emitter, op: tt.Hint) -> Emitted:
    return emitter.values[op.value]


@emits(tt.MaxConstancy)
def _max_constancy(emitter: Emitter, op: tt.MaxConstancy) -> Emitted:
    """Use the first register of each run for all; the others are then dead code."""
    type_ = op.value.type
    if not isinstance(type_, TensorType):
        return emitter.values[op.value]
    layout, inside = layout_of(type_), 0
    for axis, (run, size) in enumerate(zip(op.values, type_.shape, strict=True)):
        # Runs begin at multiples of the largest power of two in them.
        inside |= (min(run & -run, size) - 1) << layouts.bits_of(math.prod(type_.shape[axis + 1 :]))
    same = sum(1 << bit for bit, basis in enumerate(layout.registers) if not basis & ~inside)
    values = emitter.tensor(op.value)
    return [values[register & ~same] for register in range(layout.num_registers)]


@emits(tt.Assume)
def _assume(emitter: Emitter, op: tt.Assume) -> Emitted:
    emitter.call("void", "llvm.assume", ("i1", emitter.scalar(op.condition)))


@emits(tt.Poison)
def _poison(emitter: Emitter, op: tt.Poison) -> Emitted:
    if is_tensor(op.type):
        return ["poison"] * layout_of(op.type).num_registers
    return "poison"


@emits(tt.Barrier, gpu.Barrier)
def _barrier(emitter: Emitter, op: gpu.Barrier) -> Emitted:
    emitter.barrier()


def unique_registers(layout: Layout) -> list[int]:
    """The registers that are not copies of lower ones."""
    return [register for register in range(layout.num_registers) if canonical(layout, register) == register]
