"""Emission of dots: mma.sync and wgmma as inline assembly, others as loops of fused multiply-adds.

A wgmma is asynchronous: no instruction may touch its accumulator registers before a wait. So the wgmmas of a tile are
one piece of inline assembly whose results are tied to its operands, and a wait takes and returns the accumulator:
neither LLVM nor ptxas then has a reason to move it in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from ziggurat.backend.ptx.emitter import Emitted, Emitter, canonical, emits, layout_of
from ziggurat.backend.ptx.numbers import llvm_type
from ziggurat.backend.ptx.operands import Packed, operand_of
from ziggurat.backend.ptx.tiles import Group, mma_tiles, places_c, registers_of, wgmma_group
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import combine, inverted
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType

_SUM = {"f32": ("f32", "float", "f"), "f64": ("f64", "double", "d"), "i32": ("s32", "i32", "r")}
_LINES = 512  # The number of multiply-adds that are unrolled, about; more become a loop.


def _tensor_type(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _scalar(type_: TensorType | SharedType) -> ScalarType:
    assert isinstance(type_.element, ScalarType)
    return type_.element


@emits(tt.Dot, gpu.Mma)
def _mma(emitter: Emitter, op: tt.Dot | gpu.Mma) -> Emitted:
    """mma.sync on the fragments that the layouts describe."""
    a_type, b_type, c_type = op.a.type, op.b.type, _tensor_type(op.c)
    assert isinstance(a_type, TensorType | SharedType) and isinstance(b_type, TensorType | SharedType)
    tiles = mma_tiles(a_type, b_type, c_type, emitter.module.target)
    if tiles is None or _scalar(c_type).name not in _SUM:
        raise InternalError(f"a {op.NAME} whose operands are not fragments; it should have been placed", str(op.root()))
    a, b = operand_of(emitter, op.a, tiles, first=True), operand_of(emitter, op.b, tiles, first=False)
    places = registers_of(layout_of(c_type))
    sums = list(emitter.tensor(op.c))
    suffix, kind, constraint = _SUM[_scalar(c_type).name]
    factor = _scalar(a_type).ptx
    unit = tiles.unit
    name = f"mma.sync.aligned.{unit.name}.row.col.{suffix}.{factor}.{factor}.{suffix}"
    # A batch goes matrix by matrix, which frees the registers of the operands.
    for batch, k, row, column in product(tiles.matrices, tiles.depths, tiles.rows, tiles.columns):
        start = (batch * tiles.m + row) * tiles.n + column
        own = [places[start + y * tiles.n + x] for y, x in places_c(unit, unit.n)]
        parts = (a.part(row, k, batch), b.part(column, k, batch), [sums[register] for register in own])
        made = _one_mma(emitter, name, (kind, constraint), a.register, parts)
        for register, value in zip(own, made, strict=True):
            sums[register] = value
    return sums


def _one_mma(
    emitter: Emitter,
    name: str,
    total: tuple[str, str],
    operand: tuple[str, str],
    parts: tuple[list[str], list[str], list[str]],
) -> list[str]:
    """One instruction on the registers of a, b and c; `total` and `operand` are their LLVM types and constraints."""
    counts = [len(parts[2]), *map(len, parts)]
    groups: list[str] = []
    for at, count in enumerate(counts):
        first = sum(counts[:at])
        groups.append("{" + ", ".join(f"${number}" for number in range(first, first + count)) + "}")
    constraints = [f"={total[1]}"] * counts[0]
    given: list[str] = []
    for (kind, constraint), part in zip((operand, operand, total), parts, strict=True):
        constraints += [constraint] * len(part)
        given += [f"{kind} {value}" for value in part]
    struct = emitter.struct(total[0], counts[0])
    text = f"{name} {', '.join(groups)};"
    made = emitter.emit(f'call {struct} asm "{text}", "{",".join(constraints)}"({", ".join(given)}) #2')
    return emitter.parts(struct, made, counts[0])


# wgmma.


def _warp_group(emitter: Emitter) -> str:
    """The number of the warp group, by a shuffle, so that ptxas sees a uniform register."""

    def make() -> str:
        number = emitter.emit(f"lshr i32 {emitter.thread()}, 7")
        arguments = (("i32", "-1"), ("i32", number), ("i32", "0"), ("i32", "31"))
        return emitter.call("i32", "llvm.nvvm.shfl.sync.idx.i32", *arguments)

    return emitter.once("warp group", make)


def _descriptor(emitter: Emitter, buffer: Value, constant: int, bases: Sequence[int]) -> str:
    """The matrix descriptor of an operand for this warp group, as i64."""
    address = emitter.emit(f"ptrtoint ptr addrspace(3) {emitter.scalar(buffer)} to i32")
    for bit, basis in enumerate(bases):
        if basis:
            part = emitter.emit(f"lshr i32 {_warp_group(emitter)}, {bit}")
            part = emitter.emit(f"and i32 {part}, 1")
            part = emitter.emit(f"mul nuw nsw i32 {part}, {basis}")
            address = emitter.emit(f"add i32 {address}, {part}")
    address = emitter.emit(f"lshr i32 {address}, 4")
    address = emitter.emit(f"and i32 {address}, 16383")
    wide = emitter.emit(f"zext i32 {address} to i64")
    # LLVM reads i64 constants as signed numbers.
    signed = constant - (1 << 64) if constant >> 63 else constant
    return emitter.emit(f"or disjoint i64 {wide}, {signed}")


@emits(gpu.Wgmma)
def _wgmma(emitter: Emitter, op: gpu.Wgmma) -> Emitted:
    a, b, c = op.a.type, op.b.type, _tensor_type(op.c)
    assert isinstance(a, TensorType | SharedType) and isinstance(b, SharedType)
    group = wgmma_group(a, b, c)
    if group is None:
        raise InternalError(f"a gpu.wgmma of {a} and {b} to {c}", str(op.root()))
    suffix, kind, constraint = _SUM[_scalar(c).name]
    sums = emitter.tensor(op.c) if op.accumulate else ["poison"] * layout_of(c).num_registers
    registers = list(dict.fromkeys(register for step in group.steps for register in step.c))
    count = len(registers)
    given: list[tuple[str, str]] = [(kind, sums[register]) for register in registers]
    constraints = [f"={constraint}"] * count + [str(number) for number in range(count)]
    packed: Packed | None = None
    if isinstance(a, SharedType):
        assert group.a is not None
        given.append(
            ("i64", _descriptor(emitter, op.a, group.a.descriptor((a.shape[0], a.shape[1]), 1), group.a_bases))
        )
        constraints.append("l")
    else:
        packed = Packed(emitter, op.a)
    given.append(("i64", _descriptor(emitter, op.b, group.b.descriptor((b.shape[0], b.shape[1]), 0), group.b_bases)))
    constraints.append("l")
    of_a: dict[tuple[int, ...], list[int]] = {}
    if packed is not None:
        for step in group.steps:
            assert isinstance(step.a, tuple)
            if step.a not in of_a:
                values = packed.registers(step.a)
                # The operands of the assembly are numbered after its results.
                of_a[step.a] = [count + len(given) + at for at in range(len(values))]
                given += [("i32", value) for value in values]
                constraints += ["r"] * len(values)
    text = _wgmma_text(op, group, {register: at for at, register in enumerate(registers)}, of_a, suffix)
    struct = emitter.struct(kind, count)
    made = emitter.asm(struct, text, ",".join([*constraints, "~{memory}"]), *given, effect=True)
    result = list(sums)
    for register, value in zip(registers, emitter.parts(struct, made, count), strict=True):
        result[register] = value
    return result


def _wgmma_text(
    op: gpu.Wgmma, group: Group, places: dict[int, int], of_a: dict[tuple[int, ...], list[int]], suffix: str
) -> str:
    """The instructions of a tile from fence to commit. `places` has the asm operand of each register of c."""
    count = len(places)
    assert isinstance(op.b.type, SharedType)
    element = _scalar(op.b.type)
    factor = element.ptx
    in_shared = isinstance(op.a.type, SharedType)
    start_a, start_b = (2 * count, 2 * count + 1) if in_shared else (0, 2 * count)
    lines = ["{", ".reg .pred never, always;", ".reg .b64 da, db;", "setp.ne.b32 never, 0, 0;"]
    lines += ["setp.ne.b32 always, 1, 0;", "wgmma.fence.sync.aligned;"]
    signs = "" if suffix == "s32" else ", 1, 1"
    if element.bits == 16:
        flags = [group.a.k_major] if group.a is not None else []
        signs += "".join(f", {int(not k_major)}" for k_major in (*flags, group.b.k_major))
    name = f"wgmma.mma_async.sync.aligned.m64n{group.columns}k{group.k}.{suffix}.{factor}.{factor}"
    for step in group.steps:
        lines.append(f"add.s64 db, ${start_b}, {step.b >> 4};")
        if isinstance(step.a, int):
            lines.append(f"add.s64 da, ${start_a}, {step.a >> 4};")
            first = "da"
        else:
            first = "{" + ", ".join(f"${number}" for number in of_a[step.a]) + "}"
        sums = ", ".join(f"${places[register]}" for register in step.c)
        scale = "never" if step.first and not op.accumulate else "always"
        lines.append(f"{name} {{{sums}}}, {first}, db, {scale}{signs};")
    lines += ["wgmma.commit_group.sync.aligned;", "}"]
    return "\n".join(lines)


@emits(gpu.WgmmaWait)
def _wgmma_wait(emitter: Emitter, op: gpu.WgmmaWait) -> Emitted:
    values = emitter.tensor(op.value)
    _, kind, constraint = _SUM[_scalar(_tensor_type(op.value)).name]
    count = len(values)
    constraints = [f"={constraint}"] * count + [str(number) for number in range(count)]
    struct = emitter.struct(kind, count) if count > 1 else kind
    text = f"wgmma.wait_group.sync.aligned {op.pending};"
    given = [(kind, value) for value in values]
    made = emitter.asm(struct, text, ",".join([*constraints, "~{memory}"]), *given, effect=True)
    return emitter.parts(struct, made, count)


@emits(gpu.FenceAsync)
def _fence(emitter: Emitter, op: gpu.FenceAsync) -> Emitted:
    emitter.asm("void", "fence.proxy.async.shared::cta;", "~{memory}", effect=True)


@emits(gpu.RoundTf32)
def _round_tf32(emitter: Emitter, op: gpu.RoundTf32) -> Emitted:
    def rounded(value: str) -> str:
        bits = emitter.emit(f'call i32 asm "cvt.rna.tf32.f32 $0, $1;", "=r,f"(float {value}) #2')
        return emitter.emit(f"bitcast i32 {bits} to float")

    return emitter.each(op.result.type, [op.value], rounded)


# Without matrix units.


class _Factor:
    """An operand in shared memory, and the places of the elements that a thread needs.

    A place is the xor of three parts: of the thread, of the register, and of the step along k.
    """

    def __init__(self, emitter: Emitter, buffer: Value, thread: Sequence[int]) -> None:
        assert isinstance(buffer.type, SharedType)
        self.emitter = emitter
        self.type = buffer.type
        self.address = emitter.scalar(buffer)
        self.inverse = inverted(self.type.offsets)
        self.kind = llvm_type(self.type.element)
        bases = [self.place(element) for element in thread]
        self.thread = emitter.linear(bases)
        self.spread = 0
        for basis in bases:
            self.spread |= basis

    def place(self, element: int) -> int:
        """The place of an element, in elements."""
        return combine(self.inverse, element)

    def start(self, step: str | None, bases: Sequence[int]) -> tuple[str, int]:
        """The parts of the thread and of a run-time step, whose bits move places by `bases`; and the bits that they may
        have.
        """
        result, used = self.thread, self.spread
        if step is not None:
            for bit, basis in enumerate(bases):
                part = self.emitter.emit(f"lshr i32 {step}, {bit}")
                part = self.emitter.emit(f"and i32 {part}, 1")
                part = self.emitter.emit(f"mul nuw nsw i32 {part}, {basis}")
                result = self.emitter.emit(f"xor i32 {result}, {part}")
                used |= basis
        return result, used

    def load(self, start: tuple[str, int], constant: int) -> str:
        """The element at the xor of a start and a constant."""
        emitter, (place, used) = self.emitter, start
        size = self.type.element.bytes
        if constant & used:
            place, constant = emitter.emit(f"xor i32 {place}, {constant}"), 0
        pointer = emitter.emit(f"getelementptr {self.kind}, ptr addrspace(3) {self.address}, i32 {place}")
        if constant:
            pointer = emitter.emit(f"getelementptr i8, ptr addrspace(3) {pointer}, i32 {constant * size}")
        return emitter.emit(f"load {self.kind}, ptr addrspace(3) {pointer}, align {size}")


@emits(gpu.DotFma)
def _dot_fma(emitter: Emitter, op: gpu.DotFma) -> Emitted:
    """Emit a loop along k that reads both operands from shared memory; each thread accumulates its elements."""
    type_ = _tensor_type(op.c)
    layout = layout_of(type_)
    m, n = type_.shape[-2:]
    assert isinstance(op.a.type, SharedType)
    k = op.a.type.shape[-1]

    def of_a(element: int) -> int:
        batch, row = element // (m * n), element // n % m
        return (batch * m + row) * k

    def of_b(element: int) -> int:
        batch, column = element // (m * n), element % n
        return batch * k * n + column

    bases = emitter.thread_bases(layout)
    a = _Factor(emitter, op.a, [of_a(basis) for basis in bases])
    b = _Factor(emitter, op.b, [of_b(basis) for basis in bases])
    own = [register for register in range(layout.num_registers) if canonical(layout, register) == register]
    elements = [layout.element(register) for register in own]
    places = [(a.place(of_a(element)), b.place(of_b(element))) for element in elements]
    kind = llvm_type(type_)
    given = emitter.tensor(op.c)
    sums = [given[register] for register in own]
    at_once = 1
    while at_once < min(k, 16) and 2 * at_once * len(own) <= _LINES:
        at_once *= 2

    def steps(number: str | None, sums: list[str]) -> list[str]:
        """`at_once` multiply-adds for each accumulator."""
        rest = [1 << bit for bit in range(at_once.bit_length() - 1, k.bit_length() - 1)]
        start_a = a.start(number, [a.place(step) for step in rest])
        start_b = b.start(number, [b.place(step * n) for step in rest])
        for step in range(at_once):
            part_a, part_b = a.place(step), b.place(step * n)
            read_a = {place: a.load(start_a, place ^ part_a) for place in dict.fromkeys(p for p, _ in places)}
            read_b = {place: b.load(start_b, place ^ part_b) for place in dict.fromkeys(p for _, p in places)}
            sums = [
                _multiply_add(emitter, kind, read_a[pa], read_b[pb], total)
                for (pa, pb), total in zip(places, sums, strict=True)
            ]
        return sums

    sums = steps(None, sums) if at_once == k else _loop(emitter, k // at_once, kind, sums, steps)
    by_register = dict(zip(own, sums, strict=True))
    return [by_register[canonical(layout, register)] for register in range(layout.num_registers)]


def _multiply_add(emitter: Emitter, kind: str, a: str, b: str, c: str) -> str:
    if kind in ("float", "double"):
        suffix = "f32" if kind == "float" else "f64"
        return emitter.call(kind, f"llvm.fma.{suffix}", (kind, a), (kind, b), (kind, c))
    product = emitter.emit(f"mul {kind} {a}, {b}")
    return emitter.emit(f"add {kind} {product}, {c}")


def _loop(emitter: Emitter, count: int, kind: str, sums: list[str], body: Callable[..., list[str]]) -> list[str]:
    """Emit a loop of `count` iterations. The body maps the iteration and the accumulators to the next ones."""
    before, head, after = emitter.label, emitter.name("dots"), emitter.name("after")
    emitter.line(f"br label %{head}")
    emitter.start(head)
    place = len(emitter.lines)
    number = f"%{emitter.name('step')}"
    carried = [f"%{emitter.name('sum')}" for _ in sums]
    made = body(number, carried)
    following = emitter.emit(f"add nuw nsw i32 {number}, 1")
    more = emitter.emit(f"icmp ult i32 {following}, {count}")
    back = emitter.label
    emitter.line(f"br i1 {more}, label %{head}, label %{after}")
    phis = [f"  {number} = phi i32 [ 0, %{before} ], [ {following}, %{back} ]"]
    for name, initial, value in zip(carried, sums, made, strict=True):
        phis.append(f"  {name} = phi {kind} [ {initial}, %{before} ], [ {value}, %{back} ]")
    emitter.lines[place:place] = phis
    emitter.start(after)
    return made
