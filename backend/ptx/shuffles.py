"""Values of other threads: shuffles within a warp, and results of one thread for all that hold copies of an element.

Lanes get them by a shuffle. Warps get them through `@zg_slot` in shared memory, with a barrier before it is read and
one before it may be written again.

Conversions of layouts that stay within warps rename registers, or exchange them by shuffles, as
`transforms/layouts/shuffle_rounds.py` plans. Elements of 8 and 16 bits travel in words of 32 bits: registers that move
together throughout are packed before the exchange and unpacked after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from ziggurat.backend.llvm.routines import llvm_type
from ziggurat.backend.ptx.emitter import Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.packed_words import SHARED, from_words, load_elements, pack, store_elements, to_words, unpack
from ziggurat.backend.ptx.tensors import moved
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import LANE_BITS, combine
from ziggurat.codemodel.types import ScalarType, TensorType, Type
from ziggurat.transforms.analysis.queries import layout_of, tensor_of
from ziggurat.transforms.layouts.shuffle_rounds import Exchange, Factor, exchange

_ALL = "-1"  # All lanes take part in every shuffle: control is uniform in a CTA.
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr addrspace(1)": 64}


def shuffle(emitter: PtxEmitter, how: str, word: str, lane: str) -> str:
    """The i32 of another lane of the warp."""
    arguments = [("i32", _ALL), ("i32", word), ("i32", lane), ("i32", "31")]
    return emitter.call("i32", f"llvm.nvvm.shfl.sync.{how}.i32", *arguments)


def uniform(emitter: PtxEmitter, shift: int) -> str:
    """The thread's number without its last `shift` bits, by a shuffle, so that ptxas sees a uniform register."""
    return shuffle(emitter, "idx", emitter.emit(f"lshr i32 {emitter.thread()}, {shift}"), "0")


def in_uniform_registers(emitter: PtxEmitter, kind: str, number: str) -> str:
    """A number that all lanes have, by a shuffle, so that ptxas keeps what depends on it in uniform registers."""
    return shuffled(emitter, [number], kind, lambda word: shuffle(emitter, "idx", word, "0"))[0]


