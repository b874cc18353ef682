"""The LLVM text and the PTX of ops that move elements: accesses of memory, layouts, and fragments of matrix units.

Each is proved for any thread, any contents of memory, and any elements, in some layouts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs
import pytest
import z3
from emitted_threads import (
    THREAD,
    Threads,
    contents,
    element,
    linear,
    memory_bits,
    multiplied,
    placed,
    prove_defined,
    run,
)
from llvm_numbers import Scalar
from planted import Fault, edit, must_find
from proving import Refuted, prove
from random_layouts import random_layout

from ziggurat.backend.ptx import elementwise_ops, matrix, memory, packed_words, ragged, shared, shuffles
from ziggurat.codemodel.gpu import fragments
from ziggurat.codemodel.gpu.dialect import transposed
from ziggurat.codemodel.layout import Layout, combine, inverted, parse_layout
from ziggurat.codemodel.types import SCALARS, PtrType, ScalarType, SharedType, TensorType, i1, i32
from ziggurat.transforms.layouts.swizzle import conversion_buffer

RUNS = parse_layout("1 2 | 4 8 16 32 64 |")  # A thread has four neighbours.
COPIES = parse_layout("1 2 | 4 8 0 16 32 |")  # Two lanes have the same elements.


def tensor(scalar: Any, layout: Layout) -> TensorType:
    return TensorType((layout.numel,), scalar, layout)


def facts_of_width(terms: Sequence[Sequence[Any]], width: int, size: int, *, masked: bool) -> list[Any]:
    """What `width` says: as many registers have one mask, and point to neighbours, the first to a multiple."""
    pointers, facts = terms[0], list[Any]()
    for first in range(0, len(pointers), width):
        facts.append(pointers[first] & (size * width - 1) == 0)
        for at in range(1, width):
            facts.append(pointers[first + at] == pointers[first] + at * size)
            facts += [terms[1][first + at] == terms[1][first]] if masked else []
    return facts


def bytes_at(memory: Any, address: Any, size: int) -> Any:
    parts = [z3.Select(memory, address + at) for at in reversed(range(size))]
    return z3.Concat(*parts) if size > 1 else parts[0]


def of_memory(content: Any, scalar: Any) -> Any:
    """The bits of an element by its bytes."""
    return z3.If(content != 0, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1)) if scalar == i1 else content


def prove_accesses(execution: Threads, expectation: Sequence[tuple[Any, Any]], size: int, facts: Sequence[Any]) -> None:
    """Prove that no byte is accessed but those of elements that are expectation: by condition and address."""
    for access in execution.accesses:
        place = z3.BitVec("byte", access.address.size())
        inside = z3.ULT(place - access.address, access.size)
        allowed = z3.Or(*(z3.And(holds, z3.ULT(place - address, size)) for holds, address in expectation))
        prove(z3.Implies(z3.And(access.condition, inside), allowed), facts)


FORMS = ("", "mask", "other")
HINTS_OF_LOADS = (
    "@cache=ca",
    "@cache=cg",
    "@cache=cv",
    "@eviction=evict_first",
    "@eviction=evict_last",
    "@volatile=true",
)
HINTS_OF_STORES = ("@cache=wb", "@cache=cg", "@cache=cs", "@cache=wt", "@eviction=evict_first", "@eviction=evict_last")


def prove_load(scalar: ScalarType, width: int, form: str = "other", hint: str = "", layout: Layout = RUNS) -> None:
    masked = form != ""
    types = {"%0": tensor(PtrType(scalar), layout)}
    types |= {"%1": tensor(i1, layout)} if masked else {}
    types |= {"%2": tensor(scalar, layout)} if form == "other" else {}
    text = run(f"%r : {tensor(scalar, layout)} = tt.load {' '.join(types)} @width={width} {hint};", types)
    size = memory_bits(scalar) // 8
    before, (pointers, *more) = Threads().memory["global"], text.parameters
    facts = facts_of_width(text.parameters, width, size, masked=masked)
    prove_defined(text.execution, facts)
    conditions = [more[0][register] == 1 if masked else z3.BoolVal(True) for register in range(len(pointers))]
    prove_accesses(text.execution, list(zip(conditions, pointers, strict=True)), size, facts)
    for register, (result, holds) in enumerate(zip(text.results, conditions, strict=True)):
        read = of_memory(bytes_at(before, pointers[register], size), scalar)
        expected = z3.If(holds, read, more[1][register]) if form == "other" else read
        prove(z3.Implies(z3.Or(holds, form == "other"), result.bits() == expected), facts)
        prove(z3.Not(result.poison), facts)


def prove_store(scalar: ScalarType, width: int, form: str = "mask", hint: str = "", layout: Layout = RUNS) -> None:
    masked = form != ""
    types = {"%0": tensor(PtrType(scalar), layout)}
    types |= {"%1": tensor(i1, layout)} if masked else {}
    types |= {"%2": tensor(scalar, layout)}
    text = run(f"tt.store %0 %2 {'%1' if masked else ''} @width={width} {hint};", types)
    size = memory_bits(scalar) // 8
    pointers, *masks, values = text.parameters
    facts = facts_of_width(text.parameters, width, size, masked=masked)
    prove_defined(text.execution, facts)
    lanes = layout.free[1]  # One of the lanes that hold copies stores them.
    registers = iter(layout.unique_registers)
    for access in text.execution.accesses:
        for at in range(access.size // size):
            register = next(registers)
            holds = z3.And(THREAD & lanes == 0, masks[0][register] == 1 if masked else True)
            content = z3.Extract(8 * size * (at + 1) - 1, 8 * size * at, access.content)
            value = z3.ZeroExt(7, values[register]) if scalar == i1 else values[register]
            prove(z3.And(access.condition == holds, access.address + at * size == pointers[register]), facts)
            prove(z3.Implies(holds, content == value), facts)
    assert not [*registers]


@pytest.mark.parametrize("width", (1, 2, 4))
@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
def test_accesses_of_global_memory(scalar: ScalarType, width: int) -> None:
    """Addresses, widths and masks; other elements where nothing is loaded."""
    if memory_bits(scalar) * width <= 128:
        for form in FORMS:
            prove_load(scalar, width, form)
        for form in FORMS[:2]:
            prove_store(scalar, width, form)


def test_hints_change_nothing() -> None:
    for hint, form in itertools.product(HINTS_OF_LOADS, FORMS):
        prove_load(i32, 4, form, hint)
    for hint in HINTS_OF_STORES:
        prove_store(i32, 4, "mask", hint)


def test_one_of_the_lanes_with_copies_stores() -> None:
    prove_load(i32, 2, "other", layout=COPIES)
    prove_store(i32, 2, "mask", layout=COPIES)
    prove_store(SCALARS["f16"], 4, "", layout=COPIES)


# Layouts.


def prove_conversion(scalar: ScalarType, source: Layout, target: Layout) -> None:
    """Each register of the target has its element, in any thread."""
    types = {"%0": tensor(scalar, source)}
    text = run(f"%r : {tensor(scalar, target)} = gpu.convert_layout %0;", types, num_warps=source.num_warps)
    prove_elements(text.results, target, lambda number: contents("parameter 0", scalar.bits)(number), text.execution)


def prove_elements(
    results: Sequence[Scalar], layout: Layout, expected: Callable[[Any], Any], execution: Threads,
    facts: Sequence[Any] = (), numbers: Sequence[tuple[Any, Any]] = (),
) -> None:  # fmt: skip
    """Prove that each register of each thread has what is expected of its element. In a thread, all places are numbers,
    so that equal terms are the same; `numbers` may have those of other unknown numbers."""
    threads = 32 * layout.num_warps
    execution.undefined += [result.poison for result in results]
    prove_defined(execution, facts, threads)
    for thread, (register, result) in itertools.product(range(threads), enumerate(results)):
        terms = [*numbers, (THREAD, z3.BitVecVal(thread, 32))]
        number = z3.BitVecVal(layout.element(register, thread & 31, thread >> 5), 32)
        own, expectation = (z3.simplify(z3.substitute(x, *terms)) for x in (result.bits(), expected(number)))
        if not own.eq(expectation):
            raise Refuted(f"register {register} of thread {thread}: {own} is not {expectation}")


def pairs_of_layouts(count: int, numel: int, num_warps: int) -> list[tuple[Layout, Layout]]:
    """Pairs of random layouts, between which no warp needs elements of another one."""
    random, pairs = Random(numel), list[tuple[Layout, Layout]]()
    while len(pairs) < count:
        mixed = len(pairs) % 2 > 0
        source, target = (random_layout(random, numel, 1, mixed=mixed) for _ in range(2))
        warps = [numel << bit for bit in range(num_warps.bit_length() - 1)]
        pairs.append(
            (Layout(source.registers, source.lanes, tuple(warps)), Layout(target.registers, target.lanes, tuple(warps)))
        )
    return pairs


@pytest.mark.parametrize("name", ["i1", "i8", "f16", "i32", "f64"])
def test_conversions_of_layouts(name: str) -> None:
    """Registers that are renamed, or sent by shuffles, of words that are packed."""
    for numel, warps in ((16, 1), (64, 1), (128, 2)):
        for source, target in pairs_of_layouts(3, numel, warps):
            prove_conversion(SCALARS[name], source, target)


SHAPES: list[tuple[str, tuple[int, ...], tuple[int, ...], Callable[[Any], Any]]] = [
    ("tt.reshape", (8, 16), (4, 32), lambda number: number),
    ("tt.expand_dims @axis=1", (8, 16), (8, 1, 16), lambda number: number),
    ("tt.trans @order=[1, 0]", (8, 16), (16, 8), lambda number: (number & 7) << 4 | z3.LShR(number, 3)),
    ("tt.broadcast", (8, 1), (8, 16), lambda number: z3.LShR(number, 4)),
    ("tt.broadcast", (1, 16), (8, 16), lambda number: number & 15),
]


@pytest.mark.parametrize(("op", "before", "after", "source"), SHAPES)
def test_shapes(op: str, before: tuple[int, ...], after: tuple[int, ...], source: Callable[[Any], Any]) -> None:
    """Registers of the result are those of the operand."""
    random, (name, *attributes) = Random(1), op.split(" ", 1)
    for _ in range(4):
        layout = random_layout(random, 128, 1, mixed=name != "tt.broadcast")
        match name:
            case "tt.trans":
                own, target = layout, layout.transposed(before, (1, 0))
            case "tt.broadcast":
                own, target = layout.narrowed(after, before), layout
            case _:
                own = target = layout
        lines = f"%r : {TensorType(after, i32, target)} = {name} %0 {' '.join(attributes)};"
        text = run(lines, {"%0": TensorType(before, i32, own)})
        prove_elements(text.results, target, lambda number: contents("parameter 0", 32)(source(number)), text.execution)


# Shared memory.


def place_of(type_: SharedType, number: Any, buffer: Any) -> Any:
    """The address of an element."""
    return buffer + linear(inverted(type_.offsets), number) * type_.element.bytes


def read_shared(type_: SharedType, buffer: Any) -> Callable[[Any], Any]:
    """An element of a buffer by its number."""
    memory = Threads().memory["shared"]
    return lambda number: bytes_at(memory, place_of(type_, number, buffer), type_.element.bytes)


def aligned(buffer: Any) -> list[Any]:
    return [buffer & 1023 == 0, z3.ULT(buffer, 1 << 20)]


def prove_local_load(scalar: ScalarType, layout: Layout, offsets: tuple[int, ...]) -> None:
    type_ = SharedType((layout.numel,), scalar, offsets)
    text = run(f"%r : {tensor(scalar, layout)} = gpu.local_load %0;", {"%0": type_}, num_warps=layout.num_warps)
    buffer = text.parameters[0][0]
    prove_elements(text.results, layout, read_shared(type_, buffer), text.execution, aligned(buffer))


def prove_local_store(scalar: ScalarType, layout: Layout, offsets: tuple[int, ...]) -> None:
    type_ = SharedType((layout.numel,), scalar, offsets)
    types = {"%0": tensor(scalar, layout), "%1": type_}
    text = run("gpu.local_store %1 %0;", types, num_warps=layout.num_warps)
    values, (buffer,) = text.parameters
    facts = [z3.ULT(THREAD, 32 * layout.num_warps), *aligned(buffer)]
    prove_defined(text.execution, facts, 32 * layout.num_warps)
    _, lanes, warps = layout.free
    owner = THREAD & (lanes | warps << 5) == 0
    prove_writes(text.execution, type_, buffer, layout, lambda register: (owner, values[register]), facts)


def prove_writes(
    execution: Threads, type_: SharedType, buffer: Any, layout: Layout, content: Callable[[int], tuple[Any, Any]],
    facts: Sequence[Any],
) -> None:  # fmt: skip
    """Prove that each element of the thread is written to its place, and nothing else is."""
    size, rest = type_.element.bytes, set(layout.unique_registers)
    for access in (access for access in execution.accesses if access.space == "shared"):
        assert access.content is not None
        start = z3.simplify(z3.substitute(access.address - buffer, (THREAD, z3.BitVecVal(0, 32))))
        for at in range(access.size // size):
            number = combine(type_.offsets, start.as_long() // size + at)
            register = next(r for r in layout.unique_registers if layout.element(r) == number)
            rest.remove(register)
            holds, expected = content(register)
            own = z3.Extract(8 * size * (at + 1) - 1, 8 * size * at, access.content)
            address = place_of(type_, element(layout, register), buffer)
            right = z3.And(access.condition == holds, access.address + at * size == address)
            prove(z3.And(right, z3.Implies(holds, own == expected)), facts)
    assert not rest


def buffers(name: str) -> list[tuple[Layout, Layout, tuple[int, ...]]]:
    """Layouts of a store and of a load, and the buffer that a conversion between them uses."""
    random, size = Random(3), SCALARS[name].bytes
    pairs = [(random_layout(random, numel, 2), random_layout(random, numel, 2)) for numel in (128, 256)]
    unit = fragments.UNITS["m16n8k16"]
    fragment = fragments.accumulator(unit, (16, 32), fragments.WarpGrid(1, 2, 2))
    pairs += [(fragment, RUNS_OF_ROWS), (RUNS_OF_ROWS, fragment)]
    pairs.append((fragment.transposed((16, 32), (1, 0)), RUNS_OF_ROWS))
    return [(a, b, conversion_buffer(a, b, a.numel, size, stmatrix=True)) for a, b in pairs]


RUNS_OF_ROWS = parse_layout("1 2 4 | 8 16 32 64 128 | 256")


@pytest.mark.parametrize("name", ["i8", "f16", "f32", "f64"])
def test_buffers_in_shared_memory(name: str) -> None:
    """Vectors, and matrices by ldmatrix and stmatrix, in swizzled places."""
    for source, target, offsets in buffers(name):
        prove_local_store(SCALARS[name], source, offsets)
        prove_local_load(SCALARS[name], target, offsets)


def test_matrices_are_moved() -> None:
    """The cases above have matrices: these are not vectors in all of them."""
    texts = [
        run(f"%r : {tensor(SCALARS['f16'], b)} = gpu.local_load %0; gpu.local_store %0 %r;",
            {"%0": SharedType((b.numel,), SCALARS["f16"], offsets)}, num_warps=2)
        for _, b, offsets in buffers("f16")
    ]  # fmt: skip
    lanes = [str(access.address) for text in texts for access in text.execution.accesses]
    assert any("thread & 31" in address or "31" in address for address in lanes)


def prove_async_copy(scalar: ScalarType, width: int, *, masked: bool) -> None:
    layout = RUNS if width <= 4 else parse_layout("1 2 4 | 8 16 32 64 128 |")
    type_ = SharedType(
        (layout.numel,),
        scalar,
        (*(1 << bit for bit in range(5)), 32 ^ 8, *(64 << bit for bit in range(8)))[: len(layout.bases)],
    )
    types = {"%0": tensor(PtrType(scalar), layout)}
    types |= {"%1": tensor(i1, layout)} if masked else {}
    types |= {"%2": type_}
    text = run(f"gpu.async_copy {'%0 %2 %1' if masked else '%0 %2'} @width={width};", types)
    pointers, *masks, (buffer,) = text.parameters
    facts = [*facts_of_width(text.parameters, width, scalar.bytes, masked=masked), *aligned(buffer), z3.ULT(THREAD, 32)]
    prove_defined(text.execution, facts)
    conditions = [masks[0][register] == 1 if masked else z3.BoolVal(True) for register in range(len(pointers))]
    reads = [access for access in text.execution.accesses if access.space == "global"]
    allowed = list(zip(conditions, pointers, strict=True))
    text.execution.accesses = [access for access in text.execution.accesses if access.space == "shared"]
    before = Threads().memory["global"]

    def content(register: int) -> tuple[Any, Any]:
        read = bytes_at(before, pointers[register], scalar.bytes)
        return z3.BoolVal(True), z3.If(conditions[register], read, z3.BitVecVal(0, scalar.bits))

    prove_writes(text.execution, type_, buffer, layout, content, facts)
    text.execution.accesses = reads
    prove_accesses(text.execution, allowed, scalar.bytes, facts)


@pytest.mark.parametrize(("name", "width"), [("f32", 1), ("f16", 2), ("f32", 4), ("f16", 8), ("i8", 4)])
def test_asynchronous_copies(name: str, width: int) -> None:
    """Zeros where the mask does not hold."""
    for masked in (False, True):
        prove_async_copy(SCALARS[name], width, masked=masked)


def prove_gather(axis: int, index: ScalarType) -> None:
    layout, rows, columns = RUNS, 16, 8
    type_ = SharedType((rows, columns), i32, tuple(1 << bit for bit in range(7)))
    types = {"%0": type_, "%1": TensorType((rows, columns), index, layout)}
    text = run(f"%r : {TensorType((rows, columns), i32, layout)} = gpu.local_gather %0 %1 @axis={axis};", types)
    (buffer,), indices = text.parameters
    inside = [z3.ULT(number, (rows, columns)[axis]) for number in indices]
    facts = [z3.ULT(THREAD, 32), *aligned(buffer), *inside]
    prove_defined(text.execution, facts)
    for register, result in enumerate(text.results):
        number, at = element(layout, register), indices[register]
        at = at if at.size() == 32 else z3.ZeroExt(32 - at.size(), at) if at.size() < 32 else z3.Extract(31, 0, at)
        source = (number & 7) | at << 3 if axis == 0 else (number & ~7) | at
        prove(result.bits() == read_shared(type_, buffer)(source), facts)


@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("index", ["u8", "i32", "i64"])
def test_gathers(axis: int, index: str) -> None:
    prove_gather(axis, SCALARS[index])


def prove_count(index: ScalarType, bins: int, layout: Layout = RUNS) -> None:
    """A counter goes up where the index is one of a counter, the mask holds, and the thread has the element."""
    types = {"%0": SharedType((bins,), i32, tuple(1 << bit for bit in range(bins.bit_length() - 1)))}
    types |= {"%1": tensor(index, layout), "%2": tensor(i1, layout)}
    text = run("gpu.local_atomic_add %0 %1 %2;", types)
    (buffer,), indices, masks = text.parameters
    facts = [z3.ULT(THREAD, 32), *aligned(buffer)]
    prove_defined(text.execution, facts)
    writes = [access for access in text.execution.accesses if access.content is not None]
    for access, register in zip(writes, layout.unique_registers, strict=True):
        number = indices[register]
        wide = (z3.SignExt if index.signed else z3.ZeroExt)(64 - number.size(), number)
        inside = z3.And(wide >= 0, wide < bins, masks[register] == 1, THREAD & layout.free[1] == 0)
        address = buffer + 4 * z3.Extract(31, 0, wide)
        prove(z3.And(access.condition == inside, z3.Implies(inside, access.address == address)), facts)
        before = next(each for each in text.execution.accesses if each.address.eq(access.address))
        assert before.content is None  # What was there.


@pytest.mark.parametrize("index", ["i8", "u8", "i16", "i32", "i64"])
def test_counts(index: str) -> None:
    for bins in (8, 256):
        prove_count(SCALARS[index], bins)
    prove_count(SCALARS[index], 16, COPIES)


# Addresses.


def prove_addresses(lines: str, types: Any, expected: Callable[..., Any]) -> None:
    text = run(lines, types)
    prove_defined(text.execution)
    terms = [*zip(*text.parameters, strict=True)]
    for register, result in enumerate(text.results):
        prove(z3.And(z3.Not(result.poison), result.bits() == expected(*terms[min(register, len(terms) - 1)])))


def pointers_moved(scalar: ScalarType, index: ScalarType, layout: Layout = RUNS) -> None:
    pointers = tensor(PtrType(scalar), layout)
    extend = z3.SignExt if index.signed else z3.ZeroExt
    prove_addresses(
        f"%r : {pointers} = tt.addptr %0 %1;", {"%0": pointers, "%1": tensor(index, layout)},
        lambda pointer, offset: pointer + extend(64 - offset.size(), offset) * (memory_bits(scalar) // 8),
    )  # fmt: skip


@pytest.mark.parametrize("index", ["i8", "i32", "u32", "i64"])
def test_pointers_are_moved(index: str) -> None:
    for scalar in SCALARS.values():
        pointers_moved(scalar, SCALARS[index])


def test_pointers_and_integers() -> None:
    pointers, numbers = tensor(PtrType(i32), RUNS), tensor(SCALARS["i64"], RUNS)
    prove_addresses(f"%r : {numbers} = tt.ptr_to_int %0;", {"%0": pointers}, lambda pointer: pointer)
    prove_addresses(f"%r : {pointers} = tt.int_to_ptr %0;", {"%0": numbers}, lambda number: number)


def test_places_of_buffers() -> None:
    """A buffer, slots, and a buffer that is seen transposed."""
    slots = SharedType((16, 8), SCALARS["f16"], tuple(1 << bit for bit in range(7)), 3)
    slot = attrs.evolve(slots, count=1)
    types = {"%0": slots, "%1": i32}
    start = z3.BitVec("@smem", 32)
    prove_addresses(f"%r : {slot} = gpu.local_alloc @offset=2048;", {"%0": i32}, lambda _: start + 2048)
    prove_addresses(f"%r : {slot} = gpu.local_view %0 %1;", types, lambda buffer, index: buffer + 256 * index)
    view = transposed(slot, (1, 0))
    prove_addresses(f"%r : {view} = gpu.local_trans %0 @order=[1, 0];", {"%0": slot}, lambda buffer: buffer)
    for number in range(128):  # Its elements are those of the other one, at the same places.
        row, column = divmod(number, 16)
        assert combine(inverted(view.offsets), number) == combine(inverted(slot.offsets), column * 8 + row)


# Matrix units.

PRODUCTS = [
    ("m16n8k16", "f16", "f32", (16, 16, 32), (1, 1, 1)),
    ("m16n8k16", "bf16", "f32", (32, 32, 32), (2, 2, 4)),
    ("m16n8k32", "i8", "i32", (16, 8, 64), (1, 1, 1)),
    ("m16n8k8", "f32", "f32", (32, 16, 16), (2, 1, 2)),
    ("m8n8k4", "f64", "f64", (16, 16, 8), (1, 2, 2)),
]


def prove_product(
    unit: str, name: str, total: str, shape: Sequence[int], grid: Sequence[int], shared: str = "", op: str = "gpu.mma"
) -> None:
    """c + a · b of fragments, or of operands in shared memory: each result is what the unit makes of its row of a, its
    column of b, and what it is added to, in order along k."""
    (m, n, k), (rows, columns, warps) = shape, grid
    form, scalar, sum_ = fragments.UNITS[unit], SCALARS[name], SCALARS[total]
    division = fragments.WarpGrid(rows, columns, warps)
    types: dict[str, Any] = {
        "%0": TensorType((m, k), scalar, fragments.operand_a(form, (m, k), division)),
        "%1": TensorType((k, n), scalar, fragments.operand_b(form, (k, n), division)),
        "%2": TensorType((m, n), sum_, fragments.accumulator(form, (m, n), division)),
    }
    for operand, k_axis, area in (("%0", 1, (m, k)), ("%1", 0, (k, n))):
        if operand in shared:
            major = "turned" not in shared
            width = min(128, area[k_axis if major else 1 - k_axis] * scalar.bytes)
            types[operand] = SharedType(
                area, scalar, fragments.Panels(width, major).offsets(area, k_axis, scalar.bytes)
            )
    target = "sm_90a" if op == "gpu.wgmma" else "sm_80"
    text = run(f"%r : {types['%2']} = {op} %0 %1 %2;", types, target, warps)
    elements, facts = list[Callable[[Any], Any]](), list[Any]()
    for at, operand in enumerate(("%0", "%1", "%2")):
        type_ = types[operand]
        if isinstance(type_, SharedType):
            (buffer,) = text.parameters[at]
            facts += aligned(buffer)
            elements.append(read_shared(type_, buffer))
        else:
            elements.append(contents(f"parameter {at}", type_.element.bits))
    a, b, c = elements
    pack = max(1, 4 // scalar.bytes)
    halves = form.k // (4 * pack)

    def words(element: Callable[[Any], Any], start: int) -> list[Any]:
        parts: list[Any] = []
        for half, part in itertools.product(range(halves), range(4)):
            first = start + 4 * pack * half + part * pack
            pieces = [element(first + at) for at in reversed(range(pack))]
            parts.append(z3.Concat(*pieces) if pack > 1 else pieces[0])
        return parts

    def expected(number: Any) -> Any:
        shift = n.bit_length() - 1
        row, column = z3.LShR(number, shift), number & n - 1
        total = c(number)
        for start in range(0, k, form.k):
            of_a = words(lambda depth: a(row * k + depth), start)
            of_b = words(lambda depth: b(column + depth * n), start)
            total = multiplied([total, *of_a, *of_b])
        return total

    if op == "gpu.wgmma":
        prove_defined(text.execution, facts, 32 * warps)
        same, pairs = [z3.ULT(THREAD, 32 * warps)], set[tuple[str, str]]()
        for register, result in enumerate(text.results):
            prove_same(placed(result.bits()), placed(expected(element(types["%2"].layout, register))), same, pairs)
        return
    buffers_ = (terms[0] for terms in text.parameters if len(terms) == 1)
    places = [(buffer, z3.BitVecVal(1024 * at, 32)) for at, buffer in enumerate(buffers_, 1)]
    prove_elements(text.results, types["%2"].layout, expected, text.execution, facts, places)


@pytest.mark.parametrize(("unit", "name", "total", "shape", "grid"), PRODUCTS)
def test_products_of_fragments(unit: str, name: str, total: str, shape: tuple[int, ...], grid: tuple[int, ...]) -> None:
    prove_product(unit, name, total, shape, grid)


def test_a_dot_of_fragments() -> None:
    prove_product(*PRODUCTS[-1], op="tt.dot")


@pytest.mark.parametrize("form", ["", "turned"])
def test_products_of_operands_in_shared_memory(form: str) -> None:
    prove_product("m16n8k16", "f16", "f32", (16, 16, 16), (1, 2, 2), f"%0 %1 {form}")


def prove_same(own: Any, expected: Any, facts: Sequence[Any], pairs: set[tuple[str, str]]) -> None:
    """Prove that two products are of the same words, one by one. `pairs` are those of words that are the same."""
    if own.eq(expected):
        return
    if own.decl().name() == expected.decl().name() and own.num_args() == expected.num_args() > 0:
        if own.decl().name() in ("multiplied", "concat"):
            for mine, other in zip(own.children(), expected.children(), strict=True):
                prove_same(mine, other, facts, pairs)
            return
    if (pair := (own.sexpr(), expected.sexpr())) not in pairs:
        prove(own == expected, facts)
        pairs.add(pair)


WGMMAS = [
    ("m16n8k8", "f32", "f32", (64, 8, 32), (4, 1, 4), "%0 %1"),
    ("m16n8k16", "bf16", "f32", (64, 8, 32), (4, 1, 4), "%1"),
    ("m16n8k16", "f16", "f32", (64, 32, 16), (4, 1, 4), "%0 %1 turned"),
    ("m16n8k16", "f16", "f32", (64, 8, 16), (4, 1, 4), "%0 %1"),
    ("m16n8k32", "i8", "i32", (64, 8, 64), (4, 1, 4), "%0 %1"),
    ("m16n8k16", "f16", "f32", (128, 8, 16), (8, 1, 8), "%0 %1"),
    ("m16n8k16", "f16", "f32", (64, 16, 16), (4, 2, 8), "%0 %1"),
]


def prove_group(case: int) -> None:
    *form, shared_ = WGMMAS[case]
    prove_product(*form, shared_, "gpu.wgmma")


@pytest.mark.parametrize("case", range(len(WGMMAS)))
def test_products_of_a_warp_group(case: int) -> None:
    """By descriptors, or of an operand in registers: the places of the descriptors are those of the elements."""
    prove_group(case)


# Faults, each of which a proof above finds.


F16, F32, I8 = SCALARS["f16"], SCALARS["f32"], SCALARS["i8"]
FAULTS: list[tuple[Fault, Callable[[], object]]] = [
    (edit(ragged.load_masked, "${count + index};", "${count};"), lambda: prove_load(i32, 4)),
    (edit(ragged.load_masked, "@mask {name}", "{name}"), lambda: prove_load(F16, 2)),
    (edit(memory._load, "emitter.mask(op.mask, first)", "emitter.mask(op.mask, 0)"), lambda: prove_load(i32, 2)),
    (edit(ragged.load_masked, "emitter.at(op.other, register) for register in group",
          "emitter.at(op.other, group[0]) for register in group"), lambda: prove_load(I8, 4)),
    (edit(memory._store, "emitter.both(owner, emitter.mask(op.mask, group[0]))", "emitter.mask(op.mask, group[0])"),
     lambda: prove_store(i32, 2, "mask", layout=COPIES)),
    (edit(ragged.store_group, "emitter.at(op.value, register) for register in group",
          "emitter.at(op.value, group[0]) for register in group"), lambda: prove_store(F32, 2)),
    (edit(elementwise_ops._addptr, "8 * pointee_of(op.ptr.type).bytes", "8"), lambda: pointers_moved(F32, i32)),
    (edit(ragged.store_group, "emitter.at(op.ptr, group[0])", "emitter.at(op.ptr, 0)"), lambda: prove_store(F32, 2)),
    (edit(packed_words.from_memory, "icmp ne i8", "icmp eq i8"), lambda: prove_load(i1, 2)),
    (edit(packed_words.pack, "8 * size * index", "8 * index"), lambda: prove_store(F16, 4, "")),
    (edit(shuffles._swapped, "{kind} {there}, {kind} {here}", "{kind} {here}, {kind} {there}"),
     lambda: [prove_conversion(i32, *pair) for pair in pairs_of_layouts(4, 64, 1)]),
    (edit(shuffles._move, "xor i32 {lane}, {far}", "or i32 {lane}, {far}"),
     lambda: [prove_conversion(i32, *pair) for pair in pairs_of_layouts(4, 64, 1)]),
    (edit(shuffles._exchanged, "register | more", "register"),
     lambda: [prove_conversion(I8, *pair) for pair in pairs_of_layouts(6, 128, 1)]),
    (edit(shared.VectorPlaces.groups, "constant & ~self._spread", "constant"),
     lambda: [prove_local_load(F32, b, offsets) for _, b, offsets in buffers("f32")]),
    (edit(shared._store, "emitter.owner(op.value.type)", "None"), lambda: prove_local_store(
        I8, COPIES, tuple(1 << bit for bit in range(6)))),
    (edit(shared._instruction, "if view.trans", "if not view.trans"),
     lambda: [prove_local_load(F16, b, offsets) for _, b, offsets in buffers("f16")]),
    (edit(shared._matrices, "combine(matrices, matrix) | combine(word, index)",
          "combine(matrices, view.count - 1 - matrix) | combine(word, index)"),
     lambda: [prove_local_load(F16, b, offsets) for _, b, offsets in buffers("f16")]),
    (edit(shared._copy, "xor i1 {mask}, true", "xor i1 {mask}, false"), lambda: prove_async_copy(F32, 4, masked=True)),
    (edit(shared._copy, "emitter.at(op.ptr, registers[0])", "emitter.at(op.ptr, 0)"),
     lambda: prove_async_copy(F32, 1, masked=False)),
    (edit(shared._gather, "(offset + theirs) << (offset + ours)", "(offset + theirs) << offset"),
     lambda: prove_gather(1, i32)),
    (edit(shared._atomic_add, '"ult"', '"ule"'), lambda: prove_count(i32, 8)),
    (edit(shared._index, '"sext" if scalar.signed else "zext"', '"sext"'), lambda: prove_count(SCALARS["u8"], 256)),
    (edit(matrix._InRegisters.part, "self.packed.registers(numbers)", "self.packed.registers(numbers[::-1])"),
     lambda: prove_product(*PRODUCTS[0])),
    (edit(matrix._descriptor, "address >> 4", "address >> 5"), lambda: prove_group(2)),
    (edit(matrix._descriptor, "bit, basis)", "bit, 16)"), lambda: prove_group(6)),
    (edit(matrix._wgmma_text, "step.b >> 4", "step.b >> 5"), lambda: prove_group(0)),
    (edit(matrix._wgmma_text, "int(not panels.k_major)", "int(panels.k_major)"), lambda: prove_group(2)),
    (edit(matrix._wgmma_text, '"never" if step.first and not op.accumulate', '"never" if step.first'),
     lambda: prove_group(4)),
    (edit(fragments.Panels.descriptor, "(8 * self.width >> 4) << 32", "(4 * self.width >> 4) << 32"),
     lambda: prove_group(4)),
    (edit(fragments.Panels.descriptor, "{128: 1, 64: 2, 32: 3}", "{128: 1, 64: 1, 32: 3}"), lambda: prove_group(1)),
    (edit(matrix._mma, "a.part(row, k, batch)", "a.part(row, 0, batch)"), lambda: prove_product(*PRODUCTS[0])),
]  # fmt: skip

test_planted_faults = must_find(FAULTS)
