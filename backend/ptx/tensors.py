"""Emission of ops that make, reshape and move tensors within a thread; most emit no instruction."""

from __future__ import annotations

from ziggurat.backend.llvm.routines import llvm_type
from ziggurat.backend.ptx.emitter import EFFECT, EFFECT_OF_THREAD, Emitted, PtxEmitter, emits, spread
from ziggurat.codemodel import layout as layouts
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.analysis.queries import function_of, layout_of, registers_alike, tensor_of

_REGISTERS: dict[type[Op], str] = {tt.GetProgramId: "ctaid", tt.GetNumPrograms: "nctaid"}


def special_register(emitter: PtxEmitter, name: str) -> str:
    """An i32 of the CTA from one of PTX's special registers."""
    return emitter.once(name, lambda: emitter.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}"))


@emits(*_REGISTERS)
def _grid(emitter: PtxEmitter, op: tt.Grid) -> Emitted:
    return special_register(emitter, grid_register(emitter, _REGISTERS[type(op)], op.axis))


def grid_register(emitter: PtxEmitter, name: str, axis: int) -> str:
    """The special register "ctaid" or "nctaid" of programs. Where they are clusters, these are along the first axis."""
    if axis == 0 and function_of(emitter.module).num_ctas > 1:
        name = name.replace("cta", "cluster")
    return f"{name}.{'xyz'[axis]}"


@emits(tt.SmId)
def _smid(emitter: PtxEmitter, op: tt.SmId) -> Emitted:
    return special_register(emitter, "smid")


@emits(tt.GlobalTimer)
def _globaltimer(emitter: PtxEmitter, op: tt.GlobalTimer) -> Emitted:
    return timer(emitter)


def timer(emitter: PtxEmitter) -> str:
    """Read the timer by assembly: LLVM may move loads and stores over its intrinsic."""
    return emitter.asm(("i64",), "mov.u64 $0, %globaltimer;", effect=EFFECT_OF_THREAD)[0]


@emits(tt.MakeRange)
def _make_range(emitter: PtxEmitter, op: tt.MakeRange) -> Emitted:
    layout = layout_of(op.result.type)
    bases = layout.threads
    thread = emitter.linear(bases)
    values: list[str] = []
    for register in range(layout.num_registers):
        constant = layout.element(register)
        if constant & spread(bases):
            number = emitter.emit(f"xor i32 {thread}, {constant}")
            number = emitter.emit(f"add i32 {number}, {op.start}") if op.start else number
        elif constant + op.start:
            # A range that begins below zero wraps as an unsigned sum.
            flags = "nuw nsw" if constant + op.start > 0 else "nsw"
            number = emitter.offset("i32", thread, constant + op.start, flags + " ")
        else:
            number = thread
        values.append(number)
    return values


@emits(tt.Splat)
def _splat(emitter: PtxEmitter, op: tt.Splat) -> Emitted:
    return [emitter.scalar(op.value)] * layout_of(op.type).num_registers


def moved(values: list[str], source: Layout, target: Layout, numel: int) -> list[str] | None:
    """The registers of the target layout, from those of the source layout in the same thread; None where some are in
    another thread."""
    registers = layouts.moved(source, target, numel)
    return None if registers is None else [values[register] for register in registers]


def _within_threads(values: list[str], source: Layout, target: Layout, op: Op) -> list[str]:
    results = moved(values, source, target, source.numel)
    if results is None:
        raise InternalError(f"a {op.NAME} between threads is left; it should have been converted", str(op.root()))
    return results


@emits(tt.Broadcast)
def _broadcast(emitter: PtxEmitter, op: tt.Broadcast) -> Emitted:
    """Look elements up by the target's coordinates without the axes of size 1."""
    source, target = tensor_of(op.value), tensor_of(op.result)
    narrow = layout_of(target).narrowed(target.shape, source.shape)
    return _within_threads(emitter.tensor(op.value), layout_of(source), narrow, op)


@emits(tt.Reshape, tt.ExpandDims, tt.Trans)
def _reshape(emitter: PtxEmitter, op: tt.Reshape | tt.ExpandDims | tt.Trans) -> Emitted:
    """Keep the registers; only the numbers of the elements change. A scalar result is the one element."""
    values = emitter.tensor(op.value)
    if not isinstance(op.result.type, TensorType):
        return values[0]
    if not isinstance(op, tt.Reshape):
        return values
    return _within_threads(values, layout_of(op.value.type), layout_of(op.result.type), op)


@emits(tt.Join)
def _join(emitter: PtxEmitter, op: tt.Join) -> Emitted:
    if isinstance(op.lhs.type, TensorType):
        pairs = zip(emitter.tensor(op.lhs), emitter.tensor(op.rhs), strict=True)
        return [value for pair in pairs for value in pair]
    # Every thread has both scalars. Each register chooses one by its element.
    layout, kind = layout_of(op.result.type), llvm_type(op.lhs.type)
    tests = [emitter.emit(f"icmp eq i32 {emitter.element(layout, r)}, 1") for r in range(layout.num_registers)]
    first, second = emitter.scalar(op.lhs), emitter.scalar(op.rhs)
    return [emitter.emit(f"select i1 {test}, {kind} {second}, {kind} {first}") for test in tests]


@emits(tt.Split)
def _split(emitter: PtxEmitter, op: tt.Split) -> Emitted:
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
def _cat(emitter: PtxEmitter, op: tt.Cat) -> Emitted:
    return [*emitter.tensor(op.lhs), *emitter.tensor(op.rhs)]


@emits(tt.MultipleOf, tt.MaxContiguous, tt.Bitcast)
def _same(emitter: PtxEmitter, op: tt.Hint | tt.Bitcast) -> Emitted:
    return emitter.values[op.value]


@emits(tt.MaxConstancy)
def _max_constancy(emitter: PtxEmitter, op: tt.MaxConstancy) -> Emitted:
    """Use the first register of each run for all; the others are then dead code."""
    type_ = op.value.type
    if not isinstance(type_, TensorType):
        return emitter.values[op.value]
    alike, values = registers_alike(type_, op.values), emitter.tensor(op.value)
    return [values[register & ~alike] for register in range(layout_of(type_).num_registers)]


@emits(tt.Assume)
def _assume(emitter: PtxEmitter, op: tt.Assume) -> Emitted:
    emitter.call("void", "llvm.assume", ("i1", emitter.scalar(op.condition)))


@emits(tt.Poison)
def _poison(emitter: PtxEmitter, op: tt.Poison) -> Emitted:
    return ["poison"] * layout_of(op.type).num_registers if isinstance(op.type, TensorType) else "poison"


@emits(tt.GridDependencyWait, tt.GridDependencyLaunch)
def _grid_dependency(emitter: PtxEmitter, op: tt.GridDependencyWait | tt.GridDependencyLaunch) -> Emitted:
    if emitter.target.has_dependent_launches:
        action = "wait" if isinstance(op, tt.GridDependencyWait) else "launch_dependents"
        emitter.asm((), f"griddepcontrol.{action};", effect=EFFECT)


@emits(tt.Barrier, gpu.Barrier)
def _barrier(emitter: PtxEmitter, op: tt.Barrier | gpu.Barrier) -> Emitted:
    emitter.barrier()
    if isinstance(op, tt.Barrier) and op.scope is not tt.MemScope.CTA:
        # Each thread fences: one of them may have read a flag before, or write one after. What others did before comes
        # before their barrier, and what they do after comes after the second one.
        emitter.asm((), f"fence.acq_rel.{op.scope.value};", effect=EFFECT)
        emitter.barrier()
