"""TMA: the accesses that it does, the places of a block's elements, and the lowering of single loads and stores."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import combine, inverted
from ziggurat.codemodel.op import BlockParameter, Op, OpResult
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import DescriptorType, SharedType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.gpu_passes import PLACE, place
from ziggurat.transforms.gpu.tma import lower_tma, made_by, tma_accesses
from ziggurat.transforms.layouts.tma_blocks import buffer_for, is_filled_by_tma
from ziggurat.transforms.tiles.prepare import prepare


@zg.kernel
def product(
    a_desc, b_desc, c_desc, x_ptr, n,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, also: zg.constexpr, precision: zg.constexpr,
):  # fmt: skip
    """c = a · b for one block, with a variation `also`."""
    if also == "first":
        zg.atomic_add(x_ptr, 1.0)
    if also == "acquires":
        zg.atomic_xchg(x_ptr, 1.0)
    if also == "waits":
        zg.store(x_ptr, zg.load(x_ptr, volatile=True))
    if also == "relaxed":
        zg.atomic_xchg(x_ptr, 1.0, sem="relaxed")
    a, b = a_desc.load((0, 0)), b_desc.load((0, 0))
    if also == "turned":
        b = zg.trans(b)
    if also == "both":
        a = zg.trans(a)
    if also == "changed":
        a = zg.add(a, a)
    if also == "used":
        c_desc.store((M, 0), zg.cast(zg.broadcast(zg.expand(zg.sum(a, 1), 1), (M, N)), zg.f16))
    if also == "barrier":
        zg.debug_barrier()
    if also == "atomic":
        zg.atomic_add(x_ptr, 1.0)
    if also == "square":
        b = a
    acc = zg.dot(a, b, zg.zeros((M, N), zg.f32), input_precision=precision)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))
    if also == "last":
        zg.debug_barrier()
    if also == "releases":
        zg.atomic_add(x_ptr, 1.0)
    if also == "relaxed":
        zg.atomic_add(x_ptr, 1.0, sem="relaxed")


def model_of(
    m: int = 64, n: int = 64, k: int = 64, also: str = "", element: Any = zg.f16, *, precision: str = "tf32",
    padding: str = "zero",
) -> Op:  # fmt: skip
    b_block = (n, k) if also == "turned" else (k, n)
    blocks = [zg.descriptor(block, element, padding=padding) for block in ((m, k), b_block)]
    return product.triton(
        *blocks, zg.divisible(zg.descriptor((m, n), zg.f16)), zg.ptr(zg.f32), zg.i32, m, n, k, also, precision
    )


def tma_does(model: Op, target: str = "sm_90a", num_warps: int = 4, roles: bool = False) -> str:
    """The letters of the descriptors, a, b and c, whose accesses TMA does."""
    module = prepare(model)
    choice = tma_accesses(module, target, num_warps, roles=roles)
    results: set[str] = set()
    for op in module.walk():
        if isinstance(op, tt.DescriptorLoad | tt.DescriptorStore) and op.result in choice:
            block = op.descriptor.block
            assert block is not None
            results.add("abc"[block.parameters.index(op.descriptor)])
    return "".join(sorted(results))


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ({}, "abc"),
        ({"also": "turned"}, "abc"),
        ({"num_warps": 2}, "abc"),  # No warp group: no wgmma, but mma.sync.
        ({"m": 32}, "abc"),
        ({"target": "sm_80"}, ""),
        ({"target": "sm_90"}, "abc"),  # TMA, but not wgmma.
        ({"target": "sm_100a"}, "abc"),
        ({"target": "sm_120a"}, "abc"),
        ({"target": "sm_120a", "also": "turned"}, "abc"),
        ({"target": "sm_120a", "also": "square"}, "c"),
        ({"target": "sm_120a", "element": zg.f8e4m3}, "ac"),  # Of 8 bits, ldmatrix reads rows along k.
        ({"target": "sm_120a", "element": zg.f8e4m3, "also": "turned"}, "abc"),
        ({"target": "sm_120a", "element": zg.f32}, "ac"),  # Of 32 bits as well.
        ({"target": "sm_120a", "element": zg.f32, "also": "turned"}, "abc"),
        ({"target": "sm_120a", "element": zg.f32, "also": "turned", "precision": "ieee"}, "c"),
        ({"target": "sm_120a", "m": 8}, "abc"),  # Fewer rows than mma.sync has: of the transposed product, all columns.
        ({"target": "sm_120a", "m": 4}, "b"),  # A block of TMA has 8 rows.
        ({"n": 8}, "a"),  # A row of 16 bytes has no swizzle.
        ({"n": 16}, "abc"),
        ({"also": "changed"}, "bc"),
        ({"also": "used"}, "bc"),
        ({"also": "square"}, "c"),  # One block as both operands, each of which would lie in its own way.
        ({"also": "barrier"}, "abc"),  # What is loaded before, or stored after, is not ordered by it.
        ({"also": "atomic"}, "abc"),
        ({"also": "first"}, "abc"),  # Its value is not used: it acquires nothing.
        ({"also": "acquires"}, "abc"),
        ({"also": "waits"}, "abc"),
        ({"also": "releases"}, "abc"),
        ({"also": "acquires", "roles": True}, "c"),  # The producer would load before.
        ({"also": "waits", "roles": True}, "c"),
        ({"also": "releases", "roles": True}, "ab"),
        ({"also": "relaxed"}, "abc"),
        ({"also": "last"}, "abc"),
        ({"padding": "nan"}, "abc"),
        ({"element": zg.f8e4m3}, "abc"),
        ({"element": zg.f8e4m3, "also": "both"}, "abc"),
        ({"element": zg.f32, "also": "both"}, "c"),  # Of 32 bits, one operand must have its neighbours along k.
        ({"element": zg.f8e4m3, "also": "turned"}, "abc"),
        ({"element": zg.f8e4m3, "also": "turned", "padding": "nan"}, "c"),
        ({"element": zg.f8e5m2, "also": "turned"}, "abc"),
        ({"element": zg.bf16}, "abc"),
        ({"element": zg.f32, "also": "turned", "precision": "ieee"}, "c"),  # Not by the matrix units.
    ],
)
def test_which_accesses_tma_does(argument: dict[str, Any], expected: str) -> None:
    options = {key: argument[key] for key in ("target", "num_warps", "roles") if key in argument}
    model = model_of(**{key: value for key, value in argument.items() if key not in options})
    assert tma_does(model, **options) == expected


@zg.kernel
def made_here(a_ptr, b_ptr, c_ptr, rows, columns, pitch, MODE: zg.constexpr):
    a = zg.make_tensor_descriptor(a_ptr, (rows, 64), (64, 1), (64, 64))
    b = zg.make_tensor_descriptor(b_ptr, (64, 64), (64, 1), (64, 64))
    c = zg.make_tensor_descriptor(c_ptr, (rows, columns), (pitch, 1), (64, 64))
    if MODE == "in place":
        c = zg.make_tensor_descriptor(a_ptr + 64, (rows, columns), (pitch, 1), (64, 64))
    if MODE == "once":
        c.store((0, 0), zg.cast(zg.dot(a.load((0, 0)), b.load((0, 0))), zg.f16))
    else:
        for at in range(0, rows, 64):
            if MODE == "each time":
                b = zg.make_tensor_descriptor(b_ptr + at, (64, 64), (64, 1), (64, 64))
            if MODE == "carried":
                a, c = c, a
            if MODE == "counts in a":
                zg.atomic_add(zg.where(at > 0, a_ptr, b_ptr), 1.0, sem="relaxed")
            if MODE == "counts somewhere":
                zg.atomic_add(zg.cast(zg.cast(rows, zg.i64), F16), 1.0, sem="relaxed")
            c.store((at, 0), zg.cast(zg.dot(a.load((at, 0)), b.load((0, 0))), zg.f16))


def chosen(model: Op, target: str = "sm_90a", **options: Any) -> dict[str, bool]:
    """For each letter of `made_here`, whether stores see first that rows are whole; of accesses that TMA does."""
    module = prepare(model)
    results: dict[str, bool] = {}
    for access, checked in tma_accesses(module, target, 4, **options).items():
        (op,) = (op for op in module.walk() if op.result is access)
        assert isinstance(op, tt.DescriptorLoad | tt.DescriptorStore)
        result = made_by(op.descriptor)
        assert result is not None
        base = result.base
        while isinstance(base, OpResult):
            base = base.op.operands[0]
        assert isinstance(base, BlockParameter)
        results["abc"[base.index]] = checked
    return results


F16 = zg.ptr(zg.f16)
ALL = {"a": False, "b": False, "c": True}


@pytest.mark.parametrize(
    ("mode", "expected", "warning"),
    [
        ("", ALL, None),
        ("once", {}, None),  # A tensor map would be made for one access.
        ("each time", {"a": False, "c": True}, None),
        ("in place", {"b": False}, "the same descriptor, or the same base"),
        ("carried", {"b": False}, None),
        ("counts in a", {"c": True}, "an atomic or a debug_barrier may run before it"),
        ("counts somewhere", {}, "an atomic or a debug_barrier may run before it"),
    ],
)
def test_descriptors_that_the_kernel_makes(mode: str, expected: dict[str, bool], warning: str | None) -> None:
    model = made_here.triton(F16, F16, F16, zg.i32, zg.i32, zg.i32, mode)
    with pytest.warns(zg.ZigguratWarning, match=warning) if warning else contextlib.nullcontext():
        assert chosen(model) == expected
    assert chosen(model, "sm_100a") == chosen(model, "sm_120a") == expected
    for target in ("sm_80", "sm_90", "sm_100", "sm_120"):
        assert not chosen(model, target)


def test_a_launch_that_overlaps_with_the_one_before_makes_no_maps() -> None:
    model = made_here.triton(F16, F16, F16, zg.i32, zg.i32, zg.i32, "")
    with pytest.warns(zg.ZigguratWarning, match="the launch before may still use the memory of the tensor map"):
        assert not chosen(model, launch_pdl=True)


@pytest.mark.parametrize(
    ("columns", "pitch", "checked"),
    [
        (zg.i32, zg.i32, True), (zg.divisible(zg.i32, 8), zg.i32, False), (zg.divisible(zg.i32, 4), zg.i32, True),
        (72, 80, False),
    ],
)  # fmt: skip
def test_rows_that_are_known_to_be_whole(columns: Any, pitch: Any, checked: bool) -> None:
    assert chosen(made_here.triton(F16, F16, F16, zg.i32, columns, pitch, ""))["c"] == checked


@zg.kernel
def contiguous(a_ptr, b_ptr, c_ptr, rows, columns):
    a = zg.make_tensor_descriptor(a_ptr, (rows, 64), (64, 1), (64, 64))
    b = zg.make_tensor_descriptor(b_ptr, (64, 64), (64, 1), (64, 64))
    c = zg.make_tensor_descriptor(c_ptr, (rows, columns), (columns, 1), (64, 64))
    for at in range(0, rows, 64):
        c.store((at, 0), zg.cast(zg.dot(a.load((at, 0)), b.load((0, 0))), zg.f16))


def test_rows_as_long_as_they_are_apart_are_whole() -> None:
    """The distance is a multiple of 16 bytes."""
    assert chosen(contiguous.triton(F16, F16, F16, zg.i32, zg.i32)) == {"a": False, "b": False, "c": False}


@pytest.mark.parametrize(
    ("block", "expected"), [((8, 16), True), ((4, 64), False), ((8, 8), False), ((64,), False), ((2, 8, 64), False)]
)
def test_which_blocks_are_stored(block: tuple[int, ...], expected: bool) -> None:
    """Two axes, 8 rows, and rows of at least 32 bytes."""

    @zg.kernel
    def filled(y_desc, BLOCK: zg.constexpr, ORIGIN: zg.constexpr):
        y_desc.store(ORIGIN, zg.zeros(BLOCK, zg.f16))

    module = prepare(filled.triton(zg.divisible(zg.descriptor(block, zg.f16)), block, (0,) * len(block)))
    assert bool(tma_accesses(module, "sm_90a", 4)) == expected


@zg.kernel
def placed(a_desc, b_desc, c_desc, i, j, UNIT: zg.constexpr):
    a, b = a_desc.load((i, j * UNIT)), b_desc.load((j, i * UNIT))
    c_desc.store((j, i * UNIT), zg.cast(zg.dot(a, b), zg.f16))


@pytest.mark.parametrize(("unit", "expected"), [(1, ""), (4, ""), (8, "abc"), (24, "abc"), (12, "")])
def test_columns_begin_at_multiples_of_16_bytes(unit: int, expected: str) -> None:
    block = zg.divisible(zg.descriptor((64, 64), zg.f16))
    assert tma_does(placed.triton(block, block, block, zg.i32, zg.i32, unit)) == expected


def test_stores_go_to_rows_of_whole_16_bytes() -> None:
    """Otherwise TMA writes after their end. Loads have the padding there."""
    block = zg.descriptor((64, 64), zg.f16)
    assert tma_does(placed.triton(block, block, block, zg.i32, zg.i32, 64)) == "ab"
    assert tma_does(placed.triton(block, block, zg.divisible(block, 8), zg.i32, zg.i32, 64)) == "ab"


# The places of a block in shared memory.


def place_of(row: int, byte: int, rows: int, width: int) -> int:
    """The byte in a buffer by the PTX manual's swizzling modes: in a panel of `width` bytes, chunks of 16 bytes are
    swapped within repeating patterns; panels follow each other."""
    panel, inside = divmod(byte, width)
    line = row * width + inside
    return panel * rows * width + (line ^ (line >> 7 & width // 16 - 1) << 4)


@pytest.mark.parametrize(
    ("block", "element", "width"),
    [
        ((64, 64), zg.f16, 128), ((64, 256), zg.bf16, 128), ((16, 32), zg.f16, 64), ((128, 16), zg.f16, 32),
        ((64, 128), zg.f8e4m3, 128), ((64, 32), zg.f8e5m2, 32), ((64, 64), zg.f32, 128), ((8, 64), zg.f16, 128),
    ],
)  # fmt: skip
def test_the_places_of_elements(block: tuple[int, int], element: Any, width: int) -> None:
    """The offsets of the buffer's type against a formula of addresses; the buffer begins where the pattern does."""
    shared, alignment = buffer_for(DescriptorType(block, element))
    assert alignment == 8 * width and shared.shape == block
    places = inverted(shared.offsets)
    for row in range(block[0]):
        for column in range(0, block[1], 4):
            actual = combine(places, row * block[1] + column)
            assert actual * element.bytes == place_of(row, column * element.bytes, block[0], width)


