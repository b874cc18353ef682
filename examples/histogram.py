"""A histogram by atomics: many programs count into one array, and each adds its counts once."""

import numpy as np

import ziggurat as zg


@zg.kernel
def histogram_kernel(values_ptr, counts_ptr, n, BINS: zg.constexpr, BLOCK_SIZE: zg.constexpr):
    offsets = zg.add(zg.program_id(0) * BLOCK_SIZE, zg.arange(0, BLOCK_SIZE))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    values = zg.load(zg.add(values_ptr, offsets), mask, other=0)
    counts = zg.histogram(values, BINS, mask)
    zg.atomic_add(zg.add(counts_ptr, zg.arange(0, BINS)), counts)


def main():
    n, bins = 5000, 16
    values = np.random.default_rng(0).binomial(bins - 1, 0.4, n).astype(np.int32)
    counts = np.zeros(bins, np.int32)
    histogram_kernel[(zg.cdiv(n, 256),)](values, counts, n, BINS=bins, BLOCK_SIZE=256)
    np.testing.assert_array_equal(counts, np.bincount(values, minlength=bins))
    for value, count in enumerate(counts):
        print(f"{value:2} {count:5} {'#' * (count // 20)}")


if __name__ == "__main__":
    main()
