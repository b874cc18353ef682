"""C = A · Bᵀ in blocks, with tensor descriptors as arguments: the kernel has no pointers, no strides and no masks.

The host sets the shape of a block: `zg.TensorDescriptor(a, (BLOCK_M, BLOCK_K))`. A block holds zeros outside of its
tensor, and elements outside of C are not written. B is stored as weights often are, N × K: its blocks are transposed
by the dot. From sm_90 on, TMA can move the blocks.

The same launch runs on NumPy's arrays and on a GPU's: with a GPU, the example runs both.
"""

import numpy as np

import ziggurat as zg


@zg.function
def block_of(pid, rows, columns, GROUP_SIZE: zg.constexpr):
    """The row and the column of the block that a program computes: down a group of rows before the next column."""
    in_group = GROUP_SIZE * columns
    first_row = pid // in_group * GROUP_SIZE
    size = min(rows - first_row, GROUP_SIZE)  # the last group may have fewer rows
    within = pid % in_group
    return first_row + within % size, within // size


@zg.kernel
def matmul_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: zg.constexpr, BLOCK_N: zg.constexpr, BLOCK_K: zg.constexpr, GROUP_SIZE: zg.constexpr,
):  # fmt: skip
    row, column = block_of(zg.program_id(0), zg.cdiv(M, BLOCK_M), zg.cdiv(N, BLOCK_N), GROUP_SIZE)

    accumulator = zg.zeros((BLOCK_M, BLOCK_N), zg.f32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load((row * BLOCK_M, k))
        b = b_desc.load((column * BLOCK_N, k))
        accumulator = zg.dot(a, zg.trans(b), accumulator)

    c_desc.store((row * BLOCK_M, column * BLOCK_N), zg.cast(accumulator, zg.f16))


def matmul(a, b, c, block_m=64, block_n=64, block_k=32, **options):
    """Write a · bᵀ to c. All three are NumPy arrays, or all three are on a GPU."""
    (m, k), (n, _) = a.shape, b.shape
    matmul_kernel[(zg.cdiv(m, block_m) * zg.cdiv(n, block_n),)](
        zg.TensorDescriptor(a, (block_m, block_k)),
        zg.TensorDescriptor(b, (block_n, block_k)),
        zg.TensorDescriptor(c, (block_m, block_n)),
        m, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_SIZE=4, **options,
    )  # fmt: skip


def reference(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


def has_gpu():
    """Whether launches on a GPU work here: there is a driver, and a device."""
    try:
        zg.empty(1)
    except zg.ZigguratError:
        return False
    return True


def main():
    # Rows are multiples of 16 bytes, as descriptors require; otherwise the sizes fit no block.
    rng = np.random.default_rng(0)
    a = rng.standard_normal((200, 296)).astype(np.float16)
    b = rng.standard_normal((152, 296)).astype(np.float16)
    expected = reference(a, b)

    c = np.empty((200, 152), np.float16)
    matmul(a, b, c)
    np.testing.assert_allclose(c, expected, rtol=1e-3, atol=1e-3)
    print(f"{a.shape} · {b.shape}ᵀ in memory: off by at most {np.abs(c - expected).max():.4f}")

    if has_gpu():
        there = zg.to_device(np.zeros_like(c))
        matmul(zg.to_device(a), zg.to_device(b), there, 128, 128, 64, num_warps=8)
        found = zg.to_host(there)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        print(f"on the GPU: off by at most {np.abs(found - expected).max():.4f}")
    else:
        print("there is no GPU here")

    try:
        zg.TensorDescriptor(np.empty((200, 150), np.float16), (64, 64))
    except zg.LaunchError as error:
        print(f"What a descriptor cannot describe, it says:\n  {error.summary}")

    # TMA stores only to rows of whole 16 bytes.
    tiles = [zg.descriptor((128, 64), zg.f16)] * 2 + [zg.divisible(zg.descriptor((128, 128), zg.f16))]
    kernel = matmul_kernel.compile(*tiles, zg.i32, zg.i32, zg.i32, 128, 128, 64, 4, num_warps=8)
    print(f"Compiled for {kernel.target}, it takes the parts {', '.join(kernel.parts)}")


if __name__ == "__main__":
    main()
