"""The error of too little shared memory, and the tensors that it names."""

from __future__ import annotations

import re
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SharedType, f32
from ziggurat.transforms.gpu.allocate import shared_memory_error
from ziggurat.transforms.gpu.gpu_passes import place

FILE = "test_shared_memory_error.py"
F16, F32, I32 = (zg.divisible(zg.ptr(element)) for element in (zg.f16, zg.f32, zg.i32))


def said(kernel: Any, *types: Any, target: str = "sm_80", num_warps: int = 8, num_stages: int = 3) -> list[str]:
    """The lines of the error, without the folders of files."""
    with pytest.raises(zg.ResourceError) as error:
        place(kernel.triton(*types), CompileOptions(target, num_warps, num_stages))
    return re.sub(r"/\S*/", "", str(error.value)).splitlines()


def line_of(text: str) -> int:
    """The first line of this file that has the text."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


@zg.function
def tile(start, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    return zg.load(zg.add(start, zg.reshape(zg.arange(0, ROWS * COLUMNS), (ROWS, COLUMNS))))


@zg.kernel
def product(a, b, c, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    left, right = tile(a, M, K), tile(b, K, N)
    total = zg.dot(left, right)
    zg.store(zg.add(c, zg.reshape(zg.arange(0, M * N), (M, N))), total)


@zg.kernel
def exact(a, b, c, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    left, right = tile(a, M, K), tile(b, K, N)
    total = zg.dot(left, right, input_precision="ieee")
    zg.store(zg.add(c, zg.reshape(zg.arange(0, M * N), (M, N))), total)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("num_stages", [1, 3])
def test_the_operands_of_a_dot_have_the_names_of_the_source(target: str, num_stages: int) -> None:
    lines = said(product, F16, F16, F32, 256, 256, 256, target=target, num_stages=num_stages)
    place_ = f"{FILE}:{line_of('zg.dot(left, right)')}:13"
    assert lines[1:] == [
        f"  131072 bytes: 256×256 of f16: left, the first operand of dot, at {place_}",
        "    total = zg.dot(left, right)",
        f"  131072 bytes: 256×256 of f16: right, the second operand of dot, at {place_}",
        "  hint: use smaller blocks",
    ]


@pytest.mark.parametrize(("element", "count"), [(zg.f32, 2), (zg.f64, 1)])
def test_operands_of_other_units_have_names_too(element: Any, count: int) -> None:
    """For f32 without matrix units; and for f64, whose other operand is not in shared memory at the same time."""
    pointer = zg.divisible(zg.ptr(element))
    lines = said(exact, pointer, pointer, pointer, 128, 128, 256)
    names = [line.split(": ")[2].split(", at ")[0] for line in lines if " of f" in line]
    assert names == ["left, the first operand of dot", "right, the second operand of dot"][:count]


@zg.function
def multiplied(x, y):
    return zg.dot(b=y, a=zg.cast(x, zg.f16))


@zg.kernel
def nested(a, b, c, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    total = zg.add(multiplied(tile(a, M, K), tile(b, K, N)), 1.0)
    zg.store(zg.add(c, zg.reshape(zg.arange(0, M * N), (M, N))), total)


def test_keyword_arguments_in_a_function_of_the_author() -> None:
    lines = said(nested, F16, F16, F32, 256, 256, 256)
    here, call = line_of("zg.dot(b=y"), line_of("multiplied(tile")
    assert lines[1:] == [
        f"  131072 bytes: 256×256 of f16: zg.cast(x, zg.f16), the first operand of dot, at {FILE}:{here}:12",
        "    return zg.dot(b=y, a=zg.cast(x, zg.f16))",
        f"    called from {FILE}:{call}:20",
        f"  131072 bytes: 256×256 of f16: y, the second operand of dot, at {FILE}:{here}:12",
        f"    called from {FILE}:{call}:20",
        "  hint: use smaller blocks",
    ]


@zg.kernel
def by_engine(a, b, c):
    c.store((0, 0), zg.cast(zg.dot(a.load((0, 0)), b.load((0, 0))), zg.f16))


def test_blocks_of_tma_and_its_mbarriers() -> None:
    block = zg.divisible(zg.descriptor((256, 256), zg.f16))
    lines = said(by_engine, block, block, block, target="sm_90a")
    assert any("131072 bytes: 256×256 of f16: a.load((0, 0)), the first operand of dot, at" in line for line in lines)
    assert any("131072 bytes: 256×256 of f16: b.load((0, 0)), the second operand of dot, at" in line for line in lines)
    assert "  8 bytes: 1 of i64: mbarriers, which signal that blocks have arrived" in lines


@zg.kernel
def turned(x, y):
    v = tile(x, 256, 256)
    zg.store(zg.add(y, zg.reshape(zg.arange(0, 65536), (256, 256))), zg.trans(v))


@zg.kernel
def counted(x, y):
    zg.store(zg.add(y, zg.arange(0, 65536)), zg.histogram(zg.load(zg.add(x, zg.arange(0, 128))), 65536))


@zg.kernel
def picked(x, y):
    at = zg.arange(0, 65536)
    table = zg.load(zg.add(x, at))
    zg.store(zg.add(y, at), zg.gather(table, zg.sub(65535, at), 0))


@pytest.mark.parametrize(
    ("kernel", "pointer", "what"),
    [
        (turned, F32, "256×256 of f32: on its way between threads"),
        (counted, I32, "65536 of i32: the counters of histogram"),
        (picked, F32, "65536 of f32: the table of a gather"),
    ],
)
def test_other_purposes_of_buffers(kernel: Any, pointer: Any, what: str) -> None:
    assert f"  262144 bytes: {what}, at " in said(kernel, pointer, pointer)[1]


@zg.kernel
def summed(x, y, N: zg.constexpr):
    at = zg.arange(0, N)
    running = zg.cumsum(zg.load(zg.add(x, at)))
    zg.store(zg.add(y, at), running)
    zg.store(y, zg.max(running, axis=0))


def test_results_are_named_by_their_variable() -> None:
    """Scans and reductions need little, so the error is made of all buffers of the kernel."""
    module = place(summed.triton(F32, F32, 1024), CompileOptions("sm_80", 4, 3))
    buffers = [op for op in module.walk() if isinstance(op, gpu.LocalAlloc)]
    lines = shared_memory_error(buffers, 1 << 20, 1 << 10, "sm_80").summary.splitlines()
    scan = f"running, on its way between warps for a scan, at {__file__}:{line_of('running = ')}:15"
    reduction = f"f32: on its way between warps for a reduction, at {__file__}:{line_of('zg.max(running')}:17"
    assert any(line.endswith(scan) for line in lines) and any(line.endswith(reduction) for line in lines)


@zg.kernel
def weights(x, y, N: zg.constexpr):
    down, across = zg.expand(zg.arange(0, N), 1), zg.expand(zg.arange(0, N), 0)
    there = zg.softmax(tile(x, N, N), 0)
    zg.store(zg.add(y, zg.add(zg.mul(across, N), down)), there)


def test_a_buffer_of_a_library_function_is_shown_at_the_call() -> None:
    lines = said(weights, F32, F32, 256)
    assert lines[1].endswith(f", at {FILE}:{line_of('zg.softmax')}:13")
    assert lines[2] == "    there = zg.softmax(tile(x, N, N), 0)"
    assert lines[3].startswith("    in the library, at elementary.py:")


def buffer(count: int) -> gpu.LocalAlloc:
    return gpu.LocalAlloc(SharedType((1024,), f32, tuple(1 << bit for bit in range(10)), count))


@pytest.mark.parametrize(
    ("counts", "hint"), [((1, 1), "use smaller blocks"), ((1, 3), "use smaller blocks, or fewer stages")]
)
def test_the_hint_names_stages_if_there_are_any(counts: tuple[int, int], hint: str) -> None:
    error = shared_memory_error([buffer(count) for count in counts], 1 << 20, 1 << 10, "sm_90a")
    assert error.hint == hint
    assert [line for line in error.summary.splitlines() if "3 ×" in line] == ["  12288 bytes: 3 × 1024 of f32"] * (
        3 in counts
    )


def test_the_eight_largest_tensors_are_named() -> None:
    error = shared_memory_error(
        [buffer(count) for count in (1, 9, 2, 10, 3, 8, 4, 7, 6, 5)], 1 << 20, 1 << 10, "sm_90a"
    )
    assert error.summary.splitlines()[1:] == [f"  {4096 * n} bytes: {n} × 1024 of f32" for n in range(10, 2, -1)]


@zg.kernel
def lengthy(a, b, c, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    the_first_operand_of_dot, the_other_operand_of_it = tile(a, M, K), tile(b, K, N)
    total = zg.dot(zg.cast(the_first_operand_of_dot, zg.f16), zg.cast(the_other_operand_of_it, zg.f16))
    zg.store(zg.add(c, zg.reshape(zg.arange(0, M * N), (M, N))), total)


def test_an_expression_of_more_than_40_characters_is_not_quoted() -> None:
    lines = said(lengthy, F16, F16, F32, 256, 256, 256)
    first, second = (line.split(", at ")[0] for line in lines if " of f16" in line)
    assert "zg.cast" not in first and first.endswith("the first operand of dot")
    assert second.endswith(": zg.cast(the_other_operand_of_it, zg.f16), the second operand of dot")


def test_a_model_from_text_has_no_names() -> None:
    text = str(product.triton(F16, F16, F32, 256, 256, 256))
    with pytest.raises(zg.ResourceError) as error:
        place(parse(text), CompileOptions("sm_80", 8, 3))
    lines = error.value.summary.splitlines()
    assert lines[1:] == [f"  131072 bytes: 256×256 of f16: the {each} operand of dot" for each in ("first", "second")]
