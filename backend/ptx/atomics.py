"""Emission of atomic accesses of global memory.

One of the threads that hold copies of an element accesses it. An access for which the machine has an instruction is
that instruction under a predicate: `red` where the result has no use, else `atom`. Additions to neighbours are joined
(`vector_atomics.py`). Other accesses (integers of 8 and 16 bits, `fmax` of small floats …) are loops around
compare-and-swap; elements of 8 bits swap the aligned word of 32 bits around them.

* The maximum and minimum of floats of 32 and 64 bits compare their bits: as signed integers if the value is positive,
  and in reverse as unsigned integers if it is negative. A value of NaN changes nothing; a NaN in memory stays there,
  unlike in the reference.
* `atom.add.f32` flushes subnormals in global memory to zero (PTX ISA, "atom").
* A release covers the earlier writes of all threads of the CTA: a barrier comes before it. A barrier follows an acquire
  whose result is used. `red` has no acquire, and nothing can depend on a result without uses: there acq_rel becomes
  release, and acquire becomes relaxed.
* Where lowering sends the result to the threads with copies through a buffer (`_only_stored`), nothing is left to do
  here. Otherwise `uniform.py` gives it to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ziggurat.backend.ptx.casts import rounded, widened
from ziggurat.backend.ptx.elementwise import choose
from ziggurat.backend.ptx.emitter import Emitted, Emitter, canonical, emits, is_tensor, layout_of
from ziggurat.backend.ptx.memory import both
from ziggurat.backend.ptx.numbers import llvm_type
from ziggurat.backend.ptx.tensors import unique_registers
from ziggurat.backend.ptx.uniform import shared_out
from ziggurat.backend.ptx.vector_atomics import add_together, together
from ziggurat.backend.ptx.words import from_memory, to_memory
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects.tt import AtomicKind, MemScope, MemSemantic
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import replicated
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32, f64, scalar_element

Update = Callable[[str], tuple[str, str | None]]

_REGISTERS = {16: "h", 32: "r", 64: "l"}
_BITWISE = {AtomicKind.AND: "and", AtomicKind.OR: "or", AtomicKind.XOR: "xor"}
_SIGNED = {AtomicKind.MAX: "max.s", AtomicKind.MIN: "min.s", AtomicKind.UMAX: "max.u", AtomicKind.UMIN: "min.u"}
_CHOICES = {AtomicKind.FMAX: arith.MaxNumF, AtomicKind.FMIN: arith.MinNumF}
_FLOAT_ADDS = {f16: "add.noftz.f16", bf16: "add.noftz.bf16", f32: "add.f32", f64: "add.f64"}


def _instruction(emitter: Emitter, kind: AtomicKind, scalar: ScalarType) -> str | None:
    """The part of the instruction's name after the address space; None where the machine has no instruction."""
    bits = scalar.bits
    if kind is AtomicKind.FADD and (scalar != bf16 or emitter.capability >= 90):
        return _FLOAT_ADDS.get(scalar)
    if bits < 32:
        return None
    if kind is AtomicKind.ADD:
        return f"add.u{bits}"
    if kind is AtomicKind.XCHG:
        return f"exch.b{bits}"
    if kind in _SIGNED:
        return f"{_SIGNED[kind]}{bits}"
    return f"{_BITWISE[kind]}.b{bits}" if kind in _BITWISE else None


