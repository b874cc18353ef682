"""Emission of accesses: buffers, and loads, stores and atomics of any addresses, each checked against its array."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ziggurat.backend.cpu.code import BOUND, BOUNDS, HOST
from ziggurat.backend.cpu.elementwise_ops import combined
from ziggurat.backend.cpu.emitter import Coord, CpuEmitter, Index, indexed, memory_kind
from ziggurat.backend.cpu.lane_steps import at_lane, lane_step
from ziggurat.backend.cpu.sites import READ_ONLY, STRAY
from ziggurat.backend.llvm.elementwise import extended
from ziggurat.backend.llvm.functions import Function, define, module, moved
from ziggurat.backend.llvm.routines import Number, by_lane, suffix, together
from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.layout import row_major
from ziggurat.codemodel.op import BlockParameter, Op, Value, expect
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_bytes,
    element_of,
    i1,
    pointee_of,
    scalar_element,
    shape_of,
)
from ziggurat.transforms.cpu.traffic import CACHE_LINE, root_of

# Numbers in memory.


def from_memory(emitter: CpuEmitter, value: Number, type_: Type) -> Number:
    """A number as it is computed with, from its form in memory."""
    return value.test("ne", 0) if element_of(type_) == i1 else value


def to_memory(emitter: CpuEmitter, value: Number, type_: Type) -> Number:
    """A number in the form that memory holds."""
    return value.to("zext", "i8") if element_of(type_) == i1 else value


def load_run(
    emitter: CpuEmitter, pointer: str, type_: Type, mask: Number | None, other: Number | None, align: int = 0
) -> Number:
    """The neighbours from an address on, one for each lane. The address is aligned to an element or to `align`."""
    kind, lanes, size = memory_kind(type_), emitter.lanes, align or element_bytes(type_)
    vector = f"<{lanes} x {kind}>"
    if mask is None:
        return emitter.number(kind, emitter.effect(f"load {vector}, ptr {pointer}, align {size}"), lanes)
    rest = other if other is not None else emitter.number(kind, zero_of(kind))
    mask, rest = mask.spread(lanes), rest.spread(lanes)
    name = f"llvm.masked.load.{suffix(vector)}.p0"
    text = emitter.called(vector, name, ("ptr", f"align {size} {pointer}"), mask, rest)
    return emitter.number(kind, emitter.effect(text), lanes)


def zero_of(kind: str) -> str:
    """The constant 0 of an LLVM type."""
    return {"half": "0xH0000", "float": "0.0", "double": "0.0"}.get(kind, "0")


def store_run(
    emitter: CpuEmitter, pointer: str, value: Number, mask: Number | None, size: int, *, streams: bool = False
) -> None:
    """Store a vector to neighbours, around the caches if it streams."""
    lanes = emitter.lanes
    value = value.spread(lanes)
    if mask is None:
        how = f"align {CACHE_LINE}, !nontemporal !3" if streams else f"align {size}"
        emitter.line(f"store {value.typed}, ptr {pointer}, {how}")
        return
    mask = mask.spread(lanes)
    name = f"llvm.masked.store.{suffix(value.type)}.p0"
    emitter.line(emitter.called("void", name, value, ("ptr", f"align {size} {pointer}"), mask))


def gather(emitter: CpuEmitter, addresses: Number, type_: Type, mask: Number | None, other: Number | None) -> Number:
    """The elements at any addresses."""
    kind, lanes, size = memory_kind(type_), addresses.lanes, element_bytes(type_)
    vector = f"<{lanes} x {kind}>"
    pointers = emitter.emit(f"inttoptr {addresses.typed} to <{lanes} x ptr>")
    rest = other if other is not None else emitter.number(kind, zero_of(kind))
    active = mask if mask is not None else emitter.number("i1", "true")
    name = f"llvm.masked.gather.{suffix(vector)}.v{lanes}p0"
    arguments = (f"<{lanes} x ptr>", f"align {size} {pointers}"), active.spread(lanes), rest.spread(lanes)
    return emitter.number(kind, emitter.effect(emitter.called(vector, name, *arguments)), lanes)


def scatter(emitter: CpuEmitter, addresses: Number, value: Number, mask: Number | None, size: int) -> None:
    """Store to any addresses; of equal ones the last lane counts."""
    lanes = emitter.lanes
    addresses, value = addresses.spread(lanes), value.spread(lanes)
    pointers = emitter.emit(f"inttoptr {addresses.typed} to <{lanes} x ptr>")
    active = (mask if mask is not None else emitter.number("i1", "true")).spread(lanes)
    name = f"llvm.masked.scatter.{suffix(value.type)}.v{lanes}p0"
    emitter.line(emitter.called("void", name, value, (f"<{lanes} x ptr>", f"align {size} {pointers}"), active))


# Buffers.


def buffer_address(emitter: CpuEmitter, value: Value) -> Number:
    """The address of a buffer."""
    return emitter.values[value]


def _linear(emitter: CpuEmitter, index: Index, start: int, strides: Sequence[int]) -> tuple[Number | int, bool]:
    """The place in a buffer of the element at an index, in elements; and whether the lanes are neighbours there."""
    place: Number | int = start
    run = False
    for coord, stride in zip(index, strides, strict=True):
        if not stride:
            continue
        if coord.run and stride == 1 and not run:
            run, part = True, coord.base
        else:
            part = emitter.vector(coord)
        part = part if stride == 1 else part * stride
        place = part + place if not isinstance(place, int) or place else part
    if run and isinstance(place, Number) and place.lanes:  # Another axis differs between the lanes, too.
        place, run = place + emitter.vector(Coord(emitter.i64(0), True)), False
    return place, run


def read(emitter: CpuEmitter, base: Number, place: Number | int, run: bool, type_: Type, align: int = 0) -> Number:
    """The element of a buffer at a place, or a vector of elements, aligned to an element or to `align`."""
    size = element_bytes(type_)
    with emitter.at_level(emitter.level(f"{base} {place}")):
        if isinstance(place, Number) and place.lanes:
            value = gather(emitter, base + emitter.scaled(place, size), type_, None, None)
        elif run:
            value = load_run(emitter, emitter.address(base, place, size), type_, None, None, align)
        else:
            pointer = emitter.address(base, place, size)
            kind = memory_kind(type_)
            value = emitter.number(kind, emitter.effect(f"load {kind}, ptr {pointer}, align {align or size}"))
        return from_memory(emitter, value, type_)


@indexed(cpu.Get)
def _get(emitter: CpuEmitter, op: cpu.Get, index: Index) -> Number:
    strides = op.strides or row_major(shape_of(op.type))
    place, run = _linear(emitter, index, op.start, strides)
    return read(emitter, buffer_address(emitter, op.buffer), place, run, op.type)


def put(emitter: CpuEmitter, op: cpu.Put, value: Number, index: Index) -> None:
    """Store a number, or a vector, to a buffer."""
    strides = op.strides or row_major(shape_of(op.value.type))
    place, run = _linear(emitter, index, op.start, strides)
    write(emitter, buffer_address(emitter, op.buffer), place, run, value, op.value.type)


def write(emitter: CpuEmitter, base: Number, place: Number | int, run: bool, value: Number, type_: Type) -> None:
    """Store a number, or a vector, at a place of a buffer."""
    size = element_bytes(type_)
    value = to_memory(emitter, value, type_)
    if isinstance(place, Number) and place.lanes:
        scatter(emitter, base + emitter.scaled(place, size), value, None, size)
        return
    pointer = emitter.address(base, place, size)
    if run:
        store_run(emitter, pointer, value, None, size)
    else:
        assert not value.lanes, "a vector is stored to one place"
        emitter.line(f"store {value.typed}, ptr {pointer}, align {size}")


# Checks.


@attrs.frozen
class Bounds:
    """The addresses of an array's region, and whether it may be written."""

    argument: int
    low: Number
    high: Number
    writable: Number


