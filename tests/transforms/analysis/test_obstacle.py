"""Warnings about requests that could not be met: they have the reason, and the line of the request."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.transforms.gpu.gpu_passes import place

BLOCK = zg.divisible(zg.descriptor((64, 64), zg.f16))
I32 = zg.divisible(zg.i32)


@zg.kernel
def returns_early(a, b, c, k, n):
    if n > 3:
        return
    total = zg.zeros((64, 64), zg.f32)
    for at in zg.range(0, k, 64, warp_specialize=True):  # asks
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def loads_an_index(a, b, c, k, indices):
    total = zg.zeros((64, 64), zg.f32)
    for at in zg.range(0, k, 64, warp_specialize=True):
        column = zg.load(indices + at) * 64
        total = zg.dot(a.load((0, column)), b.load((at, 0)), total)  # asks
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def stores(a, b, c, k, n):
    total = zg.zeros((64, 64), zg.f32)
    for at in zg.range(0, k, 64, num_stages=3):  # asks
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
        zg.atomic_add(zg.add(n, at), at)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def many_stages(a, b, c, k, n):
    total = zg.zeros((64, 64), zg.f32)
    for at in zg.range(0, k, 64, num_stages=40):  # asks
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def acquires_each_time(a, b, c, k, count):
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, k, 64):
        total = zg.mul(total, zg.cast(zg.atomic_add(count, 1), zg.f32))
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)  # asks
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def in_place(a, b, c, k, n):
    total = zg.dot(a.load((0, 0)), b.load((0, 0)))  # asks
    a.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def uneven(a, b, c, k, n):
    c.store((0, n), zg.cast(zg.dot(a.load((0, 0)), b.load((0, 0))), zg.f16))  # asks


def warned(kernel: Any, *types: Any, target: str = "sm_90a", num_warps: int = 4, num_stages: int = 3) -> list[Any]:
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        place(kernel.triton(*types), CompileOptions(target, num_warps, num_stages))
    assert all(issubclass(warning.category, zg.ZigguratWarning) for warning in records)
    return records


@pytest.mark.parametrize(
    ("kernel", "last", "text"),
    [
        (
            returns_early,
            zg.i32,
            "the loop is not specialised for warps: it is inside of a branch (of an early return, too)",
        ),
        (loads_an_index, zg.ptr(zg.i32), "the load is not pipelined: its address depends on what an earlier"),
        (
            stores,
            zg.ptr(zg.i32),
            "the loop is not pipelined in 3 stages: an op in it writes to global memory or orders",
        ),
        (many_stages, zg.i32, "the loop is pipelined in 13 stages, not 40: there is no shared memory for more stages"),
        (acquires_each_time, zg.ptr(zg.i32), "an atomic or a debug_barrier may run before it, and orders no loads"),
        (in_place, zg.i32, "the kernel loads and stores through the same descriptor"),
        (uneven, zg.i32, "the first column is not known to be a multiple of 16 bytes"),
    ],
)
def test_a_warning_names_what_was_asked_for_and_the_reason(kernel: Any, last: Any, text: str) -> None:
    actual = warned(kernel, BLOCK, BLOCK, BLOCK, I32, last)
    matching = [warning for warning in actual if text in str(warning.message)]
    assert matching, [str(warning.message) for warning in actual]
    lines = open(__file__, encoding="utf-8").read().splitlines()
    assert matching[0].filename == __file__ and "asks" in lines[matching[0].lineno - 1]


@pytest.mark.parametrize(("num_warps", "target"), [(2, "sm_90a"), (32, "sm_90a"), (4, "sm_80")])
def test_roles_that_the_machine_does_not_allow(num_warps: int, target: str) -> None:
    actual = warned(loads_an_index, BLOCK, BLOCK, BLOCK, I32, zg.ptr(zg.i32), target=target, num_warps=num_warps)
    assert any("not specialised for warps" in str(warning.message) for warning in actual)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100a"])
def test_roles_that_the_target_does_not_have(target: str) -> None:
    actual = warned(fine, BLOCK, BLOCK, BLOCK, I32, target=target)
    text = (
        f"the loop is not specialised for warps: {target} is not a target whose wgmma reads what TMA has loaded: sm_90a"
    )
    assert text in [str(warning.message) for warning in actual]


@zg.kernel
def makes_descriptors(a, b, c, k, CHOSEN: zg.constexpr):
    of_c = zg.make_tensor_descriptor(c, (64, 64), (64, 1), (64, 64))
    if CHOSEN:
        for _ in range(0, k):
            of_a = zg.make_tensor_descriptor(a, (64, 64), (64, 1), (64, 64))
            of_c.store((0, 0), zg.full((64, 64), 1.0, zg.f16))  # asks
            of_c = of_a
    else:
        of_c.store((0, 0), zg.full((64, 64), 1.0, zg.f16))  # asks


@pytest.mark.parametrize(
    ("target", "choice", "text"),
    [
        (
            "sm_90a",
            False,
            "making a tensor map takes as long as an access, so the descriptor must be made before a loop",
        ),
        (
            "sm_90a",
            True,
            "making a tensor map takes as long as an access, so the descriptor must be made before a loop",
        ),
        ("sm_90", False, "kernels for sm_90 make no tensor maps, as those for sm_90a do"),
    ],
)
def test_stores_without_a_tensor_map(target: str, choice: bool, text: str) -> None:
    pointer = zg.ptr(zg.f16)
    actual = warned(makes_descriptors, pointer, pointer, pointer, I32, choice, target=target)
    assert any(f"the block is moved through pointers, not by TMA: {text}" in str(item.message) for item in actual)


@zg.kernel
def fine(a, b, c, k):
    total = zg.zeros((64, 64), zg.f32)
    for at in zg.range(0, k, 64, warp_specialize=True, num_stages=4):
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def weights(a, w, scales, out, k, STAGES: zg.constexpr, WHAT: zg.constexpr):
    """Dots whose second operand threads compute, scales that go to no dot, and a store to one of the two."""
    rows = zg.arange(0, 64)
    square = zg.add(zg.mul(zg.expand(rows, 1), 64), zg.expand(rows, 0))
    total = zg.zeros((64, 64), zg.f32)
    for at in zg.range(0, k, num_stages=STAGES):
        x = zg.load(zg.add(a, zg.add(square, zg.mul(at, 4096))))
        y = zg.load(zg.add(w, zg.add(square, zg.mul(at, 4096))))  # weights
        scale = zg.load(zg.add(scales, at))  # scales
        if WHAT == "weights":
            zg.store(zg.add(w, at), zg.cast(1, zg.i8))
        if WHAT == "scales":
            zg.store(zg.add(scales, at), 1.0)
        total = zg.add(total, zg.mul(zg.dot(x, zg.cast(zg.mul(y, 2), zg.f16)), scale))
    zg.store(zg.add(out, square), total)


WEIGHTS = (*(zg.divisible(zg.ptr(type_)) for type_ in (zg.f16, zg.i8, zg.f32, zg.f32)), zg.i32)


def lines_of(actual: list[Any], text: str) -> list[str]:
    """The marks of the lines that warnings with a text are about."""
    lines = open(__file__, encoding="utf-8").read().splitlines()
    return [lines[item.lineno - 1].rpartition("# ")[2] for item in actual if text in str(item.message)]


@pytest.mark.parametrize(
    ("own", "launch", "what", "expected"),
    [
        (3, 3, "weights", ["weights"]),
        (3, 3, "scales", ["scales"]),
        (2, 1, "weights", ["weights"]),
        # The launch asks for what feeds dots.
        (None, 4, "weights", ["weights"]),
        (None, 4, "scales", []),
        # Nothing is asked for: of the launch, three is the usual number.
        (None, 3, "weights", []),
        (None, 1, "weights", []),
        (1, 4, "weights", []),
        (3, 3, "nothing", []),
        (None, 4, "nothing", []),
    ],
)
def test_each_load_that_is_asked_to_be_pipelined_and_is_not(
    own: int | None, launch: int, what: str, expected: list[str]
) -> None:
    actual = warned(weights, *WEIGHTS, own, what, num_stages=launch)
    assert lines_of(actual, "the load is not pipelined: an op in its loop writes to the same memory") == expected
    assert expected or not actual


@zg.kernel
def doubled(a, c):
    """A load that feeds no dot is right to go through pointers."""
    block = zg.cast(a.load((0, 0)), zg.f32)
    c.store((0, 0), zg.cast(zg.add(block, block), zg.f16))


@zg.kernel
def by_rows(x, out, rows, step):
    """The loop loads through one argument, and stores through another one."""
    for row in zg.range(zg.program_id(0), rows, step, num_stages=4):
        at = zg.add(row * 128, zg.arange(0, 128))
        zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at)), 2.0))


def test_no_warning_if_everything_is_done() -> None:
    assert warned(by_rows, zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32) == []
    assert warned(fine, BLOCK, BLOCK, BLOCK, I32) == []
    assert warned(doubled, BLOCK, BLOCK) == []
    # Fewer stages than the default are not fewer than asked for.
    assert warned(fine, BLOCK, BLOCK, BLOCK, I32, num_stages=3) == []
