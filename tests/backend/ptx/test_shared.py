"""Buffers in shared memory by themselves: views, transposition, and the number of a warp, run thread by thread."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SharedType, f32
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.place.allocate import allocate
from ziggurat.transforms.place.barriers import insert_barriers
from ziggurat.transforms.place.hazards import hazards

NUM_WARPS = 4
# Each of four warps has two rows of 8 × 32, and of 32 × 8 each thread two elements of a row.
ROWS = "1 | 2 4 8 16 32 | 64 128"
# Elements (i, j) of an 8 × 32 buffer, rows one after another but for a swizzle: j is xored with i.
PLAIN = " ".join(str(1 << bit) for bit in range(8))
SWIZZLED = "1 2 4 8 16 33 66 132"


def module_of(lines: str, parameters: str) -> gpu.Module:
    made = parse(f"""gpu.module @target="sm_90a" @num_warps={NUM_WARPS} ()void -> {{
        tt.func @"k" ({parameters})void -> {{ {lines} tt.return; }}; unreachable; }};""")
    verify(made)
    return gpu_module(insert_barriers(allocate(made)))


def gpu_module(module: object) -> gpu.Module:
    assert isinstance(module, gpu.Module)
    verify(module)
    assert hazards(module) == []
    return module


def through(offsets: str, order: str, shape: str, back: str) -> str:
    """Store 8 × 32 to a buffer, and load it through a view with its axes permuted."""
    tensor, pointers = (f'tensor<x8, x32, {element}, "{ROWS}">' for element in ("f32", "ptr<f32>"))
    out, places = (f'tensor<{shape}, {element}, "{ROWS}">' for element in ("f32", "ptr<f32>"))
    return f"""
        %n : tensor<x256, i32, "{ROWS}"> = tt.make_range @start=0 @end=256;
        %m : tensor<x8, x32, i32, "{ROWS}"> = tt.reshape %n;
        %b : {pointers} = tt.splat %p;
        %a : {pointers} = tt.addptr %b %m;
        %x : {tensor} = tt.load %a;
        %s : shared<x8, x32, f32, "{offsets}"> = gpu.local_alloc;
        gpu.local_store %s %x;
        %t : shared<{shape}, f32, "{back}"> = gpu.local_trans %s @order={order};
        %y : {out} = gpu.local_load %t;
        %o : tensor<{shape}, i32, "{ROWS}"> = tt.reshape %n;
        %c : {places} = tt.splat %q;
        %d : {places} = tt.addptr %c %o;
        tt.store %d %y;"""


def transposed(offsets: str) -> str:
    """The offsets of a buffer of 8 × 32 as those of 32 × 8: element (i, j) is number 8j + i there."""
    return " ".join(str((number % 32) * 8 + number // 32) for number in map(int, offsets.split()))


@pytest.mark.parametrize("offsets", [PLAIN, SWIZZLED])
def test_a_transposed_buffer_holds_the_transposed_tensor(offsets: str) -> None:
    module = module_of(through(offsets, "[1, 0]", "x32, x8", transposed(offsets)), "%p : ptr<f32>, %q : ptr<f32>")
    x, y = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32), np.zeros((32, 8), np.float32)
    simulate(to_llvm(module), num_warps=NUM_WARPS, shared=module.shared, grid=(1,), arguments=[x, y])
    np.testing.assert_array_equal(y, x.T)
    assert any(isinstance(op, gpu.Barrier) for op in module.walk())  # The analysis looks through the view.


def test_permutations_have_a_type_of_their_own() -> None:
    buffer = gpu.LocalAlloc(SharedType((2, 4, 8), f32, (1, 2, 4, 8, 16, 32), 3))
    turned = gpu.LocalTrans(buffer.result, (2, 0, 1)).result
    # Element (i, j, k), number 32i + 8j + k, is (k, i, j), number 8k + 4i + j.
    assert turned.type == SharedType((8, 2, 4), f32, (8, 16, 32, 1, 2, 4), 3)
    assert gpu.LocalTrans(turned, (1, 2, 0)).result.type == buffer.type


@pytest.mark.parametrize("order", ["[0, 0]", "[0]", "[1, 2]"])
def test_offsets_must_be_a_permutation(order: str) -> None:
    with pytest.raises(ZigguratError, match="does not permute 2 axes"):
        module_of(through(PLAIN, order, "x32, x8", transposed(PLAIN)), "%p : ptr<f32>, %q : ptr<f32>")


def test_a_type_that_is_not_the_transposed_buffer_is_an_error() -> None:
    with pytest.raises(ZigguratError, match=r"gpu\.local_trans"):
        module_of(through(PLAIN, "[1, 0]", "x32, x8", PLAIN), "%p : ptr<f32>, %q : ptr<f32>")


def test_warps_know_their_numbers() -> None:
    """Each warp writes its number in all of its lanes."""
    module = module_of(
        """
        %w : i32 = gpu.warp_id;
        %n : tensor<x128, i32, " | 1 2 4 8 16 | 32 64"> = tt.make_range @start=0 @end=128;
        %b : tensor<x128, ptr<i32>, " | 1 2 4 8 16 | 32 64"> = tt.splat %q;
        %a : tensor<x128, ptr<i32>, " | 1 2 4 8 16 | 32 64"> = tt.addptr %b %n;
        %x : tensor<x128, i32, " | 1 2 4 8 16 | 32 64"> = tt.splat %w;
        tt.store %a %x;""",
        "%q : ptr<i32>",
    )
    found = np.full(128, -1, np.int32)
    simulate(to_llvm(module), num_warps=NUM_WARPS, shared=module.shared, grid=(1,), arguments=[found])
    np.testing.assert_array_equal(found, np.repeat(np.arange(4), 32))
    assert "shfl.sync.idx" in assemble(module).ptx
