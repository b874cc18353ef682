"""Emission of warp specialisation: the program's warps part ways, each role with registers of its own.

The warps that compute come first, so that a thread's number means there what it means in a program without roles. Their
barrier is not the program's: it counts only them.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.transforms.place.pressure import REGISTERS_OF_SM

_WARP_GROUP = 4
_COMPUTING_BARRIER = 1  # Its number; 0 is the program's.
ALL_THREADS = 1023  # Of the threads of all roles, the first is the one whose number has none of these bits.


def specialization_of(module: gpu.Module) -> gpu.WarpSpecialize | None:
    """The op that splits a kernel into roles, if it has one."""
    return next((op for op in module.walk() if isinstance(op, gpu.WarpSpecialize)), None)


def warps_of(module: gpu.Module) -> int:
    """How many warps run a program, those that only fetch included."""
    split = specialization_of(module)
    return module.num_warps if split is None else sum(split.warps)


def registers_of(module: gpu.Module) -> int | None:
    """The registers that each thread begins with, where roles trade them."""
    split = specialization_of(module)
    if split is None:
        return None
    asked = sum(warps * registers for warps, registers in zip(split.warps, split.registers, strict=True))
    # As many programs as there is room for with what they ask for.
    programs = REGISTERS_OF_SM // (32 * asked)
    return REGISTERS_OF_SM // programs // (32 * sum(split.warps)) // 8 * 8


@emits(gpu.WarpId)
def _warp_id(emitter: Emitter, op: gpu.WarpId) -> Emitted:
    return _warp(emitter)


def _warp(emitter: Emitter) -> str:
    """The number of the warp, the same in all lanes: which the machine does not know of the thread's number."""
    warp = emitter.emit(f"lshr i32 {emitter.thread()}, 5")
    return emitter.call("i32", "llvm.nvvm.shfl.sync.idx.i32", ("i32", "-1"), ("i32", warp), ("i32", "0"), ("i32", "31"))


@emits(gpu.WarpSpecialize)
def _warp_specialize(emitter: Emitter, op: gpu.WarpSpecialize) -> Emitted:
    computing, fetching = op.roles
    if op.warps[0] != emitter.num_warps or any(count % _WARP_GROUP for count in op.warps):
        raise InternalError(f"roles of {list(op.warps)} warps in a kernel of {emitter.num_warps}", str(op.root()))
    start = registers_of(emitter.module)
    assert start is not None
    if sum(warps * registers for warps, registers in zip(op.warps, op.registers, strict=True)) > start * sum(op.warps):
        raise InternalError("roles that ask for more registers than their threads begin with", str(op.root()))
    warp = _warp(emitter)
    compute, others, fetch, over = (emitter.name(hint) for hint in ("compute", "others", "fetch", "over"))
    computes = emitter.emit(f"icmp ult i32 {warp}, {emitter.num_warps}")
    emitter.line(f"br i1 {computes}, label %{compute}, label %{others}")

    emitter.start(compute)
    _registers(emitter, "inc" if op.registers[0] > start else "dec", op.registers[0])
    outer_mask, emitter.one_mask = emitter.one_mask, 32 * emitter.num_warps - 1
    outer, emitter.barrier_text = emitter.barrier_text, f"bar.sync {_COMPUTING_BARRIER}, {32 * emitter.num_warps};"
    emitter.ops(computing.entry.ops[:-1])
    emitter.barrier_text = outer
    emitter.line(f"br label %{over}")

    emitter.start(others)
    _registers(emitter, "dec", op.registers[1])
    first = emitter.emit(f"icmp eq i32 {warp}, {emitter.num_warps}")
    emitter.line(f"br i1 {first}, label %{fetch}, label %{over}")
    emitter.start(fetch)
    emitter.ops(fetching.entry.ops[:-1])
    emitter.line(f"br label %{over}")
    emitter.start(over)
    emitter.one_mask = outer_mask


def _registers(emitter: Emitter, way: str, count: int) -> None:
    emitter.asm("void", f"setmaxnreg.{way}.sync.aligned.u32 {count};", "~{memory}", effect=True)
