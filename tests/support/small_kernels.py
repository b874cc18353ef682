"""Small kernels, compiled, whose models are proved pass by pass."""

from __future__ import annotations

import ziggurat as zg
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import place

F16, F32 = (zg.divisible(zg.ptr(scalar)) for scalar in (zg.f16, zg.f32))


@zg.kernel
def scaled(x, y, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    inside = zg.less(at, n)
    v = zg.load(zg.add(x, at), inside, other=1.0)
    zg.store(zg.add(y, at), zg.sub(zg.mul(v, 3.0), zg.sum(v, 0)), inside)


@zg.kernel
def product(a, b, c, k, BLOCK: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, BLOCK), 1), zg.expand(zg.arange(0, BLOCK), 0)
    total = zg.zeros((BLOCK, BLOCK), zg.f32)
    for start in range(0, k, BLOCK):
        steps = zg.add(start, zg.arange(0, BLOCK))
        across, down = zg.expand(steps, 0), zg.expand(steps, 1)
        left = zg.load(zg.add(a, zg.add(zg.mul(rows, k), across)), zg.less(across, k), other=0.0)
        right = zg.load(zg.add(b, zg.add(zg.mul(down, BLOCK), columns)), zg.less(down, k), other=0.0)
        total = zg.dot(left, right, total)
    zg.store(zg.add(c, zg.add(zg.mul(rows, BLOCK), columns)), total)


@zg.kernel
def described(a, b, c, k, BLOCK: zg.constexpr):
    total = zg.zeros((BLOCK, BLOCK), zg.f32)
    for start in zg.range(0, k, BLOCK, num_stages=3):
        total = zg.dot(a.load((BLOCK, start)), b.load((start, 0)), total)
    c.store((BLOCK, 0), zg.cast(total, zg.f16))


@zg.kernel
def centred(x, y, total, n, BLOCK: zg.constexpr):
    """A row less its sum, by way of memory."""
    at = zg.arange(0, BLOCK)
    inside = zg.less(at, n)
    v = zg.load(zg.add(x, at), inside, other=0.0)
    zg.store(total, zg.sum(v, 0))
    zg.debug_barrier()
    zg.store(zg.add(y, at), zg.sub(v, zg.load(total)), inside)


@zg.kernel
def shared_blocks(a, b, c, k):
    total = zg.zeros((128, 64), zg.f32)
    for start in zg.range(0, k, 16, num_stages=3):
        total = zg.dot(a.load((0, start)), b.load((start, 64)), total)
    c.store((0, 0), zg.cast(total, zg.f16))


def compiled(name: str) -> list[tuple[str, Op]]:
    """The model of a kernel by its name, and after each pass that changed it, with the passes' names."""
    match name:
        case "scaled":
            model, options = scaled.triton(F32, F32, zg.i32, 128), CompileOptions("sm_90a", 4)
        case "product":
            model, options = product.triton(F16, F16, F32, zg.divisible(zg.i32), 32), CompileOptions("sm_80", 4)
        case "cluster":
            model = centred.triton(F32, F32, F32, zg.i32, 512)
            options = CompileOptions("sm_90a", 1, num_ctas=4)
        case "multicast":
            blocks = (128, 16), (16, 64), (128, 64)
            model = shared_blocks.triton(*(zg.divisible(zg.descriptor(block, zg.f16)) for block in blocks), zg.i32)
            options = CompileOptions("sm_90a", 4, num_ctas=2, warp_specialize=True)
        case _:
            roles = name == "roles"
            size = 64 if roles else 32
            types = [zg.divisible(zg.descriptor((size, size), zg.f16))] * 3
            model = described.triton(*types, zg.i32, size)
            options = CompileOptions("sm_90a" if roles else "sm_80", 4, warp_specialize=roles)
    snapshots: list[Snapshot] = []
    place(model, options, snapshots)
    models = [("kernel", model)]
    for snapshot in snapshots:
        if str(snapshot.model) != str(models[-1][1]):
            models.append((snapshot.name, snapshot.model))
    return models
