"""Emission of atomic accesses of global memory.

One of the threads that hold copies of an element accesses it. An access for which the machine has an instruction is
that instruction under a predicate: `red` where the result has no use, else `atom`. Other accesses (integers of 8 and 16
bits, `fmax` of small floats …) are loops around compare-and-swap; elements of 8 bits swap the aligned word of 32 bits
around them.

* The maximum and minimum of floats of 32 and 64 bits compare their bits: as signed integers if the value is positive,
  and in reverse as unsigned integers if it is negative. A value of NaN changes nothing; a NaN in memory stays there,
  unlike in the reference.
* `atom.add.f32` flushes subnormals in global memory to zero (PTX ISA, "atom").
* A release covers the earlier writes of all threads of the CTA: a barrier comes before it. A barrier follows an acquire
  whose result is used. `red` has no acquire, and nothing can depend on a result without uses: there acq_rel becomes
  release, and acquire becomes relaxed. Exchanges and compare-and-swaps keep what they are: where one releases a lock,
  its acquire empties the L1 cache, which programs rely on that take the lock by a relaxed compare-and-swap.
* A thread with several accesses has one fence before them, and one after them, in place of an order of each: an
  access of its own order waits for all earlier ones of the thread.
* Where lowering sends the result to the threads with copies through a buffer (`_only_stored`), nothing is left to do
  here. Otherwise `shared_out` gives it to them.
* An atomic that leaves the memory as it is and does not release is a load, and an exchange that does not acquire and
  whose result has no use is a store, as LLVM has it for C++ (`AtomicRMW.is_load`, `is_store`).
* A wait is a loop of loads in one thread, with a barrier after it.
* One instruction adds to neighbours. It is atomic for each element, not for all of them. f16 are added in pairs
  (`add.noftz.f16x2`). From sm_90 on bf16 are as well, and there are vectors of 2 or 4 words of 32 bits (PTX ISA 8.1,
  "red" and "atom": `.vec_32_bit`). The neighbours have one alignment and one mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ziggurat.backend.llvm.elementwise import CHOICES, INSTRUCTIONS, in_f32
from ziggurat.backend.llvm.routines import Join, Number, instruction, llvm_type
from ziggurat.backend.ptx.casts import conversions
from ziggurat.backend.ptx.emitter import EFFECT, Argument, Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.packed_words import GLOBAL, from_memory, pack, to_memory, unpack, vector
from ziggurat.backend.ptx.shuffles import shared_out
from ziggurat.backend.ptx.tensors import timer
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32, i1, scalar_element

# The instruction for an access of integers.
_INTEGERS = {
    AtomicKind.ADD: "add.u", AtomicKind.AND: "and.b", AtomicKind.OR: "or.b", AtomicKind.XOR: "xor.b",
    AtomicKind.MAX: "max.s", AtomicKind.MIN: "min.s", AtomicKind.UMAX: "max.u", AtomicKind.UMIN: "min.u",
}  # fmt: skip


class _Access:
    """The accesses of one atomic op."""

    def __init__(self, emitter: PtxEmitter, op: tt.AtomicRMW | tt.AtomicCAS) -> None:
        self.emitter = emitter
        self.op = op
        self.scalar = scalar_element(op.value.type)
        self.size = 8 * self.scalar.bytes  # The bits in memory.
        self.is_used = bool(op.result.uses)
        self.sem = op.order

    def native(
        self, names: Sequence[tuple[str, str | None]], kind: str, address: str, *operands: Sequence[str], is_used: bool
    ) -> list[str]:
        """Emit instructions (name, predicate); the words that were in memory, if they are used.

        The operands are vectors of words of one LLVM type.
        """
        count = len(operands[0])
        results = [kind] * count if is_used else []
        arguments: list[Argument] = [(GLOBAL, address)]
        flags: list[str] = []
        for words in operands:
            flags.append(vector(len(results) + len(arguments), count)[1])
            arguments += [(kind, word) for word in words]
        lines: list[str] = []
        for name, predicate in names:
            guard = ""
            if predicate is not None:
                guard = f"@${len(results) + len(arguments)} "
                arguments.append(("i1", predicate))
            head = f"{'atom' if is_used else 'red'}.{self.sem.value}.{self.op.scope.value}.global.{name}"
            target = f" {vector(0, count)[1]}," if is_used else ""
            lines.append(f"{guard}{head}{target} [ ${len(results)} + 0 ], {', '.join(flags)};")
        # Only one of two instructions runs: its result must not share a register with an operand of the other.
        return self.emitter.asm(results, " ".join(lines), *arguments, effect=EFFECT, early=True)

    def load(self, address: str, mask: str | None) -> list[str]:
        """Emit an ordered load; the bits in memory."""
        return ordered_load(self.emitter, f"i{self.size}", address, self.sem, self.op.scope, mask)

    def store(self, address: str, bits: str, mask: str | None) -> list[str]:
        """Emit an ordered store."""
        text = f"@mask st.{self.sem.value}.{self.op.scope.value}.global.b{self.size} [ $0 + 0 ], $1;"
        return self.emitter.asm((), text, (GLOBAL, address), (f"i{self.size}", bits), mask=mask, effect=EFFECT)

    def by_owners(self, call: Callable[[range, str | None], Sequence[str]], count: int = 1) -> Emitted:
        """The values that were in memory. `call(registers, owner)` emits the access of `count` elements.

        `owner` is the i1 of the one thread, of those that hold copies of the elements, that accesses memory. The others
        get the values from it. Values that nothing uses are poison.
        """
        emitter, type_ = self.emitter, self.op.ptr.type
        layout, owner = emitter.layout(type_), emitter.owner(type_)
        order = self.sem
        if order.releases:
            emitter.barrier()
        if len(layout.unique_registers) > count and order is not tt.MemSemantic.RELAXED:
            self.sem = tt.MemSemantic.RELAXED
        if self.sem is not order and order.releases:
            self.fence(owner)
        registers: dict[int, str] = {}
        for first in layout.unique_registers:
            if first not in registers:
                group = range(first, first + count)
                registers |= zip(group, call(group, owner) or [""] * count, strict=True)
        if self.sem is not order and order.acquires:
            self.fence(owner)
        if not self.is_used:
            return emitter.value(type_, dict.fromkeys(registers, "poison"))
        registers = {register: from_memory(emitter, bits, self.scalar) for register, bits in registers.items()}
        if _only_stored(self.op.result):
            # The barrier between the store to the buffer and its loads serves the acquire as well.
            return emitter.value(type_, registers)
        values = shared_out(emitter, type_, self.scalar, registers)
        if order.acquires and not layout.free[2]:
            emitter.barrier()
        return values

    def fence(self, owner: str | None) -> None:
        """Order the accesses of the threads that own elements before those that come after it."""
        text = f"fence.acq_rel.{self.op.scope.value};"
        if owner is None:
            self.emitter.asm((), text, effect=EFFECT)
        else:
            self.emitter.asm((), f"@$0 {text}", ("i1", owner), effect=EFFECT)


def ordered_load(
    emitter: PtxEmitter, kind: str, address: str, sem: tt.MemSemantic, scope: tt.MemScope, mask: str | None = None
) -> list[str]:
    """Emit a load of a number that other threads write meanwhile."""
    text = f"@mask ld.{sem.value}.{scope.value}.global.b{kind[1:]} $0, [ $1 + 0 ];"
    return emitter.asm((kind,), text, (GLOBAL, address), mask=mask, effect=EFFECT)


def _only_stored(value: Value) -> bool:
    """Whether the only uses of a value are stores to buffers by the threads that own the elements."""
    return all(
        isinstance(use, gpu.LocalStore) or (isinstance(use, tt.Splat) and _only_stored(use.result))
        for use in value.uses
    )


# Loops around compare-and-swap.


class _Word:
    """The 16 or 32 bits that compare-and-swap swaps around an element, and the place of the element in them."""

    def __init__(self, access: _Access, address: str) -> None:
        self.access = access
        self.emitter = emitter = access.emitter
        self.bits = 32 if access.size == 8 else access.size
        self.kind = f"i{self.bits}"
        self.address = address
        self.shift: Number | None = None
        if access.size == 8:
            number = emitter.of(GLOBAL, address).to("ptrtoint", "i64")
            byte = number & 3
            self.address = (number & -4).to("inttoptr", GLOBAL).name
            self.shift = byte.to("trunc", "i32") << 3
            self.rest = (self.shift.like(255) << self.shift) ^ -1

    def read(self) -> str:
        """The word in memory."""
        scope = self.access.op.scope
        return ordered_load(self.emitter, self.kind, self.address, tt.MemSemantic.RELAXED, scope)[0]

    def element(self, word: str) -> str:
        """The bits of the element in a word, as an integer of its size in memory."""
        if self.shift is None:
            return word
        return (self.emitter.of("i32", word) >> self.shift).to("trunc", "i8").name

    def swap(self, expected: str, element: str) -> str:
        """Write the word with another element if memory holds the expected word; the word that it held."""
        new = element
        if self.shift is not None:
            other_bytes = self.emitter.of("i32", expected) & self.rest
            new = (other_bytes | self.emitter.of("i8", element).to("zext", "i32") << self.shift).name
        names = [(f"cas.b{self.bits}", None)]
        return self.access.native(names, self.kind, self.address, [expected], [new], is_used=True)[0]


def _loop(access: _Access, address: str, mask: str | None, update: Callable[[str], tuple[str, str | None]]) -> str:
    """Read a word, and try to swap it for the updated one until no other thread came between. Gives the old bits.

    `update` maps the old bits to the bits to write, and to a condition under which nothing is written, or None.
    """
    emitter = access.emitter
    begin, again = emitter.name("swap"), emitter.name("again")
    after = Join(emitter, "done", [f"i{access.size}"])
    emitter.line(f"br label %{begin}" if mask is None else f"br i1 {mask}, label %{begin}, {after.branch(['0'])}")
    emitter.start(begin)
    word = _Word(access, address)
    head = Join(emitter, "try", [word.kind])
    emitter.line(f"br {head.branch([word.read()])}")
    (current,) = head.begin()
    old = word.element(current)
    new, stop = update(old)
    emitter.line(f"br label %{again}" if stop is None else f"br i1 {stop}, {after.branch([old])}, label %{again}")
    emitter.start(again)
    value = word.swap(current, new)
    good = emitter.emit(f"icmp eq {word.kind} {value}, {current}")
    emitter.line(f"br i1 {good}, {after.branch([old])}, {head.branch([value])}")
    head.end()
    (result,) = after.begin()
    after.end()
    return result


# Read-modify-write.


def _instruction(emitter: PtxEmitter, kind: AtomicKind, scalar: ScalarType) -> str | None:
    """The instruction's name after the address space; None where the machine has no instruction."""
    if kind is AtomicKind.FADD and not scalar.is_fp8 and (scalar != bf16 or emitter.target.has_vector_atomics):
        return f"add{'.noftz' if scalar.bits == 16 else ''}.{scalar}"
    if scalar.bits < 32:
        return None
    if kind is AtomicKind.XCHG:
        return f"exch.b{scalar.bits}"
    return f"{_INTEGERS[kind]}{scalar.bits}" if kind in _INTEGERS else None