def bounds_of(emitter: CpuEmitter, parameter: Value) -> Bounds:
    """The bounds of the array of a pointer parameter, which the launch gives."""
    assert isinstance(parameter, BlockParameter)
    part = emitter.func.parts[parameter.index] if emitter.func.parts else str(parameter.index)
    argument = int(part.partition(".")[0])
    return emitter.once_for_all((bounds_of, argument), lambda: _bounds(emitter, argument))


def _bounds(emitter: CpuEmitter, argument: int) -> Bounds:
    """The bounds of an array, which the kernel loads at its entry."""
    at = BOUNDS + 24 * len(emitter.bounds)
    emitter.bounds.append(argument)
    fields: list[Number] = []
    for name, offset in (("low", 0), ("high", 8), ("writable", 16)):
        value = f"%{name}{argument}"
        emitter.slots += [
            f"  {value}.at = getelementptr i8, ptr %launch, i64 {at + offset}",
            f"  {value} = load i64, ptr {value}.at, !invariant.load !1",
        ]
        fields.append(emitter.number("i64", value))
    return Bounds(argument, *fields)


def check(
    emitter: CpuEmitter, op: Op, pointer: Value, address: Number, mask: Number | None, size: int, verb: str
) -> Number | None:
    """End the kernel where an address, of those that the mask leaves, is in no array, or in one that is not to be
    written. A tolerant kernel goes on without the stray accesses, which are the result, except through pointers that
    it makes from integers."""
    if not emitter.check:
        return None
    root = root_of(pointer)
    pointers = [p for p in emitter.func.body.parameters if isinstance(p.type, PtrType)]
    candidates = [bounds_of(emitter, p) for p in ([root] if root is not None else pointers)]
    wrong: Number | None = None
    locked: Number | None = None
    for bounds in candidates:
        span = bounds.high - bounds.low
        room = span.call("llvm.usub.sat", size - 1)
        outside = (address - bounds.low).test("uge", room)
        wrong = outside if wrong is None else wrong & outside
        if verb != "reads":
            refused = bounds.writable.test("eq", 0)
            here = refused & (outside ^ True) if len(candidates) > 1 else refused
            locked = here if locked is None else locked | here
    assert wrong is not None
    if root is None and emitter.makes_pointers:
        wrong = wrong & (_is_elsewhere(emitter, address, wrong, size, verb) ^ True)
    argument = emitter.i64(candidates[0].argument if root is not None else -1)
    site = emitter.site(op, verb, dtype=pointee_of(pointer.type).name)
    stray: Number | None = None
    for code, condition in ((STRAY, wrong), (READ_ONLY, locked)):
        if condition is not None:
            if mask is not None:
                condition = mask & condition
            if stray is not None:
                condition = condition & (stray ^ True)
            if condition.lanes and not address.lanes:
                address = address.spread(condition.lanes)
            if code == STRAY and emitter.tolerant and (root is not None or not emitter.makes_pointers):
                stray = condition
                emitter.note(condition, site, address, argument)
            else:
                emitter.fail(code, condition, site, address, argument)
    return stray


