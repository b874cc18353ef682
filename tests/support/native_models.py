"""Three small kernels whose CPU models tests read: a vector addition, a softmax, and a matmul."""

import ziggurat as zg

K = zg.CompareKind


@zg.kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: zg.constexpr):
    offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(offsets, n, K.LESS_THAN)
    total = zg.add(zg.load(zg.add(x_ptr, offsets), mask), zg.load(zg.add(y_ptr, offsets), mask))
    zg.store(zg.add(out_ptr, offsets), total, mask)


@zg.kernel
def softmax(out_ptr, x_ptr, stride, n, BLOCK: zg.constexpr):
    row = zg.program_id(0) * stride
    columns = zg.arange(0, BLOCK)
    mask = zg.compare(columns, n, K.LESS_THAN)
    x = zg.load(zg.add(x_ptr + row, columns), mask, other=-float("inf"))
    e = zg.exp(zg.sub(x, zg.max(x, axis=0)))
    zg.store(zg.add(out_ptr + row, columns), zg.div(e, zg.sum(e, axis=0)), mask)


@zg.kernel
def matmul(a_ptr, b_ptr, c_ptr, n, BLOCK: zg.constexpr):
    rows = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    columns = zg.add(zg.program_id(1) * BLOCK, zg.arange(0, BLOCK))
    inner = zg.arange(0, BLOCK)
    a = zg.add(zg.add(a_ptr, zg.mul(zg.expand(rows, 1), n)), zg.expand(inner, 0))
    b = zg.add(zg.add(b_ptr, zg.mul(zg.expand(inner, 1), n)), zg.expand(columns, 0))
    total = zg.zeros((BLOCK, BLOCK), zg.f32)
    for _ in range(0, zg.cdiv(n, BLOCK)):
        total = zg.dot(zg.load(a), zg.load(b), total)
        a = zg.add(a, BLOCK)
        b = zg.add(b, BLOCK * n)
    zg.store(zg.add(zg.add(c_ptr, zg.mul(zg.expand(rows, 1), n)), zg.expand(columns, 0)), total)


F32 = zg.ptr(zg.f32)
MODELS = {
    "add": lambda: add.triton(F32, F32, F32, zg.i32, 1024),
    "softmax": lambda: softmax.triton(F32, F32, zg.i32, zg.i32, 1024),
    "matmul": lambda: matmul.triton(F32, F32, F32, zg.i32, 64),
}
