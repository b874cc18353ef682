"""Emission of warp specialisation: each scope runs its body, with registers and a named barrier of its own."""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import EFFECT, Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.shuffles import uniform
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.transforms.analysis.queries import role_split
from ziggurat.transforms.cost.budget import ctas_of_roles, registers_of_thread


def registers_of(module: gpu.Module) -> int | None:
    """The registers a thread at the launch, where roles trade them; None without roles."""
    split = role_split(module)
    if split is None:
        return None
    return registers_of_thread(module.num_warps, ctas_of_roles(split))


@emits(gpu.WarpSpecialize)
def _warp_specialize(emitter: PtxEmitter, op: gpu.WarpSpecialize) -> Emitted:
    start = registers_of(emitter.module)
    assert start is not None
    if sum(warps * registers for warps, registers in zip(op.warps, op.registers, strict=True)) > start * sum(op.warps):
        raise InternalError("roles must not ask for more registers than their threads begin with", str(op.root()))
    outer, warp, over = emitter.scope, uniform(emitter, 5), emitter.name("over")
    for number, (role, scope) in enumerate(zip(op.roles, op.scopes, strict=True)):
        if number < len(op.roles) - 1:
            own, others = emitter.name("role"), emitter.name("others")
            mine = emitter.emit(f"icmp ult i32 {warp}, {scope.first + op.warps[number]}")
            emitter.line(f"br i1 {mine}, label %{own}, label %{others}")
            emitter.start(own)
        else:
            others = over
        way = "inc" if op.registers[number] > start else "dec"
        emitter.asm((), f"setmaxnreg.{way}.sync.aligned.u32 {op.registers[number]};", effect=EFFECT)
        if not scope.barrier:
            first, alone = emitter.emit(f"icmp eq i32 {warp}, {scope.first}"), emitter.name("alone")
            emitter.line(f"br i1 {first}, label %{alone}, label %{over}")
            emitter.start(alone)
        emitter.scope = scope
        emitter.ops(role.entry.ops[:-1])
        emitter.scope = outer
        emitter.line(f"br label %{over}")
        emitter.start(others)
