"""The layout of the result of a dot on sm_90a: which thread holds which element. Prints the picture dot.svg."""

import sys

import ziggurat as zg


@zg.kernel
def product(a, b, c):
    row, column = zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 16), 0)
    at = zg.add(zg.mul(row, 16), column)
    zg.store(zg.add(c, at), zg.dot(zg.load(zg.add(a, at)), zg.load(zg.add(b, at))))


f16 = zg.ptr(zg.f16)
gpu = product.compile(f16, f16, zg.ptr(zg.f32), target="sm_90a", num_warps=2).stages["gpu"]
(layout,) = (op.result.type.layout for op in gpu.walk() if op.NAME == "gpu.mma")
sys.stdout.write(layout.svg((16, 16)))
