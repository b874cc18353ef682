"""Additions to neighbours: one instruction for several, of the machine's widths, and with the right results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.compiler.compiled import Compiled

DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i32": np.int32}  # fmt: skip  # noqa: E501


@zg.kernel
def accumulate(out_ptr, x_ptr, n, BLOCK: zg.constexpr):
    """Add under a mask; the old values are not used."""
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, at), mask)
    zg.atomic_add(zg.add(out_ptr, at), x, mask, sem="relaxed")


@zg.kernel
def before(out_ptr, x_ptr, old_ptr, BLOCK: zg.constexpr):
    """Add, and store the old values."""
    at = zg.arange(0, BLOCK)
    old = zg.atomic_add(zg.add(out_ptr, at), zg.load(zg.add(x_ptr, at)))
    zg.store(zg.add(old_ptr, at), old)


def adding(compiled: Compiled) -> Counter[str]:
    """The instructions that add, each with its count."""
    words = compiled.ptx.replace("\t", " ").split()
    return Counter(word.rstrip() for word in words if word.startswith(("red.", "atom.")))


def compiled(element: str, target: str, hint: Callable[[Any], Any] = zg.divisible, block: int = 1024) -> Compiled:
    pointer = hint(zg.ptr(getattr(zg, element)))
    return accumulate.compile(pointer, pointer, hint(zg.i32), block, target=target, num_warps=4)


@pytest.mark.parametrize(("element", "target", "block", "expected"), [
    ("f32", "sm_90a", 1024, {"add.v4.f32": 2}), ("f32", "sm_90a", 256, {"add.v2.f32": 1}),
    ("f32", "sm_80", 1024, {"add.f32": 8}), ("f16", "sm_90a", 1024, {"add.noftz.v4.f16x2": 1}),
    ("f16", "sm_80", 1024, {"add.noftz.f16x2": 4}), ("bf16", "sm_90a", 1024, {"add.noftz.v4.bf16x2": 1}),
    ("bf16", "sm_90a", 256, {"add.noftz.bf16x2": 1}), ("bf16", "sm_80", 256, {"cas.b16": 2}),
    ("f64", "sm_90a", 256, {"add.f64": 2}), ("i32", "sm_90a", 256, {"add.u32": 2}),
])  # fmt: skip
def test_the_number_of_neighbours_that_one_instruction_adds(
    element: str, target: str, block: int, expected: dict[str, int], ptxas: Callable[..., str]
) -> None:
    binary = compiled(element, target, block=block)
    ptxas(binary.ptx, target)
    actual = adding(binary)
    head = "atom.relaxed.gpu.global." if "cas.b16" in expected else "red.relaxed.gpu.global."
    assert actual == {head + name: count for name, count in expected.items()}


def test_each_by_itself_where_neighbours_may_be_masked_apart() -> None:
    """The places of the pointers and the end of the mask are not known."""
    assert adding(compiled("f32", "sm_90a", lambda type_: type_)) == {"red.relaxed.gpu.global.add.f32": 8}


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_sums_in_memory(element: str, num_warps: int) -> None:
    n, block = 272, 128
    rng = np.random.default_rng(0)
    x, start = (rng.integers(-50, 50, n + 16).astype(DTYPES[element]) for _ in range(2))
    pointer = zg.divisible(zg.ptr(getattr(zg, element)))
    binary = accumulate.compile(pointer, pointer, zg.divisible(zg.i32), block, num_warps=num_warps)
    out = start.copy()
    memory = [array.view(np.uint8) for array in (out, x)]
    simulate(binary.stages["llvm"], num_warps=num_warps, shared=binary.shared, grid=(3,), arguments=[*memory, n])
    expected = start + x
    expected[n:] = start[n:]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("block", "num_warps"), [(16, 1), (128, 4), (512, 1)])
def test_vector_additions_return_the_old_values(
    element: str, block: int, num_warps: int, ptxas: Callable[..., str]
) -> None:
    """One of the threads with copies adds."""
    pointer = zg.divisible(zg.ptr(getattr(zg, element)))
    binary = before.compile(pointer, pointer, pointer, block, num_warps=num_warps)
    ptxas(binary.ptx, "sm_90a")
    rng = np.random.default_rng(1)
    start, x = (rng.integers(-50, 50, block).astype(DTYPES[element]) for _ in range(2))
    out, old = start.copy(), np.zeros_like(start)
    memory = [array.view(np.uint8) for array in (out, x, old)]
    simulate(binary.stages["llvm"], num_warps=num_warps, shared=binary.shared, arguments=memory)
    np.testing.assert_array_equal(out, start + x)
    np.testing.assert_array_equal(old, start)


@zg.kernel
def accumulate_product(out_ptr, a_ptr, b_ptr, N: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, N), 1), zg.expand(zg.arange(0, N), 0)
    at = zg.add(zg.mul(rows, N), columns)
    product = zg.dot(zg.load(zg.add(a_ptr, at)), zg.load(zg.add(b_ptr, at)))
    zg.atomic_add(zg.add(out_ptr, at), product, sem="relaxed")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("sm_90a", {"red.relaxed.gpu.global.add.v4.f32": 8}),
        ("sm_80", {"red.relaxed.gpu.global.add.f32": 32}),
    ],
)
def test_the_sums_of_a_dot_are_added_by_whole_lines(target: str, expected: dict[str, int]) -> None:
    """In the layout of the accumulator, eight rows of an instruction would each have a part of a line."""
    f16, f32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))
    binary = accumulate_product.compile(f32, f16, f16, 64, target=target, num_warps=4, verify=True)
    assert adding(binary) == expected
    a, b = np.random.default_rng(1).integers(-9, 9, (2, 64, 64)).astype(np.float16)
    out = np.ones((64, 64), np.float32)
    binary.simulate[(1,)](out, a, b)
    assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32) + 1)