class _Access:
    """One atomic op: its order, its scope, and whether its result is used."""

    def __init__(self, op: tt.AtomicRMW | tt.AtomicCAS) -> None:
        self.used = bool(op.result.uses)
        self.sem = op.sem
        if not self.used:
            weaker = {MemSemantic.ACQ_REL: MemSemantic.RELEASE, MemSemantic.ACQUIRE: MemSemantic.RELAXED}
            self.sem = weaker.get(op.sem, op.sem)
        self.scope: MemScope = op.scope

    @property
    def prefix(self) -> str:
        return f"{self.sem.value}.{self.scope.value}.global"

    @property
    def releases(self) -> bool:
        return self.sem in (MemSemantic.RELEASE, MemSemantic.ACQ_REL)

    @property
    def acquires(self) -> bool:
        return self.sem in (MemSemantic.ACQUIRE, MemSemantic.ACQ_REL)

    def native(
        self, emitter: Emitter, names: list[tuple[str, str]], bits: int, given: list[str], address: str, used: bool
    ) -> str:
        """Emit instructions of one width under their predicates. `names` are (name, predicate), `given` the
        operands."""
        register, kind = _REGISTERS[bits], f"i{bits}"
        first = 1 if used else 0
        operands = ", ".join(f"${first + 1 + index}" for index in range(len(given)))
        lines: list[str] = []
        predicates: list[str] = []
        for name, predicate in names:
            guard = ""
            if predicate:
                predicates.append(predicate)
                guard = f"@${first + len(given) + len(predicates)} "
            head = f"atom.{self.prefix}.{name} $0," if used else f"red.{self.prefix}.{name}"
            lines.append(f"{guard}{head} [ ${first} + 0 ], {operands};")
        # Only one of two instructions runs: its result must not share a register with an operand of the other.
        result = [f"=&{register}"] if used else []
        constraints = [*result, "l", *[register] * len(given), *["b"] * len(predicates), "~{memory}"]
        arguments = [("ptr addrspace(1)", address), *((kind, value) for value in given)]
        arguments += [("i1", predicate) for predicate in predicates]
        return emitter.asm(kind if used else "void", " ".join(lines), ",".join(constraints), *arguments, effect=True)


def _float_choice(
    emitter: Emitter, access: _Access, kind: AtomicKind, scalar: ScalarType, address: str, value: str, mask: str | None
) -> str:
    """The maximum or minimum of floats, by their bits."""
    whole, number = f"i{scalar.bits}", llvm_type(scalar)
    name, other = ("max", "min") if kind is AtomicKind.FMAX else ("min", "max")
    known = emitter.emit(f"fcmp ord {number} {value}, {value}")
    identity = "0xFFF0000000000000" if kind is AtomicKind.FMAX else "0x7FF0000000000000"
    value = emitter.emit(f"select i1 {known}, {number} {value}, {number} {identity}")
    bits = emitter.emit(f"bitcast {number} {value} to {whole}")
    positive = emitter.emit(f"icmp sge {whole} {bits}, 0")
    negative = emitter.emit(f"icmp slt {whole} {bits}, 0")
    first, second = both(emitter, mask, positive), both(emitter, mask, negative)
    assert first is not None and second is not None
    names = [(f"{name}.s{scalar.bits}", first), (f"{other}.u{scalar.bits}", second)]
    return access.native(emitter, names, scalar.bits, [bits], address, access.used)


# Loops.


def _combined(emitter: Emitter, kind: AtomicKind, scalar: ScalarType, old: str, value: str) -> str:
    """The element that an access writes."""
    number = llvm_type(scalar)
    if kind is AtomicKind.XCHG:
        return value
    if kind is AtomicKind.FADD:
        wide = [widened(emitter, item, scalar) for item in (old, value)]
        return rounded(emitter, emitter.emit(f"fadd float {wide[0]}, {wide[1]}"), scalar)
    if kind in _CHOICES:
        return choose(emitter, _CHOICES[kind], scalar, old, value)
    if kind is AtomicKind.ADD:
        return emitter.emit(f"add {number} {old}, {value}")
    if kind in _BITWISE:
        return emitter.emit(f"{_BITWISE[kind]} {number} {old}, {value}")
    function = {AtomicKind.MAX: "smax", AtomicKind.MIN: "smin", AtomicKind.UMAX: "umax", AtomicKind.UMIN: "umin"}[kind]
    return emitter.call(number, f"llvm.{function}.{number}", (number, old), (number, value))


