"""Adding two vectors: a kernel, its code model at two tiers, and a run on NumPy arrays."""

import numpy as np

import ziggurat as zg


@zg.kernel
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: zg.constexpr):
    pid = zg.program_id(0)
    block_start = pid * BLOCK_SIZE
    range = zg.arange(0, BLOCK_SIZE)
    offsets = zg.add(block_start, range)
    mask = zg.compare(offsets, n_elements, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    y = zg.load(zg.add(y_ptr, offsets), mask)
    output = zg.add(x, y)
    zg.store(zg.add(output_ptr, offsets), output, mask)


def main():
    print("The Python code model:\n")
    print(add_kernel.model)

    model = add_kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 64)
    print("The Triton code model, for pointers to f32 and blocks of 64:\n")
    print(model)
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)

    n = 1000
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n, np.float32)
    y = rng.standard_normal(n, np.float32)
    output = np.zeros(n, np.float32)
    grid = (zg.cdiv(n, 64),)
    add_kernel[grid](x, y, output, n, BLOCK_SIZE=64)
    np.testing.assert_array_equal(output, x + y)
    print(f"{n} elements in {grid[0]} programs: equal to NumPy's x + y.")


if __name__ == "__main__":
    main()
