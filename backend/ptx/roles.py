"""Emission of warp specialisation: producer and consumer warps run bodies of their own, with registers of their own.

Consumer warps come first, so that a thread's number means the same as in a kernel without roles. They have a named
barrier of their own.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import EFFECT, Emitted, Emitter, emits
from ziggurat.backend.ptx.shuffles import uniform
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.transforms.place.pressure import REGISTERS_OF_SM, ctas_by_registers
from ziggurat.transforms.place.queries import WARP_GROUP

_CONSUMER_BARRIER = 1  # The number of the named barrier; 0 is that of the CTA.
ALL_THREADS = 1023  # The mask of the elected thread of a CTA with roles.


def specialization_of(module: gpu.Module) -> gpu.WarpSpecialize | None:
    """The op that splits a kernel into roles, if it has one."""
    return next((op for op in module.walk() if isinstance(op, gpu.WarpSpecialize)), None)


def warps_of(module: gpu.Module) -> int:
    """The warps of a CTA, producer warps included."""
    split = specialization_of(module)
    return module.num_warps if split is None else sum(split.warps)


def registers_of(module: gpu.Module) -> int | None:
    """The registers a thread at the launch, where roles trade them; None without roles."""
    split = specialization_of(module)
    if split is None:
        return None
    return REGISTERS_OF_SM // ctas_by_registers(split) // (32 * sum(split.warps)) // 8 * 8


@emits(gpu.WarpId)
def _warp_id(emitter: Emitter, op: gpu.WarpId) -> Emitted:
    return uniform(emitter, 5)


@emits(gpu.WarpSpecialize)
def _warp_specialize(emitter: Emitter, op: gpu.WarpSpecialize) -> Emitted:
    consumer, producer = op.roles
    if op.warps[0] != emitter.num_warps or any(count % WARP_GROUP for count in op.warps):
        raise InternalError(
            f"roles must have whole warp groups, {emitter.num_warps} consumer warps first; got {list(op.warps)}",
            str(op.root()),
        )
    start = registers_of(emitter.module)
    assert start is not None
    if sum(warps * registers for warps, registers in zip(op.warps, op.registers, strict=True)) > start * sum(op.warps):
        raise InternalError("roles must not ask for more registers than their threads begin with", str(op.root()))
    warp = uniform(emitter, 5)
    consume, others, produce, over = (emitter.name(hint) for hint in ("consume", "others", "produce", "over"))
    consumes = emitter.emit(f"icmp ult i32 {warp}, {emitter.num_warps}")
    emitter.line(f"br i1 {consumes}, label %{consume}, label %{others}")

    emitter.start(consume)
    _registers(emitter, "inc" if op.registers[0] > start else "dec", op.registers[0])
    own = 32 * emitter.num_warps
    outer = emitter.barrier_text, emitter.elected_mask
    emitter.barrier_text, emitter.elected_mask = f"bar.sync {_CONSUMER_BARRIER}, {own};", own - 1
    emitter.ops(consumer.entry.ops[:-1])
    emitter.line(f"br label %{over}")

    emitter.start(others)
    _registers(emitter, "dec", op.registers[1])
    first = emitter.emit(f"icmp eq i32 {warp}, {emitter.num_warps}")
    emitter.line(f"br i1 {first}, label %{produce}, label %{over}")
    emitter.start(produce)
    emitter.barrier_text = outer[0]
    emitter.ops(producer.entry.ops[:-1])
    emitter.elected_mask = outer[1]
    emitter.line(f"br label %{over}")
    emitter.start(over)


def _registers(emitter: Emitter, way: str, count: int) -> None:
    emitter.asm((), f"setmaxnreg.{way}.sync.aligned.u32 {count};", effect=EFFECT)