def _combined(emitter: PtxEmitter, kind: AtomicKind, scalar: ScalarType, old: str, value: str) -> str:
    """The element that an access writes."""
    if kind is AtomicKind.XCHG:
        return value
    cls, (a, b) = tt.ATOMIC_OPS[kind], (emitter.of(llvm_type(scalar), name) for name in (old, value))
    rule = partial(instruction, INSTRUCTIONS[cls])
    if scalar.is_fp8 or kind is AtomicKind.FADD:
        return in_f32(conversions(emitter), cls, scalar, rule, a, b).name
    return rule(a, b).name


def _float_choice(access: _Access, kind: AtomicKind, address: str, value: str, mask: str | None) -> list[str]:
    """The maximum or minimum of floats, by their bits."""
    emitter, bits = access.emitter, access.size
    name, other = ("max", "min") if kind is AtomicKind.FMAX else ("min", "max")
    number = emitter.of(llvm_type(access.scalar), value)
    identity = -math.inf if kind is AtomicKind.FMAX else math.inf
    ordered_bits = number.test("ord", number).select(number, identity).bits()
    positive, negative = (ordered_bits.test(predicate, 0).name for predicate in ("sge", "slt"))
    names = [
        (f"{name}.s{bits}", emitter.both(mask, positive)), (f"{other}.u{bits}", emitter.both(mask, negative))
    ]  # fmt: skip
    return access.native(names, ordered_bits.kind, address, [ordered_bits.name], is_used=access.is_used)


