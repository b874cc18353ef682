"""Operands in registers: a block that all iterations of a loop multiply is read from shared memory once.

    gpu.tma_load %0 %q …;                              gpu.tma_load %0 %q …;
    …                                                  …
    scf.for … {                            becomes     %f : tensor<…> = gpu.local_load %q;
        %d = gpu.wgmma %q %k[%s] %zero;                scf.for … {
        …                                                  %d = gpu.wgmma %f %k[%s] %zero;
    }                                                      … }
                                                       gpu.keep %f;

Attention's queries are such a block. wgmma would read it from shared memory in each iteration, as often as the keys.
This is done where a wgmma is in flight during the other arithmetic of the loop (note 009), and if the registers of a
thread suffice: ptxas waits for each wgmma of a loop that spills.

`gpu.keep` works around an error of ptxas 13.0 (and the driver 580): where one wgmma of the loop is the only reader of
such registers, and a wait for an mbarrier follows it, ptxas gives them to other values of the loop as well. A reader
after the loop keeps them. ptxas 13.5 makes right code of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import UNITS, Unit, operand_a, warps_of
from ziggurat.codemodel.gpu.scope import scope_of
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.place.components import component_types
from ziggurat.transforms.place.flow import users_of
from ziggurat.transforms.place.loop_plan import LOOP_REGISTERS
from ziggurat.transforms.place.pressure import MAX_REGISTERS, value_registers
from ziggurat.transforms.place.queries import layout_of, role_split, shared_of, tensor_of


def hold_operands(module: gpu.Module) -> Op:
    """The GPU model whose consumers hold the first operands of dots in registers, if there is room for them."""
    split = role_split(module)
    held: dict[Value, TensorType] = {}  # The fragments, by the buffers.
    for op in () if split is None else (op for op in split.walk() if isinstance(op, gpu.LocalAlloc)):
        type_ = _fragment(op)
        if type_ is not None and all(_fits(loop, held | {op.result: type_}) for loop in _loops(op)):
            held[op.result] = type_
    if not held:
        return module
    loaded: dict[Value, Value] = {}
    last: dict[Value, list[Value]] = {}  # The buffers by the ops of their own blocks that have the last readers.
    for buffer in held:
        assert isinstance(buffer, OpResult) and buffer.op.parent is not None
        inside = {op.result for reader in _readers(buffer.op) for op in (reader, *reader.path())}
        at = next(op for op in reversed(buffer.op.parent.ops) if op.result in inside)
        last.setdefault(at.result, []).append(buffer)

    def read(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.ChannelClose):
            closed = builder.copy(op, operands)
            for ring in (ring for channel in op.channels for ring in _rings(channel) if ring in held):
                loaded[ring] = builder.add(gpu.LocalLoad(builder[ring], held[ring]))
            return closed
        if op.result in last:
            made = builder.copy(op, operands)
            for buffer in last[op.result]:
                builder.add(gpu.Keep(loaded[buffer]))
            return made
        if isinstance(op, gpu.Wgmma) and op.a in loaded:
            return builder.add(gpu.Wgmma(loaded[op.a], *operands[1:], accumulate=op.accumulate, within=op.within))
        return None

    return transform(module, read, pass_name="hold_operands")


def _rings(channel: Value) -> tuple[Value, ...]:
    assert isinstance(channel, OpResult) and isinstance(channel.op, gpu.Channel)
    return tuple(channel.op.rings)


def _readers(alloc: Op) -> list[Op]:
    """The ops that use a buffer, but for what fills it."""
    return [user for user in users_of(alloc.result) if not isinstance(user, gpu.Channel | gpu.TmaLoad)]


def _loops(alloc: gpu.LocalAlloc) -> Iterator[scf.For]:
    """The loops in which a buffer is read, that it is filled before."""
    around = {op.result for op in alloc.path()}
    for reader in _readers(alloc):
        yield from (op for op in reader.path() if isinstance(op, scf.For) and op.result not in around)


def _fragment(alloc: gpu.LocalAlloc) -> TensorType | None:
    """The type of a buffer's content as an operand in registers; None if not only dots read it, as their first."""
    readers = _readers(alloc)
    closed = any(
        isinstance(later, gpu.ChannelClose)
        for user in alloc.result.uses
        if isinstance(user, gpu.Channel)
        for later in user.result.uses
    )
    if not closed or next(_loops(alloc), None) is None:
        return None
    types: set[TensorType] = set()
    for op in readers:
        if not isinstance(op, gpu.Wgmma) or op.a is not alloc.result or op.b is alloc.result:
            return None
        buffer, c = shared_of(op.a), tensor_of(op.c)
        unit: Unit = UNITS[{8: "m16n8k32", 16: "m16n8k16", 32: "m16n8k8"}[buffer.element.bits]]
        warps = warps_of(layout_of(c), unit, (c.shape[0], c.shape[1]))
        assert warps is not None
        if warps.paired:
            return None  # Threads read this operand in pairs of rows, from the buffer.
        types.add(TensorType(buffer.shape, buffer.element, operand_a(unit, (buffer.shape[0], buffer.shape[1]), warps)))
    return types.pop() if len(types) == 1 else None


def _fits(loop: scf.For, held: Mapping[Value, TensorType]) -> bool:
    """Whether a thread has registers for these operands beside the other values of a loop with a wgmma in flight."""
    dots = [op for op in loop.walk() if isinstance(op, gpu.Wgmma)]
    if not any(isinstance(op, gpu.WgmmaWait) and op.pending for op in loop.walk()):
        return False
    values = {loop.result: component_types(loop.result.type)} | {
        a: [held[a]] for a in (op.a for op in dots) if a in held
    }
    values |= {op.result: [op.result.type] for op in dots if not op.accumulate}
    values |= {op.a: [op.a.type] for op in dots if isinstance(op.a, OpResult) and isinstance(op.a.type, TensorType)}
    needed = sum(value_registers(type_) for types in values.values() for type_ in types)
    return needed + LOOP_REGISTERS <= (scope_of(loop).registers or MAX_REGISTERS)
