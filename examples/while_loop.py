"""A `while` loop with scalars: the number of steps of n → n/2, 3n + 1 until 1, and the loop-carried values."""

import numpy as np

import ziggurat as zg


@zg.kernel
def collatz_kernel(steps_ptr, peaks_ptr):
    number = zg.program_id(0)
    n = zg.cast(number + 1, zg.i64)
    steps = 0
    peak = n
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        peak = max(peak, n)
        steps += 1
    zg.store(steps_ptr + number, steps)
    zg.store(peaks_ptr + number, peak)


def collatz(n):
    steps, peak = 0, n
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        peak = max(peak, n)
        steps += 1
    return steps, peak


def main():
    count = 64
    steps = np.zeros(count, np.int32)
    peaks = np.zeros(count, np.int64)
    collatz_kernel[(count,)](steps, peaks)
    expected = [collatz(n) for n in range(1, count + 1)]
    np.testing.assert_array_equal(steps, [s for s, _ in expected])
    np.testing.assert_array_equal(peaks, [p for _, p in expected])
    longest = int(steps.argmax())
    print(f"Of 1 … {count}, {longest + 1} takes longest: {steps[longest]} steps, up to {peaks[longest]}.\n")

    print("The variables that the loop stores are the tuple that it carries:\n")
    print(collatz_kernel.triton(zg.ptr(zg.i32), zg.ptr(zg.i64)))


if __name__ == "__main__":
    main()