def _update(access: _Access, kind: AtomicKind, address: str, value: str, mask: str | None) -> list[str]:
    """Emit one read-modify-write; the bits that were in memory, if they are used."""
    emitter, scalar = access.emitter, access.scalar
    if tt.ATOMIC_OPS.get(kind) in CHOICES and scalar.bits >= 32:
        return _float_choice(access, kind, address, value, mask)
    assert isinstance(access.op, tt.AtomicRMW)
    if access.op.is_load:
        return access.load(address, mask)
    name = _instruction(emitter, kind, scalar)
    if name is not None:
        bits = to_memory(emitter, value, scalar)
        if access.op.is_store:
            return access.store(address, bits, mask)
        is_used = access.is_used or kind is AtomicKind.XCHG  # There is no `red.exch`.
        return access.native([(name, mask)], f"i{access.size}", address, [bits], is_used=is_used)

    def update(old: str) -> tuple[str, None]:
        new = _combined(emitter, kind, scalar, from_memory(emitter, old, scalar), value)
        return to_memory(emitter, new, scalar), None

    return [_loop(access, address, mask, update)]


def _add_together(access: _Access, address: str, values: Sequence[str], mask: str | None) -> list[str]:
    """Add to neighbours; the bits that were in memory, if they are used."""
    emitter, scalar = access.emitter, access.scalar
    words = pack(emitter, [to_memory(emitter, value, scalar) for value in values], scalar.bytes, 4)
    suffix, _ = vector(0, len(words))
    name = f"add{suffix}.f32" if scalar == f32 else f"add.noftz{suffix}.{scalar}x2"
    return unpack(
        emitter, access.native([(name, mask)], "i32", address, words, is_used=access.is_used), scalar.bytes, 4
    )