class _Word:
    """The 16 or 32 bits that compare-and-swap swaps around an element, and the place of the element in them."""

    def __init__(self, emitter: Emitter, scalar: ScalarType, address: str) -> None:
        self.emitter = emitter
        self.scalar = scalar
        self.size = 8 * scalar.bytes
        self.bits = max(16, self.size) if self.size != 8 else 32
        self.kind = f"i{self.bits}"
        self.address = address
        self.shift = ""
        if self.size == 8:
            number = emitter.emit(f"ptrtoint ptr addrspace(1) {address} to i64")
            byte = emitter.emit(f"and i64 {number}, 3")
            number = emitter.emit(f"and i64 {number}, -4")
            self.address = emitter.emit(f"inttoptr i64 {number} to ptr addrspace(1)")
            byte = emitter.emit(f"trunc i64 {byte} to i32")
            self.shift = emitter.emit(f"shl i32 {byte}, 3")
            mask = emitter.emit(f"shl i32 255, {self.shift}")
            self.rest = emitter.emit(f"xor i32 {mask}, -1")

    def read(self, scope: MemScope) -> str:
        """The word in memory."""
        text = f"ld.relaxed.{scope.value}.global.b{self.bits} $0, [ $1 + 0 ];"
        constraints = f"={_REGISTERS[self.bits]},l,~{{memory}}"
        return self.emitter.asm(self.kind, text, constraints, ("ptr addrspace(1)", self.address), effect=True)

    def element(self, word: str) -> str:
        """The bits of the element in a word, as an integer of its size in memory."""
        if not self.shift:
            return word
        moved = self.emitter.emit(f"lshr i32 {word}, {self.shift}")
        return self.emitter.emit(f"trunc i32 {moved} to i8")

    def replaced(self, word: str, element: str) -> str:
        """The word with another element in it."""
        if not self.shift:
            return element
        kept = self.emitter.emit(f"and i32 {word}, {self.rest}")
        moved = self.emitter.emit(f"zext i8 {element} to i32")
        moved = self.emitter.emit(f"shl i32 {moved}, {self.shift}")
        return self.emitter.emit(f"or i32 {kept}, {moved}")

    def swap(self, access: _Access, expected: str, new: str) -> str:
        """Write the new word if memory holds the expected one; the word that it held."""
        return access.native(self.emitter, [(f"cas.b{self.bits}", "")], self.bits, [expected, new], self.address, True)


def _loop(emitter: Emitter, access: _Access, scalar: ScalarType, address: str, mask: str | None, update: Update) -> str:
    """Read a word, and try to swap it for the updated one until no other thread came between. Gives the old bits.

    `update` maps the old bits to the bits to write, and to a condition under which nothing is written, or None.
    """
    size = f"i{8 * scalar.bytes}"
    begin, head, again, after = (emitter.name(hint) for hint in ("swap", "try", "again", "done"))
    outside = emitter.label
    if mask is None:
        emitter.line(f"br label %{begin}")
    else:
        emitter.line(f"br i1 {mask}, label %{begin}, label %{after}")
    emitter.start(begin)
    word = _Word(emitter, scalar, address)
    initial = word.read(access.scope)
    emitter.line(f"br label %{head}")
    emitter.start(head)
    place = len(emitter.lines)
    current = f"%{emitter.name()}"
    old = word.element(current)
    new, stop = update(old)
    ends = [(old, again)]
    if stop is not None:
        emitter.line(f"br i1 {stop}, label %{after}, label %{again}")
        ends.append((old, head))
    else:
        emitter.line(f"br label %{again}")
    emitter.start(again)
    found = word.swap(access, current, word.replaced(current, new))
    good = emitter.emit(f"icmp eq {word.kind} {found}, {current}")
    emitter.line(f"br i1 {good}, label %{after}, label %{head}")
    emitter.lines.insert(place, f"  {current} = phi {word.kind} [ {initial}, %{begin} ], [ {found}, %{again} ]")
    emitter.start(after)
    if mask is not None:
        ends.append(("0", outside))
    return emitter.emit(f"phi {size} " + ", ".join(f"[ {value}, %{label} ]" for value, label in ends))


# The ops.


def _update(
    emitter: Emitter, access: _Access, kind: AtomicKind, scalar: ScalarType, address: str, value: str, mask: str | None
) -> str:
    """Emit one read-modify-write; the bits that were in memory."""
    if kind in _CHOICES and scalar.bits >= 32:
        return _float_choice(emitter, access, kind, scalar, address, value, mask)
    name = _instruction(emitter, kind, scalar)
    if name is not None:
        bits = to_memory(emitter, value, scalar)
        used = access.used or kind is AtomicKind.XCHG  # There is no `red.exch`.
        return access.native(emitter, [(name, mask or "")], scalar.bits, [bits], address, used)

    def update(old: str) -> tuple[str, None]:
        new = _combined(emitter, kind, scalar, from_memory(emitter, old, scalar), value)
        return to_memory(emitter, new, scalar), None

    return _loop(emitter, access, scalar, address, mask, update)


