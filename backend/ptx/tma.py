"""Emission of TMA and mbarriers: cp.async.bulk.tensor and mbarrier as inline assembly.

The elected thread of a scope starts copies and arrives; all threads wait. A tensor map has 128 bytes: it is a parameter
of the kernel by value, or lies in the memory that the launch provides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ziggurat.backend.ptx.emitter import EFFECT, Argument, Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.packed_words import GLOBAL, SHARED
from ziggurat.backend.ptx.tensors import special_register
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP_BYTES, box_and_swizzle
from ziggurat.codemodel.gpu.scope import WARP_GROUP
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import DescriptorType, i32
from ziggurat.transforms.analysis.queries import descriptor_of, shared_of

# The type and the attributes of a parameter that is a tensor map.
MAP_PARAMETER = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'


def _address(emitter: PtxEmitter, buffer: Value) -> Argument:
    return SHARED, emitter.scalar(buffer)


def _in_cta(emitter: PtxEmitter, buffer: Value, cta: str) -> Argument:
    """The address of the same place in the shared memory of another CTA of the cluster."""
    own: Argument = "i32", emitter.emit(f"ptrtoint {SHARED} {emitter.scalar(buffer)} to i32")
    return "i32", emitter.asm(("i32",), "mapa.shared::cluster.u32 $0, $1, $2;", own, ("i32", cta))[0]


def _by_elected_thread(
    emitter: PtxEmitter, lines: Sequence[str], *arguments: Argument, condition: Value | None = None,
    thread: str | None = None, branch: bool = False,
) -> None:  # fmt: skip
    """Emit instructions for the elected thread, or for the threads where `thread` holds, under a condition.

    They are predicated, because ptxas would serialise the wgmmas in flight at a branch. With `branch` they stand after
    one: ptxas branches for each `tensormap.replace` under a predicate.
    """
    is_elected = emitter.both(thread or emitter.owner(i32), emitter.mask(condition, 0))
    flag = emitter.emit(f"zext i1 {is_elected} to i32")
    guarded = [f"@go {line}" for line in lines]
    if branch:
        guarded = ["@!go bra OVER_${:uid};", *lines, "OVER_${:uid}:"]
    text = "\n".join(["{", ".reg .pred go;", f"setp.ne.b32 go, ${len(arguments)}, 0;", *guarded, "}"])
    emitter.asm((), text, *arguments, ("i32", flag), effect=EFFECT)


@emits(gpu.MbarrierInit)
def _init(emitter: PtxEmitter, op: gpu.MbarrierInit) -> Emitted:
    count = shared_of(op.buffer).count
    lines = [f"mbarrier.init.shared::cta.b64 [$0+{8 * at}], {op.arrivals};" for at in range(count)]
    # TMA accesses memory through the asynchronous proxy.
    lines.append("fence.proxy.async.shared::cta;")
    _by_elected_thread(emitter, lines, _address(emitter, op.buffer))


@emits(gpu.MbarrierInval)
def _inval(emitter: PtxEmitter, op: gpu.MbarrierInval) -> Emitted:
    count = shared_of(op.buffer).count
    lines = [f"mbarrier.inval.shared::cta.b64 [$0+{8 * at}];" for at in range(count)]
    _by_elected_thread(emitter, lines, _address(emitter, op.buffer))


@emits(gpu.MbarrierExpect)
def _expect(emitter: PtxEmitter, op: gpu.MbarrierExpect) -> Emitted:
    line = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {op.bytes};"
    _by_elected_thread(emitter, [line], _address(emitter, op.barrier), condition=op.predicate)


@emits(gpu.MbarrierArrive)
def _arrive(emitter: PtxEmitter, op: gpu.MbarrierArrive) -> Emitted:
    if op.each_warp:
        emitter.asm((), "bar.warp.sync -1;", effect=EFFECT)
    place = emitter.emit(f"and i32 {emitter.thread()}, {(32 if op.each_warp else 32 * WARP_GROUP) - 1}")
    if op.ctas > 1:
        # A thread for each CTA. What it releases has been read, so the arrival orders no memory of the cluster.
        is_elected = emitter.emit(f"icmp ult i32 {place}, {op.ctas}")
        line, there = "mbarrier.arrive.shared::cluster.b64 _, [$0];", _in_cta(emitter, op.barrier, place)
    else:
        is_elected = emitter.emit(f"icmp eq i32 {place}, 0")
        line, there = "mbarrier.arrive.shared::cta.b64 _, [$0];", _address(emitter, op.barrier)
    _by_elected_thread(emitter, [line], there, condition=op.predicate, thread=is_elected)


@emits(gpu.MbarrierWait)
def _wait(emitter: PtxEmitter, op: gpu.MbarrierWait) -> Emitted:
    lines = [
        "{", ".reg .pred over;", "AGAIN_${:uid}:",
        "mbarrier.try_wait.parity.shared::cta.b64 over, [$0], $1;", "@!over bra AGAIN_${:uid};", "}",
    ]  # fmt: skip
    parity = ("i32", emitter.scalar(op.parity))
    emitter.asm((), "\n".join(lines), _address(emitter, op.barrier), parity, effect=EFFECT)


@emits(gpu.TmaLoad)
def _load(emitter: PtxEmitter, op: gpu.TmaLoad) -> Emitted:
    to, barrier = _address(emitter, op.buffer), _address(emitter, op.barrier)
    map_ = ("ptr", emitter.scalar(op.descriptor))
    copy, to_barrier = f"cp.async.bulk.tensor.{len(op.offsets)}d", "global.tile.mbarrier::complete_tx::bytes"
    if op.ctas > 1:
        name = f"{copy}.shared::cluster.{to_barrier}.multicast::cluster"
        mask: Argument = "i16", str((1 << op.ctas) - 1)
        boxes, coordinates = _boxes(emitter, op, 4, op.ctas)
        lines = [f"{name} [$0+{byte}], [$1, {{{at}}}], [$2], $3;" for byte, at in boxes]
        own = to[0], emitter.emit(f"getelementptr i8, {to[0]} {to[1]}, i32 {_start_of_part(emitter, op)}")
        _by_elected_thread(emitter, lines, own, map_, barrier, mask, *coordinates, condition=op.predicate)
        return
    name = f"{copy}.shared::cta.{to_barrier}"
    boxes, coordinates = _boxes(emitter, op, 3)
    lines = [f"{name} [$0+{byte}], [$1, {{{at}}}], [$2];" for byte, at in boxes]
    _by_elected_thread(emitter, lines, to, map_, barrier, *coordinates, condition=op.predicate)


@emits(gpu.TmaStore)
def _store(emitter: PtxEmitter, op: gpu.TmaStore) -> Emitted:
    kind, rank = "reduce." * op.adds, len(op.offsets)
    name = f"cp.{kind}async.bulk.tensor.{rank}d.global.shared::cta{'.add' * op.adds}.tile.bulk_group"
    boxes, coordinates = _boxes(emitter, op, 2)
    lines = [f"{name} [$0, {{{at}}}], [$1+{byte}];" for byte, at in boxes]
    lines.append("cp.async.bulk.commit_group;")
    map_ = ("ptr", emitter.scalar(op.descriptor))
    _by_elected_thread(emitter, lines, map_, _address(emitter, op.buffer), *coordinates)


@emits(gpu.TmaStoreWait)
def _store_wait(emitter: PtxEmitter, op: gpu.TmaStoreWait) -> Emitted:
    # Threads that have started no stores do not wait.
    emitter.asm((), f"cp.async.bulk.wait_group{'' if op.written else '.read'} {op.pending};", effect=EFFECT)


# Tensor maps that the kernel makes.

# The numbers of `tensormap.replace` (PTX manual, "tensormap.replace", table of new_val): the types of elements by their
# names in the driver, and the kinds of swizzle by their bytes.
_ELEMENTS = {
    "UINT8": 0, "UINT16": 1, "UINT32": 2, "INT32": 3, "UINT64": 4, "INT64": 5, "FLOAT16": 6, "FLOAT32": 7, "FLOAT64": 9,
    "BFLOAT16": 10,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


@emits(gpu.MakeTensorMap)
def _make_map(emitter: PtxEmitter, op: gpu.MakeTensorMap) -> Emitted:
    type_ = descriptor_of(op.result)
    box, swizzle = box_and_swizzle(type_)
    buffer = _address(emitter, op.buffer)
    arguments: list[Argument] = [buffer, (GLOBAL, emitter.scalar(op.base))]
    fields: list[tuple[str, str, object]] = [
        ("global_address", "b64", "$1"), ("rank", "b32", len(box) - 1), ("interleave_layout", "b32", 0),
        ("elemtype", "b32", _ELEMENTS[type_.element.tensor_map]), ("swizzle_mode", "b32", _SWIZZLES[swizzle]),
        ("fill_mode", "b32", int(type_.padding == "nan")),
    ]  # fmt: skip
    # The machine counts axes from the innermost one.
    for axis, (side, size, stride) in enumerate(zip(box[::-1], op.shape[::-1], op.strides[::-1], strict=True)):
        fields += [("box_dim", "b32", f"{axis}, {side}"), ("element_stride", "b32", f"{axis}, 1")]
        fields.append(("global_dim", "b32", f"{axis}, ${len(arguments)}"))
        arguments.append(("i32", emitter.scalar(size)))
        if axis:
            fields.append(("global_stride", "b64", f"{axis - 1}, ${len(arguments)}"))
            arguments.append(("i64", emitter.emit(f"mul i64 {emitter.scalar(stride)}, {type_.element.bytes}")))
    # The lanes of the warp write zeros, one sets the fields, and the warp copies together.
    thread = emitter.thread()
    lane = emitter.emit(f"and i32 {thread}, 31")
    first = emitter.emit(f"and i32 {thread}, -32")
    mine = emitter.emit(f"icmp eq i32 {first}, {32 * op.warp}")
    word = emitter.emit(f"getelementptr i32, {buffer[0]} {buffer[1]}, i32 {lane}")
    _by_elected_thread(emitter, ["st.shared.b32 [$0], 0;", "bar.warp.sync -1;"], (SHARED, word), thread=mine)
    is_elected = emitter.both(mine, emitter.emit(f"icmp eq i32 {lane}, 0"))
    lines = [f"tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [$0], {value};" for name, kind, value in fields]
    _by_elected_thread(emitter, lines, *arguments, thread=is_elected, branch=True)
    memory: Argument = (
        GLOBAL,
        emitter.emit(f"getelementptr i8, {GLOBAL} {emitter.scalar(op.scratch)}, i64 {MAP_BYTES * op.index}"),
    )
    name = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    lines = ["bar.warp.sync -1;", f"{name} [$0], [$1], {MAP_BYTES};", "bar.warp.sync -1;"]
    _by_elected_thread(emitter, lines, memory, buffer, thread=mine)
    return emitter.emit(f"addrspacecast {GLOBAL} {memory[1]} to ptr")


@emits(gpu.AcquireTensorMaps)
def _acquire_maps(emitter: PtxEmitter, op: gpu.AcquireTensorMaps) -> Emitted:
    memory: list[Argument] = [("ptr", emitter.scalar(map_)) for map_ in op.maps]
    lines = [f"fence.proxy.tensormap::generic.acquire.gpu [${at}], {MAP_BYTES};" for at in range(len(memory))]
    # Triton waits after this fence as well, because ptxas would let copies pass it.
    lines += ["cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;"]
    _by_elected_thread(emitter, lines, *memory)


def _boxes(
    emitter: PtxEmitter, op: gpu.TmaLoad | gpu.TmaStore, first: int, ctas: int = 1
) -> tuple[list[tuple[int, str]], list[Argument]]:
    """The byte in the buffer and the coordinates of each box of a block, and the arguments that these name from
    `$first` on. A box has up to 256 rows of up to 128 bytes; of more than two axes, it has all of them but columns.
    With several `ctas`, those of the part that this CTA of the cluster loads, from the start of that part on."""
    type_ = descriptor_of(op.descriptor)
    box, _ = box_and_swizzle(type_)
    own, axis = _part(type_, ctas)
    height = type_.block[0] // box[0]
    arguments: list[Argument] = []
    for at, (offset, count, step) in enumerate(zip(op.offsets, own, box, strict=True)):
        start = emitter.scalar(offset)
        if ctas > 1 and at == axis:
            start = emitter.emit(f"add i32 {start}, {_times_rank(emitter, count * step)}")
        for number in range(count):
            arguments.append(("i32", emitter.emit(f"add i32 {start}, {number * step}") if number else start))
    # The machine counts axes from the innermost one.
    rest = [f"${first + own[0] + at}" for at in reversed(range(len(own) - 2))]
    boxes = [
        (
            (j * height + i) * math.prod(box) * type_.element.bytes,
            ", ".join((f"${first + own[0] + len(rest) + j}", *rest, f"${first + i}")),
        )
        for j in range(own[-1])
        for i in range(own[0])
    ]
    return boxes, arguments


def _part(type_: DescriptorType, ctas: int) -> tuple[tuple[int, ...], int]:
    """The boxes of a part of a block along each axis, and the axis that the parts divide: the columns, if they can."""
    box, _ = box_and_swizzle(type_)
    height, *rest, width = (size // side for size, side in zip(type_.block, box, strict=True))
    parts = (height, *rest, width // ctas) if width % ctas == 0 else (height // ctas, *rest, width)
    return parts, len(rest) + 1 if width % ctas == 0 else 0


def _times_rank(emitter: PtxEmitter, number: int) -> str:
    return emitter.emit(f"mul i32 {special_register(emitter, 'cluster.ctarank')}, {number}")


def _start_of_part(emitter: PtxEmitter, op: gpu.TmaLoad) -> str:
    """The byte in the buffer where the part of this CTA begins: panels lie side by side, each with all rows."""
    type_ = descriptor_of(op.descriptor)
    box, _ = box_and_swizzle(type_)
    (height, *_, width), axis = _part(type_, op.ctas)
    return _times_rank(emitter, (height * width if axis else height) * math.prod(box) * type_.element.bytes)