def shuffled(emitter: PtxEmitter, values: Sequence[str], kind: str, move: Callable[[str], str]) -> list[str]:
    """The values of another lane, all of one LLVM type. `move` shuffles an i32; several small values share one."""
    bits = _BITS.get(kind) or int(kind[1:])
    whole = f"i{bits}"
    if kind != whole:
        opcode = "ptrtoint" if kind.startswith("ptr") else "bitcast"
        numbers = [emitter.same_piece(value, emitter.emit(f"{opcode} {kind} {value} to {whole}")) for value in values]
        opcode = "inttoptr" if kind.startswith("ptr") else "bitcast"
        return [
            emitter.same_piece(value, emitter.emit(f"{opcode} {whole} {value} to {kind}"))
            for value in shuffled(emitter, numbers, whole, move)
        ]
    if bits == 1:
        words = [move(emitter.emit(f"zext i1 {value} to i32")) for value in values]
        return [emitter.emit(f"trunc i32 {word} to i1") for word in words]
    if bits == 64:
        halves = ([move(word) for word in unpack(emitter, [value], 4, 8)] for value in values)
        return [word for pair in halves for word in pack(emitter, pair, 4, 8)]
    size = bits // 8
    padded = [*values, *["0"] * (-len(values) % (4 // size))]
    return unpack(emitter, [move(word) for word in pack(emitter, padded, size, 4)], size, 4)[: len(values)]


def shared_out(emitter: PtxEmitter, type_: Type, scalar: ScalarType, registers: Mapping[int, str]) -> Emitted:
    """A value of a type in all threads, from the owner's result for each register that is no copy."""
    layout = emitter.layout(type_)
    _, lanes, warps = layout.free
    if warps:
        slot, owner = emitter.slot(layout.numel * scalar.bytes), emitter.owner(type_)
        pointers: dict[int, tuple[str, str]] = {}
        for register, value in registers.items():
            number = emitter.element(layout, register)
            place = emitter.emit(f"getelementptr i{8 * scalar.bytes}, {SHARED} {slot}, i32 {number}")
            pointers[register] = SHARED, place
            store_elements(emitter, pointers[register], [value], scalar, owner)
        emitter.barrier()
        registers = {register: load_elements(emitter, pointer, scalar, 1)[0] for register, pointer in pointers.items()}
        emitter.barrier()
    elif lanes:
        sender = emitter.emit(f"and i32 {emitter.thread()}, {31 & ~lanes}")
        values = list(registers.values())
        shuffled_words = shuffled(
            emitter, values, llvm_type(scalar), lambda word: shuffle(emitter, "idx", word, sender)
        )
        registers = dict(zip(registers, shuffled_words, strict=True))
    return emitter.value(type_, registers)


Give = Callable[[int], str]  # The value of each register.


@emits(gpu.ConvertLayout)
def _convert(emitter: PtxEmitter, op: gpu.ConvertLayout) -> Emitted:
    type_ = tensor_of(op.value)
    source, target = layout_of(type_), layout_of(op.type)
    values = emitter.tensor(op.value)
    results = moved(values, source, target, type_.numel)
    if results is not None:
        return results
    plan = exchange(source, target, type_.numel)
    if plan is None:
        raise InternalError("a conversion between warps is left; it should have been lowered", str(op.root()))
    numbered = _exchanged(emitter, plan, values, type_)
    bits = [bit for bit, basis in enumerate(target.registers) if basis]
    numbers = [sum(1 << at for at, bit in enumerate(bits) if r >> bit & 1) for r in range(target.num_registers)]
    return [numbered[number] for number in numbers]


def _exchanged(emitter: PtxEmitter, plan: Exchange, values: Sequence[str], type_: TensorType) -> dict[int, str]:
    """The registers of the target, numbered without its copies."""
    element = type_.element
    packs: list[tuple[int, int]] = []
    if isinstance(element, ScalarType) and element.bytes < 4:
        packs = plan.packs(2 if element.bytes == 1 else 1)
    if not packs:
        return _rounds(emitter, plan, values.__getitem__, range(plan.rounds), llvm_type(element))
    assert isinstance(element, ScalarType)
    word = element.bytes << len(packs)
    # The numbers of the packed rounds, and of their source registers.
    own, theirs = (
        [combine([1 << pair[side] for pair in packs], index) for index in range(1 << len(packs))] for side in (0, 1)
    )

    @cache
    def packed(register: int) -> str:
        return to_words(emitter, [values[register | more] for more in theirs], element, word)[0]

    rest = [bit for bit in range(plan.rounds) if bit not in [bit for bit, _ in packs]]
    result: dict[int, str] = {}
    for number, value in _rounds(emitter, plan, packed, rest, f"i{8 * word}").items():
        result |= zip((number | more for more in own), from_words(emitter, [value], element, word), strict=True)
    return result


def _rounds(emitter: PtxEmitter, plan: Exchange, source: Give, bits: Sequence[int], kind: str) -> dict[int, str]:
    """The results of the rounds whose numbers have only these bits set, by the number."""
    outgoing = _renumbered(emitter, source, plan.turned, kind)
    arrived: dict[int, str] = {}
    for far, numbers in plan.groups(bits).items():
        values = [outgoing(combine(plan.sent, number)) for number in numbers]
        if far or not plan.own:
            values = shuffled(emitter, values, kind, _move(emitter, plan, far))
        arrived.update(zip(numbers, values, strict=True))
    results = _renumbered(emitter, arrived.__getitem__, plan.placed, kind)
    return {number: results(number) for number in arrived}


def _move(emitter: PtxEmitter, plan: Exchange, far: int) -> Callable[[str], str]:
    """One shuffle of a word of 32 bits."""
    if plan.own:
        return lambda word: shuffle(emitter, "bfly", word, str(far))
    lane = emitter.linear(plan.lane)
    if far:
        lane = emitter.once(("lane", plan.lane, far), lambda: emitter.emit(f"xor i32 {lane}, {far}"))
    return lambda word: shuffle(emitter, "idx", word, lane)


def _renumbered(emitter: PtxEmitter, source: Give, factors: Sequence[Factor], kind: str) -> Give:
    """The values of registers that are renumbered by an xor with a number that depends on the thread."""
    for offset, mask in factors:
        source = cache(partial(_swapped, emitter, source, offset, mask, kind))
    return source


def _swapped(emitter: PtxEmitter, source: Give, offset: int, mask: int, kind: str, register: int) -> str:
    here, there = source(register), source(register ^ offset)
    return emitter.emit(f"select i1 {_is_odd(emitter, mask)}, {kind} {there}, {kind} {here}")


def _is_odd(emitter: PtxEmitter, mask: int) -> str:
    """Whether the thread's number has an odd number of the mask's bits set."""

    def make() -> str:
        if mask & (mask - 1) == 0:
            number = emitter.emit(f"and i32 {emitter.thread()}, {mask}")
        else:
            count = max(LANE_BITS, mask.bit_length())
            number = emitter.linear([mask >> bit & 1 for bit in range(count)])
        return emitter.emit(f"icmp ne i32 {number}, 0")

    return emitter.once(("odd", mask), make)
