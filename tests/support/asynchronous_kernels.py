"""Kernels with loads, dots and stores in flight: through pointers and by TMA, in one role and in two."""

from __future__ import annotations

from typing import Any

import ziggurat as zg

BLOCKS = [zg.divisible(zg.descriptor(block, zg.f16)) for block in ((128, 64), (16, 64), (128, 16))]
SQUARE = zg.divisible(zg.descriptor((64, 64), zg.f16))
BYTES = zg.divisible(zg.descriptor((64, 64), zg.f8e4m3))
F16, F8, I32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f8e4m3)), zg.divisible(zg.i32)


@zg.kernel
def by_pointers(a, b, c, k):
    rows, columns, steps = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0), zg.arange(0, 32)
    a_at = zg.add(a, zg.add(zg.mul(rows, k), zg.expand(steps, 0)))
    b_at = zg.add(b, zg.add(zg.mul(zg.expand(steps, 1), 64), columns))
    total = zg.zeros((64, 64), zg.f32)
    for _ in range(0, k, 32):
        total = zg.dot(zg.load(a_at), zg.load(b_at), total)
        a_at, b_at = zg.add(a_at, 32), zg.add(b_at, 32 * 64)
    zg.store(zg.add(c, zg.add(zg.mul(columns, 64), rows)), zg.cast(total, zg.f16))


@zg.kernel
def by_bytes(a, b, c, k, ALONG_M: zg.constexpr):
    """Operands of 8 bits: b lies along n, and a along k or m. Threads read one of them, and turn the other."""
    rows, columns, steps = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0), zg.arange(0, 64)
    depth = zg.expand(steps, 0)
    a_at = zg.add(a, zg.add(rows, zg.mul(depth, 64)) if ALONG_M else zg.add(zg.mul(rows, k), depth))
    b_at = zg.add(b, zg.add(zg.mul(zg.expand(steps, 1), 64), columns))
    total = zg.zeros((64, 64), zg.f32)
    for _ in range(0, k, 64):
        total = zg.dot(zg.load(a_at), zg.load(b_at), total)
        a_at, b_at = zg.add(a_at, 64 * 64 if ALONG_M else 64), zg.add(b_at, 64 * 64)
    zg.store(zg.add(c, zg.add(zg.mul(columns, 64), rows)), zg.cast(total, zg.f16))


@zg.kernel
def by_descriptors(a, b, c, k):
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, k, 64):
        total = zg.dot(a.load((0, at)), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def by_blocks_of_bytes(a, b, c, k):
    """Operands of 8 bits, neither of them along k: one of them is turned."""
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, k, 64):
        total = zg.dot(zg.trans(a.load((at, 0))), b.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def attention(q, k_desc, v_desc, c, n):
    """The second dot reads the result of the first."""
    first = q.load((0, 0))
    total = zg.zeros((64, 64), zg.f32)
    for at in range(0, n, 64):
        scores = zg.dot(first, zg.trans(k_desc.load((at, 0))))
        total = zg.dot(zg.cast(scores, zg.f16), v_desc.load((at, 0)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


@zg.kernel
def tiles(a_desc, b_desc, c_desc, count, k):
    """Roles, and a wgmma that is in flight across iterations."""
    for tile in range(0, count):
        acc = zg.zeros((128, 16), zg.f32)
        for start in zg.range(0, k, 64, warp_specialize=True):
            acc = zg.dot(a_desc.load((tile * 128, start)), zg.trans(b_desc.load((0, start))), acc)
        c_desc.store((tile * 128, 0), zg.cast(acc, zg.f16))


@zg.kernel
def scaled(a_desc, b_desc, c_desc, k):
    """Roles, and a wgmma that is complete in its own iteration."""
    acc = zg.zeros((128, 16), zg.f32)
    for start in zg.range(0, k, 64, warp_specialize=True):
        result = zg.dot(a_desc.load((0, start)), zg.trans(b_desc.load((0, start))))
        acc = zg.add(zg.mul(acc, 0.5), result)
    c_desc.store((0, 0), zg.cast(acc, zg.f16))


@zg.kernel
def gradients(k_desc, v_desc, q_desc, g_desc, dk_desc, dv_desc, n, ROLES: zg.constexpr):
    """The loop of attention's gradients of keys and values, without scales."""
    k, v = k_desc.load((0, 0)), v_desc.load((0, 0))
    dk, dv = zg.zeros((64, 64), zg.f32), zg.zeros((64, 64), zg.f32)
    for at in zg.range(0, n, 64, warp_specialize=ROLES):
        q, g = q_desc.load((at, 0)), g_desc.load((at, 0))
        scores = zg.dot(k, zg.trans(q))
        slopes = zg.dot(v, zg.trans(g))
        powers = zg.exp2(scores)
        dv = zg.dot(zg.cast(powers, zg.f16), g, dv)
        dk = zg.dot(zg.cast(zg.mul(powers, slopes), zg.f16), q, dk)
    dk_desc.store((0, 0), zg.cast(dk, zg.f16))
    dv_desc.store((0, 0), zg.cast(dv, zg.f16))


@zg.kernel
def by_made_maps(a_ptr, b_ptr, c_ptr, count, n, k):
    """Tensor maps that are made anew in each iteration of a loop."""
    for tile in range(0, count):
        a = zg.make_tensor_descriptor(a_ptr + tile * 64 * k, (64, k), (k, 1), (64, 64))
        b = zg.make_tensor_descriptor(b_ptr + tile * n * k, (n, k), (k, 1), (64, 64))
        c = zg.make_tensor_descriptor(c_ptr + tile * 64 * n, (64, n), (n, 1), (64, 64))
        for column in range(0, n, 64):
            total = zg.zeros((64, 64), zg.f32)
            for at in range(0, k, 64):
                total = zg.dot(a.load((0, at)), zg.trans(b.load((column, at))), total)
            c.store((0, column), zg.cast(total, zg.f16))


# Kernel, types, target, warps.
KERNELS: dict[str, tuple[Any, list[Any], str, int]] = {
    "pointers, wgmma": (by_pointers, [F16, F16, F16, I32], "sm_90a", 4),
    "pointers, mma": (by_pointers, [F16, F16, F16, I32], "sm_80", 4),
    "pointers, read": (by_bytes, [F8, F8, F16, I32, False], "sm_90a", 4),
    "pointers, turned": (by_bytes, [F8, F8, F16, I32, True], "sm_90a", 4),
    "descriptors": (by_descriptors, [SQUARE, SQUARE, SQUARE, I32], "sm_90a", 4),
    "descriptors, mma": (by_descriptors, [SQUARE, SQUARE, SQUARE, I32], "sm_120a", 4),
    "descriptors, turned": (by_blocks_of_bytes, [BYTES, BYTES, SQUARE, I32], "sm_90a", 4),
    "attention": (attention, [SQUARE, SQUARE, SQUARE, SQUARE, I32], "sm_90a", 4),
    "tiles": (tiles, [*BLOCKS, zg.i32, I32], "sm_90a", 8),
    "scaled": (scaled, [*BLOCKS, I32], "sm_90a", 8),
    "gradients": (gradients, [*[SQUARE] * 6, I32, False], "sm_90a", 4),
    "gradients by roles": (gradients, [*[SQUARE] * 6, I32, True], "sm_90a", 4),
    "made maps": (by_made_maps, [F16, F16, F16, zg.i32, I32, I32], "sm_90a", 4),
}