def _swap(
    emitter: Emitter, access: _Access, scalar: ScalarType, address: str, compare: str, value: str, mask: str | None
) -> str:
    """Emit one compare-and-swap; the bits that were in memory."""
    expected, new = (to_memory(emitter, item, scalar) for item in (compare, value))
    if 8 * scalar.bytes >= 16:
        bits = 8 * scalar.bytes
        return access.native(emitter, [(f"cas.b{bits}", mask or "")], bits, [expected, new], address, True)

    def update(old: str) -> tuple[str, str]:
        return new, emitter.emit(f"icmp ne i8 {old}, {expected}")

    return _loop(emitter, access, scalar, address, mask, update)


def _only_stored(values: Iterable[Value]) -> bool:
    """Whether the only uses of the values are stores to buffers by the threads that own the elements."""
    return all(
        isinstance(use, gpu.LocalStore) or (isinstance(use, tt.Splat) and _only_stored([use.result]))
        for value in values
        for use in value.uses
    )


def _everywhere(
    emitter: Emitter,
    op: tt.AtomicRMW | tt.AtomicCAS,
    access: _Access,
    one: Callable[[range, str | None], list[str]],
    count: int = 1,
) -> Emitted:
    """Emit `one(registers, mask)` for `count` elements at a time, in the thread that owns them.

    The results are given to all threads that hold copies."""
    type_ = op.ptr.type
    tensor = is_tensor(type_)
    layout = layout_of(type_) if tensor else replicated(1, emitter.num_warps)
    scalar = scalar_element(op.value.type)
    if access.releases:
        emitter.barrier()
    owner = emitter.owner(layout)
    found: dict[int, str] = {}
    for first in unique_registers(layout):
        if first not in found:
            group = range(first, first + count)
            found |= zip(group, one(group, owner), strict=True)
    if not access.used:
        return ["poison"] * layout.num_registers if tensor else "poison"
    found = {register: from_memory(emitter, bits, scalar) for register, bits in found.items()}
    if _only_stored([op.result]):
        # The barrier between the store to the buffer and its loads serves the acquire as well.
        values = [found[canonical(layout, register)] for register in range(layout.num_registers)]
    else:
        values = shared_out(emitter, layout, scalar, found)
        if access.acquires and not layout.free[2]:
            emitter.barrier()
    return values if tensor else values[0]


def _register(emitter: Emitter, value: Value, register: int) -> str:
    found: Emitted = emitter.values[value]
    return found if isinstance(found, str) else found[register]


@emits(tt.AtomicRMW)
def _rmw(emitter: Emitter, op: tt.AtomicRMW) -> Emitted:
    scalar, access = scalar_element(op.value.type), _Access(op)
    count = together(emitter.capability, op.kind, scalar, op.width)

    def one(group: range, owner: str | None) -> list[str]:
        first = group[0]
        mask = both(emitter, owner, _register(emitter, op.mask, first) if op.mask is not None else None)
        address = _register(emitter, op.ptr, first)
        values = [_register(emitter, op.value, register) for register in group]
        if count == 1:
            return [_update(emitter, access, op.kind, scalar, address, values[0], mask)]
        bits = [to_memory(emitter, value, scalar) for value in values]
        return add_together(emitter, access.prefix, scalar, address, bits, mask, access.used)

    return _everywhere(emitter, op, access, one, count)


@emits(tt.AtomicCAS)
def _cas(emitter: Emitter, op: tt.AtomicCAS) -> Emitted:
    scalar, access = scalar_element(op.value.type), _Access(op)

    def one(group: range, owner: str | None) -> list[str]:
        address, compare, value = (_register(emitter, v, group[0]) for v in (op.ptr, op.compare, op.value))
        return [_swap(emitter, access, scalar, address, compare, value, owner)]

    return _everywhere(emitter, op, access, one)
