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

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import BufferOp, ResultWait
from ziggurat.codemodel.gpu.fragments import UNITS, Unit, operand_a, warps_of
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, component_types
from ziggurat.transforms.analysis.memory_flow import last_of, users_of
from ziggurat.transforms.analysis.queries import layout_of, role_split, shared_of, tensor_of
from ziggurat.transforms.cost.budget import BESIDE_OPERANDS
from ziggurat.transforms.cost.pressure import MAX_REGISTERS, value_registers

_Key = tuple[Value, WarpScope]


def hold_operands(module: gpu.Module) -> Op:
    """The GPU model whose consumers hold the first operands of dots in registers, if there is room for them."""
    if role_split(module) is None:
        return module
    blocks: list[_Block] = []
    types: dict[_Key, TensorType] = {}  # The fragments, by the buffers and the roles that read them.
    for block in (block for op in module.walk() if isinstance(op, gpu.LocalAlloc) for block in _blocks(op)):
        type_ = _fragment(block)
        if type_ is not None and all(_fits(loop, types | {block.key: type_}) for loop in block.loops()):
            types[block.key] = type_
            blocks.append(block)
    if not types:
        return module
    values: dict[_Key, Value] = {}
    starts, ends = dict[Value, list[_Block]](), dict[Value, list[_Block]]()
    for block in blocks:
        starts.setdefault(block.filled.result, []).append(block)
        ends.setdefault(last_of(block.filled, block.readers).result, []).append(block)
    released = {(block.channel, block.scope) for block in blocks if isinstance(block.filled, gpu.ChannelWait)}

    def read(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.Wgmma) and (key := (op.a, scope_of(op))) in values:
            return builder.add(op.evolve(a=values[key], b=operands[1], c=operands[2]))
        if isinstance(op, gpu.ChannelRelease) and (op.channel, scope_of(op)) in released:
            return DROP  # It follows the read.
        filled, last = starts.get(op.result, ()), ends.get(op.result, ())
        copy = builder.copy(op, operands) if filled or last else None
        for block in filled:
            values[block.key] = builder.add(gpu.LocalLoad(builder[block.buffer], types[block.key]))
            if (block.channel, block.scope) in released:
                builder.add(gpu.ChannelRelease(builder[block.channel]))
        for block in last:
            builder.add(gpu.Keep(values[block.key]))
        return copy

    return transform(module, read, pass_name="hold_operands")


@attrs.frozen(eq=False)
class _Block:
    """A block that TMA loads before the loops of a role that read it: its buffer and channel, and the op after which it
    is there.

    The producer fills the buffer once for each iteration of a loop around, or the consumer itself does.
    """

    buffer: Value
    channel: Value
    filled: Op
    readers: Sequence[BufferOp]

    @property
    def scope(self) -> WarpScope:
        """The scope of the role."""
        return scope_of(self.filled)

    @property
    def key(self) -> _Key:
        """The buffer and the scope."""
        return self.buffer, self.scope

    def loops(self) -> Iterator[scf.For]:
        """The loops in which the buffer is read, that it is filled before."""
        around = set(self.filled.path())
        for reader in self.readers:
            yield from (op for op in reader.path() if isinstance(op, scf.For) and op not in around)


def _blocks(alloc: gpu.LocalAlloc) -> Iterator[_Block]:
    """The blocks that a buffer holds for the roles that wait for it."""
    channels = [user for user in alloc.result.uses if isinstance(user, gpu.Channel)]
    if len(channels) != 1 or shared_of(alloc.result).count > 1:
        return
    uses = channels[0].result.uses
    filled = [op for op in uses if isinstance(op, gpu.ChannelClose)] or [
        op for op in uses if isinstance(op, gpu.ChannelWait)
    ]  # fmt: skip
    readers = [user for user in users_of(alloc.result) if isinstance(user, BufferOp) and user.reads]
    for op in filled:
        own = [reader for reader in readers if scope_of(reader) == scope_of(op)]
        block = _Block(alloc.result, channels[0].result, op, own)
        if any(block.loops()):
            yield block


def _fragment(block: _Block) -> TensorType | None:
    """The type of a buffer's content as an operand in registers; None if not only dots read it, as their first."""
    types: set[TensorType] = set()
    for op in block.readers:
        if not isinstance(op, gpu.Wgmma) or op.a is not block.buffer or op.b is block.buffer:
            return None
        buffer, c = shared_of(op.a), tensor_of(op.c)
        unit: Unit = UNITS[{8: "m16n8k32", 16: "m16n8k16", 32: "m16n8k8"}[buffer.element.bits]]
        warps = warps_of(layout_of(c), unit, (c.shape[0], c.shape[1]))
        assert warps is not None
        if warps.paired:
            return None  # Threads read this operand in pairs of rows, from the buffer.
        types.add(TensorType(buffer.shape, buffer.element, operand_a(unit, (buffer.shape[0], buffer.shape[1]), warps)))
    return types.pop() if len(types) == 1 else None


def _fits(loop: scf.For, types: Mapping[_Key, TensorType]) -> bool:
    """Whether a thread has registers for these operands beside the other values of a loop with a wgmma in flight."""
    dots, scope = [op for op in loop.walk() if isinstance(op, gpu.Wgmma)], scope_of(loop)
    if not any(isinstance(op, ResultWait) and op.pending for op in loop.walk()):
        return False
    values = {loop.result: component_types(loop.result.type)} | {
        a: [types[a, scope]] for a in (op.a for op in dots) if (a, scope) in types
    }
    values |= {op.result: [op.result.type] for op in dots if not op.accumulate}
    values |= {op.a: [op.a.type] for op in dots if isinstance(op.a, OpResult) and isinstance(op.a.type, TensorType)}
    registers = sum(value_registers(type_) for types in values.values() for type_ in types)
    return registers + BESIDE_OPERANDS <= (scope.registers or MAX_REGISTERS)
