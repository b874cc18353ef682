"""Rows of descriptors that are no neighbours, blocks that are combined in memory, and what a descriptor tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.ptx.sass import assembled

ROWS, COLUMNS = 6, 40
NUMBERS = np.array([4, 5, 1, 6, -1, 0, 2**31 - 1, -(2**31)], np.int32)


def on_each_tier(kernel: Any, types: list[Any], make: Any) -> None:
    """The result of the kernel in the interpreter and as compiled code is the expected one. The code is assembled.

    `make()` gives the arguments of a launch, the array that it writes, and the elements expected there.
    """
    compiled = kernel.compile(*types, target="sm_90a")
    assert assembled(compiled.ptx, "sm_90a")
    launches = [lambda *arguments: zg.run(kernel.triton(*types), 1, *arguments)]
    if "atom.relaxed.gpu.global.cas" not in compiled.ptx:  # The simulator runs no loops around compare-and-swap.
        launches.append(compiled.simulate[(1,)])
    for launch in launches:
        arguments, out, expected = make()
        launch(*arguments)
        np.testing.assert_array_equal(out, expected)


@zg.kernel
def pick(x_ptr, out_desc, rows_ptr, column, PAD: zg.constexpr):
    numbers = zg.load(zg.add(rows_ptr, zg.arange(0, 8)))
    x_desc = zg.make_tensor_descriptor(x_ptr, (6, 40), (40, 1), (1, 16), PAD)
    out_desc.store((0, 0), x_desc.gather(numbers, column))


@pytest.mark.parametrize("pad", ["zero", "nan"])
@pytest.mark.parametrize("column", [0, 24, 30, -3])
def test_gathered_rows(pad: str, column: int):
    types = [zg.ptr(zg.f32), zg.descriptor((8, 16), zg.f32), zg.ptr(zg.i32), zg.i32, pad]

    def make() -> Any:
        x = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
        out = np.full((8, 16), -1, np.float32)
        expected = np.full_like(out, np.nan if pad == "nan" else 0)
        for place, row in enumerate(NUMBERS):
            for at in range(16):
                if 0 <= row < ROWS and 0 <= column + at < COLUMNS:
                    expected[place, at] = x[row, column + at]
        return (x, zg.TensorDescriptor(out, (8, 16)), NUMBERS.copy(), column), out, expected

    on_each_tier(pick, types, make)


@triton.jit
def put(x_ptr, out_desc, rows_ptr, column):
    numbers = tl.load(rows_ptr + tl.arange(0, 8))
    x = tl.load(x_ptr + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :])
    out_desc.scatter(x, numbers.to(tl.int64), column)


@pytest.mark.parametrize("column", [0, 30, -3])
def test_scattered_rows_are_converted_to_the_elements(column: int):
    types = [zg.ptr(zg.f32), zg.descriptor((1, 16), zg.f16), zg.ptr(zg.i32), zg.i32]

    def make() -> Any:
        x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
        out = np.full((ROWS, COLUMNS), -1, np.float16)
        expected = out.copy()
        for place, row in enumerate(NUMBERS):
            for at in range(16):
                if 0 <= row < ROWS and 0 <= column + at < COLUMNS:
                    expected[row, column + at] = x[place, at]
        return (x, zg.TensorDescriptor(out, (1, 16)), NUMBERS.copy(), column), out, expected

    on_each_tier(put, types, make)


@triton.jit
def combine(x_ptr, out_desc, row, column, KIND: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :])
    if KIND == "add":
        out_desc.atomic_add([row, column], x)
    elif KIND == "max":
        out_desc.atomic_max([row, column], x)
    else:
        out_desc.atomic_xor([row, column], x)


@pytest.mark.parametrize(
    ("kind", "element", "ufunc"),
    [
        ("add", zg.f32, np.add), ("add", zg.f16, np.add), ("add", zg.u32, np.add), ("max", zg.i32, np.maximum),
        ("max", zg.u64, np.maximum), ("max", zg.f16, np.maximum), ("xor", zg.i64, np.bitwise_xor),
    ],
)  # fmt: skip
def test_combined_blocks(kind: str, element: Any, ufunc: Any):
    types = [zg.ptr(element), zg.descriptor((4, 16), element), zg.i32, zg.i32, kind]

    def make() -> Any:
        dtype = np.dtype(element.dtype)
        x = (np.arange(4 * 16) * 7 % 11).astype(dtype).reshape(4, 16)
        out = (np.arange(ROWS * COLUMNS) % 13).astype(dtype).reshape(ROWS, COLUMNS)
        expected = out.copy()
        expected[4:, 32:] = ufunc(out[4:, 32:], x[:2, :8])
        return (x, zg.TensorDescriptor(out, (4, 16)), 4, 32), out, expected

    on_each_tier(combine, types, make)


def test_elements_that_have_no_such_combination():
    types = [zg.ptr(zg.f32), zg.descriptor((4, 16), zg.f32), zg.i32, zg.i32, "max"]
    with pytest.raises(
        triton.CompilationError, match=r"Unsupported dtype.*uint32, int32, uint64, int64, fp16, bf16; got fp32"
    ):
        combine.triton(*types)


@zg.kernel
def told(out_ptr, argument, rows, columns):
    descriptor = zg.make_tensor_descriptor(zg.add(out_ptr, 8), (rows, columns), (columns, 1), (1, 16))
    if zg.compare(rows, columns, zg.CompareKind.LESS_THAN):
        descriptor = argument
    zg.store(out_ptr, zg.cast(descriptor.shape[0], zg.i64))
    zg.store(zg.add(out_ptr, 1), zg.cast(descriptor.shape[1], zg.i64))
    zg.store(zg.add(out_ptr, 2), descriptor.strides[0])
    zg.store(zg.add(out_ptr, 3), descriptor.strides[1])


@pytest.mark.parametrize("columns", [4, 16])
def test_sizes_and_strides(columns: int):
    types = [zg.ptr(zg.i64), zg.descriptor((1, 16), zg.i64), zg.i32, zg.i32]

    def make() -> Any:
        out, array = np.zeros(8, np.int64), np.zeros((3, 22), np.int64)[:, :20]
        expected = np.array([*((3, 20, 22, 1) if columns == 16 else (8, 4, 4, 1)), 0, 0, 0, 0])
        return (out, zg.TensorDescriptor(array, (1, 16)), 8, columns), out, expected

    on_each_tier(told, types, make)


@zg.kernel
def tells(out_ptr, argument):
    zg.store(out_ptr, argument.shape[1])


def test_sizes_in_the_text_of_triton():
    model = tells.triton(zg.ptr(zg.i32), zg.descriptor((1, 16), zg.f32))
    text = zg.to_mlir(model, release="3.6")
    assert "tensordesc<tensor<1x16xf32>>, %arg1.shape.0: i32 {zg.descriptor_size = 0 : i32}, %arg1.shape.1: i32" in text
    back = zg.from_mlir(text)
    assert zg.to_mlir(back, release="3.6") == text
    out = np.zeros(1, np.int32)
    zg.run(back, 1, out, zg.TensorDescriptor(np.zeros((2, 24), np.float32), (1, 16)))
    assert out == 24