@define("i1", "ptr i64 i64 i1", attributes="noinline nounwind")
def _zg_elsewhere(f: Function, host: Number, address: Number, size: Number, writes: Number) -> None:
    """Whether an element is in an array that the host knows, and may be written if `writes`."""
    arrays = HOST.at(host)["arrays"]
    with f.unless(arrays.test("eq", 0)), f.count(f.load("i64", arrays)) as loop:
        bound = BOUND.at(moved(arrays, loop.index * BOUND.size + 8))
        inside = address.test("uge", bound["low"]) & (bound["high"] - address).test("sge", size)
        with f.when(inside & (bound["writable"].test("ne", 0) | (writes ^ True))):
            f.give(1)
    f.give(0)


_ELSEWHERE = module([_zg_elsewhere], {})


def _is_elsewhere(emitter: CpuEmitter, address: Number, wrong: Number, size: int, verb: str) -> Number:
    """Whether the elements at addresses that are in no array of the kernel's arguments are in another one."""
    emitter.definitions["zg_elsewhere"] = _ELSEWHERE
    writes = "false" if verb == "reads" else "true"

    def ask(place: Number) -> Number:
        call = f"call i1 @{_zg_elsewhere.symbol}(ptr %host, {place.typed}, i64 {size}, i1 {writes})"
        return emitter.number("i1", emitter.effect(call))

    before, answer, end = emitter.aside(wrong.any(), lambda: by_lane(ask, address), rare=True)
    rest = "zeroinitializer" if answer.lanes else "false"
    phi = emitter.effect(f"phi {answer.type} [ {answer}, %{end} ], [ {rest}, %{before} ]")
    return emitter.number("i1", phi, answer.lanes)


def without(stray: Number | None, mask: Number | None) -> Number | None:
    """The mask without stray lanes."""
    if stray is None:
        return mask
    return stray ^ True if mask is None else mask & (stray ^ True)


# Loads and stores of any addresses.


