"""Kernels of the tests of `zg.explore`, with the content of their pages."""

import base64
import json
import re
import zlib
from typing import Any

import numpy as np

import ziggurat as zg


@zg.function
def scaled(value, factor):
    return zg.exp2(zg.mul(value, factor))


@zg.kernel
def sums(out, x, n, factor, ROUNDS: zg.constexpr, BLOCK: zg.constexpr):
    lanes = zg.arange(0, BLOCK)
    total = zg.zeros([BLOCK], zg.f32)
    for at in zg.range(0, ROUNDS):
        places = (zg.program_id(0) * ROUNDS + at) * BLOCK + lanes
        mask = zg.less(places, n)
        total = zg.add(total, scaled(zg.load(zg.add(x, places), mask, other=0.0), factor))
    zg.store(zg.add(out, zg.program_id(0) * BLOCK + lanes), total)


@zg.kernel
def stray(out, x, BLOCK: zg.constexpr):
    at = zg.program_id(0) * BLOCK + zg.arange(0, BLOCK)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at)))


@zg.kernel
def racing(out):
    zg.store(out, zg.program_id(0))


def sums_page(**options: Any) -> tuple[zg.Exploration, np.ndarray]:
    """The page of a launch of `sums` by three programs, and its input."""
    x = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    return zg.explore(sums, (3,), np.zeros(96, np.float32), x, 300, 2.0, 4, 32, **options), x


def content(page: str) -> dict[str, Any]:
    """What a page shows, as JSON has it."""
    packed = re.search(r'id="content">(.*?)<', page)
    assert packed is not None
    return json.loads(zlib.decompress(base64.b64decode(packed[1])))


def column(page: dict[str, Any], name: str) -> dict[str, Any]:
    (entry,) = (item for item in page["columns"] if item["name"] == name)
    return entry


@zg.kernel
def product(a, b, c, K, M: zg.constexpr, N: zg.constexpr, BK: zg.constexpr):
    total = zg.zeros([M, N], zg.f32)
    for at in zg.range(0, K, BK, warp_specialize=True):
        total = zg.dot(a.load([zg.program_id(0) * M, at]), b.load([at, 0]), total)
    c.store([zg.program_id(0) * M, 0], zg.cast(total, zg.f16))


def product_page() -> tuple[zg.Exploration, np.ndarray]:
    """The page of program 1 of a product with warp roles, and the block that it computes."""
    random = np.random.default_rng(3)
    a, b = random.standard_normal((256, 192)).astype(np.float16), random.standard_normal((192, 64)).astype(np.float16)
    c = np.zeros((256, 64), np.float16)
    blocks = [zg.TensorDescriptor(a, [128, 64]), zg.TensorDescriptor(b, [64, 64]), zg.TensorDescriptor(c, [128, 64])]
    page = zg.explore(product, (2,), *blocks, 192, 128, 64, 64, program=1, num_warps=4)
    return page, a[128:].astype(np.float32) @ b.astype(np.float32)


@zg.kernel
def transposed(x, y, SIZE: zg.constexpr):
    """Goes through shared memory, as its load and its store have different layouts."""
    rows, columns = zg.expand(zg.arange(0, SIZE), 1), zg.expand(zg.arange(0, SIZE), 0)
    zg.store(y + (columns * SIZE + rows), zg.load(x + (rows * SIZE + columns)))
