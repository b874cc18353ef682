"""Kernels to step through, in both languages; their lines are named by marks: `# load`."""

from pathlib import Path

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl


@zg.kernel
def scaled(v, s):
    t = v * s  # scale
    return t + 1.0  # plus one


@zg.kernel
def steps(out, x, n, B: zg.constexpr):
    pid = zg.program_id(0)  # first
    at = pid * B + zg.arange(0, B)
    mask = zg.less(at, n)
    acc = zg.zeros((B,), zg.f32)
    for i in range(0, 3):  # loop
        v = zg.load(x + at, mask)  # load
        acc += scaled(v, 2.0)  # call
        if pid > 0:  # branch
            acc = acc * 2  # then
        else:
            low, high = acc - 1, acc + i
            acc = low + high  # otherwise
    zg.store(out + at, acc, mask)  # store


@triton.jit
def scaled_t(v, s):
    t = v * s  # t scale
    return t + 1.0  # t plus one


@triton.jit
def steps_t(out, x, n, B: tl.constexpr):
    pid = tl.program_id(0)  # t first
    at = pid * B + tl.arange(0, B)
    mask = at < n
    acc = tl.zeros((B,), tl.float32)
    for i in range(0, 3):  # t loop
        v = tl.load(x + at, mask)  # t load
        acc += scaled_t(v, 2.0)  # t call
        if pid > 0:  # t branch
            acc = acc * 2  # t then
        else:
            low, high = acc - 1, acc + i
            acc = low + high  # t otherwise
    tl.store(out + at, acc, mask)  # t store


@zg.kernel
def counts(out, n):
    total = 0
    while total < n:  # while
        total += 3  # add
        if total == 9:
            break  # leave
    zg.store(out, total)  # put


@zg.kernel
def sums(total, x, B: zg.constexpr):
    part = zg.sum(zg.load(x + zg.program_id(0) * B + zg.arange(0, B)), axis=0)
    zg.atomic_add(total, part)  # add to total


@zg.kernel
def strays(out, x):
    i = zg.program_id(0)
    zg.store(out + i, 0.5)  # half
    zg.store(out + i, zg.load(x + 100 * i))  # stray


@zg.kernel
def stops(out, x, B: zg.constexpr):
    at = zg.arange(0, B)
    v = zg.load(x + at)
    if zg.program_id(0) == 1:
        breakpoint()
    w = scaled(v, 3.0)  # after
    zg.store(out + at, w)  # last


@triton.jit
def stops_t(out, x, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    breakpoint()
    w = v * 2  # t after
    tl.store(out + at, w)


_LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def line_of(mark):
    """The line with a mark."""
    return next(number for number, line in enumerate(_LINES, 1) if line.endswith(f"# {mark}"))
