"""Transposing a matrix block by block, with tensor descriptors: no pointers to compute and no masks to write.

A descriptor knows the shape of what it describes: of a block that reaches beyond, what is outside reads as zero and is
not written.
"""

import numpy as np

import ziggurat as zg


@zg.kernel
def transpose_kernel(source_ptr, target_ptr, rows, columns, BLOCK: zg.constexpr):
    source = zg.make_tensor_descriptor(source_ptr, (rows, columns), (columns, 1), (BLOCK, BLOCK))
    target = zg.make_tensor_descriptor(target_ptr, (columns, rows), (rows, 1), (BLOCK, BLOCK))
    i = zg.program_id(0) * BLOCK
    j = zg.program_id(1) * BLOCK
    target.store((j, i), zg.trans(source.load((i, j))))


def main():
    source = np.random.default_rng(0).standard_normal((100, 44), np.float32)
    target = np.zeros((44, 100), np.float32)
    grid = (zg.cdiv(100, 16), zg.cdiv(44, 16))
    transpose_kernel[grid](source, target, 100, 44, BLOCK=16)
    np.testing.assert_array_equal(target, source.T)
    print(f"A {source.shape} matrix transposed by a grid of {grid} programs, in blocks of 16 × 16.")


if __name__ == "__main__":
    main()