def load_any(
    emitter: CpuEmitter,
    op: Op,
    pointer: Value,
    addresses: Number,
    mask: Number | None,
    other: Number | None,
    type_: Type,
) -> Number:
    """Load from addresses that may be anywhere in the arrays."""
    size, kind = element_bytes(type_), memory_kind(type_)
    if other is not None:
        other = to_memory(emitter, other, type_)
    level = emitter.level(f"{addresses} {mask} {other}")
    with emitter.at_level(level):
        mask = without(check(emitter, op, pointer, addresses, mask, size, "reads"), mask)
        if addresses.lanes or (mask is not None and mask.lanes):
            lanes = emitter.lanes
            return from_memory(emitter, gather(emitter, addresses.spread(lanes), type_, mask, other), type_)
        if mask is not None:  # An address of the thread's own memory stands for one that is masked out.
            addresses = mask.select(addresses, emitter.number("i64", "%scratch"))
        place = emitter.emit(f"inttoptr i64 {addresses} to ptr")
        value = emitter.number(kind, emitter.effect(f"load {kind}, ptr {place}, align {size}"))
        if mask is not None:
            rest = other if other is not None else emitter.number(kind, zero_of(kind))
            value = mask.select(value, rest)
        return from_memory(emitter, value, type_)


@indexed(tt.Load)
def _load(emitter: CpuEmitter, op: tt.Load, index: Index) -> Number:
    if lane_step(op.ptr, index) and root_of(op.ptr) is not None:
        return _load_neighbours(emitter, op, index)
    return _load_lanes(emitter, op, index)


def _load_lanes(emitter: CpuEmitter, op: tt.Load, index: Index) -> Number:
    addresses = emitter.at(op.ptr, index)
    mask = emitter.at(op.mask, index) if op.mask is not None else None
    other = emitter.at(op.other, index) if op.other is not None else None
    return load_any(emitter, op, op.ptr, addresses, mask, other, op.result.type)


def _ends(emitter: CpuEmitter, op: tt.Load | tt.Store, index: Index, size: int) -> tuple[Number, Number, Number]:
    """The addresses of the first and the last lane, and whether the array has what lies between them."""
    first, last = (emitter.at(op.ptr, at_lane(index, lane)) for lane in (0, emitter.lanes - 1))
    inside = emitter.number("i1", "true")
    if emitter.check:
        bounds = bounds_of(emitter, expect(root_of(op.ptr), BlockParameter))
        inside = first.test("uge", bounds.low) & (last + size).test("ule", bounds.high)
        if isinstance(op, tt.Store):
            inside = inside & bounds.writable.test("ne", 0)
    return first, last, inside


def _load_neighbours(emitter: CpuEmitter, op: tt.Load, index: Index) -> Number:
    """Load elements whose addresses rise by an element from lane to lane, or by none.

    The first address and the last one tell whether all lanes have one, or neighbours in the array. They may differ from
    that: a quotient rises at some lanes, and an integer may wrap around. Then each lane is loaded by its address. So it
    is where no lane is to be loaded: the address of all may be outside of the array.
    """
    type_, lanes = op.result.type, emitter.lanes
    size, kind = element_bytes(type_), memory_kind(type_)
    first, last, inside = _ends(emitter, op, index, size)
    mask = emitter.at(op.mask, index) if op.mask is not None else None
    other = to_memory(emitter, emitter.at(op.other, index), type_) if op.other is not None else None
    pointer = emitter.emit(f"inttoptr i64 {first} to ptr")

    def one() -> Number:
        value = emitter.number(kind, emitter.effect(f"load {kind}, ptr {pointer}, align {size}")).spread(lanes)
        rest = other if other is not None else emitter.number(kind, zero_of(kind))
        return from_memory(emitter, value if mask is None else mask.spread(lanes).select(value, rest), type_)

    def run() -> Number:
        return from_memory(emitter, load_run(emitter, pointer, type_, mask, other), type_)

    def others() -> Number:
        return emitter.either(same, one, lambda: _load_lanes(emitter, op, index), name="same")

    follow = inside & (last - first).test("eq", (lanes - 1) * size)
    same = inside & first.test("eq", last)
    if mask is not None:
        bits = emitter.made(f"i{lanes}", f"bitcast {mask.spread(lanes).typed} to i{lanes}")
        same = same & bits.test("ne", 0)
    return emitter.either(follow, run, others, name="run")


