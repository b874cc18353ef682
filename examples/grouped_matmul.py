"""C = A · B in blocks, with an activation that is chosen at compile time.

A program computes one block of C. Programs are numbered so that those which run at about the same time share blocks of
A and B: they go down a group of rows of blocks before they move to the next column. Operands and result are f16; the
sum is kept in f32.
"""

import numpy as np

import ziggurat as zg


@zg.function
def leaky_relu(x):
    return zg.where(zg.compare(x, 0.0, zg.CompareKind.GREATER_THAN_OR_EQUAL), x, zg.mul(x, 0.01))


@zg.function
def block_of(pid, rows, columns, GROUP_SIZE: zg.constexpr):
    """The row and the column of the block that a program computes."""
    in_group = GROUP_SIZE * columns
    first_row = pid // in_group * GROUP_SIZE
    size = min(rows - first_row, GROUP_SIZE)  # the last group may have fewer rows
    within = pid % in_group
    return first_row + within % size, within // size


@zg.kernel
def matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: zg.constexpr, BLOCK_N: zg.constexpr, BLOCK_K: zg.constexpr,
    GROUP_SIZE: zg.constexpr, ACTIVATION: zg.constexpr = None,
):  # fmt: skip
    row, column = block_of(zg.program_id(0), zg.cdiv(M, BLOCK_M), zg.cdiv(N, BLOCK_N), GROUP_SIZE)

    rows = zg.add(row * BLOCK_M, zg.arange(0, BLOCK_M))
    columns = zg.add(column * BLOCK_N, zg.arange(0, BLOCK_N))
    ks = zg.arange(0, BLOCK_K)

    # Rows and columns beyond the matrix wrap around to existing ones; their results are not stored.
    a_rows = zg.expand(zg.mod(rows, M), 1)
    b_columns = zg.expand(zg.mod(columns, N), 0)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(a_rows, stride_am), zg.mul(zg.expand(ks, 0), stride_ak)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(ks, 1), stride_bk), zg.mul(b_columns, stride_bn)))

    accumulator = zg.zeros((BLOCK_M, BLOCK_N), zg.f32)
    for k in range(0, zg.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = zg.load(a_ptrs, zg.compare(zg.expand(ks, 0), left, zg.CompareKind.LESS_THAN), other=0.0)
        b = zg.load(b_ptrs, zg.compare(zg.expand(ks, 1), left, zg.CompareKind.LESS_THAN), other=0.0)
        accumulator = zg.dot(a, b, accumulator)
        a_ptrs = zg.add(a_ptrs, BLOCK_K * stride_ak)
        b_ptrs = zg.add(b_ptrs, BLOCK_K * stride_bk)

    if ACTIVATION == "leaky_relu":  # known at compile time: the other branch is not in the model
        accumulator = leaky_relu(accumulator)

    c_rows = zg.expand(rows, 1)
    c_columns = zg.expand(columns, 0)
    c_ptrs = zg.add(c_ptr, zg.add(zg.mul(c_rows, stride_cm), zg.mul(c_columns, stride_cn)))
    row_inside = zg.compare(c_rows, M, zg.CompareKind.LESS_THAN)
    column_inside = zg.compare(c_columns, N, zg.CompareKind.LESS_THAN)
    zg.store(c_ptrs, zg.cast(accumulator, zg.f16), zg.and_(row_inside, column_inside))


def matmul(a, b, activation=None):
    (m, k), (_, n) = a.shape, b.shape
    c = np.empty((m, n), np.float16)
    strides = [stride // array.itemsize for array in (a, b, c) for stride in array.strides]
    matmul_kernel[lambda meta: (zg.cdiv(m, meta["BLOCK_M"]) * zg.cdiv(n, meta["BLOCK_N"]),)](
        a, b, c, m, n, k, *strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, GROUP_SIZE=4, ACTIVATION=activation
    )
    return c


def reference(a, b, activation=None):
    c = a.astype(np.float64) @ b.astype(np.float64)
    return np.where(c >= 0, c, 0.01 * c) if activation == "leaky_relu" else c


def main():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((200, 300)).astype(np.float16)
    b = rng.standard_normal((300, 150)).astype(np.float16)
    for activation in (None, "leaky_relu"):
        c = matmul(a, b, activation)
        expected = reference(a, b, activation)
        np.testing.assert_allclose(c, expected, rtol=1e-3, atol=1e-4)
        print(f"{a.shape} · {b.shape}, activation {activation}: off by at most {np.abs(c - expected).max():.4f}")

    transposed = np.ascontiguousarray(b.T).T  # the same numbers, in columns
    assert np.array_equal(matmul(a, transposed), matmul(a, b))
    print("B stored in columns gives the same: the strides are arguments.")

    types = [zg.ptr(zg.f16)] * 3 + [zg.i32] * 9
    for activation in (None, "leaky_relu"):
        model = matmul_kernel.triton(*types, 32, 64, 32, 4, activation)
        functions = [op.sym_name for op in model.functions().values()]
        print(f"With activation {activation} the model has {len(list(model.walk()))} ops; its functions are")
        print("  " + "\n  ".join(functions))


if __name__ == "__main__":
    main()