@emits(tt.AtomicRMW)
def _rmw(emitter: PtxEmitter, op: tt.AtomicRMW) -> Emitted:
    access = _Access(emitter, op)
    scalar, count = access.scalar, 1
    target = emitter.target
    if op.kind is AtomicKind.FADD and (scalar in (f16, f32) or (scalar == bf16 and target.has_vector_atomics)):
        count = min(op.width, target.sum_bytes // scalar.bytes)

    def one(group: range, owner: str | None) -> list[str]:
        first = group[0]
        mask, address = emitter.both(owner, emitter.mask(op.mask, first)), emitter.at(op.ptr, first)
        if count == 1:
            return _update(access, op.kind, address, emitter.at(op.value, first), mask)
        return _add_together(access, address, [emitter.at(op.value, register) for register in group], mask)

    return access.by_owners(one, count)


@emits(tt.AtomicCAS)
def _cas(emitter: PtxEmitter, op: tt.AtomicCAS) -> Emitted:
    access = _Access(emitter, op)

    def one(group: range, owner: str | None) -> list[str]:
        address = emitter.at(op.ptr, group[0])
        expected, new = (to_memory(emitter, emitter.at(v, group[0]), access.scalar) for v in (op.compare, op.value))
        if access.size >= 16:
            names = [(f"cas.b{access.size}", owner)]
            return access.native(names, f"i{access.size}", address, [expected], [new], is_used=True)
        return [_loop(access, address, owner, lambda old: (new, emitter.emit(f"icmp ne i8 {old}, {expected}")))]

    return access.by_owners(one)


# Waits.

_SLEEP = 32  # Nanoseconds between two loads, so that those of many CTAs do not fill the way to memory.


@emits(tt.Wait)
def _wait(emitter: PtxEmitter, op: tt.Wait) -> Emitted:
    """The result of a wait with an end is that of the thread that owns it; lowering passes it on."""
    kind = llvm_type(scalar_element(op.value.type))
    address, value = emitter.at(op.ptr, 0), emitter.at(op.value, 0)
    limit = None if op.timeout is None else emitter.of("i64", emitter.at(op.timeout, 0))
    poll, again = emitter.name("poll"), emitter.name("again")
    owner, after = emitter.owner(i1), Join(emitter, "done", ["i1"])
    start = None if limit is None else emitter.of("i64", timer(emitter))
    emitter.line(f"br label %{poll}" if owner is None else f"br i1 {owner}, label %{poll}, {after.branch(['true'])}")
    emitter.start(poll)
    number = emitter.of(kind, ordered_load(emitter, kind, address, op.sem, op.scope)[0])
    holds = number.test(op.predicate.value, emitter.of(kind, value))
    emitter.line(f"br i1 {holds}, {after.branch(['true'])}, label %{again}")
    emitter.start(again)
    emitter.asm((), f"nanosleep.u32 {_SLEEP};", effect=EFFECT)
    if start is None or limit is None:
        emitter.line(f"br label %{poll}")
    else:
        late = emitter.of("i64", timer(emitter)) - start
        emitter.line(f"br i1 {late.test('sge', limit)}, {after.branch(['false'])}, label %{poll}")
    (result,) = after.begin()
    after.end()
    if limit is None:
        result = "true"
    if limit is None or not _only_stored(op.result):
        emitter.barrier()
    return result