def store_any(
    emitter: CpuEmitter, op: Op, pointer: Value, addresses: Number, value: Number, mask: Number | None, type_: Type
) -> None:
    """Store to addresses that may be anywhere in the arrays, in the order of the lanes."""
    size = element_bytes(type_)
    mask = without(check(emitter, op, pointer, addresses, mask, size, "writes"), mask)
    value = to_memory(emitter, value, type_)
    if any(number is not None and number.lanes for number in (addresses, value, mask)):
        scatter(emitter, addresses, value, mask, size)
        return

    def store() -> None:
        place = emitter.emit(f"inttoptr i64 {addresses} to ptr")
        emitter.line(f"store {value.typed}, ptr {place}, align {size}")

    guarded(emitter, mask, store)


def guarded(emitter: CpuEmitter, mask: Number | None, make: Callable[[], None]) -> None:
    """Run code where a condition holds."""
    if mask is None:
        make()
    else:
        emitter.aside(mask, make)


def store(emitter: CpuEmitter, op: tt.Store, index: Index) -> None:
    """A store of a tensor or a scalar at an index."""
    value, mask = emitter.at(op.value, index), emitter.at(op.mask, index) if op.mask is not None else None

    def store_lanes() -> None:
        store_any(emitter, op, op.ptr, emitter.at(op.ptr, index), value, mask, op.value.type)

    if not lane_step(op.ptr, index) or root_of(op.ptr) is None:
        store_lanes()
        return
    size = element_bytes(op.value.type)
    first, last, inside = _ends(emitter, op, index, size)
    pointer = emitter.emit(f"inttoptr i64 {first} to ptr")
    follow = inside & (last - first).test("eq", (emitter.lanes - 1) * size)
    emitter.aside(
        follow, lambda: store_run(emitter, pointer, to_memory(emitter, value, op.value.type), mask, size), name="run"
    )
    with emitter.staying():
        emitter.aside(follow, store_lanes, when=False)


@indexed(tt.Store)
def _store_scalar(emitter: CpuEmitter, op: tt.Store, index: Index) -> None:
    store(emitter, op, index)


# Atomics: one lane after the other.

_RMW: dict[AtomicKind, str] = {
    AtomicKind.ADD: "add", AtomicKind.MAX: "max", AtomicKind.MIN: "min", AtomicKind.UMAX: "umax",
    AtomicKind.UMIN: "umin", AtomicKind.AND: "and", AtomicKind.OR: "or", AtomicKind.XOR: "xor", AtomicKind.XCHG: "xchg",
}  # fmt: skip


@indexed(tt.AtomicRMW, tt.AtomicCAS)
def _atomic(emitter: CpuEmitter, op: tt.AtomicRMW | tt.AtomicCAS, index: Index) -> Number:
    type_, size = op.value.type, element_bytes(op.value.type)
    scalar = scalar_element(type_)
    addresses = emitter.at(op.ptr, index)
    mask = emitter.at(op.mask, index) if isinstance(op, tt.AtomicRMW) and op.mask is not None else None
    operands = [op.compare, op.value] if isinstance(op, tt.AtomicCAS) else [op.value]
    values = [to_memory(emitter, emitter.at(value, index), type_) for value in operands]
    mask = without(check(emitter, op, op.ptr, addresses, mask, size, "updates"), mask)
    if not emitter.fast_math:
        emitter.ordered = emitter.ordered or bool(op.result.uses) or isinstance(op, tt.AtomicCAS) or scalar.is_float
    if emitter.lanes and index:
        addresses, *values = (number.spread(emitter.lanes) for number in (addresses, *values))
    active = mask if mask is not None else emitter.number("i1", "true")

    def update(address: Number, condition: Number, *numbers: Number) -> Number:
        kind = numbers[0].kind

        def updated() -> Number:
            place = emitter.effect(f"inttoptr i64 {address} to ptr")
            if isinstance(op, tt.AtomicCAS):
                return _exchange(emitter, place, numbers, scalar)
            return _update(emitter, op.kind, place, numbers[0], scalar)

        before, values, end = emitter.aside(condition, updated)
        phi = f"phi {kind} [ {values}, %{end} ], [ {zero_of(kind)}, %{before} ]"
        return emitter.number(kind, emitter.effect(phi))

    return from_memory(emitter, by_lane(update, addresses, active, *values), type_)


