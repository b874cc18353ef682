"""Emission of TMA and mbarriers: cp.async.bulk.tensor and mbarrier as inline assembly.

The elected thread of a CTA starts copies and arrives; all threads wait. A tensor map is a parameter of the kernel by
value, of 128 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ziggurat.backend.ptx.emitter import Emitted, Emitter, emits
from ziggurat.backend.ptx.shared import buffer_type
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import box_and_swizzle
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import DescriptorType

# The type and the attributes of a parameter that is a tensor map.
MAP_PARAMETER = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'


def _address(emitter: Emitter, buffer: Value) -> tuple[str, str]:
    return "ptr addrspace(3)", emitter.scalar(buffer)


def _by_elected_thread(
    emitter: Emitter,
    lines: Sequence[str],
    arguments: Sequence[tuple[str, str, str]],
    condition: str | None = None,
    thread: str | None = None,
) -> None:
    """Emit instructions for the elected thread, or for the threads where `thread` holds, under a condition.

    `arguments` are types, values and constraints.
    """
    one = thread or emitter.owner(None)
    assert one is not None
    if condition is not None:
        one = emitter.emit(f"and i1 {one}, {condition}")
    flag = emitter.emit(f"zext i1 {one} to i32")
    number = len(arguments)
    # Predicates, not a branch: ptxas would serialise the wgmmas in flight at one.
    guarded = [f"@go {line}" for line in lines]
    text = "\n".join(["{", ".reg .pred go;", f"setp.ne.b32 go, ${number}, 0;", *guarded, "}"])
    constraints = ",".join([*(constraint for _, _, constraint in arguments), "r", "~{memory}"])
    given = [*((kind, value) for kind, value, _ in arguments), ("i32", flag)]
    emitter.asm("void", text, constraints, *given, effect=True)


@emits(gpu.MbarrierInit)
def _init(emitter: Emitter, op: gpu.MbarrierInit) -> Emitted:
    count = buffer_type(op.buffer).count
    lines = [f"mbarrier.init.shared::cta.b64 [$0+{8 * at}], {op.arrivals};" for at in range(count)]
    # TMA accesses memory through the asynchronous proxy.
    lines.append("fence.proxy.async.shared::cta;")
    # Thread 0 of the CTA, whatever the current role.
    first = emitter.once("first thread", lambda: emitter.emit(f"icmp eq i32 {emitter.thread()}, 0"))
    _by_elected_thread(emitter, lines, [(*_address(emitter, op.buffer), "r")], thread=first)


@emits(gpu.MbarrierInval)
def _inval(emitter: Emitter, op: gpu.MbarrierInval) -> Emitted:
    count = buffer_type(op.buffer).count
    lines = [f"mbarrier.inval.shared::cta.b64 [$0+{8 * at}];" for at in range(count)]
    _by_elected_thread(emitter, lines, [(*_address(emitter, op.buffer), "r")])


@emits(gpu.MbarrierExpect)
def _expect(emitter: Emitter, op: gpu.MbarrierExpect) -> Emitted:
    condition = emitter.scalar(op.predicate) if op.predicate is not None else None
    line = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {op.bytes};"
    _by_elected_thread(emitter, [line], [(*_address(emitter, op.barrier), "r")], condition)


@emits(gpu.MbarrierArrive)
def _arrive(emitter: Emitter, op: gpu.MbarrierArrive) -> Emitted:
    place = emitter.emit(f"and i32 {emitter.thread()}, 127")
    one = emitter.emit(f"icmp eq i32 {place}, 0")
    line = "mbarrier.arrive.shared::cta.b64 _, [$0];"
    _by_elected_thread(emitter, [line], [(*_address(emitter, op.barrier), "r")], emitter.scalar(op.predicate), one)


@emits(gpu.MbarrierWait)
def _wait(emitter: Emitter, op: gpu.MbarrierWait) -> Emitted:
    text = "\n".join(
        [
            "{",
            ".reg .pred over;",
            "AGAIN_${:uid}:",
            "mbarrier.try_wait.parity.shared::cta.b64 over, [$0], $1;",
            "@!over bra AGAIN_${:uid};",
            "}",
        ]
    )
    arguments = (_address(emitter, op.barrier), ("i32", emitter.scalar(op.parity)))
    emitter.asm("void", text, "r,r,~{memory}", *arguments, effect=True)


@emits(gpu.TmaLoad)
def _load(emitter: Emitter, op: gpu.TmaLoad) -> Emitted:
    name = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    boxes = _Boxes(emitter, op.descriptor, op.offsets)
    lines = [f"{name} [$0+{byte}], [$1, {{{at}}}], [$2];" for byte, at in boxes.places(3)]
    map_, to, barrier = emitter.scalar(op.descriptor), _address(emitter, op.buffer), _address(emitter, op.barrier)
    arguments = [(*to, "r"), ("ptr", map_, "l"), (*barrier, "r"), *boxes.arguments]
    _by_elected_thread(emitter, lines, arguments, emitter.scalar(op.predicate))


@emits(gpu.TmaStore)
def _store(emitter: Emitter, op: gpu.TmaStore) -> Emitted:
    name = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    boxes = _Boxes(emitter, op.descriptor, op.offsets)
    lines = [f"{name} [$0, {{{at}}}], [$1+{byte}];" for byte, at in boxes.places(2)]
    lines.append("cp.async.bulk.commit_group;")
    arguments = [("ptr", emitter.scalar(op.descriptor), "l"), (*_address(emitter, op.buffer), "r"), *boxes.arguments]
    _by_elected_thread(emitter, lines, arguments)


@emits(gpu.TmaStoreWait)
def _store_wait(emitter: Emitter, op: gpu.TmaStoreWait) -> Emitted:
    # Threads that have started no stores do not wait.
    emitter.asm("void", f"cp.async.bulk.wait_group.read {op.pending};", "~{memory}", effect=True)


class _Boxes:
    """The boxes of a block: each has up to 256 rows of up to 128 bytes."""

    def __init__(self, emitter: Emitter, descriptor: Value, offsets: Sequence[Value]) -> None:
        type_ = descriptor.type
        assert isinstance(type_, DescriptorType) and len(type_.block) == 2
        self.block = type_.block
        self.size = type_.element.bytes
        (self.rows, self.columns), _ = box_and_swizzle(type_.block, type_.element)
        row, column = (emitter.scalar(offset) for offset in offsets)
        self._rows = [self._added(emitter, row, at) for at in range(0, self.block[0], self.rows)]
        self._columns = [self._added(emitter, column, at) for at in range(0, self.block[1], self.columns)]
        self.arguments = [("i32", value, "r") for value in (*self._rows, *self._columns)]

    @staticmethod
    def _added(emitter: Emitter, value: str, constant: int) -> str:
        return emitter.emit(f"add i32 {value}, {constant}") if constant else value

    def places(self, first: int) -> Iterator[tuple[int, str]]:
        """The byte of each box in the buffer, and its coordinates as asm operands, numbered from `first`."""
        for j in range(len(self._columns)):
            for i in range(len(self._rows)):
                byte = (j * self.block[0] + i * self.rows) * self.columns * self.size
                yield byte, f"${first + len(self._rows) + j}, ${first + i}"