def after(name: str, model: Op, num_stages: int = 3) -> Op:
    """The model after the pass of this name."""
    options = CompileOptions("sm_90a", 4, num_stages)
    for step, function in PLACE:
        model = function(model, options)
        if step == name:
            return model
    raise AssertionError(name)


def test_which_buffers_tma_can_fill() -> None:
    """Buffers in its own form, whose axes are permuted like the block's."""
    before = after("copies", model_of(also="turned"))
    stores = [op for op in before.walk() if isinstance(op, gpu.LocalStore)]
    assert len(stores) == 2
    for store in stores:
        type_ = store.buffer.type
        assert isinstance(type_, SharedType)
        assert is_filled_by_tma(store.value, type_)
        plain = SharedType(type_.shape, type_.element, tuple(1 << bit for bit in range(len(type_.offsets))))
        assert not is_filled_by_tma(store.value, plain)


# The lowering.


def lowered(lines: str) -> str:
    text = f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
        tt.func @"f" (%0 : descriptor<x8, x16, f16>, %1 : descriptor<x8, x16, f16>, %2 : i32)void -> {{
            {lines}
            tt.return;
        }};
        unreachable;
    }};"""
    module = parse(text)
    verify(module)
    result = lower_tma(module)
    verify(result)
    inside = [line.strip() for line in str(result).split("\n")[2:]]
    return "\n".join(inside[: inside.index("tt.return;")])


BLOCK = 'tensor<x8, x16, f16, "1 8 | 2 4 16 32 64 | 0 0">'
BUFFER = 'shared<x8, x16, f16, "1 2 4 8 16 32 72">'


def test_a_load_for_threads_is_read_from_a_buffer() -> None:
    expected = f"""
        %3 : {BUFFER} = gpu.local_alloc @alignment=256;
        %4 : i1 = arith.constant @true;
        %5 : channel = gpu.channel %3;
        %6 : i32 = gpu.channel_acquire %5 %4;
        gpu.tma_load %0 %3 %5 %4 %2 %2;
        gpu.channel_commit %5;
        %7 : i32 = gpu.channel_wait %5;
        gpu.channel_close %5;
        %8 : {BLOCK} = gpu.local_load %3;
    """
    actual = lowered(f"%9 : {BLOCK} = tt.descriptor_load %0 %2 %2; %10 : {BLOCK} = arith.addf %9 %9;")
    *first, last = actual.split("\n")
    assert "\n".join(first) == "\n".join(line.strip() for line in expected.strip().split("\n"))
    assert last.endswith("= arith.addf %8 %8;")


def test_a_store_goes_through_a_buffer() -> None:
    expected = f"""
        %3 : {BLOCK} = arith.constant @1.0;
        %4 : {BUFFER} = gpu.local_alloc @alignment=256;
        gpu.local_store %4 %3;
        gpu.tma_store %1 %4 %2 %2;
        gpu.tma_store_wait @0;
    """
    actual = lowered(f"%9 : {BLOCK} = arith.constant @1.0; tt.descriptor_store %1 %9 %2 %2;")
    assert actual == "\n".join(line.strip() for line in expected.strip().split("\n"))


def counted(model: Op) -> dict[str, int]:
    results: dict[str, int] = {}
    for op in model.walk():
        results[op.NAME] = results.get(op.NAME, 0) + 1
    return results


def test_buffers_for_wgmma_are_filled_directly() -> None:
    """Threads neither store the operands to the buffers nor load them from there."""
    for also in ("", "turned"):
        result = counted(place(model_of(also=also), CompileOptions("sm_90a", 4, 3)))
        assert result["gpu.tma_load"] == 2 and result["gpu.wgmma"] == 1
        # The only store is that of the result.
        assert result["gpu.local_store"] == result["gpu.tma_store"] == 1 and "gpu.local_load" not in result
        assert "tt.load" not in result and "tt.store" not in result


def test_a_buffer_that_is_stored_twice_is_not_filled_directly() -> None:
    """Later stores of threads must not race with TMA: the block goes through a buffer of its own."""
    begin = f"%9 : {BLOCK} = tt.descriptor_load %0 %2 %2; %8 : {BUFFER} = gpu.local_alloc; gpu.local_store %8 %9;"
    end = f"%10 : {BLOCK} = gpu.local_load %8;"
    actual = lowered(f"{begin} gpu.local_store %8 %9; {end}")
    assert actual.count("gpu.local_store") == 2 and actual.count("gpu.local_load") == 2
    once = lowered(f"{begin} {end}")
    assert "gpu.local_store" not in once and once.count("gpu.local_load") == 1


def test_a_module_without_descriptors_stays() -> None:
    module = after("copies", made_plain.triton(zg.ptr(zg.f16)))
    assert lower_tma(module) is module


@zg.kernel
def made_plain(x_ptr):
    at = zg.arange(0, 128)
    zg.store(zg.add(x_ptr, at), zg.load(zg.add(x_ptr, zg.add(at, 128))))


@zg.kernel
def powers(a, w, c, n, MODE: zg.constexpr):
    """Stores through one descriptor and loads through others."""
    block = a.load((0, 0))
    if MODE == "in a loop":
        for _ in range(0, n):
            c.store((0, 0), zg.cast(zg.dot(a.load((0, 0)), w.load((0, 0))), zg.f16))
    if MODE == "loads before":
        c.store((0, 0), zg.cast(zg.dot(block, w.load((0, 0))), zg.f16))
    if MODE == "loads after":
        c.store((0, 0), block)
        w.store((0, 0), zg.cast(zg.dot(block, a.load((0, 0))), zg.f16))
    if MODE == "the same":
        for _ in range(0, n):
            a.store((0, 0), zg.cast(zg.dot(block, a.load((0, 0))), zg.f16))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("in a loop", (2, 0, 2, 1)), ("loads before", ()), ("loads after", (2, 0)), ("the same", ())],
)
def test_descriptors_that_must_not_describe_the_same_memory(mode: str, expected: tuple[int, ...]) -> None:
    """A pair of a store and a load that may come after it, if TMA does one of the two."""
    block = zg.divisible(zg.descriptor((64, 64), zg.f16))
    model = powers.triton(block, block, block, zg.i32, mode)
    for target, actual in (("sm_90a", expected), ("sm_80", ())):
        (func,) = [op for op in place(model, CompileOptions(target, 4, 3)).walk() if isinstance(op, tt.Func)]
        assert func.disjoint == actual


@zg.kernel
def rows_between(a, c, numbers_ptr, MODE: zg.constexpr):
    """Blocks and rows of one descriptor, or of two."""
    numbers = zg.load(zg.add(numbers_ptr, zg.arange(0, 8)))
    if MODE == "adds":
        for row in range(0, 16, 8):
            c.atomic_add((row, 0), zg.full((8, 64), 1.0, zg.f16))
    elif MODE == "largest":
        c.atomic_max((0, 0), zg.full((8, 64), 1.0, zg.f16))
    else:
        c.store((0, 0), zg.full((8, 64), 1.0, zg.f16))
    if MODE == "combines":
        c.atomic_add((0, 0), zg.full((8, 64), 1.0, zg.f16))
    else:
        zg.store(zg.add(numbers_ptr, 8), zg.cast(zg.max(zg.max(a.gather(numbers, 0), 0), 0), zg.i32))


def test_rows_and_combinations_keep_their_order_with_tma() -> None:
    a, c = zg.descriptor((1, 64), zg.f16), zg.divisible(zg.descriptor((8, 64), zg.f16))

    def of(mode: str) -> tuple[int, tuple[int, ...]]:
        module = place(rows_between.triton(a, c, zg.ptr(zg.i32), mode), CompileOptions("sm_90a", 4, 3))
        (func,) = [op for op in module.walk() if isinstance(op, tt.Func)]
        return sum(isinstance(op, gpu.TmaStore) for op in module.walk()), func.disjoint

    assert of("gathers") == (1, (1, 0))
    assert of("adds") == (1, (1, 0))
    with pytest.warns(zg.ZigguratWarning, match="TMA adds f16, bf16, f32 and integers of 32 bits only"):
        assert of("largest") == (0, ())
    with pytest.warns(zg.ZigguratWarning, match="moves rows or combines blocks through the same descriptor"):
        assert of("combines") == (0, ())


@zg.kernel
def constant_beside_a_reshape(x, out):
    at = zg.reshape(zg.arange(0, 32), (2, 16))
    zg.store(x + at, zg.load(x + at) + 1.0)
    descriptor = zg.make_tensor_descriptor(out, (2, 16), (16, 1), (2, 16))
    zg.store_tensor_descriptor(descriptor, (0, 0), zg.zeros((2, 16), zg.f32))


@pytest.mark.filterwarnings("ignore::ziggurat.ZigguratWarning")
def test_a_constant_is_stored_through_a_descriptor() -> None:
    """The value of such a store has no operands: `by_rows` looks for a reshape there, and takes another op for none."""
    pointer = zg.divisible(zg.ptr(zg.f32))
    x, out = np.zeros(32, np.float32), np.ones(32, np.float32)
    constant_beside_a_reshape.compile(pointer, pointer, num_warps=1).simulate[1,](x, out)
    assert (x == 1).all() and (out == 0).all()
