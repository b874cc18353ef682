"""Descriptors of Triton 3.0 to 3.3, which programs fill on the host or in a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, ZigguratError
from ziggurat.triton.runtime.descriptor_memory import MatrixDescriptor
from ziggurat.triton.tools.experimental_descriptor import create_1d_tma_descriptor, create_2d_tma_descriptor

torch = require("torch")
fill_1d, fill_2d = (getattr(triton.runtime.driver.active.utils, f"fill_{rank}d_tma_descriptor") for rank in (1, 2))


@triton.jit
def product(a_desc, b_desc, c_desc, K, M: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, tl.cdiv(K, DEPTH)):
        a = tl._experimental_descriptor_load(a_desc, [row, k * DEPTH], [M, DEPTH], tl.float16)
        b = tl._experimental_descriptor_load(b_desc, [column, k * DEPTH], [N, DEPTH], tl.float16)
        total = tl.dot(a, b.T, total)
    tl._experimental_descriptor_store(c_desc, total.to(tl.float16), [row, column])


class ByValue:
    """An argument as the tutorials of Triton 3.2 make it."""

    def __init__(self, desc):
        self.desc = desc

    def tma_desc_cpu_ptr(self) -> int:
        return self.desc.data_ptr()


def in_tool(tensor: Any, block: tuple[int, int]) -> Any:
    return create_2d_tma_descriptor(tensor.data_ptr(), *tensor.shape, *block, tensor.element_size())


def in_memory(tensor: Any, block: tuple[int, int]) -> Any:
    host = torch.empty(128, dtype=torch.int8)
    fill_2d(tensor.data_ptr(), *tensor.shape, *block, tensor.element_size(), host.data_ptr())
    return torch.empty_like(host).copy_(host)


def by_value(tensor: Any, block: tuple[int, int]) -> Any:
    return ByValue(in_memory(tensor, block))


def operands() -> tuple[Any, Any, Any]:
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, 40, generator=random).half() for rows in (50, 24))
    return a, b, torch.zeros(50, 24, dtype=torch.float16)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("describe", [in_tool, in_memory, by_value])
def test_a_product_of_described_matrices(describe, interpret):
    for _ in range(2):
        a, b, c = operands()
        descriptors = describe(a, (32, 16)), describe(b, (16, 16)), describe(c, (32, 16))
        product[(2, 2)](*descriptors, 40, 32, 16, 16, interpret=interpret)
        torch.testing.assert_close(c, (a.float() @ b.float().T).half(), rtol=2e-3, atol=1e-2)


def test_descriptors_by_value_run_natively_and_by_tma():
    """They are pointers and numbers: nothing reads memory for them, and they are made before the loop."""
    matrix = MatrixDescriptor(zg.divisible(zg.ptr(zg.u8)), zg.i32, zg.divisible(zg.i32))
    compiled = product.compile(matrix, matrix, matrix, zg.i32, 64, 64, 64, target="sm_90a")
    loads = [line for line in compiled.ptx.splitlines() if "cp.async.bulk.tensor" in line]
    assert "wgmma" in compiled.ptx and loads and "ld.global" not in compiled.ptx
    assert product.compile(matrix, matrix, matrix, zg.i32, 64, 64, 64, target="cpu")


def test_a_simulated_product():
    a, b, c = operands()
    matrix = MatrixDescriptor(zg.divisible(zg.ptr(zg.u8)), zg.i32, zg.i32)
    compiled = product.compile(matrix, matrix, matrix, zg.i32, 32, 16, 16, target="sm_90a", num_warps=1)
    parts = [part for tensor in (a, b, c) for part in (tensor.view(torch.uint8), *tensor.shape)]
    compiled.simulate[(2, 2)](*parts, 40)
    torch.testing.assert_close(c, (a.float() @ b.float().T).half(), rtol=2e-3, atol=1e-2)


def test_descriptors_by_value_are_passed_to_a_gpu_as_they_are_filled(fake):
    fake.parameters, host = 3, torch.empty(128, dtype=torch.int8)

    @triton.jit
    def clear(desc):
        tl._experimental_descriptor_store(desc, tl.zeros((16, 16), tl.float16), [0, 0])

    for address, rows in ((0x1000, 100), (0x2000, 100), (0x2000, 90)):
        fill_2d(address, rows, 48, 16, 16, 2, host.data_ptr())
        clear[(1,)](ByValue(host))
        assert [int.from_bytes(value, "little") for value in fake.launches[-1]["values"]] == [address, rows, 48]


@triton.jit
def copy_row(x_desc, y_desc, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    x = tl._experimental_reinterpret_tensor_descriptor(x_desc, [BLOCK], tl.int32)
    tl._experimental_descriptor_store(y_desc, x.load([at]) + 1, [at])


def test_one_axis():
    x, y = torch.arange(40, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    host = torch.empty(128, dtype=torch.int8)
    fill_1d(x.data_ptr(), 37, 16, 4, host.data_ptr())
    copy_row[(4,)](host, create_1d_tma_descriptor(y.data_ptr(), 50, 16, 4), 16)
    assert y.tolist() == [*range(1, 38), *[1] * 13, *[0] * 14]


def test_a_hook_of_a_configuration_fills_the_descriptor_anew():
    x, y = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    host = torch.empty(128, dtype=torch.int8)
    sizes = []

    def hook(arguments):
        sizes.append(arguments["BLOCK"])
        fill_1d(x.data_ptr(), 64, arguments["BLOCK"], 4, host.data_ptr())

    configs = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in (16, 32)]
    tuned = triton.autotune(configs, key=[])(copy_row)
    tuned[lambda meta: (64 // meta["BLOCK"],)](ByValue(host), create_1d_tma_descriptor(y.data_ptr(), 64, 16, 4))
    assert {16, 32} <= {*sizes} and y.tolist() == [*range(1, 65)]


@triton.jit
def copy_by_descriptors_of_the_kernel(x_ptr, y_ptr, work_ptr, rows, columns, M: tl.constexpr, N: tl.constexpr):
    x_desc = work_ptr + tl.program_id(0) * 256
    y_desc = x_desc + 128
    tl.extra.cuda.experimental_device_tensormap_create2d(x_desc, x_ptr, [M, N], [rows, columns], tl.float32)
    tl.extra.cuda.experimental_device_tensormap_create2d(
        desc_ptr=y_desc, global_address=y_ptr, load_size=[M, N], global_size=[rows, columns], element_ty=tl.float32
    )
    tl.extra.cuda.experimental_tensormap_fenceproxy_acquire(x_desc)
    tl.extra.cuda.experimental_tensormap_fenceproxy_acquire(y_desc)
    row = tl.program_id(0) * M
    for column in range(0, columns, N):
        x = tl._experimental_descriptor_load(x_desc, [row, column], [M, N], tl.float32)
        tl._experimental_descriptor_store(y_desc, x, [row, column])


@pytest.mark.parametrize("interpret", [False, True])
def test_descriptors_that_a_kernel_fills(interpret):
    x, y = torch.randn(20, 24), torch.zeros(20, 24)
    work = torch.empty(3 * 256, dtype=torch.uint8)
    copy_by_descriptors_of_the_kernel[(3,)](x, y, work, 20, 24, 8, 16, interpret=interpret)
    assert torch.equal(x, y)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_simulated_code_of_a_kernel_that_fills_descriptors(seed):
    """One thread writes them, and all read them after a barrier."""
    x, y = np.random.default_rng(0).standard_normal((20, 24), np.float32), np.zeros((20, 24), np.float32)
    pointer, memory = zg.divisible(zg.ptr(zg.f32)), zg.divisible(zg.ptr(zg.u8))
    types = pointer, pointer, memory, zg.i32, zg.i32, 8, 16
    compiled = copy_by_descriptors_of_the_kernel.compile(*types, target="sm_90a", num_warps=2)
    compiled.simulate[(3,)](x, y, np.zeros(3 * 256, np.uint8), 20, 24, seed=seed)
    np.testing.assert_array_equal(x, y)


def test_a_descriptor_of_one_axis_that_a_kernel_fills():
    @triton.jit
    def fill(y_ptr, work_ptr, n):
        tl.extra.cuda.experimental_device_tensormap_create1d(work_ptr, y_ptr, 16, n, tl.int32)
        tl._experimental_descriptor_store(work_ptr, tl.arange(0, 16), [4])

    y = torch.zeros(16, dtype=torch.int32)
    fill[(1,)](y, torch.empty(128, dtype=torch.uint8), 16)
    assert y.tolist() == [0] * 4 + [*range(12)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0x1004, 8, 16, 8, 16, 4), "the address of the tensor must be a multiple of 16; got 0x1004"),
        ((0x1000, 8, 17, 8, 16, 4), "rows must have whole 16 bytes; got 68"),
        ((0x1000, 0, 16, 8, 16, 4), r"the sizes must be positive; got \[0, 16\]"),
        ((0x1000, 8, 16, 0, 16, 4), r"the sizes of the block must be positive; got \[0, 16\]"),
        ((0x1000, 8, 16, 8, 16, 3), "the bytes of an element must be 1, 2, 4 or 8; got 3"),
    ],
)
def test_tensors_that_tma_cannot_address(arguments, message):
    with pytest.raises(LaunchError, match=message):
        create_2d_tma_descriptor(*arguments)


def test_a_descriptor_that_was_not_filled():
    with pytest.raises(LaunchError, match="the descriptor of ByValue must be filled before the launch") as info:
        copy_row[(1,)](ByValue(torch.zeros(128)), ByValue(torch.zeros(128)), 16)
    assert "fill_2d_tma_descriptor" in str(info.value)
    memory = torch.zeros(128, dtype=torch.uint8)
    with pytest.raises(KernelRuntimeError, match="the memory of a descriptor was not filled"):
        copy_row[(1,)](memory, memory, 16, interpret=True, debug=True)


def test_a_block_of_three_axes_is_refused():
    @triton.jit
    def load(desc):
        tl._experimental_descriptor_load(desc, [0, 0, 0], [2, 4, 8], tl.float32)

    x = torch.zeros(8, 8)
    with pytest.raises(ZigguratError, match="a block of an experimental descriptor has one or two axes"):
        load[(1,)](in_tool(x, (4, 8)))


def test_names_of_these_releases():
    assert issubclass(tl.nv_tma_desc_type, tl.pointer_type) and tl.nv_tma_desc_type().element_ty == tl.uint8
    assert tl._experimental_tensor_descriptor is tl.tensor_descriptor
    assert np.all(create_1d_tma_descriptor(0x1000, 8, 8, 4).desc.numpy()[32:] == 0)


@pytest.mark.parametrize("wrong", [8.0, "8", torch.zeros(2), None])
def test_sizes_and_addresses_are_integers(wrong):
    host = torch.zeros(128, dtype=torch.int8)
    for arguments in ((0x1000, wrong, 16, 8, 16, 4), (wrong, 8, 16, 8, 16, 4), (0x1000, 8, 16, 8, 16, wrong)):
        with pytest.raises(LaunchError, match="must be integers"):
            fill_2d(*arguments, host.data_ptr())
    assert not host.any()
