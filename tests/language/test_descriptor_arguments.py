"""Kernels that take tensor descriptors: launches on arrays in memory, and the errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.types import DescriptorType, f16, f32

ROOT = Path(__file__).resolve().parents[2]


@zg.kernel
def scale(x_desc, out_desc, M: zg.constexpr, N: zg.constexpr):
    at = (zg.program_id(0) * M, zg.program_id(1) * N)
    out_desc.store(at, zg.mul(x_desc.load(at), 2.0))


@zg.kernel
def move(x_desc, y_desc, i, j, k, m):
    y_desc.store((k, m), x_desc.load((i, j)))


@zg.kernel
def move_1d(x_desc, y_desc, i, j):
    zg.store_tensor_descriptor(y_desc, (j,), zg.load_tensor_descriptor(x_desc, (i,)))


@zg.kernel
def move_3d(x_desc, y_desc, i, j, k):
    y_desc.store((0, 0, 0), x_desc.load((i, j, k)))


def wide(rows: int, columns: int, room: int, dtype: Any = np.float32, fill: float = 0) -> np.ndarray:
    """An array whose rows lie `room` elements apart."""
    return np.full((rows, room), fill, dtype)[:, :columns]


def moved(x: np.ndarray, y: np.ndarray, block: tuple[int, ...], source: Any, target: Any, outside: float) -> np.ndarray:
    """`y` after a block of `x` at `source` was written at `target`."""
    values = np.full(block, outside, x.dtype)
    expected = y.copy()
    for place in np.ndindex(*block):
        from_ = tuple(np.add(source, place))
        if all(0 <= at < size for at, size in zip(from_, x.shape, strict=True)):
            values[place] = x[from_]
    for place in np.ndindex(*block):
        to = tuple(np.add(target, place))
        if all(0 <= at < size for at, size in zip(to, y.shape, strict=True)):
            expected[to] = values[place]
    return expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(64, 64), (50, 64), (50, 41), (1, 1), (63, 33)])
def test_ragged_shapes_and_padded_rows(shape, dtype):
    rows, columns = shape
    x = wide(rows, columns, 72, dtype)
    x[...] = np.random.default_rng(0).standard_normal(shape)
    out = wide(rows, columns, 80, dtype)
    scale[(4, 2)](zg.TensorDescriptor(x, (16, 32)), zg.TensorDescriptor(out, (16, 32)), M=16, N=32)
    np.testing.assert_array_equal(out, 2 * x)
    assert not out.base[:, columns:].any(), "the room behind the rows is not written"


OFFSETS = st.integers(-12, 20) | st.sampled_from([-(2**31), 2**31 - 1, 2**31 - 3])


@given(st.integers(1, 11), st.integers(1, 11), OFFSETS, OFFSETS, OFFSETS, OFFSETS, st.sampled_from(["zero", "nan"]))
def test_any_offsets(rows, columns, i, j, k, m, padding):
    x, y = wide(rows, columns, 12), wide(rows, columns, 16, fill=-1)
    x[...] = np.arange(rows * columns).reshape(rows, columns)
    expected = moved(x, y, (4, 8), (i, j), (k, m), np.nan if padding == "nan" else 0)
    move[1](zg.TensorDescriptor(x, (4, 8), padding=padding), zg.TensorDescriptor(y, (4, 8)), i, j, k, m)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(("i", "j"), [(0, 0), (-5, 3), (17, -2), (100, 0)])
def test_one_axis(i, j, padding):
    x, y = np.arange(20, dtype=np.float32), np.full(13, -1, np.float32)
    expected = moved(x, y, (8,), (i,), (j,), np.nan if padding == "nan" else 0)
    move_1d[1](zg.TensorDescriptor(x, (8,), padding=padding), zg.TensorDescriptor(y, (8,)), i, j)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("at", [(0, 0, 0), (2, -1, 5), (-1, 4, -3)])
def test_three_axes(at):
    x = np.arange(3 * 5 * 12, dtype=np.int32).reshape(3, 5, 12)[:, :, :10]
    y = np.full((2, 4, 8), -1, np.int32)
    expected = moved(x, y, (2, 4, 8), at, (0, 0, 0), 0)
    move_3d[1](zg.TensorDescriptor(x, (2, 4, 8)), zg.TensorDescriptor(y, (2, 4, 8)), *at)
    np.testing.assert_array_equal(y, expected)


def test_the_described_part_of_an_array():
    """Memory outside of the described part is neither read nor written, though the array has it."""
    x, y = np.arange(64, dtype=np.float32).reshape(8, 8), np.full((8, 8), -1, np.float32)
    source = zg.TensorDescriptor(x, (4, 8), shape=(3, 5), strides=(16, 1), padding="nan")
    move[1](source, zg.TensorDescriptor(y, (4, 8), shape=(4, 6)), 0, 0, 0, 0)
    expected = np.full((8, 8), -1, np.float32)
    expected[:4, :6] = np.nan
    expected[:3, :5] = x[:6:2, :5]
    np.testing.assert_array_equal(y, expected)


def test_a_descriptor_of_more_than_its_array_is_an_access_out_of_bounds():
    x, y = np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    descriptor = zg.TensorDescriptor(x, (4, 8), shape=(5, 8))
    move[1](descriptor, zg.TensorDescriptor(y, (4, 8)), 0, 0, 0, 0)
    with pytest.raises(zg.MemoryAccessError, match=r"reads x_desc\[32\], but x_desc has 32 elements") as error_info:
        move[1](descriptor, zg.TensorDescriptor(y, (4, 8)), 1, 0, 0, 0)
    assert "x_desc.load((i, j))" in str(error_info.value)
    with pytest.raises(zg.MemoryAccessError, match=r"writes y_desc\[32\]"):
        move[1](zg.TensorDescriptor(y, (4, 8)), zg.TensorDescriptor(x, (4, 8), shape=(5, 8)), 0, 0, 1, 0)
    frozen = np.zeros((4, 8), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(zg.MemoryAccessError, match=r"y_desc.*read-only"):
        move[1](zg.TensorDescriptor(y, (4, 8)), zg.TensorDescriptor(frozen, (4, 8)), 0, 0, 0, 0)


@zg.kernel
def pick(x_desc, y_desc, out_desc, count, first):
    descriptor = x_desc
    if first == 0:
        descriptor = y_desc
    total = zg.zeros((4, 8), zg.f32)
    for step in range(0, count):
        total = zg.add(total, descriptor.load((step * 4, 0)))
    out_desc.store((0, 0), total)


@pytest.mark.parametrize("first", [0, 1])
def test_control_flow_carries_descriptors(first):
    x, y = np.ones((8, 8), np.float32), np.full((6, 8), 3, np.float32)
    out = np.zeros((4, 8), np.float32)
    block = (4, 8)
    pick[1](*(zg.TensorDescriptor(array, block) for array in (x, y, out)), 2, first)
    assert (out[:2] == (2 if first else 6)).all() and (out[2:] == (2 if first else 3)).all()


@zg.function
def twice(desc, i):
    return zg.mul(desc.load((i, 0)), 2.0)


@zg.kernel
def through_a_function(x_desc, y_ptr, left_out):
    at = zg.add(zg.expand(zg.mul(zg.arange(0, 4), 8), 1), zg.expand(zg.arange(0, 8), 0))
    if left_out is None:
        zg.store(zg.add(y_ptr, at), twice(x_desc, 2))


def test_functions_take_descriptors_beside_pointers():
    x, y = np.arange(32, dtype=np.float32).reshape(4, 8), np.zeros((4, 8), np.float32)
    through_a_function[1](zg.TensorDescriptor(x, (4, 8)), y, None)
    np.testing.assert_array_equal(y, [*(2 * x[2:]), [0] * 8, [0] * 8])


def test_programs_in_any_order_see_the_writes_of_those_before():
    @zg.kernel
    def shift(x_desc):
        block = x_desc.load((zg.program_id(0), 0))
        x_desc.store((zg.program_id(0) + 1, 0), zg.add(block, 1.0))

    x = np.zeros((9, 8), np.float32)
    shift[8](zg.TensorDescriptor(x, (1, 8)))
    np.testing.assert_array_equal(x[:, 0], np.arange(9))


# Signatures.


def test_models_by_the_type_of_a_descriptor():
    block = zg.descriptor((16, 32), zg.f16)
    model = scale.triton(block, zg.descriptor((16, 32), zg.f16, "nan"), 16, 32)
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    (function,) = model.functions().values()
    assert [str(p.type) for p in function.bodies[0].parameters] == [
        "descriptor<x16, x32, f16>",
        "descriptor<x16, x32, f16, nan>",
    ]
    assert scale.triton(x_desc=block, out_desc=block, M=16, N=32) is scale.triton(block, block, 16, 32)
    assert scale.triton(block, block, 16, 32) is not model


def test_padding_of_a_made_descriptor_is_in_its_type():
    @zg.kernel
    def made(x_ptr, PAD: zg.constexpr):
        zg.make_tensor_descriptor(x_ptr, (8, 8), (8, 1), (4, 8), PAD).store((0, 0), zg.zeros((4, 8), zg.f32))

    for argument, padding in (("nan", "nan"), ("zero", "zero"), ("", "zero")):
        ops = [op for op in made.triton(zg.ptr(zg.f32), argument).walk() if isinstance(op, tt.MakeTensorDescriptor)]
        assert [op.result.type for op in ops] == [DescriptorType((4, 8), f32, padding)]


def test_traced_and_built_kernels_take_them():
    block = zg.descriptor((4, 8), zg.f32)

    def double(x, out):
        out.store((0, 0), zg.mul(x.load((0, 0)), 2.0))

    with zg.build("double", block, block) as emission:
        double(*emission.arguments)
    for model in (zg.trace(double, block, block), emission.triton):
        x, out = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
        zg.run(model, 1, zg.TensorDescriptor(x, (4, 8)), zg.TensorDescriptor(out, (4, 8)))
        assert (out == 2).all()


def test_the_command_line_reads_the_type(capsys):
    from ziggurat.cli import main

    place = f"{ROOT / 'examples' / 'descriptor_matmul.py'}:matmul_kernel"
    types = "descriptor<x16, x16, f16>, descriptor<x16, x16, f16>, descriptor<x16, x16, f16, nan>, i32, i32, i32"
    assert main(["show", place, f"{types}, 16, 16, 16, 4"]) == 0
    assert "%2 : descriptor<x16, x16, f16, nan>" in capsys.readouterr().out
    assert main(["show", place, f"{types.replace('x16, x16', 'x16, x12')}, 16, 16, 16, 4"]) == 1
    errors = capsys.readouterr().err
    assert "'a_desc' of 'matmul_kernel': the sizes of a block must be powers of two; got 12 in [16, 12]" in errors


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_compiled_parameters_are_parts_of_the_arguments(target, padding):
    """The runtime knows the source of each parameter of the compiled kernel, whatever the compiler chose."""

    block = zg.descriptor((16, 32), zg.f16, padding)
    compiled = scale.compile(block, block, 16, 32, target=target)
    assert len(compiled.parts) == len(compiled.parameters) and {part[:2] for part in compiled.parts} == {"0.", "1."}
    binary = compiled.binary
    assert [parameter.argument for parameter in binary.parameters] == [int(part[0]) for part in compiled.parts]
    assert [f"{p.argument}.{p.part}" for p in binary.parameters] == list(compiled.parts)
    assert target == "sm_90a" or not any(parameter.kind == "tensormap" for parameter in binary.parameters)


# Arguments that do not fit.


def test_a_plain_array_where_a_descriptor_is_wanted():
    x = np.zeros((16, 32), np.float32)
    with pytest.raises(zg.KernelTypeError, match=r"ptr<f32> has no method") as error_info:
        scale[1](x, x, M=16, N=32)
    assert "launch with zg.TensorDescriptor(array, block)" in str(error_info.value.hint)
    with pytest.raises(zg.KernelTypeError, match="'desc' must be a tensor descriptor; got ptr<f32>") as error_info:
        move_1d[1](x, x, 0, 0)
    assert "launch with zg.TensorDescriptor(array, block)" in str(error_info.value.hint)


def test_a_descriptor_where_an_array_is_wanted():
    @zg.kernel
    def read(x_ptr):
        zg.load(x_ptr)

    with pytest.raises(zg.KernelTypeError, match="'ptr' must be a pointer or a tensor of pointers; got") as error_info:
        read[1](zg.TensorDescriptor(np.zeros((16, 32), np.float32), (16, 32)))
    assert error_info.value.hint == "load and store blocks of a descriptor: d.load([...]), d.store([...], x)"


def test_a_descriptor_is_not_compiled_in():
    with pytest.raises(zg.LaunchError, match="'M' of 'scale' is compiled in"):
        descriptor = zg.TensorDescriptor(np.zeros((16, 32), np.float32), (16, 32))
        scale[1](descriptor, descriptor, M=descriptor, N=32)


def test_arrays_on_host_and_gpu():
    here = zg.TensorDescriptor(np.zeros((16, 32), np.float32), (16, 32))
    interface = {"typestr": "<f4", "data": (0x1000, False), "version": 3, "strides": None, "shape": (16, 32)}
    array = SimpleNamespace(__cuda_array_interface__=interface, shape=(16, 32), dtype=np.dtype(np.float32))
    there = zg.TensorDescriptor(array, (16, 32))
    for arguments, name, other in (((here, there), "x_desc", "out_desc"), ((there, here), "out_desc", "x_desc")):
        with pytest.raises(zg.LaunchError, match=f"'{name}' of 'scale' must be on a GPU, as '{other}' is") as e:
            scale[1](*arguments, M=16, N=32)
        assert e.value.hint == f"describe an array there: zg.TensorDescriptor(zg.to_device({name}.array), …)"
    scale[1](here, here, M=16, N=32)  # The dispatcher that these launches made hands others to the interpreter.
    with pytest.raises(zg.LaunchError, match="arg0 must describe an array in memory"):
        model = scale.triton(there.type, there.type, 16, 32)
        zg.run(model, 1, there, here)


def test_a_model_takes_descriptors_of_its_blocks():
    x = np.zeros((16, 32), np.float32)
    descriptor = zg.TensorDescriptor(x, (16, 32))
    model = scale.triton(zg.descriptor((16, 32), zg.f32), zg.descriptor((16, 32), zg.f32), 16, 32)
    for argument, words in (
        (x, r"arg0 must be a zg.TensorDescriptor for descriptor<x16, x32, f32>; got ndarray"),
        (3, "must be a zg.TensorDescriptor for descriptor<x16, x32, f32>; got int"),
        (
            zg.TensorDescriptor(x, (8, 32)),
            "arg0 must be of type descriptor<x16, x32, f32>; got descriptor<x8, x32, f32>",
        ),
        (
            zg.TensorDescriptor(x, (16, 32), padding="nan"),
            "arg0 must be of type descriptor<x16, x32, f32>; got descriptor<x16, x32, f32, nan>",
        ),
    ):
        with pytest.raises(zg.LaunchError, match=words):
            zg.run(model, 1, argument, descriptor)
    zg.run(model, 1, descriptor, descriptor)


@pytest.mark.parametrize("argument", [DescriptorType((16, 24), f16), DescriptorType((16, 4), f16)])
def test_types_that_no_kernel_takes(argument):
    with pytest.raises(zg.LaunchError, match="'x_desc' of 'scale': "):
        scale.triton(argument, zg.descriptor((16, 32), zg.f16), 16, 32)