def _exchange(emitter: CpuEmitter, place: str, numbers: Sequence[Number], scalar: ScalarType) -> Number:
    """Compare and exchange the bits of two numbers."""
    kind = f"i{8 * scalar.bytes}"
    compare, new = (x if x.kind == kind else x.to("bitcast", kind) for x in numbers)
    pair = emitter.effect(f"cmpxchg ptr {place}, {compare.typed}, {new.typed} seq_cst seq_cst")
    old = emitter.number(kind, emitter.effect(f"extractvalue {{ {kind}, i1 }} {pair}, 0"))
    return old if numbers[0].kind == kind else old.to("bitcast", numbers[0].kind)


def _update(emitter: CpuEmitter, kind: AtomicKind, place: str, value: Number, scalar: ScalarType) -> Number:
    """Combine memory with a number; the number that was there."""
    whole = f"i{8 * scalar.bytes}"
    if kind in _RMW and (not scalar.is_float or kind is AtomicKind.XCHG) and scalar != i1:
        new_bits = value if value.kind == whole else value.to("bitcast", whole)
        old = emitter.number(whole, emitter.effect(f"atomicrmw {_RMW[kind]} ptr {place}, {new_bits.typed} seq_cst"))
        return old if value.kind == whole else old.to("bitcast", value.kind)
    head, after = emitter.name("again"), emitter.name("done")
    first = emitter.effect(f"load atomic {whole}, ptr {place} monotonic, align {scalar.bytes}")
    before = emitter.here
    emitter.line(f"br label %{head}")
    emitter.start(head)
    name = f"%{emitter.name()}"
    emitter.level_of[name] = emitter.depth
    old_bits = emitter.number(whole, name)
    at = len(emitter.levels[-1].lines)
    old = old_bits if value.kind == whole else old_bits.to("bitcast", value.kind)
    if scalar == i1:
        bit = {AtomicKind.ADD: "xor", AtomicKind.UMAX: "or", AtomicKind.UMIN: "and"}.get(kind, _RMW[kind])
        old_bit, mine = (x.to("trunc", "i1") for x in (old, value))
        result = mine if bit == "xchg" else emitter.made("i1", f"{bit} i1 {old_bit}, {mine}")
        new = result.to("zext", "i8")
    else:
        new = combined(tt.ATOMIC_OPS[kind], scalar, old, value)
    bits = new if new.kind == whole else new.to("bitcast", whole)
    pair = emitter.effect(f"cmpxchg ptr {place}, {old_bits.typed}, {bits.typed} seq_cst seq_cst")
    current = emitter.effect(f"extractvalue {{ {whole}, i1 }} {pair}, 0")
    good = emitter.effect(f"extractvalue {{ {whole}, i1 }} {pair}, 1")
    emitter.line(f"br i1 {good}, label %{after}, label %{head}")
    emitter.levels[-1].lines.insert(
        at, f"  {name} = phi {whole} [ {first}, %{before} ], [ {current}, %{emitter.here} ]"
    )
    emitter.start(after)
    return old


# Gathers from tensors, and counts.


@indexed(tt.Gather)
def _gather(emitter: CpuEmitter, op: tt.Gather, index: Index) -> Number:
    row = emitter.at(op.index, index)
    size = expect(op.source.type, TensorType).shape[op.axis]
    wide = extended(row, scalar_element(op.index.type))
    site = emitter.site(op, "gathers")
    emitter.fail(5, wide.test("uge", size), site, wide, emitter.i64(size))
    place = list(index)
    place[op.axis] = Coord(wide)
    return emitter.at(op.source, tuple(place))


def count(emitter: CpuEmitter, op: cpu.Count, index: Index) -> None:
    """Count numbers, one lane after the other."""
    value = emitter.at(op.value, index)
    mask = emitter.at(op.mask, index) if op.mask is not None else emitter.number("i1", "true")
    buffer = expect(op.buffer.type, cpu.BufferType)
    wide = extended(value, scalar_element(op.value.type))
    inside = wide.test("ult", buffer.numel) & mask
    wide = inside.select(wide, 0)
    bit = inside.to("zext", "i32")
    wide, bit = together(wide, bit)
    for lane in range(max(wide.lanes, 1)):
        at, by = wide.lane(lane), bit.lane(lane)
        place = emitter.address(buffer_address(emitter, op.buffer), at, 4)
        old = emitter.number("i32", emitter.effect(f"load i32, ptr {place}"))
        emitter.line(f"store i32 {old + by}, ptr {place}")
